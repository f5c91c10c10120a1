"""Records for pre-training: what one holds and its bytes, an index of each file, and all of them found, checked, and
read by number. They are never all in memory, and nor are their lengths.

The schema is that of google-research/bert, `create_pretraining_data.py`, which NVIDIA's scripts share; Model Garden has
other names for two of the features (`v2`). All are of fixed length. A record is a serialised `tf.train.Example`.

An index of a file is built once and kept beside it: any record is then read by its number alone.

The index is a hidden file beside the records, or a file in the user's cache directory if it cannot be written there. It
holds a row for each record, its offset, length and checksum, memory-mapped, so that memory does not grow with the
corpus; then what is known of the whole file, as JSON. TensorFlow reads and parses the records while it is built, and
checks their own checksums. A GZIP file cannot be read at an offset: it is unpacked once, beside the index.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import errno
import fcntl
import functools
import glob
import gzip
import hashlib
import os
import pathlib
import shutil
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tfbert.config.run import Config
from tfbert.config.tasks import PretrainingConfig, RecordNames
from tfbert.config.types import counted, path_of, problem
from tfbert.corpus.manifest import MANIFEST, PREPARING, SHARD, VOCAB, crc32_of, read_manifest, vocab_sha256
from tfbert.corpus.masking import Masked
from tfbert.data.permutation import permuted
from tfbert.errors import RunError, UsageError
from tfbert.measure import counted_alone
from tfbert.output.logs import PassProgress
from tfbert.output.output_dir import seal, unseal
from tfbert.private import without_autotune
from tfbert.tokens.normalizer import effective_casing
from tfbert.tokens.tokenizer import TOKENIZER_JSON, Tokenizer

POSITIONS, LABELS, WEIGHTS = "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"
MASK = "input_mask"
NEXT_SENTENCE = "next_sentence_labels"
IDS: dict[RecordNames, str] = {"v1": "input_ids", "v2": "input_word_ids"}
SEGMENTS: dict[RecordNames, str] = {"v1": "segment_ids", "v2": "input_type_ids"}
_IDS, _SEGMENTS = IDS["v1"], SEGMENTS["v1"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """The form of a file's records.

    Attributes:
        names: `v1`, as Google's and NVIDIA's scripts name the features, or `v2`, as Model Garden does.
        max_seq_length: Ids of each record.
        max_predictions_per_seq: Most places of each record that are predicted.
        has_next_sentence: Whether records say if their second stretch of text follows the first (0) or not (1).
    """

    names: RecordNames
    max_seq_length: int
    max_predictions_per_seq: int
    has_next_sentence: bool = True

    def feature_spec(self) -> dict[str, tf.io.FixedLenFeature]:
        """The features for `tf.io.parse_example` to read such records."""
        words = tf.io.FixedLenFeature([self.max_seq_length], tf.int64)
        places = tf.io.FixedLenFeature([self.max_predictions_per_seq], tf.int64)
        spec = {IDS[self.names]: words, MASK: words, SEGMENTS[self.names]: words, POSITIONS: places, LABELS: places}
        spec[WEIGHTS] = places._replace(dtype=tf.float32)
        return spec | ({NEXT_SENTENCE: tf.io.FixedLenFeature([1], tf.int64)} if self.has_next_sentence else {})


def detect_schema(record: bytes, where: str) -> Schema:
    """Finds the schema of a file from one of its records.

    Args:
        record: A serialised `tf.train.Example`.
        where: The file's name, for errors.

    Raises:
        UsageError: for a record of another kind; says what is missing or does not fit.
    """
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise _error(where, "a record that is not a tf.train.Example") from None
    found = {name: len(getattr(own, own.WhichOneof("kind") or "int64_list").value) for name, own in features.items()}
    names: RecordNames = "v2" if IDS["v2"] in found else "v1"
    schema = Schema(
        names=names,
        max_seq_length=found.get(IDS[names], 0),
        max_predictions_per_seq=found.get(POSITIONS, 0),
        has_next_sentence=NEXT_SENTENCE in found,
    )
    for name, spec in schema.feature_spec().items():
        kind = "float_list" if spec.dtype == tf.float32 else "int64_list"
        length, own = spec.shape[0], features[name].WhichOneof("kind") if name in found else "nothing"
        if not length or (found.get(name, 0), own) != (length, kind):
            has, wanted = f"{found.get(name, 0)} values of {name} as {own}", f"{length or 'some'} as {kind}"
            raise _error(where, f"a record with {has}, not {wanted}; it has {', '.join(sorted(found))}")
    return schema


def parse(records: tf.Tensor, schema: Schema) -> dict[str, tf.Tensor]:
    """Parses records, in a graph or eagerly.

    Args:
        records: string `[n]`.
        schema: Their form.

    Returns:
        By Google's names; int64 `[n, ...]`, except the weights, which are float32. No `NEXT_SENTENCE` if records do not
        say.
    """
    found = tf.io.parse_example(records, schema.feature_spec())
    return found | {_IDS: found[IDS[schema.names]], _SEGMENTS: found[SEGMENTS[schema.names]]}


def restore(ids: np.ndarray, positions: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The ids of records before they were masked.

    Args:
        ids: int [rows, width].
        positions: int [rows, max_predictions_per_seq]: masked places.
        labels: int, same shape: the ids that were there.
        weights: float, same shape: 0 where there is no masked place.

    Returns:
        int32 [rows, width], a new array.
    """
    out = np.array(ids, np.int32)
    row, rank = np.nonzero(weights > 0)
    out[row, positions[row, rank]] = labels[row, rank]
    return out


def serialize(
    masked: Masked, lengths: np.ndarray, second_start: np.ndarray, next_sentence: np.ndarray, names: RecordNames
) -> list[bytes]:
    """Serialises records, many at once.

    All values are small and not negative, and every feature is a packed list, so NumPy can assemble the bytes: the same
    as those of protobuf's deterministic serialisation, in a third of the time.

    Args:
        masked: The masked records, at any width.
        lengths: int [rows]: tokens of each.
        second_start: int [rows]: where the second segment begins; the length for records of one segment.
        next_sentence: int [rows]: 1 if the second stretch of text does not follow the first.
        names: What the features are called.
    """
    places = np.arange(masked.ids.shape[1])
    is_token = places < lengths[:, None]
    values = {
        IDS[names]: masked.ids,
        MASK: is_token,
        SEGMENTS[names]: is_token & (places >= second_start[:, None]),
        POSITIONS: masked.positions,
        LABELS: masked.labels,
        WEIGHTS: masked.weights,
        NEXT_SENTENCE: next_sentence[:, None],
    }
    columns = []
    for name in sorted(values):
        if name == WEIGHTS:
            buffer, sizes = values[name].astype("<f4"), np.full(len(lengths), 4 * values[name].shape[1])
        else:
            buffer, sizes = _varints(values[name])
        parts, of_rows = buffer.tobytes(), zip(sizes.tolist(), np.cumsum(sizes).tolist(), strict=True)
        columns.append([_header(name, size) + parts[end - size : end] for size, end in of_rows])
    bodies = map(b"".join, zip(*columns, strict=True))
    return [_start_of_example(len(body)) + body for body in bodies]


def _varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All values as base 128 varints, and the bytes of each row."""
    values = values.astype(np.uint32)
    assert not values.size or values.max() < 1 << 21  # Three bytes of seven bits.
    two, three = values >= 1 << 7, values >= 1 << 14
    parts = np.empty((*values.shape, 3), np.uint8)
    parts[..., 0] = values & 127 | two.astype(np.uint32) << 7
    parts[..., 1] = values >> 7 & 127 | three.astype(np.uint32) << 7
    parts[..., 2] = values >> 14
    kept = np.stack([np.ones_like(two), two, three], axis=-1)
    return parts[kept], kept.sum(axis=(1, 2))


@functools.lru_cache(maxsize=1 << 16)
def _header(name: str, size: int) -> bytes:
    """What protobuf writes before the numbers of a feature that take so many bytes: the same as before zeros."""
    if name == WEIGHTS:
        feature = tf.train.Feature(float_list=tf.train.FloatList(value=[0.0] * (size // 4)))
    else:
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[0] * size))
    return tf.train.Features(feature={name: feature}).SerializeToString()[:-size]


@functools.lru_cache(maxsize=1 << 16)
def _start_of_example(size: int) -> bytes:
    """What it writes before an Example's features: the same as before the first value of a list of bytes."""
    return tf.train.BytesList(value=[bytes(size)]).SerializeToString()[:-size]


def _error(where: str, what: str) -> UsageError:
    rule = "Records to pre-train on must have the features of Google's script or of Model Garden's"
    return UsageError(f"{rule}. Received: {where}: {what}. Pass files of --mode=prepare, or of such a script.")


FRAME_BYTES = 16
"""Bytes around each record in a file: before it, its length and the checksum of that; after it, its own checksum."""
HEAD_BYTES = 12
ROW = np.dtype([("offset", "<i8"), ("length", "<i4"), ("check", "<u4")])
"""A row of an index: where the record begins, its tokens, and the CRC-32 of its bytes, its frame included. A record has
a CRC-32C of its own, but Python has no fast one; this one also notices a sound record of another file."""
_VERSION = 3
_GZIP, _UNPACKED = b"\x1f\x8b\x08", ".unpacked"
_NO_ROOM_HERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ELOOP)
"""Nothing can be written at a place; the last ones where a directory above it is a file, or a broken link."""
_AT_A_TIME = 1024
_READ_BYTES = 8 << 20
_MUST_BE_WHOLE, _MAKE_ANEW = "Records must be whole", "Make its shard anew with --mode=prepare, or copy the file anew."
_DAMAGED = "is damaged, or cut off"
_OTHER_FORM = "is not of the same form as the first record of the file"
_IMPOSSIBLE = "holds numbers that no record can have: tokens, segments or masked positions out of bounds"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFile:
    """A file of records, indexed.

    Attributes:
        name: The file's name as the user gave it.
        plain: The file that the offsets refer to: the file itself, or its uncompressed copy.
        rows: `ROW` `[n + 1]`, mapped: one for each record, and one for the end of the last.
        schema: The records' form; None without records.
        max_id: The largest token id; -1 without records.
        has_pairs: Whether any record has a segment B.
        content: CRC-32 over a hash of each record.
        file_bytes: Bytes of the file itself.
        file_crc32: CRC-32 of the file itself.
    """

    name: str
    plain: pathlib.Path
    rows: np.ndarray
    schema: Schema | None
    max_id: int
    has_pairs: bool
    content: int
    file_bytes: int
    file_crc32: int

    def __len__(self) -> int:
        return len(self.rows) - 1


def find_index(path: pathlib.Path) -> RecordFile | None:
    """A file with its existing index; None if there is no index, or if the file has changed since."""
    for place in _places(path):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return _read(path, place)
    return None


def index_file(path: pathlib.Path, advance: Callable[[int], None] = lambda done: None) -> RecordFile:
    """A file with its index, which is built if there is none; other processes wait for the one that builds it.

    Args:
        path: A file of records, plain or compressed by GZIP.
        advance: Called now and then with the number of bytes read since.

    Raises:
        UsageError: for a file that cannot be read or holds other data, or if no place for its index is writable.
        RunError: if the disk is full.
    """
    try:
        with path.open("rb") as file:
            with contextlib.suppress(OSError):  # Where files cannot be locked, several build it, and one is kept.
                fcntl.flock(file, fcntl.LOCK_EX)
            found = find_index(path)
            return _build(path, advance) if found is None else found
    except OSError as error:
        rule = "A file of records must be readable"
        raise UsageError(f"{rule}. Received: {str(path)!r} ({error.strerror}). Pass another.") from None


def _places(path: pathlib.Path) -> list[pathlib.Path]:
    """Where a file's index can be: beside the file, or in the user's cache directory if there is one."""
    path = path.absolute()
    places = [path.with_name(f".{path.name}.index")]
    with contextlib.suppress(RuntimeError):  # A user without a home, as in many containers.
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache").absolute()
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        places.append(cache / "tfbert" / "records" / f"{digest}-{path.name}.index")
    return places


def _build(path: pathlib.Path, advance: Callable[[int], None]) -> RecordFile:
    with path.open("rb") as file:
        is_compressed = file.read(len(_GZIP)) == _GZIP
    before = _stamp(path)
    for index in _places(path):
        try:
            index.parent.mkdir(parents=True, exist_ok=True)
            plain = path
            if is_compressed:
                plain = index.with_suffix(_UNPACKED)
                with _whole(plain) as out, gzip.open(path, "rb") as file:
                    shutil.copyfileobj(file, out)
            rows, about = scan(plain, str(path), advance)
            if is_compressed:
                about["file_crc32"] = crc32_of(path)
            if _stamp(path) != before:
                rule = "A file of records must stay as it is while it is read"
                raise UsageError(f"{rule}. Received: {str(path)!r}, which changed. Wait until nothing writes to it.")
            held = rows.tobytes()
            about |= {"version": _VERSION, "file": before, "plain": _stamp(plain), "crc32_of_rows": zlib.crc32(held)}
            text = seal(about).encode()
            with _whole(index) as file:
                file.write(held + text + len(text).to_bytes(4, "little"))
            return _read(path, index)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            received = f"{str(path)!r}, which is compressed and damaged, or cut off"
            raise UsageError(f"{_MUST_BE_WHOLE}. Received: {received}. {_MAKE_ANEW}") from None
        except OSError as error:
            if error.errno not in _NO_ROOM_HERE:
                rule = "An index of records must be writable"
                todo = "Check free space and permissions there."
                raise RunError(f"{rule}. Received: {str(index)!r} ({error.strerror}). {todo}") from None
    rule = "An index must be kept beside the records, or in the user's cache"
    received = f"{str(path)!r}, and {' and '.join(str(place.parent) for place in _places(path))} cannot be written"
    raise UsageError(f"{rule}. Received: {received}. Point XDG_CACHE_HOME to a writable directory.")


def _read(path: pathlib.Path, index: pathlib.Path) -> RecordFile:
    """A file with the index at a path.

    Raises:
        OSError, ValueError, KeyError, TypeError: if this is not an index of the file as it is now.
    """
    with index.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        start = file.seek(-4 - size, os.SEEK_END)
        about = unseal(file.read(size).decode())
    plain = index.with_suffix(_UNPACKED) if about["plain"] != about["file"] else path
    if (about["version"], about["file"], about["plain"]) != (_VERSION, _stamp(path), _stamp(plain)):
        raise ValueError("of another file")
    held = np.memmap(index, np.uint8, "r")[:start]
    if zlib.crc32(held) != about["crc32_of_rows"] or about["damage"]:  # The latter of a file, by tfbert 2.0.
        raise ValueError("damaged")
    known = {name: about[name] for name in ("max_id", "has_pairs", "content", "file_crc32")}
    schema = Schema(**about["schema"]) if about["schema"] else None
    known["file_bytes"] = about["file"][0]
    return RecordFile(name=str(path), plain=plain, rows=held.view(ROW), schema=schema, **known)


def _stamp(path: pathlib.Path) -> list[int]:
    """What changes when a file is written to: its size, and the time of its last change, in nanoseconds."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


@contextlib.contextmanager
def _whole(path: pathlib.Path) -> Iterator:
    """Opens a file for writing that gets its name only when it is whole; until then its name is this process's own."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def scan(
    path: pathlib.Path, name: str, advance: Callable[[int], None] = lambda done: None
) -> tuple[np.ndarray, dict[str, Any]]:
    """Reads a file through: where its records are, and how long they are.

    Args:
        path: A TFRecord file that is not compressed.
        name: What messages call it.
        advance: As `index_file` takes it.

    Returns:
        The rows of its index, and the fields of `RecordFile` that are found here, with the schema as a dictionary.

    Raises:
        UsageError: for a file whose first record is not a record for pre-training, or with a record that is damaged.
    """
    dataset = tf.data.TFRecordDataset([str(path)], buffer_size=_READ_BYTES)
    try:
        first = next(iter(dataset.take(1).as_numpy_iterator()), None)
    except tf.errors.DataLossError:
        raise _damaged(name, 0, _DAMAGED) from None
    schema = None if first is None else detect_schema(first, name)
    look = tf.autograph.experimental.do_not_convert(functools.partial(_look, schema))
    parts, max_id, has_pairs, content, file_crc32 = [], -1, False, 0, 0
    done, end = 0, 0
    with path.open("rb") as file, tf.device("CPU"):
        for at_a_time in (_AT_A_TIME, 1) if schema else ():  # The rest one by one, if there is an error in it.
            records = dataset.skip(done).batch(at_a_time).map(look, num_parallel_calls=2)
            try:
                for sizes, hashes, lengths, max_ids, pairs in without_autotune(records.prefetch(2)).as_numpy_iterator():
                    part = np.zeros(len(sizes), ROW)
                    part["offset"], part["length"] = end + np.cumsum(sizes) - sizes, lengths
                    held = [file.read(size) for size in sizes.tolist()]  # Again, right after TensorFlow has read it.
                    part["check"] = list(map(zlib.crc32, held))
                    file_crc32 = functools.reduce(lambda crc, data: zlib.crc32(data, crc), held, file_crc32)
                    parts.append(part)
                    max_id, has_pairs = max(max_id, int(max_ids.max())), has_pairs or bool(pairs.any())
                    content = zlib.crc32(hashes.tobytes(), content)
                    done, end = done + len(part), end + int(sizes.sum())
                    advance(int(sizes.sum()))
                break
            except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
                if at_a_time == 1:
                    other = _IMPOSSIBLE if _IMPOSSIBLE in error.message else _OTHER_FORM
                    what = _DAMAGED if isinstance(error, tf.errors.DataLossError) else other
                    raise _damaged(name, end, what) from None
    last = np.zeros(1, ROW)
    last["offset"] = end
    about = {"schema": dataclasses.asdict(schema) if schema else None, "max_id": max_id, "has_pairs": has_pairs}
    return np.concatenate([*parts, last]), about | {"content": content, "file_crc32": file_crc32, "damage": ""}


def _look(schema: Schema, records: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Of each record, computed in the graph: bytes in the file, a hash, tokens, the largest id, and whether it is a
    pair. Fails where the numbers of one are impossible."""
    found = parse(records, schema)
    ids, segments, positions, labels = (found[name] for name in (_IDS, _SEGMENTS, POSITIONS, LABELS))
    length = tf.reduce_sum(found[MASK], axis=1)
    place = tf.range(schema.max_seq_length, dtype=tf.int64)
    rises = segments[:, 1:] >= segments[:, :-1]
    is_token = tf.cast(place < length[:, None], tf.int64)
    is_possible = (found[MASK] == is_token) & (ids >= 0) & (segments >= 0) & (segments <= 1)
    sound = (length > 0) & tf.reduce_all(is_possible, axis=1)
    sound &= tf.reduce_all(rises | (place[1:] >= length[:, None]), axis=1)
    is_inside = (positions >= 0) & (positions < length[:, None]) & (labels >= 0)
    sound &= tf.reduce_all(is_inside | (found[WEIGHTS] <= 0), axis=1)
    if schema.has_next_sentence:
        sound &= (found[NEXT_SENTENCE][:, 0] >= 0) & (found[NEXT_SENTENCE][:, 0] <= 1)
    tf.debugging.Assert(tf.reduce_all(sound), [_IMPOSSIBLE])
    return (
        tf.cast(tf.strings.length(records), tf.int64) + FRAME_BYTES,
        tf.strings.to_hash_bucket_fast(records, 2**63 - 1),
        tf.cast(length, tf.int32),
        tf.maximum(tf.reduce_max(ids, axis=1), tf.reduce_max(labels, axis=1)),
        tf.reduce_any(segments > 0, axis=1),
    )


_BESIDE_RECORDS = (".json", ".txt", ".md", ".index")
"""Files in a directory of records that hold no records."""
_AT_ONCE = 1 << 20  # Lengths in memory at a time.
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
        made_with: By directory, the options that its manifest names.
    """

    name: str
    files: tuple[RecordFile, ...]
    schema: Schema
    has_pairs: bool
    chosen: np.ndarray | None = None
    option: str = "train_records"
    made_with: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    labels: None = None  # Required by `Examples`; records contain their own labels.

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.chosen is None else len(self.chosen)

    @property
    def num_texts(self) -> int:
        """2 for pairs."""
        return 1 + self.has_pairs

    @functools.cached_property
    def lengths(self) -> RecordLengths:
        """Tokens of each."""
        return RecordLengths(self)

    @functools.cached_property
    def crc32(self) -> int:
        """Identifies the content of these records."""
        value = zlib.crc32(repr([(len(file), file.content) for file in self.files]).encode())
        return value if self.chosen is None else zlib.crc32(self.chosen.tobytes(), value)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuses records of another tokenizer than the model's.

        Raises:
            UsageError: for a token that its vocabulary does not have, or a manifest that names another vocabulary, or
                text that was cased otherwise.
        """
        vocab, casing = tokenizer.vocab, tokenizer.casing
        rule = "Records must use the model's vocabulary"
        way_out = "Pass the --vocab_file, or --model, that they were made with, or prepare new records."
        for file in self.files:
            if file.max_id >= len(vocab):
                given = f"{self.option} with token {file.max_id} in {file.name!r}"
                raise UsageError(f"{rule}. Received: {given}, and a vocabulary of {len(vocab):,} tokens. {way_out}")
        own = vocab_sha256(vocab)
        for directory, options in self.made_with.items():
            given, other = f"{self.option} in {directory!r}, made with", options["casing"]
            if own != options["vocab_sha256"]:
                name = TOKENIZER_JSON if TOKENIZER_JSON in other else VOCAB
                raise UsageError(f"{rule}. Received: {given} another one, its {name}. {way_out}")
            if _effective(other) != _effective(casing):
                theirs, ours = (", ".join(f"{name}={value}" for name, value in c.items()) for c in (other, casing))
                rule = "Records must be cased and split as the model's tokenizer does it"
                todo = "Prepare new records with --model, or --vocab_file in the model's directory."
                raise UsageError(f"{rule}. Received: {given} {theirs}, and a model with {ours}. {todo}")

    def take(self, indices: Iterable[int]) -> Records:
        """The records at `indices`, in that order. They keep their numbers."""
        return dataclasses.replace(self, chosen=self.numbers(np.fromiter(indices, np.int64)))

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
        ((_, file, numbers),) = self.by_file(np.array([row]))
        return f"{pathlib.Path(file.name).name}, record {numbers[0] + 1}"

    def texts(self) -> list[str]:
        """Empty: records have tokens, no texts."""
        return []

    def contents(self) -> Iterator[tuple[str, ...]]:
        """Empty, for the same reason."""
        return iter(())

    def by_file(self, indices: np.ndarray) -> Iterator[tuple[np.ndarray, RecordFile, np.ndarray]]:
        """Sorts records by the file that they are in.

        Args:
            indices: int64 `[n]`.

        Yields:
            For each file: places in `indices`, the file, and the numbers of the records in it, ascending.
        """
        numbers = self.numbers(indices)
        order = np.argsort(numbers, kind="stable")
        files = np.searchsorted(self._ends, numbers[order], side="right")
        starts = np.flatnonzero(np.diff(files, prepend=-1))
        for where, file in zip(np.split(order, starts[1:]), files[starts].tolist(), strict=False):
            yield where, self.files[file], numbers[where] - (self._ends[file] - len(self.files[file]))

    def read(self, indices: np.ndarray) -> RecordRows:
        """Reads records from their files.

        Args:
            indices: int64 `[n]`.

        Raises:
            RunError: for a record whose bytes are not those that were indexed, or that can no longer be read.
        """
        serialised = self._serialised(indices)
        with tf.device("CPU"):
            found = self._parse(tf.constant(serialised, tf.string, shape=[len(serialised)]))
        found = {name: value.numpy() for name, value in found.items()}
        ids, positions, labels, weights = (found[name] for name in (_IDS, POSITIONS, LABELS, WEIGHTS))
        lengths, has_second = found[MASK].sum(axis=1, dtype=np.int32), found[_SEGMENTS] > 0
        return RecordRows(
            ids=restore(ids, positions, labels, weights),
            lengths=lengths,
            second_start=np.where(has_second.any(axis=1), has_second.argmax(axis=1), lengths).astype(np.int32),
            next_sentence=found[NEXT_SENTENCE][:, 0] if NEXT_SENTENCE in found else np.zeros_like(lengths),
            masked=Masked(ids=ids, positions=positions, labels=labels, weights=weights),
        )

    @functools.cached_property
    def _parse(self):
        def parsed(records: tf.Tensor) -> dict[str, tf.Tensor]:
            found = parse(records, self.schema)
            return {name: tf.cast(part, tf.float32 if name == WEIGHTS else tf.int32) for name, part in found.items()}

        return counted_alone(parsed, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(file) for file in self.files])

    @functools.cached_property
    def _opened(self):
        """Opens a file, unless it is one of the latest `_MOST_OPEN`."""
        return functools.lru_cache(_MOST_OPEN)(lambda path: path.open("rb", buffering=0))

    def _serialised(self, indices: np.ndarray) -> list[bytes]:
        """Records as they are in their files. All reads are requested from the disk before the first one is awaited: if
        nothing is cached, 512 records take 20 ms rather than 120."""
        out: list[bytes] = [b""] * len(indices)
        spans = []
        for where, file, number in self.by_file(indices):
            rows = file.rows[number]
            columns = where, number, rows["offset"], file.rows["offset"][number + 1] - rows["offset"], rows["check"]
            spans.append((file, list(zip(*(column.tolist() for column in columns), strict=True))))
        for file, own in spans if hasattr(os, "posix_fadvise") else ():
            with contextlib.suppress(OSError):
                opened = self._opened(file.plain)
                for _, _, start, size, _ in own:
                    os.posix_fadvise(opened.fileno(), start, size, os.POSIX_FADV_WILLNEED)
        for file, own in spans:
            number = 0
            try:
                opened = self._opened(file.plain)  # Held: another thread may push it out of the latest ones.
                for at, number, start, size, check in own:  # noqa: B007 (for the error)
                    data = os.pread(opened.fileno(), size, start)
                    if len(data) != size:
                        raise OSError(0, "it is not there any more")
                    if zlib.crc32(data) != check:
                        raise OSError(0, "its bytes are not those that were indexed")
                    out[at] = data[HEAD_BYTES : size - 4]
            except OSError as error:
                in_copy = "" if str(file.plain) == file.name else f", unpacked in {str(file.plain)!r}"
                raise RunError(
                    "Records must stay as they were when they were first opened. Received: "
                    f"{file.name!r}{in_copy}, the record at byte {int(file.rows['offset'][number]):,} "
                    f"({error.strerror}), number {number + 1:,} of {len(file):,}. Check the file system, and whether "
                    "anything writes there; copy or make the file anew. `touch` it if it was replaced on purpose."
                ) from None
        return out


def _effective(casing: Mapping[str, Any]) -> Any:
    return casing if TOKENIZER_JSON in casing else effective_casing(**casing)


class RecordLengths:
    """The number of tokens of each record, read on demand: `lengths[indices]` is int64 in the shape of `indices`.

    Args:
        records: The records.
    """

    def __init__(self, records: Records):
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        out = np.empty(np.shape(indices), np.int64)
        for where, file, numbers in self._records.by_file(np.reshape(indices, -1)):
            out.reshape(-1)[where] = file.rows["length"][numbers]
        return out

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """All lengths, in memory."""
        return np.concatenate([*self._parts()]).astype(dtype or np.int64)

    def _parts(self) -> Iterator[np.ndarray]:
        for at in range(0, len(self), _AT_ONCE):
            yield self[np.arange(at, min(at + _AT_ONCE, len(self)))]

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """int64 `[longest + 1]`: how many records have 0, 1, 2, ... tokens."""
        found = [np.bincount(part) for part in self._parts()]
        longest = max(map(len, found))
        return np.sum([np.pad(part, (0, longest - len(part))) for part in found], axis=0)

    def max(self) -> int:
        """The length of the longest record."""
        return len(self.counts) - 1

    def sum(self) -> int:
        """The number of all tokens."""
        return int(self.counts @ np.arange(len(self.counts)))


def as_records_are(config: Config) -> Config:
    """The same run with the options that its records decide, unless others are asked for: their length and masks, and
    for a model with random weights the vocabulary that they were made with.

    Raises:
        UsageError: for a directory of records that does not describe them, and for other masks than theirs where these
            are taken.
    """
    first = find_files(config.pretraining.train_records, "train_records")[0].parent
    made_with = read_manifest(first)["options"] if (first / MANIFEST).is_file() else {}
    if config.data.max_seq_length is None and made_with:
        config = config.changed({"max_seq_length": made_with["max_seq_length"]})
    # Records of other scripts do not say.
    asked = config.given("masked_lm_prob", "max_predictions_per_seq", "whole_word_masking") if made_with else {}
    held = vars(PretrainingConfig().with_masking(made_with)) | made_with
    if config.pretraining.masking == "static" and (other := {n: v for n, v in asked.items() if v != held[n]}):
        todo = "Drop it, or --masking=static."
        raise UsageError(problem("masking=static takes the masks that the records hold", todo, **other))
    config = dataclasses.replace(config, pretraining=config.pretraining.with_masking(made_with))
    if config.model.is_scratch and not config.model.vocab_file:
        if TOKENIZER_JSON in made_with.get("casing", {}):
            raise UsageError(
                "Random weights of ours are BERT's, with a WordPiece vocabulary. Received: model_name_or_path="
                f"{config.model.name!r} with train_records of another tokenizer, {first / TOKENIZER_JSON}. Pass "
                "--model, the directory of the model whose tokenizer that is; its weights may be random."
            )
        if (first / VOCAB).is_file():
            config = config.changed({"vocab_file": str(first / VOCAB)})
    return config


def open_records(paths: Sequence[str], option: str = "train_records") -> Records:
    """Opens records; builds the indexes that are missing.

    Args:
        paths: Directories (all files in them), files or patterns. Several files are ordered by their paths.
        option: The option that names them, for messages.

    Raises:
        UsageError: for records that do not exist, cannot be read, or differ from each other; it names what differs.
        RunError: if the disk has no room for an index.
    """
    found = find_files(paths, option)
    directories = {path.parent for path in found}
    manifests = {each: read_manifest(each) for each in directories if (each / MANIFEST).exists()}
    promised = {str(where / entry["file"]): entry for where, made in manifests.items() for entry in made["shards"]}
    files: list[RecordFile] = []
    for file in _indexed(found):
        entry, path, differs = promised.get(file.name), pathlib.Path(file.name), ""
        if entry is None and path.parent in manifests and SHARD.fullmatch(path.name):
            differs = "which is not in it"
        elif entry is not None:  # Without reading it: a change since it was indexed is noticed by its records.
            own, listed = (len(file), file.file_bytes, file.file_crc32), ("records", "bytes", "file_crc32")
            both = own, [entry[name] for name in listed]
            this, other = (f"{n:,} records in {size:,} bytes with CRC-32 {crc:08x}" for n, size, crc in both)
            differs = f"with {this}, and {other} in {MANIFEST}" if this != other else ""
        if differs:
            rule, todo = "Records must match their manifest", "Make them again, or copy the directory as a whole."
            raise UsageError(f"{rule}. Received: {file.name!r} {differs}. {todo}")
        if not len(file):
            continue
        if files and file.schema != files[0].schema:
            rule = "Records that are trained on together must be made in the same way"
            first, other = (f"{each.name!r} with {each.schema}" for each in (files[0], file))
            raise UsageError(f"{rule}. Received: {first} and {other}. Pass records of one kind.")
        files.append(file)
    if not files:
        received = f"{option}={','.join(paths)!r}, {counted(len(found), 'file')} without records"
        raise UsageError(f"{option} must hold records. Received: {received}. Pass others.")
    schema = files[0].schema
    return Records(
        name=paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more",
        files=tuple(files),
        schema=schema,
        has_pairs=schema.has_next_sentence and any(file.has_pairs for file in files),
        option=option,
        made_with={str(directory): made["options"] for directory, made in manifests.items()},
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
            rule = f"{option} must name files of records"
            todo = "Pass a directory that --mode=prepare wrote, or files or patterns."
            raise UsageError(f"{rule}. Received: {option}={given!r}, which matches no file. {todo}")
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
            rule = "A directory of records must hold all files of its manifest"
            todo = "Copy the directory as a whole."
            raise UsageError(f"{rule}. Received: {option}={str(directory)!r} without {file.name}. {todo}")
    return files


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

            built = pool.map(functools.partial(index_file, advance=advance), missing)
            return [*(known | dict(zip(missing, built, strict=True))).values()]


def _damaged(name: str, sound: int, what: str) -> UsageError:
    of_text = "If it is text, make records of it with --mode=prepare; else make or copy it anew, or leave it out."
    advice = _MAKE_ANEW if sound else of_text
    return UsageError(f"{_MUST_BE_WHOLE}. Received: {name!r}, whose record at byte {sound:,} {what}. {advice}")
