"""Records to pre-train on, as one numbered row of them over all their files: read by number, held in none of memory."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import pathlib
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfbert.corpus.manifest import VOCAB
from tfbert.corpus.masking import Masked
from tfbert.corpus.recipe import vocab_text
from tfbert.corpus.record_index import RecordFile
from tfbert.corpus.record_parse import Parsed, parse
from tfbert.corpus.record_scan import FRAME_BYTES, HEAD_BYTES
from tfbert.corpus.schema import Schema, restore
from tfbert.errors import RunError, UsageError

_MOST_OPEN = 512
"""Files that stay open, of the 1,024 that a process may have as systems are set up."""


class RecordLengths:
    """Tokens of each record, looked up where asked for: `lengths[indices]` is int64 in the shape of `indices`.

    Args:
        files: Their parts.
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
        """All of them in memory."""
        whole = np.concatenate(self._parts) if self._numbers is None else self[np.arange(len(self))]
        return whole.astype(dtype or np.int64)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """int64 `[longest + 1]`: how many records are of 0, 1, 2, ... tokens."""
        parts = self._parts if self._numbers is None else [np.asarray(self)]
        found = [np.bincount(part[at : at + 2**20]) for part in parts for at in range(0, len(part), 2**20)]
        counts = np.zeros(max(map(len, found)), np.int64)
        for part in found:
            counts[: len(part)] += part
        return counts

    def max(self) -> int:
        """The longest."""
        return len(self.counts) - 1

    def sum(self) -> int:
        """All tokens."""
        return int(self.counts @ np.arange(len(self.counts)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordRows:
    """Some records.

    Attributes:
        ids: int32 `[n, max_seq_length]`, none masked.
        lengths: int32 `[n]`: tokens of each.
        second_start: int32 `[n]`: the position at which segment B starts; the length where there is none.
        next_sentence: int32 `[n]`: 1 where segment B is of another document; 0 where records do not say.
        masked: As the file has them masked.
    """

    ids: np.ndarray
    lengths: np.ndarray
    second_start: np.ndarray
    next_sentence: np.ndarray
    masked: Masked


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """Records of some files, one after the other, or some of these.

    Attributes:
        name: Where they came from, for messages.
        files: Indexed, all of one form.
        schema: That one.
        has_pairs: Whether they are two stretches of text, and say whether the second one follows the first.
        chosen: int64 `[n]`, the numbers of these records among those of all files; None for all.
        option: What named them, for messages.
        vocabularies: By directory, the SHA-256 of the vocabulary that its manifest names.
    """

    name: str
    files: tuple[RecordFile, ...]
    schema: Schema
    has_pairs: bool
    chosen: np.ndarray | None = None
    option: str = "train_records"
    vocabularies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: None = None  # Of `Examples`: these are their own.

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_texts(self) -> int:
        """2 for pairs."""
        return 1 + self.has_pairs

    @functools.cached_property
    def lengths(self) -> RecordLengths:
        """Tokens of each."""
        return RecordLengths(self.files, self.chosen)

    @functools.cached_property
    def crc32(self) -> int:
        """Tells what is in these records from what is in others."""
        value = zlib.crc32(repr([(len(file), file.content) for file in self.files]).encode())
        return value if self.chosen is None else zlib.crc32(self.chosen.tobytes(), value)

    def check_vocabulary(self, vocab: Sequence[str]) -> None:
        """Refuses records of another vocabulary.

        Args:
            vocab: The model's tokens in the order of their ids.

        Raises:
            UsageError: for a token that is none of it, or a manifest that names another one.
        """
        rule, way_out = "Records must be of the model's vocabulary", "the --vocab_file that they were made with"
        for file in self.files:
            if file.max_id >= len(vocab):
                raise UsageError(
                    f"{rule}. Received: {self.option} with token {file.max_id} in {file.name!r}, and a vocabulary of "
                    f"{len(vocab):,} tokens. Pass {way_out}, or prepare others."
                )
        own = hashlib.sha256(vocab_text(tuple(vocab)).encode("utf-8", "surrogatepass")).hexdigest()
        for directory, other in self.vocabularies.items():
            if own != other:
                raise UsageError(
                    f"{rule}. Received: {self.option} in {directory!r}, made with another one, {VOCAB} there. "
                    f"Pass {way_out}, or prepare others."
                )

    def take(self, indices: Iterable[int]) -> Records:
        """The records at `indices`, in that order. They keep their numbers."""
        indices = np.fromiter(indices, np.int64)
        return dataclasses.replace(self, chosen=self.numbers(indices))

    def numbers(self, indices: np.ndarray) -> np.ndarray:
        """int64: the numbers of records among those of all files, by which masks are drawn."""
        return np.asarray(indices, np.int64) if self.chosen is None else self.chosen[indices]

    def texts(self) -> list[str]:
        """None: records have tokens."""
        return []

    def contents(self) -> Iterator[tuple[str, ...]]:
        """None, likewise."""
        return iter(())

    def read(self, indices: np.ndarray) -> RecordRows:
        """Reads records from their files.

        Args:
            indices: int64 `[n]`.

        Raises:
            RunError: for a file that changed since the records were opened, or cannot be read any more.
        """
        serialised = self._serialised(self.numbers(indices))
        with tf.device("CPU"):
            found = self._parse(tf.constant(serialised, tf.string, shape=[len(serialised)]))
        parsed = Parsed(*(part if part is None else part.numpy() for part in found))
        lengths = parsed.mask.sum(axis=1).astype(np.int32)
        has_second = parsed.segments > 0
        says = parsed.next_sentence is not None
        return RecordRows(
            ids=restore(parsed.ids, parsed.positions, parsed.labels, parsed.weights),
            lengths=lengths,
            second_start=np.where(has_second.any(axis=1), has_second.argmax(axis=1), lengths).astype(np.int32),
            next_sentence=parsed.next_sentence[:, 0].astype(np.int32) if says else np.zeros_like(lengths),
            masked=Masked(
                ids=parsed.ids.astype(np.int32),
                positions=parsed.positions.astype(np.int32),
                labels=parsed.labels.astype(np.int32),
                weights=parsed.weights,
            ),
        )

    @functools.cached_property
    def _parse(self):
        return tf.function(
            lambda records: parse(records, self.schema),
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        )

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(file) for file in self.files])

    @functools.cached_property
    def _open(self) -> _OpenFiles:
        return _OpenFiles()

    def _serialised(self, numbers: np.ndarray) -> list[bytes]:
        out: list[bytes] = [b""] * len(numbers)
        for where, index, number in by_file(self._ends, numbers):
            file = self.files[index]
            starts, ends = file.offsets[number].tolist(), file.offsets[number + 1].tolist()
            with self._open.file(file) as descriptor:
                for at, start, end in zip(where.tolist(), starts, ends, strict=True):
                    out[at] = _read_record(descriptor, file, start, end - start)
        return out


def by_file(ends: np.ndarray, numbers: np.ndarray) -> Iterator[tuple[np.ndarray, int, np.ndarray]]:
    """Sorts numbers of records by the file that they are in.

    Args:
        ends: int64 `[files]`: how many records the files up to each one have.
        numbers: int64 `[n]`.

    Yields:
        Places in `numbers`, the number of their file, and those of the records in it, ascending.
    """
    order = np.argsort(numbers, kind="stable")
    files = np.searchsorted(ends, numbers[order], side="right")
    for where in np.split(order, np.flatnonzero(np.diff(files)) + 1) if len(order) else ():
        file = int(np.searchsorted(ends, numbers[where[0]], side="right"))
        yield where, file, numbers[where] - (ends[file - 1] if file else 0)


def _read_record(descriptor: int, file: RecordFile, start: int, size: int) -> bytes:
    try:
        data = os.pread(descriptor, size, start)
    except OSError as error:
        raise _unreadable(file.name, start, error.strerror) from None
    if len(data) != size or int.from_bytes(data[:8], "little") != size - FRAME_BYTES:
        raise _unreadable(file.name, start, "it is not there any more")
    return data[HEAD_BYTES : size - 4]


def _unreadable(name: str, start: int, why: str) -> RunError:
    return RunError(
        f"Records must stay as they are while they are trained on. Received: {name!r}, the record at byte {start:,} "
        f"({why}). Check the file system, and whether anything writes there."
    )


class _OpenFiles:
    """Descriptors of files, kept from one read to the next; of a great many files only the first ones'."""

    def __init__(self):
        self._kept: dict[pathlib.Path, int] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._kept)

    def file(self, file: RecordFile) -> _Descriptor:
        with self._lock:
            if (kept := self._kept.get(file.plain)) is not None:
                return _Descriptor(kept, is_kept=True)
            try:
                opened = os.open(file.plain, os.O_RDONLY)
            except OSError as error:
                raise _unreadable(file.name, 0, error.strerror) from None
            if is_kept := len(self._kept) < _MOST_OPEN:
                self._kept[file.plain] = opened
            return _Descriptor(opened, is_kept=is_kept)


@dataclasses.dataclass
class _Descriptor:
    number: int
    is_kept: bool

    def __enter__(self) -> int:
        return self.number

    def __exit__(self, *_) -> None:
        if not self.is_kept:
            os.close(self.number)


def _close_all(kept: dict[pathlib.Path, int]) -> None:
    for descriptor in kept.values():
        os.close(descriptor)
