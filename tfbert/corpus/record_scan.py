"""Reads a TFRecord file through once: finds where its records are, how long they are and whether they are sound.

TensorFlow reads and parses them, and checks the file's checksums while it reads.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tfbert.corpus.record_parse import parse
from tfbert.corpus.schema import Schema, detect_schema
from tfbert.devices.autotune import without_autotune
from tfbert.errors import UsageError, first_line

FRAME_BYTES = 16
"""Bytes around each record in a file: before it, its length and the checksum of that; after it, its own checksum."""
HEAD_BYTES = 12
_AT_A_TIME = 1024
_READ_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scan:
    """What a file of records holds.

    Attributes:
        offsets: int64 `[n + 1]`: where each sound record begins, and where the last one ends.
        lengths: int32 `[n]`: tokens of each record.
        checks: uint32 `[n]`: CRC-32 of each record's bytes in the file, its frame included.
        schema: The form of its records; None for a file without any.
        max_id: The largest token id; -1 without records.
        has_pairs: Whether any record has a segment B.
        content: CRC-32 over a hash of each record.
        file_crc32: CRC-32 of the file up to the last offset.
        damage: What is wrong after the last offset; empty if the file ends there.
    """

    offsets: np.ndarray
    lengths: np.ndarray
    checks: np.ndarray
    schema: Schema | None
    max_id: int
    has_pairs: bool
    content: int
    file_crc32: int
    damage: str


def scan(path: pathlib.Path, name: str, report: Callable[[int], None] = lambda done: None) -> Scan:
    """Reads a file through.

    Args:
        path: A TFRecord file that is not compressed.
        name: What messages call it.
        report: Called now and then with the number of bytes read so far.

    Raises:
        UsageError: for a file whose first record is not a record for pre-training.
    """
    sizes, lengths, max_id, has_pairs, content, damage = [], [], -1, False, 0, ""
    schema = _first_schema(path, name)
    done = 0
    checks = _Checks(path)
    for found in _sound_batches(path, schema):
        if isinstance(found, str):
            damage = found
            break
        sound = len(found.sound) if found.sound.all() else int(found.sound.argmin())
        sizes.append(found.sizes[:sound])
        lengths.append(found.lengths[:sound])
        if sound:
            max_id = max(max_id, int(found.max_ids[:sound].max()))
            has_pairs |= bool(found.pairs[:sound].any())
        content = zlib.crc32(found.hashes[:sound].tobytes(), content)
        checks.add(sizes[-1] + FRAME_BYTES)
        done += int(sizes[-1].sum()) + FRAME_BYTES * sound
        if sound < len(found.sound):
            damage = "holds numbers that no record can have: tokens, segments or masked positions out of bounds"
            break
        report(done)
    sizes = np.concatenate([np.zeros(0, np.int64), *sizes])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes + FRAME_BYTES)])
    return Scan(
        offsets=offsets,
        lengths=np.concatenate([np.zeros(0, np.int32), *lengths]).astype(np.int32),
        checks=np.array(checks.of_records, np.uint32),
        schema=schema,
        max_id=max_id,
        has_pairs=has_pairs,
        content=content,
        file_crc32=checks.of_file,
        damage=damage,
    )


class _Checks:
    """CRC-32 of the records of a file and of all of it, computed from its bytes right after TensorFlow has read them.

    A record has a CRC-32C of its own, which TensorFlow checks here, once. Python has no fast one: each later reading is
    compared with this CRC-32, which also notices a sound record of another file.
    """

    def __init__(self, path: pathlib.Path):
        self.of_records: list[int] = []
        self.of_file = 0
        self._path = path
        self._at = 0

    def add(self, sizes: np.ndarray) -> None:
        """Reads the next records.

        Args:
            sizes: int64 `[n]`: bytes of each, its frame included.
        """
        with self._path.open("rb") as file:
            file.seek(self._at)
            for size in sizes.tolist():
                data = file.read(size)
                self.of_records.append(zlib.crc32(data))
                self.of_file = zlib.crc32(data, self.of_file)
                self._at += size


@dataclasses.dataclass(frozen=True)
class _Batch:
    """What is found out about some records, one entry each."""

    sizes: np.ndarray
    hashes: np.ndarray
    lengths: np.ndarray
    max_ids: np.ndarray
    pairs: np.ndarray
    sound: np.ndarray


def _first_schema(path: pathlib.Path, name: str) -> Schema | None:
    """The form of the first record; None if the file has no record, or if the first one is damaged."""
    try:
        first = next(iter(tf.data.TFRecordDataset([str(path)]).take(1).as_numpy_iterator()), None)
    except tf.errors.DataLossError:
        return None
    except tf.errors.OpError as error:
        raise UsageError(
            f"A file of records must be readable. Received: {name!r} ({first_line(error.message)}). Check the file."
        ) from None
    return None if first is None else detect_schema(first, name)


def _sound_batches(path: pathlib.Path, schema: Schema | None) -> Iterator[_Batch | str]:
    """Batches up to the first record that cannot be read; then, if there is one, what is wrong with it."""
    look = functools.partial(_look, schema) if schema else tf.strings.length
    look = tf.autograph.experimental.do_not_convert(look)
    done, size = 0, _AT_A_TIME
    while True:
        with tf.device("CPU"):
            records = tf.data.TFRecordDataset([str(path)], buffer_size=_READ_BYTES)
            records = without_autotune(records.skip(done).batch(size).map(look, num_parallel_calls=2).prefetch(2))
        try:
            for found in records.as_numpy_iterator():
                batch = _Batch(*found)
                done += len(batch.sizes)
                yield batch
            return
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
            if size > 1:  # Try again from the last whole batch, one record at a time.
                size = 1
                continue
            is_frame = isinstance(error, tf.errors.DataLossError)
            yield "is damaged, or cut off" if is_frame else "is not of the same form as the first record of the file"
            return


def _look(schema: Schema, records: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """The parts of a `_Batch`, computed in the graph."""
    parsed = parse(records, schema)
    length = tf.reduce_sum(parsed.mask, axis=1)
    place = tf.range(schema.max_seq_length, dtype=tf.int64)
    rises = parsed.segments[:, 1:] >= parsed.segments[:, :-1]
    sound = (length > 0) & tf.reduce_all(
        (parsed.mask == tf.cast(place < length[:, None], tf.int64))
        & (parsed.ids >= 0)
        & (parsed.segments >= 0)
        & (parsed.segments <= 1),
        axis=1,
    )
    sound &= tf.reduce_all(rises | (place[1:] >= length[:, None]), axis=1)
    is_inside = (parsed.positions >= 0) & (parsed.positions < length[:, None]) & (parsed.labels >= 0)
    sound &= tf.reduce_all(is_inside | (parsed.weights <= 0), axis=1)
    if schema.has_next_sentence:
        sound &= (parsed.next_sentence[:, 0] >= 0) & (parsed.next_sentence[:, 0] <= 1)
    max_ids = tf.maximum(tf.reduce_max(parsed.ids, axis=1), tf.reduce_max(parsed.labels, axis=1))
    return (
        tf.cast(tf.strings.length(records), tf.int64),
        tf.strings.to_hash_bucket_fast(records, 2**63 - 1),
        tf.cast(length, tf.int32),
        max_ids,
        tf.reduce_any(parsed.segments > 0, axis=1),
        sound,
    )
