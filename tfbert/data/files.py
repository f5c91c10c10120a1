"""Files of examples -> texts and labels as written. Every complaint names the file and the line.

`rows` parses; what a label means is for `sources`.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from tfbert.data.columns import find_columns
from tfbert.data.rows import file_format, not_utf8, not_utf8_error, open_rows
from tfbert.errors import UsageError

NO_HEADER_HINT = ", or indexes with --noheader where the file has no header"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawTable:
    """Texts and labels as they were written.

    Attributes:
        name: Where they came from, for messages.
        text_columns: One name, or two for pairs.
        text: The texts, or the first of each pair.
        text_pair: The second of each pair; None for single texts.
        labels: As text (`1`, `true`, `entailment`), one a row, None where a row has none; None without a label column.
        lines: Each row's position from 1: the line it starts on, or its number.
        unit: What `lines` counts: `line` or `row`.
    """

    name: str
    text_columns: tuple[str, ...]
    text: list[str]
    text_pair: list[str] | None
    labels: list[str | None] | None
    lines: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.text)

    def where(self, row: int) -> str:
        """What messages call row `row`, counted from 0."""
        return f"{self.name}, {self.unit} {self.lines[row]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawData:
    """All tables of one data set, before the meaning of the labels is settled.

    Attributes:
        train: To train on; None where a saved model is evaluated.
        validation: Name -> to evaluate on during training.
        test: To evaluate on once, at the end.
        label_names: As the data set itself defines them; None: to be found from the training labels.
        is_regression: Whether the data set itself says that its labels are measurements.
        notes: What the user should know, one line each.
    """

    train: RawTable | None
    validation: dict[str, RawTable]
    test: RawTable | None = None
    label_names: tuple[str, ...] | None = None
    is_regression: bool = False
    notes: tuple[str, ...] = ()


def read_file(
    path: str | pathlib.Path,
    *,
    text_column: Sequence[str] = (),
    label_column: str = "",
    header: bool = True,
    require_label: bool = True,
) -> RawTable:
    """Reads a file of examples.

    TSV fields are separated by tabs, and quotes in them are plain characters, as in GLUE. CSV follows RFC 4180. JSON
    has one object a line. Blank lines are skipped, but in a .tsv of one column they are empty texts; blanks around
    labels are dropped.

    Args:
        path: Names the format by its ending: .tsv, .csv, .jsonl, .json or .parquet, all but the last also with .gz.
        text_column: One column, or two for pairs; empty: found by name. Without a header, indexes from 0.
        label_column: Likewise.
        header: Whether a .tsv or .csv file starts with its columns' names.
        require_label: Whether every row must have a label. If not, a file without a label column is fine.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there or cannot be found, or a bad row.
    """
    path = pathlib.Path(path)
    file = open_rows(path, file_format(path), header=header)
    texts, label = find_columns(
        str(path),
        file.columns,
        text_column=text_column,
        label_column=label_column,
        require_label=require_label,
        hint=NO_HEADER_HINT if file.is_delimited else "",
    )
    wanted = [*texts, label] if label else list(texts)
    values: list[list] = [[] for _ in wanted]
    lines = []
    for line, row in file.read(wanted):
        if isinstance(row, UsageError):
            raise row
        where = f"{path}, {file.unit} {line}"
        for column, value, out in zip(wanted, row, values, strict=True):
            out.append(
                _label_text(value, column, where, require_label)
                if column == label
                else check_text(value, column, where)
            )
        lines.append(line)
    if not lines:
        raise UsageError(f"A data file needs at least one example. Received: {str(path)!r} with none. Check the path.")
    return RawTable(
        name=str(path),
        text_columns=texts,
        text=values[0],
        text_pair=values[1] if len(texts) == 2 else None,
        labels=values[-1] if label else None,
        lines=lines,
        unit=file.unit,
    )


def check_text(value: Any, column: str, where: str, *, strict: bool = True) -> str:
    """A row's text, where it is one.

    Args:
        value: As it was read.
        column: Where from.
        where: What messages call the row.
        strict: Refuse what is not valid Unicode; else it stays in the text, as lone surrogates.

    Raises:
        UsageError: for what is no text.
    """
    if not isinstance(value, str):
        received = "none" if value is None else f"{value!r:.60}"
        raise UsageError(
            f"Every row needs a text, as a string. Received: {received} for {column!r} in {where}. Repair or drop it."
        )
    if strict and not value.isascii():
        if byte := not_utf8(value):
            raise not_utf8_error(byte, where)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"Text must be valid Unicode. Received: half a surrogate pair in {where}. Repair or drop the row."
            ) from None
    return value


def _label_text(value: Any, column: str, where: str, is_required: bool) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isnan(value):
        value = None  # as pandas writes a missing label
    if value is not None and not isinstance(value, str | int | float):
        raise UsageError(
            "A label must be a word, a number, true or false. "
            f"Received: {column}={value!r:.60} in {where}. Pass another --label_column."
        )
    text = "" if value is None else str(value).strip()
    if byte := not_utf8(text):
        raise not_utf8_error(byte, where)
    if not text and is_required:
        raise UsageError(f"Every row needs a label. Received: none for {column!r} in {where}. Add it or drop the row.")
    return text or None
