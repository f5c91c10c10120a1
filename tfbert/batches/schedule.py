"""Durations, converted once into updates; the plans of all epochs of a run, and their shapes, by `--batching`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np

from tfbert.batches.plan import (
    FILL,
    BatchPlan,
    PackedShape,
    batch_rows,
    choose_packed_shape,
    few_widths,
    micro_batch_size,
    plan_epoch,
    plan_packed_epoch,
    plan_pools,
    steps_per_epoch,
)
from tfbert.config.run import Config
from tfbert.config.training import TrainingConfig
from tfbert.config.types import counted
from tfbert.corpus.records import RecordLengths
from tfbert.errors import UsageError
from tfbert.measure import ANY_LENGTH, Work

_MOST_PACKED = 20_000_000
"""The most records times epochs that are packed: all are placed in rows before the first update, in some minutes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A run in updates.

    Attributes:
        steps_per_epoch: Updates that visit every example once.
        total_steps: Updates of the whole run.
        warmup_steps: Updates during which the learning rate rises.
        eval_steps: Evaluate after every this many, and at the end.
        logging_steps: Log after every this many, and at the end.
        first_step: Updates made by earlier starts of the run.
    """

    steps_per_epoch: int
    total_steps: int
    warmup_steps: int
    eval_steps: int
    logging_steps: int
    first_step: int = 0

    def epoch_at(self, step: int) -> float:
        """Passes over the data after `step` updates."""
        return round(step / self.steps_per_epoch, 4)

    def is_due(self, step: int, every: int) -> bool:
        """Whether something that is done every `every` updates, and at the end, is due at this one."""
        return step % every == 0 or step == self.total_steps


def plan_run(config: Config, num_examples: int) -> Schedule:
    """Every duration of the run in updates.

    Raises:
        UsageError: for updates to profile that the run does not have.
    """
    epoch = steps_per_epoch(num_examples, config.training.global_batch_size)
    limits = [config.training.max_steps] if config.training.max_steps else []
    if config.training.num_train_epochs:
        limits.append(max(1, round(epoch * config.training.num_train_epochs)))
    total = min(limits)
    profiled = config.output.profile_steps
    if profiled and profiled[1] > total:
        rule = f"profile_steps must lie within the run's {total} updates"
        received = f"profile_steps={','.join(map(str, profiled))}"
        raise UsageError(f"{rule}. Received: {received}. Pass earlier ones, or train longer.")
    return Schedule(
        steps_per_epoch=epoch,
        total_steps=total,
        warmup_steps=warmup_steps(config.training, total),
        eval_steps=config.output.eval_steps or epoch,
        logging_steps=config.output.logging_steps,
    )


def warmup_steps(config: TrainingConfig, total_steps: int) -> int:
    """The warm-up in updates: the number given, or the given share of all updates."""
    return config.warmup_steps or math.ceil(config.warmup_ratio * total_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingBatches:
    """How a run's training examples become batches.

    Attributes:
        plans: Each call gives the plans of all epochs, from the first update that is still to be made.
        shape: The shape of packed plans; None for plans that are not packed.
        rows: Examples of a global batch, and places that only fill it; fewer than asked for if the data holds fewer.
        largest: A plan of one batch of the largest shape that the run computes.
        description: The batches in words, for the log.
    """

    plans: Callable[[], Iterator[BatchPlan]]
    shape: PackedShape | None
    rows: int
    largest: BatchPlan
    description: str


def training_batches(
    config: Config, lengths: np.ndarray | RecordLengths, schedule: Schedule, *, num_replicas: int
) -> TrainingBatches:
    """Settles the batches of a run.

    Args:
        config: Batching, seed, batch size, XLA.
        lengths: int `[num_examples]`, tokens of each training example, in all its windows; `[num_examples, sequences]`
            for examples of several other sequences, 0 where there is none. Those of records are planned pool by pool.
        schedule: The run in updates.
        num_replicas: Replicas of all workers together. Only the shape of packed batches depends on it and on the
            micro-batches, never which examples a batch holds.

    Raises:
        UsageError: if the global batch does not split evenly, or for more records than can be packed.
    """
    training = config.training
    micro_batch_size(training.global_batch_size, num_replicas, training.gradient_accumulation_steps)
    parts = num_replicas * training.gradient_accumulation_steps
    rows = batch_rows(training.global_batch_size, len(lengths), parts)
    if config.data.batching == "packed":
        epochs = -(-schedule.total_steps // schedule.steps_per_epoch)
        plans_of, largest, description = _packed(config, lengths, rows, epochs, parts)
    else:
        plans_of, largest, description = _one_a_row(config, lengths, rows)

    def plans() -> Iterator[BatchPlan]:
        step = schedule.first_step
        while step < schedule.total_steps:
            for plan in plans_of(*divmod(step, schedule.steps_per_epoch)):
                yield plan
                step += len(plan)
                if step >= schedule.total_steps:
                    return

    return TrainingBatches(plans=plans, shape=largest.shape, rows=rows, largest=largest, description=description)


_Settled = tuple[Callable[[int, int], Iterator[BatchPlan]], BatchPlan, str]
"""`(epoch, batches done) ->` the plans of the rest of that epoch; and the last two of `TrainingBatches`."""


def _one_a_row(config: Config, lengths: np.ndarray | RecordLengths, size: int) -> _Settled:
    is_grouped = config.data.batching == "length_grouped"
    options = {"global_batch_size": size, "seed": config.runtime.seed, "group_by_length": is_grouped}
    in_pools = isinstance(lengths, RecordLengths)
    # Of an example of several sequences, each is in a row of its own, all of one width.
    sequences = 1 if in_pools or lengths.ndim == 1 else lengths.shape[1]
    longest_of = lengths if sequences == 1 else lengths.max(axis=1)

    def plans(epoch: int, done: int, widths: np.ndarray) -> Iterator[BatchPlan]:
        if in_pools:
            return plan_pools(lengths, epoch=epoch, allowed_widths=widths, first_batch=done, **options)
        return iter([plan_epoch(longest_of, epoch=epoch, allowed_widths=widths, **options).part(slice(done, None))])

    def first(widths: np.ndarray) -> BatchPlan:  # The first epoch, or its first pool, stands for the whole run.
        return next(plans(0, 0, widths))

    def real_tokens(widths: np.ndarray) -> float:
        plan = first(widths)
        return lengths[plan.rows[plan.rows != FILL]].sum() / (plan.widths.sum(dtype=np.int64) * size * sequences)

    longest = max(1, int(longest_of.max()))
    exact = np.arange(1, longest + 1)
    if not is_grouped:
        widths = np.array([max(config.data.max_seq_length, longest)])  # A text in windows has more tokens.
        description = f"padded to {widths[0]}: {real_tokens(widths):.1%} real tokens"
    elif not config.runtime.xla:
        widths, description = exact, f"length grouped: {real_tokens(exact):.1%} real tokens"
    else:
        found = first(exact).widths  # Their longest examples decide the widths.
        if in_pools:
            found = np.append(found, longest)  # The longest record may be in another pool.
        widths = few_widths(found, config.runtime.max_compiled_shapes)
        description = (
            f"length grouped; XLA compiles {counted(len(widths), 'width')}, {', '.join(map(str, widths))}: "
            f"{real_tokens(widths):.1%} real tokens ({real_tokens(exact):.1%} without that limit)"
        )
    whole = first(widths)
    widest = int(whole.widths.argmax())
    largest = dataclasses.replace(whole.part(slice(widest, widest + 1)), widths=widths[-1:].astype(np.int32))
    return lambda epoch, done: plans(epoch, done, widths), largest, description


def _packed(config: Config, lengths: np.ndarray | RecordLengths, size: int, epochs: int, num_parts: int) -> _Settled:
    if isinstance(lengths, RecordLengths):
        if len(lengths) * epochs > _MOST_PACKED:
            rule = f"Packing plans all epochs before the first update, for at most {_MOST_PACKED:,} records in all"
            received = f"batching='packed' with {len(lengths):,} records and {counted(epochs, 'epoch')}"
            raise UsageError(f"{rule}. Received: {received}. Pass --batching=length_grouped.")
        lengths = np.asarray(lengths)
    if lengths.ndim == 2:  # All sequences of an example stand in one row, one after the other.
        lengths = lengths.sum(axis=1)
    options, width = {"global_batch_size": size, "seed": config.runtime.seed}, config.data.max_seq_length
    shape = choose_packed_shape(lengths, **options, epochs=range(epochs), num_parts=num_parts, max_width=width)
    share = lengths.sum() / (steps_per_epoch(len(lengths), size) * shape.num_tokens)
    description = (
        f"packed: {counted(shape.num_examples, 'example')} of a micro-batch in {counted(shape.num_rows, 'row')} of "
        f"{shape.width} tokens: {share:.1%} real tokens"
    )

    def plan(epoch: int) -> BatchPlan:
        return plan_packed_epoch(lengths, **options, epoch=epoch, shape=shape)

    return lambda epoch, done: iter([plan(epoch).part(slice(done, None))]), plan(0).part(slice(0, 1)), description


def planned_steps(
    plans: Iterator[BatchPlan], lengths: np.ndarray | RecordLengths, longest: int = ANY_LENGTH
) -> Iterator[tuple[Work, int]]:
    """What each update of the plans holds, and its width; computed only as far as it is read.

    Args:
        plans: As `TrainingBatches.plans` gives them.
        lengths: As for `training_batches`.
        longest: The most tokens of a window.
    """
    for plan in plans:
        for rows, width in zip(plan.rows, plan.widths.tolist(), strict=True):
            yield Work.of(lengths[rows[rows != FILL]], longest), width
