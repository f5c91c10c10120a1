"""Dropout noise: the rate and scale it promises, and what it does and does not depend on."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.models import random_batch
from tests.support.tf_keras_models import tiny_bert
from tests.support.tf_keras_noise import key, layers, stream
from tfbert.model.forward import forward
from tfbert.step.noise import Rows, drop, noise_key, noise_stream
from tfbert.step.tf_keras.dropout import KeyedDropout


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_kept_values_are_scaled_and_the_rate_is_kept(rate, dtype):
    inputs = tf.ones([200_001], dtype)
    out = drop(inputs, rate, stream())
    assert out.dtype == inputs.dtype and out.shape == inputs.shape
    values = out.numpy().astype(np.float64)
    kept = values != 0
    assert abs(kept.mean() - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / len(values))
    used = round(rate * 65536) / 65536
    assert set(values[kept]) == {float(tf.cast(1 / (1 - used), dtype))}


@pytest.mark.parametrize("rate", [1e-6, 1 - 1e-6])
def test_extreme_rates_stay_finite_and_drop_something_or_keep_something(rate):
    values = drop(tf.ones([1_000_000]), rate, stream()).numpy()
    assert np.isfinite(values).all()
    assert 0 < (values != 0).sum() < len(values)


@pytest.mark.parametrize("shape", [[], [1], [7], [3, 5], [2, 3, 4], [0, 4]])
def test_any_shape(shape):
    assert drop(tf.ones(shape), 0.5, stream()).shape == shape


def test_dropped_places_hide_infinity_and_nan():
    out = drop(tf.fill([100], np.inf), 0.5, stream()).numpy()
    assert set(out) == {0.0, np.inf}


def test_neighbours_are_independent():
    """Two elements share a 32-bit word: its halves must not be correlated."""
    kept = (drop(tf.ones([100_000]), 0.5, stream()).numpy() != 0).reshape(-1, 2)
    assert abs(np.corrcoef(kept.T)[0, 1]) < 0.03


def test_the_gradient_is_the_mask():
    inputs = tf.random.stateless_normal([50], [0, 0])
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        out = drop(inputs, 0.25, stream())
    np.testing.assert_allclose(tape.gradient(out, inputs), np.where(out != 0, 1 / 0.75, 0), rtol=1e-6)


def test_xla_draws_the_same_bits():
    inputs = tf.ones([1001])
    compiled = tf.function(lambda inputs, key: drop(inputs, 0.3, noise_stream(key), 7), jit_compile=True)
    np.testing.assert_array_equal(compiled(inputs, key()), drop(inputs, 0.3, stream(), 7))


def test_parts_of_a_stream_and_streams_are_independent():
    inputs = tf.ones([100_000])
    draws = [drop(inputs, 0.5, stream(step=step), number) for step in (1, 2) for number in (0, 1, 2)]
    kept = np.stack([draw.numpy() != 0 for draw in draws])
    assert np.abs(np.corrcoef(kept) - np.eye(6)).max() < 0.03
    # A part is not another one that begins some blocks of four words, eight halves, later.
    for shift in range(8, 65, 8):
        assert abs(np.corrcoef(kept[0][shift:], kept[1][:-shift])[0, 1]) < 0.03


def test_a_key_depends_on_each_of_its_parts():
    streams = [tf.concat(stream(seed=seed, step=step), 0) for seed in range(9) for step in range(9)]
    assert len({tuple(found.numpy()) for found in streams}) == 81


def test_streams_are_the_same_under_xla():
    compiled = tf.function(lambda step: noise_stream(noise_key(3, step)), jit_compile=True)
    for found, expected in zip(compiled(tf.constant(5, tf.int64)), stream(seed=3, step=5), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("index", range(5), ids=[type(layer).__name__ for layer in layers()])
def test_every_random_layer_takes_its_noise_from_the_key(index):
    model = keras.Sequential([keras.layers.Input([6, 8]), layers()[index]])
    dropout = KeyedDropout(model)

    @tf.function
    def run(inputs, key):
        with dropout.keyed(key):
            return model(inputs, training=True)

    inputs = tf.random.stateless_normal([4, 6, 8], [3, 4])
    first = run(inputs, key())
    assert np.isfinite(first).all() and (first != inputs).numpy().any()
    np.testing.assert_array_equal(run(inputs, key()), first)
    assert (run(inputs, key(step=3)) != first).numpy().any()
    np.testing.assert_array_equal(model(inputs, training=False), inputs)


def test_spatial_dropout_drops_whole_channels():
    model = keras.Sequential([keras.layers.Input([6, 8]), keras.layers.SpatialDropout1D(0.5)])
    with KeyedDropout(model).keyed(key()):
        out = model(tf.ones([16, 6, 8]), training=True).numpy()
    assert set(out.reshape(-1)) == {0.0, 2.0}
    assert (out == out[:, :1]).all()


def test_layers_draw_different_noise():
    inputs = keras.Input([1000])
    branches = [keras.layers.Dropout(0.5)(inputs) for _ in range(2)]
    model = keras.Model(inputs, branches)
    with KeyedDropout(model).keyed(key()):
        one, other = model(tf.ones([1, 1000]), training=True)
    assert 0.4 < np.mean(one.numpy() == other.numpy()) < 0.6


@pytest.mark.parametrize("make", [lambda: keras.layers.Dropout(0.5), lambda: keras.layers.GaussianNoise(1.0)])
def test_each_call_of_a_layer_draws_noise_of_its_own(make):
    """ALBERT calls one layer 12 times; RoBERTa's head applies its dropout twice."""
    layer, inputs = make(), keras.Input([1000])
    model = keras.Model(inputs, [layer(inputs), layer(inputs)])
    dropout = KeyedDropout(model)
    passes = []
    for _ in range(2):
        with dropout.keyed(key()):
            passes.append([out.numpy() for out in model(tf.ones([1, 1000]), training=True)])
    (one, other), again = passes
    assert np.mean(one == other) < 0.6 and abs(np.corrcoef(one[0], other[0])[0, 1]) < 0.15
    np.testing.assert_array_equal(again, [one, other])


@pytest.mark.parametrize("mode", ["horizontal", "horizontal_and_vertical"])
def test_a_layer_that_draws_seeds_works_keyed_and_not(mode):
    model = keras.Sequential([keras.layers.Input([8, 8, 1]), keras.layers.RandomFlip(mode)])
    dropout, image = KeyedDropout(model), tf.reshape(tf.range(64.0), [1, 8, 8, 1])
    seen = set()
    for step in range(40):
        with dropout.keyed(key(step=step)):
            seen.add(model(image, training=True).numpy().tobytes())
    assert len(seen) == (2 if mode == "horizontal" else 4), "one draw decides over both directions"
    assert model(image, training=True).shape == image.shape


def test_without_a_key_the_layers_are_keras_own():
    """A wrapped model that is then trained by other means still has noise, and new noise each time."""
    model = keras.Sequential([keras.layers.Input([100]), keras.layers.Dropout(0.5)])
    KeyedDropout(model)
    one, other = (model(tf.ones([1, 100]), training=True).numpy() for _ in range(2))
    assert set(one.reshape(-1)) == {0.0, 2.0} and (one != other).any()


def test_taking_over_twice_is_taking_over_once():
    model = keras.Sequential([keras.layers.Input([100]), keras.layers.Dropout(0.5)])
    outputs = []
    for _ in range(2):
        with KeyedDropout(model).keyed(key()):
            outputs.append(model(tf.ones([1, 100]), training=True).numpy())
    np.testing.assert_array_equal(*outputs)
    np.testing.assert_array_equal(model(tf.ones([1, 100]), training=False), 1.0)


def test_nothing_is_added_to_what_the_model_saves(tmp_path):
    def build():
        model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dropout(0.5), keras.layers.Dense(2)])
        return model

    model = build()
    names = [v.name for v in model.variables]
    KeyedDropout(model)
    assert [v.name for v in model.variables] == names
    model.save_weights(tmp_path / "w.weights.h5")
    build().load_weights(tmp_path / "w.weights.h5")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(tf.ones([1, 4])), model(tf.ones([1, 4])))


def test_berts_noise_is_a_function_of_the_key():
    model = tiny_bert(dropout=0.3)
    dropout = KeyedDropout(model)
    inputs, _, _ = random_batch(4)

    @tf.function
    def run(key):
        with dropout.keyed(key):
            return model(inputs, training=True).logits

    first = run(key())
    np.testing.assert_array_equal(run(key()), first)
    for other in (key(seed=5), key(step=5)):
        assert np.abs(run(other) - first).max() > 1e-3
    plain = model(inputs, training=False).logits
    assert np.abs(plain - first).max() > 1e-3


def test_recomputed_layers_draw_the_noise_of_the_first_pass():
    """Gradient checkpointing: of three layers all but the last compute their attention once more, rows 3 to 8."""
    inputs, labels, _ = random_batch(6)

    def gradients(recompute):
        model = tiny_bert(dropout=0.3, num_hidden_layers=3)
        dropout = KeyedDropout(model)

        @tf.function
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
