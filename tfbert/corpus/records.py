"""Records for pre-training, numbered through all the files that a run names: found, checked, and read by number.

They are never all in memory, and nor are their lengths.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import glob
import hashlib
import os
import pathlib
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfbert.config.counted import counted
from tfbert.config.rules import path_of
from tfbert.corpus.manifest import MANIFEST, PREPARING, VOCAB, is_shard, read_manifest, vocab_text
from tfbert.corpus.masking import Masked
from tfbert.corpus.record_format import Parsed, Schema, parse, restore
from tfbert.corpus.record_index import HEAD_BYTES, RecordFile, find_index, index_file
from tfbert.data.permutation import permuted
from tfbert.errors import RunError, UsageError
from tfbert.measure.tracing import counted_alone
from tfbert.output.progress import PassProgress
from tfbert.tokens.normalizer import effective_casing

if TYPE_CHECKING:
    from tfbert.config.run import Config

_BESIDE_RECORDS = (".json", ".txt", ".md", ".index")
"""Files in a directory of records that hold no records."""
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
    def _opened(self):
        """Opens a file, unless it is one of the latest `_MOST_OPEN`."""
        return functools.lru_cache(_MOST_OPEN)(_Descriptor)

    def _serialised(self, numbers: np.ndarray) -> list[bytes]:
        """Records as they are in their files. All reads are requested from the disk before the first one is awaited: if
        nothing is cached, 512 records take 20 ms rather than 120."""
        out: list[bytes] = [b""] * len(numbers)
        spans = []
        for where, index, number in by_file(self._ends, numbers):
            file = self.files[index]
            rows = file.rows[number]
            columns = where, number, rows["offset"], file.rows["offset"][number + 1], rows["check"]
            spans.append((file, list(zip(*(column.tolist() for column in columns), strict=True))))
        for file, own in spans if hasattr(os, "posix_fadvise") else ():
            opened = self._descriptor(file)
            with contextlib.suppress(OSError):
                for _, _, start, end, _ in own:
                    os.posix_fadvise(opened.number, start, end - start, os.POSIX_FADV_WILLNEED)
        for file, own in spans:
            opened = self._descriptor(file)
            for at, number, start, end, check in own:
                out[at] = _read_record(opened.number, file, number, start, end - start, check)
        return out

    def _descriptor(self, file: RecordFile) -> _Descriptor:
        try:
            return self._opened(file.plain)
        except OSError as error:
            raise _unreadable(file, 0, error.strerror) from None


class _Descriptor:
    """An open file, closed when nobody has it any more."""

    def __init__(self, path: pathlib.Path):
        self.number = os.open(path, os.O_RDONLY)

    def __del__(self):
        if hasattr(self, "number"):  # It was opened.
            os.close(self.number)


class RecordLengths:
    """The number of tokens of each record, read on demand: `lengths[indices]` is int64 in the shape of `indices`.

    Args:
        files: The files of the records.
        numbers: int64 `[n]`, which of their records these are; None for all.
    """

    def __init__(self, files: Sequence[RecordFile], numbers: np.ndarray | None):
        self._parts = [file.rows["length"][:-1] for file in files]
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


def as_records_are(config: Config) -> Config:
    """The same run with the options that its records decide, unless others are asked for: their length and masks, and
    for a model with random weights the vocabulary that they were made with.

    Raises:
        UsageError: for a directory of records that does not describe them.
    """
    first = find_files(config.pretraining.train_records, "train_records")[0].parent
    made_with = read_manifest(first)["options"] if (first / MANIFEST).is_file() else {}
    if config.data.max_seq_length is None and made_with:
        data = dataclasses.replace(config.data, max_seq_length=made_with["max_seq_length"])
        config = dataclasses.replace(config, data=data)
    config = dataclasses.replace(config, pretraining=config.pretraining.with_masking(made_with))
    vocab = first / VOCAB
    if config.model.is_scratch and not config.model.vocab_file and vocab.is_file():
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_file=str(vocab)))
    return config


def open_records(
    paths: Sequence[str],
    option: str = "train_records",
    *,
    max_seq_length: int | None = None,
    skip_bad_records: bool = False,
    notes: list[str] | None = None,
) -> Records:
    """Opens records; builds the indexes that are missing.

    Args:
        paths: Directories (all files in them), files or patterns. Several files are ordered by their paths.
        option: The option that names them, for messages.
        max_seq_length: The records' length as the user gives it; None: any.
        skip_bad_records: Leave out a damaged record and all that follow it in its file, rather than refuse the file.
        notes: Receives a line for what was left out.

    Raises:
        UsageError: for records that do not exist, cannot be read, differ from each other or do not fit the model;
            the message names what differs.
        RunError: if the disk has no room for an index.
    """
    found = find_files(paths, option)
    described = {path.parent for path in found if (path.parent / MANIFEST).exists()}
    manifests = {directory: read_manifest(directory) for directory in described}
    promised = {str(where / entry["file"]): entry for where, made in manifests.items() for entry in made["shards"]}
    files: list[RecordFile] = []
    for file in _indexed(found):
        entry, path = promised.get(file.name), pathlib.Path(file.name)
        if entry is None and path.parent in manifests and is_shard(path.name):
            raise _no_match(file, "which is not in it")
        if file.damage:
            _leave_out(file, entry, skip_bad_records, notes)
        elif entry is not None:
            _check_entry(file, entry)
        if not len(file):
            continue
        if files and (difference := files[0].schema.difference(file.schema)):
            raise UsageError(
                "Records that are trained on together must be made in the same way. "
                f"Received: {files[0].name!r} and {file.name!r} with {difference}. Pass records of one kind."
            )
        files.append(file)
    if not files:
        raise UsageError(
            f"{option} must hold records. Received: {option}={','.join(paths)!r}, {counted(len(found), 'file')} "
            "without records. Pass others."
        )
    schema = files[0].schema
    if max_seq_length is not None and schema.max_seq_length != max_seq_length:
        raise UsageError(
            f"max_seq_length must be that of the records. Received: max_seq_length={max_seq_length} with {option} of "
            f"{schema.max_seq_length} tokens ({files[0].name!r}). Drop --max_seq_length, or pass other records."
        )
    options = {str(directory): made["options"] for directory, made in manifests.items()}
    return Records(
        name=paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more",
        files=tuple(files),
        schema=schema,
        has_pairs=schema.has_next_sentence and any(file.has_pairs for file in files),
        option=option,
        vocabularies={directory: own["vocab_sha256"] for directory, own in options.items()},
        casings={directory: own["casing"] for directory, own in options.items()},
    )


def find_files(paths: Sequence[str], option: str) -> list[pathlib.Path]:
    """The files that `paths` name, sorted, none of them twice.

    Raises:
        UsageError: for a path or pattern that matches no file, or a directory whose records are not complete yet.
    """
    found: dict[pathlib.Path, pathlib.Path] = {}
    for given in paths:
        path = path_of(given, option)
        if path.is_dir():
            files = _in_directory(path, option)
        elif path.is_file():
            files = [path]
        else:
            # Path.glob would find hidden files too, such as indexes.
            files = [p for p in map(pathlib.Path, glob.glob(str(path), recursive=True)) if p.is_file()]  # noqa: PTH207
        if not files:
            raise UsageError(
                f"{option} must name files of records. Received: {option}={given!r}, which matches no file. "
                "Pass a directory that --mode=prepare wrote, or files or patterns."
            )
        found |= {file.resolve(): file for file in files if file.resolve() not in found}
    return sorted(found.values())


def _in_directory(directory: pathlib.Path, option: str) -> list[pathlib.Path]:
    """The files of a directory: those of its manifest; without one, all that are not hidden and could hold records."""
    if not any((directory / name).exists() for name in (MANIFEST, PREPARING)):
        visible = (path for path in directory.iterdir() if not path.name.startswith("."))
        return [path for path in visible if path.is_file() and path.suffix not in _BESIDE_RECORDS]
    files = [directory / entry["file"] for entry in read_manifest(directory)["shards"]]
    for file in files:
        if not file.is_file():
            raise UsageError(
                "A directory of records must hold all files of its manifest. "
                f"Received: {option}={str(directory)!r} without {file.name}. Copy the directory as a whole."
            )
    return files


def _check_entry(file: RecordFile, entry: dict[str, Any]) -> None:
    """Refuses a whole file that is not the one of its directory's manifest, without reading it. A change since it was
    indexed is noticed when its records are read."""
    if len(file) != entry["records"]:
        raise _no_match(file, f"with {len(file):,} records, and {entry['records']:,} in {MANIFEST}")
    if (file.file_bytes, file.file_crc32) != (entry["bytes"], entry["file_crc32"]):
        raise _no_match(
            file,
            f"another file of {len(file):,} records: {file.file_bytes:,} bytes with CRC-32 {file.file_crc32:08x}, "
            f"and {entry['bytes']:,} with {entry['file_crc32']:08x} in {MANIFEST}",
        )


def _no_match(file: RecordFile, differs: str) -> UsageError:
    return UsageError(
        f"Records must match their manifest. Received: {file.name!r} {differs}. "
        "Make them again, or copy the directory as a whole."
    )


def _indexed(paths: Sequence[pathlib.Path]) -> list[RecordFile]:
    """The files with their indexes."""
    with concurrent.futures.ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        known = dict(zip(paths, pool.map(find_index, paths), strict=True))
        missing = [path for path, file in known.items() if file is None]
        lock, total = threading.Lock(), sum(path.stat().st_size for path in missing)
        with PassProgress("indexing records", total, "MB") as progress:

            def advance(size: int) -> None:
                with lock:
                    progress.advance(size, size / 1e6)

            built = {path: pool.submit(index_file, path, advance) for path in missing}
            try:
                return [built[path].result() if path in built else file for path, file in known.items()]
            finally:
                for future in built.values():
                    future.cancel()


def _leave_out(file: RecordFile, entry: dict[str, Any] | None, skips: bool, notes: list[str] | None) -> None:
    """Adds to `notes` what is left out of a damaged file.

    Raises:
        UsageError: unless `skips`.
    """
    sound = int(file.rows["offset"][-1])
    if not skips:
        advice = "Make or copy the file anew, or add --skip_bad_records to leave out what follows."
        if not sound:
            advice = (
                "If it is text, make records of it with --mode=prepare; else make or copy it anew, or leave it out."
            )
        raise UsageError(
            f"Records must be whole. Received: {file.name!r}, whose record at byte {sound:,} {file.damage}. {advice}"
        )
    if notes is not None:
        lost = f"{counted(entry['records'] - len(file), 'record')} left out, " if entry else ""
        notes.append(
            f"warning: {file.name}: left out from byte {sound:,} on, {file.size - sound:,} of {file.size:,} bytes; "
            f"{lost}{counted(len(file), 'record')} kept: the record at that byte {file.damage}"
        )


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
        f"Received: {file.name!r}{in_copy}, the record at byte {int(file.rows['offset'][number]):,} ({why}), number "
        f"{number + 1:,} of {len(file):,}. Check the file system, and whether anything writes there; copy or make the "
        "file anew. `touch` it if it was replaced on purpose."
    )
