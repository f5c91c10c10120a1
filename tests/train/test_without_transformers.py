"""Nothing on the way of training, loading, predicting and exporting imports transformers or tf_keras."""

import pytest

from tests.support.processes import output_of

PROGRAM = """
import importlib, importlib.abc, sys


class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("transformers", "tf_keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())

import tfbert
from tfbert.commandline import run_command
from tfbert.config.run import FINETUNE

DEMO = {"dataset": "demo", "max_steps": 2, "max_train_examples": 64, "max_eval_examples": 16, "max_seq_length": 32}
run = tfbert.finetune(model="scratch/tiny", output_dir="run", quiet=True, **DEMO)
assert set(run.load()("good film")) == {"label", "score"}
flags = ["x", "--model=run", "--device=cpu"]
assert not run_command(FINETUNE, [*flags, "--mode=predict", "--text=good film", "--output_file=out.jsonl"])
assert not run_command(FINETUNE, [*flags, "--mode=evaluate", "--dataset=demo", "--max_eval_examples=16"])
assert not run_command(FINETUNE, [*flags, "--mode=export", "--output_dir=exported"])
model = tfbert.TFBertForSequenceClassification.from_pretrained("run")
model.save_pretrained("again")
try:
    importlib.import_module("tfbert.finetuner").FineTuner.from_config({})  # As tf_keras loads what it saved.
except tfbert.UsageError as error:
    print(error)
"""


@pytest.mark.slow
def test_the_command_needs_neither(tmp_path):
    said = output_of(PROGRAM, tmp_path)
    assert "'tfbert-trainer[tf-keras]'" in said and "from tfbert import TFBert" in said
