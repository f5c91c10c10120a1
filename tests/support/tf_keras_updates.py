"""Updates of a compiled FineTuner, to be compared with those of one big batch."""

import numpy as np
import tf_keras as keras

from tests.support.models import strategy_of
from tests.support.updates import CLIP, DECAY, EPSILON, RATE, TOLERANCE, batches, concatenated
from tfbert.step.tf_keras.finetuner import FineTuner
from tfbert.step.updates import NO_DECAY

__all__ = ["CLIP", "TOLERANCE", "batches", "concatenated"]


def build(make_model, *, replicas=1, policy="float32", optimizer=None, loss=None, loss_weights=None, **options):
    """A compiled FineTuner in the scope of its strategy."""
    keras.mixed_precision.set_global_policy(policy)
    with strategy_of(replicas).scope():
        model = FineTuner(make_model(), **options)
        loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=optimizer() if optimizer else adamw(), loss=loss, loss_weights=loss_weights)
    return model


def adamw():
    optimizer = keras.optimizers.AdamW(RATE, DECAY, epsilon=EPSILON, jit_compile=False)
    optimizer.exclude_from_weight_decay(var_names=list(NO_DECAY))
    return optimizer


def weights(model):
    return [variable.numpy() for variable in model.model.trainable_variables]


def assert_equal_weights(model, expected, tolerance):
    for variable, value in zip(model.model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, atol=tolerance, rtol=0, err_msg=variable.name)
