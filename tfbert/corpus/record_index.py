"""An index of a file of records, built once and kept beside it: any record is then read by its number alone.

The index is a hidden file beside the records, or a file in the user's cache directory if it cannot be written there. It
holds a row for each record, its offset, length and checksum, memory-mapped, so that memory does not grow with the
corpus; then what is known of the whole file, as JSON. TensorFlow reads and parses the records while it is built, and
checks their own checksums. A GZIP file cannot be read at an offset: it is unpacked once, beside the index.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import gzip
import hashlib
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.corpus.manifest import crc32_of
from tfbert.corpus.record_format import Schema, detect_schema, parse
from tfbert.devices.autotune import without_autotune
from tfbert.errors import RunError, UsageError, first_line
from tfbert.output.output_dir import seal, unseal

FRAME_BYTES = 16
"""Bytes around each record in a file: before it, its length and the checksum of that; after it, its own checksum."""
HEAD_BYTES = 12
ROW = np.dtype([("offset", "<i8"), ("length", "<i4"), ("check", "<u4")])
"""A row of an index: where the record begins, its tokens, and the CRC-32 of its bytes, its frame included. A record has
a CRC-32C of its own, but Python has no fast one; this one also notices a sound record of another file."""
_VERSION = 3
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b\x08"
_NO_ROOM_HERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ELOOP)
"""Nothing can be written at a place; the last ones where a directory above it is a file, or a broken link."""
_AT_A_TIME = 1024
_READ_BYTES = 8 << 20
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
        damage: What is wrong after the last offset; empty for a whole file.
        size: Bytes of `plain`.
        file_bytes: Bytes of the file itself.
        file_crc32: CRC-32 of the file itself; of a damaged one, up to the damage.
    """

    name: str
    plain: pathlib.Path
    rows: np.ndarray
    schema: Schema | None
    max_id: int
    has_pairs: bool
    content: int
    damage: str
    size: int
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
        raise UsageError(
            f"A file of records must be readable. Received: {str(path)!r} ({error.strerror}). Pass another."
        ) from None


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
            plain, damage = _unpack(path, index) if is_compressed else (path, "")
            rows, about = scan(plain, str(path), advance)
            if is_compressed:
                about |= {"damage": about["damage"] or damage, "file_crc32": crc32_of(path)}
            if _stamp(path) != before:
                raise UsageError(
                    f"A file of records must stay as it is while it is read. Received: {str(path)!r}, which changed. "
                    "Wait until nothing writes to it."
                )
            held = rows.tobytes()
            about |= {"version": _VERSION, "file": before, "plain": _stamp(plain), "crc32_of_rows": zlib.crc32(held)}
            text = seal(about).encode()
            with _whole(index) as file:
                file.write(held + text + len(text).to_bytes(4, "little"))
            return _read(path, index)
        except OSError as error:
            if error.errno in _NO_ROOM_HERE:
                continue
            raise RunError(
                f"An index of records must be writable. Received: {str(index)!r} ({error.strerror}). "
                "Check free space and permissions there."
            ) from None
    raise UsageError(
        "An index must be kept beside the records, or in the user's cache. "
        f"Received: {str(path)!r}, and {' and '.join(str(place.parent) for place in _places(path))} cannot be "
        "written. Point XDG_CACHE_HOME to a writable directory."
    )


def _plain_of(index: pathlib.Path) -> pathlib.Path:
    return index.with_suffix(".unpacked")


def _unpack(path: pathlib.Path, index: pathlib.Path) -> tuple[pathlib.Path, str]:
    """Unpacks a file beside its index as far as possible: the copy, and what is wrong after that (may be empty)."""
    damage = ""
    with _whole(_plain_of(index)) as out:
        try:
            with gzip.open(path, "rb") as file:
                while chunk := file.read1(_CHUNK):  # `read` would lose the sound part of the last chunk.
                    out.write(chunk)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            damage = _DAMAGED
    return _plain_of(index), damage


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
    plain = _plain_of(index) if about["plain"] != about["file"] else path
    if (about["version"], about["file"], about["plain"]) != (_VERSION, _stamp(path), _stamp(plain)):
        raise ValueError("of another file")
    held = np.memmap(index, np.uint8, "r")[:start]
    crc = 0
    for at in range(0, start, _CHUNK):
        crc = zlib.crc32(held[at : at + _CHUNK], crc)
    if crc != about["crc32_of_rows"]:
        raise ValueError("damaged")
    known = {name: about[name] for name in ("max_id", "has_pairs", "content", "damage", "file_crc32")}
    schema = Schema(**about["schema"]) if about["schema"] else None
    sizes = {"size": about["plain"][0], "file_bytes": about["file"][0]}
    return RecordFile(name=str(path), plain=plain, rows=held.view(ROW), schema=schema, **sizes, **known)


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
    """Reads a file through: where its sound records are, how long they are, and what is wrong after them.

    Args:
        path: A TFRecord file that is not compressed.
        name: What messages call it.
        advance: As `index_file` takes it.

    Returns:
        The rows of its index, and the fields of `RecordFile` that are found here, with the schema as a dictionary.

    Raises:
        UsageError: for a file whose first record is not a record for pre-training.
    """
    damage, first = "", None
    try:
        first = next(iter(tf.data.TFRecordDataset([str(path)]).take(1).as_numpy_iterator()), None)
    except tf.errors.DataLossError:
        damage = _DAMAGED
    except tf.errors.OpError as error:
        raise UsageError(
            f"A file of records must be readable. Received: {name!r} ({first_line(error.message)}). Check the file."
        ) from None
    schema = None if first is None else detect_schema(first, name)
    look = tf.autograph.experimental.do_not_convert(functools.partial(_look, schema))
    parts, max_id, has_pairs, content, file_crc32 = [], -1, False, 0, 0
    done, end, at_a_time, is_read = 0, 0, _AT_A_TIME, schema is None
    with path.open("rb") as file:
        while not (is_read or damage):
            with tf.device("CPU"):
                records = tf.data.TFRecordDataset([str(path)], buffer_size=_READ_BYTES).skip(done).batch(at_a_time)
                records = without_autotune(records.map(look, num_parallel_calls=2).prefetch(2))
            try:
                for sizes, hashes, lengths, max_ids, pairs, are_sound in records.as_numpy_iterator():
                    sound = slice(len(sizes) if are_sound.all() else int(are_sound.argmin()))
                    sizes = sizes[sound] + FRAME_BYTES
                    part = np.zeros(len(sizes), ROW)
                    part["offset"], part["length"] = end + np.cumsum(sizes) - sizes, lengths[sound]
                    held = [file.read(size) for size in sizes.tolist()]  # Again, right after TensorFlow has read it.
                    part["check"] = list(map(zlib.crc32, held))
                    file_crc32 = functools.reduce(lambda crc, data: zlib.crc32(data, crc), held, file_crc32)
                    parts.append(part)
                    max_id = max(max_id, int(max_ids[sound].max(initial=-1)))
                    has_pairs |= bool(pairs[sound].any())
                    content = zlib.crc32(hashes[sound].tobytes(), content)
                    done, end = done + len(part), end + int(sizes.sum())
                    advance(int(sizes.sum()))
                    if not are_sound.all():
                        damage = _IMPOSSIBLE
                        break
                is_read = True
            except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
                if at_a_time == 1:
                    damage = _DAMAGED if isinstance(error, tf.errors.DataLossError) else _OTHER_FORM
                at_a_time = 1  # Again from the last whole batch.
    last = np.zeros(1, ROW)
    last["offset"] = end
    about = {"schema": dataclasses.asdict(schema) if schema else None, "max_id": max_id, "has_pairs": has_pairs}
    return np.concatenate([*parts, last]), about | {"content": content, "file_crc32": file_crc32, "damage": damage}


def _look(schema: Schema, records: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Of each record, computed in the graph: bytes, a hash, tokens, the largest id, whether it is a pair, and whether
    its numbers are possible."""
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
