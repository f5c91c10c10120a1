"""What a user's code hears of a run: `Callback`, with each value that is logged, and when the run starts and ends; and
`Reports`, which tells callbacks of it."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tfbert.errors import RunError, UsageError, first_line

log = logging.getLogger("tfbert")

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
                `train_examples`, `eval_examples`, `parameters`.
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


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """Refuses what is no callback, and callbacks that cannot be told apart.

    Raises:
        UsageError: naming one.
    """
    seen = set()
    for callback in callbacks:
        if not isinstance(callback, Callback):
            rule = "Each of callbacks must be a tfbert.callbacks.Callback, made already"
            raise UsageError(f"{rule}. Received: {callback!r}. Derive it from that class, and pass an object.")
        if (name := _name_of(callback)) in seen:
            rule = "Callbacks of a run are told apart by their names"
            raise UsageError(f"{rule}. Received: two called {name!r}. Set the attribute name of one.")
        seen.add(name)


class Reports:
    """Tells callbacks of a run. After an exception, a callback is told nothing but the end.

    Args:
        callbacks: As `check_callbacks` wants them; none on workers other than the chief.

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
