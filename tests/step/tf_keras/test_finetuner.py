"""FineTuner over models of tf_keras: layers that draw a seed, so that it is not known for which rows; noise that is
drawn again; private parts; transformers' TensorFlow models and optimizers."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

import tfbert
from tests.support.either_keras import SLOW, Either, rows
from tests.support.models import random_batch, strategy_of
from tfbert.model.forward import forward
from tfbert.private import layers_of
from tfbert.step.noise import Rows, noise_key
from tfbert.step.tf_keras.finetuner import FineTuner, KeyedDropout

TWO = Either("tf_keras")


def key(step=2):
    return noise_key(1, tf.constant(step, tf.int64))


@pytest.mark.parametrize("mode", [pytest.param("horizontal", marks=SLOW), "horizontal_and_vertical"])
def test_a_layer_that_draws_seeds_works_keyed_and_not(mode):
    model = keras.Sequential([keras.layers.Input([8, 8, 1]), keras.layers.RandomFlip(mode)])
    dropout, image = KeyedDropout(model), tf.reshape(tf.range(64.0), [1, 8, 8, 1])
    seen = set()
    for step in range(40):
        with dropout.keyed(key(step=step)):
            seen.add(model(image, training=True).numpy().tobytes())
    assert len(seen) == (2 if mode == "horizontal" else 4), "one draw decides over both directions"
    assert model(image, training=True).shape == image.shape


def test_a_layer_that_draws_a_seed_has_one_a_part():
    """What it makes of the seed is its own: nothing is known of rows, but parts must not repeat each other."""
    model = keras.Sequential([keras.layers.Input([4, 4, 1]), keras.layers.RandomFlip("horizontal")])
    dropout, images = KeyedDropout(model), tf.reshape(tf.range(64 * 16.0), [64, 4, 4, 1])
    flipped = []
    for first in (0, 64, 0):
        with dropout.keyed(key(), Rows(tf.constant(first, tf.int64), 64)):
            flipped.append((model(images, training=True) != images).numpy()[:, 0, 0, 0])
    np.testing.assert_array_equal(flipped[0], flipped[2])
    assert 15 < (flipped[0] != flipped[1]).sum() < 49


@SLOW
def test_recomputed_layers_draw_the_noise_of_the_first_pass():
    """Gradient checkpointing: of three layers all but the last compute their attention once more, rows 3 to 8."""
    inputs, labels, _ = random_batch(6)

    def gradients(recompute):
        model = TWO.bert(dropout=0.3, num_hidden_layers=3)
        dropout = KeyedDropout(model)

        @tf.function(autograph=False)
        def step():
            with tf.GradientTape() as tape:
                with dropout.keyed(noise_key(1, tf.constant(2, tf.int64)), Rows(tf.constant(3, tf.int64), 6)):
                    logits = forward(model, inputs, True, recompute=recompute)
                loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            return [tf.convert_to_tensor(each) for each in tape.gradient(loss, model.trainable_variables)]

        graph = step.get_concrete_function().graph.as_graph_def()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        return step(), sum(node.op == "Softmax" for node in nodes)

    (plain, once), (found, again) = gradients(False), gradients(True)
    assert (once, again) == (3, 5)
    size = float(tf.linalg.global_norm(plain))
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6 * size, rtol=0)


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
    strategy = strategy_of(replicas)
    with strategy.scope():
        trained = FineTuner(TWO.classifier())
        trained.compile(TWO.sgd(), TWO.loss(), metrics=["accuracy"], weighted_metrics=["accuracy"])
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
    model = TWO.bert(num_hidden_layers=1)
    trained = tfbert.FineTuner(model)
    trained.compile("adam", TWO.loss(), metrics=["accuracy"], run_eagerly=True)
    logits = model(inputs).logits.numpy()
    np.testing.assert_allclose(trained.predict(inputs, batch_size=4, verbose=0), logits, atol=1e-5)
    result = trained.evaluate(inputs, labels, batch_size=4, verbose=0, return_dict=True)
    expected = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True).numpy().mean()
    assert result["loss"] == pytest.approx(expected, abs=1e-5)
    assert result["accuracy"] == pytest.approx((logits.argmax(1) == labels).mean())


@SLOW
def test_labels_among_the_inputs():
    inputs, labels, _ = random_batch(8)
    found = []
    for data_set in ((inputs, labels), ({**inputs, "labels": labels},)):
        keras.utils.set_random_seed(3)
        bert = TWO.bert(dropout=0.0)
        model = tfbert.FineTuner(bert, gradient_accumulation_steps=2)
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss=TWO.loss())
        model.fit(tf.data.Dataset.from_tensor_slices(data_set).batch(4), verbose=0)
        found.append([w.numpy() for w in bert.weights])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="SparseCategoricalCrossentropy"):
        tfbert.FineTuner(TWO.bert()).compile(optimizer=TWO.sgd())


@SLOW
def test_several_outputs():
    from transformers import BertConfig, TFBertForQuestionAnswering

    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1}
    model = TFBertForQuestionAnswering(BertConfig(vocab_size=20, **sizes))
    model.build_in_name_scope()
    trained = tfbert.FineTuner(model, gradient_accumulation_steps=2)
    trained.compile(keras.optimizers.Adam(0.01), {"start_logits": TWO.loss(), "end_logits": TWO.loss()})
    ids = np.random.default_rng(0).integers(1, 20, (8, 5)).astype(np.int32)
    labels = {"start_logits": np.full(8, 1), "end_logits": np.full(8, 3)}
    losses = trained.fit(ids, labels, batch_size=8, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    assert {name: value.shape for name, value in trained.predict(ids, verbose=0).items()} == {
        "start_logits": (8, 5),
        "end_logits": (8, 5),
    }
