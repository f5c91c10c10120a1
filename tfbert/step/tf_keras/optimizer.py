"""Any optimizer of tf_keras, given the gradients of the global batch: applied on all replicas together, or on none."""

from __future__ import annotations

import inspect
import math

import tensorflow as tf
import tf_keras as keras

from tfbert.step.tf_keras.private import without_aggregation


def scaled(optimizer: keras.optimizers.Optimizer, loss: tf.Tensor) -> tf.Tensor:
    """The loss times the loss scale of a `LossScaleOptimizer`; unchanged for any other optimizer."""
    return optimizer.get_scaled_loss(loss) if _scales(optimizer) else loss


def unscaled(optimizer: keras.optimizers.Optimizer, grads: list[tf.Tensor]) -> list[tf.Tensor]:
    """Gradients of the loss from gradients of the scaled loss."""
    return optimizer.get_unscaled_gradients(grads) if _scales(optimizer) else grads


def _scales(optimizer: keras.optimizers.Optimizer) -> bool:
    return isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer)


def apply_if_finite(
    optimizer: keras.optimizers.Optimizer,
    grads: list[tf.Tensor],
    variables: list[tf.Variable],
    factor: tf.Tensor,
    is_finite: tf.Tensor,
) -> None:
    """One update with `gradient x factor`, or none if the gradients are not finite; `iterations` counts either.

    Call it in a replica context, with values that are equal on all replicas.

    Args:
        optimizer: Any tf_keras optimizer; a dynamic `LossScaleOptimizer` also adapts its scale.
        grads: float32, summed over replicas, unscaled.
        variables: What to update.
        factor: float32 `[]`, for clipping.
        is_finite: bool `[]`.
    """
    if _scales(optimizer) and optimizer.dynamic:
        # It checks for non-finite gradients itself, skips on all replicas together and adapts its scale. A norm may
        # overflow where no gradient does: NaN makes it skip then too.
        factor = tf.where(is_finite, factor, math.nan)
        clipped = [g * factor for g in grads]
        _apply(optimizer, clipped, variables)
        return
    if _scales(optimizer):  # With a fixed scale it would check nothing.
        optimizer = optimizer.inner_optimizer
    with tf.init_scope():
        optimizer.build(variables)

    def apply(grads, factor):
        _apply(optimizer, [g * factor for g in grads], variables)

    def skip():
        optimizer.iterations.assign_add(1, read_value=False)

    # An update meets the other replicas. TensorFlow allows that in no branch of a replica: branch first, then fan out.
    def meet(strategy, grads, factor, is_finite):
        def apply_everywhere():
            strategy.extended.call_for_each_replica(apply, args=(grads, factor))

        decision = strategy.experimental_local_results(is_finite)[0]
        tf.cond(decision, lambda: _nothing(apply_everywhere()), lambda: _nothing(skip()))

    tf.distribute.get_replica_context().merge_call(meet, args=(grads, factor, is_finite))


def _apply(optimizer: keras.optimizers.Optimizer, grads: list[tf.Tensor], variables: list[tf.Variable]) -> None:
    """Calls `apply_gradients`, a user's own included, with gradients that are summed over replicas already.

    Raises:
        ValueError: for an own one that sums them over replicas itself.
    """
    pairs = list(zip(grads, variables, strict=True))
    parameters = inspect.signature(optimizer.apply_gradients).parameters.values()
    if any(p.name == "skip_gradients_aggregation" or p.kind == p.VAR_KEYWORD for p in parameters):
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        with without_aggregation(inner):  # An own one may take the argument, and not pass it on.
            optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        return
    with without_aggregation(optimizer) as asked:
        optimizer.apply_gradients(pairs)
    if not asked and tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise ValueError(
            "FineTuner sums gradients over replicas before apply_gradients. "
            f"Received: optimizer {type(optimizer).__name__}, whose apply_gradients keeps Keras from doing so. "
            "Give it the argument skip_gradients_aggregation, and sum nothing where it is True."
        )


def _nothing(_) -> tf.Tensor:
    """Both branches of a `tf.cond` must return the same."""
    return tf.constant(0)
