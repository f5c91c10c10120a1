"""A file of rows that was just opened; what `rows` and `json_rows` return."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfbert.errors import UsageError

Row = tuple[int, "list[Any] | UsageError"]
"""A row's line number (or row number, for .parquet) from 1, and its values or the error that says why it has none."""


_ANSWER, _ANSWERS = "answer", ("accept", "reject", "ignore")
"""Where Prodigy writes what an annotator said of its suggestion, and the words for it."""
_RULE = f"In annotations of Prodigy, {_ANSWER!r} is one of {', '.join(_ANSWERS)}"
_REPAIR = "Repair or drop the row, or rename the column"


VALUES = ("text", "class", "whole", "float", "truth")
LISTS = ("texts", "classes", "wholes", "floats", "truths")
"""What columns of data sets hold that may be read: values, and lists of these."""


class LeftOut(UsageError):
    """In place of a row that is no fault, but that nobody is to train on. It says which one, and why."""


class Unlabelled(UsageError):
    """For a row without a label: a fault in a file, but as it should be in a data set, where labels are held back.

    Args:
        message: What is wrong, for a file.
        what: What such a row is called, for a data set.
    """

    def __init__(self, message: str, what: str = "unlabelled"):
        super().__init__(message)
        self.what = what


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenFile:
    """A file whose columns are known and whose rows have yet to be read, once.

    Attributes:
        name: What messages call it.
        columns: The columns' names; without a header, indexes from 0.
        read: Takes the wanted columns and iterates over the rows. Bytes that are not UTF-8 appear as lone surrogates.
        unit: What the rows' numbers count: `line` or `row`.
        hint: What to try if no column is the right one, for the end of a message: empty, or ", or ...".
        label_names: The names of a column's ids, or of those in its lists, in their order, where the data itself has
            them.
        kinds: What each column of a data set holds: one of `VALUES` or `LISTS`; the keys of objects, or of lists of
            these, separated by commas; or `other`. Empty where the data does not say.
    """

    name: str
    columns: list[str]
    read: Callable[[Sequence[str]], Iterator[Row]]
    unit: str = "line"
    hint: str = ""
    label_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def of_kinds(self, *kinds: str) -> list[str]:
        """The columns that hold one of these; all where the data does not say what they hold."""
        return [column for column in self.columns if not self.kinds or self.kinds[column] in kinds]

    def only(self, kind: str) -> tuple[str, ...]:
        """The only column that certainly holds this; empty for none or several."""
        found = tuple(column for column, own in self.kinds.items() if own == kind)
        return found if len(found) == 1 else ()

    def without_rejected(self) -> OpenFile:
        """The same file for whoever reads its labels: an annotation that Prodigy says was rejected or ignored, in a
        column `answer` that is read as nothing else, becomes a `LeftOut`."""
        if self.columns.count(_ANSWER) != 1:
            return self

        def read(wanted: Sequence[str]) -> Iterator[Row]:
            if _ANSWER in wanted:
                yield from self.read(wanted)
                return
            is_of_prodigy = None
            for line, row in self.read([*wanted, _ANSWER]):
                if isinstance(row, UsageError):
                    yield line, row
                    continue
                *row, answer = row
                if is_of_prodigy is None and answer is not None:
                    is_of_prodigy = answer in _ANSWERS
                if is_of_prodigy and answer not in (None, "accept"):
                    where = f"{_ANSWER}={answer!r:.60} in {self.name}, {self.unit} {line}"
                    bad = UsageError(f"{_RULE}. Received: {where}. {_REPAIR}.")
                    row = LeftOut(where) if answer in _ANSWERS else bad
                yield line, row

        return dataclasses.replace(self, read=read)
