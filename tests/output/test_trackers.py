"""Trackers' own stores, read back with their own readers, hold a value of each line of `log.jsonl`, also over a kill.

wandb and mlflow are extras: their tests are skipped without them; those of MLflow run with a stand-in too.
"""

import contextlib
import datetime
import importlib.util
import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.support import mlflow_stand_in
from tests.support.processes import ROOT
from tests.support.runs import make_config, write_corpus
from tests.support.saved_models import read_json
from tests.support.wandb_files import history
from tfbert.callbacks import MlflowCallback, TensorBoardCallback, WandbCallback
from tfbert.errors import UsageError
from tfbert.output.logs import Reports, RunInfo, RunLog

WANDB = pytest.param("wandb", marks=pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="needs wandb"))
HAS_MLFLOW = all(map(importlib.util.find_spec, ("mlflow", "sqlalchemy", "alembic")))
MLFLOW = pytest.param("mlflow", marks=pytest.mark.skipif(not HAS_MLFLOW, reason="needs mlflow and its store"))


@pytest.fixture(params=["stand-in", MLFLOW])
def uri(request, tmp_path, monkeypatch):
    """A store of MLflow's own, or of a stand-in for it."""
    if request.param == "stand-in":
        for name in ("mlflow", "mlflow.entities"):
            monkeypatch.setitem(sys.modules, name, mlflow_stand_in)
    return f"sqlite:///{tmp_path}/mlflow.db"


def logged(directory):
    """What the log holds, as trackers call it: sorted (name, step, value)."""
    found = []
    for line in read_json(directory / "log.jsonl"):
        step, kind, _ = (line.pop(name) for name in ("step", "kind", "time"))
        found += [(f"{kind}/{name.removeprefix(kind + '_')}", step, float(value)) for name, value in line.items()]
    return sorted(found)


def in_tensorboard(directory):
    files = map(str, (directory / "tensorboard").iterdir())
    events = [event for file in files for event in tf.compat.v1.train.summary_iterator(file)]
    return sorted((v.tag, e.step, float(tf.make_ndarray(v.tensor))) for e in events for v in e.summary.value)


def in_mlflow(directory):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{directory.parent}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'tfbert'")
    (run,) = client.search_runs([experiment.experiment_id])
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics if "/" in name}
    return sorted((name, m.step, m.value) for name, values in history.items() for m in values), run


def in_wandb(directory):
    (path,) = directory.glob("wandb/offline-run-*/run-*.wandb")
    found, run = history(path)
    return sorted(found), run


@contextlib.contextmanager
def a_start(directory, callback, first=0, total=8):
    """One start of a run of few values, as training begins and ends it."""
    directory.mkdir(exist_ok=True)
    reports = Reports([callback])
    log = RunLog(directory, total_steps=total, first_step=first, reports=reports)
    info = RunInfo(directory=directory, options={"seed": 1, "dataset": ""}, first_step=first, total_steps=total)
    reports.start(info, {"total_steps": total}, log.logged)
    assert reports.failed is None, reports.failed
    yield log
    log.close()
    results = {"global_step": 8, "eval_accuracy": 0.75} if first else {}
    if first:
        reports.finishing(results)
    reports.end("finished" if first else "stopped", 8, results)
    assert reports.failed is None, reports.failed


def two_starts(directory, make):
    """The second one resumes at update 4 and repeats updates 5 and 6."""
    for first, steps in ((0, range(1, 7)), (4, range(5, 9))):
        with a_start(directory, make(), first) as log:
            for step in steps:
                log.record(step, "train", {"loss": 1 / (step + first), "skipped_steps": 0})
                if step % 2 == 0:
                    log.record(step, "eval", {"eval_accuracy": 0.125 * step})


def test_tensorboard_gets_every_value_once_at_its_time(tmp_path):
    two_starts(tmp_path / "run", TensorBoardCallback)
    found, expected = in_tensorboard(tmp_path / "run"), logged(tmp_path / "run")
    assert len(found) == 20 and [f[:2] for f in found] == [f[:2] for f in expected]
    assert [f[2] for f in found] == pytest.approx([f[2] for f in expected], rel=1e-7)
    (path,) = (tmp_path / "run" / "tensorboard").iterdir()
    times = [event.wall_time for event in tf.compat.v1.train.summary_iterator(str(path)) if event.summary.value]
    first, *_ = read_json(tmp_path / "run" / "log.jsonl")
    assert times[0] == datetime.datetime.fromisoformat(first["time"]).timestamp()


def test_mlflow_gets_every_value_once_and_the_results(tmp_path, uri):
    """Of updates that two starts make, the first one's."""
    two_starts(tmp_path / "run", lambda: MlflowCallback(tracking_uri=uri))
    found, run = in_mlflow(tmp_path / "run")
    assert [f[:2] for f in found] == [f[:2] for f in logged(tmp_path / "run")] and len(found) == 20
    assert [f[2] for f in found if f[0] == "train/loss"] == [1 / by for by in (1, 2, 3, 4, 5, 6, 11, 12)]
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    assert run.data.metrics["eval_accuracy"] == 0.75 and run.data.params == {"seed": "1", "dataset": ""}


@pytest.mark.parametrize("method", ["create_experiment", "create_run", "log_batch"])
def test_a_kill_while_mlflow_begins_a_run_leaves_none_behind(tmp_path, monkeypatch, method, uri):
    """The store has done what it was asked for, and nothing of that is noted."""
    from mlflow import MlflowClient

    directory, original = tmp_path / "run", getattr(MlflowClient, method)

    def killed(*arguments, **options):
        original(*arguments, **options)
        raise SystemExit("killed")

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(MlflowClient, method, killed)
        with a_start(directory, MlflowCallback(tracking_uri=uri)):
            raise AssertionError("it was killed before")
    with a_start(directory, MlflowCallback(tracking_uri=uri)) as log:
        log.record(1, "train", {"loss": 0.5})
    found, run = in_mlflow(directory)  # There is one run.
    assert found == logged(directory) and run.info.status == "KILLED" and run.info.run_name == "run"
    assert run.data.params == {"seed": "1", "dataset": ""}
    assert (directory / ".tracker_id").read_text() == run.data.tags["tfbert_id"]


@pytest.mark.parametrize("text", ["", "none of ours'", "\xff"])
def test_a_damaged_id_is_made_anew_and_a_name_has_one_of_its_own(tmp_path, text, uri):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".tracker_id").write_text(text, encoding="latin-1")
    other = MlflowCallback(tracking_uri=uri)
    other.name = "other"
    for callback in (MlflowCallback(tracking_uri=uri), other, MlflowCallback(tracking_uri=uri)):
        with a_start(tmp_path / "run", callback):
            pass
    from mlflow import MlflowClient

    found = MlflowClient(uri).search_runs([MlflowClient(uri).get_experiment_by_name("tfbert").experiment_id])
    own = (tmp_path / "run" / ".tracker_id").read_text()
    assert {run.data.tags["tfbert_id"].partition("-")[0] for run in found} == {own} and len(found) == 2


def test_a_kill_after_the_results_leaves_no_run_open(tmp_path, uri):
    """Before or after `all_results.json`; without it the run starts again, and may fail then."""
    path = tmp_path / "run"
    path.mkdir()
    for status in ("FINISHED", "FAILED", "FINISHED"):
        reports = Reports([MlflowCallback(tracking_uri=uri)])
        reports.start(RunInfo(directory=path, options={}, first_step=0, total_steps=8), {"total_steps": 8}, [])
        assert in_mlflow(path)[1].info.status == "RUNNING"
        reports.finishing({"global_step": 8, "eval_accuracy": 0.75})
        if status == "FAILED":
            reports.end("failed")
        run = in_mlflow(path)[1]  # There is one.
        assert (reports.failed, run.info.status, run.data.metrics["eval_accuracy"]) == (None, status, 0.75)
        assert run.info.end_time


@pytest.mark.parametrize("_", [WANDB])
def test_wandb_gets_every_value_once_and_the_results(tmp_path, monkeypatch, _):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    two_starts(tmp_path / "run", WandbCallback)
    found, run = in_wandb(tmp_path / "run")
    assert run == (tmp_path / "run" / ".tracker_id").read_text()
    assert found == logged(tmp_path / "run") and len(found) == 20


@pytest.mark.parametrize("name, callback", [("wandb", WandbCallback), ("mlflow", MlflowCallback)])
def test_a_missing_package_is_refused_with_the_command(name, callback, tmp_path, monkeypatch):
    """A directory of its name, where wandb keeps its files, is no package."""
    (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[-1:])
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(UsageError, match=f"need the package {name}. Received: .*Run: pip install {name}$"):
        callback()


DYING = """
import os, signal, sys
import tfbert
from tfbert.output import output_dir
from tfbert.output.logs import Reports
from tfbert.train.fit import Progress
at = int(sys.argv[2])
on_step, passed, write_json = Progress.on_step, Reports._call, output_dir.write_json
def dying(self, step):
    on_step(self, step)
    if step == at:
        os.kill(os.getpid(), signal.SIGKILL)
def between(self, callback, method, *told):
    passed(self, callback, method, *told)
    if getattr(told[0], "step", 0) == -at:
        os.kill(os.getpid(), signal.SIGKILL)
def at_the_end(path, value):
    write_json(path, value)
    if path.name == output_dir.RESULTS and at == 99:
        os.kill(os.getpid(), signal.SIGKILL)
Progress.on_step, Reports._call, output_dir.write_json = dying, between, at_the_end
config = tfbert.Config.from_json(open(sys.argv[1]).read())
tfbert.finetune(config, report_to=["tensorboard", "{tracker}"], quiet=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("tracker", [WANDB, MLFLOW])
def test_a_run_killed_again_and_again_reports_every_value_once(tmp_path, tracker):
    """wandb keeps a file for each start, until the last of them ends."""
    write_corpus(tmp_path)
    script, path = tmp_path / "dying.py", tmp_path / "run.json"
    script.write_text(DYING.replace("{tracker}", tracker))
    path.write_text(make_config(tmp_path, "run").to_json())
    environment = os.environ | {"PYTHONPATH": str(ROOT), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    environment |= {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    environment.pop("WANDB_SERVICE", None)  # Of this process, where other tests used wandb.
    for at in (5, -8, 99 if tracker == "mlflow" else 0):
        done = subprocess.run([sys.executable, script, path, str(at)], env=environment, cwd=tmp_path)
        assert done.returncode == (-9 if at else 0)
    expected = logged(tmp_path / "run")
    assert {step for _, step, _ in expected} == set(range(1, 13))
    found, run = {"wandb": in_wandb, "mlflow": in_mlflow}[tracker](tmp_path / "run")
    assert [f[:2] for f in found] == [f[:2] for f in expected]
    assert {f for f in found if "loss" in f[0]} == {f for f in expected if "loss" in f[0]}
    if tracker == "mlflow":
        results = json.loads((tmp_path / "run" / "all_results.json").read_text())
        assert run.info.status == "FINISHED" and results.items() <= run.data.metrics.items()
    assert [f[:2] for f in in_tensorboard(tmp_path / "run")] == [f[:2] for f in expected]
