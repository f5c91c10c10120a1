"""The peer of `steps_in_turns.py` that is another checkout of this repository: its step, its input pipeline.

Takes that script's options. Reads lines of widths, such as `32,32,32`, makes as many updates on its own batches, and
prints their seconds, and the CPU seconds in the program and in the kernel.
"""

import importlib.util
import pathlib
import sys
import tempfile


def main() -> None:
    """Answers requests until its input ends."""
    checkout = next(option for option in sys.argv if option.startswith("--checkout=")).partition("=")[2]
    sys.path.insert(0, checkout)
    import tfbert  # The checkout's, and all that is imported of it from here on.

    assert pathlib.Path(tfbert.__file__).is_relative_to(pathlib.Path(checkout).resolve()), tfbert.__file__
    sys.path += [str(pathlib.Path(__file__).parent.parent), f"{checkout}/benchmarks"]
    import steps_in_turns

    args = steps_in_turns.parsed()
    steps_in_turns.set_up(args)
    spec = importlib.util.spec_from_file_location("theirs", f"{checkout}/benchmarks/steps_in_turns.py")
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    with tempfile.TemporaryDirectory() as scratch:
        own, _ = theirs.own_step(steps_in_turns.config_of(args, scratch))
        own(args.steps)  # Traces and compiles.
        print("ready", flush=True)
        for line in sys.stdin:
            print(*own(line.count(",") + 1), flush=True)


if __name__ == "__main__":
    main()
