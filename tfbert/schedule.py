"""Durations, converted once into updates; and the plans of all epochs of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from tfbert.config import Config
from tfbert.data.plan import FILL, BatchPlan, exact_widths, few_widths, plan_epoch, steps_per_epoch
from tfbert.errors import UsageError
from tfbert.flops import Work
from tfbert.step_clock import PlannedStep

MAX_XLA_WIDTHS = 6
"""Shapes that XLA compiles for, at most."""


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
    total = max(1, round(epoch * config.training.num_train_epochs))
    if config.training.max_steps:
        total = min(total, config.training.max_steps)
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


def training_plans(config: Config, lengths: np.ndarray, schedule: Schedule) -> Callable[[], Iterator[BatchPlan]]:
    """A function that gives the plans of all epochs anew, from the first update that is still to be made.

    Args:
        config: Batching, seed and batch size.
        lengths: int `[num_examples]`, tokens of each training example.
        schedule: The run in updates.
    """
    is_grouped = config.data.batching == "length_grouped"
    if not is_grouped:
        widths = np.array([config.data.max_seq_length])
    elif config.runtime.xla:
        widths = few_widths(lengths, MAX_XLA_WIDTHS)
    else:
        widths = exact_widths(lengths)

    def plans() -> Iterator[BatchPlan]:
        step = schedule.first_step
        while step < schedule.total_steps:
            epoch, done = divmod(step, schedule.steps_per_epoch)
            plan = plan_epoch(
                lengths,
                global_batch_size=config.training.global_batch_size,
                seed=config.runtime.seed,
                epoch=epoch,
                group_by_length=is_grouped,
                allowed_widths=widths,
            )
            yield BatchPlan(rows=plan.rows[done:], widths=plan.widths[done:])
            step += len(plan) - done

    return plans


def planned_steps(plans: Iterator[BatchPlan], lengths: np.ndarray) -> Iterator[PlannedStep]:
    """What each update of the plans holds, made as far as it is read.

    Args:
        plans: As `training_plans` gives them.
        lengths: int `[num_examples]`, tokens of each training example.
    """
    for plan in plans:
        real = plan.rows != FILL
        tokens = np.where(real, np.asarray(lengths, np.int64)[plan.rows], 0)
        columns = (real.sum(axis=1), tokens.sum(axis=1), (tokens**2).sum(axis=1), plan.widths)
        for examples, total, squared, width in zip(*(column.tolist() for column in columns), strict=True):
            work = Work(examples=examples, tokens=total, squared_tokens=squared)
            yield PlannedStep(work=work, width=width)
