"""Files of flags, and the presets that come with tfbert: `--flagfile=glue-sst2` finds its file from any directory."""

from __future__ import annotations

import difflib
import pathlib
from collections.abc import Iterable, Iterator

from tfbert.config.rules import path_of
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
    todo = f"Check the path, or pass {'one of ' * (len(near) != 1)}{', '.join(near or known)}."
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
