"""LAMB in the step: the same update however a batch is split, in every precision; skipped steps; what a step keeps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.models import NumpyLAMB, reference_steps, strategy_of, tiny_bert
from tests.support.updates import (
    CLIP,
    DECAY,
    EPSILON,
    RATE,
    TOLERANCE,
    assert_equal_weights,
    batches,
    build,
    concatenated,
    lamb,
    weights,
)
from tfbert.step.updates import NO_DECAY

GRID = [
    pytest.param(*case, id="-".join(map(str, case)))
    for case in (
        (replicas, micro_batches, policy, xla)
        for replicas in (1, 2)
        for micro_batches in (1, 4)
        for policy in TOLERANCE
        for xla in (False, True)
    )
]


def noisy_bert():
    return tiny_bert(num_hidden_layers=1, dropout=0.2)


@pytest.fixture(scope="module")
def reference():
    keras.config.set_dtype_policy("float32")
    return reference_steps(noisy_bert(), batches(), NumpyLAMB(RATE, DECAY, EPSILON), CLIP, NO_DECAY)


@pytest.mark.slow  # By default, test_optimizer compares LAMB with NumPy, test_finetuner splits with AdamW.
@pytest.mark.parametrize("replicas, micro_batches, policy, xla", GRID)
def test_every_split_gives_the_weights_of_one_big_batch(replicas, micro_batches, policy, xla, reference):
    model = build(
        noisy_bert,
        replicas=replicas,
        policy=policy,
        optimizer=lamb,
        gradient_accumulation_steps=micro_batches,
        max_grad_norm=CLIP,
        jit_compile=xla,
    )
    model.fit(tf.data.Dataset.from_tensor_slices(concatenated(batches())).batch(16), verbose=0)
    assert int(model.counters.skipped_steps.numpy()) == 0
    assert_equal_weights(model, reference, TOLERANCE[policy])
    start = [v.numpy() for v in noisy_bert().trainable_variables]
    moved = [np.abs(one - other).max() for one, other in zip(reference, start, strict=True)]
    assert np.median(moved) > 10 * TOLERANCE["float32"], "the updates must be larger than what is allowed to differ"


def dense():
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Input([5]), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)]
    return keras.Sequential(layers)


@pytest.mark.slow
@pytest.mark.parametrize("replicas, micro_batches", [(1, 1), (2, 2)])
def test_a_float16_step_that_is_not_finite_is_skipped_everywhere(replicas, micro_batches):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, 5)).astype(np.float32), rng.integers(0, 3, 16).astype(np.int32)
    options = {"replicas": replicas, "policy": "mixed_float16", "optimizer": lamb, "max_grad_norm": 1.0}
    expected = build(dense, gradient_accumulation_steps=micro_batches, **options)
    expected.fit(x[:8], y[:8], batch_size=8, shuffle=False, verbose=0)
    broken = build(dense, gradient_accumulation_steps=micro_batches, **options)
    sample_weight = np.ones(16, np.float32)
    sample_weight[10] = np.inf
    broken.fit(x, y, sample_weight=sample_weight, batch_size=8, shuffle=False, verbose=0)
    assert int(broken.counters.skipped_steps.numpy()) == 1
    assert int(broken.optimizer.inner_optimizer.iterations.numpy()) == 2
    assert_equal_weights(broken, weights(expected), 0)
    for variable in broken.model.trainable_variables:
        assert variable.dtype == "float32", "the weights that are updated are not those of 16 bits"
        one, *others = (local.numpy() for local in strategy_of(replicas).experimental_local_results(variable.value))
        for other in others:
            np.testing.assert_array_equal(one, other)
    assert float(broken.optimizer.dynamic_scale.numpy()) == float(expected.optimizer.dynamic_scale.numpy()) / 2


@pytest.mark.parametrize("metrics", [None, ["accuracy"]])
def test_the_outputs_of_a_batch_are_kept_only_where_a_metric_reads_them(metrics):
    """Those of all micro-batches would need memory that grows with the batch, which accumulation is there to avoid."""
    with strategy_of(1).scope():
        model = build(dense, gradient_accumulation_steps=4)
        model.compile(lamb(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=metrics)
    data = (tf.zeros([8, 5]), tf.zeros([8], tf.int32))
    step = tf.function(lambda *data: model.train_step(data), autograph=False)
    step(*data)
    assert ("accuracy" in model.get_metrics_result()) == bool(metrics)
    graph = step.get_concrete_function(*data).graph
    functions = [graph, *(f.graph for f in graph._functions.values() if hasattr(f, "graph"))]
    operations = {op.type for each in functions for op in each.get_operations()}
    assert ("TensorListReserve" in operations) == bool(metrics), sorted(operations)
