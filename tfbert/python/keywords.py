"""The command's options as arguments: their names, their types, and the `Config` that they make; `train`, `validation`
and `test` are paths or data in memory."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import numbers
import os
import re
from collections.abc import Mapping
from typing import Any

from tfbert.commandline.command import what_is_meant
from tfbert.config.run import FINETUNE, PRETRAIN, Command, Config, command_of, way_to_vary
from tfbert.config.tables import facts_of
from tfbert.config.types import ALIASES, Given, converted, field_types, is_path, path_of, shown
from tfbert.data.files import LABEL_NAMES, TAGS_NAMES, TEXT_NAMES, TEXT_PAIRS, WORDS_NAMES
from tfbert.data.in_memory import given_table, is_data
from tfbert.errors import UsageError

_USUAL = {name for names in (*TEXT_PAIRS, TEXT_NAMES, *LABEL_NAMES, *WORDS_NAMES, *TAGS_NAMES) for name in names}
"""Names of columns, none of which a validation set is called."""
_SET_NAME = re.compile(r"[\w-]+")
OPTIONS = {"train": "train_file", "validation": "validation_file", "test": "test_file"}
"""The option that an argument stands for."""


def data_options(
    given: Mapping[str, Any], data: Mapping[str, Any], *, holds_sentences: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """The options that `train`, `validation` and `test` stand for.

    Args:
        given: The other arguments, by name.
        data: These, by name; None where one was not given.
        holds_sentences: As for `given_table`.

    Returns:
        Values by the options' names, and a line for each argument that cannot be used.
    """
    options, problems = {}, []
    for argument, value in data.items():
        if value is None:
            continue
        option = OPTIONS[argument]
        is_share = argument == "validation" and isinstance(value, numbers.Real) and not isinstance(value, bool)
        option = "validation_split" if is_share else option
        if is_share and not 0 < float(value) < 1:
            rule = "A number as validation is a share of the training examples, above 0 and below 1"
            problems.append(f"{rule}. Received: validation={value}. Pass for example validation=0.1, or a table.")
            continue
        if option in given:
            rule = f"{argument} and {option} are one option"
            problems.append(f"{rule}. Received: {option}={shown(given[option])} beside it. Drop one.")
            continue
        try:
            options[option] = value if is_share else _given(argument, value, holds_sentences)
        except UsageError as error:
            problems.append(str(error))
    return options, problems


def _given(argument: str, value: Any, holds_sentences: bool) -> Any:
    if isinstance(value, str | os.PathLike):
        if not os.fspath(value):  # As an option it would stand for the built-in data.
            raise UsageError(f"{argument} is rows or a path. Received: {argument}=''. Pass some, or leave it out.")
        return value
    if argument != "validation":
        return _one(argument, value, holds_sentences)
    if isinstance(value, list | tuple) and value and all(isinstance(path, str | os.PathLike) for path in value):
        return value
    if isinstance(value, Mapping) and _are_sets(value):
        parts = []
        for name, part in value.items():
            if not isinstance(name, str) or not _SET_NAME.fullmatch(name):
                rule = "The name of a validation set has letters, digits, _ and -"
                raise UsageError(f"{rule}. Received: validation with {name!r}. Rename it.")
            parts.append(_one(f"validation_{name}", part, holds_sentences))
        return Given(", ".join(parts), parts=tuple(parts))
    return _one(argument, value, holds_sentences)


def _one(argument: str, value: Any, holds_sentences: bool) -> Given:
    if isinstance(value, str | os.PathLike):
        path = path_of(os.fspath(value), argument)
        return Given(f"{argument}={path}", path)
    table = given_table(argument, value, holds_sentences=holds_sentences)
    return Given(table.name, table)


def _are_sets(value: Mapping[Any, Any]) -> bool:
    """Whether a dictionary holds validation sets by name, rather than columns."""

    def is_set(part: Any) -> bool:
        return isinstance(part, str | os.PathLike) or is_data(part)

    def may_be_pairs(part: Any) -> bool:  # Or a column of words, where each sentence has two.
        return isinstance(part, list) and bool(part) and isinstance(part[0], tuple) and len(part[0]) == 2

    if not value or not all(is_set(part) or may_be_pairs(part) for part in value.values()):
        return False
    return any(map(is_set, value.values())) or not any(str(name).lower() in _USUAL for name in value)


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
        todo = "Pass options by their names, such as train_file='train.tsv'."
        raise UsageError(f"The first argument must be a tfbert.Config. Received: {shown(config)}. {todo}")
    options, given, problems = options_of(command, mode, several=several), dict(given), []
    for alias, name in ALIASES.items():
        if alias in given and name in given:
            both = f"{alias}={shown(given.pop(alias))} beside it"
            problems.append(f"{alias} and {name} are one option. Received: {both}. Drop one.")
        elif alias in given:
            given[name] = given.pop(alias)
    base, parts = config or Config(), {}
    task = given.get("task", base.data.task)
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
    # What a call cannot do that a configuration can say.
    if config.mode != mode:
        rule = f"{function_of(command, mode)} {'trains' if mode == TRAIN else 'evaluates'}"
        raise UsageError(f"{rule}. Received: a configuration with mode={config.mode!r}. Pass mode={mode!r}.")
    if (other := command_of(config)) is not command:
        rule = "Pre-training has a function of its own"
        raise UsageError(f"{rule}. Received: task={config.data.task!r}. Call {FUNCTIONS[other.word]} instead.")
    for name, todo in _OF_SEVERAL.items():
        if not several and (value := getattr(config.runtime, name)):
            raise UsageError(f"A call is one run. Received: {name}={value!r}. {todo}")
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


def _unknown(command: Command, mode: str, name: str, value: Any) -> str:
    """The line for an argument that is no option."""
    function, what = function_of(command, mode), "training" if mode == TRAIN else "an evaluation"
    stem = name.partition("_")[0]
    meant = "validation" if stem in _VALIDATION else stem
    if name in _NOT_ARGUMENTS:
        advice = _NOT_ARGUMENTS[name]
    elif any(name in names for names in command.options().values()):
        advice = f"{name} is for the command, in another mode." if mode == TRAIN else f"{name} is for training."
    elif name in OPTIONS and mode != TRAIN:
        advice = f"{name} is for training."
    elif name in OPTIONS:
        advice = "Pre-training reads records: make them with --mode=prepare, and pass train_records."
    elif command is FINETUNE and (near := difflib.get_close_matches(name, OPTIONS, 1, _NEAR)):
        advice = f"Did you mean {near[0]}?"
    elif command is FINETUNE and meant in OPTIONS and (name == stem or name.endswith(_OF_DATA)):
        advice = f"Did you mean {meant}?"
    else:
        text = str(value) if isinstance(value, str | bool) else ""
        advice = what_is_meant(command, name, text) or f"See help({function})."
        for other in (FINETUNE, PRETRAIN):
            advice = advice.replace(f"a flag of {other.typed}", f"an argument of {FUNCTIONS[other.word]}")
            advice = advice.replace(f"In {other.typed} ", f"In {FUNCTIONS[other.word]} ")
    return f"Every argument of {function} must be an option of {what}. Received: {name}={shown(value)}. {advice}"
