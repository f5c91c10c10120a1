"""Ragged rows in NumPy; and a function applied to many texts: on all cores, in order, with memory that does not grow
with long texts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from tfbert.devices.process import is_watched
from tfbert.output.logs import bar
from tfbert.private import check_not_forked


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int64 [sum of lengths]: the ranges `start, start + 1, ...` of these lengths, concatenated."""
    shifts = starts - (np.cumsum(lengths, dtype=np.int64) - lengths)
    return np.repeat(shifts, lengths) + np.arange(len(shifts) and np.sum(lengths))


def splits_of(lengths: np.ndarray) -> np.ndarray:
    """int64 [n + 1]: where rows of these lengths start and end in a flat array."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


SECONDS_WITHOUT_BAR = 2.0
_CHUNK_BYTES = 1 << 22  # Text handed to one graph call.
_SURROGATE = re.compile("[\ud800-\udfff]")


def map_texts(
    function: Callable[..., tuple[tf.Tensor, ...]], *columns: Sequence[str], batch_size: int = 1024
) -> tuple[np.ndarray, ...]:
    """Calls a `tf.function` on chunks of texts and joins what it returns.

    Args:
        function: Takes a string [k] tensor for each column, returns a tuple of tensors. It is traced in its first call,
            so reuse the same function. Threads call it, because building a `tf.data` pipeline for each call of
            `map_texts` would take a second.
        *columns: Texts, equally many in each.
        batch_size: Most texts in a chunk; fewer if texts are long.

    Returns:
        For each tensor that `function` returns, one array: the results of all chunks, concatenated along axis 0.

    Raises:
        UsageError: in a process forked from one that had used TensorFlow.
    """
    check_not_forked()
    encoded = [[_utf8(text) for text in column] for column in columns]
    sizes = [sum(map(len, row)) for row in zip(*encoded, strict=True)]

    def call(chunk: tuple[int, int]) -> list[np.ndarray]:
        with tf.device("CPU:0"):
            texts = (tf.constant(column[slice(*chunk)], tf.string, [chunk[1] - chunk[0]]) for column in encoded)
            return [tensor.numpy() for tensor in function(*texts)]

    chunks = _chunks(sizes, batch_size)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return _joined(threads.map(call, chunks), len(chunks))


def map_chunks(
    function: Callable[[list[str]], tuple[np.ndarray, ...]], texts: Sequence[str], *, batch_size: int
) -> tuple[np.ndarray, ...]:
    """As `map_texts`, for a function of Python that takes a list of texts and is on all cores by itself."""
    check_not_forked()
    texts = [without_surrogates(text) for text in texts]
    chunks = _chunks([len(text) for text in texts], batch_size)
    return _joined((function(texts[slice(*chunk)]) for chunk in chunks), len(chunks))


def _joined(parts: Iterable[Sequence[np.ndarray]], total: int) -> tuple[np.ndarray, ...]:
    # A bar where somebody watches, and only where it takes long.
    options = {"desc": "tokenizing", "leave": False, "delay": SECONDS_WITHOUT_BAR, "disable": not is_watched()}
    parts = list(bar(iterable=parts, total=total, **options))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def without_surrogates(text: str) -> str:
    """A text with U+FFFD in the place of lone surrogates."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _utf8(text: str) -> bytes:
    """A text in UTF-8. A lone surrogate, which JSON can contain, has no form in UTF-8: it becomes U+FFFD, so that it is
    dropped later and the characters after it keep their places."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return without_surrogates(text).encode()


def _chunks(sizes: Sequence[int], batch_size: int) -> list[tuple[int, int]]:
    """Ranges of successive rows (first, last + 1), of at most `batch_size` rows and about `_CHUNK_BYTES` each; at least
    one range."""
    starts, total = [0], 0
    for row, size in enumerate(sizes):
        if row > starts[-1] and (row - starts[-1] >= batch_size or total + size > _CHUNK_BYTES):
            starts.append(row)
            total = 0
        total += size
    return list(zip(starts, [*starts[1:], len(sizes)], strict=True))
