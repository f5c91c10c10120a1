"""The command line: flags -> Config -> one verb of tfbert; errors -> a line each and an exit status.

A command's flags: one for each field of `Config`; files of options: `--config=run.yaml`, by the flags' names, YAML or
JSON, where a value is a text as a flag's; files of flags, and the presets that come with tfbert: `--flagfile=glue-sst2`
finds its file from any directory. What is said about a flag that a command does not have, and about a value that a flag
does not take.

`--help`: what a command is, examples, and its flags by topic, or one topic only. Imports no TensorFlow.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import difflib
import functools
import inspect
import itertools
import json
import pathlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from absl import flags

from tfbert.config.modes import all_options
from tfbert.config.run import FINETUNE, PRETRAIN, Command, Config, command_of, verb_commands
from tfbert.config.tables import facts_of
from tfbert.config.types import ALIASES, called_elsewhere, did_you_mean, elsewhere, in_words, joined, of_text, one_of
from tfbert.devices import process
from tfbert.devices.process import ASKS_FOR_HELP, WIDTH, flag_text, wrapped
from tfbert.errors import EXPECTED, UsageError, in_command

_PACKAGE = pathlib.Path(__file__).parent
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
    path = pathlib.Path(name)
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # Such as for an unknown user: it is no file.
        if path.expanduser().is_file():
            return path.expanduser()
    known = presets()
    wanted = path.as_posix().removeprefix(_IN_CLONE).removesuffix(_ENDING)
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=3) or sorted(key for key in known if wanted and wanted in key)
    todo = f"Check the path, or pass {'' if len(near) == 1 else 'one of '}{', '.join(near or known)}."
    raise UsageError(f"flagfile must be a file, or the name of a preset. Received: flagfile={name!r}. {todo}")


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


def pairs_in_file(path: str) -> list[tuple[str, Any, str]]:
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


class _Parser(flags.ArgumentParser):
    """Reads the text of a flag as its option's type says."""

    def __init__(self, kind: Any):
        self._kind = kind

    def parse(self, argument: Any) -> Any:
        return of_text(self._kind, argument) if isinstance(argument, str) else argument


class Flag(flags.Flag):
    """A flag of absl's.

    Attributes:
        name: That of the option which it sets, or of what else it is.
        kind: What its text is, as `of_text` has it.
        is_joined: Whether its text may be several values with commas between.
        repeats: Whether each value has a flag of its own; its value is a tuple of them.
    """

    def __init__(
        self, name: str, text: str, kind: Any = str, default: Any = "", is_joined: bool = False, repeats: bool = False
    ):
        self.kind, self.is_joined, self.repeats = kind, is_joined, repeats
        super().__init__(_Parser(kind), None, name, default, text, boolean=bool in (kind, *get_args(kind)))

    def parse(self, argument: Any) -> None:
        before = self.value or () if self.present else ()
        super().parse(argument)
        if self.repeats:
            self.value = (*before, self.value)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes, where it takes nothing else."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()


RUN_CONFIG = "run_config"
_BESIDE = {
    RUN_CONFIG: "Repeat the run that wrote this run_config.json. Flags beside it replace its values.",
    CONFIG: "Read options from a .yaml or .json file: the flags' names without dashes, each with its value, or a list. "
    "Flags on the command line replace its values.",
    FLAGFILE: "Read flags from a file, one a line, or from a preset (see --help=presets).",
    "help": "Show this text, or only a topic, a flag, or all flags that speak of a word.",
}
"""The flags that are no options of a run."""


def define_flags(flag_values: flags.FlagValues = flags.FLAGS, command: Command = FINETUNE) -> None:
    """Declares every flag of a command: name, default, type and help are those of a field of `Config`."""
    found = [Flag("mode", command.texts["mode"], Literal[command.modes], Config().mode)]
    for name in command.names():
        part, field, kind = all_options()[name]
        about, text = field.metadata, command.texts.get(name) or field_docs(Config.classes()[part])[name]
        if about["needs"]:
            text = f"With --{about['needs']}: {text[0].lower()}{text[1:]}"
        kind = str if about["repeats"] else kind
        found.append(Flag(name, text, kind, field.default, about["joined"], about["repeats"]))
    for flag in (*found, Flag(RUN_CONFIG, _BESIDE[RUN_CONFIG])):
        flags.DEFINE_flag(flag, flag_values)
    for alias, name in ALIASES.items():
        flag_values[alias] = flag_values[name]


def made_flags(command: Command) -> dict[str, Flag]:
    """All flags of a command by name, other names included, and those that are read apart; none is set."""
    values: Any = flags.FlagValues()  # absl's own set has flags such as --pdb besides, which would be ignored.
    define_flags(values, command)
    return {name: values[name] for name in values} | {name: Flag(name, text) for name, text in _BESIDE.items()}


flags_of = functools.cache(made_flags)
"""The same, to look them up."""


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


def what_is_meant(command: Command, name: str, value: str = "") -> str:
    """What may be meant by a flag that a command does not have, in a sentence: what it is here, where other trainers
    have it; else whose flag it is, or which flags are like it. Empty where nothing is.

    Args:
        command: The command.
        name: The flag as it was typed, without dashes in front: `fp16`, `learning-rate`, `task.init_checkpoint`.
        value: Its value, where that decides.
    """
    own_name = name.rpartition(".")[2].replace("-", "_")
    tables = [elsewhere()["pretraining"]] if command is PRETRAIN else []
    tables += [elsewhere()["flags_with_values"], *elsewhere()["flags"].values()]
    answers = [called_elsewhere(table, key) for table in tables for key in (f"{own_name}={value.lower()}", own_name)]
    answer = next(filter(None, answers), f"--{own_name}" if own_name != name else "")
    named = re.findall(r"--(\w+)(?:=([\w./]+))?", answer)
    for one in (command, FINETUNE, PRETRAIN):  # The first that has all flags which it names, with these values.
        own = [(flags_of(one).get(option), word) for option, word in named]
        if answer and all(
            flag is not None and (not word or not flag.choices or word in flag.choices) for flag, word in own
        ):
            if not answer.startswith("--"):
                return f"{answer}."
            return f"Here it is {answer}." if one is command else f"In {one.typed} it is {answer}."
    for other in (FINETUNE, PRETRAIN):
        if other is not command and name in flags_of(other):
            return f"It is a flag of {other.typed}."
    return did_you_mean(name.lower(), flags_of(command), "--{}")


class Reader:
    """What a command line says, or a file of options.

    Attributes:
        problems: A line for each argument that is no flag, and each value that its flag does not take.
    """

    def __init__(self, command: Command):
        self._command = command
        self._flags = {name: flag for name, flag in made_flags(command).items() if name != "help"}
        self.problems: list[str] = []

    @property
    def values(self) -> dict[str, Any]:
        """Those of the flags that it names, by their names."""
        return {flag.name: flag.value for flag in self._flags.values() if flag.present}

    def read_line(self, arguments: Sequence[str], within: tuple[str, ...] = ()) -> None:
        """Reads a command line, or the lines of a file of flags, which may name others.

        Args:
            arguments: Those after the program.
            within: The files that these are the lines of, from the outermost.

        Raises:
            UsageError: for a file of flags that cannot be read.
        """
        others, left = [], collections.deque(arguments)
        while left:
            argument = left.popleft()
            text = argument.removeprefix("-").removeprefix("-")
            name, equals, value = text.partition("=")
            flag, denied = self._flags.get(name), self._flags.get(name.removeprefix("no"))
            if not text:
                others += [argument, *left] if argument == "-" else left
                break
            if text == argument or not name:
                others.append(argument)
            elif flag is not None and flag.boolean and not equals:
                flag.parse(True)
            elif flag is None and not equals and denied is not None and denied.boolean:
                denied.parse(False)
            elif not equals and flag is not None and (not left or left[0].startswith("--")):
                at = f"before {left[0]}" if left else "at the end"
                self.problems.append(f"{name} takes a value. Received: --{name} {at}. Write --{name}=VALUE.")
            else:
                if not equals and left and (flag is not None or not left[0].startswith("-")):
                    value = left.popleft()
                if name == FLAGFILE:
                    self._read_flagfile(value.strip(), within)
                elif flag is None:
                    self._refuse(name, value)
                else:
                    self._set(flag, value)
        if others:
            todo = "Write --name=value; see --help."
            self.problems.append(f"Every argument must be a flag. Received: {' '.join(others)}. {todo}")

    def _read_flagfile(self, name: str, within: tuple[str, ...]) -> None:
        """Reads a file of flags; none where there is no name, as a script may have it. A line is an argument, or begins
        with # or // and is a comment."""
        path = str(find_flagfile(name)) if name else ""
        if path in within:
            raise UsageError(f"A flag file must not include itself. Received: flagfile={path!r}. Remove that line.")
        lines = map(str.strip, read_text(FLAGFILE, path).splitlines() if path else [])
        self.read_line([line for line in lines if line and not line.startswith(("#", "//"))], (*within, path))

    def read_config(self, path: str) -> None:
        """Reads a file of options.

        Raises:
            UsageError: for a file that cannot be read.
        """
        seen: dict[str, str] = {}
        for name, value, where in pairs_in_file(path):
            own, flag = ALIASES.get(name, name), self._flags.get(name)
            if isinstance(value, Pairs):
                form = f"{value[0][0]}: ..." if value else "NAME: VALUE"
                rule = "A file of options is flat, a flag's name and its value in each line"
                todo = f"Write {form} without {name!r} above it."
                self.problems.append(f"{rule}. Received: an object as {name!r}{where}. {todo}")
            elif flag is None:
                self._refuse(name, value, where)
            elif own in seen:
                twice = f"{name!r} twice" if seen[own] == name else f"{seen[own]!r} and {name!r}, which are the same"
                self.problems.append(f"Every option has one value. Received: {twice},{where}. Drop one.")
            elif name == FLAGFILE:
                self._read_flagfile(str(value or ""), ())
            elif value is not None:
                self._set_to(flag, value, where)
            seen.setdefault(own, name)
        if config := self.values.get(CONFIG):
            rule, received = "A file of options names no other", f"{CONFIG}={config!r} in {path}"
            self.problems.append(f"{rule}. Received: {received}. Put all options into one.")

    def _set_to(self, flag: Flag, value: Any, where: str) -> None:
        """Sets a flag to a value in a file: a text, True, False, or a list."""
        items = value if isinstance(value, list) else [value]
        origins = [get_origin(kind) for kind in (flag.kind, *get_args(flag.kind))]
        texts = [str(item).lower() if isinstance(item, bool) else item for item in items]
        todo = ""
        if any(isinstance(item, list) or item is None for item in items):
            todo = "Write plain values."
        elif any(isinstance(item, bool) for item in items) and not flag.boolean:
            todo = 'Put it in quotes, "true", if it is a name.'
        elif isinstance(value, list) and not (flag.repeats or flag.is_joined or tuple in origins):
            todo = "Write one value."
        elif flag.is_joined and len(items) > 1 and "," in "".join(texts):
            todo = "Write values without commas."
        if todo:
            self._note(flag, value, where, todo)
            return
        for text in texts if flag.repeats or not isinstance(value, list) else [joined(texts)]:
            self._set(flag, text, where)

    def _set(self, flag: Flag, text: str, where: str = "") -> None:
        """Gives a flag the value that a text stands for; `where` is its place, if it is not on the command line."""
        name, before = flag.name, flag.value if flag.present else ""
        with contextlib.suppress(flags.IllegalFlagValueError):
            flag.parse(text)
            if name == CONFIG and before:
                rule, received = "A run has one file of options", f"{CONFIG}={f'{before},{text}'!r}"
                raise UsageError(f"{rule}. Received: {received}. Put all options into one of them.")
            return
        todo = f"--help={name} says what it takes."
        if flag.boolean:
            answer = called_elsewhere(elsewhere()["values"].get(name, {}), text.strip().lower())
            todo = answer or f"Pass --{name}, or --no{name}."
        elif "," in text and name == "seed":
            todo = "Pass one, or several as --seeds."
        elif "," in text and float in (flag.kind, *get_args(flag.kind)):
            todo = "Pass one value, a fraction after a point."
        if flag.choices:
            self.problems.append(one_of(name, text, flag.choices, where))
        else:
            self._note(flag, text, where, todo)

    def _note(self, flag: Flag, value: Any, where: str, todo: str) -> None:
        """Notes what is said about a value that a flag does not take."""
        rule = f"{flag.name} must be {in_words(flag.kind, flag.name, is_joined=flag.is_joined)}"
        self.problems.append(f"{rule}. Received: {flag.name}={value!r}{where}. {todo}")

    def _refuse(self, name: str, value: Any, where: str = "") -> None:
        """Notes what is said about a flag that the command does not have."""
        found, kind = what_is_meant(self._command, name, str(value)), "flag" if where else "command line flag"
        self.problems.append(" ".join(filter(None, (f"Unknown {kind} '{name}'{where}.", found, "See --help."))))


@in_command()
def run_command(command: Command, argv: list[str], mode: str = "") -> int:
    """Does what a command line asks for.

    Args:
        command: Its options.
        argv: The command line.
        mode: The mode that the command's own word says; empty where `--mode` does.

    Returns:
        The exit status.
    """
    try:
        topic = help_topic(argv[1:])
        if topic is not None:
            return process.show(help_text(command, topic, mode))
        config = parse(command, argv, mode)
        process.silence_libraries()
        process.choose_kernels()
        if config.runtime.keep_freed_memory:
            process.keep_freed_memory()
        with process.without_collections(), process.stderr_held_back("importing TensorFlow"):
            with process.without_modules("sklearn", "matplotlib", "pandas", "scipy"):
                import tensorflow as tf  # With Keras. Takes seconds; a wrong flag is reported before.

            run = verb_of(config)
            tf.config.list_physical_devices("GPU")
            from tfbert.devices.runtime import library_errors_as_run_errors

        process.check()
        with library_errors_as_run_errors(config):
            run(config)
    except (*EXPECTED, KeyboardInterrupt) as error:
        return process.told(command.typed, error)
    return 0


def verb_of(config: Config) -> Callable[..., Any]:
    """What a configuration's mode does, imported now."""
    return pkgutil.resolve_name(f"tfbert.modes.{command_of(config).verbs[config.mode]}")


def parse(command: Command, argv: list[str], mode: str = "") -> Config:
    """The configuration that a command line describes: what it says itself replaces what a file of options says.

    Args:
        command: Its options.
        argv: The command line.
        mode: As for `run_command`.

    Raises:
        UsageError: for flags that the command does not have, and rules that are broken.
    """
    line, file = Reader(command), Reader(command)
    line.read_line(argv[1:])
    if path := line.values.get(CONFIG):
        file.read_config(path)
    if problems := [*file.problems, *line.problems]:
        raise UsageError("\n".join(dict.fromkeys(problems)))
    other = line.values.get("mode", mode)
    if mode and other != mode:
        word = other if verb_commands()[other] is command else f"{command.word} --mode={other}"
        todo = f"Drop --mode, or use {command.typed.removesuffix(mode)}{word}."
        raise UsageError(f"{command.typed} says the mode itself. Received: mode={other!r} beside it. {todo}")
    return _config_of(command, file.values | ({"mode": mode} if mode else {}) | line.values)


def config_from_flags(flag_values: flags.FlagValues = flags.FLAGS, command: Command = FINETUNE) -> Config:
    """The configuration that parsed flags of a command describe.

    Raises:
        UsageError: naming every rule that is broken.
    """
    own = (flag_values[name] for name in (*command.names(), "mode", RUN_CONFIG))
    return _config_of(command, {flag.name: flag.value for flag in own if flag.present})


def _config_of(command: Command, values: dict[str, Any]) -> Config:
    names = {*command.names()}
    path, mode = values.get(RUN_CONFIG, ""), values.get("mode", "")
    values = {name: value for name, value in values.items() if name in names}
    base = Config.from_json(read_text(RUN_CONFIG, path)) if path else Config()
    if command.task and not path:
        values["task"] = command.task
    task = values.get("task", base.data.task)
    if facts_of(task).of_records != bool(command.task):
        received = f"task={task!r}" + (f" in run_config={path!r}" if path else "")
        todo = f"Use {PRETRAIN.typed} for pre-training, and {FINETUNE.typed} for other tasks."
        raise UsageError(f"Pre-training has a command of its own. Received: {received}. {todo}")
    return base.changed(values, mode)


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
    values, name = flags_of(command), topic.lstrip("-")
    topics = {_GENERAL: [*(() if mode else ("mode",)), CONFIG, RUN_CONFIG, FLAGFILE, "help"]}
    for each in command.names():
        part, field, _ = all_options()[each]
        if not mode or mode in field.metadata["modes"]:
            topics.setdefault(part, []).append(each)
    if name == _PRESETS:
        about = "Presets for --flagfile=NAME. Flags after it replace the preset's. Each file begins with commands:"
        lines = [about, ""]
        for preset, path in presets().items():
            about = path.read_text(encoding="utf-8").partition("\n#\n")[0].replace("\n#", "").lstrip("# ")
            if about.endswith(":"):  # Its last sentence leads to the commands, which are left out here.
                about = about.rpartition(". ")[0] + "." if ". " in about else about.removesuffix(":")
            lines += [f"  {preset}", *wrapped(about, "      ")]
        return "\n".join(lines) + "\n"
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
