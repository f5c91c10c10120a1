"""Noise belongs to a row of the global batch: what computes some rows draws what the whole would, bit for bit."""

import zlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.tf_keras_noise import key, layers, stream
from tfbert.step.noise import Rows, drop
from tfbert.step.tf_keras.dropout import KeyedDropout

PARTS = [(0, 6), (6, 1), (7, 6)]
"""(first, count) of runs that 13 rows are split into."""

WAYS = {"eager": lambda f: f, "graph": tf.function, "xla": lambda f: tf.function(f, jit_compile=True)}


def run_of(compute, way):
    """`compute(rows' inputs, Rows)` as a function of the inputs and the first row."""
    return WAYS[way](lambda inputs, first: compute(inputs, Rows(first, inputs.shape[0])))


def in_parts(run, inputs):
    """What it makes of all rows at once, and of the parts one after the other."""
    whole = run(inputs, tf.constant(0, tf.int64)).numpy()
    parts = [run(inputs[first : first + count], tf.constant(first, tf.int64)).numpy() for first, count in PARTS]
    return whole, np.concatenate(parts)


SHAPES = [[13], [13, 3], [13, 8], [13, 12, 7, 7], [13, 5, 16]]


@pytest.mark.parametrize(
    "shape, way",
    [
        pytest.param(shape, way, marks=pytest.mark.slow if way == "xla" and shape != [13, 12, 7, 7] else ())
        for shape in SHAPES
        for way in WAYS
    ],
    ids=str,
)
def test_rows_of_any_size_draw_the_same_bits_in_any_part(shape, way):
    """16 bits an element, 8 elements a count: rows that fill whole counts and rows that do not."""
    numbers = stream()
    inputs = tf.reshape(tf.range(1.0, np.prod(shape) + 1), shape)
    whole, parts = in_parts(run_of(lambda inputs, rows: drop(inputs, 0.5, numbers, 3, rows=rows), way), inputs)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(whole, drop(inputs, 0.5, numbers, 3, rows=Rows(0, 13)), "in every way the same")
    if np.prod(shape) > 200:
        kept = (whole != 0).reshape(13, -1)
        assert 0.35 < kept.mean() < 0.65 and len({row.tobytes() for row in kept}) == 13


def test_rows_are_independent():
    kept = drop(tf.ones([12, 50_001]), 0.5, stream(), rows=Rows(1000, 12)).numpy() != 0
    assert np.abs(np.corrcoef(kept) - np.eye(12)).max() < 0.03


@pytest.mark.parametrize("size", [9, 16])
def test_tokens_in_one_dimension_belong_to_their_rows(size):
    numbers, inputs = stream(), tf.ones([13, 7, size])
    flat = drop(tf.reshape(inputs, [91, size]), 0.5, numbers, rows=Rows(4, 13))
    np.testing.assert_array_equal(tf.reshape(flat, [13, 7, size]), drop(inputs, 0.5, numbers, rows=Rows(4, 13)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_known_of_a_shape_changes_nothing(shape):
    numbers, inputs = stream(), tf.ones(shape)
    known = [shape, [None, *shape[1:]], [None] * len(shape), None]
    made = [
        tf.function(
            lambda inputs, count: drop(inputs, 0.5, numbers, 3, rows=Rows(4, count)),
            input_signature=[tf.TensorSpec(spec), tf.TensorSpec([], tf.int32)],
        )(inputs, 13)
        for spec in known
    ]
    for other in made:
        np.testing.assert_array_equal(other, drop(inputs, 0.5, numbers, 3, rows=Rows(4, 13)))


def test_the_bits_are_those_of_earlier_versions():
    """A run may be resumed with a newer version."""
    kept = [drop(tf.ones(shape), 0.5, stream(), 3, rows=Rows(4, 13)).numpy() != 0 for shape in SHAPES]
    found = [zlib.crc32(np.packbits(mask)) for mask in kept]
    assert found == [1904730912, 547446089, 3590045134, 611216412, 1518364567]


def test_rows_far_into_a_batch_have_numbers_of_their_own():
    """The rows before take more counts than 32 bits hold."""
    far = [drop(tf.ones([1, 1 << 20]), 0.5, stream(), rows=Rows(first, 1)).numpy() != 0 for first in (0, 1 << 15)]
    assert abs(np.corrcoef(far[0][0], far[1][0])[0, 1]) < 0.01


def more_layers():
    return [
        keras.layers.Dropout(0.5, noise_shape=(None, 1, 8)),
        keras.layers.Dropout(tf.Variable(0.5)),
        keras.layers.LSTM(5, dropout=0.5),
        keras.layers.GRU(5, dropout=0.3, recurrent_dropout=0.5),
    ]


def every_layer():
    return layers() + more_layers()


# Each layer in a graph; recurrent ones take seconds to be traced.
NAMES = [type(layer).__name__ for layer in every_layer()]
QUICK = {(index, "graph") for index, name in enumerate(NAMES) if name not in ("GRU", "LSTM")}


@pytest.mark.parametrize(
    "index, way",
    [
        pytest.param(index, way, marks=() if (index, way) in QUICK else pytest.mark.slow, id=f"{name}{index}-{way}")
        for index, name in enumerate(NAMES)
        for way in ("graph", "xla")
    ],
)
def test_every_random_layer_of_keras_draws_by_row(index, way):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input([6, 8]), every_layer()[index]])
    dropout, noise = KeyedDropout(model), key()

    def compute(inputs, rows):
        with dropout.keyed(noise, rows):
            return model(inputs, training=True)

    inputs = tf.random.stateless_normal([13, 6, 8], [3, 4])
    run = run_of(compute, way)
    whole, parts = in_parts(run, inputs)
    # Products and statistics may sum in another order for other shapes; a draw that differs is far from this.
    np.testing.assert_allclose(parts, whole, atol=2e-6)
    other = run(inputs, tf.constant(13, tf.int64)).numpy()
    assert (np.abs(other - whole).reshape(13, -1).max(axis=1) > 1e-3).sum() > 6, "other rows have other noise"


@pytest.mark.parametrize("way", ["graph", *(pytest.param(way, marks=pytest.mark.slow) for way in ("eager", "xla"))])
def test_attention_drops_by_row(way):
    """Its probabilities are `[rows, heads, queries, keys]`."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input([6, 8])
    model = keras.Model(inputs, keras.layers.MultiHeadAttention(3, 4, dropout=0.5)(inputs, inputs))
    dropout, noise = KeyedDropout(model), key()

    def compute(inputs, rows):
        with dropout.keyed(noise, rows):
            return model(inputs, training=True)

    whole, parts = in_parts(run_of(compute, way), tf.random.stateless_normal([13, 6, 8], [3, 4]))
    np.testing.assert_allclose(parts, whole, atol=2e-6)


class Drawn(keras.layers.Layer):
    """Adds noise of one kind and shape, drawn as Keras's own layers do."""

    def __init__(self, draw):
        super().__init__()
        self._random_generator, self.draw = keras.layers.Dropout(0.5)._random_generator, draw

    def call(self, inputs):
        return inputs + self.draw(self._random_generator, inputs)


@pytest.mark.parametrize(
    "draw, mean, spread, least, most",
    [
        (lambda g, x: g.random_uniform(tf.shape(x), 2.0, 4.0), 3, 12**-0.5 * 2, 2, 4),
        (lambda g, x: g.random_normal(tf.shape(x), 1.0, 3.0), 1, 3, -17, 19),
        (lambda g, x: g.truncated_normal(tf.shape(x), 1.0, 3.0), 1, 3 * 0.8796, -5, 7),
    ],
    ids=["uniform", "normal", "truncated_normal"],
)
def test_other_noise_has_the_distribution_it_names(draw, mean, spread, least, most):
    model = keras.Sequential([keras.layers.Input([999]), Drawn(draw)])
    with KeyedDropout(model).keyed(key(), Rows(7, 200)):
        values = model(tf.zeros([200, 999])).numpy()
    assert abs(values.mean() - mean) < 5 * spread / values.size**0.5
    assert abs(values.std() / spread - 1) < 0.01
    assert least <= values.min() and values.max() <= most
    assert np.abs(np.corrcoef(values[:12]) - np.eye(12)).max() < 0.2


@pytest.mark.parametrize(
    "layer",
    [
        lambda: keras.layers.Dropout(0.5, noise_shape=(1, None, None)),
        lambda: Drawn(lambda g, x: g.random_uniform([])),
        lambda: Drawn(lambda g, x: g.random_normal([6, 8])),
    ],
    ids=["noise_shape", "number", "matrix"],
)
def test_noise_without_rows_is_that_of_the_step_in_every_part(layer):
    model = keras.Sequential([keras.layers.Input([6, 8]), layer()])
    dropout, noise = KeyedDropout(model), key()

    def compute(inputs, rows):
        with dropout.keyed(noise, rows):
            return model(inputs, training=True)

    compute = tf.function(
        compute,
        input_signature=[tf.TensorSpec([None, 6, 8]), Rows(tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32))],
    )
    whole, parts = in_parts(run_of(compute, "eager"), tf.ones([13, 6, 8]))
    np.testing.assert_array_equal(parts, whole)
    assert (whole == whole[:1]).all() and (whole != 1).any()


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
