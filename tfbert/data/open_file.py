"""What `rows` opens: a file that was just opened, or a table in memory; and rows that cannot be used."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tfbert.config.types import counted
from tfbert.data.lines import not_utf8
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


FORMAT = "parquet"
"""The format of a table in memory, where a file's is asked for: its columns have types, as in Parquet."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GivenTable(OpenFile):
    """A table in memory, to be read as often as one likes. Its name is such as `train=DataFrame of 60 rows`."""

    unit: str = "row"


def make_table(
    argument: str,
    kind: str,
    columns: Sequence[Any],
    num_rows: int,
    read: Callable[[list[int]], Iterator[Sequence[Any] | UsageError]],
    label_names: Mapping[str, tuple[str, ...]] | None = None,
) -> GivenTable:
    """A table of values of any types.

    Args:
        argument: As for `given_table`.
        kind: What it is, as a user calls it.
        columns: The columns' names; all become text.
        num_rows: The number of rows.
        read: Takes the places of the wanted columns; iterates over the rows, or over what is wrong with them.
        label_names: The names of ids, by column.

    Raises:
        UsageError: for no rows.
    """
    names = [str(column) for column in columns]
    name = f"{argument}={kind} of {counted(num_rows, 'row')}"
    if not num_rows:
        raise UsageError(f"Data needs at least one row. Received: {name}. Pass data with rows.")

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        for number, row in enumerate(read([names.index(column) for column in wanted]), start=1):
            yield number, row if isinstance(row, UsageError) else [plain(value) for value in row]

    return GivenTable(name=name, columns=names, read=rows, label_names=dict(label_names or {}))


def plain(value: Any) -> Any:
    """A value with the types of Python alone, as a file of typed columns gives it.

    Missing values (None, NaN, pandas.NA) become None. Bytes are UTF-8, as TensorFlow's strings are; others stay bytes,
    which no text or label may be. A decimal number is an integer or a float, as other numbers are. What Python has no
    type for stays as it is.
    """
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, decimal.Decimal):
        value = int(value) if value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, str):
        return str.__str__(value)  # An Enum's text, rather than its name.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, bytes):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, np.generic | np.ndarray):
        is_time = value.dtype.kind in "mM"  # Python's form of some of these is an integer.
        return value if is_time else plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    for name in ("as_py", "numpy", "to_pylist", "to_list", "tolist"):  # Of Arrow, tensors and columns.
        if callable(method := getattr(value, name, None)):
            return plain(method())
    return value


log = logging.getLogger("tfbert")

_MAX_REPORTED_ROWS = 100
Place = TypeVar("Place")
Found = TypeVar("Found")


class BadRows:
    """Counts the rows that cannot be read.

    Args:
        skip: Whether to skip such a row and continue.
        is_data_set: Whether rows without a label are left out, and counted.
        is_logged: Whether to log where they are, up to a limit.

    Attributes:
        count: How many there were.
        first: What is wrong with the first; empty without one.
    """

    def __init__(self, skip: bool, *, is_data_set: bool = False, is_logged: bool = False):
        self._skip, self._is_data_set, self._is_logged = skip, is_data_set, is_logged
        self.count, self.first = 0, ""
        self._with_bytes, self._first_with_bytes = 0, ""
        self._left_out: list[str] = []
        self._unlabelled = collections.Counter[str]()

    def add(self, error: UsageError) -> None:
        """Counts a row that cannot be read, or that is to be left out.

        Raises:
            UsageError: that very error, if rows may not be skipped.
        """
        if isinstance(error, LeftOut):
            self._left_out.append(str(error))
            return
        if self._is_data_set and isinstance(error, Unlabelled):
            self._unlabelled[error.what] += 1
            return
        if not self._skip:
            raise UsageError(f"{error} Or pass --skip_bad_rows.") from None
        self.count += 1
        self.first = self.first or str(error)
        if self._is_logged and self.count <= _MAX_REPORTED_ROWS:
            log.info("skipped: %s", error)
        if self._is_logged and self.count == _MAX_REPORTED_ROWS:
            log.info("further skipped rows are only counted")

    def usable(self, rows: Iterable[tuple[Place, Any]], read: Callable[[Place, Any], Found]) -> Iterator[Found]:
        """What `read` makes of each row's place and values. Adds the rows that it refuses, and those that are errors.

        Raises:
            UsageError: as `add` does.
        """
        for place, row in rows:
            try:
                if isinstance(row, UsageError):
                    raise row
                found = read(place, row)
            except UsageError as error:
                self.add(error)
            else:
                yield found

    def skipped(self, name: str, num_left: int, what: str, rows: str) -> tuple[str, ...]:
        """A note for the user of what was skipped, if anything was.

        Args:
            name: What messages call the data.
            num_left: How many rows can be used.
            what: What one of them is called.
            rows: What several are called.

        Raises:
            UsageError: if none can be used; an `Unlabelled` if that is for want of labels.
        """
        if not num_left and self._unlabelled and not self.count:
            raise Unlabelled(f"Examples need labels. Received: {name!r} without any. Pass other data.")
        if not num_left:
            first = self.first or "".join(self._left_out[:1])
            received = f"none that can be used; the first: {first}" if first else "none. Check the path."
            raise UsageError(f"A data file needs at least one {what}. Received: {name!r} with {received}")
        note = f"{name}: {self.count:,} of {num_left + self.count:,} {rows} skipped; the first: {self.first}"
        notes = (note,) if self.count else ()
        if count := len(self._left_out):
            notes += (f"{name}: {count:,} {rows if count > 1 else what} left out; the first: {self._left_out[0]}",)
        own = (f"{name}: {counted(count, f'{kind} {what}')} left out" for kind, count in self._unlabelled.items())
        return (*notes, *own)

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
            f"bytes that are not UTF-8 were left out of {counted(self._with_bytes, 'text')}, the first "
            f"{self._first_with_bytes}"
        ]
