"""Durations, converted once into updates; the plans of all epochs of a run, and the shapes they come in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np

from tfbert.batches.packing import PackedPlan, PackedShape, choose_packed_shape, plan_packed_epoch
from tfbert.batches.plan import (
    FILL,
    BatchPlan,
    batch_rows,
    exact_widths,
    few_widths,
    micro_batch_size,
    plan_epoch,
    steps_per_epoch,
)
from tfbert.config.run import Config, TrainingConfig
from tfbert.errors import UsageError
from tfbert.measure.flops import Work
from tfbert.measure.step_clock import PlannedStep


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A run in updates.

    Attributes:
        steps_per_epoch: Updates that visit every example once.
        total_steps: Updates of the whole run.
        eval_steps: Evaluate after every this many, and at the end.
        logging_steps: Log after every this many, and at the end.
        first_step: Updates made by earlier starts of the run.
    """

    steps_per_epoch: int
    total_steps: int
    eval_steps: int
    logging_steps: int
    first_step: int = 0

    def epoch_at(self, step: int) -> float:
        """Passes over the data after `step` updates."""
        return round(step / self.steps_per_epoch, 4)

    def is_due(self, step: int, every: int) -> bool:
        """Whether something done every so many updates falls on this one."""
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
        raise UsageError(
            f"profile_steps must lie within the run's {total} updates. "
            f"Received: profile_steps={','.join(map(str, profiled))}. Pass earlier ones, or train longer."
        )
    return Schedule(
        steps_per_epoch=epoch,
        total_steps=total,
        eval_steps=config.output.eval_steps or epoch,
        logging_steps=config.output.logging_steps,
    )


def warmup_steps(config: TrainingConfig, total_steps: int) -> int:
    """The warm-up in updates: as given, or the given share of all updates."""
    return config.warmup_steps or math.ceil(config.warmup_ratio * total_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingBatches:
    """How a run's training examples become batches.

    Attributes:
        plans: Gives the plans of all epochs anew, from the first update that is still to be made.
        shape: The shape of packed plans; None for plans that are not packed.
        rows: Examples of a global batch, and places that only fill it; fewer than asked for where the data holds fewer.
        largest: A plan of one batch of the largest shape that the run computes.
        description: What they are, for the log.
    """

    plans: Callable[[], Iterator[BatchPlan | PackedPlan]]
    shape: PackedShape | None
    rows: int
    largest: BatchPlan | PackedPlan
    description: str


def training_batches(config: Config, lengths: np.ndarray, schedule: Schedule, *, num_replicas: int) -> TrainingBatches:
    """Settles the batches of a run.

    Args:
        config: Batching, seed, batch size, XLA.
        lengths: int `[num_examples]`, tokens of each training example.
        schedule: The run in updates.
        num_replicas: Those of all workers. Only the shape of packed batches depends on it and on the micro-batches,
            never which examples they hold.

    Raises:
        UsageError: if the global batch does not split evenly.
    """
    accumulation = config.training.gradient_accumulation_steps
    micro_batch_size(config.training.global_batch_size, num_replicas, accumulation)
    parts = num_replicas * accumulation
    rows = batch_rows(config.training.global_batch_size, len(lengths), parts)
    settle = _packed if config.data.batching == "packed" else _one_a_row
    plan, shape, description = settle(config, lengths, schedule, rows, parts)

    def plans() -> Iterator[BatchPlan | PackedPlan]:
        step = schedule.first_step
        while step < schedule.total_steps:
            epoch, done = divmod(step, schedule.steps_per_epoch)
            rest = plan(epoch).part(slice(done, None))
            yield rest
            step += len(rest)

    first = plan(0)
    widest = 0 if shape else int(first.widths.argmax())
    return TrainingBatches(
        plans=plans, shape=shape, rows=rows, largest=first.part(slice(widest, widest + 1)), description=description
    )


def planned_steps(plans: Iterator[BatchPlan | PackedPlan], lengths: np.ndarray) -> Iterator[PlannedStep]:
    """What each update of the plans holds, made as far as it is read.

    Args:
        plans: As `TrainingBatches.plans` gives them.
        lengths: int `[num_examples]`, tokens of each training example.
    """
    for plan in plans:
        real = plan.rows != FILL
        tokens = np.where(real, np.asarray(lengths, np.int64)[plan.rows], 0)
        # All packed batches have one shape.
        widths = plan.widths if isinstance(plan, BatchPlan) else np.full(len(plan), plan.shape.width)
        columns = (real.sum(axis=1), tokens.sum(axis=1), (tokens**2).sum(axis=1), widths)
        for examples, total, squared, width in zip(*(column.tolist() for column in columns), strict=True):
            work = Work(examples=examples, tokens=total, squared_tokens=squared)
            yield PlannedStep(work=work, width=width)


_Settled = tuple[Callable[[int], BatchPlan | PackedPlan], PackedShape | None, str]


def _one_a_row(config: Config, lengths: np.ndarray, schedule: Schedule, size: int, num_parts: int) -> _Settled:
    is_grouped = config.data.batching == "length_grouped"

    def plan(epoch: int, widths: np.ndarray) -> BatchPlan:
        return plan_epoch(
            lengths,
            global_batch_size=size,
            seed=config.runtime.seed,
            epoch=epoch,
            group_by_length=is_grouped,
            allowed_widths=widths,
        )

    def real_tokens(widths: np.ndarray) -> str:
        return f"{lengths.sum() / (plan(0, widths).widths.sum(dtype=np.int64) * size):.1%} real tokens"

    if not is_grouped:
        widths = np.array([config.data.max_seq_length])
        description = f"padded to {widths[0]}: {real_tokens(widths)}"
    elif not config.runtime.xla:
        widths = exact_widths(lengths)
        description = f"length grouped: {real_tokens(widths)}"
    else:
        exact = exact_widths(lengths)
        # The first epoch's batches stand for those of all: their longest examples are what is padded to a width.
        widths = few_widths(plan(0, exact).widths, config.runtime.max_compiled_shapes)
        description = (
            f"length grouped; XLA compiles {_count(len(widths), 'width')}, {', '.join(map(str, widths))}: "
            f"{real_tokens(widths)} ({real_tokens(exact).split()[0]} without that limit)"
        )
    return lambda epoch: plan(epoch, widths), None, description


def _packed(config: Config, lengths: np.ndarray, schedule: Schedule, size: int, num_parts: int) -> _Settled:
    seed = config.runtime.seed
    shape = choose_packed_shape(
        lengths,
        global_batch_size=size,
        seed=seed,
        epochs=range(-(-schedule.total_steps // schedule.steps_per_epoch)),
        num_parts=num_parts,
        max_width=config.data.max_seq_length,
    )
    share = lengths.sum() / (schedule.steps_per_epoch * shape.num_tokens)
    description = (
        f"packed: {_count(shape.num_examples, 'example')} of a micro-batch in {_count(shape.num_rows, 'row')} of "
        f"{shape.width} tokens: {share:.1%} real tokens"
    )

    def plan(epoch: int) -> PackedPlan:
        return plan_packed_epoch(lengths, global_batch_size=size, seed=seed, epoch=epoch, shape=shape)

    return plan, shape, description


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
