"""What options name as sources of rows: files, tables in memory, and standard input and named pipes, which can be read
once."""

from __future__ import annotations

import pathlib
import sys
from typing import BinaryIO

from tfbert.config.data import STANDARD_STREAM, is_pipe
from tfbert.config.given import Given
from tfbert.data.given_table import GivenTable
from tfbert.errors import UsageError


def standard_input(option: str) -> BinaryIO:
    """Standard input, to be read by `open_rows`.

    Args:
        option: Which option was `-`, for the message.

    Raises:
        UsageError: where it is closed.
    """
    if sys.stdin is None:
        raise UsageError(
            f"Standard input must be open to be read. Received: {option}='-' with standard input closed. "
            "Pipe the rows in, or pass a file's path."
        )
    return sys.stdin.buffer


def labelled_source(name: str) -> pathlib.Path | BinaryIO | GivenTable:
    """What `train_file`, `test_file` or one of the validation files names: a file as its path, standard input as an
    open stream, or a table in memory.

    Raises:
        UsageError: for standard input that is closed.
    """
    if isinstance(name, Given):
        return name.source
    return standard_input("test_file") if name == STANDARD_STREAM else pathlib.Path(name)


def input_source(name: str) -> pathlib.Path | BinaryIO:
    """What `input_file` names: standard input or a pipe as an open stream, a file as its path.

    Raises:
        UsageError: for standard input that is closed, or a pipe that cannot be opened.
    """
    if name == STANDARD_STREAM:
        return standard_input("input_file")
    path = pathlib.Path(name)
    if not is_pipe(name):
        return path
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(
            f"input_file must be readable. Received: input_file={name!r} ({error.strerror}). Check the path."
        ) from None
