"""Tells whether a corpus is still the same: digests of all its bytes, at the speed of the disk."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import pathlib
from collections.abc import Sequence

from tfbert.errors import UsageError
from tfbert.output.progress import PassProgress

_PIECE = 64 << 20
_READ = 1 << 20


def digest(*values: object) -> str:
    """A digest of the `repr` of values."""
    return hashlib.blake2b(repr(values).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def file_digests(paths: Sequence[str]) -> dict[str, str]:
    """A digest of the content of each file.

    Pieces are hashed by as many threads as there are cores, so that one large file takes no longer than many small
    ones. A sample of the bytes would be quicker and would miss a file that was changed in its middle.

    Raises:
        UsageError: for a file that no longer exists or cannot be read.
    """
    try:
        sizes = [pathlib.Path(path).stat().st_size for path in paths]
        pieces = [(path, start) for path, size in zip(paths, sizes, strict=True) for start in range(0, size, _PIECE)]
        found = []
        with (
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
            PassProgress("hashing the corpus", sum(sizes), "MB") as progress,
        ):
            for value, size in pool.map(_piece_digest, pieces):
                found.append(value)
                progress.advance(size, size / 1e6)
    except OSError as error:
        raise UsageError(
            f"The files of a corpus must stay readable. Received: {error.filename!r} ({error.strerror}). "
            "Check the path."
        ) from None
    by_path: dict[str, list[str]] = {path: [] for path in paths}
    for (path, _), value in zip(pieces, found, strict=True):
        by_path[path].append(value)
    return {path: digest(size, *by_path[path]) for path, size in zip(paths, sizes, strict=True)}


def _piece_digest(piece: tuple[str, int]) -> tuple[str, int]:
    """The digest of a piece, and its bytes."""
    path, start = piece
    # OpenSSL's implementation, fast on processors with instructions for it; hashlib's other algorithms have none.
    state = hashlib.sha256()
    left = _PIECE
    with pathlib.Path(path).open("rb") as file:
        file.seek(start)
        while left and (data := file.read(min(_READ, left))):
            state.update(data)
            left -= len(data)
    return state.hexdigest(), _PIECE - left
