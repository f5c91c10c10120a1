"""The command's own training step against a bare PyTorch step or an earlier commit's, in turns: for machines whose
speed varies.

    python benchmarks/steps_in_turns.py --model=DIR --train_file=train.tsv --torch_python=peer/bin/python
    python benchmarks/steps_in_turns.py --model=DIR --train_file=train.tsv --checkout=DIR --padded --max_seq_length=32

Ours is the function that the command runs, with its input pipeline, on real batches grouped by length; PyTorch's
(`peers/torch_turns.py`: fused AdamW, clipping, no Trainer, no data to prepare) gets random tokens of the same widths.
Another checkout (`peers/checkout_turns.py`) makes batches of its own: with --padded they have our widths. A turn is
`--steps` updates of one side, then of the other; the first third of the turns is left out. Prints one JSON line, with
the machine and each side's CPU seconds, those in the kernel apart. `--no-keep_freed_memory` leaves glibc's malloc at
its defaults. Any encoder: `peers/random_encoder.py` makes a model of its size.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from machine import machine  # noqa: E402

from tfbert import Config, DataConfig, ModelConfig, OutputConfig, RuntimeConfig, TrainingConfig, keep_freed_memory  # noqa: E402
from tfbert.devices.process import choose_kernels  # noqa: E402

PEERS = ROOT / "benchmarks" / "peers"


def main() -> None:
    """Runs the turns of both sides, and prints their ratio."""
    args = parsed()
    set_up(args)
    if args.checkout:
        command = [sys.executable, PEERS / "checkout_turns.py", f"--checkout={args.checkout}", *sys.argv[1:]]
    else:
        command = [
            args.torch_python,
            PEERS / "torch_turns.py",
            f"--model={args.model}",
            f"--batch_size={args.batch_size}",
        ]
        command += ["--mixed_precision"] * args.mixed_precision
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert peer.stdout.readline() == "ready\n"
    with tempfile.TemporaryDirectory() as scratch:
        own, widths = own_side(args, scratch)
        own(args.steps)  # Traces and compiles.
        take(widths, args.steps)
        sides = {"tfbert": [], "peer": []}
        for _ in range(args.turns):
            peer.stdin.write(",".join(map(str, take(widths, args.steps))) + "\n")
            peer.stdin.flush()
            sides["peer"].append(tuple(map(float, peer.stdout.readline().split())))
            sides["tfbert"].append(own(args.steps))
    peer.kill()
    kept = {name: list(zip(*values[args.turns // 3 :], strict=True)) for name, values in sides.items()}
    seconds = {name: values[0] for name, values in kept.items()}
    speeds = {
        name: round(args.batch_size * args.steps * len(values) / sum(values), 1) for name, values in seconds.items()
    }
    ratios = [round(peer / own, 3) for peer, own in zip(seconds["peer"], seconds["tfbert"], strict=True)]
    report = {"examples_per_second": speeds, "ratio": round(speeds["tfbert"] / speeds["peer"], 3), "ratios": ratios}
    for place, name in enumerate(("user_seconds", "kernel_seconds"), 1):
        report[name] = {side: round(sum(values[place]), 1) for side, values in kept.items()}
    print(json.dumps(report | {"keep_freed_memory": args.keep_freed_memory, "machine": machine()}))


def parsed():
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file"):
        parser.add_argument(f"--{name}", required=True)
    peer = parser.add_mutually_exclusive_group(required=True)
    peer.add_argument("--torch_python", help="a Python with torch and transformers: the peer is PyTorch")
    peer.add_argument("--checkout", help="the peer is another checkout of this repository")
    parser.add_argument(
        "--padded", action="store_true", help="batches padded to --max_seq_length, not grouped by length"
    )
    parser.add_argument("--mixed_precision", action="store_true", help="bfloat16")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--keep_freed_memory", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def set_up(args):
    """What comes before TensorFlow's import."""
    choose_kernels()
    if args.keep_freed_memory:
        keep_freed_memory()


def config_of(args, scratch):
    """The configuration of the run whose step is measured."""
    return Config(
        model=ModelConfig(model_name_or_path=args.model),
        data=DataConfig(
            train_file=args.train_file,
            max_seq_length=args.max_seq_length,
            batching="padded" if args.padded else "length_grouped",
        ),
        training=TrainingConfig(global_batch_size=args.batch_size),
        runtime=RuntimeConfig(keep_freed_memory=args.keep_freed_memory, mixed_precision=args.mixed_precision),
        output=OutputConfig(output_dir=f"{scratch}/run"),
    ).resolved()


def take(items, count):
    """The next `count` items."""
    return list(itertools.islice(items, count))


def own_side(args, scratch):
    """A function that makes a number of updates and returns their seconds (wall, user, kernel), and an iterator over
    the widths of the updates."""
    make_updates, run = own_step(config_of(args, scratch))
    return make_updates, (int(width) for plan in run.batches.plans() for width in plan.widths)


def own_step(config):
    """Sets up a run as the command does; TensorFlow is imported here, after the allocator is set.

    Args:
        config: The run's configuration, resolved.

    Returns:
        A function that makes a number of updates and returns their seconds (wall, user, kernel); and the `Run`.
    """
    from tfbert.batches.pipeline import distribute_batches
    from tfbert.devices import runtime
    from tfbert.devices.runtime import build_strategy
    from tfbert.devices.workers import Consensus
    from tfbert.measure import DataClock, cpu_seconds
    from tfbert.train.build import build_run
    from tfbert.train.resume import decide

    runtime.set_up(config.runtime)
    strategy = build_strategy(config.runtime)
    run = build_run(decide(pathlib.Path(config.output.output_dir), config), strategy, Consensus(strategy))
    with run.strategy.scope():
        clock = DataClock()
    update = clock.timed(run.model.update)
    batches = iter(distribute_batches(run.strategy, run.train, run.batches.plans))

    def make_updates(count):
        start, cpu = time.perf_counter(), cpu_seconds()
        for _ in range(count):
            update(batches)
        run.model.counters.finite_steps.numpy()
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        return seconds, *cpu.tolist()

    return make_updates, run


if __name__ == "__main__":
    main()
