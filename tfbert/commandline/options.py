"""A command's flags: one for each field of `Config`, and the `Config` that they make."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import cast

from absl import flags

from tfbert.commandline.fields import define_fields, part_from_flags
from tfbert.config.commands import FINETUNE, PRETRAIN, Command
from tfbert.config.rules import Mode
from tfbert.config.run import Config
from tfbert.config.task_table import facts_of
from tfbert.errors import UsageError

_PARTS = Config.classes()
"""The dataclasses whose fields are flags, by their name in `Config`."""
ALIASES = {"model": "model_name_or_path"}
"""Other names of flags."""


def define_flags(flag_values: flags.FlagValues = flags.FLAGS, command: Command = FINETUNE) -> None:
    """Declares every flag of a command."""
    define_fields(Config, ("mode",), flag_values, choices={"mode": command.modes}, texts=command.texts)
    for part, names in command.options().items():
        define_fields(_PARTS[part], names, flag_values, texts=command.texts)
    for alias, name in ALIASES.items():
        flags.DEFINE_alias(alias, name, flag_values=flag_values)
    flags.DEFINE_string(
        "run_config",
        "",
        "Repeat the run that wrote this run_config.json. Flags beside it replace its values.",
        flag_values=flag_values,
    )


def flag_names(command: Command) -> list[str]:
    """The names of all flags of a command, those that are not options of a run included."""
    values = flags.FlagValues()
    define_flags(values, command)
    return [*values, "config", "flagfile", "help"]


def config_from_flags(flag_values: flags.FlagValues = flags.FLAGS, command: Command = FINETUNE) -> Config:
    """The configuration that parsed flags of a command describe.

    Raises:
        UsageError: naming every rule that is broken.
    """
    path, mode, options = flag_values["run_config"].value, flag_values["mode"], command.options()
    if not path:
        parts = {
            part: part_from_flags(_PARTS[part](), names, flag_values, only_given=False)
            for part, names in options.items()
        }
        if command.task:
            parts["data"] = dataclasses.replace(parts["data"], task=command.task)
        elif facts_of(task := parts["data"].task).of_records:
            raise UsageError(f"Pre-training has a command of its own. Received: task={task!r}. {_other()}")
        return Config(mode=cast(Mode, mode.value), **parts)
    try:
        text = pathlib.Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"run_config must be a file. Received: run_config={path!r} ({error.strerror}). Check the path."
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"run_config must be UTF-8 text. Received: run_config={path!r}. Check the path.") from None
    if not is_run_config(text) and _is_flat(text, path):
        raise UsageError(
            "run_config is the run_config.json that a run wrote. "
            f"Received: run_config={path!r}, options by their flags' names. Pass --config={path}."
        )
    base = Config.from_json(text)
    if facts_of(base.data.task).of_records != bool(command.task):
        raise UsageError(
            f"run_config must come from a run of {command.typed}. "
            f"Received: run_config={path!r}, for task={base.data.task!r}. {_other()}"
        )
    parts = {
        part: part_from_flags(getattr(base, part), names, flag_values, only_given=True)
        for part, names in options.items()
    }
    return dataclasses.replace(base, mode=mode.value if mode.present else base.mode, **parts)


def is_run_config(text: str) -> bool:
    """Whether a text is the configuration that a run wrote: an object with an object for each part."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return False
    written = ("model", "data", "training", "runtime", "output")
    return isinstance(values, dict) and all(isinstance(values.get(part), dict) for part in written)


def _is_flat(text: str, path: str) -> bool:
    """Whether a file looks like one for `--config`."""
    if path.lower().endswith((".yaml", ".yml")):
        return True
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return False
    names = {name for command in (FINETUNE, PRETRAIN) for name in flag_names(command)} - _PARTS.keys()
    return isinstance(values, dict) and bool(names & {*values} - {"mode"})


def _other() -> str:
    return f"Use {PRETRAIN.typed} for pre-training, and {FINETUNE.typed} for other tasks."
