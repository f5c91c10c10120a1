"""What every command does: flags -> Config -> one verb of tfbert; errors -> a line each and an exit status; what is
said about a flag that a command does not have, and about a value that a flag does not take."""

from __future__ import annotations

import collections
import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags

from tfbert.commandline import options
from tfbert.commandline.options import CONFIG, FLAGFILE, Pairs, expand_flagfiles, read_config, take_config
from tfbert.config.run import FINETUNE, PRETRAIN, Command, Config, verb_commands
from tfbert.config.types import ALIASES, Mode, called_elsewhere, elsewhere, joined, nearest, one_of
from tfbert.devices import process
from tfbert.errors import EXPECTED, Preempted, UsageError, in_command


def unknown_flag(command: Command, name: str, value: Any = "", where: str = "") -> str:
    """The line about a flag that a command does not have.

    Args:
        command: The command.
        name: The flag as it was typed, without dashes in front: `fp16`, `learning-rate`, `task.init_checkpoint`.
        value: Its value, where that decides.
        where: Its place, where it is not on the command line.
    """
    found = what_is_meant(command, name, str(value))
    kind = "flag" if where else "command line flag"
    return " ".join(filter(None, (f"Unknown {kind} '{name}'{where}.", found, "See --help.")))


def what_is_meant(command: Command, name: str, value: str = "") -> str:
    """What may be meant by a flag that a command does not have, in a sentence; empty where nothing is like it."""
    if answer := foreign_flag(command, name, value):
        return answer
    for other in (FINETUNE, PRETRAIN):
        if other is not command and name in options.flags_of(other):
            return f"It is a flag of {other.typed}."
    near = nearest(name.lower(), [*options.flags_of(command)])
    return f"Did you mean {' or '.join(f'--{option}' for option in near)}?" if near else ""


def foreign_flag(command: Command, name: str, value: str = "") -> str:
    """What to do about a flag that other trainers have, in one sentence; empty where there is nothing to say. An answer
    may be a flag of the other command, which is named then."""
    own_name = name.rpartition(".")[2].replace("-", "_")
    tables = [elsewhere()["flags_with_values"], *elsewhere()["flags"].values()]
    if command is PRETRAIN:
        tables.insert(0, elsewhere()["pretraining"])
    answers = [called_elsewhere(table, key) for table in tables for key in (f"{own_name}={value.lower()}", own_name)]
    answer = next(filter(None, answers), f"--{own_name}" if own_name != name else "")
    for one in (command, FINETUNE, PRETRAIN):
        if answer and _takes(one, answer):
            if not answer.startswith("--"):
                return f"{answer}."
            return f"Here it is {answer}." if one is command else f"In {one.typed} it is {answer}."
    return ""


def _takes(command: Command, answer: str) -> bool:
    """Whether a command has all flags that an answer names, and these have the values."""
    known = options.flags_of(command)
    for name, value in re.findall(r"--(\w+)(?:=([\w./]+))?", answer):
        choices = options.parser_of(known[name]).choices if name in known else ()
        if name not in known or (value and choices and value not in choices):
            return False
    return True


def set_flag(flag: flags.Flag, text: str, where: str = "") -> str:
    """Gives a flag the value that a text stands for; returns the line about a text that it does not take, else nothing.
    `where` is its place, if it is not on the command line."""
    parser, name = options.parser_of(flag), flag.name
    with contextlib.suppress(flags.IllegalFlagValueError):
        flag.parse(text)
        return ""
    if parser.choices:
        return one_of(name, text, parser.choices, where)
    if flag.boolean:
        answer = called_elsewhere(elsewhere()["values"].get(name, {}), text.strip().lower())
        todo = answer or f"Pass --{name}, or --no{name}."
    else:
        todo = f"--help={name} says what it takes."
        if "," in text:
            todo = f"Pass one value, a fraction after a point{', or --seeds' if name == 'seed' else ''}."
    return f"{name} must be {parser.in_words}. Received: {name}={text!r}{where}. {todo}"


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
        topic = options.help_topic(argv[1:])
        if topic is not None:
            return process.show(options.help_text(command, topic, mode))
        config = parse(command, argv, mode)
        process.silence_libraries()
        process.choose_kernels()
        if config.runtime.keep_freed_memory:
            process.keep_freed_memory()
        with process.without_collections(), process.stderr_held_back("importing TensorFlow"):
            with process.without_modules("sklearn", "matplotlib", "pandas", "scipy"):
                import tensorflow as tf  # With Keras. Takes seconds; a wrong flag is reported before.

            run = verb_of(command, config.mode)
            tf.config.list_physical_devices("GPU")
            from tfbert.devices.runtime import library_errors_as_run_errors

        process.check()
        with library_errors_as_run_errors(config):
            run(config)
    except EXPECTED as error:
        return _fail(command, error, error.status, kind="" if isinstance(error, Preempted) else "error: ")
    except process.Terminated as stop:
        return _fail(command, stop, stop.status, kind="")
    except KeyboardInterrupt:  # Before training began, or in another mode: there is nothing to resume from.
        return _fail(command, RuntimeError("stopped by Ctrl-C"), status=130, kind="")
    return 0


def verb_of(command: Command, mode: Mode) -> Callable[..., Any]:
    """What a mode of a command does, imported now."""
    module, _, function = command.verbs[mode].partition(":")
    return getattr(importlib.import_module(f"tfbert.modes.{module}"), function)


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
    problems = [*_take_file(command, values, path)] if path else []
    problems += _take(command, values, [*([f"--mode={mode}"] if mode else []), *given])
    if problems := [*filter(None, problems)]:
        raise UsageError("\n".join(dict.fromkeys(problems)))
    if mode and (other := str(values["mode"].value)) != mode:
        word = other if verb_commands()[other] is command else f"{command.word} --mode={other}"
        rule = f"{command.typed} says the mode itself"
        todo = f"Drop --mode, or use {command.typed.removesuffix(mode)}{word}."
        raise UsageError(f"{rule}. Received: mode={other!r} beside it. {todo}")
    return options.config_from_flags(values, command)


def _take(command: Command, values: flags.FlagValues, arguments: Sequence[str]) -> Iterator[str]:
    """Sets the flags of a command line. A line for each argument that is no flag, and each value that its flag does not
    take: absl would stop at the first."""
    others, left = [], collections.deque(arguments)
    while left:
        argument = left.popleft()
        text = argument.removeprefix("-").removeprefix("-")
        name, equals, value = text.partition("=")
        positive, is_known = name.removeprefix("no"), name in values
        if not text:
            others += [argument, *left] if argument == "-" else left
            left.clear()
        elif text == argument or not name:
            others.append(argument)
        elif is_known and values[name].boolean and not equals:
            values[name].parse("true")
        elif not (is_known or equals) and positive in values and values[positive].boolean:
            values[positive].parse("false")
        elif not equals and is_known and (not left or left[0].startswith("--")):
            at = f"before {left[0]}" if left else "at the end"
            yield f"{name} takes a value. Received: --{name} {at}. Write --{name}=VALUE."
        else:
            if not equals and left and (is_known or not left[0].startswith("-")):
                value = left.popleft()
            yield set_flag(values[name], value) if is_known else unknown_flag(command, name, value)
    if others:
        todo = "Write --name=value; see --help."
        yield f"Every argument must be a flag. Received: {' '.join(others)}. {todo}"


def _take_file(command: Command, values: flags.FlagValues, path: str) -> Iterator[str]:
    """Sets the flags that a file of options names. A line for each thing in it that cannot be used."""
    seen: dict[str, str] = {}
    for name, value, where in read_config(path):
        own = ALIASES.get(name, name)
        if isinstance(value, Pairs):
            form = f"{value[0][0]}: ..." if value else "NAME: VALUE"
            rule = "A file of options is flat, a flag's name and its value in each line"
            yield f"{rule}. Received: an object as {name!r}{where}. Write {form} without {name!r} above it."
        elif name == CONFIG:
            yield f"A file of options names no other. Received: {name!r}{where}. Put all options into one."
        elif name not in values and name != FLAGFILE:
            yield unknown_flag(command, name, value, where)
        elif own in seen:
            twice = f"{name!r} twice" if seen[own] == name else f"{seen[own]!r} and {name!r}, which are the same"
            yield f"Every option has one value. Received: {twice},{where}. Drop one."
        elif name == FLAGFILE:
            yield from _take(command, values, expand_flagfiles([f"--{FLAGFILE}={value}"]))
        elif value is not None:
            yield from _set_to_value(values[name], value, where)
        seen.setdefault(own, name)


def _set_to_value(flag: flags.Flag, value: Any, where: str) -> Iterator[str]:
    """Sets a flag to a value in a file. A line for what is wrong with it."""
    name, parser, rule, repeats = flag.name, options.parser_of(flag), "", isinstance(flag, flags.MultiFlag)
    items, todo = value if isinstance(value, list) else [value], f"--help={name} says what it takes."
    if any(isinstance(item, list) or item is None for item in items):
        rule = "takes a list of plain values"
    elif any(isinstance(item, bool) for item in items) and not flag.boolean:
        rule, todo = f"must be {parser.in_words}, not true or false", 'Put it in quotes, "true", if it is a name.'
    elif isinstance(value, list) and not (parser.takes_several or repeats):
        rule = "takes one value, not a list"
    elif parser.is_joined and len(items) > 1 and any("," in item for item in items):
        rule = "takes values without commas in them"
    if rule:
        yield f"{name} {rule}. Received: {name}={value!r}{where}. {todo}"
        return
    texts = [str(item).lower() if isinstance(item, bool) else item for item in items]
    for text in texts if repeats or not isinstance(value, list) else [joined(texts)]:
        yield set_flag(flag, text, where)


def _fail(command: Command, error: BaseException, status: int, kind: str) -> int:
    """One line for each thing that is wrong."""
    for line in str(error).splitlines():
        print(f"{command.typed}: {kind}{line}", file=sys.stderr)
    return status
