"""`--config=run.yaml`: a file of options by the flags' names, YAML or JSON. A value is a text, as a flag's."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

from tfbert.commandline.presets import files_named, read_text
from tfbert.config.run import Config
from tfbert.errors import UsageError

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
