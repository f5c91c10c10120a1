"""Where a run's numbers go: the screen, `log.jsonl`, and callbacks. Only the chief has any of them. What a user's code
hears of a run: `Callback`, with each value that is logged, and when the run starts and ends; `Reports`, which tells
callbacks of it; and trackers of experiments as callbacks: Weights & Biases, MLflow, TensorBoard.

What a call from Python shows: the command's lines and bars, in a terminal, a notebook or a pipe; or nothing.

The user's own logging stays as it is set up: files and the like get the messages that they would get anyway, and a
screen that shows this program's information already shows it, and nothing is added.

A tracker's values are called as `log.jsonl` has them, by kind: `train/loss`, `eval/accuracy`. A run that resumes goes
on in the same run of the tracker, whose own store says what it has already.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib
import importlib.util
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import time
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from tfbert.config.types import counted, rate_text
from tfbert.devices.process import is_notebook, is_watched, nobody_watching
from tfbert.errors import RunError, UsageError, first_line, worded
from tfbert.output.output_dir import LOG, TRACKER_ID, write_text

log = logging.getLogger("tfbert")


def bar(**options: Any) -> tqdm.tqdm:
    """A bar where somebody watches; for its options see `tqdm.tqdm`."""
    if is_notebook():
        return tqdm.tqdm(file=_Output(), **options)
    return tqdm.tqdm(dynamic_ncols=True, **options)


class _Output:
    """A file for a bar, which writes a line again and again: an output of a notebook's cell that shows the last one.

    Text with carriage returns would stay in a saved notebook, every state of it; and widgets need an extension.
    """

    encoding = "utf-8"

    def __init__(self):
        self._display: Any = None
        self._text = self._shown = ""

    def write(self, text: str) -> None:
        """Takes a line; what moves the cursor of a terminal is left out."""
        if text.startswith("\r"):
            self._text = text[1:].rstrip()

    def flush(self) -> None:
        """Shows the line."""
        if self._text == self._shown:
            return
        self._shown, data = self._text, {"text/plain": self._text}
        if self._display is None:
            self._display = sys.modules["IPython"].display.display(data, raw=True, display_id=True)
        else:
            self._display.update(data, raw=True)


SECONDS_WITHOUT_NEWS = 2.0
"""A pass that takes no longer is not spoken of."""
_SECONDS_BETWEEN_LINES = 10.0


class PassProgress:
    """A bar where somebody watches, else a log line every ten seconds, and a line at the end; use it in a `with`
    statement.

    Nothing is shown of a pass that is shorter than two seconds.

    Args:
        what: What is being done.
        total: The total work, in any unit; 0 where nobody knows.
        counted: What the speed counts, such as `MB`.
        is_said_at_end: Whether there is a line at the end; without one, the bar disappears.
        is_shown: Whether to show anything.
    """

    def __init__(
        self, what: str, total: int, counted: str = "sentences", *, is_said_at_end: bool = True, is_shown: bool = True
    ):
        self._what, self._total, self._counted, self._is_shown = what, total, counted, is_shown
        self._done, self._is_said_at_end = 0.0, is_said_at_end
        self._count = 0.0
        self._start = self._reported = time.perf_counter()
        options = {"bar_format": _PASS_BAR if total else "{desc}: {elapsed}, {postfix}", "leave": is_said_at_end}
        options |= {"total": total or None, "desc": what, "delay": SECONDS_WITHOUT_NEWS}
        self._bar = bar(**options) if is_shown and is_watched() else None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def __enter__(self) -> PassProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        seconds = self.seconds
        if kind is None and self._is_said_at_end and seconds >= SECONDS_WITHOUT_NEWS:
            done = f"{self._count:,.0f} {self._counted}"
            log.info("%s: %s in %s, %s", self._what, done, clock_text(seconds), self._rate(seconds))

    def advance(self, work: float, count: float) -> None:
        """Adds work that is done, and how much there is in it of what the speed counts."""
        self._done += work
        self._count += count
        now = time.perf_counter()
        seconds = now - self._start
        if self._bar is not None:
            self._bar.set_postfix_str(self._rate(seconds), refresh=False)
            self._bar.update(work)
        elif self._is_shown and now - self._reported >= _SECONDS_BETWEEN_LINES:
            self._reported = now
            share = left = ""
            if self._total:
                share = f"{100 * self._done / self._total:.0f}%, "
                left = f", {clock_text(seconds * (self._total / self._done - 1))} left" if self._done else ""
            log.info("%s: %s%s%s", self._what, share, self._rate(seconds), left)

    def _rate(self, seconds: float) -> str:
        rate = f"{rate_text(self._count, seconds)} {self._counted}/s"
        return rate if self._total else f"{self._count:,.0f} {self._counted}, {rate}"


@contextlib.contextmanager
def evaluating(num_rows: int, name: str) -> Iterator[Callable[[int], None]]:
    """Progress of an evaluation, for use in a `with` statement; call its target with the rows that are done. Of a name
    that is a path, the last part is shown."""
    with PassProgress(f"evaluating {pathlib.PurePath(name).name}", num_rows, "rows", is_said_at_end=False) as progress:
        yield lambda rows: progress.advance(rows, rows)


_PASS_BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}"


def clock_text(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class RunLog:
    """Takes records of numbers, each at a step.

    Args:
        directory: The run's output directory; with None, writes and shows nothing (workers other than the chief).
        total_steps: Updates of the whole run.
        first_step: Updates made by earlier starts of the run. What was logged later happens again.
        reports: Whom to tell of each record.

    Attributes:
        logged: The records of earlier starts that stay.
    """

    def __init__(
        self, directory: pathlib.Path | None, *, total_steps: int, first_step: int = 0, reports: Reports | None = None
    ):
        self._reports = reports or Reports()
        self._path = None if directory is None else directory / LOG
        self._file, self.logged, self._open = None, [], contextlib.ExitStack()
        if directory is not None:
            lines = _read(self._path, first_step)
            write_text(self._path, "".join(line for _, line in lines))
            self._file = self._open.enter_context(self._path.open("a", encoding="utf-8"))
            self.logged = [record for record, _ in lines]
        self._first_step, self._total_steps = first_step, total_steps
        self._bar = None

    def record(self, step: int, kind: str, numbers: dict[str, float]) -> float:
        """Writes one record, and tells callbacks of it.

        Args:
            step: Updates made so far.
            kind: `train` or `eval`.
            numbers: By name; evaluation metrics carry their prefix.

        Returns:
            The seconds that the callbacks took.
        """
        if self._file is None:
            return 0.0
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        record = Record(step=step, kind=kind, time=now, values={name: float(v) for name, v in numbers.items()})
        try:
            self._file.write(json.dumps({"step": step, "kind": kind, "time": now} | numbers) + "\n")
            self._file.flush()
            self._path.stat()  # Writing to a deleted file raises no error.
        except OSError as error:
            todo = "Free space there, or see to the file server, and start again."
            raise RunError(f"The log must be writable. Received: {self._path} ({error.strerror}). {todo}") from None
        start = time.perf_counter()
        self._reports.logged(record)
        return time.perf_counter() - start

    def advance(self, step: int, text: str) -> None:
        """Moves the progress bar to `step`; where nobody watches, logs a line instead.

        The bar appears with the first call: earlier lines would run into an empty bar. Later lines, whoever logs them,
        are printed above it.
        """
        if self._file is None:
            return
        if not is_watched():
            log.info("%s", text)
            return
        if not log.isEnabledFor(logging.INFO):
            return
        if self._bar is None:
            shape = {"total": self._total_steps, "initial": self._first_step}
            self._bar = self._open.enter_context(bar(**shape, bar_format="{percentage:3.0f}%|{bar}| {desc}"))
            self._open.enter_context(logging_redirect_tqdm())
        self._bar.set_description_str(text, refresh=False)
        self._bar.update(step - self._bar.n)

    def close(self) -> None:
        """Ends the bar and the file."""
        with contextlib.suppress(OSError):  # `record` has reported a full disk; a second error would replace the first.
            self._open.close()


def _read(path: pathlib.Path, last_step: int) -> list[tuple[Record, str]]:
    """The whole records of a log up to a step, in its order, each with its line."""
    kept, damaged, before = [], 0, 0
    if not last_step or not path.exists():
        return []
    for line in path.read_bytes().split(b"\n")[:-1]:  # A kill leaves a last line without its end.
        try:
            values = json.loads(line)
            about = {name: values.pop(name) for name in ("step", "kind", "time")}
            record = Record(**about, values={name: float(value) for name, value in values.items()})
            if type(record.step) is not int or record.step < before:
                raise ValueError("not the next step")
            if record.step <= last_step:
                kept.append((record, line.decode() + "\n"))
                before = record.step
        except (AttributeError, ValueError, KeyError, TypeError):
            damaged += 1
    if damaged:
        log.warning("%s left out of %s", counted(damaged, "damaged line"), path)
    return kept


_LIBRARIES = ("tensorflow", "keras", "absl", "huggingface_hub")


class ScreenHandler(logging.StreamHandler):
    """Messages on the screen, above bars. In a notebook, where all of stderr looks like an error, information goes to
    stdout."""

    def emit(self, record: logging.LogRecord) -> None:
        is_information = record.levelno < logging.WARNING
        self.stream = sys.stdout if is_information and is_notebook() else sys.stderr
        if self.stream is None:  # Closed: nobody reads it.
            return
        with tqdm.tqdm.external_write_mode(file=self.stream):
            super().emit(record)


class _Relay(logging.Handler):
    """Passes messages on to what a logger's ancestors have but screens, as if it still had its own level."""

    def __init__(self, level: int):
        super().__init__(level)

    def emit(self, record: logging.LogRecord) -> None:
        for handler in _inherited(log):
            if not _is_screen(handler) and record.levelno >= handler.level:
                handler.handle(record)


@contextlib.contextmanager
def shown(quiet: bool = False) -> Iterator[None]:
    """In the block, the messages and bars of a run are shown to whoever called it from Python.

    Args:
        quiet: Show nothing, warnings included.
    """
    level, effective, handlers = log.level, log.getEffectiveLevel(), list(log.handlers)
    screens = [handler for handler in (*handlers, *_inherited(log)) if _is_screen(handler)]
    already = effective <= logging.INFO and any(handler.level <= logging.INFO for handler in screens)
    with contextlib.ExitStack() as undone:
        if worded_record not in log.filters:  # Else of the command, or of a call around this one: it stays.
            log.addFilter(worded_record)
            undone.callback(log.removeFilter, worded_record)
        undone.callback(log.setLevel, level)
        if quiet:
            undone.enter_context(nobody_watching())
            undone.enter_context(warnings.catch_warnings(action="ignore"))
            for handler in filter(_is_screen, handlers):
                log.removeHandler(handler)
                undone.callback(log.addHandler, handler)
            for library in map(logging.getLogger, _LIBRARIES):
                undone.callback(library.setLevel, library.level)
                library.setLevel(logging.CRITICAL)
        else:
            # A level that the user set on this very logger says what they want to see of it.
            log.setLevel(level or min(effective, logging.INFO))
        if quiet or not (already or any(map(_is_screen, handlers))):
            undone.callback(setattr, log, "propagate", log.propagate)
            log.propagate = False
            for handler in [_Relay(effective), *([] if quiet else [ScreenHandler()])]:
                log.addHandler(handler)
                undone.callback(log.removeHandler, handler)
        yield


def _inherited(logger: logging.Logger) -> Iterator[logging.Handler]:
    """The handlers above a logger, which get its messages by default."""
    while logger.parent is not None:
        logger = logger.parent
        yield from logger.handlers
        if not logger.propagate:
            return


def _is_screen(handler: logging.Handler) -> bool:
    """Whether a handler writes to this process's stdout or stderr; absl's and rich's keep their stream elsewhere."""
    inner = getattr(handler, "python_handler", handler)
    stream = getattr(inner, "stream", getattr(getattr(inner, "console", None), "file", None))
    return stream is not None and stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)


def worded_record(record: logging.LogRecord) -> bool:
    """Makes a message speak of arguments; it passes."""
    record.msg, record.args = worded(record.getMessage()), ()
    return True


Outcome = Literal["", "finished", "stopped", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The run that a callback hears of.

    Attributes:
        directory: Its output directory.
        options: Its options, by their names.
        first_step: Updates made by earlier starts of the run; 0 where it begins.
        total_steps: Updates of the whole run.
    """

    directory: pathlib.Path
    options: Mapping[str, Any]
    first_step: int
    total_steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A line of `log.jsonl`.

    Attributes:
        step: Updates made so far.
        kind: `train` or `eval`.
        time: When it was logged, in ISO 8601.
        values: By name.
    """

    step: int
    kind: str
    time: str
    values: Mapping[str, float]


class Callback:
    """Hears of a run: pass some to `tfbert.finetune(callbacks=[...])`, and override what you need.

    All methods are called on the chief alone, the process that writes the files, in the thread that trains: training
    waits for them. `step` counts optimizer updates of the whole run, and all values are floats.

    A run that resumes goes on from its checkpoint: what was logged after that comes again, as in `log.jsonl`.

    An exception ends the run, on all workers, as a `RunError` that names the callback and has the exception as its
    cause; a checkpoint is written first, so that the same call resumes. After the last update, the run is finished
    before.

    Attributes:
        name: Tells the callbacks of a run apart; the class's name unless it is set.
        run: The run; set before `on_start`.
        outcome: How the run ended, set before `on_end`: `finished`; `stopped` by a signal or a callback, with a
            checkpoint; `failed`.

    Example:
        >>> class StopAtHalf(tfbert.callbacks.Callback):
        ...     def on_evaluate(self, step, values):
        ...         if values["eval_loss"] < 0.5:
        ...             self.stop()
        >>> tfbert.finetune(train_file="train.tsv", validation_file="dev.tsv", callbacks=[StopAtHalf()])
    """

    name: str = ""
    run: RunInfo
    outcome: Outcome = ""
    _asks_to_stop = False
    _hears_all = False  # Whether each start tells it what earlier ones logged: its store knows what is new.

    def on_start(self, step: int, values: Mapping[str, float]) -> None:
        """At each start of the run, before its first update; `step` is above 0 where it resumes.

        Args:
            step: Updates made by earlier starts.
            values: `total_steps`, `steps_per_epoch`, `warmup_steps`, `global_batch_size`, `num_replicas`,
                `train_examples`, `eval_examples`, `parameters`, `trained_parameters`.
        """

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        """Every `logging_steps` updates, and at the last one.

        Args:
            step: Updates made.
            values: `loss`, the mean since the last call; `learning_rate`, `grad_norm` of this update; `epoch`;
                `skipped_steps` so far; `examples_per_second`, `tokens_per_second`, `data_wait_share` since the last
                call. One that is not finite is left out.
        """

    def on_evaluate(self, step: int, values: Mapping[str, float]) -> None:
        """After each evaluation.

        Args:
            step: Updates made.
            values: The metrics, `eval_loss` and so on; `eval_runtime` and the speeds of the evaluation; `epoch`.
        """

    def on_save(self, step: int, values: Mapping[str, float]) -> None:
        """After each checkpoint, which is in `run.directory / "checkpoints" / f"step-{step:08}"`.

        Args:
            step: Updates made.
            values: `checkpoint_seconds`, `checkpoint_bytes`.
        """

    def on_end(self, step: int, values: Mapping[str, float]) -> None:
        """When this start of the run ends, however it does: see `outcome`. All files are written then.

        Args:
            step: Updates made.
            values: What `all_results.json` holds of a finished run; empty for any other.
        """

    def stop(self) -> None:
        """Asks the run to stop after this update, on all workers (several of them look every 5 updates).

        It writes a checkpoint and raises `tfbert.Preempted`; the same call resumes. After the last update, it finishes.
        """
        self._asks_to_stop = True

    def _finish(self, step: int, values: Mapping[str, float]) -> None:
        """Before `all_results.json` of a finished run is written: after a kill in between, the run is not finished."""

    def _receive(self, record: Record) -> None:
        (self.on_log if record.kind == "train" else self.on_evaluate)(record.step, dict(record.values))


class Reports:
    """Tells callbacks of a run. After an exception, a callback is told nothing but the end.

    Args:
        callbacks: As `all_callbacks` gives them; none on workers other than the chief.

    Attributes:
        failed: The callback that raised an exception, and that exception.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()):
        self._callbacks = tuple(callbacks)
        self._started: list[Callback] = []
        self._step = 0
        self.failed: tuple[Callback, Exception] | None = None

    @property
    def asks_to_end(self) -> bool:
        """Whether a callback has asked the run to stop, or failed."""
        return self.failed is not None or any(callback._asks_to_stop for callback in self._callbacks)

    @property
    def who_asks(self) -> str:
        """Who asked the run to stop, for its last line; empty if no callback did."""
        return ", ".join(_name_of(callback) for callback in self._callbacks if callback._asks_to_stop)

    def start(self, run: RunInfo, values: Mapping[str, float], logged: Sequence[Record]) -> None:
        """Calls `on_start`, and gives trackers what the log holds of earlier starts."""
        self._step = run.first_step
        for callback in self._callbacks:
            callback.run, callback.outcome, callback._asks_to_stop = run, "", False
            self._started.append(callback)
            self._call(callback, callback.on_start, run.first_step, values)
            for record in logged if callback._hears_all else ():
                self._call(callback, callback._receive, record)

    def logged(self, record: Record) -> None:
        """Passes a new record on."""
        self._step = record.step
        for callback in self._callbacks:
            self._call(callback, callback._receive, record)

    def saved(self, step: int, values: Mapping[str, float]) -> None:
        """Calls `on_save`."""
        for callback in self._callbacks:
            self._call(callback, callback.on_save, step, values)

    def finishing(self, results: Mapping[str, float]) -> None:
        """Calls `_finish`, by which the stores of trackers hold a run as finished before its directory does."""
        for callback in self._started:
            self._call(callback, callback._finish, int(results.get("global_step", 0)), _floats(results))

    def end(self, outcome: Outcome, step: int = 0, results: Mapping[str, float] | None = None) -> None:
        """Calls `on_end` of every callback that was started; where one fails after the run did, that is a warning."""
        for callback in self._started:
            callback.outcome = outcome
            try:
                callback.on_end(step or self._step, _floats(results or {}))
            except Exception as error:
                if outcome != "finished" and self.failed is None:
                    log.warning("callback %s, on_end: %s", _name_of(callback), first_line(error))
                self.failed = self.failed or (callback, error)
        self._started = []

    def error(self, where: str) -> RunError:
        """The error of a run that a callback's exception ended.

        Args:
            where: How far the run came, and what is left of it.
        """
        if self.failed is None:
            return RunError(f"A callback failed on the chief: see its output. {where}")
        callback, cause = self.failed
        error = RunError(f"Callback {_name_of(callback)} failed: {type(cause).__name__}: {first_line(cause)}. {where}")
        error.__cause__ = cause
        return error

    def _call(self, callback: Callback, method: Any, *arguments: Any) -> None:
        if self.failed is None or self.failed[0] is not callback:
            try:
                method(*arguments)
            except Exception as error:
                self.failed = self.failed or (callback, error)


def _name_of(callback: Callback) -> str:
    return callback.name or type(callback).__name__


def _floats(results: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in results.items()}


PROJECT = "tfbert"
_PARAMS_AT_ONCE = 100
"""As many as MLflow takes in one call."""
_TAG = "tfbert_id"
"""Of MLflow's run: its id in the output directory, which is written before there is a run."""


def all_callbacks(report_to: Sequence[str], callbacks: Sequence[Callback] = ()) -> list[Callback]:
    """A user's callbacks, and the trackers that a run reports to.

    Raises:
        UsageError: for what is no callback, two of one name, and a tracker whose package is missing.
    """
    found = [*callbacks, *(TRACKERS[name]() for name in report_to)]
    seen = set()
    for callback in found:
        if not isinstance(callback, Callback):
            rule = "Each of callbacks must be a tfbert.callbacks.Callback, made already"
            raise UsageError(f"{rule}. Received: {callback!r}. Derive it from that class, and pass an object.")
        if (name := _name_of(callback)) in seen:
            rule = "Callbacks of a run are told apart by their names"
            raise UsageError(f"{rule}. Received: two called {name!r}. Set the attribute name of one.")
        seen.add(name)
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
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options}
        params = [self._param(name, text) for name, text in texts.items() if name not in run.data.params]
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
