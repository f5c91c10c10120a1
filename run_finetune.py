#!/usr/bin/env python3
"""Fine-tunes a BERT classifier in TensorFlow.

    python run_finetune.py --strategy=mirrored --mixed_precision
    python run_finetune.py --model=bert-base-uncased --dataset=glue/sst2 --output_dir=runs/sst2

Exit status: 0 done; 2 a flag, configuration or data that cannot be used; 1 a run that failed; 75 a run that stopped
because SIGTERM or SIGINT asked it to, and goes on when the same command is given again.
"""

import logging
import os
import sys

from absl import app, flags

import flags as command_flags
from tfbert.config import Config, Preempted, RunError, UsageError


def main() -> int:
    """Flags -> Config -> the run; returns the exit status."""
    try:
        config = parse(sys.argv)
        quieten_libraries()
        from tfbert.finetune import finetune  # TensorFlow takes seconds to import: a wrong flag must not wait for it.

        finetune(config)
    except UsageError as error:
        return fail(error, status=2)
    except RunError as error:
        return fail(error, status=1)
    except Preempted as error:
        print(f"run_finetune.py: {error}", file=sys.stderr)
        return 75
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


def quieten_libraries() -> None:
    """Shows this program's messages and the libraries' errors; a library's own variable overrides."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # Importing PyTorch and Keras 3 beside TensorFlow costs seconds, and nothing here uses them.
    os.environ.setdefault("USE_TORCH", "0")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("tfbert").setLevel(logging.INFO)


def fail(error: Exception, status: int) -> int:
    """One line for each thing that is wrong."""
    for line in str(error).splitlines():
        print(f"run_finetune.py: error: {line}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
