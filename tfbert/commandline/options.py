"""A command's flags: one for each field of `Config`; files of flags and of options; and `--help`: what a command is,
examples, and its flags by topic, or one topic only. Imports no TensorFlow.

Files of options: `--config=run.yaml`, by the flags' names, YAML or JSON, where a value is a text as a flag's; files
of flags, and the presets that come with tfbert: `--flagfile=glue-sst2` finds its file from any directory.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import itertools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

from tfbert.config.modes import all_options
from tfbert.config.run import Command, Config
from tfbert.config.types import ALIASES, did_you_mean, in_words, path_of
from tfbert.devices.process import ASKS_FOR_HELP, WIDTH, flag_text, wrapped
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


def flags_in_file(path: pathlib.Path) -> list[str]:
    """The arguments in a file of flags: a line is one, but for those that begin with # or //, which are comments.

    Raises:
        UsageError: for a file that cannot be read.
    """
    lines = map(str.strip, read_text(FLAGFILE, path).splitlines())
    return [line for line in lines if line and not line.startswith(("#", "//"))]


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
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


class Pairs(list):
    """The names and values of an object: a dictionary would keep the last of two equal names."""


def read_config(path: str) -> list[tuple[str, Any, str]]:
    """What a file says, in its order: a name, its value, and where that is, such as ` in run.yaml, line 3`.

    A value is a text as it is written, True, False, None, a list of these, or `Pairs`.

    Raises:
        UsageError: for a file that cannot be read, is no object, or is the configuration of a run.
    """
    import yaml

    received, ending = f"Received: {CONFIG}={path!r}", pathlib.Path(path).suffix.lower()
    if ending not in (".yaml", ".yml", ".json"):
        todo = "Rename or convert it, or use --flagfile for a file of flags."
        raise UsageError(f"A file of options ends in .yaml or .json. {received}. {todo}")
    text = read_text(CONFIG, path)
    try:
        if ending == ".json":
            top = json.loads(text, object_pairs_hook=Pairs, parse_int=str, parse_float=str, parse_constant=str)
            found = [(*pair, f" in {path}") for pair in top] if isinstance(top, Pairs) else []
        else:
            # Not `yaml.load`: it reads 3e-5 as a text, 010 as 8, "no" as false, and keeps the last of two equal names.
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            lines = [f" in {path}, line {key.start_mark.line + 1}" for key, _ in pairs]
            found = [(str(key.value), _value_of(value), line) for (key, value), line in zip(pairs, lines, strict=True)]
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        rule, why = f"A {ending} file must be {'JSON' if ending == '.json' else 'YAML'}", " ".join(str(error).split())
        raise UsageError(f"{rule}. {received} ({why}). Repair it.") from None
    if {"data", "runtime", "output"} <= {name for name, *_ in found}:
        todo = f"Pass --run_config={path} to repeat that run."
        raise UsageError(f"{CONFIG} is a file of options by name. {received}, which a run wrote. {todo}")
    if not found:
        rule, todo = "A file of options has a flag's name and its value in each line", "Write for example seed: 7."
        raise UsageError(f"{rule}. {received}, which has none. {todo}")
    return found


def _value_of(node: Any) -> Any:
    """What a node of YAML says."""
    if node.id == "sequence":
        return [_value_of(item) for item in node.value]
    if node.id == "mapping":
        return Pairs((str(key.value), _value_of(value)) for key, value in node.value)
    return node.value if node.style else _WORDS.get(node.value.lower(), node.value)


class Flag(NamedTuple):
    """A flag.

    Attributes:
        name: That of the option which it sets, or of what else it is.
        help: What it does.
        kind: What its text is, as `of_text` has it.
        default: The option's; empty where it is none of a run's.
        is_joined: Whether its text may be several values with commas between.
        repeats: Whether each value has a flag of its own.
    """

    name: str
    help: str
    kind: Any = str
    default: Any = ""
    is_joined: bool = False
    repeats: bool = False

    @property
    def in_words(self) -> str:
        """What it takes."""
        return in_words(self.kind, self.name, is_joined=self.is_joined)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes, where it takes nothing else."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def is_switch(self) -> bool:
        """Whether it may stand without a value."""
        return bool in (self.kind, *get_args(self.kind))

    @property
    def takes_several(self) -> bool:
        """Whether it takes a list."""
        return self.repeats or self.is_joined or tuple in map(get_origin, (self.kind, *get_args(self.kind)))


RUN_CONFIG = "run_config"
_BESIDE = {
    RUN_CONFIG: "Repeat the run that wrote this run_config.json. Flags beside it replace its values.",
    CONFIG: "Read options from a .yaml or .json file: the flags' names without dashes, each with its value, or a list. "
    "Flags on the command line replace its values.",
    FLAGFILE: "Read flags from a file, one a line, or from a preset (see --help=presets).",
    "help": "Show this text, or only a topic, a flag, or all flags that speak of a word.",
}
"""The flags that are no options of a run."""


@functools.cache
def flags_of(command: Command) -> dict[str, Flag]:
    """All flags of a command by name, other names included."""
    found = {"mode": Flag("mode", command.texts["mode"], Literal[command.modes], Config().mode)}
    for name in command.names():
        part, field, kind = all_options()[name]
        about, text = field.metadata, command.texts.get(name) or field_docs(Config.classes()[part])[name]
        if about["needs"]:
            text = f"With --{about['needs']}: {text[0].lower()}{text[1:]}"
        kind = str if about["repeats"] else kind
        found[name] = Flag(name, text, kind, field.default, about["joined"], about["repeats"])
    found |= {alias: found[name] for alias, name in ALIASES.items()}
    return found | {name: Flag(name, text) for name, text in _BESIDE.items()}


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


_GENERAL, _PRESETS = "general", "presets"


def help_topic(arguments: Sequence[str]) -> str | None:
    """Whether a command line asks for help, and on what.

    Args:
        arguments: Those after the program.

    Returns:
        None where it does not; the topic of `--help=TOPIC` or `--help TOPIC`; empty for all.
    """
    for place, argument in enumerate(arguments):
        name, _, topic = argument.partition("=")
        if argument == "--":
            break
        if name in ASKS_FOR_HELP:
            following = arguments[place + 1 : place + 2]
            return topic or next((word for word in following if not word.startswith("-")), "")
    return None


def help_text(command: Command, topic: str, mode: str = "") -> str:
    """The help of a command, at most 100 columns wide.

    Args:
        command: The command.
        topic: A part of `Config` such as `training`, `general`, `presets`, the name of a flag, a word that flags
            speak of, or empty for everything.
        mode: Show the flags of this mode only; empty: all.

    Raises:
        UsageError: for an unknown topic.
    """
    values, topics, name = flags_of(command), _topics(command, mode), topic.lstrip("-")
    if name == _PRESETS:
        return _preset_list()
    if name in topics:
        return _topic(name, topics[name], values)
    if name in values:
        return _flag(name, values)
    if name:
        word = re.compile(rf"(?<![a-z0-9]){re.escape(name)}s?(?![a-z0-9])", re.IGNORECASE)
        all_flags = [each for names in topics.values() for each in names]
        if found := [each for each in all_flags if word.search(f"{each} {values[each].help}")]:
            return f"Flags that speak of '{name}':\n" + "".join(_flag(each, values) for each in found)
        advice = did_you_mean(name, [*topics, _PRESETS, *values]) or "See --help."
        rule = f"--help takes a topic ({', '.join([*topics, _PRESETS])}), a flag or a word of theirs"
        raise UsageError(f"{rule}. Received: help={topic!r}. {advice}")
    lines = wrapped(f"{command.typed}: the flags of mode={mode}. {command.summary}" if mode else command.summary, "")
    examples = [(arguments, what) for arguments, what in command.examples if not mode or f"--mode={mode}" in arguments]
    lines += ["", "Examples:", ""] if examples else []
    for arguments, what in examples:
        arguments = arguments.removeprefix(f"--mode={mode} ")
        typed = wrapped(f"{command.started} {arguments}", "  ", further=4, width=WIDTH - 2)
        lines += [f"  # {what[0].upper()}{what[1:]}:", " \\\n".join(typed)]
    lines += ["", *wrapped(f"Flags by topic; --help=TOPIC shows one: {', '.join([*topics, _PRESETS])}.", "")]
    return "\n".join(lines) + "\n\n" + "\n".join(_topic(name, names, values) for name, names in topics.items())


def _topics(command: Command, mode: str) -> dict[str, list[str]]:
    """The names of flags by topic; with a mode, those that have an effect in it."""
    topics = {_GENERAL: [*(() if mode else ("mode",)), CONFIG, RUN_CONFIG, FLAGFILE, "help"]}
    for name in command.names():
        option = all_options()[name]
        if not mode or mode in option.field.metadata["modes"]:
            topics.setdefault(option.part, []).append(name)
    return topics


def _topic(topic: str, names: Sequence[str], values: Mapping[str, Flag]) -> str:
    parts = Config.classes()
    about = parts[topic].__doc__ if topic in parts else "What to do, and where flags come from."
    lines = wrapped(f"{topic}: {' '.join((about or '').split())}", "")
    return "\n".join(lines) + "\n" + "".join(_flag(name, values) for name in names)


def _flag(name: str, values: Mapping[str, Flag]) -> str:
    """A flag: how it is written, what it does, its default."""
    flag = values[name]
    names = [name, *(alias for alias, own in ALIASES.items() if own == name)]
    return flag_text(names, _takes(flag.kind), flag.help, flag.default)


def _takes(kind: Any) -> str:
    """What follows a flag's `=`; empty for a switch."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    members = get_args(kind)
    if get_origin(kind) is tuple or tuple in [get_origin(member) for member in members]:
        return "A,B"
    if members:
        return "|".join(_takes(member) for member in members if member is not type(None))
    return {int: "N", float: "X", str: "TEXT", bool: ""}[kind]


def _preset_list() -> str:
    lines = ["Presets for --flagfile=NAME. Flags after it replace the preset's. Each file begins with commands:", ""]
    for name, path in presets().items():
        about = path.read_text(encoding="utf-8").partition("\n#\n")[0].replace("\n#", "").lstrip("# ")
        if about.endswith(":"):  # Its last sentence leads to the commands, which are left out here.
            about = about.rpartition(". ")[0] + "." if ". " in about else about.removesuffix(":")
        lines += [f"  {name}", *wrapped(about, "      ")]
    return "\n".join(lines) + "\n"
