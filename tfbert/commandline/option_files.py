"""Files of options: `--config=run.yaml`, by the flags' names, YAML or JSON, where a value is a text as a flag's; files
of flags, and the presets that come with tfbert: `--flagfile=glue-sst2` finds its file from any directory."""

from __future__ import annotations

import difflib
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from tfbert.config.rules import path_of
from tfbert.config.run import Config
from tfbert.errors import UsageError

_PACKAGE = pathlib.Path(__file__).parents[1]
_PLACES = (_PACKAGE / "presets", _PACKAGE.parent / "flags" / "presets")
"""In a wheel, and in a clone."""
_IN_CLONE = "flags/presets/"
_ENDING = ".flags"
FLAGFILE = "flagfile"


def presets() -> dict[str, pathlib.Path]:
    """The presets' files by name, in order: `glue-sst2`, `pretraining/bert-base-phase1`."""
    directory = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
    paths = sorted(directory.rglob(f"*{_ENDING}"))
    return {path.relative_to(directory).as_posix().removesuffix(_ENDING): path for path in paths}


def find_flagfile(name: str) -> pathlib.Path:
    """The file that a name stands for: one that is there, else the preset of that name.

    Args:
        name: A path, or a preset's name, with or without its ending and `flags/presets/` in front.

    Raises:
        UsageError: for a name that is neither, with the nearest presets.
    """
    path = path_of(name, "flagfile")
    if path.is_file():
        return path
    known = presets()
    wanted = path.as_posix().removeprefix(_IN_CLONE).removesuffix(_ENDING)
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=3) or sorted(key for key in known if wanted and wanted in key)
    rule = "flagfile must be a file, or the name of a preset"
    todo = f"Check the path, or pass {'' if len(near) == 1 else 'one of '}{', '.join(near or known)}."
    raise UsageError(f"{rule}. Received: flagfile={name!r}. {todo}")


def expand_flagfiles(arguments: Iterable[str]) -> list[str]:
    """A command line with the lines of its flag files in their places.

    A line is an argument; one that begins with # or // is a comment. A flag file may name others.

    Args:
        arguments: Those after the program.

    Raises:
        UsageError: for a file that does not exist or cannot be read.
    """
    return list(_expanded(arguments, within=()))


def _expanded(arguments: Iterable[str], within: tuple[pathlib.Path, ...]) -> Iterator[str]:
    for is_file, text in files_named(arguments, FLAGFILE, "NAME"):
        if not is_file:
            yield text
            continue
        path = find_flagfile(text)
        if path in within:
            rule = "A flag file must not include itself"
            raise UsageError(f"{rule}. Received: flagfile={str(path)!r}. Remove that line.")
        lines = map(str.strip, read_text(FLAGFILE, path).splitlines())
        yield from _expanded([line for line in lines if line and not line.startswith(("#", "//"))], (*within, path))


def files_named(arguments: Iterable[str], flag: str, example: str) -> Iterator[tuple[bool, str]]:
    """A command line in parts: the files that a flag names, True before each; and all other arguments. An empty name
    means no file: a script may have none.

    Raises:
        UsageError: for a flag at the end, without a name.
    """
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if argument == "--":
            yield from ((False, other) for other in (argument, *left))
        elif name not in (f"--{flag}", f"-{flag}"):
            yield False, argument
        elif not equals and (value := next(left, None)) is None:
            raise UsageError(f"{flag} takes a file. Received: --{flag} at the end. Write --{flag}={example}.")
        elif value.strip():
            yield True, value.strip()


def read_text(option: str, path: str | pathlib.Path) -> str:
    """The text of a file that an option names.

    Raises:
        UsageError: for a file that cannot be read, or is not UTF-8.
    """
    try:
        return pathlib.Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:  # Of an unknown user, or with a NUL, the path is no path.
        reason = "not UTF-8" if isinstance(error, UnicodeError) else getattr(error, "strerror", None) or str(error)
        rule = f"{option} must be a file of text"
        raise UsageError(f"{rule}. Received: {option}={str(path)!r} ({reason}). Check the path.") from None


CONFIG = "config"
YAML = (".yaml", ".yml")
_FORM = "A file of options has a flag's name and its value in each line"
_WORDS = {
    spelt: value
    for word, value in {"true": True, "false": False, "null": None, "~": None, "": None}.items()
    for spelt in (word, word.title(), word.upper())
}
_EXAMPLE = "Write for example learning_rate: 3e-5."


class Pairs(list):
    """The names and values of an object: a dictionary would keep the last of two equal names."""


def take_config(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The file that a command line names with `--config`, empty for none, and the other arguments.

    Raises:
        UsageError: for two files, or none after the flag.
    """
    parts = [*files_named(arguments, CONFIG, "run.yaml")]
    paths = [text for is_file, text in parts if is_file]
    if len(paths) > 1:
        rule = "A run has one file of options"
        raise UsageError(f"{rule}. Received: {CONFIG}={','.join(paths)!r}. Put all options into one of them.")
    return "".join(paths), [text for is_file, text in parts if not is_file]


def read_config(path: str) -> list[tuple[str, Any, str]]:
    """What a file says, in its order: a name, its value, and where that is, such as ` in run.yaml, line 3`.

    A value is a text as it is written, True, False, None, a list of these, or `Pairs`.

    Raises:
        UsageError: for a file that cannot be read, is no object, or is the configuration of a run.
    """
    received = f"Received: {CONFIG}={path!r}"
    ending = pathlib.Path(path).suffix.lower()
    if ending not in (*YAML, ".json"):
        todo = "Use --flagfile for a file of flags." if ending in (".flags", ".txt") else "Rename or convert it."
        raise UsageError(f"A file of options ends in .yaml or .json. {received}. {todo}")
    text = read_text(CONFIG, path)
    if ending in YAML:
        found = _read_yaml(text, path)
    elif kind_of_json(text) == "run":
        todo = f"Pass --run_config={path} to repeat that run."
        raise UsageError(f"{CONFIG} is a file of options by the flags' names. {received}, which a run wrote. {todo}")
    else:
        try:
            found = json.loads(text, object_pairs_hook=Pairs, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"A .json file must be JSON. {received} ({error}). Repair it.") from None
        found = [(*pair, f" in {path}") for pair in found] if isinstance(found, Pairs) else []
    if not found:
        raise UsageError(f"{_FORM}. {received}, which has none. {_EXAMPLE}")
    return found


def _read_yaml(text: str, path: str) -> list[tuple[str, Any, str]]:
    # Not `yaml.load`: it would read 3e-5 as a text, 010 as 8 and "no" as false, and keep the last of two equal names.
    import yaml

    def value_of(node: yaml.Node) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return [value_of(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return Pairs((str(key.value), value_of(value)) for key, value in node.value)
        return node.value if getattr(node, "style", None) else _WORDS.get(node.value, node.value)

    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
        pairs = top.value if isinstance(top, yaml.MappingNode) else []
        return [
            (str(key.value), value_of(value), f" in {path}, line {key.start_mark.line + 1}") for key, value in pairs
        ]
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = f", line {mark.line + 1}" if mark else ""
        rule = "A .yaml file must be YAML"
        raise UsageError(f"{rule}. Received: {CONFIG}={path!r} ({problem}{line}). Repair it.") from None


def kind_of_json(text: str) -> Literal["run", "flat", ""]:
    """What a text is: the configuration that a run wrote, an object with an object for each part; an object without
    objects, for `--config`; or neither."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(values, dict):
        return ""
    objects = {name for name, value in values.items() if isinstance(value, dict)}
    if {"model", "data", "training", "runtime", "output"} <= objects:
        return "run"
    return "flat" if not objects and values.keys() - Config.classes().keys() - {"mode"} else ""
