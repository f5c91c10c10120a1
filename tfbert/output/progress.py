"""Progress of a long pass over data: its speed, and the time that is left; a bar on a terminal, or in a notebook, where
it is one output that is updated in place."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import tqdm

from tfbert.config.counted import rate_text
from tfbert.devices.waiting import is_notebook, is_watched

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
        total: The total work, in any unit.
        counted: What the speed counts, such as `MB`.
        is_said_at_end: Whether there is a line at the end; without one, the bar disappears.
    """

    def __init__(self, what: str, total: int, counted: str = "sentences", *, is_said_at_end: bool = True):
        self._what, self._total, self._counted = what, max(1, total), counted
        self._done, self._is_said_at_end = 0, is_said_at_end
        self._count = 0.0
        self._start = self._reported = time.perf_counter()
        options = {"bar_format": _BAR, "delay": SECONDS_WITHOUT_NEWS, "leave": is_said_at_end}
        self._bar = bar(total=self._total, desc=what, **options) if is_watched() else None

    def __enter__(self) -> PassProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        seconds = time.perf_counter() - self._start
        if kind is None and self._is_said_at_end and seconds >= SECONDS_WITHOUT_NEWS:
            done = f"{self._count:,.0f} {self._counted}"
            log.info("%s: %s in %s, %s", self._what, done, clock_text(seconds), self._rate(seconds))

    def advance(self, work: int, count: float) -> None:
        """Adds work that is done, and how much there is in it of what the speed counts."""
        self._done += work
        self._count += count
        now = time.perf_counter()
        seconds = now - self._start
        if self._bar is not None:
            self._bar.set_postfix_str(self._rate(seconds), refresh=False)
            self._bar.update(work)
        elif now - self._reported >= _SECONDS_BETWEEN_LINES:
            self._reported = now
            left = f", {clock_text(seconds * (self._total / self._done - 1))} left" if self._done else ""
            log.info("%s: %.0f%%, %s%s", self._what, 100 * self._done / self._total, self._rate(seconds), left)

    def _rate(self, seconds: float) -> str:
        return f"{rate_text(self._count, seconds)} {self._counted}/s"


@contextlib.contextmanager
def evaluating(num_rows: int) -> Iterator[Callable[[int], None]]:
    """Progress of an evaluation, for use in a `with` statement; call its target with the rows that are done."""
    with PassProgress("evaluating", num_rows, "rows", is_said_at_end=False) as progress:
        yield lambda rows: progress.advance(rows, rows)


_BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}"


def clock_text(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
