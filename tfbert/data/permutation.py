"""A random order of more things than can be shuffled at once: pure NumPy."""

from __future__ import annotations

import numpy as np

_ROUNDS = 8


def permuted(places: np.ndarray, count: int, *, seed: int, epoch: int) -> np.ndarray:
    """The values of a permutation of `count` numbers at some places.

    A Feistel network (Luby and Rackoff 1988) permutes all numbers of an even number of bits, as few as hold `count`; a
    result of `count` or more is permuted again until it is smaller (Black and Rogaway 2002).

    Args:
        places: int64 `[n]`, from 0 to `count - 1`.
        count: Numbers that are permuted, at least 1.
        seed: The run's seed.
        epoch: Counted from 0.

    Returns:
        int64 `[n]`.
    """
    half = max(1, -(-int(count - 1).bit_length() // 2))
    keys = np.random.Generator(np.random.PCG64([seed, epoch])).integers(2**64, size=_ROUNDS, dtype=np.uint64)
    low, bits = np.uint64((1 << half) - 1), np.uint64(half)
    out = np.asarray(places).astype(np.uint64)
    outside = np.arange(len(out))
    while len(outside):
        left, right = out[outside] >> bits, out[outside] & low
        for key in keys:
            left, right = right, left ^ (mixed(right + key) & low)
        out[outside] = left << bits | right
        outside = outside[out[outside] >= count]
    return out.astype(np.int64)


def mixed(x: np.ndarray) -> np.ndarray:
    """Mixes the bits of uint64 numbers (the finalizer of splitmix64, Steele et al. 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
