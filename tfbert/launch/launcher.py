"""Parses the launcher's command line, starts the workers and restarts them; see `tfbert.launch`."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import itertools
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Sequence

from absl import flags

from tfbert.config.commands import FINETUNE, STARTED_AS, typed
from tfbert.config.rules import outside
from tfbert.devices.cluster import PREEMPTED_STATUS, USAGE_STATUS, divide_gpus, visible_gpus
from tfbert.devices.quiet import ASKS_FOR_HELP, flag_text, show, wrapped
from tfbert.errors import UsageError
from tfbert.launch.worker_group import Output, Signals, WorkerGroup

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
