"""The command gives one device's weights however a batch is split, dropout on: {one device, two replicas, two workers
through TF_CONFIG} x {1, 2, 4 micro-batches} x {float32, bfloat16, float16} x {XLA off, on}, the last batch ragged."""

import functools
import itertools

import numpy as np
import pytest
from absl import flags

import flags as command_flags
from tests.support.models import tiny_bert
from tests.support.runs import changed, make_config, undrawn, weights, write_corpus
from tests.support.splits import DEVICES, PRECISIONS, alone, assert_same_update, launched, split_flags
from tfbert.model.head import save_pretrained
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.train.run import finetune

LORA = ("--lora_rank=4", "--lora_targets=all")
GRID = list(itertools.product(DEVICES, (1, 2, 4), PRECISIONS, (False, True), ((),)))
GRID += list(itertools.product(DEVICES, (2,), PRECISIONS, (False, True), (LORA,)))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A directory with the data and the first weights in `model`; and where one big batch a step made of them, by XLA.

    With and without it batches have other widths, and noise belongs to places in a row of some width.
    """
    directory = tmp_path_factory.mktemp("invariance")
    write_corpus(directory)
    words = (directory / "vocab.txt").read_text().split()
    tokenizer = BertTokenizer(words + [f"[unused{i}]" for i in range(60 - len(words))])
    save_pretrained(tiny_bert(num_labels=2, dropout=0.1, num_hidden_layers=1), tokenizer, directory / "model")
    # One epoch of 44 rows in batches of 8: the last batch holds 4, so a second replica's share of it is empty.
    config = changed(
        make_config(directory, "unused"),
        data={"validation_file": ""},
        training={"num_train_epochs": 1, "learning_rate": 1e-3, "gradient_accumulation_steps": 1},
        output={"save_steps": 0, "eval_steps": 0},
    )
    (directory / "config.json").write_text(config.to_json())

    @functools.cache
    def whole(xla, options):
        out = directory / f"one{xla}{len(options)}"
        with undrawn():
            run_command(
                [f"--run_config={directory / 'config.json'}", f"--output_dir={out}", *["--xla"] * xla, *options]
            )
        return out

    return directory, whole


def run_command(arguments):
    """What run_finetune.py does, in this process."""
    values = flags.FlagValues()
    command_flags.define_flags(values)
    values(["run_finetune.py", *arguments])
    finetune(command_flags.config_from_flags(values))


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("devices, micro_batches, precision, xla, options", GRID)
@pytest.mark.usefixtures("undrawn")
def test_every_split_gives_the_weights_of_one_device(
    reference, tmp_path, devices, micro_batches, precision, xla, options
):
    directory, whole = reference
    arguments = [
        f"--run_config={directory / 'config.json'}",
        f"--output_dir={tmp_path / 'split'}",
        *split_flags(devices, micro_batches, precision, xla),
        *options,
    ]
    if devices == "two_workers":
        launched("run_finetune.py", arguments)
    elif xla:
        alone("run_finetune.py", arguments)
    else:
        run_command(arguments)

    start, one, split = (weights(path) for path in (directory / "model", whole(xla, options), tmp_path / "split"))
    assert_same_update(start, one, split, precision)
    assert np.abs(one["classifier.weight"] - start["classifier.weight"]).max() > 1e-3, "the runs must have trained"
