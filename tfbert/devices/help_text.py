"""Help on the screen: the text of a flag, and printing for a reader that may leave. Imports no TensorFlow."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable

from absl import flags

WIDTH = 100
ASKS_FOR_HELP = ("--help", "-help", "-h", "-?", "--helpshort", "-helpshort")
_KINDS = {"int": "N", "integer": "N", "float": "X", "number": "X", "string": "TEXT", "multi string": "TEXT"}
_KINDS |= {"comma separated list of strings": "A,B"}


def show(text: str) -> int:
    """Prints a text on stdout.

    Returns:
        The exit status: 0; 141 where the reader, such as `head`, closed the pipe.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Else Python fails once more at its end.
        if not isinstance(error, BrokenPipeError):
            raise
        return 141
    return 0


def flag_text(flag: flags.Flag, alias: str = "") -> str:
    """A flag: how it is written, what it does, its default.

    Args:
        flag: The flag.
        alias: Its other name, if it has one.
    """
    choices = getattr(flag.parser, "enum_values", None)
    kind = "|".join(choices or [_KINDS.get(part, part) for part in flag.flag_type().split(" or ")])
    # absl writes the choices before the text.
    text, default = flag.help.removeprefix(f"<{'|'.join(choices or ())}>: "), _default(flag)
    names = [f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}={kind}"]
    names += [f"--{alias}={kind}"] * bool(alias)
    if choices and len(f"  {', '.join(names)}") > WIDTH:  # They do not fit on the line of the name.
        names, text = [f"--{flag.name}=WORD"], f"{', '.join(choices)}. {text}"
    return entry(names, f"{text} Default: {default}." if default else text)


def entry(names: Iterable[str], text: str) -> str:
    """The lines of one flag.

    Args:
        names: How it is written.
        text: What it does.
    """
    lines = [f"  {', '.join(names)}"]
    while len(lines[-1]) > WIDTH and "|" in lines[-1][:WIDTH]:  # Between its choices.
        end = lines[-1].rindex("|", 0, WIDTH) + 1
        lines[-1:] = [lines[-1][:end], " " * 10 + lines[-1][end:]]
    return "\n".join([*lines, *wrapped(text, "      ")]) + "\n"


def wrapped(text: str, indent: str, *, further: int = 0, width: int = WIDTH) -> list[str]:
    """The lines of a text, those after the first indented further; a line breaks at spaces only."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + further * " ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _default(flag: flags.Flag) -> str:
    """A default as it is written; empty where there is none, or where the text says what an empty value does."""
    if flag.boolean:
        return {True: "on", False: "off", None: ""}[flag.default]
    if isinstance(flag.default, list):
        return ",".join(map(str, flag.default))
    return "" if flag.default is None else str(flag.default)
