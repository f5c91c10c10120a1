"""Private parts of tf_keras: they are there, and do what is relied on."""

import collections

import numpy as np
import pytest
import tf_keras as keras

from tests.support.either_keras import Either, rows
from tests.support.models import strategy_of
from tfbert.private import layers_of
from tfbert.step.tf_keras.finetuner import FineTuner


def test_layers_come_depth_first_with_the_model_itself():
    inner = keras.Sequential([keras.layers.Dense(1, name="a"), keras.layers.Dropout(0.5, name="b")], name="inner")
    model = keras.Sequential([inner, keras.layers.Dense(1, name="c")], name="outer")
    assert [layer.name for layer in layers_of(model)] == ["outer", "inner", "a", "b", "c"]


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
