"""`tfbert.finetune` and `tfbert.pretrain`: a run as one call."""

import importlib
import json
import logging
import os
import pickle
import signal

import pytest

import tfbert
from tests.support.runs import assert_same_bits, make_config, stop_at, undrawn, weights, write_corpus
from tfbert.output.output_dir import locked
from tfbert.train.fit import Progress
from tfbert.train.run import _earlier_models


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    write_corpus(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        yield directory


def arguments(corpus, name):
    """`make_config` as arguments, but shorter, and evaluated on what it trains on."""
    files = {"model": corpus / "model", "train_file": corpus / "train.tsv", "validation_file": corpus / "train.tsv"}
    sizes = {"max_seq_length": 16, "global_batch_size": 8, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    steps = {"max_steps": 3, "save_steps": 3, "eval_steps": 2, "logging_steps": 1}
    return files | sizes | steps | {"learning_rate": 5e-4, "output_dir": corpus / name}


@pytest.fixture(scope="module")
def called(corpus):
    """A run whose directory nobody named, and the warnings that it brought."""
    warnings, handler = [], logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("tfbert").addHandler(handler)
    with undrawn():
        run = tfbert.finetune(**arguments(corpus, "") | {"output_dir": ""})
    logging.getLogger("tfbert").removeHandler(handler)
    assert not _earlier_models, "freed before the call returns"
    return run, warnings


@pytest.fixture
def run(called):
    return called[0]


def test_a_call_trains_what_the_command_trains(corpus, monkeypatch):
    trained = []
    verb = lambda config, callbacks: trained.append(config) or {}  # noqa: E731
    monkeypatch.setattr(importlib.import_module("tfbert.python"), "verb_of", lambda config: verb)
    tfbert.finetune(**arguments(corpus, "commanded"))
    expected = make_config(corpus, "commanded").changed({"max_steps": 3, "validation_file": corpus / "train.tsv"})
    assert [config.resolved() for config in trained] == [expected.resolved()]


def test_the_results_are_numbers_with_a_directory_and_a_model(run, corpus):
    assert isinstance(run, dict) and run == json.loads((run.directory / "all_results.json").read_text())
    assert all(isinstance(value, (int, float)) for value in run.values()) and "eval_accuracy" in run
    again = pickle.loads(pickle.dumps(run))
    assert again == run and again.directory == run.directory
    assert run.load(max_seq_length=8)("good film")["label"] in ("0", "1")


def test_a_directory_with_a_finished_run_is_refused(run, corpus):
    """As in the command: whether the data are the same cannot be known before they are read."""
    before = (run.directory / "model.safetensors").stat().st_mtime_ns
    with pytest.raises(tfbert.UsageError, match="finished|holds"):
        tfbert.finetune(**arguments(corpus, "") | {"output_dir": run.directory})
    assert (run.directory / "model.safetensors").stat().st_mtime_ns == before


def test_without_a_directory_a_run_gets_one_and_doubts_about_data_are_warnings(called):
    run, warnings = called
    assert run.directory.parent.name == "runs" and (run.directory / "model.safetensors").is_file()
    (doubt,) = [line for line in warnings if line.startswith("warning: ")]  # Others are about what was predicted.
    assert "is used for training and for evaluation" in doubt


@pytest.mark.slow
def test_a_run_that_is_interrupted_says_the_call_that_resumes_it(run, corpus, tmp_path, monkeypatch, as_python):
    """Also for a run whose directory was not named, which the same call would not find; and nothing is kept alive."""
    monkeypatch.chdir(tmp_path)
    options = arguments(corpus, "interrupted") | {"save_steps": 0}

    def stopped(**more):
        with undrawn(), monkeypatch.context() as patch, pytest.raises(tfbert.Preempted) as caught:
            stop_at(patch, 1)
            tfbert.finetune(**options | more)
        return caught

    named, unnamed = stopped(), stopped(output_dir="")  # Both are kept, with their tracebacks.
    assert str(named.value).endswith(f"the same call resumes in {corpus / 'interrupted'}")
    (directory,) = (tmp_path / "runs").iterdir()
    assert f"; output_dir='runs/{directory.name}' resumes the run" in str(unnamed.value)
    assert not _earlier_models, "held by the tracebacks of the exceptions"
    with undrawn():
        resumed = tfbert.finetune(**options | {"output_dir": f"runs/{directory.name}"})
    assert resumed["global_step"] == 3
    assert_same_bits(weights(resumed.directory), weights(corpus / run.directory))


@pytest.mark.slow
def test_a_second_interrupt_does_not_end_the_process(corpus, monkeypatch, as_python):
    def twice(self, now):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Progress, "on_step", twice)
    with pytest.raises(KeyboardInterrupt), undrawn():
        tfbert.finetune(**arguments(corpus, "twice"))
    with locked(corpus / "twice"):
        pass
