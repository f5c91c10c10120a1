"""An index of a file of records, built once and kept beside it: any record is then read by its number alone.

The index is a hidden file beside the records, or a file in the user's cache directory if it cannot be written there. It
holds the offsets, lengths and checksums of all records as arrays. These are memory-mapped, so that memory does not grow
with the corpus. A GZIP file cannot be read at an offset: it is unpacked once, beside the index.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import gzip
import hashlib
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator

import numpy as np

from tfbert.corpus.manifest import crc32_of
from tfbert.corpus.record_scan import Scan, scan
from tfbert.corpus.schema import Schema
from tfbert.errors import RunError, UsageError
from tfbert.output.sealed import seal, unseal

_MAGIC = b"tfbert records 2"
_ALIGN = 64
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b\x08"
_NO_ROOM_HERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ELOOP)
"""Nothing can be written at a place; the last ones where a directory above it is a file, or a broken link."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFile:
    """A file of records, indexed.

    Attributes:
        name: The file's name as the user gave it.
        plain: The file that the offsets refer to: the file itself, or its uncompressed copy.
        offsets: int64 `[n + 1]`, mapped: where each record begins, and where the last one ends.
        lengths: int32 `[n]`, mapped: tokens of each record.
        checks: uint32 `[n]`, mapped: CRC-32 of each record's bytes in `plain`, its frame included.
        schema: The records' form; None without records.
        max_id: The largest token id.
        has_pairs: Whether any record has a segment B.
        content: CRC-32 that identifies the records.
        damage: What is wrong after the last offset; empty for a whole file.
        size: Bytes of `plain`.
        file_bytes: Bytes of the file itself.
        file_crc32: CRC-32 of the file itself; of a damaged one, up to the damage.
    """

    name: str
    plain: pathlib.Path
    offsets: np.ndarray
    lengths: np.ndarray
    checks: np.ndarray
    schema: Schema | None
    max_id: int
    has_pairs: bool
    content: int
    damage: str
    size: int
    file_bytes: int
    file_crc32: int

    def __len__(self) -> int:
        return len(self.lengths)


def find_index(path: pathlib.Path) -> RecordFile | None:
    """A file with its existing index; None if there is no index, or if the file has changed since."""
    for place in _places(path):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return _read(path, place)
    return None


def index_file(path: pathlib.Path, report: Callable[[int], None] = lambda done: None) -> RecordFile:
    """A file with its index, which is built if there is none; other processes wait for the one that builds it.

    Args:
        path: A file of records, plain or compressed by GZIP.
        report: Called now and then with the number of bytes read so far.

    Raises:
        UsageError: for a file that cannot be read or holds other data, or if no place for its index is writable.
        RunError: if the disk is full.
    """
    if (found := find_index(path)) is not None:
        return found
    try:
        with _one_builder(path):
            found = find_index(path)
            return _build(path, report) if found is None else found
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


@contextlib.contextmanager
def _one_builder(path: pathlib.Path) -> Iterator[None]:
    """Waits while another process builds the index; if files cannot be locked, both build it, and one is kept."""
    with path.open("rb") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(path: pathlib.Path, report: Callable[[int], None]) -> RecordFile:
    with path.open("rb") as file:
        is_compressed = file.read(len(_GZIP)) == _GZIP
    before = _stamp(path)
    for index in _places(path):
        try:
            index.parent.mkdir(parents=True, exist_ok=True)
            plain, damage = _unpack(path, index) if is_compressed else (path, "")
            found = scan(plain, str(path), report)
            if _stamp(path) != before:
                raise UsageError(
                    f"A file of records must stay as it is while it is read. Received: {str(path)!r}, which changed. "
                    "Wait until nothing writes to it."
                )
            about = {
                "file": before,
                "plain": _stamp(plain),
                "damage": found.damage or damage,
                "file_crc32": crc32_of(path) if is_compressed else found.file_crc32,
            }
            _write(index, found, about)
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
            damage = "is damaged, or cut off"
    return _plain_of(index), damage


def _write(index: pathlib.Path, found: Scan, about: dict) -> None:
    arrays = found.offsets.astype("<i8"), found.lengths.astype("<i4"), found.checks.astype("<u4")
    content = b"".join(array.tobytes() for array in arrays)
    header = {
        **about,
        "records": len(found.lengths),
        "crc32_of_arrays": zlib.crc32(content),
        "schema": dataclasses.asdict(found.schema) if found.schema else None,
        "max_id": found.max_id,
        "has_pairs": found.has_pairs,
        "content": found.content,
    }
    text = seal(header).encode()
    with _whole(index) as file:
        start = _MAGIC + np.int64(len(text)).astype("<i8").tobytes() + text
        file.write(start.ljust(-(-len(start) // _ALIGN) * _ALIGN, b"\0"))
        file.write(content)


def _read(path: pathlib.Path, index: pathlib.Path) -> RecordFile:
    """A file with the index at a path.

    Raises:
        OSError, ValueError, KeyError, TypeError: if this is not an index of the file as it is now.
    """
    with index.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("no index")
        size = int.from_bytes(file.read(8), "little")
        text = file.read(min(size, _CHUNK)).decode()
        header = unseal(text)
        start = -(-(len(_MAGIC) + 8 + size) // _ALIGN) * _ALIGN
        is_unpacked = header["plain"] != header["file"]
        plain = _plain_of(index) if is_unpacked else path
        if not text.endswith("}\n") or header["file"] != _stamp(path) or header["plain"] != _stamp(plain):
            raise ValueError("of another file")
        file.seek(start)
        crc = 0
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    if crc != header["crc32_of_arrays"]:
        raise ValueError("damaged")
    count = header["records"]
    offsets = np.memmap(index, "<i8", "r", start, (count + 1,))
    start += offsets.nbytes
    lengths = np.memmap(index, "<i4", "r", start, (count,)) if count else np.zeros(0, np.int32)
    checks = np.memmap(index, "<u4", "r", start + lengths.nbytes, (count,)) if count else np.zeros(0, np.uint32)
    return RecordFile(
        name=str(path),
        plain=plain,
        offsets=offsets,
        lengths=lengths,
        checks=checks,
        schema=Schema(**header["schema"]) if header["schema"] else None,
        max_id=header["max_id"],
        has_pairs=header["has_pairs"],
        content=header["content"],
        damage=header["damage"],
        size=header["plain"][0],
        file_bytes=header["file"][0],
        file_crc32=header["file_crc32"],
    )


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
