"""The plans of a run and their shapes, according to `--batching`: decided once, from lengths alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from tfbert.batches.packing import PackedPlan, PackedShape, choose_packed_shape, plan_packed_epoch
from tfbert.batches.plan import FILL, BatchPlan, exact_widths, few_widths, plan_epoch, steps_per_epoch
from tfbert.batches.pools import plan_pools
from tfbert.config.counted import counted
from tfbert.config.run import Config
from tfbert.corpus.records import RecordLengths
from tfbert.errors import UsageError

_MOST_PACKED = 20_000_000
"""The most records times epochs that are packed: all are placed in rows before the first update, in some minutes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedBatching:
    """How a run's examples become batches.

    Attributes:
        plans: `(epoch, batches done) ->` the plans of the rest of that epoch.
        shape: The shape of packed plans; None for plans that are not packed.
        largest: A plan of one batch of the largest shape that the run computes.
        description: The batches in words, for the log.
    """

    plans: Callable[[int, int], Iterator[BatchPlan | PackedPlan]]
    shape: PackedShape | None
    largest: BatchPlan | PackedPlan
    description: str


def resolve_batching(
    config: Config, lengths: np.ndarray | RecordLengths, size: int, *, epochs: int, num_parts: int
) -> ResolvedBatching:
    """Settles the plans of a run.

    Args:
        config: Batching, seed, XLA.
        lengths: int `[num_examples]`, tokens of each example; `[num_examples, sequences]` for examples of several
            sequences, 0 where there is none. Those of records are planned pool by pool.
        size: Rows of a global batch.
        epochs: Number of epochs of the run; part of an epoch counts as one.
        num_parts: Replicas x gradient accumulation steps.

    Raises:
        UsageError: for more records than can be packed.
    """
    if config.data.batching == "packed":
        return _packed(config, lengths, size, epochs, num_parts)
    if isinstance(lengths, RecordLengths):
        return _pooled(config, lengths, size)
    return _one_a_row(config, lengths, size)


def _one_a_row(config: Config, lengths: np.ndarray, size: int) -> ResolvedBatching:
    tokens, sequences = lengths.sum(), 1
    if lengths.ndim == 2:  # Each in a row of its own, all of one width.
        sequences, lengths = lengths.shape[1], lengths.max(axis=1)

    def plan(epoch: int, widths: np.ndarray) -> BatchPlan:
        return plan_epoch(
            lengths,
            global_batch_size=size,
            seed=config.runtime.seed,
            epoch=epoch,
            group_by_length=config.data.batching == "length_grouped",
            allowed_widths=widths,
        )

    def real_tokens(widths: np.ndarray) -> float:
        return tokens / (plan(0, widths).widths.sum(dtype=np.int64) * size * sequences)

    # The first epoch's batches stand for those of all epochs: their longest examples decide the widths.
    widths, description = _widths(config, exact_widths(lengths), lambda exact: plan(0, exact).widths, real_tokens)
    first = plan(0, widths)
    widest = int(first.widths.argmax())
    return ResolvedBatching(
        plans=lambda epoch, done: iter([plan(epoch, widths).part(slice(done, None))]),
        shape=None,
        largest=first.part(slice(widest, widest + 1)),
        description=description,
    )


def _pooled(config: Config, lengths: RecordLengths, size: int) -> ResolvedBatching:
    def plans(epoch: int, done: int, widths: np.ndarray) -> Iterator[BatchPlan]:
        return plan_pools(
            lengths,
            global_batch_size=size,
            seed=config.runtime.seed,
            epoch=epoch,
            group_by_length=config.data.batching == "length_grouped",
            allowed_widths=widths,
            first_batch=done,
        )

    def first_pool(widths: np.ndarray) -> BatchPlan:
        return next(plans(0, 0, widths))

    def real_tokens(widths: np.ndarray) -> float:
        plan = first_pool(widths)
        real = plan.rows != FILL
        return lengths[plan.rows[real]].sum() / (plan.widths.sum(dtype=np.int64) * size)

    longest = lengths.max()
    # The first pool stands for all pools; the longest record may be in another one.
    widths, description = _widths(
        config, np.arange(1, longest + 1), lambda exact: np.append(first_pool(exact).widths, longest), real_tokens
    )
    largest = first_pool(widths).part(slice(0, 1))
    return ResolvedBatching(
        plans=lambda epoch, done: plans(epoch, done, widths),
        shape=None,
        largest=dataclasses.replace(largest, widths=widths[-1:].astype(np.int32)),
        description=description,
    )


def _widths(
    config: Config,
    exact: np.ndarray,
    longest_of_batches: Callable[[np.ndarray], np.ndarray],
    real_tokens: Callable[[np.ndarray], float],
) -> tuple[np.ndarray, str]:
    """The widths that batches are padded to, and a description of them.

    Args:
        config: Batching and XLA.
        exact: Every width up to the longest example.
        longest_of_batches: The batches' widths, given the allowed ones.
        real_tokens: The share of positions that hold a token, given the allowed widths.
    """
    if config.data.batching == "padded":
        widths = np.array([config.data.max_seq_length])
        return widths, f"padded to {widths[0]}: {real_tokens(widths):.1%} real tokens"
    if not config.runtime.xla:
        return exact, f"length grouped: {real_tokens(exact):.1%} real tokens"
    widths = few_widths(longest_of_batches(exact), config.runtime.max_compiled_shapes)
    return widths, (
        f"length grouped; XLA compiles {counted(len(widths), 'width')}, {', '.join(map(str, widths))}: "
        f"{real_tokens(widths):.1%} real tokens ({real_tokens(exact):.1%} without that limit)"
    )


def _packed(
    config: Config, lengths: np.ndarray | RecordLengths, size: int, epochs: int, num_parts: int
) -> ResolvedBatching:
    if isinstance(lengths, RecordLengths):
        if len(lengths) * epochs > _MOST_PACKED:
            raise UsageError(
                f"Packing plans all epochs before the first update, for at most {_MOST_PACKED:,} records in all. "
                f"Received: batching='packed' with {len(lengths):,} records and {counted(epochs, 'epoch')}. "
                "Pass --batching=length_grouped."
            )
        lengths = np.asarray(lengths)
    if lengths.ndim == 2:  # All sequences of an example stand in one row, one after the other.
        lengths = lengths.sum(axis=1)
    seed = config.runtime.seed
    shape = choose_packed_shape(
        lengths,
        global_batch_size=size,
        seed=seed,
        epochs=range(epochs),
        num_parts=num_parts,
        max_width=config.data.max_seq_length,
    )
    share = lengths.sum() / (steps_per_epoch(len(lengths), size) * shape.num_tokens)
    description = (
        f"packed: {counted(shape.num_examples, 'example')} of a micro-batch in {counted(shape.num_rows, 'row')} of "
        f"{shape.width} tokens: {share:.1%} real tokens"
    )

    def plan(epoch: int) -> PackedPlan:
        return plan_packed_epoch(lengths, global_batch_size=size, seed=seed, epoch=epoch, shape=shape)

    return ResolvedBatching(
        plans=lambda epoch, done: iter([plan(epoch).part(slice(done, None))]),
        shape=shape,
        largest=plan(0).part(slice(0, 1)),
        description=description,
    )
