"""`run_pretraining.py` without records, and what records say of a run on them."""

import concurrent.futures
import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from tfbert.config.pretraining import PRETRAINING, CorpusConfig, PretrainingConfig
from tfbert.config.run import Config, DataConfig, ModelConfig, OutputConfig, RuntimeConfig, TrainingConfig
from tfbert.corpus.manifest import read_manifest
from tfbert.data.demo_corpus import demo_corpus
from tfbert.errors import UsageError
from tfbert.modes.prepare import prepare
from tfbert.modes.pretrain import pretrain, with_records

TASK = DataConfig(task=PRETRAINING)


class Here(concurrent.futures.Executor):
    """Does in this process what another would take seconds to start for."""

    def __init__(self, *arguments):
        pass

    def submit(self, function, *arguments):
        done = concurrent.futures.Future()
        done.set_result(function(*arguments))
        return done


@pytest.mark.parametrize("executor", [Here, pytest.param(ProcessPoolExecutor, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("undrawn")
def test_without_records_those_of_the_built_in_corpus_are_made_beside_the_run(tmp_path, monkeypatch, executor):
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", executor)
    if executor is Here:  # A part is enough.
        monkeypatch.setattr("tfbert.corpus.built_in.demo_corpus", lambda split: demo_corpus(split)[::6])
    data = DataConfig(task=PRETRAINING, max_seq_length=32, max_train_examples=64, max_eval_examples=32)
    results = pretrain(
        Config(
            data=data,
            model=ModelConfig(model_name_or_path="scratch/L-2_H-128"),
            training=TrainingConfig(max_steps=2),
            output=OutputConfig(output_dir=str(tmp_path / "run")),
        )
    )
    assert results["eval_loss"] > 0 and 0 <= results["eval_next_sentence_accuracy"] <= 1
    made = {split: read_manifest(tmp_path / "run-records" / split) for split in ("train", "validation")}
    assert {manifest["options"]["max_seq_length"] for manifest in made.values()} == {32}
    assert made["train"]["totals"]["records"] > 64 > 32 < made["validation"]["totals"]["records"]
    said = json.loads((tmp_path / "run" / "run_config.json").read_text())
    assert said["pretraining"]["train_records"] == [str(tmp_path / "run-records" / "train")]
    assert said["pretraining"]["validation_records"] == [str(tmp_path / "run-records" / "validation")]
    own = (tmp_path / "run" / "vocab.txt").read_bytes()
    assert own == (tmp_path / "run-records" / "validation" / "vocab.txt").read_bytes()


def test_several_workers_are_not_given_the_built_in_corpus():
    with pytest.raises(UsageError, match=r"Several workers need records that exist.*--mode=prepare first"):
        with_records(Config(data=TASK, runtime=RuntimeConfig(strategy="multi_worker")))


def test_records_say_how_long_they_are_and_bring_a_vocabulary(tmp_path):
    (tmp_path / "corpus.txt").write_text("one two three .\nfour five six .\n\nseven eight nine .\nten eleven .\n" * 3)
    records = tmp_path / "records"
    prepare(
        Config(
            mode="prepare",
            data=DataConfig(max_seq_length=24),
            corpus=CorpusConfig(input_files=(str(tmp_path / "corpus.txt"),), learn_vocab=60, num_processes=1),
            output=OutputConfig(output_dir=str(records)),
        )
    )
    named = PretrainingConfig(train_records=(str(records),))
    found = with_records(Config(data=TASK, pretraining=named))
    assert found.data.max_seq_length == 24 and found.model.vocab_file == str(records / "vocab.txt")
    # What is asked for stays, and a model has a vocabulary of its own.
    asked = Config(
        data=DataConfig(task=PRETRAINING, max_seq_length=40),
        model=ModelConfig(model_name_or_path="somewhere"),
        pretraining=named,
    )
    assert with_records(asked) == asked
    (records / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="Received: "):
        with_records(Config(data=TASK, pretraining=named))
