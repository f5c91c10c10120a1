"""Ctrl-C, or a notebook's interrupt, never breaks off an import: what it leaves can often not be imported again in the
same process, as of NumPy and TensorFlow, so that the next call would fail. Standard library only."""

from __future__ import annotations

import contextlib
import inspect
import signal
import threading
import types
from collections.abc import Iterator

_AGAIN_SECONDS = 0.05
_IMPORT_SYSTEM = "<frozen importlib._bootstrap"
"""How the files of Python's import system are called in frames."""


@contextlib.contextmanager
def imports_whole() -> Iterator[None]:
    """In the block, an interrupt that comes during an import, whosever it is, comes when this is done; any other one at
    once. Outside the main thread, which alone is interrupted, it does nothing."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    outside = _imports_in(inspect.currentframe())  # Of the program that imports this call.

    def receive(number: int, frame: types.FrameType | None) -> None:
        if _imports_in(frame) <= outside:
            before(number, frame)
            return
        again = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (threading.main_thread().ident, number))
        again.daemon = True
        again.start()

    try:
        signal.signal(signal.SIGINT, receive)
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def interrupted_later() -> Iterator[None]:
    """Keeps an interrupt until the block ends, for more than an import that must not be broken off."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    received: list[int] = []
    try:
        signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        signal.raise_signal(signal.SIGINT)


def _imports_in(frame: types.FrameType | None) -> int:
    """How many frames of a stack are the import system's."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(_IMPORT_SYSTEM)
        frame = frame.f_back
    return count
