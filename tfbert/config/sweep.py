"""`--sweep`: options with several values each -> the runs of their grid. Imports nothing but the standard library."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, get_origin

from tfbert.config.modes import one_output, replaced
from tfbert.config.parts import Parts
from tfbert.config.types import ALIASES, field_types, in_words, nearest, of_text
from tfbert.errors import UsageError

_FIXED = ("seed", "task", "strategy", "metric_for_best_model")
"""Options with other values of which runs could not be ranked; those of `resume="free"` decide nothing of a result."""
_LONGEST_NAME = 180
_FORM = "Write for example --sweep='learning_rate=1e-5,3e-5;global_batch_size=16,32'"


@dataclasses.dataclass(frozen=True)
class Point:
    """A run of the grid.

    Attributes:
        values: The value of each option that is varied, by its name.
        config: The run, perhaps with several seeds; it sweeps nothing itself.
    """

    values: Mapping[str, Any]
    config: Any

    @property
    def label(self) -> str:
        """What messages and tables call it: `learning_rate=1e-05, global_batch_size=16`."""
        return ", ".join(f"{name}={shown(value)}" for name, value in self.values.items())

    @property
    def directory(self) -> str:
        """The name of its directory: the same values have the same name, however they were written."""
        parts = [f"{name}={urllib.parse.quote(shown(value), safe='+')}" for name, value in self.values.items()]
        name = ",".join(parts)
        if len(name) <= _LONGEST_NAME:
            return name
        return f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def shown(value: Any) -> str:
    """A value as it may be typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return text if float(text := f"{value:g}") == value else repr(value)
    return str(value)


def sweep_text(values: Mapping[str, Sequence[Any]]) -> str:
    """What `--sweep` takes for these values of options."""
    return ";".join(f"{name}={','.join(_quoted(shown(value)) for value in given)}" for name, given in values.items())


def axes_of(text: str) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """The options that a sweep varies, each with its part of `Config` and its values; in the order of `Config`, so that
    another order of the text is the same sweep.

    Args:
        text: As `RuntimeConfig.sweep` has it.

    Raises:
        UsageError: for text of another form; an unknown option, one that cannot vary, or one that is there twice; a
            value of another type, no value, or a value that is there twice.
    """
    parts = Parts.classes()
    fields = {f.name: (part, f) for part, kind in parts.items() for f in dataclasses.fields(kind)}
    found = {}
    for item in _split(text, ";"):
        given, equals, values = item.partition("=")
        given = given.strip().removeprefix("--")
        name = ALIASES.get(given, given)
        if not equals:
            raise UsageError(f"A sweep is a list of NAME=VALUE,VALUE,... with ; between. Received: {item!r}. {_FORM}.")
        if name not in fields:
            near = nearest(name, fields)
            advice = f"Did you mean {' or '.join(near)}?" if near else "--help lists the options."
            raise UsageError(f"A sweep varies options by their names. Received: sweep={item!r}. {advice}")
        part, field = fields[name]
        _check_can_vary(name, field)
        if name in found:
            raise UsageError(f"A sweep names each option once. Received: {name!r} twice. Put its values together.")
        kind = field_types(parts[part])[name]
        if get_origin(kind) is tuple:
            raise UsageError(f"A sweep cannot vary {name}, which takes a list. Received: sweep={item!r}. Drop it.")
        found[name] = part, _values(name, values, kind, item)
    if not found:
        raise UsageError(f"A sweep varies at least one option. Received: sweep={text!r}. {_FORM}, or drop --sweep.")
    return {name: found[name] for name in fields if name in found}


def way_to_vary(name: str, values: str) -> str:
    """The flag that trains once with each of several values of an option; empty where none does, for values that the
    option does not take, and for one that takes several at once.

    Args:
        name: The option.
        values: With commas between, as `--sweep` takes them.
    """
    if name == "seed":
        seeds = [value.strip() for value in values.split(",")]
        return f"--seeds={','.join(seeds)}" if all(seed.isdecimal() for seed in seeds) else ""
    joined = {f.name for part in Parts.classes().values() for f in dataclasses.fields(part) if f.metadata["joined"]}
    try:
        return f"--sweep='{name}={values}'" if name not in joined and axes_of(f"{name}={values}") else ""
    except UsageError:
        return ""


def points_of(config: Parts) -> list[Point]:
    """The runs of a configuration's sweep, the last option varying fastest.

    Raises:
        UsageError: as `axes_of`, and naming the rules that single runs break.
    """
    axes = axes_of(config.runtime.sweep)
    points, problems = [], []
    for chosen in itertools.product(*(values for _, values in axes.values())):
        values = dict(zip(axes, chosen, strict=True))
        changed: dict[str, Any] = {"runtime": dataclasses.replace(config.runtime, sweep="")}
        try:
            for name, value in values.items():
                part, _ = axes[name]
                changed[part] = dataclasses.replace(changed.get(part, getattr(config, part)), **{name: value})
            points.append(Point(values, dataclasses.replace(config, **changed)))
        except UsageError as error:
            problems += str(error).splitlines()
    if problems:
        raise UsageError("\n".join(dict.fromkeys(problems)))
    return points


def sweep_problems(config: Parts) -> list[str]:
    """What is wrong with a configuration that has a sweep, a line each. It is the runs of the grid that must be right:
    the configuration itself lacks the values that are varied."""
    try:
        points = points_of(config)
    except UsageError as error:
        return str(error).splitlines()
    return one_output(config, "sweep", "a sweep makes several") + replaced(config.given(*points[0].values), "sweep")


def _check_can_vary(name: str, field: dataclasses.Field) -> None:
    """Refuses an option of which other values make no other result.

    Raises:
        UsageError: saying what to do.
    """
    if "train" in field.metadata["modes"] and field.metadata["resume"] not in (None, "free") and name not in _FIXED:
        return
    ways = {
        "seed": "Pass --seeds=1,2,3 beside the sweep.",
        "seeds": "Pass --seeds=1,2,3 beside the sweep.",
        "output_dir": "Each run has a directory of its own in output_dir.",
    }
    raise UsageError(f"A sweep cannot vary {name}. Received: sweep with {name}. {ways.get(name, 'Drop it.')}")


def _values(name: str, text: str, kind: Any, item: str) -> tuple[Any, ...]:
    found = []
    for word in _split(text, ",", keep_empty=True):
        word = word.strip()
        if len(word) > 1 and word[0] == word[-1] == '"':
            word = word[1:-1].replace('""', '"')
        if not word:
            rule = "Each option of a sweep has values"
            raise UsageError(f"{rule}. Received: sweep={item!r}, with an empty one. {_FORM}.")
        try:
            value = of_text(kind, word)
            if isinstance(value, tuple):
                raise ValueError
        except ValueError:
            rule = f"{name} must be {in_words(kind, name)}"
            raise UsageError(f"{rule}. Received: {word!r} in sweep={item!r}. Repair or drop it.") from None
        if value in found:
            raise UsageError(f"Each value of a sweep has one run. Received: {name}={shown(value)} twice. Drop one.")
        found.append(value)
    return tuple(found)


def _split(text: str, separator: str, *, keep_empty: bool = False) -> list[str]:
    """A text's parts between separators that are not in double quotes; an empty one at the end does not count."""
    parts, is_quoted = [""], False
    for character in text:
        is_quoted ^= character == '"'
        if character == separator and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts if keep_empty else [part.strip() for part in parts if part.strip()]


def _quoted(text: str) -> str:
    if text == text.strip() and text and not {*text} & {*',;"'}:
        return text
    return '"' + text.replace('"', '""') + '"'
