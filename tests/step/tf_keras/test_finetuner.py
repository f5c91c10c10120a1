"""FineTuner over models of tf_keras: private parts; transformers' TensorFlow models."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

import tfbert
from tests.support.cases import SLOW
from tests.support.either_keras import Either, apart, rows
from tests.support.models import random_batch, strategy_of
from tfbert.private import layers_of
from tfbert.step.tf_keras.finetuner import FineTuner

TWO = Either("tf_keras")


def test_layers_come_depth_first_with_the_model_itself():
    inner = keras.Sequential([keras.layers.Dense(1, name="a"), keras.layers.Dropout(0.5, name="b")], name="inner")
    model = keras.Sequential([inner, keras.layers.Dense(1, name="c")], name="outer")
    assert [layer.name for layer in layers_of(model)] == ["outer", "inner", "a", "b", "c"]


@SLOW  # As all that trains with tf_keras.
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
    metrics = {"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]}
    strategy, trained = strategy_of(replicas), TWO.build(replicas=replicas, compiled=metrics)
    x, y = rows(40)
    trained.fit(x, y, epochs=2, verbose=0)
    found = trained.evaluate(x, y, verbose=0, return_dict=True)
    assert traced == {"train_step": replicas, "test_step": replicas}
    accuracy = np.mean(np.argmax(trained.predict(x, verbose=0), axis=1) == y)
    assert found["accuracy"] == found["weighted_accuracy"] == pytest.approx(accuracy)
    variables = [v for metric in trained.compiled_metrics.metrics for v in metric.variables]
    assert all(len(strategy.experimental_local_results(v)) == replicas for v in variables)


@SLOW
def test_bert_predicts_its_logits():
    inputs, labels, _ = random_batch(7)
    compiled = {"metrics": ["accuracy"], "run_eagerly": True}
    trained = TWO.build(lambda: TWO.bert(num_hidden_layers=1), replicas=None, compiled=compiled)
    logits = trained.model(inputs).logits.numpy()
    np.testing.assert_allclose(trained.predict(inputs, batch_size=4, verbose=0), logits, atol=1e-5)
    result = trained.evaluate(inputs, labels, batch_size=4, verbose=0, return_dict=True)
    expected = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True).numpy().mean()
    assert result["loss"] == pytest.approx(expected, abs=1e-5)
    assert result["accuracy"] == pytest.approx((logits.argmax(1) == labels).mean())


@SLOW
def test_labels_among_the_inputs():
    inputs, labels, _ = random_batch(8)
    given = ((inputs, labels), ({**inputs, "labels": labels},))
    data_sets = [tf.data.Dataset.from_tensor_slices(each).batch(4) for each in given]
    one, two = (TWO.ours(TWO.bert, (each, None), replicas=None, parts=2, batch_size=None) for each in data_sets)
    assert apart(one, two) == 0
    with pytest.raises(ValueError, match="SparseCategoricalCrossentropy"):
        tfbert.FineTuner(TWO.bert()).compile(optimizer=TWO.sgd())


@SLOW
def test_several_outputs():
    from transformers import BertConfig, TFBertForQuestionAnswering

    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1}
    model = TFBertForQuestionAnswering(BertConfig(vocab_size=20, **sizes))
    model.build_in_name_scope()
    ids = np.random.default_rng(0).integers(1, 20, (8, 5)).astype(np.int32)
    labels = {"start_logits": np.full(8, 1), "end_logits": np.full(8, 3)}
    fit = {"compiled": {"loss": {name: TWO.loss() for name in labels}}, "batch_size": 8, "epochs": 20}
    optimizer = lambda: keras.optimizers.Adam(0.01)  # noqa: E731
    trained = TWO.ours(lambda: model, (ids, labels), replicas=None, parts=2, optimizer=optimizer, **fit)
    losses, outputs = trained.history["loss"], trained.model.predict(ids, verbose=0)
    assert losses[-1] < 0.7 * losses[0]
    assert {name: value.shape for name, value in outputs.items()} == dict.fromkeys(labels, (8, 5))
