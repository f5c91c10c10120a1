"""A run as a process of its own: it finds the package, ends when this process does, and gets its signals."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfbert.launch.worker_group import Signals, dies_with

STOP_SECONDS = 30


def start_child(command: Sequence[str], variables: Mapping[str, str] | None = None, **streams: Any) -> subprocess.Popen:
    """Starts a command in a session of its own; the kernel kills it when this process dies, however that happens.

    Args:
        command: Program and arguments.
        variables: Environment variables, added to this process's.
        **streams: `stdin`, `stdout`, `stderr` of `subprocess.Popen`.
    """
    # The package may not be installed: the child finds it where this process did.
    path = os.pathsep.join(filter(None, [str(pathlib.Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path, **(variables or {})},
        start_new_session=True,
        preexec_fn=dies_with(os.getpid()),
        **streams,
    )


def end_child(child: subprocess.Popen) -> None:
    """Ends a child that still runs, and all that it started: first by SIGTERM, then by SIGKILL."""
    if child.poll() is not None:
        return
    # A second signal, as `timeout` sends, would end this with a traceback and leave the child running.
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=STOP_SECONDS)
                return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_to_its_end(command: Sequence[str], variables: Mapping[str, str], signals: Signals) -> int:
    """Runs a command with this process's output, and passes signals on to it; waits as long as it takes.

    Args:
        command: Program and arguments.
        variables: Environment variables, added to this process's.
        signals: Where signals to this process arrive.

    Returns:
        Its exit status; negative for a signal that killed it.
    """
    child = start_child(command, variables, stdin=subprocess.DEVNULL)

    def forward(number: int) -> None:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

    signals.forward = forward
    try:
        for number in list(signals.received):  # Those that arrived while it was started.
            forward(number)
        return child.wait()
    finally:
        signals.forward = None
        end_child(child)


@contextlib.contextmanager
def signals_collected() -> Iterator[Signals]:
    """`Signals`, but a signal that is ignored, as SIGHUP under nohup, stays ignored."""
    ignored = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_IGN]
    with Signals() as signals:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        yield signals
