"""Records for pre-training, numbered through all their files: read by number, never all in memory."""

from __future__ import annotations

import contextlib
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
from tfbert.corpus.record_lengths import RecordLengths, by_file
from tfbert.corpus.record_parse import Parsed, parse
from tfbert.corpus.record_scan import HEAD_BYTES
from tfbert.corpus.schema import Schema, restore
from tfbert.data.permutation import permuted
from tfbert.errors import RunError, UsageError
from tfbert.measure.tracing import counted_alone
from tfbert.tokens.normalizer import effective_casing

_MOST_OPEN = 512
"""Files that stay open, of the 1,024 that most systems allow a process by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordRows:
    """Some records.

    Attributes:
        ids: int32 `[n, max_seq_length]`, without masks.
        lengths: int32 `[n]`: tokens of each.
        second_start: int32 `[n]`: the position at which segment B starts; the length where there is none.
        next_sentence: int32 `[n]`: 1 if segment B is from another document; 0 also if records do not say.
        masked: The records as the file has them masked.
    """

    ids: np.ndarray
    lengths: np.ndarray
    second_start: np.ndarray
    next_sentence: np.ndarray
    masked: Masked


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """All records of some files in order, or a part of them.

    Attributes:
        name: Where they came from, for messages.
        files: Indexed, all of one form.
        schema: That form.
        has_pairs: Whether they have two stretches of text, and say whether the second one follows the first.
        chosen: int64 `[n]`, the numbers of these records among those of all files; None for all.
        option: The option that named them, for messages.
        vocabularies: By directory, the SHA-256 of the vocabulary that its manifest names.
        casings: By directory, how its manifest says that text was cased, as `BertTokenizer.casing`.
    """

    name: str
    files: tuple[RecordFile, ...]
    schema: Schema
    has_pairs: bool
    chosen: np.ndarray | None = None
    option: str = "train_records"
    vocabularies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    casings: Mapping[str, Mapping[str, bool | None]] = dataclasses.field(default_factory=dict)
    labels: None = None  # Required by `Examples`; records contain their own labels.

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
        """Identifies the content of these records."""
        value = zlib.crc32(repr([(len(file), file.content) for file in self.files]).encode())
        return value if self.chosen is None else zlib.crc32(self.chosen.tobytes(), value)

    def check_vocabulary(self, vocab: Sequence[str]) -> None:
        """Refuses records of another vocabulary.

        Args:
            vocab: The model's tokens in the order of their ids.

        Raises:
            UsageError: for a token that is not in it, or a manifest that names another vocabulary.
        """
        rule, way_out = "Records must use the model's vocabulary", "the --vocab_file that they were made with"
        for file in self.files:
            if file.max_id >= len(vocab):
                raise UsageError(
                    f"{rule}. Received: {self.option} with token {file.max_id} in {file.name!r}, and a vocabulary of "
                    f"{len(vocab):,} tokens. Pass {way_out}, or prepare new records."
                )
        own = hashlib.sha256(vocab_text(tuple(vocab)).encode("utf-8", "surrogatepass")).hexdigest()
        for directory, other in self.vocabularies.items():
            if own != other:
                raise UsageError(
                    f"{rule}. Received: {self.option} in {directory!r}, made with another one, its {VOCAB}. "
                    f"Pass {way_out}, or prepare new records."
                )

    def check_casing(self, casing: Mapping[str, bool | None]) -> None:
        """Refuses records whose text was cased otherwise.

        Args:
            casing: `BertTokenizer.casing` of the model's tokenizer.

        Raises:
            UsageError: naming what differs.
        """
        for directory, other in self.casings.items():
            if effective_casing(**other) != effective_casing(**casing):
                theirs, own = (", ".join(f"{name}={value}" for name, value in c.items()) for c in (other, casing))
                raise UsageError(
                    "Records must be cased as the model's tokenizer cases text. "
                    f"Received: {self.option} in {directory!r}, made with {theirs}, and a model with {own}. "
                    "Prepare new records with --vocab_file in the model's directory."
                )

    def take(self, indices: Iterable[int]) -> Records:
        """The records at `indices`, in that order. They keep their numbers."""
        indices = np.fromiter(indices, np.int64)
        return dataclasses.replace(self, chosen=self.numbers(indices))

    def sample(self, count: int) -> Records:
        """`count` of them, drawn at random but always the same; there may be too many to shuffle."""
        return self.take(np.sort(permuted(np.arange(count), len(self), seed=0, epoch=0)))

    def checksum(self, name: str, start: int) -> int:
        """CRC-32 of a name and the records' content; continues the checksum `start`."""
        return zlib.crc32(f"{name}\0{self.crc32}".encode(), start)

    def numbers(self, indices: np.ndarray) -> np.ndarray:
        """int64: the numbers of records among those of all files; masks depend on them."""
        return np.asarray(indices, np.int64) if self.chosen is None else self.chosen[indices]

    def where(self, row: int) -> str:
        """The file and the number of a record there, counted from 1."""
        ((_, index, number),) = by_file(self._ends, self.numbers(np.array([row])))
        return f"{pathlib.Path(self.files[index].name).name}, record {number[0] + 1}"

    def texts(self) -> list[str]:
        """Empty: records have tokens, no texts."""
        return []

    def contents(self) -> Iterator[tuple[str, ...]]:
        """Empty, for the same reason."""
        return iter(())

    def read(self, indices: np.ndarray) -> RecordRows:
        """Reads records from their files.

        Args:
            indices: int64 `[n]`.

        Raises:
            RunError: for a record whose bytes are not those that were indexed, or that can no longer be read.
        """
        serialised = self._serialised(self.numbers(indices))
        with tf.device("CPU"):
            found = self._parse(tf.constant(serialised, tf.string, shape=[len(serialised)]))
        parsed = Parsed(*(part if part is None else part.numpy() for part in found))
        lengths = parsed.mask.sum(axis=1, dtype=np.int32)
        has_second = parsed.segments > 0
        says = parsed.next_sentence is not None
        return RecordRows(
            ids=restore(parsed.ids, parsed.positions, parsed.labels, parsed.weights),
            lengths=lengths,
            second_start=np.where(has_second.any(axis=1), has_second.argmax(axis=1), lengths).astype(np.int32),
            next_sentence=parsed.next_sentence[:, 0] if says else np.zeros_like(lengths),
            masked=Masked(
                ids=parsed.ids,
                positions=parsed.positions,
                labels=parsed.labels,
                weights=parsed.weights,
            ),
        )

    @functools.cached_property
    def _parse(self):
        def parsed(records: tf.Tensor) -> Parsed:
            found = parse(records, self.schema)
            small = (part if part is None or part.dtype == tf.float32 else tf.cast(part, tf.int32) for part in found)
            return Parsed(*small)

        return counted_alone(
            parsed,
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
        """Records as they are in their files. All reads are requested from the disk before the first one is awaited: if
        nothing is cached, 512 records take 20 ms rather than 120."""
        out: list[bytes] = [b""] * len(numbers)
        spans = []
        for where, index, number in by_file(self._ends, numbers):
            file = self.files[index]
            columns = where, number, file.offsets[number], file.offsets[number + 1], file.checks[number]
            spans.append((file, list(zip(*(column.tolist() for column in columns), strict=True))))
        for file, own in spans if hasattr(os, "posix_fadvise") else ():
            with self._open.file(file) as descriptor, contextlib.suppress(OSError):
                for _, _, start, end, _ in own:
                    os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_WILLNEED)
        for file, own in spans:
            with self._open.file(file) as descriptor:
                for at, number, start, end, check in own:
                    out[at] = _read_record(descriptor, file, number, start, end - start, check)
        return out


def _read_record(descriptor: int, file: RecordFile, number: int, start: int, size: int, check: int) -> bytes:
    try:
        data = os.pread(descriptor, size, start)
    except OSError as error:
        raise _unreadable(file, number, error.strerror) from None
    if len(data) != size:
        raise _unreadable(file, number, "it is not there any more")
    if zlib.crc32(data) != check:
        raise _unreadable(file, number, "its bytes are not those that were indexed")
    return data[HEAD_BYTES : size - 4]


def _unreadable(file: RecordFile, number: int, why: str) -> RunError:
    in_copy = "" if str(file.plain) == file.name else f", unpacked in {str(file.plain)!r}"
    return RunError(
        "Records must stay as they were when they were first opened. "
        f"Received: {file.name!r}{in_copy}, the record at byte {int(file.offsets[number]):,} ({why}), number "
        f"{number + 1:,} of {len(file):,}. Check the file system, and whether anything writes there; copy or make the "
        "file anew. `touch` it if it was replaced on purpose."
    )


class _OpenFiles:
    """Descriptors of files, kept open between reads; of very many files, only those of the first ones."""

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
                raise _unreadable(file, 0, error.strerror) from None
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
