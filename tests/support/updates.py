"""Updates of a compiled FineTuner, to be compared with those of one big batch."""

import keras
import numpy as np
import tensorflow as tf

from tests.support.models import random_batch, strategy_of
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.step.keras3.fused import LAMB, AdamW
from tfbert.step.updates import NO_DECAY

RATE, DECAY, CLIP = 1e-2, 0.1, 0.5

# AdamW divides a gradient by its own size, so with the usual 1e-8 it would blow up the rounding noise of gradients that
# are 0 in exact arithmetic (attention's key bias) to full updates, and no two summation orders could agree.
EPSILON = 1e-3

TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 2e-2, "mixed_float16": 3e-3}


def batches(steps=3, rows=16):
    """Three whole global batches, then a ragged one: 11 rows filled up to 16 with weight 0."""
    out = [random_batch(rows, seed=step) for step in range(steps)]
    return out + [random_batch(rows, seed=99, weights=[1.0] * 11 + [0.0] * 5)]


def concatenated(global_batches):
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *global_batches)


def build(make_model, *, replicas=1, policy="float32", optimizer=None, loss=None, loss_weights=None, **options):
    """A compiled FineTuner in the scope of its strategy."""
    keras.config.set_dtype_policy(policy)
    with strategy_of(replicas).scope():
        model = FineTuner(make_model(), **options)
        loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=optimizer() if optimizer else fused(), loss=loss, loss_weights=loss_weights)
    return model


def fused():
    return AdamW(RATE, DECAY, epsilon=EPSILON, no_decay=NO_DECAY)


def lamb():
    return LAMB(RATE, DECAY, epsilon=EPSILON, no_decay=NO_DECAY)


def assert_equal_weights(model, expected, tolerance):
    for variable, value in zip(model.model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, atol=tolerance, rtol=0, err_msg=variable.path)
