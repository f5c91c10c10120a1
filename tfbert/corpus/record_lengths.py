"""The lengths of the records of many files, and the file of each record: looked up, not held in memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from tfbert.corpus.record_index import RecordFile


class RecordLengths:
    """The number of tokens of each record, read on demand: `lengths[indices]` is int64 in the shape of `indices`.

    Args:
        files: The files of the records.
        numbers: int64 `[n]`, which of their records these are; None for all.
    """

    def __init__(self, files: Sequence[RecordFile], numbers: np.ndarray | None):
        self._parts = [file.lengths for file in files]
        self._ends = np.cumsum([len(part) for part in self._parts])
        self._numbers = numbers

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._numbers is None else len(self._numbers)

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        numbers = np.asarray(indices)
        numbers = numbers if self._numbers is None else self._numbers[numbers]
        out = np.empty(numbers.shape, np.int64)
        for where, file, number in by_file(self._ends, numbers.reshape(-1)):
            out.reshape(-1)[where] = self._parts[file][number]
        return out

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """All lengths, in memory."""
        whole = np.concatenate(self._parts) if self._numbers is None else self[np.arange(len(self))]
        return whole.astype(dtype or np.int64)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """int64 `[longest + 1]`: how many records have 0, 1, 2, ... tokens."""
        parts = self._parts if self._numbers is None else [np.asarray(self)]
        found = [np.bincount(part[at : at + 2**20]) for part in parts for at in range(0, len(part), 2**20)]
        counts = np.zeros(max(map(len, found)), np.int64)
        for part in found:
            counts[: len(part)] += part
        return counts

    def max(self) -> int:
        """The length of the longest record."""
        return len(self.counts) - 1

    def sum(self) -> int:
        """The number of all tokens."""
        return int(self.counts @ np.arange(len(self.counts)))


def by_file(ends: np.ndarray, numbers: np.ndarray) -> Iterator[tuple[np.ndarray, int, np.ndarray]]:
    """Sorts numbers of records by the file that they are in.

    Args:
        ends: int64 `[files]`: the number of records in all files up to and including each one.
        numbers: int64 `[n]`.

    Yields:
        For each file: places in `numbers`, the file's number, and the numbers of the records in it, ascending.
    """
    order = np.argsort(numbers, kind="stable")
    files = np.searchsorted(ends, numbers[order], side="right")
    for where in np.split(order, np.flatnonzero(np.diff(files)) + 1) if len(order) else ():
        file = int(np.searchsorted(ends, numbers[where[0]], side="right"))
        yield where, file, numbers[where] - (ends[file - 1] if file else 0)
