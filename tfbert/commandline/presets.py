"""Files of flags, and the presets that come with tfbert: `--flagfile=glue-sst2` finds its file from any directory."""

from __future__ import annotations

import difflib
import pathlib
from collections.abc import Iterator, Sequence

from tfbert.config.rules import path_of
from tfbert.errors import UsageError

_PACKAGE = pathlib.Path(__file__).parents[1]
_PLACES = (_PACKAGE / "presets", _PACKAGE.parent / "flags" / "presets")
"""In a wheel, and in a clone."""
_IN_CLONE = "flags/presets/"
_ENDING = ".flags"
_FLAG = "flagfile"


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
    raise UsageError(
        f"flagfile must be a file, or the name of a preset. Received: flagfile={name!r}. "
        f"Check the path, or pass {'one of ' * (len(near) != 1)}{', '.join(near or known)}."
    )


def expand_flagfiles(arguments: Sequence[str]) -> list[str]:
    """A command line with the lines of its flag files in their places.

    A line is an argument; one that begins with # or // is a comment. A flag file may name others.

    Args:
        arguments: Those after the program.

    Raises:
        UsageError: for a file that does not exist or cannot be read.
    """
    return list(_expanded(iter(arguments), within=()))


def _expanded(arguments: Iterator[str], within: tuple[pathlib.Path, ...]) -> Iterator[str]:
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument == "--":
            yield argument
            yield from arguments
        elif name not in (f"--{_FLAG}", f"-{_FLAG}"):
            yield argument
        elif not equals and (value := next(arguments, None)) is None:
            raise UsageError("flagfile takes a file. Received: --flagfile at the end. Write --flagfile=NAME.")
        elif value.strip():  # An empty value means no file: a script may have none.
            path = find_flagfile(value.strip())
            if path in within:
                raise UsageError(
                    f"A flag file must not include itself. Received: flagfile={str(path)!r}. Remove that line."
                )
            yield from _expanded(iter(_lines(path)), (*within, path))


def _lines(path: pathlib.Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UsageError(
            f"flagfile must be readable text. Received: flagfile={str(path)!r} ({reason}). Check it."
        ) from None
    return [line for line in lines if line and not line.startswith(("#", "//"))]
