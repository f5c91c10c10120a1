"""Where a run's numbers go: the screen, `log.jsonl`, and callbacks. Only the chief has any of them."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import pathlib
import time
from typing import Any, TextIO

from tqdm.contrib.logging import logging_redirect_tqdm

from tfbert.config.counted import counted
from tfbert.devices.waiting import is_watched, terminal_width
from tfbert.errors import RunError
from tfbert.output.callback import Record, Reports
from tfbert.output.output_dir import LOG, write_text
from tfbert.output.progress import bar

log = logging.getLogger("tfbert")

_BAR = "{percentage:3.0f}%|"
_WAY_OUT = "Free space there, or see to the file server, and start again."


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
        self._is_silent = directory is None
        self._reports = reports or Reports()
        self._path = None if directory is None else directory / LOG
        self._file, self.logged = None, []
        if directory is not None:
            lines = _read(self._path, first_step)
            self._file = _rewritten(self._path, [line for _, line in lines])
            self.logged = [record for entry, _ in lines if (record := _record_of(entry))]
        self._first_step, self._total_steps = first_step, total_steps
        self._bar = None
        self._above_bar = contextlib.ExitStack()

    def record(self, step: int, kind: str, numbers: dict[str, float]) -> float:
        """Writes one record, and tells callbacks of it.

        Args:
            step: Updates made so far.
            kind: `train`, `eval` or `test`.
            numbers: By name; evaluation metrics carry their prefix.

        Returns:
            The seconds that the callbacks took.
        """
        if self._is_silent:
            return 0.0
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        record = Record(step=step, kind=kind, time=now, values={name: float(v) for name, v in numbers.items()})
        try:
            self._file.write(json.dumps({"step": step, "kind": kind, "time": now} | numbers) + "\n")
            self._file.flush()
            self._path.stat()  # Writing to a deleted file raises no error.
        except OSError as error:
            raise RunError(f"The log must be writable. Received: {self._path} ({error.strerror}). {_WAY_OUT}") from None
        start = time.perf_counter()
        self._reports.logged(record)
        return time.perf_counter() - start

    def advance(self, step: int, text: str) -> None:
        """Moves the progress bar to `step`; where nobody watches, logs a line instead.

        The bar appears with the first call: earlier lines would run into an empty bar. Later lines, whoever logs them,
        are printed above it.
        """
        if self._is_silent:
            return
        if not is_watched():
            log.info("%s", text)
            return
        if not log.isEnabledFor(logging.INFO):
            return
        if self._bar is None:
            self._bar = bar(total=self._total_steps, initial=self._first_step, bar_format=_BAR + "{bar}| {desc}")
            self._above_bar.enter_context(logging_redirect_tqdm())
        self._bar.set_description_str(_fitted(text, terminal_width()), refresh=False)
        self._bar.update(step - self._bar.n)

    def close(self) -> None:
        """Ends the bar and the files."""
        self._above_bar.close()
        for part in (self._bar, self._file):
            if part is not None:
                # `record` has reported a full disk; a second error would replace the first.
                with contextlib.suppress(OSError):
                    part.close()


def _read(path: pathlib.Path, last_step: int) -> list[tuple[dict[str, Any], str]]:
    """The whole lines of a log up to a step, in its order."""
    kept, damaged, before = [], 0, 0
    if not last_step or not path.exists():
        return []
    for line in path.read_bytes().split(b"\n")[:-1]:  # A kill leaves a last line without its end.
        try:
            entry = json.loads(line)
            step = entry["step"]
            if type(step) is not int or step < before:
                raise ValueError("not the next step")
            if step <= last_step:
                kept.append((entry, line.decode() + "\n"))
                before = step
        except (ValueError, KeyError, TypeError):
            damaged += 1
    if damaged:
        log.warning("%s left out of %s", counted(damaged, "damaged line"), path)
    return kept


def _record_of(entry: dict[str, Any]) -> Record | None:
    """The record of a line; None for a line of another kind."""
    if entry.get("kind") not in ("train", "eval") or not isinstance(entry.get("time"), str):
        return None
    values = {k: float(v) for k, v in entry.items() if isinstance(v, (int, float)) and k != "step"}
    return Record(step=entry["step"], kind=entry["kind"], time=entry["time"], values=values)


def _rewritten(path: pathlib.Path, lines: list[str]) -> TextIO:
    """Opens a log to continue after these lines.

    Raises:
        RunError: if it cannot be written; its content stays.
    """
    write_text(path, "".join(lines))
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise RunError(f"The log must be writable. Received: {path} ({error.strerror}). {_WAY_OUT}") from None


def _fitted(text: str, width: int) -> str:
    """The fields of a text, which two spaces part, without those that a terminal would cut off: the last one, the time
    that is left, stays."""
    fields = text.split("  ")
    while len(fields) > 2 and 0 < width < len(_BAR.format(percentage=0) + "| ") + len("  ".join(fields)):
        del fields[-2]
    return "  ".join(fields)
