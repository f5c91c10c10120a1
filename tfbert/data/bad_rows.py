"""Rows of an input that cannot be read: the first ends the reading, or all are skipped and counted."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tfbert.config.counted import counted
from tfbert.data.lines import not_utf8
from tfbert.data.open_file import LeftOut, Unlabelled
from tfbert.errors import UsageError

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
