"""The project's first promise: the same update however a global batch is split."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.models import NumpyAdamW, random_batch, reference_steps, tiny_bert
from tfbert.finetuner import FineTuner
from tfbert.optimizer import NO_DECAY, FusedAdamW

RATE, DECAY, CLIP = 1e-2, 0.1, 0.5
# AdamW divides a gradient by its own size, so with the usual 1e-8 it would blow up the rounding noise of gradients that
# are 0 in exact arithmetic (attention's key bias) to full updates, and no two summation orders could agree.
EPSILON = 1e-3
TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 2e-2, "mixed_float16": 3e-3}


def make_strategy(name):
    return {
        "one_device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
        "mirrored": lambda: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    }[name]()


def batches(steps=3, rows=16):
    """Three whole global batches, then a ragged one: 11 rows filled up to 16 with weight 0."""
    out = [random_batch(rows, seed=step) for step in range(steps)]
    return out + [random_batch(rows, seed=99, weights=[1.0] * 11 + [0.0] * 5)]


def fit(strategy, global_batches, *, policy="float32", optimizer=None, dropout=0.0, epochs=1, rows=16, **options):
    keras.mixed_precision.set_global_policy(policy)
    columns = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *global_batches)
    dataset = tf.data.Dataset.from_tensor_slices(columns).batch(rows)
    with strategy.scope():
        model = FineTuner(tiny_bert(dropout=dropout), max_grad_norm=CLIP, **options)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=optimizer() if optimizer else fused(), loss=loss)
    history = model.fit(
        strategy.experimental_distribute_dataset(dataset), verbose=0, epochs=epochs, steps_per_epoch=len(global_batches)
    )
    return model, history


def fused():
    optimizer = FusedAdamW(learning_rate=RATE, weight_decay=DECAY, epsilon=EPSILON)
    optimizer.exclude_from_weight_decay(var_names=list(NO_DECAY))
    return optimizer


@pytest.fixture(scope="module")
def reference():
    keras.mixed_precision.set_global_policy("float32")
    return reference_steps(tiny_bert(), batches(), NumpyAdamW(RATE, DECAY, EPSILON), CLIP, NO_DECAY)


@pytest.mark.parametrize("xla", [False, True], ids=["plain", "xla"])
@pytest.mark.parametrize("policy", list(TOLERANCE))
@pytest.mark.parametrize("micro_batches", [1, 2, 4])
@pytest.mark.parametrize("name", ["one_device", "mirrored"])
def test_every_split_gives_the_weights_of_one_big_batch(name, micro_batches, policy, xla, reference):
    model, _ = fit(
        make_strategy(name), batches(), policy=policy, gradient_accumulation_steps=micro_batches, jit_compile=xla
    )
    for variable, expected in zip(model.model.trainable_variables, reference, strict=True):
        np.testing.assert_allclose(variable.numpy(), expected, atol=TOLERANCE[policy], err_msg=variable.name)
