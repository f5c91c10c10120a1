"""Optimizers of tf_keras: skipped updates, clipped gradients, loss scales; one replica and two."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.models import strategy_of
from tfbert.step.gradients import all_reduce_sum
from tfbert.step.tf_keras.parts import apply_if_finite, unscaled
from tfbert.step.tf_keras.parts import scaled as scaled_loss

SLOW = pytest.mark.slow


def train(make_optimizer, gradients, *, replicas, factor=1.0):
    """Applies equal gradients on all replicas: the variables' values everywhere, and the optimizer."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        variables = [tf.Variable([[1.0, -2.0], [3.0, 0.5]], name="kernel"), tf.Variable([1.0, 2.0], name="bias")]
        optimizer = make_optimizer()
        optimizer.build(variables)

    @tf.function
    def step(grads):
        def each(grads):
            grads = all_reduce_sum([g / replicas for g in grads])
            is_finite = tf.math.is_finite(tf.linalg.global_norm(grads))
            apply_if_finite(optimizer, grads, variables, tf.constant(factor), is_finite)

        strategy.run(each, args=(grads,))

    for grads in gradients:
        step([tf.constant(g, tf.float32) for g in grads])
    values = [[local.numpy() for local in strategy.experimental_local_results(v)] for v in variables]
    for local in values:
        for value in local[1:]:
            np.testing.assert_array_equal(value, local[0])
    return [local[0] for local in values], optimizer


def some_gradients(steps=5, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(2, 2)), rng.normal(size=2)) for _ in range(steps)]


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "scaled sgd": lambda: keras.mixed_precision.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, momentum=0.9), initial_scale=8.0
    ),
    "fixed adam": lambda: keras.mixed_precision.LossScaleOptimizer(
        keras.optimizers.Adam(0.1), dynamic=False, initial_scale=8.0
    ),
}
QUICK = {("sgd", 1), ("fixed adam", 1)}


@pytest.mark.parametrize(
    "bad, replicas, name",
    [
        pytest.param(bad, replicas, name, marks=() if (name, replicas) in QUICK and bad == np.inf else SLOW)
        for bad in (np.inf, np.nan)
        for replicas in (1, 2)
        for name in OPTIMIZERS
    ],
)
def test_an_update_that_is_not_finite_changes_nothing_but_the_count(bad, replicas, name):
    make_optimizer = OPTIMIZERS[name]
    good = some_gradients(3)
    broken = (np.array([[1.0, bad], [0.0, 0.0]]), np.zeros(2))
    # The update counts although it is skipped, so what Adam corrects for the step differs: compare the first two.
    kept, before = train(make_optimizer, [good[0]], replicas=replicas)
    found, optimizer = train(make_optimizer, [good[0], broken], replicas=replicas)
    for a, b in zip(found, kept, strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(optimizer.iterations.numpy()) == 2
    one, other = (
        [v.numpy() for v in getattr(o, "inner_optimizer", o).variables if v.shape.rank] for o in (optimizer, before)
    )
    assert one
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_plain_optimizer_gets_the_clipped_gradients():
    found, _ = train(lambda: keras.optimizers.SGD(1.0), [([[1, 2], [3, 4]], [5, 6])], replicas=1, factor=0.5)
    np.testing.assert_allclose(found[0], [[0.5, -3.0], [1.5, -1.5]])
    np.testing.assert_allclose(found[1], [-1.5, -1.0])


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=SLOW)])
def test_the_loss_scale_halves_when_it_overflows_and_doubles_when_it_can(replicas):
    def make():
        return keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.SGD(0.1), initial_scale=64.0, dynamic_growth_steps=2
        )

    good = some_gradients(1)[0]
    bad = (np.full((2, 2), np.inf), np.zeros(2))
    for gradients, scale in [([bad], 32.0), ([bad, bad], 16.0), ([good], 64.0), ([good, good], 128.0)]:
        _, optimizer = train(make, gradients, replicas=replicas)
        assert float(optimizer.loss_scale) == scale, len(gradients)


def test_scaling_concerns_loss_scale_optimizers_only():
    plain = keras.optimizers.SGD(0.1)
    scaling = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=16.0)
    assert float(scaled_loss(plain, tf.constant(3.0))) == 3.0
    assert float(scaled_loss(scaling, tf.constant(3.0))) == 48.0
    assert float(unscaled(plain, [tf.constant(3.0)])[0]) == 3.0
    assert float(unscaled(scaling, [tf.constant(48.0)])[0]) == 3.0
