"""Rows of a file -> chunks of texts with their ids; rows that cannot be read are reported, or skipped and counted."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tfbert.data.columns import find_columns
from tfbert.data.files import check_text
from tfbert.data.rows import OpenFile, not_utf8
from tfbert.errors import UsageError

log = logging.getLogger("tfbert")

CHUNK_ROWS = 8192
"""Rows read, sorted by length and predicted together, at most."""
CHUNK_CHARACTERS = 1 << 22
"""Likewise, so that memory does not grow with the length of texts."""

_ID_NAMES = ("id", "idx", "index", "guid")
_MAX_REPORTED_ROWS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts:
    """Consecutive rows: each one's id, text and, for pairs, second text."""

    ids: list[Any]
    text: list[str]
    text_pair: list[str] | None


def read_texts(file: OpenFile, texts: Sequence[str], id_column: str, bad_rows: BadRows) -> Iterator[Texts]:
    """Reads rows in chunks of at most `CHUNK_ROWS`, as long as there are any.

    Args:
        file: Just opened.
        texts: The column of the texts, or the two of pairs.
        id_column: The column of the ids; empty: rows are numbered from 0.
        bad_rows: Decides about rows that cannot be read.

    Raises:
        UsageError: for a row that cannot be read and may not be skipped.
    """
    wanted = [*texts, *([id_column] if id_column else [])]
    ids: list[Any] = []
    columns: list[list[str]] = [[] for _ in texts]
    size = 0
    for number, (line, row) in enumerate(file.read(wanted)):
        where = f"{file.name}, {file.unit} {line}"
        try:
            if isinstance(row, UsageError):
                raise row
            # What is not valid Unicode reaches the tokenizer, which drops it, as it does in an exported model.
            values = [check_text(value, name, where, strict=False) for name, value in zip(texts, row, strict=False)]
            row_id = _row_id(row[-1], id_column, where) if id_column else number
        except UsageError as error:
            bad_rows.add(error)
            continue
        bad_rows.note_bytes(values, where)
        ids.append(row_id)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
            size += len(value)
        if len(ids) == CHUNK_ROWS or size >= CHUNK_CHARACTERS:
            yield Texts(ids=ids, text=columns[0], text_pair=columns[1] if len(texts) == 2 else None)
            ids, columns, size = [], [[] for _ in texts], 0
    if ids:
        yield Texts(ids=ids, text=columns[0], text_pair=columns[1] if len(texts) == 2 else None)


def find_text_columns(file: OpenFile, text_column: Sequence[str], id_column: str) -> tuple[tuple[str, ...], str]:
    """The column or columns of the texts, and that of the ids (`""`: none).

    Args:
        file: Just opened.
        text_column: As asked for; empty: found by name.
        id_column: Likewise.

    Raises:
        UsageError: for a column that is not there, or none or several that could be meant.
    """
    if id_column and file.columns.count(id_column) != 1:
        raise UsageError(
            f"id_column must be a column of the input. Received: id_column={id_column!r} for {file.name} with columns "
            f"{', '.join(map(repr, file.columns[:20]))}. Pass one of them, or none."
        )
    others = [column for column in file.columns if column != id_column]
    texts, _ = find_columns(
        file.name,
        others,
        text_column=text_column,
        find_label=False,  # Nor is it an error that several look like one: predict has no --label_column.
        hint=file.hint,
    )
    usual = [column for column in others if column.strip().lower() in _ID_NAMES and column not in texts]
    return texts, id_column or (usual[0] if len(usual) == 1 else "")


class BadRows:
    """Counts the rows that cannot be read, and logs where they are, up to a limit.

    Args:
        skip: Whether to go on after one.
    """

    def __init__(self, skip: bool):
        self._skip = skip
        self.count = 0
        self._with_bytes, self._first_with_bytes = 0, ""

    def add(self, error: UsageError) -> None:
        """Takes note of a row.

        Raises:
            UsageError: that very error, where rows may not be skipped.
        """
        if not self._skip:
            raise UsageError(f"{error} Or pass --skip_bad_rows.") from None
        self.count += 1
        if self.count <= _MAX_REPORTED_ROWS:
            log.info("skipped: %s", error)
        if self.count == _MAX_REPORTED_ROWS:
            log.info("further rows that are skipped are only counted")

    def note_bytes(self, texts: Iterable[str], where: str) -> None:
        """Takes note of a row that is answered without some of its bytes."""
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


def _row_id(value: Any, column: str, where: str) -> str | int | float:
    """The id as both .tsv and JSON can hold it."""
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):  # From .parquet.
        return str(value)
    if isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UsageError(
        f"An id must be a word, a number or a date. Received: {column}={value!r:.60} in {where}. "
        "Repair or drop the row, or pass another --id_column."
    )
