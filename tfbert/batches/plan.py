"""Which example is in which batch, and which share a row: pure NumPy, from (lengths, seed, epoch) alone.

Every worker builds the same plan and takes its own slice, so workers never disagree about data and never run out at
different times; a run that resumes at step n continues with row n of the plan.

Records may be too many to shuffle at once. There, an epoch's order is a permutation, a function of (seed, epoch), whose
values are computed as they are needed. It is cut into pools of some batches, planned one after the other: memory is
bounded by a pool, and a run resumes at any update without planning those before.

Every update computes the same shape, so three things are decided here, from lengths alone:

- Batches hold equally many examples *and* about equally many tokens: examples are sorted by length, and the longest one
  left is dealt to the batch with the fewest tokens. A batch is thus a sample of all lengths, and needs no spare room
  for an unlucky draw.
- Each of a global batch's micro-batches gets equally many of its examples, and about equally many tokens.
- The shape (rows and width of a micro-batch) is the cheapest in which best-fit decreasing (Johnson 1973) finds room
  for every micro-batch of the run; it is decided once.

Which examples form a global batch does not depend on how it is split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbert.data.permutation import permuted
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.corpus.records import RecordLengths

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
class PackedShape:
    """The shape of every micro-batch of a run.

    Attributes:
        num_parts: Micro-batches of a global batch: replicas x gradient accumulation steps.
        num_examples: Examples of a micro-batch.
        num_rows: Rows of a micro-batch.
        width: Tokens of a row.
    """

    num_parts: int
    num_examples: int
    num_rows: int
    width: int

    @property
    def num_tokens(self) -> int:
        """Positions of a global batch, including those that hold no token."""
        return self.num_parts * self.num_rows * self.width


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Examples and widths of consecutive global batches; packed, also where their tokens go.

    Attributes:
        rows: int64 `[num_batches, global_batch_size]`: example indexes, or `FILL`; packed, a part's examples are
            adjacent. Those of `plan_longest_first` have unlike numbers of rows: a list.
        widths: int32 `[num_batches]`: the padded length of each batch, in tokens.
        epoch: Which pass over the examples this is: words are masked anew in each.
        starts: int32 `[num_batches, global_batch_size]`: where the example's `[CLS]` stands among its part's
            `num_rows x width` positions; 0 for `FILL`. None for plans that are not packed, as the next.
        shape: The shape of all parts.
    """

    rows: np.ndarray | list[np.ndarray]
    widths: np.ndarray
    epoch: int = 0
    starts: np.ndarray | None = None
    shape: PackedShape | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, batches: slice) -> BatchPlan:
        """Some of its batches."""
        starts = None if self.starts is None else self.starts[batches]
        return dataclasses.replace(self, rows=self.rows[batches], widths=self.widths[batches], starts=starts)


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


def plan_pools(
    lengths: RecordLengths,
    *,
    global_batch_size: int,
    seed: int,
    epoch: int,
    group_by_length: bool,
    allowed_widths: np.ndarray,
    first_batch: int = 0,
) -> Iterator[BatchPlan]:
    """Plans an epoch pool by pool, of up to `batches_of_a_pool` each, starting at any of its batches; otherwise as
    `plan_epoch`. The short batch, if any, is the last one of the last pool.

    Args:
        lengths: Those of all records.
        global_batch_size: Rows of each batch.
        seed: The run's seed.
        epoch: Counted from 0.
        group_by_length: Whether to batch similar lengths.
        allowed_widths: As for `plan_epoch`.
        first_batch: The first batch to plan.
    """
    batches_each = batches_of_a_pool(len(lengths), global_batch_size)
    size = batches_each * global_batch_size
    first_pool, done = divmod(first_batch, batches_each)
    for pool in range(first_pool, -(-len(lengths) // size)):
        places = np.arange(pool * size, min((pool + 1) * size, len(lengths)))
        order = permuted(places, len(lengths), seed=seed, epoch=epoch)
        whole = len(order) // global_batch_size * global_batch_size
        known = lengths[order]
        if group_by_length and len(lengths) > global_batch_size:  # As in `plan_epoch`.
            batches = np.argsort(known[:whole], kind="stable").reshape(-1, global_batch_size)
            rng = np.random.Generator(np.random.PCG64([seed, epoch, pool]))
            sort = np.concatenate([batches[rng.permutation(len(batches))].reshape(-1), np.arange(whole, len(order))])
            order, known = order[sort], known[sort]
        yield as_plan(order, known, global_batch_size, allowed_widths, epoch).part(slice(done, None))
        done = 0


def plan_longest_first(lengths: np.ndarray, rows_of: Callable[[int], int], num_replicas: int = 1) -> BatchPlan:
    """Plans one pass for evaluation: longest first, so that a lack of memory shows at once and padding is little.

    Args:
        lengths: int `[num_examples]`, tokens of each example.
        rows_of: For a batch's width, the most rows of each replica's share of it; 0 is taken as 1.
        num_replicas: Shares of a batch. The last batch has as many rows as there are examples left, filled up to
            equal shares.
    """
    order, fill = np.argsort(-np.asarray(lengths, np.int64), kind="stable"), np.full(num_replicas, FILL)
    rows, widths = [], []
    while len(order):  # A million times, maybe: np.split and np.pad would take 40 s.
        widths.append(max(1, int(lengths[order[0]])))
        most = num_replicas * max(1, rows_of(widths[-1]))
        batch, order = order[:most], order[most:]
        rows.append(np.concatenate([batch, fill[: -len(batch) % num_replicas]]))
    return BatchPlan(rows=rows, widths=np.array(widths, np.int32))


def as_plan(
    order: np.ndarray, lengths: np.ndarray, global_batch_size: int, allowed_widths: np.ndarray, epoch: int
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
    # Padded tokens of lengths i..j-1 with width j-1.
    is_step = np.arange(n + 1)[:, None] < np.arange(n + 1)
    padded = np.where(is_step, (total - total[:, None]) * np.concatenate([[0], values]), np.inf)
    padded[0, 0] = 0.0
    best = np.concatenate([[0.0], np.full(n, np.inf)])  # The least padded tokens for the j shortest distinct lengths.
    choices = []
    for _ in range(min(max_widths, n)):
        cost = best[:, None] + padded
        choices.append(cost.argmin(axis=0))
        best = cost.min(axis=0)
    widths, end = [], n
    while end:
        widths.append(values[end - 1])
        end = int(choices.pop()[end])
    return np.array(widths[::-1])


ATTENTION_COST = 1 / 2000
"""Cost of one more position of width, for each token of a row, in units of a token's other arithmetic: attention is
computed between all positions of a row. 1 / (6 x hidden_size), for a hidden size between MiniLM's and BERT-base's."""

_LENGTH_NOISE = 0.25
"""Spread of a random factor on lengths before they are sorted: without it, a few examples of distinct lengths would
share a batch in every epoch."""


def balanced_batches(lengths: np.ndarray, *, global_batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """Plans one epoch of batches of about equally many tokens: every example once, the short batch last.

    Args:
        lengths: int `[num_examples]`, tokens of each example.
        global_batch_size: Examples of each batch.
        seed: The run's seed.
        epoch: Counted from 0.

    Returns:
        int64 `[num_batches, global_batch_size]` example indexes, or `FILL`.
    """
    rng = np.random.Generator(np.random.PCG64([seed, epoch]))
    count, lengths = len(lengths), np.asarray(lengths, np.int64)
    noisy = lengths * np.exp(rng.normal(0.0, _LENGTH_NOISE, count))
    order = np.argsort(-noisy, kind="stable")
    num_whole = count // global_batch_size
    rows = np.full((steps_per_epoch(count, global_batch_size), global_batch_size), FILL, np.int64)
    rest = count - num_whole * global_batch_size
    if rest:  # The short batch is a sample of all lengths too.
        places = ((np.arange(rest) + rng.random()) * count / rest).astype(np.int64)
        rows[-1, :rest] = order[places]
        order = np.delete(order, places)
    if num_whole:
        # In each round, the longest goes to the batch with the fewest tokens.
        batches, totals = np.empty((num_whole, global_batch_size), np.int64), np.zeros(num_whole, np.int64)
        for number, dealt in enumerate(order.reshape(global_batch_size, num_whole)):
            dealt = dealt[np.argsort(-lengths[dealt], kind="stable")]
            fewest = np.argsort(totals, kind="stable")
            batches[fewest, number] = dealt
            totals[fewest] += lengths[dealt]
        rows[:num_whole] = batches[rng.permutation(num_whole)]
    return rows


def split_balanced(rows: np.ndarray, lengths: np.ndarray, num_parts: int) -> np.ndarray:
    """Reorders each batch's examples so that equal consecutive parts of it have about equally many tokens.

    Each part ends up with its longest example first and `FILL` last.

    Args:
        rows: int64 `[num_batches, global_batch_size]` example indexes, or `FILL`.
        lengths: int `[num_examples]`.
        num_parts: A divisor of the batch size.

    Returns:
        int64 `[num_batches, num_parts, global_batch_size / num_parts]`.
    """
    known = _lengths_of(rows, lengths)
    order = np.take_along_axis(rows, np.argsort(-known, axis=1, kind="stable"), axis=1)
    # Each goes to the part with the fewest tokens that is not full.
    parts = np.empty((len(rows), num_parts, rows.shape[1] // num_parts), rows.dtype)
    totals, sizes = np.zeros((2, len(rows), num_parts), np.int64)
    every = np.arange(len(rows))
    for dealt in order.T:
        part = np.where(sizes < parts.shape[2], totals, np.iinfo(np.int64).max).argmin(axis=1)
        parts[every, part, sizes[every, part]] = dealt
        totals[every, part] += _lengths_of(dealt, lengths)
        sizes[every, part] += 1
    longest_first = np.argsort(-_lengths_of(parts, lengths), axis=2, kind="stable")
    return np.take_along_axis(parts, longest_first, axis=2)


def place(lengths: np.ndarray, num_rows: int, width: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Finds a place for every example of every micro-batch by best-fit decreasing; all micro-batches at once.

    Args:
        lengths: int `[num_micro_batches, num_examples]`, each in descending order; 0 for no example.
        num_rows: Rows of a micro-batch.
        width: Tokens of a row.

    Returns:
        int32 `[num_micro_batches, num_examples]`: where each example begins, counted through the rows; 0 for no
        example. And the lengths of a micro-batch that does not fit, or None.
    """
    free = np.full((len(lengths), num_rows), width, np.int32)
    starts = np.zeros(lengths.shape, np.int32)
    every = np.arange(len(lengths))
    for index, length in enumerate(lengths.T):
        left = free - length[:, None]
        row = np.where(left < 0, width + 1, left).argmin(axis=1)
        if (is_full := left[every, row] < 0).any():
            return starts, lengths[is_full.argmax()]
        starts[:, index] = np.where(length > 0, row * width + width - free[every, row], 0)
        free[every, row] -= length
    return starts, None


def choose_packed_shape(
    lengths: np.ndarray, *, global_batch_size: int, seed: int, epochs: Sequence[int], num_parts: int, max_width: int
) -> PackedShape:
    """The cheapest shape that holds every micro-batch of a run.

    Args:
        lengths: int `[num_examples]`.
        global_batch_size: Examples of each update, a multiple of `num_parts`.
        seed: The run's seed.
        epochs: The run's epochs.
        num_parts: Replicas x gradient accumulation steps.
        max_width: Widest row allowed; the longest example may be wider.
    """
    num_examples, micro_batches = global_batch_size // num_parts, []
    for epoch in epochs:
        rows = balanced_batches(lengths, global_batch_size=global_batch_size, seed=seed, epoch=epoch)
        parts = split_balanced(rows, lengths, num_parts)
        micro_batches.append(np.unique(_lengths_of(parts, lengths).reshape(-1, num_examples), axis=0))
    most = max(int(lines.sum(axis=1).max()) for lines in micro_batches)
    longest = max(int(lines.max()) for lines in micro_batches)
    widths = np.arange(longest, max(longest, max_width) + 1)
    counts = np.arange(1, num_examples + 1)
    tokens = counts[:, None] * widths[None, :]
    rows_at, widths_at = np.nonzero(tokens >= most)
    cost = tokens[rows_at, widths_at] * (1 + widths[widths_at] * ATTENTION_COST)
    hard: list[np.ndarray] = []  # Micro-batches that did not fit in some shape: tried first in the next.
    for candidate in np.argsort(cost, kind="stable"):
        num_rows, width = int(counts[rows_at[candidate]]), int(widths[widths_at[candidate]])
        if hard and place(np.stack(hard), num_rows, width)[1] is not None:
            continue
        misfits = (place(lines, num_rows, width)[1] for lines in micro_batches)
        misfit = next((line for line in misfits if line is not None), None)
        if misfit is None:
            return PackedShape(num_parts=num_parts, num_examples=num_examples, num_rows=num_rows, width=width)
        hard.append(misfit)
    raise AssertionError("a row for each example is always enough")


def plan_packed_epoch(
    lengths: np.ndarray, *, global_batch_size: int, seed: int, epoch: int, shape: PackedShape
) -> BatchPlan:
    """Plans one epoch in a shape that `choose_packed_shape` chose for it."""
    rows = balanced_batches(lengths, global_batch_size=global_batch_size, seed=seed, epoch=epoch)
    parts = split_balanced(rows, lengths, shape.num_parts)
    lines = _lengths_of(parts, lengths).reshape(-1, shape.num_examples)
    starts, misfit = place(lines, shape.num_rows, shape.width)
    assert misfit is None, "the shape was chosen to hold this epoch"
    rows, starts = parts.reshape(rows.shape), starts.reshape(rows.shape)
    widths = np.full(len(rows), shape.width, np.int32)
    return BatchPlan(rows=rows, widths=widths, epoch=epoch, starts=starts, shape=shape)


def _lengths_of(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.where(rows == FILL, 0, np.asarray(lengths, np.int64)[rows])
