"""The command's options as arguments: their names, their types, and the `Config` that they make."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from tfbert.commandline.answers import what_is_meant
from tfbert.config.commands import FINETUNE, PRETRAIN, Command, command_of
from tfbert.config.run import Config
from tfbert.config.sweep import way_to_vary
from tfbert.config.task_table import facts_of
from tfbert.config.types import ALIASES, converted, field_types, is_path, shown
from tfbert.errors import UsageError
from tfbert.python.data import OPTIONS, data_options

TRAIN, EVALUATE = "train", "evaluate"
FUNCTIONS = {FINETUNE.word: "tfbert.finetune", PRETRAIN.word: "tfbert.pretrain"}
"""What trains, by the command's word."""
_EVALUATE = "tfbert.evaluate"
_OF_SEVERAL = {
    "seeds": "A call trains one seed: call it for each with seed=, call tfbert.sweep, or use the command.",
    "sweep": "A call trains one run: call tfbert.sweep, or use the command.",
}
"""Options of several runs."""
_NOT_ARGUMENTS = _OF_SEVERAL | {
    "mode": "tfbert.finetune and tfbert.pretrain train; of a saved model, tfbert.evaluate gives the scores, and "
    "tfbert.load returns a function.",
    "run_config": "Pass tfbert.Config.from_json(text) as the first argument.",
    "flagfile": "Presets are for the command; pass their flags as arguments.",
}
"""Flags that are no options of a run."""
_OF_DATA = ("_df", "_data", "_dataset", "_table")
_VALIDATION = ("val", "valid", "eval", "dev")
_NEAR = 0.8  # How similar a name must be to that of an argument that is no option.


def function_of(command: Command, mode: str) -> str:
    """What Python users call, for a command and what it does."""
    return FUNCTIONS[command.word] if mode == TRAIN else _EVALUATE


def options_of(
    command: Command, mode: str = TRAIN, *, several: bool = False
) -> dict[str, dict[str, dataclasses.Field]]:
    """The options that a command has in a mode, by the part of `Config` that they belong to and by name; those of
    several runs only where these are asked for."""
    parts, without = Config.classes(), _NOT_ARGUMENTS.keys() - (_OF_SEVERAL if several else ())
    return {
        part: {
            field.name: field
            for field in dataclasses.fields(parts[part])
            if field.name in names and field.name not in without and mode in field.metadata["modes"]
        }
        for part, names in command.options().items()
    }


def config_of(
    command: Command,
    config: Config | None,
    given: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    *,
    several: bool = False,
    mode: str = TRAIN,
) -> Config:
    """The configuration that arguments describe.

    Args:
        command: Whose options they are.
        config: What the arguments change; None for the defaults.
        given: The arguments, by name.
        data: `train`, `validation` and `test`, which stand for options; None where one was not given.
        several: Whether it may describe several runs: seeds, and a sweep.
        mode: What to do; of a given configuration it must be the mode.

    Raises:
        UsageError: naming all arguments that are unknown, of another type, or break a rule.
    """
    if config is not None and not isinstance(config, Config):
        raise UsageError(
            f"The first argument must be a tfbert.Config. Received: {shown(config)}. "
            "Pass options by their names, such as train_file='train.tsv'."
        )
    options, given = options_of(command, mode, several=several), dict(given)
    problems = [line for alias, name in ALIASES.items() for line in _resolve(alias, name, given)]
    task = given.get("task", (config or Config()).data.task)
    found, wrong = data_options(given, data or {}, holds_sentences=facts_of(str(task)).of_words)
    given, problems = given | found, problems + wrong
    known = {name for names in options.values() for name in names}
    problems += [_unknown(command, mode, name, given[name]) for name in given if name not in known]
    for name in [name for name in given if _are_swept(name, given[name])]:
        values = given.pop(name)
        todo = f"Call tfbert.sweep({{{name!r}: {values!r}}}, ...)."
        if name == "seed":
            todo = f"Pass seeds={values!r}." if several else f"Call it for each, or tfbert.sweep with seeds={values!r}."
        problems.append(f"{name} is one value in a run. Received: {name}={shown(values)}. {todo}")
    base, parts = config or Config(), {}
    for part, names in options.items():
        own = {name: given[name] for name in names if name in given}
        parts[part], wrong = converted(type(getattr(base, part)), own)
        problems += wrong
    if problems:
        raise UsageError("\n".join(problems))
    changed = {part: dataclasses.replace(getattr(base, part), **values) for part, values in parts.items() if values}
    if command.task and config is None:
        changed["data"] = dataclasses.replace(changed.get("data", base.data), task=command.task)
    config = dataclasses.replace(base, mode=mode if config is None else config.mode, **changed)
    _check(config, command, mode, several)
    return config


def _are_swept(name: str, value: Any) -> bool:
    """Whether an option was given several values, with each of which one could train; a path may be meant as one of
    several files."""
    if not isinstance(value, list | tuple) or len(value) < 2 or is_path(name):
        return False
    is_plain = all(isinstance(item, str | int | float) for item in value)
    return is_plain and bool(way_to_vary(name, ",".join(map(str, value))))


def signature_of(command: Command, function: Any, mode: str = TRAIN) -> inspect.Signature:
    """A function's signature with every option in the place of `**options`, for editors and notebooks."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    base = Config()
    names = {alias: name for name, alias in ALIASES.items()}
    parameters = [
        inspect.Parameter(
            names.get(name, name),
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=field_types(type(getattr(base, part)))[name],
        )
        for part, fields in options_of(command, mode).items()
        for name, field in fields.items()
        if names.get(name, name) not in {parameter.name for parameter in own}
    ]
    return inspect.Signature([*own, *parameters], return_annotation=inspect.signature(function).return_annotation)


def _resolve(alias: str, name: str, given: dict[str, Any]) -> list[str]:
    """Replaces an alias by the option's name; a line where both are given."""
    if alias not in given:
        return []
    if name in given:
        return [f"{alias} and {name} are one option. Received: {alias}={shown(given.pop(alias))} beside it. Drop one."]
    given[name] = given.pop(alias)
    return []


def _unknown(command: Command, mode: str, name: str, value: Any) -> str:
    """The line for an argument that is no option."""
    function, what = function_of(command, mode), "training" if mode == TRAIN else "an evaluation"
    advice = _NOT_ARGUMENTS.get(name)
    is_data = mode != TRAIN and name in OPTIONS
    if not advice and (is_data or any(name in names for names in command.options().values())):
        advice = f"{name} is for the command, in another mode." if mode == TRAIN else f"{name} is for training."
    if not advice and command is PRETRAIN and name in OPTIONS:
        advice = "Pre-training reads records: make them with --mode=prepare, and pass train_records."
    if not advice and command is FINETUNE and (near := difflib.get_close_matches(name, OPTIONS, 1, _NEAR)):
        advice = f"Did you mean {near[0]}?"
    stem, text = name.partition("_")[0], str(value) if isinstance(value, str | bool) else ""
    if not advice and command is FINETUNE and (name == stem or name.endswith(_OF_DATA)):
        meant = "validation" if stem in _VALIDATION else stem
        advice = f"Did you mean {meant}?" if meant in OPTIONS else ""
    advice = advice or what_is_meant(command, name, text) or f"See help({function})."
    for other in (FINETUNE, PRETRAIN):
        advice = advice.replace(f"a flag of {other.typed}", f"an argument of {FUNCTIONS[other.word]}")
        advice = advice.replace(f"In {other.typed} ", f"In {FUNCTIONS[other.word]} ")
    return f"Every argument of {function} must be an option of {what}. Received: {name}={shown(value)}. {advice}"


def _check(config: Config, command: Command, mode: str, several: bool) -> None:
    """What a call cannot do that a configuration can say.

    Raises:
        UsageError: naming it.
    """
    if config.mode != mode:
        does = "trains" if mode == TRAIN else "evaluates"
        raise UsageError(
            f"{function_of(command, mode)} {does}. Received: a configuration with mode={config.mode!r}. "
            f"Pass mode={mode!r}."
        )
    if command_of(config) is not command:
        raise UsageError(
            f"Pre-training has a function of its own. Received: task={config.data.task!r}. "
            f"Call {FUNCTIONS[command_of(config).word]} instead."
        )
    if config.runtime.sweep and not several:
        raise UsageError(
            f"A call trains one run. Received: sweep={config.runtime.sweep!r}. Call tfbert.sweep, or use the command."
        )
    if config.runtime.seeds and not several:
        raise UsageError(
            f"A call trains one seed. Received: seeds={list(config.runtime.seeds)}. "
            "Call it for each with seed=, call tfbert.sweep, or use the command."
        )
