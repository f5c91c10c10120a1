"""The labels of rows as they are written -> the names, or ids, of each row's labels.

A table has them in one of these forms, which all its rows share: a column of 0 and 1 for each label; a list of names,
of ids, or of a 0 or 1 for each label; a text in which a character separates names or ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from tfbert.data.files import literal
from tfbert.data.given_table import plain
from tfbert.data.labels import NAMES_OR_MISSING, canonical, is_missing
from tfbert.data.lines import not_utf8, not_utf8_error
from tfbert.data.open_file import Unlabelled
from tfbert.errors import UsageError

SEPARATORS = ("|", ";", ",")
"""What is taken for a separator unless the user names one."""
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")
Cell = str | list
Where = Callable[[int], str]
"""What messages call a row, counted from 0."""


def is_indicator(value: Any) -> bool:
    """Whether a value says if a row has a label: 0 or 1, true or false, as a number or as text."""
    return _indicated(value) is not None


def indicated_labels(values: Sequence[Any], columns: Sequence[str], where: str) -> tuple[str, ...]:
    """The labels of a row that has a column for each.

    Args:
        values: Of these columns.
        columns: Their names, which are the labels'.
        where: What messages call the row.

    Raises:
        UsageError: for a value that is not 0 or 1.
    """
    found = []
    for value, column in zip(values, columns, strict=True):
        has = _indicated(value)
        if has is None:
            received = "none" if _is_none(value) or value == "" else f"{value!r:.60}"
            raise UsageError(
                "The column of a label holds 0 or 1 in each row, or true or false. "
                f"Received: {received} for {column!r} in {where}. Repair or drop the row, or pass another "
                "--label_column."
            )
        if has:
            found.append(column)
    return tuple(found)


def _indicated(value: Any) -> bool | None:
    text = str(plain(value)).strip().lower()
    return text in _YES if text in (*_YES, *_NO) else None


def cell_of(value: Any, column: str, where: str) -> Cell:
    """The labels of a row that has them in one column: a text, or the items of a list.

    A text that is a list for JSON or for Python, as pandas writes lists into .csv files, is that list; so are a set and
    a tuple.

    Raises:
        UsageError: for what is neither, and for a missing value.
    """
    value = plain(value)
    if isinstance(value, list):
        return value
    if _is_none(value):
        raise Unlabelled(
            "Every row needs its labels, if only an empty list or text. "
            f"Received: none for {column!r} in {where}. Write [] or '' where a text has no label, or drop the row."
        )
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise UsageError(
            "The labels of a row are a list, or a text in which a character separates them. "
            f"Received: {column}={value!r:.60} in {where}. Convert them, or pass another --label_column."
        )
    text = str(value).strip()
    if byte := not_utf8(text):
        raise not_utf8_error(byte, where)
    if "\0" in text:
        raise UsageError(f"A label must be text. Received: zero bytes in {text!r:.60} in {where}. Repair the file.")
    if text == "set()":
        return []
    is_bracketed = text[:1] == "[" and text[-1:] == "]"
    found = literal(text) if is_bracketed or text[:1] in ("{", "(") else None
    if is_bracketed and not isinstance(found, list):
        raise UsageError(
            "A text in brackets must be a list that JSON or Python reads. "
            f'Received: {column}={text!r:.60} in {where}. Write it as ["a", "b"] or as a|b.'
        )
    if isinstance(found, set):
        return sorted(found, key=str)
    return list(found) if isinstance(found, list | tuple) else text


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


class LabelReader:
    """How one table writes the labels of its rows, found from all of them.

    Args:
        cells: Those of all rows.
        separator: As the user named it; empty: found.
        known: Labels that are known beforehand: a text that is one of them holds no separator, and is no missing value.
        where: What messages call a row.

    Attributes:
        notes: What was found that the user did not say, a line.
        size: The number of labels where lists have a 0 or 1 for each; else 0.

    Raises:
        UsageError: for cells of several forms, or several possible separators.
    """

    def __init__(self, cells: Sequence[Cell], separator: str, known: Collection[str], where: Where):
        self._known, self._words = known, {*known, *NAMES_OR_MISSING}
        lists = [isinstance(cell, list) for cell in cells]
        if any(lists) and not all(lists):
            row = lists.index(not lists[0])
            raise UsageError(
                f"All rows must have their labels in one form. Received: {_shown(cells[row])} in {where(row)}, "
                f"{_shown(cells[0])} in {where(0)}. Convert one of them."
            )
        self.notes: tuple[str, ...] = ()
        self.size, self._separator = 0, separator
        if not any(lists):
            self._separator = separator or self._found_separator(cells, where)
        elif separator:
            raise UsageError(
                f"A list needs no separator. Received: label_separator={separator!r} for {_shown(cells[0])} in "
                f"{where(0)}. Drop --label_separator."
            )
        else:
            self.size = _size_of_vectors(cells)

    def _found_separator(self, cells: Sequence[Cell], where: Where) -> str:
        whole = [cell for cell in cells if cell not in self._known]
        found = {mark: cell for mark in SEPARATORS if (cell := next((c for c in whole if mark in c), None))}
        if len(found) > 1:
            rows = {mark: cells.index(cell) for mark, cell in found.items()}
            seen = " and ".join(f"{mark!r} in {where(row)}" for mark, row in rows.items())
            raise UsageError(
                f"One character separates labels. Received: {seen}. Pass --label_separator with the right one."
            )
        if found:
            (mark,) = found
            self.notes = (f"labels are separated by {mark!r}; --label_separator takes another character",)
            return mark
        blanks = next((cell for cell in whole if _are_numbers(cell.split()) and " " in cell), None)
        if blanks and all(_are_numbers(cell.split()) for cell in whole if cell):
            self.notes = ("labels are numbers separated by blanks",)
            return " "
        return ""

    def labels(self, cell: Cell, where: str) -> tuple[str, ...]:
        """The labels of a row: names, or ids as text.

        Raises:
            UsageError: for a label that occurs twice, is empty, or stands for a missing one.
        """
        if self.size:
            return tuple(str(i) for i, value in enumerate(cell) if value)
        found = tuple(self._of_list(cell, where) if isinstance(cell, list) else self._of_text(cell, where))
        if missing := next((label for label in found if is_missing(label, self._words)), None):
            raise missing_error(missing, where)
        if len(set(found)) < len(found):
            twice = next(label for label in found if found.count(label) > 1)
            vector = ", or write a 0 or 1 for each label, as many in all rows" * (twice in ("0", "1"))
            raise UsageError(
                f"A row has each label once. Received: {twice!r:.60} twice in {where}. Repair the row{vector}."
            )
        return found

    def _of_text(self, cell: str, where: str) -> Iterator[str]:
        if not cell:
            return
        if is_missing(cell, self._known):
            raise missing_error(cell, where)
        parts = [cell] if cell in self._known or not self._separator else cell.split(self._separator)
        parts = parts[:-1] if len(parts) > 1 and not parts[-1].strip() else parts  # As in `a|b|`.
        for part in parts:
            if not part.strip():
                raise UsageError(
                    f"Labels must not be empty. Received: {cell!r:.60} in {where}, separated by "
                    f"{self._separator!r}. Repair the row, or pass another --label_separator."
                )
            yield canonical(part.strip())

    def _of_list(self, cell: list, where: str) -> Iterator[str]:
        for item in cell:
            if item is None:
                raise Unlabelled(
                    f"A list of labels holds names or ids. Received: {_shown(cell)} in {where}. Repair it."
                )
            if isinstance(item, bytes):
                item = item.decode("utf-8", "surrogateescape")
            is_id = isinstance(item, int) and not isinstance(item, bool) and item >= 0
            if not is_id and not (isinstance(item, str) and item.strip()) or not_utf8(str(item)):
                raise UsageError(
                    "A list of labels holds names, or ids from 0, or a 0 or 1 for each label, as many in all rows. "
                    f"Received: {item!r:.60} of {_shown(cell)} in {where}. Repair or drop the row."
                )
            yield canonical(str(item).strip())


def missing_error(label: str, where: str) -> UsageError:
    """The error for what stands for a missing label."""
    return Unlabelled(
        "It must be clear whether a row has labels. "
        f"Received: {label!r}, which stands for a missing value, in {where}. Leave the column empty where a "
        "text has no label, drop the row, or name this label with --label_names."
    )


def _size_of_vectors(cells: Sequence[Cell]) -> int:
    """The length of lists that have a 0 or 1 for each label; 0 for lists of names or ids.

    Ids occur once in a row, and there are others than 0 and 1 or rows of other lengths.
    """
    sizes = {len(cell) for cell in cells}
    (size,) = sizes if len(sizes) == 1 else (0,)
    items = [item for cell in cells for item in cell] if size > 1 else []
    return size if items and all(isinstance(item, int | float) and item in (0, 1) for item in items) else 0


def _are_numbers(parts: Sequence[str]) -> bool:
    return bool(parts) and all(part.isascii() and part.isdigit() for part in parts)


def _shown(cell: Cell) -> str:
    return f"the {'list' if isinstance(cell, list) else 'text'} {cell!r:.60}"


def holds_lists(values: Sequence[Any]) -> bool:
    """Whether the first values of a column are lists of labels, which nothing else has beside a text."""
    lists = [list(value) for value in values if isinstance(value, list | np.ndarray)]
    items = [item for value in lists for item in value]
    return bool(items) and len(lists) == len(values) and all(isinstance(item, str | int | float) for item in items)
