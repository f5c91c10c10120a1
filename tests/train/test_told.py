"""Callbacks of whole runs: what they hear, how they stop a run, and how a run ends in which one fails."""

import json
import math
import shutil
import subprocess
import sys

import pytest

import tfbert
from tests.support.runs import TIMES, assert_same_bits, make_config, run_to, undrawn, weights, write_corpus
from tests.support.splits import ROOT
from tfbert.callbacks import Callback
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.train.run import finetune


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("told")
    write_corpus(directory)
    return directory


class Heard(Callback):
    """Keeps all it hears."""

    def __init__(self, acts=None):
        self.calls, self._acts = [], acts or {}

    def on_start(self, step, values):
        self._hear("start", step, values)

    def on_log(self, step, values):
        self._hear("train", step, values)

    def on_evaluate(self, step, values):
        self._hear("eval", step, values)

    def on_save(self, step, values):
        self._hear("save", step, values)

    def _finish(self, step, values):
        assert not (self.run.directory / "all_results.json").exists()
        self._hear("finishing", step, values)

    def on_end(self, step, values):
        self._hear(self.outcome, step, values)

    def _hear(self, what, step, values):
        assert all(type(value) is float and math.isfinite(value) for value in values.values())
        self.calls.append((what, step, values))
        self._acts.get((what, step), lambda callback: None)(self)

    def said(self, *kinds):
        return [(what, step) for what, step, _ in self.calls if what in kinds]


def logged(directory):
    lines = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    return [(line.pop("kind"), line.pop("step"), line) for line in lines if line.pop("time")]


def raising(callback):
    raise ValueError("a bug of mine")


@pytest.fixture(scope="module")
def straight(corpus):
    """A run of 12 updates with a callback, and its results."""
    heard = Heard()
    with undrawn():
        return heard, finetune(make_config(corpus, "straight"), callbacks=[heard])


def test_a_callback_hears_of_the_whole_run(corpus, straight):
    heard, results = straight
    assert [call for call in heard.calls if call[0] in ("train", "eval")] == logged(corpus / "straight")
    assert heard.said("save") == [("save", step) for step in (3, 6, 9)]
    assert heard.calls[0][:2] == ("start", 0) and heard.calls[0][2] == {
        "total_steps": 12,
        "steps_per_epoch": 6,
        "warmup_steps": 2,
        "global_batch_size": 8,
        "num_replicas": 1,
        "train_examples": 44,
        "eval_examples": 12,
        "parameters": results["parameters"],
        "trained_parameters": results["parameters"],
    }
    assert heard.calls[-2:] == [("finishing", 12, results), ("finished", 12, results)]
    assert heard.run.directory == corpus / "straight" and heard.run.options["learning_rate"] == 5e-4
    json.dumps(heard.run.options)


@pytest.mark.usefixtures("undrawn")
def test_a_run_stopped_by_a_callback_and_by_a_signal_goes_on_to_the_same_bits(corpus, straight, monkeypatch):
    """Other ways of computing: test_checkpoint.py."""
    stopping = Heard({("eval", 4): Callback.stop})
    config = make_config(corpus, "stopped")
    with pytest.raises(Preempted, match="stopped after step 4 of 12 by Heard; checkpoint saved; the same"):
        finetune(config, callbacks=[stopping])
    assert stopping.calls[-2:][0][:2] == ("save", 4) and stopping.calls[-1][:2] == ("stopped", 4)
    run_to(7, config, monkeypatch)
    assert not (corpus / "stopped" / "all_results.json").exists()
    later = Heard({("train", 12): Callback.stop})
    results = finetune(config, callbacks=[later])
    assert later.calls[-1][:2] == ("finished", 12), "there is nothing left to stop"
    heard = straight[0].said("train", "eval")
    assert stopping.said("train", "eval") == heard[: heard.index(("eval", 4)) + 1]
    assert later.said("train", "eval") == heard[heard.index(("train", 8)) :]
    assert [call[:2] for call in logged(corpus / "stopped") if call[0] in ("train", "eval")] == heard
    assert_same_bits(weights(corpus / "stopped"), weights(corpus / "straight"))
    assert results.pop("resumed_at_step") == 7
    card = (corpus / "stopped" / "README.md").read_text(encoding="utf-8")
    assert " s since update 7, where it was resumed, " in card
    timeless = [name for name in results if not name.startswith(TIMES)]
    assert {name: results[name] for name in timeless} == {name: straight[1][name] for name in timeless}
    assert {"train_loss", "eval_loss", "eval_accuracy", "best_step"} <= {*timeless}
    with pytest.raises(UsageError, match="a finished run"):
        finetune(config)


ENDS = {
    ("start", 0): ("Nothing was trained", 18),
    ("train", 5): ("The run ended after step 5 of 12; checkpoint saved", 11),
    ("save", 3): ("The run ended after step 4 of 12; checkpoint saved", 12),
    ("eval", 12): ("The run is done", 0),
    ("finished", 12): ("The run is done", 0),
}
"""By when a callback fails: what is said, and how many updates and evaluations the next start then has."""


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("at", ENDS)
def test_wherever_it_fails_nothing_is_half_written(corpus, straight, at):
    name, (said, left) = "-".join(map(str, at)), ENDS[at]
    config, failing = make_config(corpus, name), Heard({at: raising})
    with pytest.raises(RunError, match=f"^Callback Heard failed: ValueError: a bug of mine. {said}") as found:
        tfbert.finetune(config, callbacks=[failing], quiet=True)
    assert repr(found.value.__cause__) == "ValueError('a bug of mine')"
    assert failing.calls[-1][0] == ("failed" if left else "finished")
    assert not list((corpus / name).glob(".*partial*")) and not list((corpus / name).glob("*/.partial*"))
    assert (corpus / name / "all_results.json").exists() != bool(left)
    if left:
        heard = Heard()
        finetune(config, callbacks=[heard])  # The lock is free.
        assert len(heard.said("train", "eval")) == left
    assert_same_bits(weights(corpus / name), weights(corpus / "straight"))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_what_happens_again_after_a_kill_is_told_again_and_logged_once(corpus, monkeypatch):
    config, heard = make_config(corpus, "silent"), Heard()
    run_to(7, config, monkeypatch)
    shutil.rmtree(corpus / "silent" / "checkpoints" / "step-00000007")
    finetune(config, callbacks=[heard])
    assert heard.calls[0][:2] == ("start", 6) and heard.said("train") == [("train", step) for step in range(7, 13)]
    assert [step for kind, step, _ in logged(corpus / "silent") if kind == "train"] == list(range(1, 13))


ON_WORKERS = """
import sys
sys.path.insert(0, {root!r})
import tfbert

class Acts(tfbert.callbacks.Callback):
    def on_log(self, step, values):
        if step == 7:
            self.stop() if sys.argv[1] == "stop" else int("a bug of mine")

config = tfbert.Config.from_json(open(sys.argv[2]).read())
try:
    tfbert.finetune(config, callbacks=[Acts()], quiet=True)
except (tfbert.Preempted, tfbert.RunError) as ended:
    print(ended, flush=True)
    sys.exit(ended.status)
"""


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize(
    "how, status, chief, other",
    [
        ("stop", 75, "stopped after step 10 of 12 by Acts;", "stopped after step 10 of 12;"),
        (
            "fail",
            1,
            "Callback Acts failed: ValueError: invalid literal",
            "A callback failed on the chief: see its output.",
        ),
    ],
)
def test_workers_end_together(corpus, how, status, chief, other):
    """Several workers ask each other every 5 updates."""
    script, path = corpus / "workers.py", corpus / "workers.json"
    script.write_text(ON_WORKERS.format(root=str(ROOT)))
    path.write_text(make_config(corpus, f"workers-{how}", strategy="multi_worker").to_json())
    launch = [sys.executable, "-m", "tfbert.launch", "--num_workers=2", "--", str(script), how, str(path)]
    done = subprocess.run(launch, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == status, done.stderr[-3000:]
    assert f"[worker 0] {chief}" in done.stdout and f"[worker 1] {other}" in done.stdout
    assert (corpus / f"workers-{how}" / "checkpoints" / "step-00000010").is_dir()
