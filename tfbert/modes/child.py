"""A run as a process of its own: it finds the package, ends when this process does, and gets its signals."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from tfbert.launch.worker_group import Signals, dies_with

STOP_SECONDS = 30
_LAST_LINES_SECONDS = 5
"""For the output that is left when a command has ended; a process that it started may keep the pipe open."""


def start_child(command: Sequence[str], variables: Mapping[str, str] | None = None, **streams: Any) -> subprocess.Popen:
    """Starts a command in a session of its own; the kernel kills it when this process dies, however that happens.

    Args:
        command: Program and arguments.
        variables: Environment variables, added to this process's.
        **streams: `stdin`, `stdout`, `stderr` of `subprocess.Popen`.
    """
    # A run that is killed stays open in a service of wandb that it shares with others, which then refuses it.
    inherited = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    # The package may not be installed: the child finds it where this process did.
    path = os.pathsep.join(filter(None, [str(pathlib.Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {**inherited, "PYTHONPATH": path, **(variables or {})}
    with _without_tokenizers_warning():
        return subprocess.Popen(
            command, env=environment, start_new_session=True, preexec_fn=dies_with(os.getpid()), **streams
        )


@contextlib.contextmanager
def _without_tokenizers_warning() -> Iterator[None]:
    """In a process that has tokenised texts, tokenizers writes five lines into each fork, even one that becomes another
    program at once, unless this is set."""
    name = "TOKENIZERS_PARALLELISM"
    if name in os.environ:
        yield
        return
    os.environ[name] = "true"
    try:
        yield
    finally:
        os.environ.pop(name, None)


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


def run_to_its_end(
    command: Sequence[str],
    variables: Mapping[str, str],
    signals: Signals,
    *,
    output: int | None = None,
    on_text: Callable[[str], None] | None = None,
) -> int:
    """Runs a command, and passes signals on to it; waits as long as it takes.

    Args:
        command: Program and arguments.
        variables: Environment variables, added to this process's.
        signals: Where signals to this process arrive.
        output: Where its output goes, as `subprocess.Popen` takes it. None: where this process's goes.
        on_text: Called with each line of its output, in a thread, in place of that.

    Returns:
        Its exit status; negative for a signal that killed it.
    """
    streams: dict[str, Any] = {"stdout": output, "stderr": output}
    if on_text is not None:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    child = start_child(command, variables, stdin=subprocess.DEVNULL, **streams)
    reader = threading.Thread(target=_read_lines, args=(child.stdout, on_text), daemon=True)
    if on_text is not None:
        reader.start()

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
        if on_text is not None:
            reader.join(_LAST_LINES_SECONDS)


def _read_lines(stream: TextIO, on_text: Callable[[str], None]) -> None:
    for line in stream:
        on_text(line)


@contextlib.contextmanager
def signals_collected() -> Iterator[Signals]:
    """`Signals`, but a signal that is ignored, as SIGHUP under nohup, stays ignored."""
    ignored = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_IGN]
    with Signals() as signals:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        yield signals
