#!/usr/bin/env python3
"""Pre-trains BERT in TensorFlow on your own text: makes records of a corpus, trains on them, evaluates.

    python run_pretraining.py
    python run_pretraining.py --mode=prepare --input_files=corpus.txt --vocab_file=vocab.txt --output_dir=records
    python run_pretraining.py --model=scratch/mini --train_records=records --output_dir=runs/bert

run_finetune.py starts from the trained model: --model=runs/bert. Exit status: as for run_finetune.py.
"""

import sys

from tfbert.devices.process import run_program


def main() -> int:
    """Flags -> Config -> one verb of tfbert; returns the exit status."""
    from tfbert.commandline import run_command
    from tfbert.config.run import PRETRAIN

    return run_command(PRETRAIN, sys.argv)


if __name__ == "__main__":
    sys.exit(run_program("run_pretraining.py", main))
