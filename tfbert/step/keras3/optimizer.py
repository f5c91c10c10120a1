"""Any optimizer of Keras 3, given the gradients of the global batch: applied on all replicas together, or on none."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfbert.step.keras3.fused import AdamW
from tfbert.step.keras3.private import summed_already


def inner_of(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer that a `LossScaleOptimizer` is around; any other is its own."""
    return optimizer.inner_optimizer if _adapts(optimizer) else optimizer


def unscaled(optimizer: keras.optimizers.Optimizer, grads: list[tf.Tensor]) -> list[tf.Tensor]:
    """Gradients of the loss from gradients of what `optimizer.scale_loss` makes of it."""
    scale = optimizer.dynamic_scale.value if _adapts(optimizer) else optimizer.loss_scale_factor
    return grads if scale is None else [grad / scale for grad in grads]


def _adapts(optimizer: keras.optimizers.Optimizer) -> bool:
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def apply_if_finite(
    optimizer: keras.optimizers.Optimizer,
    grads: list[tf.Tensor],
    variables: list[keras.Variable],
    factor: tf.Tensor,
    is_finite: tf.Tensor,
) -> None:
    """One update with `gradient x factor`, or none if the gradients are not finite; `iterations` counts either.

    Call it in a replica context, with values that are equal on all replicas. A `LossScaleOptimizer` adapts its scale.

    Args:
        optimizer: Built for these variables, and perhaps others.
        grads: float32, summed over replicas, unscaled.
        variables: What to update.
        factor: float32 `[]`, for clipping.
        is_finite: bool `[]`.
    """
    inner = inner_of(optimizer)

    def apply(grads: list[tf.Tensor], factor: tf.Tensor) -> None:
        clipped = [grad * factor for grad in grads]
        if inner is optimizer:
            optimizer.apply_gradients(list(zip(clipped, variables, strict=True)))
        else:  # As LossScaleOptimizer does.
            inner.apply(clipped, variables)

    def fused(strategy, grads, factor, is_finite):
        # Skipping and clipping are parts of the update: no branch, and no pass of their own.
        factor, is_finite = (strategy.experimental_local_results(each)[0] for each in (factor, is_finite))
        with summed_already(inner), inner.given(factor, is_finite):
            strategy.extended.call_for_each_replica(
                lambda grads: optimizer.apply_gradients(list(zip(grads, variables, strict=True))), args=(grads,)
            )

    # An update meets the other replicas. TensorFlow allows that in no branch of a replica: branch first, then fan out.
    def meet(strategy, grads, factor, is_finite):
        def step() -> tf.Tensor:
            with summed_already(inner):
                strategy.extended.call_for_each_replica(apply, args=(grads, factor))
            if _adapts(optimizer):
                _grow(optimizer)
            return tf.constant(0)

        def skip() -> tf.Tensor:
            inner.iterations.assign_add(1)
            if _adapts(optimizer):
                scale = optimizer.dynamic_scale.value
                # As tf_keras does, not below 1; Keras 3 goes on towards 0, from where it takes long to come back.
                optimizer.dynamic_scale.assign(tf.minimum(scale, tf.maximum(scale * 0.5, 1.0)))
                optimizer.step_counter.assign(0)
            return tf.constant(0)

        tf.cond(strategy.experimental_local_results(is_finite)[0], step, skip)

    is_fused = isinstance(optimizer, AdamW) and not optimizer.changes_gradients
    tf.distribute.get_replica_context().merge_call(fused if is_fused else meet, args=(grads, factor, is_finite))


def _grow(optimizer: keras.optimizers.LossScaleOptimizer) -> None:
    count, scale = optimizer.step_counter.value, optimizer.dynamic_scale.value
    is_due = tf.equal(count, optimizer.dynamic_growth_steps - 1)
    before = tf.identity(count), tf.identity(scale)
    doubled = before[1] * 2.0  # Infinite at last where nothing overflows, from where no update would be finite.
    optimizer.dynamic_scale.assign(tf.where(is_due & tf.math.is_finite(doubled), doubled, before[1]))
    optimizer.step_counter.assign(tf.where(is_due, tf.zeros_like(before[0]), before[0] + 1))
