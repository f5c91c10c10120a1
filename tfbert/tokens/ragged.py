"""Ragged rows in NumPy."""

from __future__ import annotations

import numpy as np


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int64 [sum of lengths]: the ranges `start, start + 1, ...` of these lengths, concatenated."""
    shifts = starts - (np.cumsum(lengths, dtype=np.int64) - lengths)
    return np.repeat(shifts, lengths) + np.arange(len(shifts) and np.sum(lengths))


def splits_of(lengths: np.ndarray) -> np.ndarray:
    """int64 [n + 1]: where rows of these lengths start and end in a flat array."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
