"""A command's flags: one for each field of `Config`, and the `Config` that they make; and `--help`: what a command is,
examples, and its flags by topic, or one topic only. Imports no TensorFlow."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
from collections.abc import Sequence
from typing import Any, Literal, cast, get_args, get_origin

from absl import flags

from tfbert.commandline.option_files import YAML, kind_of_json, presets, read_text
from tfbert.config.commands import FINETUNE, PRETRAIN, Command
from tfbert.config.rules import Mode
from tfbert.config.run import Config
from tfbert.config.task_table import facts_of
from tfbert.config.types import ALIASES, field_types, in_words, of_text
from tfbert.devices.quiet import ASKS_FOR_HELP, WIDTH, flag_text, wrapped
from tfbert.errors import UsageError

RUN_CONFIG = "run_config"


class OptionParser(flags.ArgumentParser):
    """Reads the text of a flag as its option's type says.

    Attributes:
        kind: The type.
        name: The option's name.
        is_joined: Whether its text may be several values with commas between.
    """

    def __init__(self, kind: Any, name: str, is_joined: bool = False):
        self.kind, self.name, self.is_joined = kind, name, is_joined

    def parse(self, argument: Any) -> Any:
        try:
            return of_text(self.kind, argument) if isinstance(argument, str) else argument
        except ValueError:
            raise ValueError(f"must be {self.in_words}") from None

    @property
    def in_words(self) -> str:
        """What it takes."""
        return in_words(self.kind, self.name, is_joined=self.is_joined)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes, where it takes nothing else."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def takes_several(self) -> bool:
        """Whether it takes a list."""
        return self.is_joined or tuple in [get_origin(kind) for kind in (self.kind, *get_args(self.kind))]


def define_flags(flag_values: flags.FlagValues = flags.FLAGS, command: Command = FINETUNE) -> None:
    """Declares every flag of a command: name, default, type and help are those of a field of `Config`."""
    parts = [(Config, ("mode",)), *((Config.classes()[part], names) for part, names in command.options().items())]
    for part, names in parts:
        types, docs = field_types(part), field_docs(part) | dict(command.texts)
        fields = {field.name: field for field in dataclasses.fields(part)}
        for name in names:
            kind, doc = Literal[command.modes] if name == "mode" else types[name], docs[name]
            if needs := fields[name].metadata.get("needs"):
                doc = f"With --{needs}: {doc[0].lower()}{doc[1:]}"
            if fields[name].metadata.get("repeats"):
                flag = flags.MultiFlag(OptionParser(str, name), None, name, [], doc)
            else:
                is_switch = kind is bool or bool in get_args(kind)
                parser = OptionParser(kind, name, bool(fields[name].metadata.get("joined")))
                flag = flags.Flag(parser, None, name, fields[name].default, doc, boolean=is_switch)
            flags.DEFINE_flag(flag, flag_values)
            flag.help = doc  # absl adds how to repeat a flag.
    for alias, name in ALIASES.items():
        flags.DEFINE_alias(alias, name, flag_values=flag_values)
    text = "Repeat the run that wrote this run_config.json. Flags beside it replace its values."
    flag = flags.Flag(OptionParser(str, f"{RUN_CONFIG}_file"), None, RUN_CONFIG, "", text)
    flags.DEFINE_flag(flag, flag_values)


def parser_of(flag: flags.Flag) -> OptionParser:
    """What reads the text of a flag that `define_flags` declared."""
    assert isinstance(flag.parser, OptionParser)
    return flag.parser


@functools.cache
def flags_of(command: Command) -> flags.FlagValues:
    """All flags of a command, to look them up."""
    values = flags.FlagValues()
    define_flags(values, command)
    return values


def flag_names(command: Command) -> list[str]:
    """The names of all flags of a command, those that are not options of a run included."""
    return [*flags_of(command), "config", "flagfile", "help"]


@functools.cache
def field_docs(part: type) -> dict[str, str]:
    """The string after each field, as one line."""
    (found,) = ast.parse(inspect.getsource(part)).body
    assert isinstance(found, ast.ClassDef)
    return {
        ast.unparse(field.target): " ".join(ast.literal_eval(doc.value).split())
        for field, doc in itertools.pairwise(found.body)
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr)
    }


def config_from_flags(flag_values: flags.FlagValues = flags.FLAGS, command: Command = FINETUNE) -> Config:
    """The configuration that parsed flags of a command describe.

    Raises:
        UsageError: naming every rule that is broken.
    """
    path, mode = flag_values[RUN_CONFIG].value, flag_values["mode"]
    base = _run_config(path, command) if path else Config()
    parts = {}
    for part, names in command.options().items():
        given = {name: flag_values[name].value for name in names if not path or flag_values[name].present}
        parts[part] = dataclasses.replace(getattr(base, part), **given)
    if command.task:
        parts["data"] = dataclasses.replace(parts["data"], task=command.task)
    elif facts_of(task := parts["data"].task).of_records:
        raise UsageError(f"Pre-training has a command of its own. Received: task={task!r}. {_other()}")
    return dataclasses.replace(base, mode=cast(Mode, base.mode if path and not mode.present else mode.value), **parts)


def _run_config(path: str, command: Command) -> Config:
    text = read_text(RUN_CONFIG, path)
    if kind_of_json(text) == "flat" or path.lower().endswith(YAML):
        rule = "run_config is the run_config.json that a run wrote"
        raise UsageError(f"{rule}. Received: run_config={path!r}, options by their flags' names. Pass --config={path}.")
    config = Config.from_json(text)
    if facts_of(config.data.task).of_records != bool(command.task):
        rule = f"run_config must come from a run of {command.typed}"
        raise UsageError(f"{rule}. Received: run_config={path!r}, for task={config.data.task!r}. {_other()}")
    return config


def _other() -> str:
    return f"Use {PRETRAIN.typed} for pre-training, and {FINETUNE.typed} for other tasks."


_GENERAL, _PRESETS = "general", "presets"


def help_topic(arguments: Sequence[str]) -> str | None:
    """Whether a command line asks for help, and on what.

    Args:
        arguments: Those after the program.

    Returns:
        None where it does not; the topic of `--help=TOPIC` or `--help TOPIC`; empty for all.
    """
    for place, argument in enumerate(arguments):
        name, _, topic = argument.partition("=")
        if argument == "--":
            break
        if name in ASKS_FOR_HELP:
            following = arguments[place + 1 : place + 2]
            return topic or next((word for word in following if not word.startswith("-")), "")
    return None


def help_text(command: Command, topic: str, mode: str = "") -> str:
    """The help of a command, at most 100 columns wide.

    Args:
        command: The command.
        topic: A part of `Config` such as `training`, `general`, `presets`, the name of a flag, or empty for everything.
        mode: Show the flags of this mode only; empty: all.

    Raises:
        UsageError: for an unknown topic.
    """
    values = flags_of(command)
    topics, name = _topics(command, mode), topic.lstrip("-")
    if name == _PRESETS:
        return _preset_list()
    if name in topics:
        return _topic(name, topics[name], values)
    if name:
        if name not in values and name not in _OWN:
            near = difflib.get_close_matches(name, [*topics, _PRESETS, *values], n=3)
            advice = f"Did you mean {' or '.join(near)}?" if near else "See --help."
            known = ", ".join([*topics, _PRESETS])
            raise UsageError(f"--help takes a topic ({known}) or a flag. Received: help={topic!r}. {advice}")
        return _flag(name, values)
    lines = wrapped(command.summary, "")
    if mode:
        lines = wrapped(f"{command.typed}: the flags of mode={mode}. {command.summary}", "")
    examples = [(arguments, what) for arguments, what in command.examples if not mode or f"--mode={mode}" in arguments]
    lines += ["", "Examples:", ""] if examples else []
    for arguments, what in examples:
        arguments = arguments.removeprefix(f"--mode={mode} ")
        typed = wrapped(f"{command.started} {arguments}", "  ", further=4, width=WIDTH - 2)
        lines += [f"  # {what[0].upper()}{what[1:]}:", " \\\n".join(typed)]
    lines += ["", *wrapped(f"Flags by topic; --help=TOPIC shows one: {', '.join([*topics, _PRESETS])}.", "")]
    return "\n".join(lines) + "\n\n" + "\n".join(_topic(name, names, values) for name, names in topics.items())


def _topics(command: Command, mode: str) -> dict[str, tuple[str, ...]]:
    """The names of flags by topic; with a mode, those that have an effect in it."""
    general, topics = ("config", "run_config", "flagfile", "help"), {}
    for part, names in command.options().items():
        modes = {field.name: field.metadata["modes"] for field in dataclasses.fields(Config.classes()[part])}
        topics[part] = tuple(name for name in names if not mode or mode in modes[name])
    return {_GENERAL: general if mode else ("mode", *general)} | {
        part: names for part, names in topics.items() if names
    }


def _topic(topic: str, names: Sequence[str], values: flags.FlagValues) -> str:
    parts = Config.classes()
    about = parts[topic].__doc__ if topic in parts else "What to do, and where flags come from."
    lines = wrapped(f"{topic}: {' '.join((about or '').split())}", "")
    return "\n".join(lines) + "\n" + "".join(_flag(name, values) for name in names)


def _flag(name: str, values: flags.FlagValues) -> str:
    """A flag: how it is written, what it does, its default."""
    if name in _OWN:
        return flag_text([name], *_OWN[name])
    flag = values[name]
    names = [name, *(alias for alias, own in ALIASES.items() if own == name)]
    return flag_text(names, _takes(parser_of(flag).kind), flag.help, flag.default)


def _takes(kind: Any) -> str:
    """What follows a flag's `=`; empty for a switch."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    members = get_args(kind)
    if get_origin(kind) is tuple or tuple in [get_origin(member) for member in members]:
        return "A,B"
    if members:
        return "|".join(_takes(member) for member in members if member is not type(None))
    return {int: "N", float: "X", str: "TEXT", bool: ""}[kind]


_OWN = {
    "config": (
        "FILE",
        "Read options from a .yaml or .json file: the flags' names without dashes, each with its value, or a list. "
        "Flags on the command line replace its values.",
    ),
    "flagfile": ("NAME", "Read flags from a file, one a line, or from a preset (see --help=presets)."),
    "help": ("TOPIC", "Show this text, or only a topic or a flag."),
}
"""Flags that are not options of a run."""


def _preset_list() -> str:
    lines = ["Presets for --flagfile=NAME. Flags after it replace the preset's. Each file begins with commands:", ""]
    for name, path in presets().items():
        about = path.read_text(encoding="utf-8").partition("\n#\n")[0].replace("\n#", "").lstrip("# ")
        if about.endswith(":"):  # Its last sentence leads to the commands, which are left out here.
            about = about.rpartition(". ")[0] + "." if ". " in about else about.removesuffix(":")
        lines += [f"  {name}", *wrapped(about, "      ")]
    return "\n".join(lines) + "\n"
