"""What every command does: flags -> Config -> one verb of tfbert; errors -> a line each and an exit status."""

from __future__ import annotations

import collections
import difflib
import functools
import importlib
import sys
from collections.abc import Sequence

from absl import flags

from tfbert.commandline import options
from tfbert.commandline.config_file import config_arguments, kind_of, take_config
from tfbert.commandline.foreign_flags import foreign_flag, wrong_value
from tfbert.commandline.help import help_topic, show_help
from tfbert.commandline.presets import expand_flagfiles
from tfbert.commandline.verbs import VERBS
from tfbert.config.commands import FINETUNE, PRETRAIN, Command, verb_commands
from tfbert.config.rules import one_of
from tfbert.config.run import Config
from tfbert.devices import termination
from tfbert.devices.allocator import keep_freed_memory
from tfbert.devices.imports import without_collections
from tfbert.devices.onednn import use_onednn
from tfbert.devices.quiet import silence_libraries, stderr_held_back
from tfbert.errors import EXPECTED, Preempted, UsageError, in_command


@in_command()
def run_command(command: Command, argv: list[str], mode: str = "") -> int:
    """Does what a command line asks for.

    Args:
        command: Its options.
        argv: The command line.
        mode: The mode that the command's own word says; empty where `--mode` does.

    Returns:
        The exit status.
    """
    try:
        topic = help_topic(argv[1:])
        if topic is not None:
            return show_help(command, topic, mode)
        config = parse(command, argv, mode)
        silence_libraries()
        use_onednn()
        if config.runtime.keep_freed_memory:
            keep_freed_memory()
        with without_collections(), stderr_held_back("importing TensorFlow"):
            import tensorflow as tf  # Takes seconds; a wrong flag is reported before.

            module, verb = VERBS[command.word][config.mode]
            run = getattr(importlib.import_module(module), verb)
            tf.config.list_physical_devices("GPU")
            from tfbert.devices.runtime import library_errors_as_run_errors

        termination.check()
        with library_errors_as_run_errors(config):
            run(config)
    except EXPECTED as error:
        return _fail(command, error, error.status, kind="" if isinstance(error, Preempted) else "error: ")
    except termination.Terminated as stop:
        return _fail(command, stop, stop.status, kind="")
    except KeyboardInterrupt:  # Before training began, or in another mode: there is nothing to resume from.
        return _fail(command, RuntimeError("stopped by Ctrl-C"), status=130, kind="")
    return 0


def parse(command: Command, argv: list[str], mode: str = "") -> Config:
    """The configuration that a command line describes: what it says itself replaces what a file of options says.

    Args:
        command: Its options.
        argv: The command line.
        mode: As for `run_command`.

    Raises:
        UsageError: for flags that the command does not have, and rules that are broken.
    """
    values = flags.FlagValues()  # absl's own set has flags such as --pdb besides, which would be ignored.
    options.define_flags(values, command)
    path, given = take_config(expand_flagfiles(argv[1:]))
    of_file = config_arguments(path, command, functools.partial(what_is_meant, command)) if path else []
    arguments = [*expand_flagfiles(of_file), *([f"--mode={mode}"] if mode else ()), *given]
    if problems := _problems(command, values, arguments):
        raise UsageError("\n".join(dict.fromkeys(problems)))
    values([argv[0], *arguments])
    if mode and (other := str(values["mode"].value)) != mode:
        word = other if verb_commands()[other] is command else f"{command.word} --mode={other}"
        raise UsageError(
            f"{command.typed} says the mode itself. Received: mode={other!r} beside it. "
            f"Drop --mode, or use {command.typed.removesuffix(mode)}{word}."
        )
    return options.config_from_flags(values, command)


def _problems(command: Command, values: flags.FlagValues, arguments: Sequence[str]) -> list[str]:
    """A line for each argument that is no flag, and each value that its flag does not take: absl stops at the first."""
    problems, others, left = [], [], collections.deque(arguments)
    while left:
        argument = left.popleft()
        text = argument.removeprefix("-").removeprefix("-")
        name, equals, value = text.partition("=")
        positive = name.removeprefix("no")
        is_known = name in values and name != "undefok"  # Which would let absl ignore unknown flags.
        if not text:
            others += [argument, *left] if argument == "-" else left
            left.clear()
        elif text == argument or not name:
            others.append(argument)
        elif is_known and values[name].boolean and not equals:
            continue
        elif not is_known and positive in values and values[positive].boolean:
            if equals:
                todo = f"Write --{name} for off, or --{positive} for on."
                problems.append(f"--{name} takes no value. Received: {argument}. {todo}")
        elif not equals and is_known and (not left or left[0].startswith("--")):
            at = f"before {left[0]}" if left else "at the end"
            problems.append(f"{name} takes a value. Received: --{name} {at}. Write --{name}=VALUE.")
        else:
            if not equals and left and (is_known or not left[0].startswith("-")):
                value = left.popleft()
            if is_known:
                problems += _value_problems(name, value, values[name])
            else:
                found = what_is_meant(command, name, value)
                problems.append(" ".join(filter(None, (f"Unknown command line flag '{name}'.", found, "See --help."))))
    if others:
        todo = "Write --name=value; see --help."
        problems.append(f"Every argument must be a flag. Received: {' '.join(others)}. {todo}")
    return problems


def _value_problems(name: str, value: str, flag: flags.Flag) -> list[str]:
    try:
        flag.parser.parse(value)
    except (ValueError, TypeError):
        if found := wrong_value(name, value):
            return [found]
        if choices := getattr(flag.parser, "enum_values", None):
            return [one_of(name, value, choices)]
        todo = f"--help={name} says what it takes."
        return [f"{name} must be {kind_of(flag)}. Received: {name}={value!r}. {todo}"]
    return []


def what_is_meant(command: Command, name: str, value: str = "") -> str:
    """What may be meant by a flag that a command does not have, in a sentence; empty where nothing is like it."""
    return foreign_flag(command, name, value) or _flag_of_another(command, name) or _nearest(command, name.lower())


def _flag_of_another(command: Command, name: str) -> str:
    others = (other for other in (FINETUNE, PRETRAIN) if other is not command and name in options.flag_names(other))
    return next((f"It is a flag of {other.typed}." for other in others), "")


def _nearest(command: Command, name: str) -> str:
    own = options.flag_names(command)
    near = [option for option in own if f"_{name}_" in f"_{option}_"]  # `epochs`, `batch_size`.
    near = near or difflib.get_close_matches(name, own, n=3, cutoff=0.75)
    return f"Did you mean {' or '.join(f'--{option}' for option in near[:3])}?" if near else ""


def _fail(command: Command, error: BaseException, status: int, kind: str) -> int:
    """One line for each thing that is wrong."""
    for line in str(error).splitlines():
        print(f"{command.typed}: {kind}{line}", file=sys.stderr)
    return status
