"""Which example is in which batch: pure NumPy, from (lengths, seed, epoch) alone.

Every worker builds the same plan and takes its own slice, so workers never disagree about data and never run out at
different times; a run that resumes at step n continues with row n of the plan.

Records may be too many to shuffle at once. There, an epoch's order is a permutation, a function of (seed, epoch), whose
values are computed as they are needed. It is cut into pools of some batches, planned one after the other: memory is
bounded by a pool, and a run resumes at any update without planning those before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from tfbert.data.permutation import permuted
from tfbert.errors import UsageError

ORDER_VERSION = 2
"""Of the batches that `plan_epoch` groups by length: no run goes on with those of another version. 1 was all batches of
an epoch, shuffled."""

FILL = -1
"""The index where a batch has no example: the row gets weight 0."""

GROUP_BATCHES = 50
"""Most batches that one length-sorted pool of shuffled examples is cut into."""

_POOLS = 4
"""Least pools of an epoch. If one pool held everything, sorting would undo the shuffling: examples of like length would
meet in every epoch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Examples and widths of consecutive global batches.

    Attributes:
        rows: int64 `[num_batches, global_batch_size]`: example indexes, or `FILL`. Where batches have as many rows as
            make a number of tokens, a list of them.
        widths: int32 `[num_batches]`: the padded length of each batch, in tokens.
        epoch: Which pass over the examples this is: words are masked anew in each.
    """

    rows: np.ndarray | list[np.ndarray]
    widths: np.ndarray
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, batches: slice) -> BatchPlan:
        """Some of its batches."""
        return dataclasses.replace(self, rows=self.rows[batches], widths=self.widths[batches])


def steps_per_epoch(num_examples: int, global_batch_size: int) -> int:
    """Updates that visit every example once; the last batch may be short."""
    return -(-num_examples // global_batch_size)


def batches_of_a_pool(num_examples: int, global_batch_size: int) -> int:
    """Batches that one length-sorted pool holds, as in Hugging Face's `group_by_length`: `GROUP_BATCHES`, but at most a
    quarter of an epoch."""
    return max(1, min(GROUP_BATCHES, num_examples // (_POOLS * global_batch_size)))


def micro_batch_size(global_batch_size: int, num_replicas: int, gradient_accumulation_steps: int) -> int:
    """The rows one replica computes at a time.

    Raises:
        UsageError: if the global batch does not split evenly; names the nearest batch sizes that do.
    """
    parts = num_replicas * gradient_accumulation_steps
    if global_batch_size % parts == 0 and global_batch_size >= parts:
        return global_batch_size // parts
    below, above = global_batch_size // parts * parts, (global_batch_size // parts + 1) * parts
    nearest = f"{below} or {above}" if below else f"{above}"
    raise UsageError(
        f"global_batch_size must be a multiple of num_replicas x gradient_accumulation_steps = {num_replicas} x "
        f"{gradient_accumulation_steps} = {parts}. Received: global_batch_size={global_batch_size}. "
        f"Pass --global_batch_size={nearest}, or other gradient_accumulation_steps."
    )


def batch_rows(global_batch_size: int, num_examples: int, num_parts: int) -> int:
    """Rows of each global batch: no more than one evenly split batch of all examples needs.

    Args:
        global_batch_size: A multiple of `num_parts`.
        num_examples: Examples in the data set.
        num_parts: Replicas x micro-batches.
    """
    return min(global_batch_size, -(-num_examples // num_parts) * num_parts)


def plan_epoch(
    lengths: np.ndarray,
    *,
    global_batch_size: int,
    seed: int,
    epoch: int,
    group_by_length: bool,
    allowed_widths: np.ndarray,
) -> BatchPlan:
    """Plans one training epoch: every example exactly once, in an order that is a function of (seed, epoch).

    With `group_by_length` the shuffled examples are cut into pools of `batches_of_a_pool`, and each pool is sorted by
    length, cut into batches and shuffled again: a batch holds texts of similar length, and the batches of each pool,
    which follow one another, are a sample of all lengths. (Batches shuffled across pools may be long or short for a
    while, and labels often go with length: benchmarks/order_of_batches.py.) The short batch, if any, comes last. A
    single batch stays as it is: how many rows it has depends on how it is split.

    Args:
        lengths: int `[num_examples]`, tokens of each example.
        global_batch_size: Rows of each batch.
        seed: The run's seed.
        epoch: Counted from 0.
        group_by_length: Whether to batch similar lengths.
        allowed_widths: Ascending int widths that batches may be padded to; the last must hold the longest example.

    Returns:
        The plan, `ceil(num_examples / global_batch_size)` batches.
    """
    rng = np.random.Generator(np.random.PCG64([seed, epoch]))
    order = rng.permutation(len(lengths))
    whole = len(order) // global_batch_size * global_batch_size
    if group_by_length and len(order) > global_batch_size:
        pool = batches_of_a_pool(len(order), global_batch_size) * global_batch_size
        for start in range(0, whole, pool):
            part = order[start : min(start + pool, whole)]
            batches = part[np.argsort(lengths[part], kind="stable")].reshape(-1, global_batch_size)
            order[start : start + len(part)] = batches[rng.permutation(len(batches))].reshape(-1)
    return as_plan(order, lengths[order], global_batch_size, allowed_widths, epoch)


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


def plan_in_order_of_length(lengths: np.ndarray, *, global_batch_size: int, allowed_widths: np.ndarray) -> BatchPlan:
    """Plans one pass for evaluation: longest first, so that a lack of memory shows at once and padding is little."""
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    return as_plan(order, np.asarray(lengths)[order], global_batch_size, allowed_widths)


def plan_by_tokens(lengths: np.ndarray, most_tokens: int) -> BatchPlan:
    """As `plan_in_order_of_length`, with as many rows in a batch as have so many tokens together, padding included; of
    a longer row, one."""
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    rows, widths = [], []
    while len(order):
        widths.append(max(1, int(lengths[order[0]])))
        batch, order = np.split(order, [max(1, most_tokens // widths[-1])])
        rows.append(batch)
    return BatchPlan(rows=rows, widths=np.array(widths, np.int32))


def as_plan(
    order: np.ndarray, lengths: np.ndarray, global_batch_size: int, allowed_widths: np.ndarray, epoch: int = 0
) -> BatchPlan:
    """Cuts examples into batches, in their order.

    Args:
        order: int64 `[n]`: which examples.
        lengths: int `[n]`: tokens of each of them.
        global_batch_size: Rows of each batch; the last one is filled.
        allowed_widths: As for `plan_epoch`.
        epoch: Which pass over all examples this is.
    """
    num_batches = steps_per_epoch(len(order), global_batch_size)
    rows = np.full(num_batches * global_batch_size, FILL, np.int64)
    longest = np.zeros(rows.shape, np.int64)
    rows[: len(order)], longest[: len(order)] = order, lengths
    longest = longest.reshape(num_batches, global_batch_size).max(axis=1)
    widths = allowed_widths[np.searchsorted(allowed_widths, longest)].astype(np.int32)
    return BatchPlan(rows=rows.reshape(num_batches, global_batch_size), widths=widths, epoch=epoch)


def exact_widths(lengths: np.ndarray) -> np.ndarray:
    """Every width up to the longest example: no batch is padded beyond its own longest text."""
    return np.arange(1, max(1, int(np.max(lengths))) + 1)


def few_widths(lengths: np.ndarray, max_widths: int) -> np.ndarray:
    """At most `max_widths` widths that pad the given lengths least; for XLA, which compiles each new shape.

    Exact, by dynamic programming over the lengths that occur: the cost of a width is the tokens it pads.

    Args:
        lengths: int `[n]`, those of examples, or the longest of each batch.
        max_widths: Most widths to choose, at least 1.

    Returns:
        Ascending widths; the last is the longest length.
    """
    values, counts = np.unique(lengths, return_counts=True)
    n = len(values)
    total = np.concatenate([[0], np.cumsum(counts)])
    # best[j]: least padded tokens for the j shortest distinct lengths; a step covers lengths i..j-1 with width j-1.
    best = np.concatenate([[0.0], np.full(n, np.inf)])
    choices = []
    for _ in range(min(max_widths, n)):
        cost = best[:, None] + np.where(
            np.arange(n + 1)[:, None] < np.arange(n + 1)[None, :],
            (total[None, :] - total[:, None]) * np.concatenate([[0], values])[None, :],
            np.inf,
        )
        cost[0, 0] = 0.0
        choices.append(cost.argmin(axis=0))
        best = cost.min(axis=0)
    widths, end = [], n
    for choice in reversed(choices):
        if end == 0:
            break
        widths.append(values[end - 1])
        end = int(choice[end])
    return np.array(sorted(widths))
