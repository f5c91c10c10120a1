"""Texts about options, worded for those who call tfbert from Python: arguments in the place of flags.

Messages are written once, with flags: `Pass --global_batch_size=32, or drop --noheader.` In Python the same message is
`Pass global_batch_size=32, or drop header=False.`
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, Literal, get_args, get_origin

from tfbert.config.run import Config
from tfbert.config.types import field_types

_FLAG = re.compile(
    r"(?<![\w-])(?<!the command's )--(?P<name>[a-z]\w*)(?:=(?P<value>[^\s]*[^\s.,;:)]))?(?P<next>\s+(?=--[a-z]))?"
)
"""A flag, its value without the sentence's own punctuation, and whether another flag follows."""
_MODE = "mode"
_SPECIAL = {"model": str}
"""Names of flags, and of arguments, that are not those of fields."""


def of_arguments(text: str) -> str:
    """A text with the arguments of `tfbert.finetune` in the place of the flags that it names."""
    return _FLAG.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value, kinds = found["name"], found["value"], _kinds()
    comma = ", " if found["next"] else ""
    if name == _MODE:
        return f"the command's --{name}={value}{comma}" if value else found[0]
    if name not in kinds:
        positive = name.removeprefix("no")
        return f"{positive}=False{comma}" if kinds.get(positive) is bool else found[0]
    if value is None:
        return f"{name}=True{comma}" if kinds[name] is bool else f"{name}{comma}"
    return f"{name}={_value(value.strip(_QUOTES), kinds[name])}{comma}"


_QUOTES = "'\""


def _value(text: str, kind: Any) -> str:
    """The value of a flag as Python writes it."""
    if kind is bool:
        return str(text.lower() not in ("false", "no", "0"))
    if get_origin(kind) is tuple:
        return f"[{', '.join(_value(part, get_args(kind)[0]) for part in text.split(','))}]"
    members = get_args(kind) if get_origin(kind) is not Literal else (kind,)
    numbers = [member for member in (kind, *members) if member in (int, float)]
    try:
        return text if numbers and numbers[0](text) is not None else repr(text)
    except ValueError:
        return text if numbers and text.isupper() else repr(text)


@functools.cache
def _kinds() -> dict[str, Any]:
    """The type of each option."""
    parts = [field.default_factory for field in dataclasses.fields(Config)]
    found = {name: kind for part in parts if isinstance(part, type) for name, kind in field_types(part).items()}
    return found | _SPECIAL
