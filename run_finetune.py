#!/usr/bin/env python3
"""Fine-tunes BERT in TensorFlow to classify texts, predict numbers, tag words, find or choose answers.

    python run_finetune.py --strategy=mirrored --mixed_precision
    python run_finetune.py --model=bert-base-uncased --dataset=glue/sst2 --output_dir=runs/sst2

Exit status: 0 done; 2 a flag, configuration or data that cannot be used; 1 the run failed; 75 stopped by SIGTERM, or in
training by SIGINT: the same command starts again, or resumes; 130 Ctrl-C at another time; 141 the reader of the
predictions, such as `head`, closed the pipe.
"""

import sys

from tfbert.devices.process import run_program


def main() -> int:
    """Flags -> Config -> one verb of tfbert; returns the exit status."""
    from tfbert.commandline import run_command
    from tfbert.config.run import FINETUNE

    return run_command(FINETUNE, sys.argv)


if __name__ == "__main__":
    sys.exit(run_program("run_finetune.py", main))
