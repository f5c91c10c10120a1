"""Files of examples -> texts and labels as written. Every error names the file and the line.

`rows` parses the files; the task decides what a label means.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.columns import find_columns, in_data
from tfbert.data.labels import label_text, named_id
from tfbert.data.lines import not_utf8, not_utf8_error
from tfbert.data.open_file import VALUES, BadRows, OpenFile
from tfbert.data.rows import Source, open_source
from tfbert.errors import UsageError

_BY_NAME = DataConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawTable:
    """Texts and labels as they were written.

    Attributes:
        name: Where they came from, for messages.
        text_columns: One name, or two for pairs.
        text: The texts, or the first of each pair.
        text_pair: The second of each pair; None for single texts.
        labels: As text (`1`, `true`, `entailment`), one per row; None without a label column.
        lines: Each row's position from 1: the line it starts on, or its number.
        unit: What `lines` counts: `line` or `row`.
        notes: What the user should know, one line each.
        label_names: The classes as the data set itself defines them, or as the user gives them. None: they are found
            from the training labels.
        is_regression: Whether the data set itself says that its labels are measurements.
        columns: Those that were read, by the options that name them; empty where nobody can choose them.
    """

    name: str
    text_columns: tuple[str, ...]
    text: list[str]
    text_pair: list[str] | None
    labels: list[str] | None
    lines: Sequence[int]
    unit: str = "line"
    notes: tuple[str, ...] = ()
    label_names: tuple[str, ...] | None = None
    is_regression: bool = False
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.text)

    def where(self, row: int) -> str:
        """What messages call row `row`, counted from 0."""
        return f"{self.name}, {self.unit} {self.lines[row]}"


def read_file(
    source: Source,
    config: DataConfig = _BY_NAME,
    *,
    require_label: bool = True,
    class_words: Container[str] = (),
    names_ids: bool = True,
) -> RawTable:
    """Reads a file of examples.

    TSV fields are separated by tabs, and quotes in them are plain characters, as in GLUE. CSV follows RFC 4180. JSON
    has one object per line. Blank lines are skipped, but in a .tsv of one column they are empty texts. Blanks around
    labels are dropped. In every format, a label that is empty, or that pandas reads as missing, is a missing label.

    Args:
        source: As for `open_rows`.
        config: Says its format and its columns, and whether rows that cannot be used are left out.
        require_label: Whether a file without a label column is an error.
        class_words: Words that usually stand for a missing label, but are classes here.
        names_ids: Whether labels get the names that the data itself has for their ids.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there or cannot be found, or a bad row.
    """
    file = open_source(source, config)
    texts, label = text_columns(file, config.text_column, config.label_column, require_label=require_label)
    is_data_set = bool(file.kinds)
    names = file.label_names.get(label) if names_ids or is_data_set else None  # A data set holds the names themselves.
    wanted = [*texts, label] if label else list(texts)
    values: list[list] = [[] for _ in wanted]
    lines, bad_rows = [], BadRows(config.skip_bad_rows, is_data_set=is_data_set)

    def checked(line: int, row: list) -> tuple[int, list[str]]:
        where = f"{file.name}, {file.unit} {line}"
        found = [check_text(value, column, where) for value, column in zip(row, texts, strict=False)]
        if label:
            value = named_id(row[-1], names, label, where) if names else row[-1]
            found.append(label_text(value, label, where, names or file.label_names.get(label) or class_words))
        return line, found

    for line, found in bad_rows.usable(file.without_rejected().read(wanted), checked):
        for value, out in zip(found, values, strict=True):
            out.append(value)
        lines.append(line)
    return RawTable(
        name=file.name,
        text_columns=texts,
        text=values[0],
        text_pair=values[1] if len(texts) == 2 else None,
        labels=values[-1] if label else None,
        lines=lines,
        unit=file.unit,
        notes=bad_rows.skipped(file.name, len(lines), "example", "rows"),
        label_names=names,
        is_regression=file.kinds.get(label) == "float",
        columns={"text_column": texts, "label_column": (label,) if label else ()},
    )


def text_columns(
    file: OpenFile, text_column: Sequence[str] = (), label_column: str = "", *, require_label: bool = True
) -> tuple[tuple[str, ...], str]:
    """The columns of the texts and of the label, as `find_columns` finds them. Of a data set, they are values, and the
    only text and the only class, whatever they are called.

    Raises:
        UsageError: as `find_columns`.
    """
    columns = file.of_kinds(*VALUES)
    return find_columns(
        file.name,
        columns,
        text_column=in_data(text_column, columns) or file.only("text") or text_column,
        label_column=next(iter(in_data([label_column], columns) or file.only("class")), label_column),
        require_label=require_label,
        hint=file.hint,
    )


def literal(text: str) -> Any:
    """The list, dictionary, set or tuple that a text is, as JSON or Python writes it; None for any other text."""
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            value = parse(text)
            if isinstance(value, list | dict | set | tuple):
                return value
    return None


def check_text(value: Any, column: str, where: str, *, strict: bool = True) -> str:
    """Checks that a row's text is valid, and returns it.

    Args:
        value: As it was read.
        column: The column it is from.
        where: What messages call the row.
        strict: Refuse what is not valid Unicode. If false, it stays in the text, as lone surrogates.

    Raises:
        UsageError: for a value that is not a text.
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
