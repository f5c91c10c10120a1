"""Which record is in which batch, where there are too many records to shuffle at once: pure NumPy.

An epoch's order is a permutation, a function of (seed, epoch), whose values are computed as they are needed. It is cut
into pools of some batches, planned one after the other: memory is bounded by a pool, and a run resumes at any update
without planning those before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from tfbert.batches.plan import BatchPlan, as_plan, batches_of_a_pool, steps_per_epoch

_ROUNDS = 8


class Lengths(Protocol):
    """Tokens of each record, looked up when needed."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: np.ndarray) -> np.ndarray: ...


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
            left, right = right, left ^ (_mixed(right + key) & low)
        out[outside] = left << bits | right
        outside = outside[out[outside] >= count]
    return out.astype(np.int64)


def plan_pool(
    lengths: Lengths,
    pool: int,
    *,
    global_batch_size: int,
    seed: int,
    epoch: int,
    group_by_length: bool,
    allowed_widths: np.ndarray,
) -> BatchPlan:
    """Plans the batches of one pool of an epoch, up to `batches_of_a_pool`; otherwise as `plan_epoch`.

    Args:
        lengths: Those of all records.
        pool: Which pool; the short batch, if any, is the last one of the last pool.
        global_batch_size: Rows of each batch.
        seed: The run's seed.
        epoch: Counted from 0.
        group_by_length: Whether to batch similar lengths.
        allowed_widths: As for `plan_epoch`.
    """
    size = batches_of_a_pool(len(lengths), global_batch_size) * global_batch_size
    places = np.arange(pool * size, min((pool + 1) * size, len(lengths)))
    order = permuted(places, len(lengths), seed=seed, epoch=epoch)
    whole = len(order) // global_batch_size * global_batch_size
    known = lengths[order]
    if group_by_length and len(lengths) > global_batch_size:  # As in `plan_epoch`.
        batches = np.argsort(known[:whole], kind="stable").reshape(-1, global_batch_size)
        rng = np.random.Generator(np.random.PCG64([seed, epoch, pool]))
        sort = np.concatenate([batches[rng.permutation(len(batches))].reshape(-1), np.arange(whole, len(order))])
        order, known = order[sort], known[sort]
    return as_plan(order, known, global_batch_size, allowed_widths, epoch)


def plan_pools(
    lengths: Lengths,
    *,
    global_batch_size: int,
    seed: int,
    epoch: int,
    group_by_length: bool,
    allowed_widths: np.ndarray,
    first_batch: int = 0,
) -> Iterator[BatchPlan]:
    """Plans an epoch pool by pool, starting at any of its batches.

    Args:
        lengths: Those of all records.
        global_batch_size: Rows of each batch.
        seed: The run's seed.
        epoch: Counted from 0.
        group_by_length: Whether to batch similar lengths.
        allowed_widths: As for `plan_epoch`.
        first_batch: The first batch to plan.
    """
    size = batches_of_a_pool(len(lengths), global_batch_size)
    num_pools = -(-steps_per_epoch(len(lengths), global_batch_size) // size)
    first_pool, done = divmod(first_batch, size)
    for pool in range(first_pool, num_pools):
        plan = plan_pool(
            lengths,
            pool,
            global_batch_size=global_batch_size,
            seed=seed,
            epoch=epoch,
            group_by_length=group_by_length,
            allowed_widths=allowed_widths,
        )
        yield plan.part(slice(done, None))
        done = 0


def _mixed(x: np.ndarray) -> np.ndarray:
    """Mixes the bits of uint64 numbers (the finalizer of splitmix64, Steele et al. 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
