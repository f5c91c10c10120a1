"""A line about work that takes long, shown only once it does, so that nobody takes it for a hang."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator

log = logging.getLogger("tfbert")

SECONDS_ON_A_TERMINAL = 2.0
SECONDS_IN_A_FILE = 10.0
"""A log file is read later: it needs fewer lines."""


_NOTEBOOK_WIDTH = 100
"""Characters that fit into the output of a cell, which does not say; a window that is narrower breaks lines itself."""

_nobody_watches = False


@contextlib.contextmanager
def nobody_watching() -> Iterator[None]:
    """In the block, no terminal and no notebook counts as watched: nothing is drawn there."""
    global _nobody_watches
    before, _nobody_watches = _nobody_watches, True
    try:
        yield
    finally:
        _nobody_watches = before


def is_unwatched() -> bool:
    """Whether it was said that nobody watches: helper processes show nothing either."""
    return _nobody_watches


def is_terminal() -> bool:
    """Whether somebody watches stderr on a terminal; not if it is closed."""
    return not _nobody_watches and sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def is_notebook() -> bool:
    """Whether this process runs the cells of a notebook, in Jupyter, Colab or an editor."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return not _nobody_watches and hasattr(shell, "kernel")


def is_watched() -> bool:
    """Whether somebody watches as it happens: what is drawn is seen at once, and may change."""
    return is_terminal() or is_notebook()


def terminal_width() -> int:
    """Characters in a line of the terminal that shows stderr, or of a notebook; 0 if nobody watches, or it does not
    say."""
    if is_notebook():
        return _NOTEBOOK_WIDTH
    if not is_terminal():
        return 0
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0


@contextlib.contextmanager
def log_if_slow(what: str, say: Callable[[str], object] = log.info) -> Iterator[None]:
    """Says `what ...` if the block takes longer than two seconds where somebody watches, or ten seconds elsewhere.

    Args:
        what: The work, as `tokenizing 25,000 examples`.
        say: Shows a line; the logger by default.
    """
    seconds = SECONDS_ON_A_TERMINAL if is_watched() else SECONDS_IN_A_FILE
    timer = threading.Timer(seconds, say, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # `say` may use what ends with the block.
