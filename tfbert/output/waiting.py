"""A line about work that takes long, logged only once it does, so that nobody takes it for a hang."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from tfbert.output.logs import is_terminal

log = logging.getLogger("tfbert")

SECONDS_ON_A_TERMINAL = 2.0
SECONDS_IN_A_FILE = 10.0
"""A log file is read later: it needs fewer lines."""


@contextlib.contextmanager
def said_if_slow(what: str) -> Iterator[None]:
    """Logs `what ...` if the block takes longer than two seconds on a terminal, or ten seconds elsewhere.

    Args:
        what: The work, as `tokenizing 25,000 examples`.
    """
    seconds = SECONDS_ON_A_TERMINAL if is_terminal() else SECONDS_IN_A_FILE
    timer = threading.Timer(seconds, log.info, ["%s ...", what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
