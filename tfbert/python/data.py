"""The arguments `train`, `validation` and `test`: paths or data in memory -> what `DataConfig` holds."""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Mapping
from typing import Any

from tfbert.config.rules import path_of
from tfbert.config.types import Given, shown
from tfbert.data.files import LABEL_NAMES, TAGS_NAMES, TEXT_NAMES, TEXT_PAIRS, WORDS_NAMES
from tfbert.data.given_kinds import given_table, is_data
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
