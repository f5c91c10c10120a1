"""Dropout noise: its rate and scale; what computes some rows draws what the whole batch would, bit for bit; noise that
is drawn again, as gradient checkpointing needs it."""

import zlib

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import SLOW, slow
from tests.support.either_keras import OVER_BOTH, Either
from tests.support.models import random_batch, tiny_bert
from tfbert.bert import models
from tfbert.model.forward import forward
from tfbert.private import layers_of
from tfbert.step.keras3.private import generators_of
from tfbert.step.noise import ONE_ROW, Rows, drop, noise_key, noise_stream, same_noise


def key(seed=1, step=2):
    return noise_key(seed, tf.constant(step, tf.int64))


def stream(**parts):
    return noise_stream(key(**parts))


# Numbers.


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
    compute = lambda inputs, key: drop(inputs, 0.3, noise_stream(key), 7)  # noqa: E731
    np.testing.assert_array_equal(WAYS["xla"](compute)(inputs, key()), compute(inputs, key()))


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


# Rows of the global batch.

PARTS = [(0, 6), (6, 1), (7, 6)]
"""(first, count) of runs that 13 rows are split into."""

WAYS = {
    "eager": lambda f: f,
    "graph": lambda f: tf.function(f, autograph=False),
    "xla": lambda f: tf.function(f, autograph=False, jit_compile=True),
}


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
    [(s, way) if way != "xla" or s == [13, 12, 7, 7] else slow(s, way) for s in SHAPES for way in WAYS],
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
    compute = lambda inputs, count: drop(inputs, 0.5, numbers, 3, rows=Rows(4, count))  # noqa: E731
    for known in (shape, [None, *shape[1:]], [None] * len(shape), None):
        signature = [tf.TensorSpec(known), tf.TensorSpec([], tf.int32)]
        other = tf.function(compute, autograph=False, input_signature=signature)(inputs, 13)
        np.testing.assert_array_equal(other, compute(inputs, 13))


def test_the_bits_are_those_of_earlier_versions():
    """A run may be resumed with a newer version."""
    kept = [drop(tf.ones(shape), 0.5, stream(), 3, rows=Rows(4, 13)).numpy() != 0 for shape in SHAPES]
    found = [zlib.crc32(np.packbits(mask)) for mask in kept]
    assert found == [1904730912, 547446089, 3590045134, 611216412, 1518364567]


def test_rows_far_into_a_batch_have_numbers_of_their_own():
    """The rows before take more counts than 32 bits hold."""
    far = [drop(tf.ones([1, 1 << 20]), 0.5, stream(), rows=Rows(first, 1)).numpy() != 0 for first in (0, 1 << 15)]
    assert abs(np.corrcoef(far[0][0], far[1][0])[0, 1]) < 0.01


# Layers of either Keras.


def keyed_pass(either, model):
    """A function: the model's pass in training, with the noise of a step's key."""
    dropout, of_step = either.step.keyed(model, 1), key()

    def run(inputs, rows=ONE_ROW, key=of_step):
        with dropout.keyed(key, rows):
            return model(inputs, training=True)

    return run


LAYERS = {
    "Dropout": lambda kinds: kinds.Dropout(0.5),
    "SpatialDropout1D": lambda kinds: kinds.SpatialDropout1D(0.5),
    "GaussianNoise": lambda kinds: kinds.GaussianNoise(1.0),
    "GaussianDropout": lambda kinds: kinds.GaussianDropout(0.5),
    "AlphaDropout": lambda kinds: kinds.AlphaDropout(0.5),
    "noise_shape": lambda kinds: kinds.Dropout(0.5, noise_shape=(None, 1, 8)),
    "variable": lambda kinds: kinds.Dropout(tf.Variable(0.5)),
    "LSTM": lambda kinds: kinds.LSTM(5, dropout=0.5),
    "GRU": lambda kinds: kinds.GRU(5, dropout=0.3, recurrent_dropout=0.5),
    "attention": None,
}
"""The first five keep the shape of their inputs."""


def of_layer(either, name):
    """A model of one layer that draws."""
    kinds = either.layers
    if name != "attention":
        return either.sequential(lambda: [LAYERS[name](kinds)], shape=[6, 8], seed=1)
    either.keras.utils.set_random_seed(1)
    inputs = either.keras.Input([6, 8])  # Its probabilities are `[rows, heads, queries, keys]`.
    return either.keras.Model(inputs, kinds.MultiHeadAttention(3, 4, dropout=0.5)(inputs, inputs))


@OVER_BOTH
@pytest.mark.parametrize("name", [*LAYERS][:5])
def test_every_random_layer_takes_its_noise_from_the_key(either, name):
    model = of_layer(either, name)
    run = tf.function(keyed_pass(either, model), autograph=False)
    inputs = tf.random.stateless_normal([4, 6, 8], [3, 4])
    first = run(inputs, key=key())
    assert np.isfinite(first).all() and (first != inputs).numpy().any()
    np.testing.assert_array_equal(run(inputs, key=key()), first)
    assert (run(inputs, key=key(step=3)) != first).numpy().any()
    np.testing.assert_array_equal(model(inputs, training=False), inputs)


@pytest.mark.parametrize(
    "name, way",
    [
        # Each layer in a graph; recurrent ones take seconds to be traced.
        (name, way) if way == "graph" and name not in ("GRU", "LSTM") else slow(name, way)
        for name in LAYERS
        for way in ("graph", "xla", *(["eager"] if name == "attention" else []))
    ],
)
def test_every_random_layer_of_keras_draws_by_row(either, name, way):
    if name == "variable" and either.is_keras_3:
        pytest.skip("Keras 3 takes numbers only")
    inputs = tf.random.stateless_normal([13, 6, 8], [3, 4])
    run = run_of(keyed_pass(either, of_layer(either, name)), way)
    whole, parts = in_parts(run, inputs)
    # Products and statistics may sum in another order for other shapes; a draw that differs is far from this.
    np.testing.assert_allclose(parts, whole, atol=2e-6)
    other = run(inputs, tf.constant(13, tf.int64)).numpy()
    assert (np.abs(other - whole).reshape(13, -1).max(axis=1) > 1e-3).sum() > 6, "other rows have other noise"


@OVER_BOTH
def test_spatial_dropout_drops_whole_channels(either):
    model = either.sequential(lambda: [either.layers.SpatialDropout1D(0.5)], shape=[6, 8])
    out = keyed_pass(either, model)(tf.ones([16, 6, 8])).numpy()
    assert set(out.reshape(-1)) == {0.0, 2.0}
    assert (out == out[:, :1]).all()


@OVER_BOTH
@pytest.mark.parametrize("name, layers", [("Dropout", 2), ("Dropout", 1), ("GaussianNoise", 1)])
def test_each_layer_and_each_call_of_one_draws_noise_of_its_own(either, name, layers):
    """ALBERT calls one layer 12 times; RoBERTa's head applies its dropout twice."""
    made, inputs = [LAYERS[name](either.layers) for _ in range(layers)], either.keras.Input([1000])
    model = either.keras.Model(inputs, [made[0](inputs), made[-1](inputs)])
    run = keyed_pass(either, model)
    (one, other), again = ([out.numpy() for out in run(tf.ones([1, 1000]))] for _ in range(2))
    assert np.mean(one == other) < 0.6 and abs(np.corrcoef(one[0], other[0])[0, 1]) < 0.15
    assert name == "GaussianNoise" or np.mean(one == other) > 0.4
    np.testing.assert_array_equal(again, [one, other])


@OVER_BOTH
def test_after_a_pass_with_a_key_the_layers_are_keras_own_and_saved_as_such(either, tmp_path):
    """A wrapped model that is then trained by other means still has noise, and new noise each time."""
    model, ones = either.sequential(lambda: [either.layers.Dropout(0.5)], shape=[100]), tf.ones([1, 100])
    keyed_pass(either, model)(ones)
    one, other = (model(ones, training=True).numpy() for _ in range(2))
    assert set(one.reshape(-1)) == {0.0, 2.0} and (one != other).any()
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(either.keras.models.load_model(tmp_path / "model.keras")(ones), ones)


def drawn(either, draw):
    """Adds noise of one kind and shape, drawn as Keras's own layers do."""

    def add(inputs):
        kind, *given = draw(tf.shape(inputs))
        if either.is_keras_3:
            return inputs + getattr(either.keras.random, kind)(*given, seed=layer.generator)
        name = kind if kind == "truncated_normal" else f"random_{kind}"
        return inputs + getattr(layer._random_generator, name)(*given)

    layer = either.layer(add)
    if either.is_keras_3:
        layer.generator = either.keras.random.SeedGenerator(1)
    else:
        layer._random_generator = either.layers.Dropout(0.5)._random_generator
    return layer


@OVER_BOTH
@pytest.mark.parametrize(
    "draw, mean, spread, least, most",
    [
        (lambda shape: ("uniform", shape, 2.0, 4.0), 3, 12**-0.5 * 2, 2, 4),
        (lambda shape: ("normal", shape, 1.0, 3.0), 1, 3, -17, 19),
        (lambda shape: ("truncated_normal", shape, 1.0, 3.0), 1, 3 * 0.8796, -5, 7),
    ],
    ids=["uniform", "normal", "truncated_normal"],
)
def test_other_noise_has_the_distribution_it_names(either, draw, mean, spread, least, most):
    model = either.sequential(lambda: [drawn(either, draw)], shape=[999])
    values = keyed_pass(either, model)(tf.zeros([200, 999]), Rows(7, 200)).numpy()
    assert abs(values.mean() - mean) < 5 * spread / values.size**0.5
    assert abs(values.std() / spread - 1) < 0.01
    assert least <= values.min() and values.max() <= most
    assert np.abs(np.corrcoef(values[:12]) - np.eye(12)).max() < 0.2


@OVER_BOTH
@pytest.mark.parametrize(
    "layer",
    [
        lambda either: either.layers.Dropout(0.5, noise_shape=(1, None, None)),
        lambda either: drawn(either, lambda shape: ("uniform", [])),
        lambda either: drawn(either, lambda shape: ("normal", [6, 8])),
    ],
    ids=["noise_shape", "number", "matrix"],
)
def test_noise_without_rows_is_that_of_the_step_in_every_part(either, layer):
    model = either.sequential(lambda: [layer(either)], shape=[6, 8])
    run = keyed_pass(either, model)
    rows = Rows(tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32))
    signature = [tf.TensorSpec([None, 6, 8]), rows]
    compute = tf.function(lambda inputs, rows: run(inputs, rows), autograph=False, input_signature=signature)
    whole, parts = in_parts(run_of(compute, "eager"), tf.ones([13, 6, 8]))
    np.testing.assert_array_equal(parts, whole)
    assert (whole == whole[:1]).all() and (whole != 1).any()


# Noise of Keras 3's layers drawn again; numbers that BERT's dropouts have.


def test_the_same_noise_can_be_drawn_again_later(three):
    model, ones = three.sequential(lambda: [three.layers.Dropout(0.5)], shape=[100]), tf.ones([1, 100])
    dropout = three.step.keyed(model, 1)
    assert same_noise() is None, "noise that is not keyed cannot be drawn again"
    with dropout.keyed(key()):
        again, first = same_noise(), model(ones, training=True)
    with dropout.keyed(key(step=9)):
        other = model(ones, training=True)
        with again():
            inner = model(ones, training=True)
    with dropout.keyed(key(step=9)), again():
        pass
    with dropout.keyed(key(step=9)):
        after = model(ones, training=True)
    with again():
        outer = model(ones, training=True)
    for found, expected in ((inner, first), (outer, first), (after, other)):
        np.testing.assert_array_equal(found, expected)
    assert (first != other).numpy().any()


def test_a_layer_that_is_shared_is_recomputed_with_the_noise_of_its_call(three):
    layer = three.layers.Dropout(0.5)
    model = three.sequential(lambda: [layer], shape=[100])
    dropout, ones = three.step.keyed(model, 1), tf.ones([1, 100])
    with dropout.keyed(key()):
        plain = [layer(ones, training=True) for _ in range(3)]
    with dropout.keyed(key()):
        contexts, found = [], []
        for _ in range(3):
            contexts.append(same_noise())
            with contexts[-1]():
                found.append(layer(ones, training=True))
    for context, expected in zip(contexts, plain, strict=True):
        with context():
            np.testing.assert_array_equal(layer(ones, training=True), expected)
    np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize(
    "kind, head",
    [
        ("SequenceClassification", [59]),
        ("MultipleChoice", [59]),
        ("TokenClassification", [57]),
        ("QuestionAnswering", []),
        ("PreTraining", []),
    ],
)
def test_each_dropout_of_bert_has_the_noise_that_it_had_in_tfbert_1_0(three, kind, head):
    """Its number there was its layer's place in transformers' TensorFlow model, as these are."""
    model = tiny_bert(kind=getattr(models, f"TFBertFor{kind}"), num_hidden_layers=3, dropout=0.1)
    numbers = three.step.keyed(model, 1)._numbers
    found = [numbers[id(each)] for layer in layers_of(model) for each in generators_of(layer)]
    assert sorted(found) == [4, 12, 16, 22, 29, 33, 39, 46, 50, 56, *head]


# Layers of tf_keras that draw a seed, so that it is not known for which rows; noise that is drawn again there.

TWO = Either("tf_keras")


@pytest.mark.parametrize("mode", [slow("horizontal"), "horizontal_and_vertical"])
def test_a_layer_that_draws_seeds_works_keyed_and_not(mode):
    model = TWO.sequential(lambda: [TWO.layers.RandomFlip(mode)], shape=[8, 8, 1])
    run, image = keyed_pass(TWO, model), tf.reshape(tf.range(64.0), [1, 8, 8, 1])
    seen = {run(image, key=key(step=step)).numpy().tobytes() for step in range(40)}
    assert len(seen) == (2 if mode == "horizontal" else 4), "one draw decides over both directions"
    assert model(image, training=True).shape == image.shape


def test_a_layer_that_draws_a_seed_has_one_a_part():
    """What it makes of the seed is its own: nothing is known of rows, but parts must not repeat each other."""
    model = TWO.sequential(lambda: [TWO.layers.RandomFlip("horizontal")], shape=[4, 4, 1])
    run, images = keyed_pass(TWO, model), tf.reshape(tf.range(64 * 16.0), [64, 4, 4, 1])
    made = [run(images, Rows(tf.constant(first, tf.int64), 64)) for first in (0, 64, 0)]
    flipped = [(each != images).numpy()[:, 0, 0, 0] for each in made]
    np.testing.assert_array_equal(flipped[0], flipped[2])
    assert 15 < (flipped[0] != flipped[1]).sum() < 49


@SLOW
def test_recomputed_layers_draw_the_noise_of_the_first_pass():
    """Gradient checkpointing: of three layers all but the last compute their attention once more, rows 3 to 8."""
    inputs, labels, _ = random_batch(6)

    def gradients(recompute):
        model = TWO.bert(dropout=0.3, num_hidden_layers=3)
        dropout = TWO.step.keyed(model, 1)

        @tf.function(autograph=False)
        def step():
            with tf.GradientTape() as tape:
                with dropout.keyed(key(), Rows(tf.constant(3, tf.int64), 6)):
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
