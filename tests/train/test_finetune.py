"""The run as a whole: what bad input says and leaves, what a run leaves, the command's exit status; and
`--profile_steps`: which updates are profiled, and that no profiler is left behind."""

import gc
import json
import logging.handlers
import os
import queue
import re
import shutil
import signal
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

import tfbert
from tests.support.processes import ROOT, command
from tests.support.refusals import refused
from tests.support.runs import assert_same_bits, log_of, make_config, nothing_kept, run_to, undrawn, weights
from tfbert import Config, RunError
from tfbert.report import pages
from tfbert.report.pages import report_at_end
from tfbert.report.run_files import read_run
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.tasks.classification.classification import Classification
from tfbert.train.run import finetune

BAD = {
    "batch": ({"global_batch_size": 7}, "must be a multiple of .* Received: global_batch_size=7"),
    "positions": ({"max_seq_length": 40, "model_name_or_path": "./small"}, "max_seq_length=40"),
    "short row": ({"train_file": "short.tsv"}, r"short.tsv, line 3"),
    "metric": ({"metric_for_best_model": "pearson"}, "pearson"),
    "output": ({"output_dir": "full"}, "must be new or empty"),
    "profile": ({"profile_steps": (10, 13)}, "profile_steps must lie within the run's 12 updates"),
}
"""One or two of what each stage of a run finds; all of a stage's are in its own tests."""


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_writes_nothing(corpus, case, monkeypatch):
    monkeypatch.chdir(corpus)
    (corpus / "short.tsv").write_text("label\tsentence\n0\tgood\n1\n")
    (corpus / "full").mkdir()
    (corpus / "full" / "thesis.txt").write_text("mine")
    path = shutil.copytree(corpus / "model", corpus / "small") / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 32}))
    options, message = BAD[case]
    before = sorted(corpus.rglob("*"))
    with refused(message):
        finetune(make_config(corpus, "out").changed(options))
    assert sorted(corpus.rglob("*")) == before


@pytest.fixture(scope="module")
def three(shared):
    """A run, another that differs from it in all, and the first once more, which fails after its last update; when it
    is started again, it is told to stop then, and its report is broken.

    Returns: `corpus`, with their directories; the results `first`, `between` and `second`; the files that were `left`
    when it had failed and the weights then, `trained`; the signals' handlers `before`; and what was `said`.
    """
    file = str(shared / "dev.tsv")
    options = {"label_smoothing": 0.1, "class_weights": "balanced", "max_steps": 5, "test_file": file}
    others = {"label_smoothing": 0.1, "max_steps": 2, "batching": "packed", "validation_file": "", "eval_steps": 0}
    others |= {"strategy": "mirrored", "num_replicas": 2, "mixed_precision": True, "deterministic": True}
    found = types.SimpleNamespace(corpus=shared)
    found.before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    found.first = tfbert.finetune(make_config(shared, "first").changed(options))
    with undrawn(), nothing_kept():
        found.between = tfbert.finetune(make_config(shared, "other").accumulating(1).changed(others))

    out, metrics = shared / "second", Classification.metrics
    again = Config.from_json((shared / "first" / "run_config.json").read_text()).changed({"output_dir": str(out)})

    def acting_before_the_test(act):
        def of_a_set(*arguments, prefix, **options):
            if prefix == "test":
                act()
            return metrics(*arguments, prefix=prefix, **options)

        return of_a_set

    def report(*arguments):
        assert not (out / "all_results.json").exists(), "results come last"
        return report_at_end(*arguments)

    records = queue.SimpleQueue()
    handler, log = logging.handlers.QueueHandler(records), logging.getLogger("tfbert")
    log.addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "level", logging.INFO)
        fails = mock.Mock(side_effect=RunError("Predictions must be finite"))
        patch.setattr(Classification, "metrics", acting_before_the_test(fails))
        with pytest.raises(RunError, match="Predictions must be finite"):
            tfbert.finetune(again)
        found.left, found.trained = {path.name for path in out.iterdir()}, weights(out)
        patch.setattr(Classification, "metrics", acting_before_the_test(lambda: os.kill(os.getpid(), signal.SIGTERM)))
        patch.setattr("tfbert.train.run.report_at_end", report)
        patch.setattr(pages, "write_report", mock.Mock(side_effect=RecursionError("no plot today")))
        found.second = tfbert.finetune(again)
    log.removeHandler(handler)
    found.said = "\n".join(records.get().getMessage() for _ in range(records.qsize()))
    return found


def test_the_same_run_twice_is_bitwise_the_same(three):
    corpus, results = three.corpus, three.first
    assert_same_bits(weights(corpus / "first"), weights(corpus / "second"))

    assert results["global_step"] == 5
    assert json.loads((corpus / "first" / "all_results.json").read_text()) == results
    for name in ("accuracy", "macro_f1", "f1", "matthews_correlation", "loss"):
        assert results[f"test_{name}"] == pytest.approx(results[f"eval_{name}"], abs=1e-6)
    assert [record["step"] for record in log_of(corpus / "first", "eval")] == [2, 4, 5]


def test_a_run_inherits_nothing_from_an_earlier_one_of_its_process(three):
    corpus, first, between, second = three.corpus, three.first, three.between, three.second
    assert (between["num_replicas"], between["global_step"]) == (2, 2)
    assert json.loads((corpus / "other" / "report.json").read_text())["precision"] == "mixed_bfloat16"
    assert 0 <= between["data_wait_share"] < 1
    same = ("num_replicas", "global_step", "train_loss", "eval_loss", "eval_accuracy", "best_step")
    assert {name: first[name] for name in same} == {name: second[name] for name in same}
    assert json.loads((corpus / "second" / "report.json").read_text())["precision"] == "float32"
    assert {number: signal.getsignal(number) for number in three.before} == three.before
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, FineTuner) and hasattr(found, "_dropout")]


def test_a_run_reports_and_a_broken_report_loses_nothing(three):
    corpus, results, again = three.corpus, three.first, three.second
    facts = json.loads((corpus / "first" / "report.json").read_text())
    assert facts["decisive_metric"] == "eval_accuracy"
    confusion = np.array(facts["evaluation"]["confusion"])
    assert np.trace(confusion) / confusion.sum() == pytest.approx(results["eval_accuracy"])
    assert confusion.sum(axis=1).tolist() == [6, 6]
    assert (corpus / "first" / "report.html").read_text() == pages.run_page(read_run(corpus / "first"))
    assert 0 <= results["data_wait_share"] < 1
    assert results["train_tokens_per_second_steady"] > results["train_examples_per_second_steady"] > 0

    assert again["eval_accuracy"] == results["eval_accuracy"]
    assert (corpus / "second" / "model.safetensors").exists() and (corpus / "second" / "all_results.json").exists()
    assert not (corpus / "second" / "report.html").exists()
    assert "RecursionError: no plot today" in three.said


def test_every_key_of_the_results_is_in_the_reference(three):
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").partition("## The numbers of a run")[2]
    rows = [line.split("|")[1] for line in page.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w*]+)`", row)}
    found = {re.sub("^(eval|test)_.*", r"\1_*", name) for name in three.first}
    assert named - found == {"resumed_at_step", "eval_NAME_*", "eval_training_*"} and not found - named


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_regression_and_early_stopping(corpus, logged):
    """In packed batches."""
    rng = np.random.default_rng(1)
    for name, rows in (("train.tsv", 40), ("dev.tsv", 10)):
        lines = [f"{rng.random():.3f}\tgood {'not ' * (i % 3)}film" for i in range(rows)]
        (corpus / name).write_text("\n".join(["label\tsentence", *lines]) + "\n")
    options = {"batching": "packed", "early_stopping_patience": 1, "metric_for_best_model": "mse"}
    results = finetune(make_config(corpus, "scores").changed(options))
    assert set(results) >= {"eval_pearson", "eval_spearmanr", "eval_mse"} and np.isfinite(results["train_loss"])
    assert "batches    packed: 4 examples of a micro-batch in " in "\n".join(logged())
    found = [(record["step"], record["eval_mse"]) for record in log_of(corpus / "scores", "eval")]
    assert (results["best_step"], results["eval_mse"]) == min(found, key=lambda pair: pair[1])
    worse = [later >= min(m for _, m in found[: i + 1]) for i, (_, later) in enumerate(found[1:])]
    assert True not in worse[:-1], "the first evaluation without a better metric ends the run"


def test_a_trained_model_outlives_what_goes_wrong_after_the_last_update(three):
    """The same command goes on, and a signal then changes nothing."""
    out = three.corpus / "second"
    assert three.left >= {"model.safetensors", "config.json", "vocab.txt"} and "all_results.json" not in three.left
    assert "SIGTERM received: training is done" in three.said
    assert json.loads((out / "all_results.json").read_text()) == three.second and "test_accuracy" in three.second
    assert_same_bits(three.trained, weights(out))


@pytest.mark.slow
def test_diverged_training_stops(corpus):
    """A weight that is out of bounds makes each gradient so; the same as with a rate that was far too high."""
    endless = weights(corpus / "model")
    endless["bert.embeddings.LayerNorm.weight"][:] = 3e38
    save_file(endless, corpus / "model" / "model.safetensors")
    with pytest.raises(RunError, match="Gradients must stay finite; the last 2 updates up to step 2 were skipped"):
        finetune(make_config(corpus, "out").changed({"max_skipped_steps": 2, "eval_steps": 0}))


@pytest.mark.slow
@pytest.mark.usefixtures("sketched")
def test_a_restart_tries_an_upload_again(corpus, monkeypatch):
    options = {"max_steps": 2, "validation_file": "", "eval_steps": 0, "push_to_hub": True, "hub_model_id": "me/mine"}
    config, pushed = make_config(corpus, "out").accumulating(1).changed(options), []

    def push(directory, hub):
        pushed.append((directory, hub.hub_model_id))
        assert (directory / "all_results.json").exists() and (directory / "report.html").exists()
        if len(pushed) == 1:
            raise RunError("no route to host")
        return "there"

    monkeypatch.setattr("tfbert.train.build.check_login", lambda: None)
    monkeypatch.setattr("tfbert.output.output_dir.upload", push)
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-093000")
    with pytest.raises(RunError, match="no route"):
        finetune(config)
    assert finetune(config)["global_step"] == 2
    assert pushed == [(corpus / "out", "me/mine")] * 2


def test_wrong_flags_end_the_command(corpus):
    wrong = command(corpus, "--model=./model", "--train_file=nowhere.tsv", "--learning_rate=-1", "--seed=-3")
    assert wrong.returncode == 2
    assert [line.split(": ")[1] for line in wrong.stderr.splitlines()] == ["error"] * 3


@pytest.mark.slow
def test_the_command_reports_and_exits(corpus):
    files = ("--model=./model", "--train_file=train.tsv", "--validation_file=dev.tsv", "--output_dir=out")
    split = ("--strategy=mirrored", "--num_replicas=2", "--gradient_accumulation_steps=2")
    done = command(corpus, *files, *split, "--max_seq_length=16", "--max_steps=2")
    assert done.returncode == 0, done.stderr
    assert "batch      32 = 2 replicas x 2 micro-batches x 8" in done.stderr
    # From the first line to the last it is the command that speaks, and it says nothing that says nothing.
    assert not [line for line in done.stderr.splitlines() if re.match(r"[IWE]\d{4} |WARNING:", line)], done.stderr
    assert "evaluation at the end" in done.stderr
    assert (corpus / "out" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_run_is_profiled_and_its_split_adds_up_to_its_steps(corpus, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from profile_split import read_split

    finetune(make_config(corpus, "out").changed({"profile_steps": (7, 9), "eval_steps": 0, "save_steps": 0}))
    parts = read_split(corpus / "out" / "profile")
    assert all(parts[part] > 0 for part in ("forward and backward", "update", "data"))
    assert parts["forward and backward"] > parts["update"]
    # Counted by Keras from the beginning of step 7 to the end of step 9; the log has the same steps by another clock.
    speeds = {record["step"]: record["examples_per_second"] for record in log_of(corpus / "out", "train")}
    seconds = np.mean([8 / speeds[8], 8 / speeds[9]])
    assert 0.3 * seconds < sum(parts.values()) < 3 * seconds


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_is_stopped_leaves_no_profiler(corpus, monkeypatch):
    """A process has one."""
    run_to(4, make_config(corpus, "out").changed({"profile_steps": (3, 9)}), monkeypatch)
    assert list((corpus / "out" / "profile").rglob("*.xplane.pb"))
    tf.profiler.experimental.start(str(corpus / "another"))
    tf.profiler.experimental.stop(save=False)
