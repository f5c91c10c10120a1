"""Private parts of tf_keras: they are there, and do what is relied on."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.either_keras import Either, rows
from tests.support.models import strategy_of
from tfbert.private import layers_of, mask_of, with_mask
from tfbert.step.tf_keras import private
from tfbert.step.tf_keras.finetuner import FineTuner


def test_layers_come_depth_first_with_the_model_itself():
    inner = keras.Sequential([keras.layers.Dense(1, name="a"), keras.layers.Dropout(0.5, name="b")], name="inner")
    model = keras.Sequential([inner, keras.layers.Dense(1, name="c")], name="outer")
    assert [layer.name for layer in layers_of(model)] == ["outer", "inner", "a", "b", "c"]


def test_random_layers_take_another_generator_that_is_not_saved():
    class Ones(private.RandomGenerator):
        def dropout(self, inputs, rate, noise_shape=None):
            return tf.ones_like(inputs)

    layer = keras.layers.Dropout(0.5)
    assert isinstance(private.generator_of(layer), private.RandomGenerator)
    assert private.generator_of(keras.layers.Dense(1)) is None
    tracked = set(layer._trackable_children())
    private.set_generator(layer, Ones(1))
    np.testing.assert_array_equal(layer(tf.zeros([2, 3]), training=True), np.ones([2, 3]))
    assert set(layer._trackable_children()) == tracked


def test_masks_are_those_that_keras_sets_and_reads():
    embedded = keras.layers.Embedding(4, 2, mask_zero=True)(tf.constant([[1, 0]]))
    np.testing.assert_array_equal(mask_of(embedded), [[True, False]])
    assert mask_of(tf.constant(1.0)) is None
    marked = with_mask(tf.ones([1, 2, 2]), mask_of(embedded))
    pooled = keras.layers.GlobalAveragePooling1D()(marked * 1, mask=mask_of(marked))
    np.testing.assert_array_equal(pooled, [[1.0, 1.0]])
    metric = keras.metrics.Mean()
    compiled = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    compiled.compile(weighted_metrics=[keras.metrics.MeanAbsoluteError(name="error")])
    predictions = with_mask(tf.constant([[[1.0], [9.0]]]), mask_of(embedded))
    compiled.compiled_metrics.update_state(tf.zeros([1, 2, 1]), predictions)
    assert metric.result() == 0 and float(compiled.compiled_metrics.metrics[0].result()) == 1.0


@pytest.mark.slow  # As all that trains with tf_keras.
@pytest.mark.parametrize("replicas", [1, 2])
def test_steps_with_metrics_given_by_name_are_traced_once(replicas, monkeypatch):
    traced = collections.Counter()

    def counted(name, original):
        def step(self, data):
            traced[name] += 1
            return original(self, data)

        monkeypatch.setattr(FineTuner, name, step)

    counted("train_step", FineTuner.train_step)
    counted("test_step", FineTuner.test_step)
    strategy, two = strategy_of(replicas), Either("tf_keras")
    with strategy.scope():
        trained = FineTuner(two.classifier())
        trained.compile(two.sgd(), two.loss(), metrics=["accuracy"], weighted_metrics=["accuracy"])
    x, y = rows(40)
    trained.fit(x, y, epochs=2, verbose=0)
    found = trained.evaluate(x, y, verbose=0, return_dict=True)
    assert traced == {"train_step": replicas, "test_step": replicas}
    accuracy = np.mean(np.argmax(trained.predict(x, verbose=0), axis=1) == y)
    assert found["accuracy"] == found["weighted_accuracy"] == pytest.approx(accuracy)
    variables = [v for metric in trained.compiled_metrics.metrics for v in metric.variables]
    assert all(len(strategy.experimental_local_results(v)) == replicas for v in variables)
