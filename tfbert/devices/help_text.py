"""Help on the screen: the text of a flag, and printing for a reader that may leave. Imports no TensorFlow."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

WIDTH = 100
ASKS_FOR_HELP = ("--help", "-help", "-h", "-?", "--helpshort", "-helpshort")


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


def flag_text(names: Sequence[str], takes: str, text: str, default: Any = None) -> str:
    """The lines of a flag: how it is written, what it does, its default.

    Args:
        names: Its names.
        takes: What follows `=`: a word such as N, or choices with | between; empty for a switch.
        text: What it does.
        default: Its default; None where there is none, or where the text says what an empty value does.
    """
    written = ", ".join(f"--{name}={takes}" if takes else f"--[no]{name}" for name in names)
    if "|" in takes and len(f"  {written}") > WIDTH:  # They do not fit on the line of the name.
        written, text = f"--{names[0]}=WORD", f"{takes.replace('|', ', ')}. {text}"
    if isinstance(default, bool):
        default = "on" if default else "off"
    elif isinstance(default, list | tuple):
        default = ",".join(map(str, default))
    if default not in (None, ""):
        text += f" Default: {default}."
    return "\n".join([f"  {written}", *wrapped(text, "      ")]) + "\n"


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
