"""Which callback was told what of a run: every value once, over all its starts."""

from __future__ import annotations

import logging
import pathlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tfbert.errors import RunError, UsageError, first_line
from tfbert.output.callback import Callback, Outcome, Record, RunInfo
from tfbert.output.output_dir import CALLBACKS, LOG, write_text
from tfbert.output.sealed import seal, unseal

log = logging.getLogger("tfbert")

_NOTHING = (0, -1)
"""Before the first record."""


def read_reported(directory: pathlib.Path) -> dict[str, Any]:
    """What an earlier start of a run noted of its callbacks; empty where it had none.

    Raises:
        UsageError: for a file that is damaged.
    """
    path = directory / CALLBACKS
    try:
        found = unseal(path.read_text(encoding="utf-8"))
        for part in found["callbacks"].values():
            step, kind = part["last"]
            if not isinstance(part["memory"], dict) or type(step) is not int or type(kind) is not int:
                raise ValueError("not what a run writes")
        return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        rule = "The note of what callbacks were told must be whole"
        todo = "Remove it: they are told everything again."
        raise UsageError(f"{rule}. Received: {str(path)!r} ({first_line(error)}). {todo}") from None


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
        if name_of(callback) in seen:
            rule = "Callbacks of a run are told apart by their names"
            raise UsageError(f"{rule}. Received: two called {name_of(callback)!r}. Set the attribute name of one.")
        seen.add(name_of(callback))


def name_of(callback: Callback) -> str:
    """The name by which a callback is recognised."""
    return callback.name or type(callback).__name__


class Reports:
    """Tells callbacks of a run, and notes it. After an exception, a callback is told nothing but the end.

    Args:
        directory: The run's output directory; with None, tells nobody anything (workers other than the chief).
        callbacks: As `check_callbacks` wants them.
        reported: What `read_reported` found, if the run continues what an earlier start began; else empty.
        values_of: What decides the values that the run logs.

    Attributes:
        repeats: Whether an earlier start logged the values that this one computes.
        failed: The callback that raised an exception, and that exception.
    """

    def __init__(
        self,
        directory: pathlib.Path | None,
        callbacks: Sequence[Callback] = (),
        reported: Mapping[str, Any] | None = None,
        values_of: str = "",
    ):
        self._directory, self._values_of = directory, values_of
        self._callbacks = () if directory is None else tuple(callbacks)
        self.repeats = bool(reported) and reported.get("values_of") == values_of
        self._notes: dict[str, dict[str, Any]] = dict(reported["callbacks"]) if reported else {}
        self._started: list[Callback] = []
        self._step = 0
        self.failed: tuple[Callback, Exception] | None = None

    @property
    def kept_files(self) -> tuple[str, ...]:
        """Files of the earlier start that stay although the run begins again."""
        return (LOG, CALLBACKS) if self.repeats else ()

    @property
    def asks_to_end(self) -> bool:
        """Whether a callback has asked the run to stop, or failed."""
        return self.failed is not None or any(callback._asks_to_stop for callback in self._callbacks)

    @property
    def who_asks(self) -> str:
        """Who asked the run to stop, for its last line; empty if no callback did."""
        return ", ".join(name_of(callback) for callback in self._callbacks if callback._asks_to_stop)

    def start(self, run: RunInfo, values: Mapping[str, float], logged: Sequence[Record]) -> None:
        """Calls `on_start`, and passes on what a callback has not heard.

        Args:
            run: The run.
            values: Of `on_start`.
            logged: The records of earlier starts that the log keeps.
        """
        self._step = run.first_step
        if not self.repeats:  # What was told of updates that are still to be made does not count.
            if not run.first_step:
                self._notes = {}
            for note in self._notes.values():
                note["last"] = list(min(tuple(note["last"]), (run.first_step, len(Record.KINDS))))
        notes = {
            name_of(callback): {"last": list(_NOTHING), "memory": {}} for callback in self._callbacks
        } | self._notes
        for note in notes.values():
            note["memory"].setdefault("id", uuid.uuid4().hex[:12])
        self._notes = notes
        self._write()  # Before a tracker begins a run under its id: after a kill, the next start must find that run.
        for callback in self._callbacks:
            note = notes[name_of(callback)]
            callback.run, callback.outcome, callback._asks_to_stop = run, "", False
            callback._memory = dict(note["memory"])
            self._started.append(callback)
            self._call(callback, callback.on_start, run.first_step, values)
            note["memory"] = callback._memory
        self._write()
        for callback in self._callbacks:
            if self._hears(callback):
                self._call(callback, self._catch_up, callback, logged)
        self._write()

    def logged(self, record: Record) -> None:
        """Passes a new record on."""
        self._step = record.step
        for callback in self._callbacks:
            if record.place > tuple(self._notes[name_of(callback)]["last"]):
                self._pass_on(callback, record)
        if any(callback._needs_note for callback in self._callbacks):
            self._write()

    def saved(self, step: int, values: Mapping[str, float]) -> None:
        """Calls `on_save`."""
        for callback in self._callbacks:
            if self._hears(callback):
                self._call(callback, callback.on_save, step, values)

    def finishing(self, results: Mapping[str, float]) -> None:
        """Calls `_finish`, by which the stores of trackers hold a run as finished before its directory does."""
        for callback in self._started:
            self._call(callback, callback._finish, int(results.get("global_step", 0)), _floats(results))

    def end(self, outcome: Outcome, step: int = 0, results: Mapping[str, float] | None = None) -> None:
        """Calls `on_end` of every callback that was started; where one fails after the run did, that is a warning."""
        for callback in self._started:
            callback.outcome = outcome
            had_failed = self.failed
            self._call(callback, callback.on_end, step or self._step, _floats(results or {}))
            if outcome != "finished" and self.failed is not had_failed:
                log.warning("callback %s, on_end: %s", name_of(callback), first_line(self.failed[1]))
        self._started = []

    def error(self, where: str) -> RunError:
        """The error of a run that a callback's exception ended.

        Args:
            where: How far the run came, and what is left of it.
        """
        if self.failed is None:
            return RunError(f"A callback failed on the chief: see its output. {where}")
        callback, cause = self.failed
        text = f"Callback {name_of(callback)} failed: {type(cause).__name__}: {first_line(cause)}. {where}"
        error = RunError(text)
        error.__cause__ = cause
        return error

    def _catch_up(self, callback: Callback, logged: Sequence[Record]) -> None:
        for record in callback._missing(logged, tuple(self._notes[name_of(callback)]["last"])):
            self._pass_on(callback, record)

    def _hears(self, callback: Callback) -> bool:
        return self.failed is None or self.failed[0] is not callback

    def _pass_on(self, callback: Callback, record: Record) -> None:
        if self._hears(callback) and self._call(callback, callback._receive, record):
            note = self._notes[name_of(callback)]
            note["last"] = list(max(tuple(note["last"]), record.place))

    def _call(self, callback: Callback, method: Any, *arguments: Any) -> bool:
        """Whether a callback's method came to its end."""
        try:
            method(*arguments)
        except Exception as error:
            self.failed = self.failed or (callback, error)
            return False
        return True

    def _write(self) -> None:
        if self._callbacks:
            note = {"values_of": self._values_of, "callbacks": self._notes}
            write_text(self._directory / CALLBACKS, seal(note))


def _floats(results: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in results.items()}
