"""Texts about options, worded for those who call tfbert from Python: arguments in the place of flags.

Messages are written once, with flags: `Pass --global_batch_size=32, or drop --noheader.` In Python the same message is
`Pass global_batch_size=32, or drop header=False.`
"""

from __future__ import annotations

import functools
import re
from typing import Any

from tfbert.config.run import Config
from tfbert.config.types import ALIASES, field_types, of_text

_FLAG = re.compile(
    r"(?<![\w-])(?<!the command's )--(?P<name>[a-z]\w*)(?:=(?P<value>[^\s]*[^\s.,;:)]))?(?P<next>\s+(?=--[a-z]))?"
)
"""A flag, its value without the sentence's own punctuation, and whether another flag follows."""


def of_arguments(text: str) -> str:
    """A text with the arguments of `tfbert.finetune` in the place of the flags that it names."""
    return _FLAG.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value, kinds = found["name"], found["value"], _kinds()
    comma = ", " if found["next"] else ""
    if name == "mode":
        return f"the command's --{name}={value}{comma}" if value else found[0]
    if name not in kinds:
        positive = name.removeprefix("no")
        return f"{positive}=False{comma}" if kinds.get(positive) is bool else found[0]
    if value is None:
        return f"{name}=True{comma}" if kinds[name] is bool else f"{name}{comma}"
    return f"{name}={_value(value, kinds[name])}{comma}"


def _value(text: str, kind: Any) -> str:
    """The value of a flag as Python writes it; a word such as N in the place of a number stays."""
    text = text.strip("'\"")
    try:
        value = of_text(kind, text)
    except ValueError:
        return text
    return text if isinstance(value, float) else repr(list(value) if isinstance(value, tuple) else value)


@functools.cache
def _kinds() -> dict[str, Any]:
    """The type of each option."""
    found = {name: kind for part in Config.classes().values() for name, kind in field_types(part).items()}
    return found | {alias: found[name] for alias, name in ALIASES.items()}
