"""The values of options: one reader of each type, for text (of a flag, a file of options, a sweep) and for what Python
users give; and what the configuration's dataclasses share: their fields, rules as lines of text, values from JSON.

What means the same is converted, such as a path, a NumPy number or a list; all else is refused where it is given.

Values that stand in options in the place of what a user names: data in memory for a file, and the columns that a saved
model was trained on. Imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import difflib
import errno
import functools
import numbers
import operator
import os
import pathlib
import re
import reprlib
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from tfbert.config.tables import ENCODERS, model_type_of
from tfbert.errors import UsageError, is_command

_NAME = re.compile(r"(train|validation(_[\w-]+)?|test)=[\w.]+ of \d+ rows?\b")


class Given(str):
    """What `DataConfig` holds in the place of a path: the name of the data, with the data.

    As text, in JSON and in messages, it is the name alone, such as `train=DataFrame of 60 rows`.

    Attributes:
        source: What is read: a table, as `data.in_memory` makes it, or a `pathlib.Path`; None for several sets.
        parts: Several sets, each with a name of its own.
    """

    source: Any
    parts: tuple[Given, ...]

    def __new__(cls, name: str, source: Any = None, parts: tuple[Given, ...] = ()) -> Given:
        given = super().__new__(cls, name)
        given.source, given.parts = source, parts
        return given

    @property
    def argument(self) -> str:
        """The name of the set: `train`, `validation`, `validation_NAME` or `test`."""
        return self.partition("=")[0]

    @property
    def what(self) -> str:
        """The data without the name of the set, such as `DataFrame of 60 rows`."""
        return self.partition("=")[2]

    def __deepcopy__(self, memo: dict[int, Any]) -> Given:
        return self  # As all text is.


class Recorded(str):
    """A column that a saved model was trained on, where its user names none: it is read where the data has it."""


def names_given_data(*values: Any) -> bool:
    """Whether any of these is the name of data in memory, as `run_config.json` has it."""
    return any(isinstance(value, str) and _NAME.match(value) is not None for value in values)


ALIASES = {"model": "model_name_or_path"}
"""Other names of options."""
PATHS = (
    *("model_name_or_path", "vocab_file", "data_dir", "train_file", "validation_file", "test_file", "input_file"),
    *("input_files", "train_records", "validation_records", "output_dir", "output_file"),
)
"""The options that hold paths, or lists of them."""
_READ = {name: "a file" for name in PATHS if name.endswith("_file") and name != "output_file"}
_READ |= {"data_dir": "a directory", "label_names": "names of two classes or more, or a file with one name a line"}
"""Those that must be there, and what; but for `vocab_file`, a directory is taken for a file."""
STANDARD_STREAM = "-"
"""Standard input as `input_file` or `test_file`, standard output as `output_file`."""
_TRUTH = dict.fromkeys(["true", "t", "yes", "on", "1"], True) | dict.fromkeys(["false", "f", "no", "off", "0"], False)


class Options:
    """The base of configuration dataclasses: construction converts and checks every field by its annotation.

    Raises:
        UsageError: naming each field that does not exist, or whose value is of another type.
    """

    def __new__(cls, /, *values: Any, **given: Any):
        if problems := [_unknown(cls, name, given[name]) for name in given if name not in field_types(cls)]:
            raise UsageError("\n".join(problems))
        return super().__new__(cls)

    def __post_init__(self):
        given = vars(self)
        kinds, fields = field_types(type(self)), dataclasses.fields(cast(Any, self))
        known = {field.name: (field, kinds[field.name]) for field in fields}
        values, problems = converted(given, known)
        if problems:
            raise UsageError("\n".join(problems))
        for name, value in values.items():
            if value is not given[name]:
                object.__setattr__(self, name, value)

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        return [*field_problems(self), *path_problems(self), *self.rules()]

    def rules(self) -> Iterable[str]:
        """A line for each rule of its own that it breaks."""
        return ()


@functools.cache
def field_types(part: type) -> dict[str, Any]:
    """The types of a configuration dataclass's fields; Python evaluates the annotations anew each time it is asked."""
    return get_type_hints(part)


def of_text(kind: Any, text: str) -> Any:
    """The value of a type that a text stands for.

    Raises:
        ValueError: for a text that stands for none.
    """
    if get_origin(kind) is tuple:
        return tuple(of_text(get_args(kind)[0], part) for part in split(text))
    if get_origin(kind) is Literal and text in get_args(kind):
        return text
    if kind is bool and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if kind is int:
        return int(text, 0) if text[:2].lower() in ("0x", "0o") else int(text)
    if kind in (float, str):
        return kind(text)
    for member in sorted(_members(kind), key=lambda member: get_origin(member) is not Literal):
        with contextlib.suppress(ValueError):
            return of_text(member, text)
    raise ValueError(text)


def split(text: str) -> list[str]:
    """The values of a text with commas between, those with commas in double quotes.

    Raises:
        ValueError: for quotes that do not end.
    """
    try:
        found = next(csv.reader([text], strict=True, skipinitialspace=True)) if text else []
    except csv.Error as error:
        raise ValueError(str(error)) from None
    return [part.strip() for part in found]


def joined(values: Iterable[Any]) -> str:
    """Values as `split` takes them, within `--sweep` too."""
    return ",".join(_quoted(str(value)) for value in values)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'^$|[,;"\r\n]', text) else text


def fitted(value: Any, kind: Any, name: str, *, is_joined: bool = False) -> Any:
    """What a Python user gave, as its option holds it.

    Args:
        value: It.
        kind: The option's type.
        name: Its name, which tells whether a path is one.
        is_joined: Whether it takes several values as a text with commas between.

    Raises:
        TypeError: for a value of another type.
    """
    if value is None and type(None) in get_args(kind):
        return None
    if members := _members(kind):
        # A word before anything made of it: `balanced` is no list of one name.
        for member in sorted(members, key=lambda member: get_origin(member) is tuple):
            if get_origin(member) is not Literal or (isinstance(value, str) and value in get_args(member)):
                with contextlib.suppress(TypeError):
                    return fitted(value, member, name, is_joined=is_joined)
        raise TypeError
    if get_origin(kind) is tuple:
        return _several(value, get_args(kind)[0], name)
    if kind is str and is_joined and not isinstance(value, str | os.PathLike):
        parts = _several(value, str, name)
        if any("," in part for part in parts):
            raise TypeError
        return ",".join(parts)
    if kind is str or get_origin(kind) is Literal:
        if kind is str and is_path(name) and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not isinstance(value, str):
            raise TypeError
        if kind is str and is_path(name) and value.startswith("~/"):
            return str(pathlib.Path(value).expanduser())
        # NumPy's texts are not JSON to all of its writers.
        return value if type(value) in (str, Given, Recorded) else str(value)
    is_truth = type(value).__name__ in ("bool", "bool_")
    wanted = {int: numbers.Integral, float: numbers.Real}.get(kind, kind)
    if not (is_truth if kind is bool else isinstance(value, wanted) and not is_truth):
        raise TypeError
    try:
        return value if issubclass(kind, Options) else kind(value)
    except OverflowError:
        raise TypeError from None


def _several(value: Any, kind: Any, name: str) -> tuple:
    """A list, a tuple or a one-dimensional array; or one value, but for text that may be several or one."""
    if isinstance(value, str) and (not value or "," in value):
        if value:
            raise TypeError
        return ()
    if isinstance(value, str | os.PathLike) or (kind is int and isinstance(value, numbers.Integral)):
        value = (value,)
    elif not isinstance(value, list | tuple | range):
        if len(getattr(value, "shape", ())) != 1 or not hasattr(value, "tolist"):
            raise TypeError
        value = value.tolist()
    return tuple(fitted(item, kind, name) for item in value)


def converted(
    given: Mapping[str, Any], known: Mapping[str, tuple[dataclasses.Field[Any], Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Values as options hold them.

    Args:
        given: The values, by name; of other names they are left out.
        known: The field of each option, and its type.

    Returns:
        The values that could be converted, and a line for each other one.
    """
    values, problems = {}, []
    for name in [name for name in given if name in known]:
        (field, kind), value = known[name], given[name]
        is_joined = bool(field.metadata.get("joined"))
        try:
            values[name] = fitted(value, kind, name, is_joined=is_joined)
        except TypeError:
            rule = f"{name} must be {in_words(kind, name, is_joined=is_joined)}"
            problems.append(f"{rule}. Received: {name}={shown(value)}. {_way_out(name, value)}")
    return values, problems


def is_path(name: str) -> bool:
    """Whether the option of this name takes a path, or several."""
    return name in (*PATHS, "label_names", "run_config")  # The second may be a file of names.


def is_pipe(name: str) -> bool:
    """Whether an option names what can be read only once: standard input, or a pipe as the shell's `<(...)` makes."""
    return name == STANDARD_STREAM or (os.path.exists(name) and pathlib.Path(name).is_fifo())  # noqa: PTH110 (a long name)


def shown(value: Any) -> str:
    """A value of any type, such as a table, in a few words of one line."""
    if shape := getattr(value, "shape", None):
        return f"{type(value).__name__} of {' x '.join(map(str, shape))}"
    text = " ".join(reprlib.repr(value).split())
    return text if value is None or isinstance(value, bool) else f"{text} ({type(value).__name__})"


def in_words(kind: Any, name: str, *, is_joined: bool = False) -> str:
    """What an option takes: `an integer or auto`."""
    if members := _members(kind):
        return " or ".join(in_words(member, name, is_joined=is_joined) for member in members)
    if get_origin(kind) is Literal:
        *others, word = [word for word in get_args(kind) if word]
        return f"one of {', '.join([*others, word])}" if others else word
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if item is str:
            return "a path or a list of paths" if is_path(name) and name != "label_names" else "a list of strings"
        return f"a list of {'integers' if item is int else 'numbers'}"
    if issubclass(kind, Options):
        return f"of type {kind.__name__}"
    text = "a path" if is_path(name) else "a string"
    if is_joined:
        text += " or a list of " + ("paths" if is_path(name) else "strings")
    truth = "true or false" if is_command() else "True or False"
    return {int: "an integer", float: "a number", bool: truth, str: text}[kind]


def _members(kind: Any) -> list[Any]:
    """The types of a union but None's; none of any other type."""
    return [m for m in get_args(kind) if m is not type(None)] if get_origin(kind) not in (None, Literal, tuple) else []


def _way_out(name: str, value: Any) -> str:
    """What to pass instead."""
    if name in ("train_file", "validation_file", "test_file"):
        return f"Pass a path, or data in memory to tfbert.finetune as {name.removesuffix('_file')}=."
    if answer := called_elsewhere(elsewhere()["values"].get(name, {}), str(value).lower()):
        return answer if " " in answer else f"Pass {name}={answer!r}."
    return "Pass one, or leave it out for the default."


def _unknown(part: type, name: str, value: Any) -> str:
    """The line for a field that a configuration dataclass does not have."""
    others = [other.__name__ for other in Options.__subclasses__() if name in field_types(other)]
    advice = f"It is one of {others[0]}." if others else ""
    return unknown_option(part.__name__, name, value, field_types(part), advice)


def unknown_option(owner: str, name: str, value: Any, own: Collection[str], advice: str = "") -> str:
    """The line for an option that a class does not have: with the advice, unless one of its own is near."""
    advice = did_you_mean(name, own) or advice or f"It has {', '.join(own)}."
    return f"{owner} has no option of this name. Received: {name}={shown(value)}. {advice}"


def did_you_mean(name: str, names: Collection[str], form: str = "{}") -> str:
    """A question that names three at most: those that this one is elsewhere, such as `lr`; else those that have it as a
    part, such as `epochs`; else those that are spelt alike. Empty where there are none.

    Args:
        name: What was given.
        names: What it may be.
        form: How these are written.
    """
    usual = [
        called_elsewhere(table, name).partition(",")[0].removeprefix("--") for table in elsewhere()["flags"].values()
    ]
    found = [known for known in names if known in usual] or [known for known in names if f"_{name}_" in f"_{known}_"]
    near = (found or difflib.get_close_matches(name, names, n=3, cutoff=0.75))[:3]
    return f"Did you mean {' or '.join(map(form.format, near))}?" if near else ""


@functools.cache
def elsewhere() -> dict[str, Any]:
    """What other programs call things, as `elsewhere.toml` has it."""
    return tomllib.loads(pathlib.Path(__file__).with_name("elsewhere.toml").read_text(encoding="utf-8"))


def called_elsewhere(table: Mapping[str, str], name: str) -> str:
    """What a table of `elsewhere` says for a name; empty where it says nothing."""
    return next((answer for answer, names in table.items() if name in names.split()), "")


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 example`, `2,000 examples`.

    Args:
        number: How many.
        noun: What one of them is called.
        plural: What several are called; empty: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def rate_text(number: float, seconds: float = 1.0) -> str:
    """How many in a second: `1,234`, `12`; below 10 with two digits, `4`, `0.083`.

    Args:
        number: How many.
        seconds: In how much time; 0 is taken as a moment.
    """
    rate = number / max(seconds, 1e-9)
    return f"{rate:,.0f}" if rate >= 9.95 or not rate else f"{rate:.2g}"


OnResume = Literal["same", "longer", "content", "split", "free"]
"""What another value of an option means to a run that resumes from a checkpoint:

- `same`: it would change the result of training, and is refused;
- `longer`: it decides how long the run is, which may grow;
- `content`: it names files whose content is compared, wherever they are;
- `split`: the updates are the same on other devices and with other splits;
- `free`: it changes nothing that is computed before the last update.
"""


Mode = Literal["train", "evaluate", "predict", "export", "prepare"]
SEED = 42
"""Where none is named."""
EVERY: tuple[Mode, ...] = get_args(Mode)
OF_MODELS: tuple[Mode, ...] = ("train", "evaluate", "predict", "export")
"""The modes in which there is a model."""
TRAIN: tuple[Mode, ...] = ("train",)
"""The modes in which something is trained."""
EVALUATE: tuple[Mode, ...] = ("train", "evaluate")
"""Those in which labelled examples are predicted."""
COMPUTE: tuple[Mode, ...] = ("train", "evaluate", "predict")
"""Those that compute on devices of the user's choice; an export is written on one."""


def path_of(given: str, option: str) -> pathlib.Path:
    """A path, or pattern, that a user named, with a leading `~` expanded; there may be nothing yet.

    Raises:
        UsageError: for one that nothing can have or be read at, such as that of an unknown user, one that is too long,
            and what may not be entered.
    """
    shown = repr(given if len(given) < 200 else f"{given[:100]}... ({len(given):,} characters)")
    try:
        path = pathlib.Path(given).expanduser()
        if path.stat() and path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (FileNotFoundError, NotADirectoryError):
        return path  # What needs a file there says so.
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or f"{error}".rstrip(".")
        raise UsageError(f"{option} must be a path that can be used. Received: {shown} ({why}). Check it.") from None
    return path


def path_problems(part: Any) -> Iterator[str]:
    """A line for each path of a part that cannot be used, and for each that is read but is not there."""
    given = {name: value if isinstance(value, tuple) else (value,) for name, value in vars(part).items()}
    if "validation_file" in given:
        given |= {"validation_file": part.validation_files, "label_names": (part.label_names_file,)}
    for name, path in [(name, path) for name, paths in given.items() if is_path(name) for path in paths if path]:
        source = path.source if isinstance(path, Given) else path
        try:
            found = path_of(source, name) if isinstance(source, str) else source
        except UsageError as error:
            yield str(error)
            continue
        is_stream = (name == "input_file" and is_pipe(path)) or (name, path) == ("test_file", STANDARD_STREAM)
        if name not in _READ or is_stream or not isinstance(found, pathlib.Path):
            continue
        if not (found.is_file() and name != "data_dir" or found.is_dir() and name != "vocab_file"):
            todo = "Check the path."
            if names_given_data(path):
                todo = "It is the name of data that was in memory: pass the data to tfbert.finetune, or a file."
            elif is_pipe(path):
                todo = "A pipe can be read only once: write it to a file first."
            yield problem(f"{name} must be {_READ[name]}", todo, **{name: path})


def problem(rule: str, todo: str, **received: Any) -> str:
    """A line about options: the rule, what was received, and what to do."""
    texts = {name: ",".join(map(str, v)) if isinstance(v, tuple) else v for name, v in received.items()}
    return f"{rule}. Received: {', '.join(f'{name}={text!r}' for name, text in texts.items())}. {todo}"


def option(
    default: Any,
    *,
    modes: tuple[Mode, ...] = OF_MODELS,
    resume: OnResume | None = None,
    tasks: tuple[str, ...] = (),
    needs: str = "",
    joined: bool = False,
    repeats: bool = False,
    **limits: float,
) -> Any:
    """A field of a configuration dataclass.

    Args:
        default: Its default.
        modes: Those in which it has an effect; in other modes, any value but the default is refused.
        resume: Whether a run may resume with another value, and what the log says; None for options not of training.
        tasks: Likewise, the tasks in which it has an effect; empty for all.
        needs: The option without which it has no effect, as `NAME` or `NAME=VALUE`.
        joined: Whether its text may be several values separated by commas, which Python users give as a list.
        repeats: Whether each value has a flag of its own, as values may hold commas.
        **limits: What a number, or each of several, must keep to, as `outside` has it.
    """
    metadata = {"modes": modes, "resume": resume, "tasks": tasks, "needs": needs, "joined": joined, "repeats": repeats}
    return dataclasses.field(default=default, metadata=metadata | {"limits": limits})


_LIMITS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "least": (operator.ge, "{} or more"),
    "above": (operator.gt, "above {}"),
    "most": (operator.le, "at most {}"),
    "below": (operator.lt, "below {}"),
}
"""By the word for a limit of numbers: what a number must be to it, and how a rule says so."""


def outside(name: str, value: float, **limits: float) -> list[str]:
    """A line if a number is outside of limits, by the words of `_LIMITS`, or not finite."""
    is_finite = abs(value) <= sys.float_info.max
    if is_finite and all(_LIMITS[word][0](value, limit) for word, limit in limits.items()):
        return []
    words = [text.format(limits[word]) for word, (_, text) in _LIMITS.items() if word in limits]
    rule = " and ".join(words) if is_finite else "finite"
    return [problem(f"{name} must be {rule}", "Pass another number.", **{name: value})]


def field_problems(part: Any) -> list[str]:
    """A line for each field whose value is none of its words, or outside of its limits."""
    out = []
    for field in dataclasses.fields(part):
        name, value, kind = field.name, getattr(part, field.name), field_types(type(part))[field.name]
        if get_origin(kind) is Literal and value not in get_args(kind):
            out.append(one_of(name, value, get_args(kind)))
        for number in value if isinstance(value, tuple) else (value,):
            if field.metadata.get("limits") and isinstance(number, int | float):
                out += outside(name, number, **field.metadata["limits"])
    return out


def architecture_problem(values: Any, path: pathlib.Path) -> str:
    """The line for a `config.json` that says that its model is none of ours; empty where it says nothing of the kind.

    Args:
        values: What the file holds.
        path: The file, for the line.
    """
    found = values if isinstance(values, dict) else {}
    kind = found.get("class_name")
    if isinstance(kind, str) and kind != "BertBackbone":
        rule = "Of KerasHub's models, tfbert trains those of its BertBackbone"
        return f"{rule}. Received: {kind[:100]} in {path}. Pass a BERT model."
    if model_type_of(found):
        return ""
    name = "model_type" if "model_type" in found else "architectures"
    rule = f"tfbert trains models of model_type {', '.join(ENCODERS)}"
    return f"{rule}. Received: {name}={reprlib.repr(found[name])} in {path}. Pass one of them."


def one_of(name: str, value: str, choices: Collection[str], where: str = "") -> str:
    """The line for a value that is none of the choices; `where` is its place, if it is in a file."""
    word = str(value).strip().lower().replace("-", "_")
    answer = word if word in choices else called_elsewhere(elsewhere()["values"].get(name, {}), word)
    todo = answer or "Pass one of them."
    if answer and answer in choices:
        todo = f"Write {name}: {answer}." if where else f"Pass --{name}={answer}."
    return f"{name} must be one of {', '.join(filter(None, choices))}. Received: {name}={value!r}{where}. {todo}"
