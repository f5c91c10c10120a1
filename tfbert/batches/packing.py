"""Which examples share a row: pure NumPy, a function of (lengths, seed, epoch) and of how a global batch is split.

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
from collections.abc import Iterator, Sequence

import numpy as np

from tfbert.batches.plan import FILL, steps_per_epoch

ATTENTION_COST = 1 / 2000
"""Cost of one more position of width, for each token of a row, in units of a token's other arithmetic: attention is
computed between all positions of a row. 1 / (6 x hidden_size), for a hidden size between MiniLM's and BERT-base's."""

_LENGTH_NOISE = 0.25
"""Spread of a random factor on lengths before they are sorted: without it, a few examples of distinct lengths would
share a batch in every epoch."""


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
class PackedPlan:
    """Examples of consecutive global batches and where their tokens go.

    Attributes:
        rows: int64 `[num_batches, global_batch_size]`: example indexes, or `FILL`; a part's examples are adjacent.
        starts: int32 `[num_batches, global_batch_size]`: where the example's `[CLS]` stands among its part's
            `num_rows x width` positions; 0 for `FILL`.
        shape: The shape of all parts.
        epoch: As in a `BatchPlan`.
    """

    rows: np.ndarray
    starts: np.ndarray
    shape: PackedShape
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, batches: slice) -> PackedPlan:
        """Some of its batches."""
        return dataclasses.replace(self, rows=self.rows[batches], starts=self.starts[batches])


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
    count = len(lengths)
    noisy = np.asarray(lengths, np.float64) * np.exp(rng.normal(0.0, _LENGTH_NOISE, count))
    order = np.argsort(-noisy, kind="stable")
    num_whole = count // global_batch_size
    rows = np.full((steps_per_epoch(count, global_batch_size), global_batch_size), FILL, np.int64)
    rest = count - num_whole * global_batch_size
    if rest:  # The short batch is a sample of all lengths too.
        places = ((np.arange(rest) + rng.random()) * count / rest).astype(np.int64)
        rows[-1, :rest] = order[places]
        order = np.delete(order, places)
    if num_whole:
        batches = _deal(order[None], np.asarray(lengths), num_whole)[0]
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
    parts = _deal_evenly(order, lengths, num_parts)
    longest_first = np.argsort(-_lengths_of(parts, lengths), axis=2, kind="stable")
    return np.take_along_axis(parts, longest_first, axis=2)


def place(lengths: np.ndarray, num_rows: int, width: int) -> np.ndarray | None:
    """Finds a place for every example of every micro-batch by best-fit decreasing; all micro-batches at once.

    Args:
        lengths: int `[num_micro_batches, num_examples]`, each in descending order; 0 for no example.
        num_rows: Rows of a micro-batch.
        width: Tokens of a row.

    Returns:
        int32 `[num_micro_batches, num_examples]`: where each example begins, counted through the rows; 0 for no
        example. None if any example does not fit.
    """
    free = np.full((len(lengths), num_rows), width, np.int32)
    starts = np.zeros(lengths.shape, np.int32)
    every = np.arange(len(lengths))
    for index, length in enumerate(lengths.T):
        left = free - length[:, None]
        row = np.where(left < 0, width + 1, left).argmin(axis=1)
        if (left[every, row] < 0).any():
            return None
        starts[:, index] = np.where(length > 0, row * width + width - free[every, row], 0)
        free[every, row] -= length
    return starts


def choose_shape(parts: Iterator[np.ndarray], lengths: np.ndarray, *, max_width: int) -> tuple[int, int]:
    """The cheapest (rows, width) that holds every micro-batch.

    Args:
        parts: For each epoch, `split_balanced`'s micro-batches.
        lengths: int `[num_examples]`.
        max_width: Widest row allowed; the longest example may be wider.
    """
    epochs = [np.unique(_lengths_of(p, lengths).reshape(-1, p.shape[-1]), axis=0) for p in parts]
    num_examples = epochs[0].shape[1]
    most = max(int(lines.sum(axis=1).max()) for lines in epochs)
    longest = max(int(lines.max()) for lines in epochs)
    widths = np.arange(longest, max(longest, max_width) + 1)
    counts = np.arange(1, num_examples + 1)
    tokens = counts[:, None] * widths[None, :]
    rows_at, widths_at = np.nonzero(tokens >= most)
    cost = tokens[rows_at, widths_at] * (1 + widths[widths_at] * ATTENTION_COST)
    hard: list[np.ndarray] = []  # Micro-batches that did not fit in some shape: tried first in the next.
    for candidate in np.argsort(cost, kind="stable"):
        num_rows, width = int(counts[rows_at[candidate]]), int(widths[widths_at[candidate]])
        if hard and place(np.stack(hard), num_rows, width) is None:
            continue
        misfits = (_first_misfit(lines, num_rows, width) for lines in epochs)
        misfit = next((line for line in misfits if line is not None), None)
        if misfit is None:
            return num_rows, width
        hard.append(misfit)
    raise AssertionError("a row for each example is always enough")


def plan_packed_epoch(
    lengths: np.ndarray, *, global_batch_size: int, seed: int, epoch: int, shape: PackedShape
) -> PackedPlan:
    """Plans one epoch in a shape that `choose_packed_shape` chose for it."""
    rows = balanced_batches(lengths, global_batch_size=global_batch_size, seed=seed, epoch=epoch)
    parts = split_balanced(rows, lengths, shape.num_parts)
    starts = place(_lengths_of(parts, lengths).reshape(-1, shape.num_examples), shape.num_rows, shape.width)
    assert starts is not None, "the shape was chosen to hold this epoch"
    return PackedPlan(rows=parts.reshape(rows.shape), starts=starts.reshape(rows.shape), shape=shape, epoch=epoch)


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
        max_width: Widest row allowed.
    """
    batches = (balanced_batches(lengths, global_batch_size=global_batch_size, seed=seed, epoch=e) for e in epochs)
    parts = (split_balanced(rows, lengths, num_parts) for rows in batches)
    num_rows, width = choose_shape(parts, lengths, max_width=max_width)
    return PackedShape(num_parts=num_parts, num_examples=global_batch_size // num_parts, num_rows=num_rows, width=width)


def _deal(order: np.ndarray, lengths: np.ndarray, num_groups: int) -> np.ndarray:
    """Deals examples, in descending length, to groups: in each round the longest to the group with fewest tokens.

    `order` is int `[decks, num_groups x size]`; the result `[decks, num_groups, size]`.
    """
    decks, count = order.shape
    size = count // num_groups
    out = np.empty((decks, num_groups, size), order.dtype)
    totals = np.zeros((decks, num_groups), np.int64)
    deck = np.arange(decks)[:, None]
    for index in range(size):
        dealt = order[:, index * num_groups : (index + 1) * num_groups]
        tokens = _lengths_of(dealt, lengths)
        by_length = np.argsort(-tokens, axis=1, kind="stable")
        groups = np.argsort(totals, axis=1, kind="stable")
        out[deck, groups, index] = np.take_along_axis(dealt, by_length, axis=1)
        totals[deck, groups] += np.take_along_axis(tokens, by_length, axis=1)
    return out


def _deal_evenly(order: np.ndarray, lengths: np.ndarray, num_groups: int) -> np.ndarray:
    """As `_deal`, but each example goes to the group with fewest tokens that is not full: more even, for few groups."""
    decks, count = order.shape
    size = count // num_groups
    out = np.empty((decks, num_groups, size), order.dtype)
    totals, sizes = np.zeros((decks, num_groups), np.int64), np.zeros((decks, num_groups), np.int64)
    every = np.arange(decks)
    for dealt in order.T:
        group = np.where(sizes < size, totals, np.iinfo(np.int64).max).argmin(axis=1)
        out[every, group, sizes[every, group]] = dealt
        totals[every, group] += _lengths_of(dealt, lengths)
        sizes[every, group] += 1
    return out


def _lengths_of(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.where(rows == FILL, 0, np.asarray(lengths, np.int64)[rows])


def _first_misfit(lines: np.ndarray, num_rows: int, width: int) -> np.ndarray | None:
    """A micro-batch that does not fit, or None."""
    if place(lines, num_rows, width) is not None:
        return None
    while len(lines) > 1:
        half = lines[: len(lines) // 2]
        lines = half if place(half, num_rows, width) is None else lines[len(lines) // 2 :]
    return lines[0]
