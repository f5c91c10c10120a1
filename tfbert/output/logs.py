"""Where a run's numbers go: the screen, `log.jsonl`, and callbacks. Only the chief has any of them. And the progress of
a long pass over data: its speed, and the time that is left.

What a call from Python shows: the command's lines and bars, in a terminal, a notebook or a pipe; or nothing.

The user's own logging stays as it is set up: files and the like get the messages that they would get anyway, and a
screen that shows this program's information already shows it, and nothing is added.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import pathlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from tfbert.config.types import counted, rate_text
from tfbert.devices.quiet import WholeFields, is_notebook, is_watched, nobody_watching, terminal_width
from tfbert.errors import RunError, worded
from tfbert.output.callback import Record, Reports
from tfbert.output.output_dir import LOG, write_text

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
def evaluating(num_rows: int) -> Iterator[Callable[[int], None]]:
    """Progress of an evaluation, for use in a `with` statement; call its target with the rows that are done."""
    with PassProgress("evaluating", num_rows, "rows", is_said_at_end=False) as progress:
        yield lambda rows: progress.advance(rows, rows)


_PASS_BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}"


def clock_text(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


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


_LIBRARIES = ("tensorflow", "keras", "absl", "huggingface_hub")


class ScreenHandler(logging.StreamHandler):
    """Messages on the screen, above bars. In a notebook, where all of stderr looks like an error, information goes to
    stdout."""

    def __init__(self):
        super().__init__()
        self.setFormatter(WholeFields())

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
        undone.enter_context(_filtered(log, worded_record))
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


@contextlib.contextmanager
def _filtered(logger: logging.Logger, passes: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    if passes in logger.filters:  # Of the command, or of a call around this one: it stays.
        yield
        return
    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)


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
