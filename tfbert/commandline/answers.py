"""What is said about a flag that a command does not have, and about a value that a flag does not take."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from absl import flags

from tfbert.commandline.options import flag_names, flags_of, parser_of
from tfbert.config.commands import FINETUNE, PRETRAIN, Command
from tfbert.config.rules import one_of
from tfbert.config.sweep import way_to_vary
from tfbert.config.types import called_elsewhere, elsewhere, nearest


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
        if other is not command and name in flags_of(other):
            return f"It is a flag of {other.typed}."
    near = nearest(name.lower(), flag_names(command))
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
    known = flags_of(command)
    for name, value in re.findall(r"--(\w+)(?:=([\w./]+))?", answer):
        choices = parser_of(known[name]).choices if name in known else ()
        if name not in known or (value and choices and value not in choices):
            return False
    return True


def wrong_value(flag: flags.Flag, text: str, where: str = "") -> str:
    """The line about a text that a flag does not take, empty where it does; `where` is its place, if it is not on the
    command line."""
    parser, name = parser_of(flag), flag.name
    with contextlib.suppress(ValueError):
        parser.parse(text)
        return ""
    if way := way_to_vary(name, text) if "," in text else "":
        todo = f"To train once with each, pass {way}."
    elif parser.choices:
        return one_of(name, text, parser.choices, where)
    elif flag.boolean:
        answer = called_elsewhere(elsewhere()["values"].get(name, {}), text.strip().lower())
        todo = answer or f"Pass --{name}, or --no{name}."
    else:
        todo = f"--help={name} says what it takes."
    return f"{name} must be {parser.in_words}. Received: {name}={text!r}{where}. {todo}"
