"""What every command does: flags -> Config -> one verb of tfbert; errors -> a line each and an exit status; what is
said about a flag that a command does not have, and about a value that a flag does not take."""

from __future__ import annotations

import collections
import importlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, get_args

from tfbert.commandline import options
from tfbert.commandline.options import CONFIG, FLAGFILE, RUN_CONFIG, Flag, Pairs, flags_of
from tfbert.config.run import FINETUNE, PRETRAIN, Command, Config, verb_commands
from tfbert.config.tables import facts_of
from tfbert.config.types import ALIASES, Mode, called_elsewhere, did_you_mean, elsewhere, joined, of_text, one_of
from tfbert.devices import process
from tfbert.errors import EXPECTED, Preempted, UsageError, in_command


def what_is_meant(command: Command, name: str, value: str = "") -> str:
    """What may be meant by a flag that a command does not have, in a sentence: what it is here, where other trainers
    have it; else whose flag it is, or which flags are like it. Empty where nothing is.

    Args:
        command: The command.
        name: The flag as it was typed, without dashes in front: `fp16`, `learning-rate`, `task.init_checkpoint`.
        value: Its value, where that decides.
    """
    own_name = name.rpartition(".")[2].replace("-", "_")
    tables = [elsewhere()["pretraining"]] if command is PRETRAIN else []
    tables += [elsewhere()["flags_with_values"], *elsewhere()["flags"].values()]
    answers = [called_elsewhere(table, key) for table in tables for key in (f"{own_name}={value.lower()}", own_name)]
    answer = next(filter(None, answers), f"--{own_name}" if own_name != name else "")
    for one in (command, FINETUNE, PRETRAIN):
        if answer and _takes(one, answer):
            if not answer.startswith("--"):
                return f"{answer}."
            return f"Here it is {answer}." if one is command else f"In {one.typed} it is {answer}."
    for other in (FINETUNE, PRETRAIN):
        if other is not command and name in flags_of(other):
            return f"It is a flag of {other.typed}."
    return did_you_mean(name.lower(), flags_of(command), "--{}")


def _takes(command: Command, answer: str) -> bool:
    """Whether a command has all flags that an answer names, and these have the values."""
    found = [(flags_of(command).get(name), value) for name, value in re.findall(r"--(\w+)(?:=([\w./]+))?", answer)]
    return all(flag and (not value or not flag.choices or value in flag.choices) for flag, value in found)


class Reader:
    """What a command line says, or a file of options.

    Attributes:
        values: Those of the flags that it names, by their names.
        problems: A line for each argument that is no flag, and each value that its flag does not take.
    """

    def __init__(self, command: Command):
        self._command = command
        self._flags = {name: flag for name, flag in flags_of(command).items() if name != "help"}
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []

    def read_line(self, arguments: Sequence[str], within: tuple[str, ...] = ()) -> None:
        """Reads a command line, or the lines of a file of flags, which may name others.

        Args:
            arguments: Those after the program.
            within: The files that these are the lines of, from the outermost.

        Raises:
            UsageError: for a file of flags that cannot be read.
        """
        others, left = [], collections.deque(arguments)
        while left:
            argument = left.popleft()
            text = argument.removeprefix("-").removeprefix("-")
            name, equals, value = text.partition("=")
            flag, denied = self._flags.get(name), self._flags.get(name.removeprefix("no"))
            if not text:
                others += [argument, *left] if argument == "-" else left
                break
            if text == argument or not name:
                others.append(argument)
            elif flag and flag.is_switch and not equals:
                self.values[flag.name] = True
            elif not (flag or equals) and denied and denied.is_switch:
                self.values[denied.name] = False
            elif not equals and flag and (not left or left[0].startswith("--")):
                at = f"before {left[0]}" if left else "at the end"
                self.problems.append(f"{name} takes a value. Received: --{name} {at}. Write --{name}=VALUE.")
            else:
                if not equals and left and (flag or not left[0].startswith("-")):
                    value = left.popleft()
                if flag and name == FLAGFILE:
                    self._read_flagfile(value.strip(), within)
                else:
                    self._set(flag, value) if flag else self._refuse(name, value)
        if others:
            todo = "Write --name=value; see --help."
            self.problems.append(f"Every argument must be a flag. Received: {' '.join(others)}. {todo}")

    def _read_flagfile(self, name: str, within: tuple[str, ...]) -> None:
        """Reads a file of flags; none where there is no name, as a script may have it."""
        path = str(options.find_flagfile(name)) if name else ""
        if path in within:
            rule = "A flag file must not include itself"
            raise UsageError(f"{rule}. Received: flagfile={path!r}. Remove that line.")
        self.read_line(options.flags_in_file(path) if path else [], (*within, path))

    def read_config(self, path: str) -> None:
        """Reads a file of options.

        Raises:
            UsageError: for a file that cannot be read.
        """
        seen: dict[str, str] = {}
        for name, value, where in options.read_config(path):
            own, flag = ALIASES.get(name, name), self._flags.get(name)
            if isinstance(value, Pairs):
                form = f"{value[0][0]}: ..." if value else "NAME: VALUE"
                rule = "A file of options is flat, a flag's name and its value in each line"
                todo = f"Write {form} without {name!r} above it."
                self.problems.append(f"{rule}. Received: an object as {name!r}{where}. {todo}")
            elif not flag:
                self._refuse(name, value, where)
            elif own in seen:
                twice = f"{name!r} twice" if seen[own] == name else f"{seen[own]!r} and {name!r}, which are the same"
                self.problems.append(f"Every option has one value. Received: {twice},{where}. Drop one.")
            elif name == FLAGFILE:
                self._read_flagfile(str(value or ""), ())
            elif value is not None:
                self._set_to(flag, value, where)
            seen.setdefault(own, name)
        if CONFIG in self.values:
            rule, received = "A file of options names no other", f"{CONFIG}={self.values[CONFIG]!r} in {path}"
            self.problems.append(f"{rule}. Received: {received}. Put all options into one.")

    def _set_to(self, flag: Flag, value: Any, where: str) -> None:
        """Sets a flag to a value in a file: a text, True, False, or a list."""
        items = value if isinstance(value, list) else [value]
        texts = [str(item).lower() if isinstance(item, bool) else item for item in items]
        todo = ""
        if any(isinstance(item, list) or item is None for item in items):
            todo = "Write plain values."
        elif any(isinstance(item, bool) for item in items) and not flag.is_switch:
            todo = 'Put it in quotes, "true", if it is a name.'
        elif isinstance(value, list) and not flag.takes_several:
            todo = "Write one value."
        elif flag.is_joined and len(items) > 1 and "," in "".join(texts):
            todo = "Write values without commas."
        if todo:
            self.problems.append(f"{flag.name} must be {flag.in_words}. Received: {flag.name}={value!r}{where}. {todo}")
            return
        for text in texts if flag.repeats or not isinstance(value, list) else [joined(texts)]:
            self._set(flag, text, where)

    def _set(self, flag: Flag, text: str, where: str = "") -> None:
        """Gives a flag the value that a text stands for; `where` is its place, if it is not on the command line."""
        name = flag.name
        try:
            value = of_text(flag.kind, text)
        except ValueError:
            todo = f"--help={name} says what it takes."
            if flag.is_switch:
                answer = called_elsewhere(elsewhere()["values"].get(name, {}), text.strip().lower())
                todo = answer or f"Pass --{name}, or --no{name}."
            elif "," in text and name == "seed":
                todo = "Pass one, or several as --seeds."
            elif "," in text and float in (flag.kind, *get_args(flag.kind)):
                todo = "Pass one value, a fraction after a point."
            line = f"{name} must be {flag.in_words}. Received: {name}={text!r}{where}. {todo}"
            self.problems.append(one_of(name, text, flag.choices, where) if flag.choices else line)
            return
        if name == CONFIG and name in self.values:
            rule, received = "A run has one file of options", f"{CONFIG}={f'{self.values[name]},{value}'!r}"
            raise UsageError(f"{rule}. Received: {received}. Put all options into one of them.")
        self.values[name] = (*self.values.get(name, ()), value) if flag.repeats else value

    def _refuse(self, name: str, value: Any, where: str = "") -> None:
        """Notes what is said about a flag that the command does not have."""
        found, kind = what_is_meant(self._command, name, str(value)), "flag" if where else "command line flag"
        self.problems.append(" ".join(filter(None, (f"Unknown {kind} '{name}'{where}.", found, "See --help."))))


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
    line, file = Reader(command), Reader(command)
    line.read_line(argv[1:])
    if path := line.values.pop(CONFIG, ""):
        file.read_config(path)
    if problems := [*file.problems, *line.problems]:
        raise UsageError("\n".join(dict.fromkeys(problems)))
    other = line.values.get("mode", mode)
    if mode and other != mode:
        word = other if verb_commands()[other] is command else f"{command.word} --mode={other}"
        rule = f"{command.typed} says the mode itself"
        todo = f"Drop --mode, or use {command.typed.removesuffix(mode)}{word}."
        raise UsageError(f"{rule}. Received: mode={other!r} beside it. {todo}")
    values = file.values | ({"mode": mode} if mode else {}) | line.values
    path, mode = values.pop(RUN_CONFIG, ""), values.pop("mode", "")
    base = Config.from_json(options.read_text(RUN_CONFIG, path)) if path else Config()
    if command.task and not path:
        values["task"] = command.task
    task = values.get("task", base.data.task)
    if facts_of(task).of_records != bool(command.task):
        received = f"task={task!r}" + (f" in run_config={path!r}" if path else "")
        todo = f"Use {PRETRAIN.typed} for pre-training, and {FINETUNE.typed} for other tasks."
        raise UsageError(f"Pre-training has a command of its own. Received: {received}. {todo}")
    return base.changed(values, mode)


def _fail(command: Command, error: BaseException, status: int, kind: str) -> int:
    """One line for each thing that is wrong."""
    for line in str(error).splitlines():
        print(f"{command.typed}: {kind}{line}", file=sys.stderr)
    return status
