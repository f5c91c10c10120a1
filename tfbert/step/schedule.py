"""The learning rate of each update, whichever Keras the schedule is of."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

_AFTER_WARM_UP: dict[str, Callable[[tf.Tensor, float], tf.Tensor]] = {
    "linear": lambda done, power: 1 - done,
    "cosine": lambda done, power: 0.5 * (1 + tf.cos(math.pi * done)),
    "polynomial": lambda done, power: tf.pow(1 - done, power),
    "constant": lambda done, power: tf.ones([]),
}
"""The share of the peak rate, from the share of the updates after the warm-up that are done and the power."""


class Warmup:
    """A linear rise from 0, then a linear, cosine or polynomial fall to 0 at `total_steps`, or a constant rate.

    The first update has rate `peak / (warmup_steps + 1)` and the last one the rate one step above 0: no update is
    wasted on a rate of 0.

    Args:
        peak: The highest rate.
        schedule: `linear`, `cosine`, `polynomial` or `constant`.
        warmup_steps: Updates during which the rate rises.
        total_steps: Updates of the whole run.
        power: For a polynomial fall: the rate is the peak times (share of the fall still to come) to this power.
        from_zero: Whether a warm-up begins with an update of rate 0, as transformers' `create_optimizer` has it.

    Raises:
        ValueError: for a schedule of another name, or numbers that are none of updates.
    """

    def __init__(
        self,
        *,
        peak: float,
        schedule: str,
        warmup_steps: int,
        total_steps: int,
        power: float = 1.0,
        from_zero: bool = False,
    ):
        if schedule not in _AFTER_WARM_UP:
            raise ValueError(
                f"A schedule is one of {', '.join(_AFTER_WARM_UP)}. Received: schedule={schedule!r}. Pass one of them."
            )
        if warmup_steps < 0 or total_steps < 1:
            raise ValueError(
                "A run has an update or more, and its warm-up none or more. "
                f"Received: warmup_steps={warmup_steps}, total_steps={total_steps}. Pass larger numbers."
            )
        self.peak, self.schedule, self.warmup_steps, self.total_steps = peak, schedule, warmup_steps, total_steps
        self.power, self.from_zero = power, from_zero

    def __call__(self, step: tf.Tensor | None = None) -> tf.Tensor:
        """The rate of the update after `step` updates: float32 `[]`."""
        if step is None:
            raise ValueError(
                f"{type(self).__name__} is a schedule of Keras 3. Received: a call without a step, as tf_keras's "
                "optimizers make. Use tf_keras.optimizers.schedules, or a model and an optimizer of keras."
            )
        step = tf.cast(step, tf.float32)
        first = 0 if self.from_zero else 1
        rising = (step + first) / max(1, self.warmup_steps + first)
        done = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        done = tf.clip_by_value(done, 0.0, 1.0)
        falling = _AFTER_WARM_UP[self.schedule](done, self.power)
        return self.peak * tf.where(step < self.warmup_steps, rising, falling)

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {
            "peak": self.peak,
            "schedule": self.schedule,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "power": self.power,
            "from_zero": self.from_zero,
        }


def share_at_end(schedule: str, power: float) -> float:
    """The share of the peak rate that a schedule falls to."""
    return float(_AFTER_WARM_UP[schedule](tf.ones([]), power))
