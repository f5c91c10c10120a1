"""The types of options: what configuration dataclasses, and Python's keywords, take for each annotation.

A command line gives text, which its parser turns into these types. Python users give what they have: a path, a NumPy
number, a list. What means the same is converted, and everything else refused where it is given.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import numbers
import os
import pathlib
import reprlib
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tfbert.config.given import Given, Recorded
from tfbert.errors import UsageError

_OF_PATHS = ("_file", "_dir", "_path", "_files", "_records")
"""How the names of options end that take paths."""
_OF_EXAMPLES = ("train_file", "validation_file", "test_file")
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


class Options:
    """The base of configuration dataclasses: construction converts and checks every field by its annotation.

    Raises:
        UsageError: naming each field that does not exist, or whose value is of another type.
    """

    def __new__(cls, *values: Any, **given: Any):
        if problems := [_unknown(cls, name, given[name]) for name in given if name not in field_types(cls)]:
            raise UsageError("\n".join(problems))
        return super().__new__(cls)

    def __post_init__(self):
        given = vars(self)
        values, problems = converted(type(self), given)
        if problems:
            raise UsageError("\n".join(problems))
        for name, value in values.items():
            if value is not given[name]:
                object.__setattr__(self, name, value)


@functools.cache
def field_types(part: type) -> dict[str, Any]:
    """The types of a configuration dataclass's fields; Python evaluates the annotations anew each time it is asked."""
    return get_type_hints(part)


def converted(part: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Values as a dataclass holds them.

    Args:
        part: The dataclass.
        given: Values of some of its fields, by name.

    Returns:
        The values that could be converted, and a line for each other one.
    """
    kinds, fields = field_types(part), {field.name: field for field in dataclasses.fields(part)}
    values, problems = {}, []
    for name, value in given.items():
        try:
            values[name] = _fitted(value, kinds[name], name, bool(fields[name].metadata.get("joined")))
        except TypeError:
            joined = (
                f" or a list of {'paths' if is_path(name) else 'strings'}"
                if fields[name].metadata.get("joined")
                else ""
            )
            problems.append(
                f"{name} must be {_in_words(kinds[name], name)}{joined}. Received: {name}={shown(value)}. "
                f"{_way_out(name, value, kinds[name])}"
            )
    return values, problems


def is_path(name: str) -> bool:
    """Whether the option of this name takes a path, or several."""
    return name.endswith(_OF_PATHS) or name == "label_names"  # It may be a file of names.


def shown(value: Any) -> str:
    """A value of any type, such as a table, in a few words of one line."""
    if shape := getattr(value, "shape", None):
        return f"{type(value).__name__} of {' x '.join(map(str, shape))}"
    text = " ".join(reprlib.repr(value).split())
    return text if value is None or isinstance(value, bool) else f"{text} ({type(value).__name__})"


def _unknown(part: type, name: str, value: Any) -> str:
    """The line for a field that a configuration dataclass does not have."""
    own = list(field_types(part))
    near = [field for field in own if f"_{name}_" in f"_{field}_"]
    near = near or difflib.get_close_matches(name, own, n=3, cutoff=0.75)
    kinds = {other: field_types(other).get(name) for other in Options.__subclasses__()}
    others = [other.__name__ for other, kind in kinds.items() if kind and not dataclasses.is_dataclass(kind)]
    advice = f"It has {', '.join(own)}."
    if near or others:
        advice = f"Did you mean {' or '.join(near)}?" if near else f"It is one of {others[0]}."
    return f"{part.__name__} has no option of this name. Received: {name}={shown(value)}. {advice}"


def _fitted(value: Any, kind: Any, name: str, joined: bool = False) -> Any:
    """A value as its option holds it.

    Raises:
        TypeError: for a value of another type.
    """
    if get_origin(kind) is Literal:
        return _text(value)
    if get_origin(kind) is tuple:
        return _several(value, get_args(kind)[0], name)
    if members := get_args(kind):
        # A word before anything made of it: `balanced` is no list of one name.
        for member in sorted(members, key=lambda member: get_origin(member) is tuple):
            try:
                return _fitted(value, member, name, joined)
            except TypeError:
                continue
        raise TypeError
    if kind is str:
        return _joined(value, name) if joined and not isinstance(value, (str, os.PathLike)) else _named(value, name)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _own(value, kind)
    return {int: _integer, float: _real, bool: _truth, type(None): _none}[kind](value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value if type(value) is str else str(value)  # NumPy's are not JSON to all of its writers.


def _named(value: Any, name: str) -> str:
    """Text; for an option that takes a path, also a path."""
    if isinstance(value, Given | Recorded):
        return value
    if not is_path(name):
        return _text(value)
    text = _text(os.fspath(value))
    return str(pathlib.Path(text).expanduser()) if text.startswith("~/") else text


def _joined(value: Any, name: str) -> str:
    """Several values for an option that takes them separated by commas."""
    parts = _several(value, str, name)
    if any("," in part for part in parts):
        raise TypeError
    return ",".join(parts)


def _several(value: Any, kind: Any, name: str) -> tuple:
    """A list, a tuple or a one-dimensional array; or one value, but for text that may be several or one."""
    if isinstance(value, str) and not value:
        return ()
    if isinstance(value, str) and "," in value:
        raise TypeError
    if isinstance(value, (str, os.PathLike)) or (kind is int and isinstance(value, numbers.Integral)):
        value = (value,)
    elif not isinstance(value, (list, tuple, range)):
        if len(getattr(value, "shape", ())) != 1 or not hasattr(value, "tolist"):
            raise TypeError
        value = value.tolist()
    return tuple(_fitted(item, kind, name) for item in value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError
    return int(value)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError
    try:
        return float(value)
    except OverflowError:
        raise TypeError from None


def _truth(value: Any) -> bool:
    is_numpys = type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    if not isinstance(value, bool) and not is_numpys:
        raise TypeError
    return bool(value)


def _none(value: Any) -> None:
    if value is not None:
        raise TypeError


def _own(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _in_words(kind: Any, name: str) -> str:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return f"of type {kind.__name__}"
    if get_origin(kind) is Literal:
        words = [word for word in get_args(kind) if word]
        return f"one of {', '.join(words)}" if len(words) > 1 else repr(words[0])
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if item is str:
            return "a path or a list of paths" if is_path(name) and name != "label_names" else "a list of strings"
        return f"a list of {'integers' if item is int else 'numbers'}"
    if members := get_args(kind):
        return " or ".join(_in_words(member, name) for member in members if member is not type(None))
    text = "a path" if is_path(name) else "a string"
    return {int: "an integer", float: "a number", bool: "True or False", str: text}[kind]


def _way_out(name: str, value: Any, kind: Any) -> str:
    """What to pass instead."""
    if value is None:
        return "Leave it out for the default."
    if name in _OF_EXAMPLES:
        return f"Pass a path, or data in memory to tfbert.finetune as {name.removesuffix('_file')}=."
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return f"Pass {kind.__name__}(...)."
    if (meant := _meant(value, kind, name)) is not None:
        return f"Pass {name}={meant!r}."
    return "Pass one, or leave it out for the default."


def _meant(value: Any, kind: Any, name: str) -> Any:
    """The value of the right type that was probably meant; None where there is no telling."""
    kinds = get_args(kind) if get_origin(kind) not in (None, Literal, tuple) else (kind,)
    if isinstance(value, str):
        text = value.strip()
        if bool in kinds:
            return _TRUTH.get(text.lower())
        for member in (each for each in (int, float) if each in kinds):
            with contextlib.suppress(ValueError):
                return member(text)
        several = next((member for member in kinds if get_origin(member) is tuple), None)
        if several is not None and "," in text:
            item = get_args(several)[0]
            try:
                return [item(part.strip()) for part in text.split(",")]
            except ValueError:
                return None
    if isinstance(value, (int, list, tuple)) and any(item in kinds for item in (str, tuple[str, ...])):
        columns = value if isinstance(value, (list, tuple)) else [value]
        if columns and all(isinstance(item, int) and not isinstance(item, bool) for item in columns):
            return str(value) if str in kinds else [str(item) for item in columns]
    if int in kinds and isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value // 1:
        return int(float(value))
    if bool in kinds and isinstance(value, numbers.Integral) and value in (0, 1):
        return bool(value)
    return None
