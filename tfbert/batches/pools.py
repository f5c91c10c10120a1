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
from tfbert.data.permutation import permuted


class Lengths(Protocol):
    """Tokens of each record, looked up when needed."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: np.ndarray) -> np.ndarray: ...


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
