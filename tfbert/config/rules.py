"""What the configuration's dataclasses share: their fields, rules as lines of text, and values read from JSON."""

from __future__ import annotations

import dataclasses
import errno
import math
import os
import pathlib
import reprlib
import stat
import sys
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin

from tfbert.config.encoders import ENCODERS, model_type_of
from tfbert.config.types import called_elsewhere, elsewhere, field_types
from tfbert.errors import UsageError

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
        if stat.S_ISDIR(path.stat().st_mode) and not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (FileNotFoundError, NotADirectoryError):
        return path  # What needs a file there says so.
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or f"{error}".rstrip(".")
        raise UsageError(f"{option} must be a path that can be used. Received: {shown} ({why}). Check it.") from None
    return path


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
        needs: The option of the same dataclass without which it has no effect, as `NAME` or `NAME=VALUE`.
        joined: Whether its text may be several values separated by commas, which Python users give as a list.
        repeats: Whether each value has a flag of its own, as values may hold commas.
        **limits: What a number, or each of several, must keep to, as `outside` has it.
    """
    metadata = {"modes": modes, "resume": resume, "tasks": tasks, "needs": needs, "joined": joined, "repeats": repeats}
    return dataclasses.field(default=default, metadata=metadata | {"limits": limits})


def is_met(needs: str, options: Mapping[str, Any]) -> bool:
    """Whether options have what another one needs."""
    name, _, value = needs.partition("=")
    return options[name] == value if value else bool(options[name])


def outside(
    name: str,
    value: float,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> list[str]:
    """A line if a number is outside of these limits, or not finite."""
    if not abs(value) <= sys.float_info.max:
        rule = "finite"
    elif least <= value <= most and above < value < below:
        return []
    else:
        words = {f"{least} or more": least, f"above {above}": above, f"at most {most}": most, f"below {below}": below}
        rule = " and ".join(text for text, limit in words.items() if abs(limit) < math.inf)
    return [f"{name} must be {rule}. Received: {name}={value}. Pass another number."]


def field_problems(part: Any) -> list[str]:
    """A line for each field whose value is none of its words, or outside of its limits; or that was changed from its
    default, but has no effect for want of another option."""
    out, given = [], vars(part)
    for field in dataclasses.fields(part):
        name, value, kind = field.name, given[field.name], field_types(type(part))[field.name]
        if get_origin(kind) is Literal and value not in get_args(kind):
            out.append(one_of(name, value, get_args(kind)))
        for number in value if isinstance(value, tuple) else (value,):
            if field.metadata.get("limits") and isinstance(number, int | float):
                out += outside(name, number, **field.metadata["limits"])
        needs = field.metadata.get("needs")
        if needs and value != field.default and not is_met(needs, given):
            out.append(f"{name} takes effect with {needs} only. Received: {name}={value!r}. Add --{needs}.")
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
