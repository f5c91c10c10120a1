"""Trackers of experiments as callbacks: Weights & Biases, MLflow, TensorBoard. Each gets every value of a run once.

The values are called as `log.jsonl` has them, by kind: `train/loss`, `eval/accuracy`. A run that resumes goes on in the
same run of the tracker, whose own store says what it has already.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tfbert.devices.quiet import imports_whole
from tfbert.errors import UsageError
from tfbert.output.callback import Callback, Record, check_callbacks
from tfbert.output.output_dir import TRACKER_ID, write_text

PROJECT = "tfbert"
_PARAMS_AT_ONCE = 100
"""As many as MLflow takes in one call."""
_TAG = "tfbert_id"
"""Of MLflow's run: its id in the output directory, which is written before there is a run."""


def all_callbacks(report_to: Sequence[str], callbacks: Sequence[Callback] = ()) -> list[Callback]:
    """A user's callbacks, and the trackers that a run reports to.

    Raises:
        UsageError: for what is no callback, and a tracker whose package is missing.
    """
    found = [*callbacks, *(TRACKERS[name]() for name in report_to)]
    check_callbacks(found)
    return found


class WandbCallback(Callback):
    """Reports a run to Weights & Biases: `pip install wandb`.

    A run that resumes goes on in the same run there. WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY and the like are wandb's
    own. In offline mode, each start writes all values of the run so far to a file of its own, in `output_dir/wandb`
    unless WANDB_DIR says otherwise, and removes those of earlier starts at its end: `wandb sync` sends the whole run.

    Args:
        **options: Of `wandb.init`, such as `project`, `name`, `tags`, `mode`.

    Raises:
        UsageError: without the package.
    """

    _hears_all = True

    def __init__(self, **options: Any):
        self._wandb = _package("wandb", "WandbCallback")
        self._options = options

    def on_start(self, step: int, values: Mapping[str, float]) -> None:
        directory = self.run.directory
        self._id = _id_of(self)
        options = {
            "project": os.environ.get("WANDB_PROJECT", PROJECT),
            "name": os.environ.get("WANDB_NAME", directory.name),
            "dir": os.environ.get("WANDB_DIR", str(directory)),
            "id": self._id,
            "resume": "allow",
            "reinit": "create_new",  # A run that the user has open stays as it is.
            "settings": self._wandb.Settings(console="off"),
        }
        self._run = self._wandb.init(**options | self._options)
        self._run.config.update({**self.run.options, **values}, allow_val_change=True)

    def _finish(self, step: int, values: Mapping[str, float]) -> None:
        self._run.summary.update(dict(values))

    def on_end(self, step: int, values: Mapping[str, float]) -> None:
        if not hasattr(self, "_run"):
            return
        own = pathlib.Path(self._run.dir).parent
        self._run.finish(exit_code=int(self.outcome == "failed"))
        if own.name.startswith("offline-run-"):
            for earlier in own.parent.glob(f"offline-run-*-{self._id}"):
                if earlier != own:
                    shutil.rmtree(earlier, ignore_errors=True)
        del self._run

    def _receive(self, record: Record) -> None:
        # A kill loses what wandb has not written to its file, or sent. Its server says how far it came; offline, each
        # start begins a file.
        if record.step >= self._run.starting_step:
            self._run.log(_named(record), step=record.step)


class MlflowCallback(Callback):
    """Reports a run to MLflow: `pip install mlflow`.

    A run that resumes goes on in the same run there, whose tag `tfbert_id` is in `output_dir/.tracker_id`; a value that
    it has already of an update stays. MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say where, as anywhere with
    MLflow. The results of a finished run are metrics under their names in `all_results.json`.

    Args:
        experiment: Its name; made if it is not there. Empty: MLFLOW_EXPERIMENT_NAME, or `tfbert`.
        run_name: Empty: the name of `output_dir`.
        tracking_uri: Empty: MLflow's own.

    Raises:
        UsageError: without the package.
    """

    _hears_all = True

    def __init__(self, experiment: str = "", run_name: str = "", tracking_uri: str = ""):
        _package("mlflow", "MlflowCallback")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        self._run_name, self._uri = run_name, tracking_uri or None

    def on_start(self, step: int, values: Mapping[str, float]) -> None:
        entities = importlib.import_module("mlflow.entities")
        self._metric, self._param = entities.Metric, entities.Param
        self._client = importlib.import_module("mlflow").MlflowClient(self._uri)
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self._experiment)
        own = _id_of(self)
        begun = self._client.search_runs([experiment], f"tags.{_TAG} = '{own}'")
        name = self._run_name or self.run.directory.name
        run = begun[0] if begun else self._client.create_run(experiment, run_name=name, tags={_TAG: own})
        self._run_id = run.info.run_id
        self._client.update_run(self._run_id, status="RUNNING")
        names = [name for name in run.data.metrics if "/" in name]
        self._told = {(name, m.step) for name in names for m in self._client.get_metric_history(self._run_id, name)}
        options = self.run.options.items()
        params = [self._param(name, _text(value)) for name, value in options if name not in run.data.params]
        for first in range(0, len(params), _PARAMS_AT_ONCE):
            self._client.log_batch(self._run_id, params=params[first : first + _PARAMS_AT_ONCE])

    def _finish(self, step: int, values: Mapping[str, float]) -> None:
        now = int(datetime.datetime.now().timestamp() * 1000)
        self._client.log_batch(self._run_id, metrics=[self._metric(k, v, now, step) for k, v in values.items()])
        self._client.set_terminated(self._run_id, "FINISHED")

    def on_end(self, step: int, values: Mapping[str, float]) -> None:
        if hasattr(self, "_run_id") and self.outcome != "finished":
            self._client.set_terminated(self._run_id, {"stopped": "KILLED", "failed": "FAILED"}[self.outcome])

    def _receive(self, record: Record) -> None:
        at, step = int(_time(record) * 1000), record.step
        new = {name: value for name, value in _named(record).items() if (name, step) not in self._told}
        if new:
            metrics = [self._metric(name, value, at, step) for name, value in new.items()]
            self._client.log_batch(self._run_id, metrics=metrics)


class TensorBoardCallback(Callback):
    """Writes TensorBoard event files to `output_dir/tensorboard`; each start writes them anew, from `log.jsonl`."""

    _hears_all = True

    def on_start(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        directory = self.run.directory / "tensorboard"
        shutil.rmtree(directory, ignore_errors=True)
        self._writer = EventFileWriter(str(directory))

    def on_end(self, step: int, values: Mapping[str, float]) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()
            del self._writer

    def _receive(self, record: Record) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        for name, value in _named(record).items():
            self._writer.add_event(Event(wall_time=_time(record), step=record.step, summary=scalar_pb(name, value)))
        self._writer.flush()


TRACKERS: Mapping[str, type[Callback]] = {
    "tensorboard": TensorBoardCallback,
    "wandb": WandbCallback,
    "mlflow": MlflowCallback,
}
"""By their names in `--report_to`."""


def _package(name: str, what: str) -> Any:
    """A tracker's package.

    Raises:
        UsageError: without it. A directory of that name, such as where wandb keeps its files, is none.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        rule = f"report_to={name} and {what} need the package {name}"
        raise UsageError(f"{rule}. Received: a Python without it. Run: pip install {name}")
    with imports_whole():  # A user may make one before the run.
        return importlib.import_module(name)


def _id_of(tracker: Callback) -> str:
    """The id of a run at a tracker, the same for all its starts; noted before the tracker begins a run under it, so
    that the next start finds that run, whenever a kill comes."""
    path = tracker.run.directory / TRACKER_ID
    known = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
    if not re.fullmatch("[0-9a-f]{12}", known):
        known = uuid.uuid4().hex[:12]
        write_text(path, known)
    return f"{known}-{zlib.crc32(tracker.name.encode()):08x}" if tracker.name else known


def _named(record: Record) -> dict[str, float]:
    return {f"{record.kind}/{name.removeprefix(record.kind + '_')}": value for name, value in record.values.items()}


def _time(record: Record) -> float:
    return datetime.datetime.fromisoformat(record.time).timestamp()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
