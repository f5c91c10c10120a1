"""SIGTERM outside training: a command ends by itself and says so, however early the signal comes. No TensorFlow here.

Without a handler SIGTERM kills a process, which schedulers take for a failure; and as PID 1, as in a container, a
process without one never notices it. While a run trains, `preemption` handles signals instead, and saves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

from tfbert.errors import first_line, in_command, of_surroundings, other_project

_SECONDS_BETWEEN = 5.0
"""A SIGTERM so soon after another one lets the process clean up. A later one is heard: the first may have been lost in
code that catches everything."""


class Terminated(KeyboardInterrupt):
    """Told to end by SIGTERM, where there is nothing to save. What cleans up after Ctrl-C does so here. Exit status 75
    (EX_TEMPFAIL)."""

    status = 75

    def __init__(self):
        super().__init__("stopped by SIGTERM; nothing is lost, the same command starts again")


class _Handler:
    def __init__(self):
        self.last: float | None = None

    def __call__(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self.last is None or now - self.last >= _SECONDS_BETWEEN:
            self.last = now
            raise Terminated


def run_program(name: str, main: Callable[[], int]) -> int:
    """Runs a program's `main`, which imports what it needs, so that SIGTERM ends it from its first line on.

    Call it once in a process, from its main thread. A SIGTERM that is ignored stays ignored.

    Args:
        name: What its messages begin with.
        main: Returns the exit status.

    Returns:
        The exit status: 75 if it was told to end by SIGTERM, 130 by Ctrl-C; 1 where a package is missing or broken.
    """
    with in_command():
        try:
            return _run(name, main)
        except ImportError as error:
            found = other_project()
            if not found and (error.name or "").partition(".")[0] == "tfbert":
                raise  # A bug of ours.
            found = found or (
                f"The packages that tfbert needs must be there. Received: {first_line(error)} in {sys.executable}. "
                "Run pip install -e . in the clone."
            )
            print(f"{name}: error: {found}", file=sys.stderr)
            return 1
        except OSError as error:
            if (found := of_surroundings(error)) is None:
                raise
            print(f"{name}: error: {found}", file=sys.stderr)
            return 1


def _run(name: str, main: Callable[[], int]) -> int:
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        return main()
    status = 1
    try:
        signal.signal(signal.SIGTERM, _Handler())
        os.register_at_fork(after_in_child=_forget)
        status = main()
    except Terminated as stop:
        print(f"{name}: {stop}", file=sys.stderr)
        status = stop.status
    except KeyboardInterrupt:
        print(f"{name}: stopped by Ctrl-C", file=sys.stderr)
        status = 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # What was done is done: the status must say how it ended.
    return status


def check() -> None:
    """Ends the program if it was told to and the exception was lost, as in code that catches all of them.

    Raises:
        Terminated: then.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, _Handler) and handler.last is not None:
        raise Terminated


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """For a call that may take minutes in which Python runs nothing: SIGTERM kills, as without a handler.

    As PID 1 it would do nothing at all, so that there it is handled after the call.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if not isinstance(handler, _Handler) or os.getpid() == 1:
        yield
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _forget() -> None:
    """In a forked process, which is another program: what ends it is not ours to say."""
    if isinstance(signal.getsignal(signal.SIGTERM), _Handler):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
