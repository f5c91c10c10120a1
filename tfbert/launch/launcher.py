"""Parses the launcher's command line, starts the workers and restarts them; see `tfbert.launch`. Worker processes are
treated as one: their output, the signals to them, and their common end. And a run as a process of its own, which finds
the package, ends when this process does, and gets its signals. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import datetime
import difflib
import itertools
import json
import os
import pathlib
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from absl import flags

from tfbert.config.run import FINETUNE, STARTED_AS, typed
from tfbert.config.types import outside
from tfbert.devices.cluster import PREEMPTED_STATUS, USAGE_STATUS, divide_gpus, visible_gpus
from tfbert.devices.process import ASKS_FOR_HELP, flag_text, show, wrapped
from tfbert.errors import UsageError

_MAX_RESTART_DELAY_SECONDS = 60.0
# Below the ports that the kernel gives to clients: one of those may be taken by the time TensorFlow is imported.
_PORTS = range(20000, 32768)


_HELP = """Starts a command in many workers on this machine, as one, and restarts them after a failure.

Examples:

  # Two workers; after a failure they start again and resume:
  {own} --num_workers=2 --max_restarts=3 -- \\
      {trainer} --strategy=multi_worker --output_dir=runs/sst2
  # One process that resumes by itself:
  {own} --max_restarts=3 -- {trainer} --output_dir=runs/sst2

{usage}

The launcher's flags, before --:

{flags}"""
_OPTIONS = {
    "num_workers": (int, "Processes to start, each with its TF_CONFIG and share of the GPUs."),
    "max_restarts": (int, "Start all workers again up to this many times after a failure, except after bad usage."),
    "restart_delay_seconds": (float, "Seconds before the first restart; doubles each time, up to 60."),
    "grace_seconds": (
        float,
        "Seconds that workers have to exit after SIGTERM; twice that after a signal to the launcher.",
    ),
}
"""By flag: its type, and what it does."""
_OF_OTHERS = {"nproc_per_node": "num_workers", "num_processes": "num_workers"}
"""What torchrun and Accelerate call a flag."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """What to start, how often, and what to do when it ends."""

    command: tuple[str, ...]
    """The program and its arguments; a program that ends in .py, or is `tfbert`, is run by this Python."""
    num_workers: int = 1
    """Processes to start."""
    max_restarts: int = 0
    """How many times all workers are started again after one failed."""
    restart_delay_seconds: float = 1.0
    """Pause before the first restart; doubles with each further one, up to a minute."""
    grace_seconds: float = 30.0
    """After a failure, the other workers get SIGTERM and this long to end before they are killed; twice this long
    after a signal to the launcher, for their checkpoint."""

    def __post_init__(self):
        for name in _OPTIONS:
            if problems := outside(name, getattr(self, name), least=1 if name == "num_workers" else 0):
                raise UsageError(problems[0])
        if not self.command:
            raise UsageError(f"A command must follow --. Received: none. Usage: {_usage()}")


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(LaunchConfig)}


def parse_command_line(arguments: Sequence[str]) -> LaunchConfig:
    """Reads the launcher's own flags up to `--`; all that follows is the command.

    Raises:
        UsageError: for an unknown flag, a bad value, or no command.
    """
    own = list(itertools.takewhile(lambda argument: argument != "--", arguments))
    values = _flag_values()
    try:
        rest = values(["launch", *own])[1:]
    except flags.UnrecognizedFlagError as error:
        rule = "The launcher's flags go before --, those of the command after it"
        todo = f"{_nearest(error.flagname, values)}Usage: {_usage()}"
        raise UsageError(f"{rule}. Received: Unknown command line flag '{error.flagname}'. {todo}") from None
    except flags.Error as error:
        what = str(error).removeprefix("flag ").partition(": ")[0]
        raise UsageError(f"The launcher's flags take numbers. Received: {what}. Usage: {_usage()}") from None
    if rest:
        raise UsageError(f"The command must follow --. Received: {' '.join(rest)!r} before it. Usage: {_usage()}")
    return LaunchConfig(command=tuple(arguments[len(own) + 1 :]), **{name: values[name].value for name in _OPTIONS})


def launch(config: LaunchConfig) -> int:
    """Runs the command in all workers, and again after a failure, where `max_restarts` allows.

    Nothing is restarted after bad usage (exit status 2), or after the launcher itself was told to stop.

    Returns:
        0 if every worker ended well, else the exit status of the one that failed first (128 + the signal's number for
        one that was killed); 75, or 130 after Ctrl-C, if told to stop between two starts.

    Raises:
        UsageError: for a command that cannot be started, or fewer GPUs than workers.
    """
    command, named = config.command, {}
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    elif command[0] == "tfbert":
        command, named = [sys.executable, "-m", *command], {STARTED_AS: " ".join(command[:2])}
    output = Output()
    launched_at = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    with Signals() as signals:
        for restarts in itertools.count():
            environments = [e | named for e in worker_environments(config.num_workers, restarts, launched_at)]
            group = WorkerGroup(
                command, environments, grace_seconds=config.grace_seconds, signals=signals, output=output
            )
            status = group.run()
            final = status in (0, USAGE_STATUS) or signals.received or output.closed
            if final or restarts == config.max_restarts:
                return status
            delay = min(config.restart_delay_seconds * 2**restarts, _MAX_RESTART_DELAY_SECONDS)
            output.say(f"all workers start again in {delay:g} s (restart {restarts + 1} of {config.max_restarts})")
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
    if any(argument.partition("=")[0] in (*ASKS_FOR_HELP, "--helpfull") for argument in own):
        return show(_help())
    try:
        return launch(parse_command_line(arguments))
    except UsageError as error:
        print(error, file=sys.stderr)
        return USAGE_STATUS


def _help() -> str:
    return _HELP.format(
        own=_own_name(),
        trainer=FINETUNE.typed,
        usage="\n".join(wrapped(f"Usage: {_usage()}", "", further=4)),
        flags="".join(
            flag_text([name], "N" if kind is int else "X", text, _DEFAULTS[name])
            for name, (kind, text) in _OPTIONS.items()
        ),
    )


def _nearest(name: str, values: flags.FlagValues) -> str:
    """The flag that may be meant, as a question; empty where none is near."""
    near = [_OF_OTHERS[name]] if name in _OF_OTHERS else difflib.get_close_matches(name, values, n=1)
    return f"Did you mean --{near[0]}? " if near else ""


def _usage() -> str:
    return f"{_own_name()} --num_workers=N [--max_restarts=R] -- {FINETUNE.typed} --strategy=multi_worker ..."


def _own_name() -> str:
    return typed("launch", "python -m tfbert.launch")


def _flag_values() -> flags.FlagValues:
    values = flags.FlagValues()
    for name, (kind, text) in _OPTIONS.items():
        define = flags.DEFINE_integer if kind is int else flags.DEFINE_float
        define(name, _DEFAULTS[name], text, flag_values=values)
    return values


def _free_addresses(count: int) -> list[str]:
    """Loopback addresses with ports that are free now; all are held until the last one is found."""
    sockets = []
    try:
        for port in random.sample(_PORTS, len(_PORTS)):
            if len(sockets) == count:
                break
            candidate = socket.socket()
            try:
                candidate.bind(("127.0.0.1", port))
                sockets.append(candidate)
            except OSError:
                candidate.close()
        return [f"127.0.0.1:{held.getsockname()[1]}" for held in sockets]
    finally:
        for held in sockets:
            held.close()


_POLL_SECONDS, _DRAIN_SECONDS = 0.1, 1.0
_LINES = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")
_PR_SET_PDEATHSIG = 1


class Signals:
    """While entered, collects SIGTERM, SIGINT and SIGHUP instead of ending the process; one that is ignored, as SIGHUP
    under nohup, stays ignored."""

    def __init__(self):
        self.received: list[int] = []
        """Signal numbers, in the order they came."""
        self.forward: Callable[[int], None] | None = None
        """Called with each signal's number as it comes."""

    def __enter__(self) -> Signals:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno())
        heard = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        self._old = {number: signal.signal(number, self._handle) for number in heard}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._reader.close()
        self._writer.close()

    def wait(self, seconds: float) -> bool:
        """Sleeps until the time is over or a signal comes. Returns whether one came."""
        end = time.monotonic() + seconds
        while not self.received and (left := end - time.monotonic()) > 0:
            self._reader.settimeout(left)
            with contextlib.suppress(TimeoutError):
                self._reader.recv(1)
        return bool(self.received)

    def _handle(self, number: int, _frame) -> None:
        self.received.append(number)
        if self.forward:
            self.forward(number)


class Output:
    """Passes bytes on to stdout and stderr, each line, and each state of a progress bar, with its writer's name in
    front."""

    def __init__(self):
        self.closed = False
        """Whether the reader of our output is gone."""

    def say(self, text: str) -> None:
        """A line of the launcher's own, on stderr."""
        self.pass_on(b"[launch] ", 2, f"{text}\n".encode())

    def pass_on(self, name: bytes, stream: int, data: bytes) -> None:
        """Writes whole lines of a writer's output.

        Args:
            name: What to put in front of each line.
            stream: 1 for stdout, 2 for stderr.
            data: The lines, with their ends.
        """
        if self.closed or not data:
            return
        file = sys.stdout if stream == 1 else sys.stderr
        try:
            file.buffer.write(b"".join(name + line for line in _LINES.findall(data)))
            file.flush()
        except BrokenPipeError:
            self.closed = True
            with open(os.devnull, "wb") as null:  # noqa: PTH123 - else Python fails once more, as it flushes at exit
                os.dup2(null.fileno(), file.fileno())


class _Stream:
    """One pipe. Holds an unfinished line back until its end."""

    def __init__(self, name: bytes, number: int, output: Output):
        self._name, self._number, self._output = name, number, output
        self._held = b""

    def add(self, data: bytes) -> None:
        """Passes on what ends a line or redraws it, and keeps the rest."""
        data = self._held + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1  # The last \r may be half of an end.
        self._output.pass_on(self._name, self._number, data[:end])
        self._held = data[end:]

    def close(self) -> None:
        """Passes on what is left, as a line."""
        if self._held:
            self._output.pass_on(self._name, self._number, self._held.rstrip(b"\r") + b"\n")
        self._held = b""


@dataclasses.dataclass(frozen=True)
class _Worker:
    index: int
    process: subprocess.Popen

    def send(self, number: int) -> None:
        """Signals the whole process group; its leader's children may outlive it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class WorkerGroup:
    """The same command in several processes; none outlives `run`, nor the process that called it.

    Args:
        command: Program and arguments.
        environments: One environment a worker.
        grace_seconds: How long workers may take to end after one failed; twice this where they may be
            saving, after a signal.
        signals: Where signals to us arrive.
        output: Where the workers' output goes.
    """

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[dict[str, str]],
        *,
        grace_seconds: float,
        signals: Signals,
        output: Output,
    ):
        self._command, self._environments = list(command), environments
        self._grace_seconds, self._signals, self._output = grace_seconds, signals, output
        self._running: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._deadline = float("inf")

    def run(self) -> int:
        """Starts all workers and returns when the last one has ended.

        Returns:
            0 if all ended with 0, else the status of the first that did not (2, bad usage, comes before any other;
            128 + the signal's number for one that was killed).

        Raises:
            UsageError: for a command that cannot be started.
        """
        self._signals.forward = self._forward
        try:
            for index, environment in enumerate(self._environments):
                self._start(index, environment)
            if self._signals.received:
                self._forward(self._signals.received[-1])
            return self._supervise()
        finally:
            self._signals.forward = None
            for worker in self._running:
                worker.send(signal.SIGKILL)
                worker.process.wait()
            for key in list(self._selector.get_map().values()):
                self._close(key)
            self._selector.close()

    def _start(self, index: int, environment: dict[str, str]) -> None:
        try:
            process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=dies_with(os.getpid()),
            )
        except OSError as error:
            rule = "The command must be a program"
            raise UsageError(f"{rule}. Received: {self._command[0]!r} ({error.strerror}). Check its path.") from None
        self._running.append(_Worker(index, process))
        name = f"[worker {index}] ".encode()
        for pipe, number in ((process.stdout, 1), (process.stderr, 2)):
            self._selector.register(pipe, selectors.EVENT_READ, _Stream(name, number, self._output))

    def _supervise(self) -> int:
        failures: list[int] = []
        while self._running:
            self._pump(_POLL_SECONDS)
            for worker in list(self._running):
                status = worker.process.poll()
                if status is None:
                    continue
                self._running.remove(worker)
                worker.send(signal.SIGKILL)  # what it left behind in its group
                if status:
                    failures.append(status if status > 0 else 128 - status)
                    if len(failures) == 1 and not self._signals.received:
                        ending = "; ending the others" if self._running else ""
                        self._output.say(f"worker {worker.index} {_in_words(status)}{ending}")
                        # A worker that was told to stop has told the others too, and they may be saving.
                        patience = 2 if status == PREEMPTED_STATUS else 1
                        self._end(signal.SIGTERM, patience * self._grace_seconds)
            if self._output.closed and self._deadline == float("inf"):
                failures.append(128 + signal.SIGPIPE)
                self._end(signal.SIGTERM, self._grace_seconds)
            if time.monotonic() >= self._deadline and self._running:
                names = ", ".join(f"worker {worker.index}" for worker in self._running)
                self._output.say(f"{names} did not end in time: killed")
                self._end(signal.SIGKILL, float("inf"))
        self._drain()
        return USAGE_STATUS if USAGE_STATUS in failures else (failures or [0])[0]

    def _forward(self, number: int) -> None:
        if self._signals.received.count(signal.SIGINT) > 1:
            self._end(signal.SIGKILL, float("inf"))
        else:
            self._end(signal.SIGTERM if number == signal.SIGHUP else number, 2 * self._grace_seconds)

    def _end(self, number: int, seconds: float) -> None:
        for worker in self._running:
            worker.send(number)
            worker.send(signal.SIGCONT)  # a stopped process takes the signal only when it continues
        self._deadline = min(self._deadline, time.monotonic() + seconds) if seconds < float("inf") else seconds

    def _pump(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if data := os.read(key.fd, 1 << 16):
                key.data.add(data)
            else:
                self._close(key)

    def _drain(self) -> None:
        """Reads what the ended workers still had in their pipes; a stray process may hold one open."""
        end = time.monotonic() + _DRAIN_SECONDS
        while self._selector.get_map() and time.monotonic() < end:
            self._pump(_POLL_SECONDS)

    def _close(self, key: selectors.SelectorKey) -> None:
        key.data.close()
        self._selector.unregister(key.fileobj)
        key.fileobj.close()


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
    on_text: Callable[[str], None] | None = None,
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
