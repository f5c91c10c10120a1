"""Pre-training by the command gives one device's weights however a batch is split, dropout on: {one device, two
replicas, two workers through TF_CONFIG} x {1, 4 micro-batches} x {float32, bfloat16, float16} x {XLA off, on} x {AdamW,
LAMB}, the last batch ragged."""

import functools
import itertools

import numpy as np
import pytest
from absl import flags

import flags as command_flags
from tests.support.records import VOCAB_SIZE, some_records, write_records
from tests.support.runs import undrawn, weights
from tests.support.splits import DEVICES, PRECISIONS, alone, assert_same_update, launched, split_flags
from tfbert.config.run import PRETRAIN
from tfbert.modes.pretrain import pretrain

GRID = list(itertools.product(DEVICES, (1, 4), PRECISIONS, (False, True), ("adamw", "lamb")))
RATES = {"adamw": 1e-3, "lamb": 5e-3}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The flags of all runs; and where a run in one piece left its weights, by XLA and optimizer.

    With and without XLA batches have other widths, and noise belongs to places in a row of some width.
    """
    directory = tmp_path_factory.mktemp("pretraining")
    # Two batches of 16 and one of 4, of which a second replica with 4 micro-batches has none.
    write_records(directory / "records.tfrecord", some_records(36))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(VOCAB_SIZE - 5))]
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    common = [f"--train_records={directory / 'records.tfrecord'}", f"--vocab_file={directory / 'vocab.txt'}"]
    common += ["--model=scratch/L-2_H-128", "--max_seq_length=16", "--global_batch_size=16", "--num_train_epochs=1"]
    common += ["--save_steps=0", "--warmup_ratio=0", "--lr_schedule=constant"]

    @functools.cache
    def whole(xla, optimizer, learning_rate=None):
        out = directory / f"{optimizer}-{xla}-{learning_rate}"
        more = [f"--optimizer={optimizer}", f"--learning_rate={learning_rate or RATES[optimizer]}"]
        with undrawn():
            run_command([*common, *more, f"--output_dir={out}", *["--xla"] * xla])
        return weights(out)

    return common, whole


def run_command(arguments):
    """What run_pretraining.py does, in this process."""
    values = flags.FlagValues()
    command_flags.define_flags(values, PRETRAIN)
    values(["run_pretraining.py", *arguments])
    pretrain(command_flags.config_from_flags(values, PRETRAIN))


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("devices, micro_batches, precision, xla, optimizer", GRID)
@pytest.mark.usefixtures("undrawn")
def test_every_split_gives_the_weights_of_one_device(
    reference, tmp_path, devices, micro_batches, precision, xla, optimizer
):
    common, whole = reference
    arguments = [
        *common,
        f"--output_dir={tmp_path / 'split'}",
        f"--optimizer={optimizer}",
        f"--learning_rate={RATES[optimizer]}",
        *split_flags(devices, micro_batches, precision, xla),
    ]
    if devices == "two_workers":
        launched("run_pretraining.py", arguments)
    elif xla:
        alone("run_pretraining.py", arguments)
    else:
        run_command(arguments)
    start, one, split = whole(False, "adamw", learning_rate=1e-12), whole(xla, optimizer), weights(tmp_path / "split")
    assert_same_update(start, one, split, precision)
    moved = [np.abs(one[name] - start[name]).max() for name in one]
    assert np.median(moved) > 1e-3, "the updates must be larger than what is allowed to differ"
