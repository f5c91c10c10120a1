"""A command's flags: one for each field of `Config`, and the `Config` that they make; and `--help`: what a command is,
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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

from absl import flags

from tfbert.config.modes import all_options
from tfbert.config.run import FINETUNE, PRETRAIN, Command, Config
from tfbert.config.tables import facts_of
from tfbert.config.types import ALIASES, in_words, nearest, of_text, path_of
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


def expand_flagfiles(arguments: Iterable[str], within: tuple[pathlib.Path, ...] = ()) -> list[str]:
    """A command line with the lines of its flag files in their places.

    A line is an argument; one that begins with # or // is a comment. A flag file may name others.

    Args:
        arguments: Those after the program.
        within: The files that these are the lines of, from the outermost.

    Raises:
        UsageError: for a file that does not exist or cannot be read.
    """
    found = []
    for is_file, text in files_named(arguments, FLAGFILE, "NAME"):
        if not is_file:
            found.append(text)
            continue
        path = find_flagfile(text)
        if path in within:
            rule = "A flag file must not include itself"
            raise UsageError(f"{rule}. Received: flagfile={str(path)!r}. Remove that line.")
        lines = map(str.strip, read_text(FLAGFILE, path).splitlines())
        own = [line for line in lines if line and not line.startswith(("#", "//"))]
        found += expand_flagfiles(own, (*within, path))
    return found


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
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
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
        todo = "Rename or convert it, or use --flagfile for a file of flags."
        raise UsageError(f"A file of options ends in .yaml or .json. {received}. {todo}")
    text = read_text(CONFIG, path)
    if ending in YAML:
        found = _read_yaml(text, path)
    else:
        try:
            found = json.loads(text, object_pairs_hook=Pairs, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"A .json file must be JSON. {received} ({error}). Repair it.") from None
        found = [(*pair, f" in {path}") for pair in found] if isinstance(found, Pairs) else []
        if {"data", "runtime", "output"} <= {name for name, *_ in found}:
            todo = f"Pass --run_config={path} to repeat that run."
            raise UsageError(f"{CONFIG} is a file of options by name. {received}, which a run wrote. {todo}")
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
        return node.value if getattr(node, "style", None) else _WORDS.get(node.value.lower(), node.value)

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


RUN_CONFIG = "run_config"
_ABOUT_CONFIG = (
    "Read options from a .yaml or .json file: the flags' names without dashes, each with its value, or a list. "
    "Flags on the command line replace its values."
)
_ABOUT_FLAGFILE = "Read flags from a file, one a line, or from a preset (see --help=presets)."
_ABOUT_HELP = "Show this text, or only a topic, a flag, or all flags that speak of a word."


class OptionParser(flags.ArgumentParser):
    """Reads the text of a flag as its option's type says.

    Attributes:
        kind: The type.
        name: The option's name.
        is_joined: Whether its text may be several values with commas between.
    """

    def __init__(self, kind: Any, name: str, is_joined: bool = False):
        self.kind, self.name, self.is_joined = kind, name, is_joined

    def parse(self, argument: Any) -> Any:
        try:
            return of_text(self.kind, argument) if isinstance(argument, str) else argument
        except ValueError:
            raise ValueError(f"must be {self.in_words}") from None

    @property
    def in_words(self) -> str:
        """What it takes."""
        return in_words(self.kind, self.name, is_joined=self.is_joined)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes, where it takes nothing else."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def takes_several(self) -> bool:
        """Whether it takes a list."""
        return self.is_joined or tuple in [get_origin(kind) for kind in (self.kind, *get_args(self.kind))]


def define_flags(flag_values: flags.FlagValues = flags.FLAGS, command: Command = FINETUNE) -> None:
    """Declares every flag of a command: name, default, type and help are those of a field of `Config`."""
    modes, docs = Literal[command.modes], docs_of(command)
    flags.DEFINE_flag(flags.Flag(OptionParser(modes, "mode"), None, "mode", Config().mode, docs["mode"]), flag_values)
    for name in command.names():
        option, doc = all_options()[name], docs[name]
        if option.field.metadata["repeats"]:
            flag = flags.MultiFlag(OptionParser(str, name), None, name, [], doc)
        else:
            is_switch = option.kind is bool or bool in get_args(option.kind)
            parser = OptionParser(option.kind, name, option.field.metadata["joined"])
            flag = flags.Flag(parser, None, name, option.field.default, doc, boolean=is_switch)
        flags.DEFINE_flag(flag, flag_values)
        flag.help = doc  # absl adds how to repeat a flag.
    for alias, name in ALIASES.items():
        flags.DEFINE_alias(alias, name, flag_values=flag_values)
    text = "Repeat the run that wrote this run_config.json. Flags beside it replace its values."
    flags.DEFINE_flag(flags.Flag(OptionParser(str, RUN_CONFIG), None, RUN_CONFIG, "", text), flag_values)


def docs_of(command: Command) -> dict[str, str]:
    """The help of each of a command's options."""
    found = {}
    for name in command.names():
        option = all_options()[name]
        found[name] = command.texts.get(name) or field_docs(Config.classes()[option.part])[name]
        if needs := option.field.metadata["needs"]:
            found[name] = f"With --{needs}: {found[name][0].lower()}{found[name][1:]}"
    return found | {"mode": command.texts["mode"]}


def parser_of(flag: flags.Flag) -> OptionParser:
    """What reads the text of a flag that `define_flags` declared."""
    assert isinstance(flag.parser, OptionParser)
    return flag.parser


@functools.cache
def flags_of(command: Command) -> flags.FlagValues:
    """All flags of a command, to look them up: also those that are no options of a run, which are read apart."""
    values = flags.FlagValues()
    define_flags(values, command)
    for name, text in {CONFIG: _ABOUT_CONFIG, FLAGFILE: _ABOUT_FLAGFILE, "help": _ABOUT_HELP}.items():
        flags.DEFINE_flag(flags.Flag(OptionParser(str, name), None, name, "", text), values)
    return values


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


def config_from_flags(flag_values: flags.FlagValues = flags.FLAGS, command: Command = FINETUNE) -> Config:
    """The configuration that parsed flags of a command describe.

    Raises:
        UsageError: naming every rule that is broken.
    """
    path, mode = flag_values[RUN_CONFIG].value, flag_values["mode"]
    base = _run_config(path, command) if path else Config()
    values = {name: flag_values[name].value for name in command.names() if not path or flag_values[name].present}
    if command.task:
        values["task"] = command.task
    elif facts_of(task := str(values.get("task", base.data.task))).of_records:
        raise UsageError(f"Pre-training has a command of its own. Received: task={task!r}. {_other()}")
    return base.changed(values, base.mode if path and not mode.present else str(mode.value))


def _run_config(path: str, command: Command) -> Config:
    config = Config.from_json(read_text(RUN_CONFIG, path))
    if facts_of(config.data.task).of_records != bool(command.task):
        rule = f"run_config must come from a run of {command.typed}"
        raise UsageError(f"{rule}. Received: run_config={path!r}, for task={config.data.task!r}. {_other()}")
    return config


def _other() -> str:
    return f"Use {PRETRAIN.typed} for pre-training, and {FINETUNE.typed} for other tasks."


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
        near = nearest(name, [*topics, _PRESETS, *values])
        advice = f"Did you mean {' or '.join(near)}?" if near else "See --help."
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


def _topic(topic: str, names: Sequence[str], values: flags.FlagValues) -> str:
    parts = Config.classes()
    about = parts[topic].__doc__ if topic in parts else "What to do, and where flags come from."
    lines = wrapped(f"{topic}: {' '.join((about or '').split())}", "")
    return "\n".join(lines) + "\n" + "".join(_flag(name, values) for name in names)


def _flag(name: str, values: flags.FlagValues) -> str:
    """A flag: how it is written, what it does, its default."""
    flag = values[name]
    names = [name, *(alias for alias, own in ALIASES.items() if own == name)]
    return flag_text(names, _takes(parser_of(flag).kind), flag.help, flag.default)


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
