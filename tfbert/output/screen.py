"""What a call from Python shows: the command's lines and bars, in a terminal, a notebook or a pipe; or nothing.

The user's own logging stays as it is set up: files and the like get the messages that they would get anyway, and a
screen that shows this program's information already shows it, and nothing is added.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator

import tqdm

from tfbert.devices.quiet import WholeFields
from tfbert.devices.waiting import is_notebook, nobody_watching
from tfbert.errors import worded

log = logging.getLogger("tfbert")

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
