"""Callbacks of whole runs: what they hear, how they stop a run, and how a run ends in which one fails."""

import functools
import json
import math
import shutil
import subprocess
import sys

import pytest

import tfbert
from tests.support.runs import TIMES, assert_same_bits, make_config, run_to, undrawn, weights
from tests.support.splits import ROOT
from tfbert.callbacks import Callback
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.train.run import finetune

pytestmark = pytest.mark.usefixtures("undrawn")


class Heard(Callback):
    """Keeps all it hears."""

    def __init__(self, acts=None):
        self.calls, self._acts = [], acts or {}

    def _hear(self, what, step, values):
        assert all(type(value) is float and math.isfinite(value) for value in values.values())
        self.calls.append((what, step, values))
        self._acts.get((what, step), lambda callback: None)(self)

    on_start = functools.partialmethod(_hear, "start")
    on_log = functools.partialmethod(_hear, "train")
    on_evaluate = functools.partialmethod(_hear, "eval")
    on_save = functools.partialmethod(_hear, "save")

    def _finish(self, step, values):
        assert not (self.run.directory / "all_results.json").exists()
        self._hear("finishing", step, values)

    def on_end(self, step, values):
        self._hear(self.outcome, step, values)

    def said(self, *kinds):
        return [(what, step) for what, step, _ in self.calls if what in kinds]


def logged(directory):
    lines = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    return [(line.pop("kind"), line.pop("step"), line) for line in lines if line.pop("time")]


def raising(callback):
    raise ValueError("a bug of mine")


@pytest.fixture(scope="module")
def straight(shared):
    """A run of 12 updates with a callback, and its results."""
    heard = Heard()
    with undrawn():
        return heard, finetune(make_config(shared, "straight"), callbacks=[heard])


def test_a_callback_hears_of_the_whole_run(shared, straight):
    heard, results = straight
    assert [call for call in heard.calls if call[0] in ("train", "eval")] == logged(shared / "straight")
    assert heard.said("save") == [("save", step) for step in (3, 6, 9)]
    facts = {"total_steps": 12, "steps_per_epoch": 6, "warmup_steps": 2, "global_batch_size": 8, "num_replicas": 1}
    facts |= {"train_examples": 44, "eval_examples": 12}
    facts |= dict.fromkeys(("parameters", "trained_parameters"), results["parameters"])
    assert heard.calls[0] == ("start", 0, facts)
    assert heard.calls[-2:] == [("finishing", 12, results), ("finished", 12, results)]
    assert heard.run.directory == shared / "straight" and heard.run.options["learning_rate"] == 5e-4
    json.dumps(heard.run.options)


def test_a_run_stopped_by_a_callback_and_by_a_signal_goes_on_to_the_same_bits(shared, straight, monkeypatch):
    """Other ways of computing: test_checkpoint.py."""
    stopping = Heard({("eval", 4): Callback.stop})
    config = make_config(shared, "stopped")
    with pytest.raises(Preempted, match="stopped after step 4 of 12 by Heard; checkpoint saved; the same"):
        finetune(config, callbacks=[stopping])
    assert stopping.calls[-2:][0][:2] == ("save", 4) and stopping.calls[-1][:2] == ("stopped", 4)
    run_to(7, config, monkeypatch)
    assert not (shared / "stopped" / "all_results.json").exists()
    later = Heard({("train", 12): Callback.stop})
    results = finetune(config, callbacks=[later])
    assert later.calls[-1][:2] == ("finished", 12), "there is nothing left to stop"
    heard = straight[0].said("train", "eval")
    assert stopping.said("train", "eval") == heard[: heard.index(("eval", 4)) + 1]
    assert later.said("train", "eval") == heard[heard.index(("train", 8)) :]
    assert [call[:2] for call in logged(shared / "stopped") if call[0] in ("train", "eval")] == heard
    assert_same_bits(weights(shared / "stopped"), weights(shared / "straight"))
    assert results.pop("resumed_at_step") == 7
    card = (shared / "stopped" / "README.md").read_text(encoding="utf-8")
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
@pytest.mark.parametrize("at", ENDS)
def test_wherever_it_fails_nothing_is_half_written(shared, straight, at):
    name, (said, left) = "-".join(map(str, at)), ENDS[at]
    config, failing = make_config(shared, name), Heard({at: raising})
    with pytest.raises(RunError, match=f"^Callback Heard failed: ValueError: a bug of mine. {said}") as found:
        tfbert.finetune(config, callbacks=[failing], quiet=True)
    assert repr(found.value.__cause__) == "ValueError('a bug of mine')"
    assert failing.calls[-1][0] == ("failed" if left else "finished")
    assert not list((shared / name).glob(".*partial*")) and not list((shared / name).glob("*/.partial*"))
    assert (shared / name / "all_results.json").exists() != bool(left)
    if left:
        heard = Heard()
        finetune(config, callbacks=[heard])  # The lock is free.
        assert len(heard.said("train", "eval")) == left
    assert_same_bits(weights(shared / name), weights(shared / "straight"))


@pytest.mark.slow
def test_what_happens_again_after_a_kill_is_told_again_and_logged_once(shared, monkeypatch):
    config, heard = make_config(shared, "silent"), Heard()
    run_to(7, config, monkeypatch)
    shutil.rmtree(shared / "silent" / "checkpoints" / "step-00000007")
    finetune(config, callbacks=[heard])
    assert heard.calls[0][:2] == ("start", 6) and heard.said("train") == [("train", step) for step in range(7, 13)]
    assert [step for kind, step, _ in logged(shared / "silent") if kind == "train"] == list(range(1, 13))


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


WORKERS = {
    "stop": (75, "stopped after step 10 of 12 by Acts;", "stopped after step 10 of 12;"),
    "fail": (1, "Callback Acts failed: ValueError: invalid literal", "A callback failed on the chief: see its output."),
}
"""By what the callback does: the status, and what the chief and the other worker say."""


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("how", WORKERS)
def test_workers_end_together(shared, how):
    """Several workers ask each other every 5 updates."""
    status, chief, other = WORKERS[how]
    script, path = shared / "workers.py", shared / "workers.json"
    script.write_text(ON_WORKERS.format(root=str(ROOT)))
    path.write_text(make_config(shared, f"workers-{how}", strategy="multi_worker").to_json())
    launch = [sys.executable, "-m", "tfbert.launch", "--num_workers=2", "--", str(script), how, str(path)]
    done = subprocess.run(launch, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == status, done.stderr[-3000:]
    assert f"[worker 0] {chief}" in done.stdout and f"[worker 1] {other}" in done.stdout
    assert (shared / f"workers-{how}" / "checkpoints" / "step-00000010").is_dir()
