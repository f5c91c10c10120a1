"""Rows of an input that cannot be read: reported one by one, or skipped and counted; and the ids of rows."""

from __future__ import annotations

import datetime
import decimal
import logging
import math
from collections.abc import Iterable
from typing import Any

from tfbert.data.lines import not_utf8
from tfbert.errors import UsageError

log = logging.getLogger("tfbert")

_MAX_REPORTED_ROWS = 100


class BadRows:
    """Counts the rows that cannot be read, and logs where they are, up to a limit.

    Args:
        skip: Whether to skip such a row and continue.
    """

    def __init__(self, skip: bool):
        self._skip = skip
        self.count = 0
        self._with_bytes, self._first_with_bytes = 0, ""

    def add(self, error: UsageError) -> None:
        """Counts a row that cannot be read.

        Raises:
            UsageError: that very error, if rows may not be skipped.
        """
        if not self._skip:
            raise UsageError(f"{error} Or pass --skip_bad_rows.") from None
        self.count += 1
        if self.count <= _MAX_REPORTED_ROWS:
            log.info("skipped: %s", error)
        if self.count == _MAX_REPORTED_ROWS:
            log.info("further skipped rows are only counted")

    def note_bytes(self, texts: Iterable[str], where: str) -> None:
        """Counts a row that is answered without some of its bytes."""
        byte = next(filter(None, map(not_utf8, texts)), None)
        if byte:
            self._first_with_bytes = self._first_with_bytes or f"{byte} in {where}"
            self._with_bytes += 1

    def notes(self) -> list[str]:
        """What the user should know at the end."""
        if not self._with_bytes:
            return []
        return [
            f"bytes that are not UTF-8 were left out of {self._with_bytes:,} texts, the first {self._first_with_bytes}"
        ]


def row_id(value: Any, column: str, where: str) -> str | int | float:
    """The id in a form that both .tsv and JSON can hold."""
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):  # From .parquet.
        return str(value)
    if isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UsageError(
        f"An id must be a word, a number or a date. Received: {column}={value!r:.60} in {where}. "
        "Repair or drop the row, or pass another --id_column."
    )
