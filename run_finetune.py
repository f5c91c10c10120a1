#!/usr/bin/env python3
"""Fine-tunes BERT in TensorFlow to classify texts, tag words or find answers; evaluates, applies and exports it.

    python run_finetune.py --strategy=mirrored --mixed_precision
    python run_finetune.py --model=bert-base-uncased --dataset=glue/sst2 --output_dir=runs/sst2

Exit status: 0 done; 2 a flag, configuration or data that cannot be used; 1 a run that failed; 75 stopped by SIGTERM or
SIGINT, and says how it goes on; 130 Ctrl-C at another time; 141 predictions whose reader, like `head`, wanted no more.
"""

import importlib
import sys

from absl import app, flags

import flags as command_flags
from tfbert.config.run import Config
from tfbert.devices.allocator import keep_freed_memory
from tfbert.devices.onednn import use_onednn
from tfbert.devices.quiet import silence_libraries, stderr_held_back
from tfbert.errors import EXPECTED, Preempted, UsageError

VERBS = {
    "train": ("tfbert.train.run", "finetune"),
    "evaluate": ("tfbert.modes.evaluate", "evaluate_model"),
    "predict": ("tfbert.modes.predict", "predict"),
    "export": ("tfbert.modes.export", "export"),
    "benchmark": ("tfbert.modes.benchmark", "run_benchmark"),
}


def main() -> int:
    """Flags -> Config -> one verb of tfbert; returns the exit status."""
    try:
        config = parse(sys.argv)
        silence_libraries()
        use_onednn()
        if config.runtime.keep_freed_memory:
            keep_freed_memory()
        with stderr_held_back():
            import tensorflow as tf  # Takes seconds, for which a wrong flag need not wait.

            module, verb = VERBS[config.mode]
            run = getattr(importlib.import_module(module), verb)
            tf.config.list_physical_devices("GPU")
            from tfbert.devices.runtime import out_of_memory_as_run_error

        with out_of_memory_as_run_error(config):
            run(config)
    except EXPECTED as error:
        return fail(error, error.status, kind="" if isinstance(error, Preempted) else "error: ")
    except KeyboardInterrupt:  # Before training began, or in another mode: there is nothing to go on from.
        return fail(RuntimeError("stopped by Ctrl-C"), status=130, kind="")
    return 0


def parse(argv: list[str]) -> Config:
    """The configuration that the command line describes."""
    command_flags.define_flags(flags.FLAGS)
    app.define_help_flags()
    flags.adopt_module_key_flags(command_flags)  # So that --help lists them.
    try:
        rest = flags.FLAGS(argv)[1:]
    except flags.Error as error:
        raise UsageError(f"{error} See --help.") from None
    if rest:
        raise UsageError(f"Every argument is a flag. Received: {' '.join(rest)}. Write --name=value; see --help.")
    return command_flags.config_from_flags(flags.FLAGS)


def fail(error: Exception, status: int, kind: str = "error: ") -> int:
    """One line for each thing that is wrong."""
    for line in str(error).splitlines():
        print(f"run_finetune.py: {kind}{line}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
