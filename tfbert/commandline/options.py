"""A command's flags: one for each field of `Config`, and the `Config` that they make."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
from typing import Any, Literal, cast, get_args, get_origin

from absl import flags

from tfbert.commandline.option_files import YAML, kind_of_json, read_text
from tfbert.config.commands import FINETUNE, PRETRAIN, Command
from tfbert.config.rules import Mode
from tfbert.config.run import Config
from tfbert.config.task_table import facts_of
from tfbert.config.types import ALIASES, field_types, in_words, of_text
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
