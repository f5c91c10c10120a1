"""`--help`: what a command is, examples, and its flags by topic, or one topic only. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from absl import flags

from tfbert.commandline.option_files import presets
from tfbert.commandline.options import flags_of, parser_of
from tfbert.config.commands import Command
from tfbert.config.run import Config
from tfbert.config.types import ALIASES
from tfbert.devices.help_text import ASKS_FOR_HELP, WIDTH, flag_text, wrapped
from tfbert.errors import UsageError

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
