"""`--config=run.yaml`: a file of options by the flags' names, YAML or JSON, as the arguments that they stand for."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from tfbert.commandline.options import ALIASES, define_flags, is_run_config
from tfbert.config.commands import Command
from tfbert.config.rules import meant, path_of
from tfbert.config.run import Config
from tfbert.config.sweep import way_to_vary
from tfbert.errors import UsageError

NAME = "config"
_YAML, _JSON = (".yaml", ".yml"), (".json",)
_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_BOOLEAN = re.compile("true|True|TRUE|false|False|FALSE")
_NULL = re.compile("|null|Null|NULL|~")
_MOST_PROBLEMS = 5


@dataclasses.dataclass(frozen=True)
class _Value:
    """A value as it is written.

    Attributes:
        text: Its text; for a list or an object, some JSON or YAML to show.
        items: Of a list.
        names: Of an object.
        is_boolean: Whether it is true or false, not a text.
        is_null: Whether there is none.
        line: Of the file, from 1; 0 where it is not known.
    """

    text: str
    items: tuple[_Value, ...] | None = None
    names: tuple[str, ...] | None = None
    is_boolean: bool = False
    is_null: bool = False
    line: int = 0


_Pairs = list[tuple[str, _Value]]


def take_config(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The file that a command line names with `--config`, empty for none, and the other arguments.

    Raises:
        UsageError: for two files, or none after the flag.
    """
    rest, paths, left = [], [], iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if argument == "--":
            rest += [argument, *left]
        elif name not in (f"--{NAME}", f"-{NAME}"):
            rest.append(argument)
        elif not equals and (value := next(left, None)) is None:
            raise UsageError(f"{NAME} takes a file. Received: --{NAME} at the end. Write --{NAME}=run.yaml.")
        elif value.strip():  # As for flag files, an empty value means no file.
            paths.append(value.strip())
    if len(paths) > 1:
        raise UsageError(
            f"A run has one file of options. Received: {NAME}={','.join(paths)!r}. Put all options into one of them."
        )
    return "".join(paths), rest


def config_arguments(path: str, command: Command, advice: Callable[[str, str], str]) -> list[str]:
    """The arguments that a file stands for, in its order.

    Args:
        path: A .yaml or .json of one object: the flags' names without dashes, each with a value or a list. A value of
            null is as good as no line.
        command: Whose flags they are.
        advice: For a name that is no flag, and its value, a sentence with what may be meant, or an empty one.

    Raises:
        UsageError: for a file that cannot be read, a name that is no flag or occurs twice, or a value of another type;
            a line for each, with its place in the file.
    """
    file = path_of(path, "config")
    pairs, out, problems = _read(file), [], []
    values = flags.FlagValues()
    define_flags(values, command)
    known = {name: values[name] for name in values} | {"flagfile": None}
    seen: dict[str, str] = {}
    for name, value in pairs:
        where = f"in {path}" + f", line {value.line}" * bool(value.line)
        own = ALIASES.get(name, name)
        if value.names is not None:
            form = f"{value.names[0]}: ..." if value.names else "NAME: VALUE"
            problems.append(
                "A file of options is flat, a flag's name and its value in each line. "
                f"Received: an object as {name!r} {where}. Write {form} without {name!r} above it."
            )
        elif name == NAME:
            problems.append(f"A file of options names no other. Received: {name!r} {where}. Put all options into one.")
        elif name not in known:
            found = advice(name, value.text) or "See --help."
            problems.append(f"Every name must be that of a flag. Received: {name!r} {where}. {found}")
        elif own in seen:
            twice = f"{name!r} twice" if seen[own] == name else f"{seen[own]!r} and {name!r}, which are the same"
            problems.append(f"Every option has one value. Received: {twice}, {where}. Drop one.")
        elif not value.is_null:
            problem, arguments = _arguments(name, value, known[name])
            problems += [f"{problem} Received: {name}: {value.text} {where}. {_todo(name, value, known[name])}"] * bool(
                problem
            )
            out += arguments
        seen.setdefault(own, name)
    if len(problems) > _MOST_PROBLEMS:
        problems[_MOST_PROBLEMS - 1 :] = [f"... and {len(problems) - _MOST_PROBLEMS + 1} more problems in {path}."]
    if problems:
        raise UsageError("\n".join(problems))
    return out


def _arguments(name: str, value: _Value, flag: flags.Flag | None) -> tuple[str, list[str]]:
    """What is wrong with a value, empty if nothing is; and the arguments that set it."""
    has_joined = name in _with_joined_values()
    takes_list = isinstance(flag, flags.MultiFlag) or isinstance(getattr(flag, "parser", None), flags.ListParser)
    takes_list = takes_list or has_joined
    items = value.items if value.items is not None else (value,)
    if value.items is not None and not takes_list:
        return f"{name} takes one value, not a list.", []
    if any(item.items is not None or item.names is not None or item.is_null for item in items):
        return f"{name} takes a list of plain values.", []
    if flag is not None and flag.boolean:
        is_on = _SWITCH.get(value.text.lower())
        return ("", [f"--{name}={str(is_on).lower()}"]) if is_on is not None else (f"{name} is true or false.", [])
    if any(item.is_boolean for item in items):
        return f"{name} is {kind_of(flag)}, not true or false.", []
    if isinstance(flag, flags.MultiFlag):
        return "", [f"--{name}={item.text}" for item in items]
    if has_joined and len(items) > 1 and any("," in item.text for item in items):
        return f"{name} takes values without commas in them.", []
    text = value.text if value.items is None else _joined([item.text for item in items])
    try:
        if flag is not None:
            flag.parser.parse(text)
    except (ValueError, TypeError):
        return f"{name} is {kind_of(flag)}.", []
    return "", [f"--{name}={text}"]


def _with_joined_values() -> set[str]:
    """The options whose text may be several values with commas between."""
    fields = (field for part in Config.classes().values() for field in dataclasses.fields(part))
    return {field.name for field in fields if field.metadata.get("joined")}


def kind_of(flag: flags.Flag | None) -> str:
    """What a flag takes, in words."""
    if choices := getattr(getattr(flag, "parser", None), "enum_values", None):
        return f"one of {', '.join(choices)}"
    kind = "" if flag is None else flag.flag_type()
    if kind == "bool":
        return "true or false"
    if kind.startswith("integer or"):
        return f"an {kind}"
    return {"int": "an integer", "float": "a number", "comma separated list of strings": "a list"}.get(kind, "a text")


def _todo(name: str, value: _Value, flag: flags.Flag | None) -> str:
    if known := meant(name, value.text, getattr(getattr(flag, "parser", None), "enum_values", None) or ()):
        return f"Write {name}: {known}."
    if value.is_boolean:
        return 'Put it in quotes, "true", if it is a name.'
    if value.items and (way := way_to_vary(name, ",".join(item.text for item in value.items), Config.classes())):
        return f"To train once with each, pass {way}."
    return f"--help={name} says what it takes."


def _joined(values: list[str]) -> str:
    """A list as a flag takes it."""
    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow(values)
    return file.getvalue()


def _read(file: pathlib.Path) -> _Pairs:
    """The names and values of a file, in its order.

    Raises:
        UsageError: for a file that cannot be read, is no object, or is the configuration of a run.
    """
    ending = file.suffix.lower()
    if ending not in (*_YAML, *_JSON):
        todo = "Use --flagfile for a file of flags." if ending in (".flags", ".txt") else "Rename or convert it."
        raise UsageError(f"A file of options ends in .yaml or .json. Received: {NAME}={str(file)!r}. {todo}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UsageError(
            f"{NAME} must be readable text. Received: {NAME}={str(file)!r} ({reason}). Check it."
        ) from None
    if ending in _JSON and is_run_config(text):
        raise UsageError(
            f"{NAME} is a file of options by the flags' names. Received: {NAME}={str(file)!r}, which a run wrote. "
            f"Pass --run_config={file} to repeat that run."
        )
    pairs = _json_pairs(text, file) if ending in _JSON else _yaml_pairs(text, file)
    if not pairs:
        raise UsageError(
            f"A file of options has a flag's name and its value in each line. Received: {NAME}={str(file)!r} without "
            "any. Write for example learning_rate: 3e-5."
        )
    return pairs


def _yaml_pairs(text: str, file: pathlib.Path) -> _Pairs:
    # Not `yaml.load`: it would read 3e-5 as a text, 010 as 8 and "no" as false, and keep the last of two equal names.
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UsageError(
            f"A .yaml file must be YAML. Received: {NAME}={str(file)!r} ({problem}"
            f"{f', line {mark.line + 1}' if mark else ''}). Repair it."
        ) from None
    if node is None:
        return []
    if not isinstance(node, yaml.MappingNode):
        raise _no_object(file)

    def value_of(node: yaml.Node) -> _Value:
        line = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            items = tuple(map(value_of, node.value))
            return _Value(f"[{', '.join(item.text for item in items)}]", items=items, line=line)
        if isinstance(node, yaml.MappingNode):
            return _Value("{...}", names=tuple(str(key.value) for key, _ in node.value), line=line)
        is_plain = not getattr(node, "style", None)
        return _Value(
            node.value,
            is_boolean=is_plain and bool(_BOOLEAN.fullmatch(node.value)),
            is_null=is_plain and bool(_NULL.fullmatch(node.value)),
            line=line,
        )

    return [
        (str(key.value), dataclasses.replace(value_of(value), line=key.start_mark.line + 1))
        for key, value in node.value
    ]


def _json_pairs(text: str, file: pathlib.Path) -> _Pairs:
    class Object(list):
        """The pairs of an object: a dictionary would keep the last of two equal names."""

    class Number(str):
        """A number as it is written."""

    try:
        found = json.loads(text, object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=Number)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"A .json file must be JSON. Received: {NAME}={str(file)!r} ({error}). Repair it.") from None
    if not isinstance(found, Object):
        raise _no_object(file)

    def value_of(value: Any) -> _Value:
        if isinstance(value, Object):
            return _Value("{...}", names=tuple(name for name, _ in value))
        if isinstance(value, list):
            items = tuple(map(value_of, value))
            return _Value(f"[{', '.join(item.text for item in items)}]", items=items)
        if value is None or isinstance(value, bool):
            return _Value(json.dumps(value), is_boolean=value is not None, is_null=value is None)
        return _Value(str(value))

    return [(name, value_of(value)) for name, value in found]


def _no_object(file: pathlib.Path) -> UsageError:
    return UsageError(
        "A file of options has a flag's name and its value in each line. "
        f"Received: {NAME}={str(file)!r}, which has none. Write for example learning_rate: 3e-5."
    )
