"""One flag for each field of a configuration dataclass: name, default, type and help all come from there."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from absl import flags

from tfbert.config.types import field_types
from tfbert.errors import UsageError


def define_fields(
    part: type,
    names: Iterable[str],
    values: flags.FlagValues,
    *,
    choices: Mapping[str, Sequence[str]] | None = None,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Declares the flags of some fields of a configuration dataclass, each of which is followed by a docstring.

    Args:
        part: The dataclass.
        names: The fields.
        values: Where to declare them.
        choices: The words that a field takes, where these are not all the words of its type.
        texts: The help of a field, where it is not the docstring.
    """
    types, docs = field_types(part), field_docs(part) | dict(texts or {})
    fields = {field.name: field for field in dataclasses.fields(part)}
    for name in names:
        kind = Literal[tuple(choices[name])] if choices and name in choices else types[name]
        doc = docs[name]
        if needs := fields[name].metadata.get("needs"):
            doc = f"With --{needs}: {doc[0].lower()}{doc[1:]}"
        if fields[name].metadata.get("repeats"):
            flags.DEFINE_multi_string(name, list(getattr(part, name)), doc, flag_values=values)
            values[name].help = doc  # absl adds how to repeat a flag.
        else:
            _define(name, fields[name].default, kind, doc, values)


def part_from_flags(base: Any, names: Iterable[str], values: flags.FlagValues, *, only_given: bool) -> Any:
    """A configuration part with the flags' values.

    Args:
        base: The dataclass instance that flags change.
        names: Its fields that are flags.
        values: Parsed flags.
        only_given: Change only the fields whose flag was on the command line.
    """
    types = field_types(type(base))
    changes = {
        name: _to_field(values[name].value, name, types[name])
        for name in names
        if values[name].present or not only_given
    }
    # The shell expands ~ in `--name ~/x`, but not in `--name=~/x`.
    changes |= {
        name: str(pathlib.Path(value).expanduser())
        for name, value in changes.items()
        if name.endswith(("_file", "_dir", "_path")) and str(value).startswith("~/")
    }
    return dataclasses.replace(base, **changes)


class _NumberOrWord(flags.ArgumentParser):
    """Parses a number, or one of a few words."""

    def __init__(self, kind: type, words: list[str]):
        self._kind, self._words = kind, words

    def parse(self, argument: str | float | None) -> str | float | None:
        if argument is None or argument in self._words or isinstance(argument, self._kind):
            return argument
        try:
            return self._kind(argument)
        except ValueError:
            raise ValueError(f"must be {self._article} {self.flag_type()}") from None

    @property
    def _article(self) -> str:
        return "an" if self._kind is int else "a"

    def flag_type(self) -> str:
        return f"{'integer' if self._kind is int else 'number'} or {' or '.join(self._words)}"


def _define(name: str, default: Any, kind: Any, doc: str, values: flags.FlagValues) -> None:
    members = [m for m in (get_args(kind) or (kind,)) if m is not type(None)]
    if members == [bool]:
        flags.DEFINE_boolean(name, default, doc, flag_values=values)
    elif get_origin(kind) is Literal:
        flags.DEFINE_enum(name, default, list(members), doc, flag_values=values)
    elif kind is int or members == [int]:
        flags.DEFINE_integer(name, default, doc, flag_values=values)
    elif len(members) > 1 and members[0] in (int, float) and get_origin(kind) is not tuple:  # Or a word.
        parser = _NumberOrWord(members[0], [word for member in members for word in get_args(member)])
        flags.DEFINE(parser, name, default, doc, flag_values=values, serializer=flags.ArgumentSerializer())
    elif members == [float]:
        flags.DEFINE_float(name, default, doc, flag_values=values)
    elif kind is str:
        flags.DEFINE_string(name, default, doc, flag_values=values)
    else:  # Comma-separated values, or a word.
        flags.DEFINE_list(name, list(default), doc, flag_values=values)


def _to_field(value: Any, name: str, kind: Any) -> Any:
    if not isinstance(value, list):
        return value
    if kind == tuple[str, ...]:
        return tuple(value)
    if kind == tuple[int, ...]:
        return _numbers(value, name, int, "integers separated by commas", "1,2")
    words = [word for member in get_args(kind) if get_origin(member) is Literal for word in get_args(member)]
    if not value or ",".join(value) in words:
        return ",".join(value)
    return _numbers(value, name, float, f"numbers separated by commas, or {' or '.join(filter(None, words))}", "1,2.5")


def _numbers(values: list[str], name: str, kind: type, rule: str, example: str) -> tuple:
    try:
        return tuple(kind(value) for value in values)
    except ValueError:
        raise UsageError(
            f"{name} takes {rule}. Received: {name}={','.join(values)!r}. Pass for example --{name}={example}."
        ) from None


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
