"""How a run can end early without a bug; the command turns each of these errors into one line and an exit status.

Their texts name options as flags, `--name=value`. A command shows them so; to everybody else, who calls tfbert from
Python, they speak of arguments, `name=value`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator, MutableMapping
from importlib import metadata
from typing import Any

_is_command = False
_for_python: Callable[[str], str] = str


def speak_to_python(wording: Callable[[str], str]) -> None:
    """Sets how a text about flags is worded for those who call tfbert from Python; `tfbert` does so when imported."""
    global _for_python
    _for_python = wording


@contextlib.contextmanager
def replaced(space: MutableMapping[str, Any], **values: Any) -> Iterator[None]:
    """In the block, names have these values: in `globals()`, `os.environ`, `sys.modules`, or the `vars` of an object,
    whose own `__setattr__`, by which Keras tracks what an object holds, hears nothing of it. Afterwards all is as
    before."""
    before = {name: space[name] for name in values if name in space}
    space.update(values)
    try:
        yield
    finally:
        space.update(before)
        for name in values.keys() - before.keys():
            space.pop(name, None)


@contextlib.contextmanager
def in_command() -> Iterator[None]:
    """For a program's `main`: in the block, this process is a command, whose user types flags."""
    with replaced(globals(), _is_command=True):
        yield


def is_command() -> bool:
    """Whether this process is a command, and its user types flags; else they call tfbert from Python."""
    return _is_command


def worded(text: str) -> str:
    """A text about flags as its reader knows the options."""
    return text if _is_command else _for_python(text)


class _Worded(Exception):
    """An error whose text is `worded` when it is shown.

    Attributes:
        others_know: Whether the other workers of the run know of it, or raise it too.
    """

    others_know = False

    def __str__(self) -> str:
        return worded(super().__str__())


class UsageError(_Worded, ValueError):
    """Something given cannot be used. Each line has the rule, `Received: name=value`, and what to do. Exit status 2."""

    status = 2


class RunError(_Worded, RuntimeError):
    """A run that was set up correctly failed: a full disk, a lost worker, diverged training. Exit status 1."""

    status = 1


class ReaderGone(RunError):
    """The reader of the output, such as `head`, closed the pipe. That is not a failure, so there is no message. Exit
    status 141, as a shell reports for a command that a closed pipe ended."""

    status = 141


class Preempted(_Worded):
    """The run was asked to stop by SIGTERM or SIGINT and has saved a checkpoint. Exit status 75 (EX_TEMPFAIL)."""

    status = 75
    others_know = True


EXPECTED = (UsageError, RunError, Preempted)


_OF_GRAPH = re.compile(r"\{\{(?:function_)?node [^}]*\}\} ?|^\[Errno \d+\] | ?\[Op:\w+\].*")


_NAMES = ("ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "EACCES", "EPERM", "EFBIG", "EMFILE", "ENFILE", "ELOOP")
_NAMES += ("ENAMETOOLONG", "ENOTDIR")
_SURROUNDINGS = {os.strerror(getattr(errno, name)) for name in _NAMES}


def of_surroundings(error: BaseException) -> RunError | None:
    """The error of a disk, of permissions or of limits that a library raised, in one line; None for any other."""
    if isinstance(error, OSError):
        is_one = error.errno is not None and os.strerror(error.errno) in _SURROUNDINGS
    else:
        is_one = any(reason in str(error) for reason in _SURROUNDINGS)
    if not is_one:
        return None
    rule = "The machine must let a run read and write its files"
    return RunError(f"{rule}. Received: {first_line(error)}. Check free space, permissions and limits there.")


def first_line(error: BaseException | str, most: int = 200) -> str:
    """An exception's message, or a text, cut to its first line without its full stop, the nodes of TensorFlow's graph
    and numbers of errors, and to `most` characters: after a sentence, or else a word."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = _OF_GRAPH.sub("", lines[0]).strip()
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""
    if match := re.fullmatch(r"([^;]*/[^;]+); ([^;]+)", text):  # TensorFlow's, of a file.
        text, reason = match[1], match[2]
    if reason and reason not in text[:most]:
        text = f"{reason}: {text}"
    text = text.rstrip(".") or type(error).__name__
    if len(text) <= most:
        return text
    sentences, _, _ = text[:most].rpartition(". ")
    words, _, _ = text[:most].rpartition(" ")
    return sentences or f"{words if len(words) > most // 2 else text[:most]} ..."


def other_project() -> str:
    """What to say where another project's distribution `tfbert`, which the package index has, is installed; else empty.

    Its files need not be in our place to be in the way: who installed it wanted this project, and lacks what it needs.
    """
    for found in metadata.distributions(name="tfbert"):
        if found.metadata["Author"] != "The tfbert maintainers":  # Ours had this name until 1.0.0.
            return (
                "The distribution `tfbert` of the package index is another project; this one's is `tfbert-trainer`. "
                f"Received: tfbert {found.version} in {found.locate_file('')}. "
                "Run pip uninstall tfbert, then pip install -e . in the clone."
            )
    return ""
