"""What a run counts on the device, so that the host never waits for a number that nothing reads."""

from __future__ import annotations

import tensorflow as tf


class StepCounters:
    """What a run counts on the device, so that only reading a counter makes the host wait.

    Attributes:
        loss_sum: float64 `[]`: sum of the losses of all steps whose gradients were finite.
        finite_steps: int64 `[]`: how many those are.
        skipped_steps: int64 `[]`: steps whose gradients were not finite.
        skipped_in_a_row: int64 `[]`: such steps since the last finite one.
        gradient_norm: float32 `[]`: global norm of the last step's gradient, before clipping.
        evaluated: int64 `[]`: batches that were evaluated.
    """

    def __init__(self):
        def counter(dtype: tf.DType, name: str) -> tf.Variable:
            once = tf.VariableAggregation.ONLY_FIRST_REPLICA
            return tf.Variable(0, dtype=dtype, trainable=False, aggregation=once, name=name)

        self.loss_sum = counter(tf.float64, "loss_sum")
        self.finite_steps = counter(tf.int64, "finite_steps")
        self.skipped_steps = counter(tf.int64, "skipped_steps")
        self.skipped_in_a_row = counter(tf.int64, "skipped_in_a_row")
        self.gradient_norm = counter(tf.float32, "gradient_norm")
        self.evaluated = counter(tf.int64, "evaluated")

    def steps(self) -> tf.Tensor:
        """All of them, int64 `[]`."""
        return self.finite_steps + self.skipped_steps

    def update(self, loss: tf.Tensor, norm: tf.Tensor, is_finite: tf.Tensor) -> None:
        """Counts a step; the arguments are equal on all replicas."""
        one = tf.cast(is_finite, tf.int64)
        self.loss_sum.assign_add(tf.where(is_finite, tf.cast(loss, tf.float64), 0.0))
        self.finite_steps.assign_add(one)
        self.skipped_steps.assign_add(1 - one)
        self.skipped_in_a_row.assign((self.skipped_in_a_row + 1) * (1 - one))
        self.gradient_norm.assign(norm)
