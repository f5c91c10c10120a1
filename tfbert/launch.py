"""Many workers on this machine: `python -m tfbert.launch --num_workers=2 -- run_finetune.py --strategy=multi_worker`.

Starts the command N times with TF_CONFIG on free loopback ports and the GPUs divided among them, passes their output on
line by line, and treats them as one: signals go to all, the first failure ends all, and with `--max_restarts` all start
again. And a run as a process of its own, which finds the package, ends when this process does, and gets its signals.
Imports no TensorFlow.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, TextIO

from tfbert.config.run import FINETUNE, STARTED_AS, typed
from tfbert.config.types import outside
from tfbert.devices.cluster import PREEMPTED_STATUS, USAGE_STATUS, divide_gpus, visible_gpus
from tfbert.devices.process import ASKS_FOR_HELP, run_program, show, signals_handled
from tfbert.errors import UsageError, replaced

_MAX_RESTART_DELAY_SECONDS = 60.0
# Below the ports that the kernel gives to clients: one of those may be taken by the time TensorFlow is imported.
_PORTS = range(20000, 32768)


_ABOUT = "Starts a command in many workers on this machine, as one, and restarts them after a failure."
_EXAMPLES = """examples:
  # Two workers; after a failure they start again and resume:
  {own} --num_workers=2 --max_restarts=3 -- \\
      {trainer} --strategy=multi_worker --output_dir=runs/sst2
  # One process that resumes by itself:
  {own} --max_restarts=3 -- {trainer} --output_dir=runs/sst2"""
_OPTIONS = {
    "num_workers": (1, "processes to start, each with its TF_CONFIG and share of the GPUs"),
    "max_restarts": (0, "start all workers again up to this many times after a failure, except after bad usage"),
    "restart_delay_seconds": (1.0, "seconds before the first restart; doubles each time, up to 60"),
    "grace_seconds": (
        30.0,
        "seconds that workers have to exit after SIGTERM; twice that after a signal to the launcher",
    ),
}
"""By flag: its default, and what it does."""


class _Parser(argparse.ArgumentParser):
    def __init__(self):
        own = typed("launch", "python -m tfbert.launch")
        self.short_usage = f"{own} --num_workers=N [--max_restarts=R] -- {FINETUNE.typed} --strategy=multi_worker ..."
        super().__init__(
            usage=self.short_usage,
            description=_ABOUT,
            epilog=_EXAMPLES.format(own=own, trainer=FINETUNE.typed),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=False,
            allow_abbrev=False,
        )
        for name, (default, about) in _OPTIONS.items():
            kind = type(default)
            letter = "N" if kind is int else "X"
            self.add_argument(f"--{name}", type=kind, default=default, metavar=letter, help=f"{about} (%(default)s)")

    def error(self, message: str):
        rule = "The launcher's flags go before --, the command and its flags after it"
        raise UsageError(f"{rule}. Received: {message}. Usage: {self.short_usage}")


def parse_command_line(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the launcher's own flags up to `--`; all that follows is the `command`.

    Raises:
        UsageError: for an unknown flag, a bad value, or no command.
    """
    own = list(itertools.takewhile(lambda argument: argument != "--", arguments))
    parser = _Parser()
    options = parser.parse_args(own)
    for name in _OPTIONS:
        if problems := outside(name, getattr(options, name), least=1 if name == "num_workers" else 0):
            raise UsageError(problems[0])
    options.command = arguments[len(own) + 1 :]
    if not options.command:
        raise UsageError(f"A command must follow --. Received: none. Usage: {parser.short_usage}")
    return options


def launch(options: argparse.Namespace) -> int:
    """Runs the command in all workers, and again after a failure, where `max_restarts` allows.

    Nothing is restarted after bad usage (exit status 2), or after the launcher itself was told to stop. A program that
    ends in .py, or is `tfbert`, is run by this Python.

    Args:
        options: As `parse_command_line` returns them.

    Returns:
        0 if every worker ended well, else the exit status of the one that failed first (128 + the signal's number for
        one that was killed); 75, or 130 after Ctrl-C, if told to stop between two starts.

    Raises:
        UsageError: for a command that cannot be started, or fewer GPUs than workers.
    """
    command, named = options.command, {}
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    elif command[0] == "tfbert":
        command, named = [sys.executable, "-m", *command], {STARTED_AS: " ".join(command[:2])}
    output = Output()
    launched_at = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    with Signals() as signals:
        for restarts in itertools.count():
            environments = [e | named for e in worker_environments(options.num_workers, restarts, launched_at)]
            status = WorkerGroup(options.grace_seconds, signals, output).run(command, environments)
            final = status in (0, USAGE_STATUS) or signals.received or output.closed
            if final or restarts == options.max_restarts:
                return status
            delay = min(options.restart_delay_seconds * 2**restarts, _MAX_RESTART_DELAY_SECONDS)
            output.say(f"all workers start again in {delay:g} s (restart {restarts + 1} of {options.max_restarts})")
            if signals.wait(delay):
                return 128 + signal.SIGINT if signals.received[0] == signal.SIGINT else PREEMPTED_STATUS
    raise AssertionError("unreachable")


def worker_environments(num_workers: int, restarts: int = 0, launched_at: str = "") -> list[dict[str, str]]:
    """Each worker's environment: TF_CONFIG with fresh ports, its share of the GPUs, TFBERT_RESTARTS, the number of
    restarts so far, and TFBERT_LAUNCHED_AT, the time of the first start.

    Args:
        num_workers: How many.
        restarts: So far.
        launched_at: Local time as `20261121-093000`.

    Raises:
        UsageError: if there are GPUs, but fewer than workers.
    """
    gpus = visible_gpus()
    addresses = _free_addresses(num_workers)
    environments = []
    for index, share in enumerate(divide_gpus(gpus, num_workers)):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {
            "PYTHONUNBUFFERED": "1",  # through a pipe, Python would hold lines back
            "PYTHONPATH": "",  # not that of `start_child`: the command is the user's
            **os.environ,
            "TF_CONFIG": json.dumps(task),
            "TFBERT_RESTARTS": str(restarts),
            "TFBERT_LAUNCHED_AT": launched_at,
        }
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(share)
        environments.append(environment)
    return environments


def main(arguments: Sequence[str]) -> int:
    """The command. Returns its exit status."""
    own = itertools.takewhile(lambda argument: argument != "--", arguments)
    if any(argument in ASKS_FOR_HELP for argument in own):
        return show(_Parser().format_help())
    try:
        return launch(parse_command_line(arguments))
    except UsageError as error:
        print(error, file=sys.stderr)
        return USAGE_STATUS


def _free_addresses(count: int) -> list[str]:
    """Loopback addresses with ports that are free now; all are held until the last one is found."""
    addresses: list[str] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(_PORTS, len(_PORTS)):
            if len(addresses) == count:
                break
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                addresses.append(f"127.0.0.1:{port}")
    return addresses


_POLL_SECONDS, _DRAIN_SECONDS = 0.1, 1.0
_PR_SET_PDEATHSIG = 1


class Signals(contextlib.ExitStack):
    """While entered, collects SIGTERM, SIGINT and SIGHUP instead of ending the process; one that is ignored, as SIGHUP
    under nohup, stays ignored.

    Attributes:
        received: Signal numbers, in the order they came.
    """

    def __init__(self):
        super().__init__()
        self.received: list[int] = []

    def __enter__(self) -> Signals:
        heard = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        self.enter_context(signals_handled(lambda number, frame: self.received.append(number), *heard))
        return self

    def wait(self, seconds: float) -> bool:
        """Sleeps until the time is over or a signal comes. Returns whether one came."""
        end = time.monotonic() + seconds
        while not self.received and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
        return bool(self.received)


class Output:
    """Passes bytes on to stdout and stderr, each line with its writer's name in front."""

    def __init__(self):
        self.closed = False
        """Whether the reader of our output is gone."""
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """A line of the launcher's own, on stderr."""
        self.pass_on(b"[launch] ", sys.stderr, f"{text}\n".encode())

    def pass_on(self, name: bytes, file: TextIO, line: bytes) -> None:
        """Writes a line, with its end, to `sys.stdout` or `sys.stderr`."""
        with self._lock:
            if self.closed:
                return
            try:
                file.buffer.write(name + line)
                file.flush()
            except BrokenPipeError:
                self.closed = True
                with open(os.devnull, "wb") as null:  # noqa: PTH123 - else Python fails once more, as it flushes at exit
                    os.dup2(null.fileno(), file.fileno())

    def follow(self, name: bytes, file: TextIO, pipe: IO[bytes]) -> None:
        """Passes on what a writer writes to a pipe until its end, a line when it is whole."""
        for line in pipe:
            self.pass_on(name, file, line if line.endswith(b"\n") else line + b"\n")


class WorkerGroup:
    """The same command in several processes; none outlives `run`, nor the process that called it.

    Args:
        grace_seconds: How long workers may take to end after one failed; twice this where they may be
            saving, after a signal.
        signals: Where signals to us arrive.
        output: Where the workers' output goes.
    """

    def __init__(self, grace_seconds: float, signals: Signals, output: Output):
        self._grace_seconds, self._signals, self._output = grace_seconds, signals, output
        self._running: dict[int, subprocess.Popen] = {}
        self._deadline = float("inf")

    def run(self, command: Sequence[str], environments: Sequence[dict[str, str]]) -> int:
        """Starts all workers and returns when the last one has ended.

        Args:
            command: Program and arguments.
            environments: One environment a worker.

        Returns:
            0 if all ended with 0, else the status of the first that did not (2, bad usage, comes before any other;
            128 + the signal's number for one that was killed).

        Raises:
            UsageError: for a command that cannot be started.
        """
        readers: list[threading.Thread] = []
        try:
            for index, environment in enumerate(environments):
                pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
                try:
                    self._running[index] = start_child(command, environment, **pipes)
                except OSError as error:
                    rule = "The command must be a program"
                    raise UsageError(f"{rule}. Received: {command[0]!r} ({error.strerror}). Check its path.") from None
            for index, process in self._running.items():  # No thread yet: each start is a fork.
                for file, pipe in ((sys.stdout, process.stdout), (sys.stderr, process.stderr)):
                    arguments = (f"[worker {index}] ".encode(), file, pipe)
                    readers.append(threading.Thread(target=self._output.follow, args=arguments, daemon=True))
                    readers[-1].start()
            failures = self._supervise()
        finally:
            self._send(signal.SIGKILL)
            for process in self._running.values():
                process.wait()
            end = time.monotonic() + _DRAIN_SECONDS  # For their last lines; a stray process may hold a pipe open.
            for reader in readers:
                reader.join(max(0.0, end - time.monotonic()))
        return USAGE_STATUS if USAGE_STATUS in failures else (failures or [0])[0]

    def _supervise(self) -> list[int]:
        """The statuses of the workers that failed, in the order in which they ended."""
        failures: list[int] = []
        forwarded = 0
        while self._running:
            time.sleep(_POLL_SECONDS)
            for number in self._signals.received[forwarded:]:
                forwarded += 1
                if self._signals.received[:forwarded].count(signal.SIGINT) > 1:
                    self._end(signal.SIGKILL, float("inf"))
                else:
                    self._end(signal.SIGTERM if number == signal.SIGHUP else number, 2 * self._grace_seconds)
            for index, process in list(self._running.items()):
                status = process.poll()
                if status is None:
                    continue
                _send(process, signal.SIGKILL)  # What it left behind in its group.
                del self._running[index]
                if status:
                    failures.append(status if status > 0 else 128 - status)
                    if len(failures) == 1 and not self._signals.received:
                        ending = "; ending the others" if self._running else ""
                        self._output.say(f"worker {index} {_in_words(status)}{ending}")
                        # A worker that was told to stop has told the others too, and they may be saving.
                        patience = 2 if status == PREEMPTED_STATUS else 1
                        self._end(signal.SIGTERM, patience * self._grace_seconds)
            if self._output.closed and self._deadline == float("inf"):
                failures.append(128 + signal.SIGPIPE)
                self._end(signal.SIGTERM, self._grace_seconds)
            if time.monotonic() >= self._deadline and self._running:
                names = ", ".join(f"worker {index}" for index in self._running)
                self._output.say(f"{names} did not end in time: killed")
                self._end(signal.SIGKILL, float("inf"))
        return failures

    def _end(self, number: int, seconds: float) -> None:
        self._send(number)
        self._send(signal.SIGCONT)  # A stopped process takes the signal only when it continues.
        self._deadline = min(self._deadline, time.monotonic() + seconds) if seconds < float("inf") else seconds

    def _send(self, number: int) -> None:
        for process in self._running.values():
            _send(process, number)


def _send(process: subprocess.Popen, number: int) -> None:
    """Signals a whole process group; its leader's children may outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _in_words(status: int) -> str:
    if status == PREEMPTED_STATUS:
        return f"was stopped (exit status {status})"
    if status > 0:
        return f"failed (exit status {status})"
    return f"was killed by {signal.Signals(-status).name}"


def dies_with(parent: int) -> Callable[[], None] | None:
    """A `preexec_fn`, run in a child before the command: the kernel kills the child when we die, whatever the cause.

    Args:
        parent: Our process id; the thread that starts the child must not end before it.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # loaded here: between fork and exec, as little as possible

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return die_with_parent


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
    path = os.pathsep.join(filter(None, [str(pathlib.Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {**inherited, "PYTHONPATH": path, **(variables or {})}
    # In a process that has tokenised texts, tokenizers writes five lines into each fork, even one that becomes another
    # program at once, unless this is set.
    with replaced(os.environ, TOKENIZERS_PARALLELISM=os.environ.get("TOKENIZERS_PARALLELISM", "true")):
        return subprocess.Popen(
            command, env=environment, start_new_session=True, preexec_fn=dies_with(os.getpid()), **streams
        )


def end_child(child: subprocess.Popen) -> None:
    """Ends a child that still runs, and all that it started: first by SIGTERM, then by SIGKILL."""
    if child.poll() is not None:
        return
    # A second signal, as `timeout` sends, would end this with a traceback and leave the child running.
    with signals_handled(signal.SIG_IGN, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=STOP_SECONDS)
                return


def run_to_its_end(
    command: Sequence[str], variables: Mapping[str, str], signals: Signals, on_text: Callable[[str], None] | None = None
) -> int:
    """Runs a command, and passes signals on to it; waits as long as it takes.

    Args:
        command: Program and arguments.
        variables: Environment variables, added to this process's.
        signals: Where signals to this process arrive.
        on_text: Called with each line of its output, in a thread. None: that goes where this process's goes.

    Returns:
        Its exit status; negative for a signal that killed it.
    """
    streams: dict[str, Any] = {}
    if on_text is not None:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    child = start_child(command, variables, stdin=subprocess.DEVNULL, **streams)

    def read() -> None:
        for line in child.stdout:
            on_text(line)

    reader = threading.Thread(target=read, daemon=True)
    if on_text is not None:
        reader.start()
    forwarded = 0
    try:
        while True:
            for number in signals.received[forwarded:]:
                child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
                forwarded += 1
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(_POLL_SECONDS)
    finally:
        end_child(child)
        if on_text is not None:
            reader.join(_LAST_LINES_SECONDS)


if __name__ == "__main__":
    sys.exit(run_program("tfbert.launch", lambda: main(sys.argv[1:])))
