"""Two workers through TF_CONFIG make the weights that one device makes, micro-batches and a ragged batch included."""

import dataclasses
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.models import tiny_bert
from tests.test_checkpoint import corpus, make_config, weights  # noqa: F401 (corpus is a fixture)
from tfbert.config import ModelConfig, RuntimeConfig, TrainingConfig
from tfbert.data.tokenizer import BertTokenizer
from tfbert.model import save_pretrained

ROOT = pathlib.Path(__file__).parent.parent
SLOW = pytest.mark.slow
BFLOAT16 = ("--mixed_precision", "--mixed_precision_dtype=bfloat16")
FLOAT16 = ("--mixed_precision", "--mixed_precision_dtype=float16")


@pytest.mark.multi_worker
@pytest.mark.parametrize(
    ("micro_batches", "options"),
    [
        pytest.param(2, (), id="2-float32"),
        pytest.param(1, (), id="1-float32", marks=SLOW),
        pytest.param(4, (), id="4-float32", marks=SLOW),
        pytest.param(2, ("--xla",), id="2-float32-xla", marks=SLOW),
        pytest.param(2, BFLOAT16, id="2-bfloat16", marks=SLOW),
        pytest.param(2, (*BFLOAT16, "--xla"), id="2-bfloat16-xla", marks=SLOW),
        pytest.param(1, FLOAT16, id="1-float16", marks=SLOW),
        pytest.param(4, (*FLOAT16, "--xla"), id="4-float16-xla", marks=SLOW),
    ],
)
def test_two_workers_make_the_weights_of_one_device(corpus, micro_batches, options):  # noqa: F811
    model = tiny_bert(num_labels=2, dropout=0.0)
    words = (corpus / "vocab.txt").read_text().split()
    save_pretrained(model, BertTokenizer(words + [f"[unused{i}]" for i in range(60 - len(words))]), corpus / "model")

    # One epoch of 44 rows in batches of 8: the last batch holds 4, so the second worker's share of it is empty.
    config = dataclasses.replace(
        make_config(corpus, "one"),
        model=ModelConfig(model_name_or_path=str(corpus / "model")),
        training=TrainingConfig(global_batch_size=8, num_train_epochs=1, learning_rate=1e-3),
        runtime=RuntimeConfig(),
    )
    (corpus / "config.json").write_text(config.to_json())
    command = [str(ROOT / "run_finetune.py"), f"--run_config={corpus / 'config.json'}"]
    subprocess.run([sys.executable, *command], check=True, timeout=300)
    launch = [sys.executable, "-m", "tfbert.launch", "--num_workers=2", "--"]
    split = ["--strategy=multi_worker", f"--gradient_accumulation_steps={micro_batches}", *options]
    subprocess.run([*launch, *command, *split, f"--output_dir={corpus / 'two'}"], check=True, timeout=400, cwd=ROOT)

    start, one, two = (weights(corpus / name) for name in ("model", "one", "two"))
    for name, expected in one.items():
        # Attention's key bias has gradient 0 in exact arithmetic; AdamW makes updates of its rounding noise.
        if name.endswith("key.bias"):
            continue
        if any(option.startswith("--mixed") for option in options):
            # AdamW turns a rounded gradient near 0 into a whole update: compare the updates as a whole.
            moved = np.abs(expected - start[name]).mean()
            assert np.abs(two[name] - expected).mean() <= 0.1 * moved + 1e-7, name
        else:
            np.testing.assert_allclose(two[name], expected, atol=1e-5, err_msg=name)
    assert np.abs(one["classifier.weight"] - start["classifier.weight"]).max() > 1e-3, "the runs must have trained"
