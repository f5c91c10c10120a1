"""What layers keep from one call to the next, besides weights that are trained: metrics, counts, running averages.

A step may call a model several times, once for each micro-batch, and on several replicas. Where a layer's own state
would then differ from that of one call with the whole batch, the layer is refused. BatchNormalization's averages are
the exception that every framework makes: they follow the parts that a batch is split into.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
import tf_keras as keras

from tfbert.private import is_generator_state, layers_of, metrics_within, variables_written

_NORMALIZATION = keras.layers.BatchNormalization.__base__  # The older classes', too.
_ONCE = (tf.VariableAggregation.MEAN, tf.VariableAggregation.ONLY_FIRST_REPLICA)


def averages_of(model: keras.Model) -> list[tf.Variable]:
    """What layers change in the forward pass, each replica its own, such as BatchNormalization's moving mean."""
    # Not every weight is a variable: those of lookup tables are not.
    own = tf.VariableSynchronization.ON_READ
    return [v for v in model.non_trainable_variables if getattr(v, "synchronization", None) == own]


def check_recurrent(model: keras.Model, num_micro_batches: int) -> None:
    """Raises ValueError for stateful recurrent layers in a batch of several parts."""
    num_parts = num_micro_batches * tf.distribute.get_strategy().num_replicas_in_sync
    for layer in layers_of(model):
        if num_parts > 1 and isinstance(layer, keras.layers.RNN) and layer.stateful:
            raise ValueError(
                "A stateful layer carries each row's state on to the same row of the next batch. "
                f"Received: layer {layer.name!r} with stateful=True and a batch in {num_parts} parts. "
                "Set stateful=False, or train with gradient_accumulation_steps=1 on one replica."
            )


@contextlib.contextmanager
def kept_once(model: keras.Model, num_micro_batches: int = 1) -> Iterator[None]:
    """Around a call of a model that is being traced: raises ValueError if it keeps state that depends on the split.

    Args:
        model: What is called.
        num_micro_batches: How often a step calls it, on each replica.
    """
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    first = 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())
    if num_micro_batches * num_replicas == 1:
        yield
        return
    split = f"gradient_accumulation_steps={num_micro_batches} on {num_replicas} replica(s)"
    try:
        yield
    except (RuntimeError, ValueError) as error:
        _check_metrics(model, split)
        # TensorFlow's words for a variable that is assigned on a replica, or that replicas would have to meet for.
        if "merge_call" in str(error) or "aggregation method" in str(error):
            raise _of_state("a layer that assigns a variable in its call", split) from error
        raise
    _check_metrics(model, split)
    if not tf.executing_eagerly():
        _check_writes(model, first, num_micro_batches, split)


def _check_metrics(model: keras.Model, split: str) -> None:
    for metric in metrics_within(model):
        raise ValueError(
            "A layer's own metric is updated for each part of a batch, of whatever size. "
            f"Received: metric {metric.name!r} of a layer (add_metric, or a Metric as an attribute), {split}. "
            "Pass it to FineTuner.compile(metrics=...), of an output of the model, or train in one part."
        )


def _check_writes(model: keras.Model, first: int, num_micro_batches: int, split: str) -> None:
    layers = [each for each in layers_of(model) if isinstance(each, _NORMALIZATION)]
    allowed = [v for each in layers for v in (each.moving_mean, each.moving_variance) if v is not None]
    for variable in variables_written(tf.compat.v1.get_default_graph(), first, model.variables, apart_from=allowed):
        if variable is None:
            raise _of_state("a call that assigns a variable which no layer holds", split)
        is_shared = variable.synchronization == tf.VariableSynchronization.ON_READ and variable.aggregation in _ONCE
        if is_generator_state(variable) or (num_micro_batches == 1 and is_shared):
            continue
        raise _of_state(f"a layer that assigns {variable.name!r} in its call", split)


def _of_state(what: str, split: str) -> ValueError:
    return ValueError(
        "A layer's own state must change once in a step, whatever the split. "
        f"Received: {what}, {split}. "
        "Count steps by optimizer.iterations, or train with gradient_accumulation_steps=1 on one replica."
    )
