"""A file of rows that was just opened; what `rows` and `json_rows` return."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfbert.errors import UsageError

Row = tuple[int, "list[Any] | UsageError"]
"""A row's line number (or row number, for .parquet) from 1, and its values or the error that says why it has none."""


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
    """

    name: str
    columns: list[str]
    read: Callable[[Sequence[str]], Iterator[Row]]
    unit: str = "line"
    hint: str = ""
    label_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
