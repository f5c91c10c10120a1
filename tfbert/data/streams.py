"""Standard input as a source of rows."""

from __future__ import annotations

import sys
from typing import BinaryIO

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
