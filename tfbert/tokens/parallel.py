"""A graph function over many texts: on all cores, in order, with memory that long texts do not make grow."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

_CHUNK_BYTES = 1 << 22  # Text handed to one graph call.
_SURROGATE = re.compile("[\ud800-\udfff]")


def map_texts(
    function: Callable[..., tuple[tf.Tensor, ...]], *columns: Sequence[str], batch_size: int = 1024
) -> tuple[np.ndarray, ...]:
    """Calls a `tf.function` on chunks of texts and joins what it returns.

    Args:
        function: Takes a string [k] tensor for each column, returns a tuple of tensors. It is traced once, in its
            first call ever, so keep it where it is used often: threads call it, for each call of a `tf.data` pipeline
            would take a second to build.
        *columns: Texts, as many in each.
        batch_size: Most texts in a chunk; fewer where texts are long.

    Returns:
        Each tensor that `function` returns as one array: those of all chunks, one after the other along axis 0.
    """
    encoded = [[_utf8(text) for text in column] for column in columns]
    sizes = [sum(map(len, row)) for row in zip(*encoded, strict=True)]

    def call(chunk: tuple[int, int]) -> list[np.ndarray]:
        with tf.device("CPU:0"):
            texts = (tf.constant(column[slice(*chunk)], tf.string, [chunk[1] - chunk[0]]) for column in encoded)
            return [tensor.numpy() for tensor in function(*texts)]

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        parts = list(threads.map(call, _chunks(sizes, batch_size)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _utf8(text: str) -> bytes:
    """A text in UTF-8. A lone surrogate, which JSON can bring in, has no form there: it becomes U+FFFD, so that it is
    dropped and the characters after it keep their places."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text).encode()


def _chunks(sizes: Sequence[int], batch_size: int) -> list[tuple[int, int]]:
    """First and last + 1 of successive rows, at most `batch_size` and about `_CHUNK_BYTES` each; one chunk at least."""
    starts, total = [0], 0
    for row, size in enumerate(sizes):
        if row > starts[-1] and (row - starts[-1] >= batch_size or total + size > _CHUNK_BYTES):
            starts.append(row)
            total = 0
        total += size
    return list(zip(starts, [*starts[1:], len(sizes)], strict=True))
