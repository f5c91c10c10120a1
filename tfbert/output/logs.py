"""Where a run's numbers go: the screen, `log.jsonl`, and callbacks. Only the chief has any of them."""

from __future__ import annotations

import bisect
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
from tfbert.output.bars import bar
from tfbert.output.callback import Record
from tfbert.output.output_dir import LOG, write_text
from tfbert.output.reports import Reports

log = logging.getLogger("tfbert")

_BAR = "{percentage:3.0f}%|"
_WAY_OUT = "Free space there, or see to the file server, and start again."


class RunLog:
    """Takes records of numbers, each at a step.

    Args:
        directory: The run's output directory; with None, writes and shows nothing (workers other than the chief).
        total_steps: Updates of the whole run.
        first_step: Updates made by earlier starts of the run.
        reports: Whom to tell of each record. Where it says that the run repeats what an earlier start logged, these
            records stay, and are not logged again.

    Attributes:
        logged: The records of earlier starts that stay.
    """

    def __init__(
        self, directory: pathlib.Path | None, *, total_steps: int, first_step: int = 0, reports: Reports | None = None
    ):
        self._is_silent = directory is None
        self._reports = reports or Reports(None)
        self._path = None if directory is None else directory / LOG
        self._file, self.logged = None, []
        if directory is not None:
            lines = _read(self._path, None if self._reports.repeats else first_step)
            self._file = _rewritten(self._path, lines)
            self.logged = [Record.of(entry) for entry, _ in lines if Record.is_one(entry)]
        self._last = max((record.place for record in self.logged), default=(0, 0))
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
        if record.place <= self._last:
            return 0.0
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


def _read(path: pathlib.Path, last_step: int | None) -> list[tuple[dict[str, Any], str]]:
    """The whole lines of a log, up to a step if one is given: what was logged later than a checkpoint happens again."""
    kept, damaged = [], 0
    if last_step == 0 or not path.exists():
        return []
    for line in path.read_bytes().split(b"\n")[:-1]:  # A kill leaves a last line without its end.
        try:
            entry = json.loads(line)
            if type(entry["step"]) is not int:
                raise ValueError("not a step")
            kept.append((entry["step"], entry, line.decode() + "\n"))
        except (ValueError, KeyError, TypeError):
            damaged += 1
    in_order = _longest_rising([step for step, _, _ in kept])
    damaged += len(kept) - len(in_order)
    if damaged:
        log.warning("%s left out of %s", counted(damaged, "damaged line"), path)
    kept = [kept[i] for i in in_order]
    return [(entry, line) for step, entry, line in kept if last_step is None or step <= last_step]


def _longest_rising(steps: list[int]) -> list[int]:
    """The places of the most steps that never fall from one to the next: a changed digit would hide all that follow."""
    ends: list[int] = []  # By length, the place at which the best such row of that length ends.
    before: list[int] = []
    for place, step in enumerate(steps):
        length = bisect.bisect_right([steps[end] for end in ends], step)
        before.append(ends[length - 1] if length else -1)
        ends[length : length + 1] = [place]
    found, place = [], ends[-1] if ends else -1
    while place >= 0:
        found.append(place)
        place = before[place]
    return found[::-1]


def _rewritten(path: pathlib.Path, lines: list[tuple[dict[str, Any], str]]) -> TextIO:
    """Opens a log to continue after these lines.

    Raises:
        RunError: if it cannot be written; its content stays.
    """
    write_text(path, "".join(line for _, line in lines))
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


def clock_text(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
