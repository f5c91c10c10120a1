"""Losses, layers and metrics of which parts of a batch do not make the whole: found by values, and refused."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import SLOW, slow
from tests.support.either_keras import (
    CLASSES,
    FEATURES,
    Either,
    apart,
    in_batch_negatives,
    root_of_the_mean,
    rows,
    scores_of_pairs,
)

SAME = 1e-5


def supervised_contrastive(labels, outputs):
    same = tf.cast(tf.equal(tf.reshape(labels, [-1, 1]), tf.reshape(labels, [1, -1])), tf.float32)
    return -tf.reduce_sum(same * tf.nn.log_softmax(scores_of_pairs(outputs)), axis=1) / tf.reduce_sum(same, axis=1)


def divided_by_the_rows(labels, outputs):
    return tf.reduce_sum(outputs**2, axis=1) / tf.cast(tf.shape(outputs)[0], tf.float32)


def of_the_diagonal(labels, outputs):
    """Of an output `[rows, rows]`, as of texts and their pictures."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(outputs)[0]), outputs)


def centred(values):
    return values - tf.reduce_mean(values, axis=0, keepdims=True)


def balance(values):
    """Switch Transformer's: each expert's share of the rows times its mean probability."""
    gates = tf.nn.softmax(values)
    share = tf.reduce_mean(tf.one_hot(tf.argmax(gates, axis=1), gates.shape[1]), axis=0)
    return 0.1 * tf.reduce_sum(share * tf.reduce_mean(gates, axis=0)) * gates.shape[1]


@pytest.mark.parametrize("replicas, parts", [(1, 2), slow(2, 1), slow(2, 5)])
@pytest.mark.parametrize("loss", [in_batch_negatives, slow(divided_by_the_rows), slow(supervised_contrastive)])
def test_a_loss_that_looks_across_rows(either, loss, replicas, parts):
    """Also where a part has one row."""
    with pytest.raises(ValueError, match=rf"^A row's loss must not.*{loss.__name__}.*, gradient_acc.*={parts} on"):
        either.ours(replicas=replicas, parts=parts, compiled={"loss": loss})
    if parts == 2 and loss != divided_by_the_rows:
        either.like(replicas=1, parts=1, optimizer=either.sgd, compiled={"loss": loss})


@pytest.mark.parametrize(
    "function, adds, said",
    [
        (centred, False, "looks across rows"),
        slow(lambda values: tf.concat([values[:1], values[:-1]], axis=0), False, "looks across rows"),
        (lambda values: 0.1 * tf.reduce_sum(values**2), True, "must be a mean over rows"),
        slow(balance, True, "must be a mean over rows"),
    ],
)
def test_a_layer_that_looks_across_rows(either, function, adds, said):
    """Beside dropout, which does not."""
    with pytest.raises(ValueError, match=said):
        either.ours(lambda: either.classifier(either.layer(function, adds), dropout=0.3), parts=2, replicas=1)


@SLOW
def test_a_sum_of_what_layers_add_in_one_part(either):
    make = lambda: either.classifier(either.layer(lambda values: tf.reduce_sum(values**2), adds=True))  # noqa: E731
    either.like(make, replicas=1, parts=1, optimizer=either.sgd)


@SLOW
def test_a_value_per_row_that_layers_add(either):
    """Plain Keras 3 takes its sum, tf_keras has an error of its own."""
    make = lambda: either.classifier(either.layer(lambda v: tf.reduce_sum(v**2, axis=1), adds=True))  # noqa: E731
    if either.is_keras_3:
        assert apart(either.plain(make), either.ours(make, replicas=1)) < SAME
    with pytest.raises(ValueError, match="must be a mean over rows"):
        either.ours(make, parts=2, replicas=1)


@SLOW
def test_an_output_whose_second_axis_is_the_batch(either):
    layers = lambda: [either.layers.Dense(4), either.layer(scores_of_pairs)]  # noqa: E731
    with pytest.raises(ValueError, match="A row's loss must not depend on the rows beside it"):
        either.ours(lambda: either.sequential(layers), replicas=1, parts=2, compiled={"loss": of_the_diagonal})


def own_loss(either, function):
    """A model with a `compute_loss` of its own."""

    class Own(either.keras.Model):
        def __init__(self):
            super().__init__()
            either.keras.utils.set_random_seed(1)
            self.dense, self.norm = either.layers.Dense(CLASSES), either.layers.BatchNormalization()
            self.drop = either.layers.Dropout(0.3)

        def call(self, inputs, training=None):
            return self.drop(self.norm(self.dense(inputs), training=training), training=training)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return function(self, x, y_pred)

    return Own


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x, outputs: in_batch_negatives(None, outputs),
        slow(lambda model, x, outputs: divided_by_the_rows(None, model(x))),
    ],
)
def test_a_models_own_loss_that_looks_across_rows(either, function):
    with pytest.raises(ValueError, match="A row's loss must not.* compute_loss of Own"):
        either.ours(own_loss(either, function), replicas=1, parts=2, compiled={"loss": None})


def test_values_that_are_equal_by_chance_at_first(either):
    """A head of zeros hides what is before it until it has been trained."""
    layers = lambda: [either.layer(centred), either.layers.Dense(CLASSES, kernel_initializer="zeros")]  # noqa: E731
    with pytest.raises(ValueError, match="looks across rows"):
        either.ours(lambda: either.sequential(layers), replicas=1, parts=2)


# What must go on working.


def twice(model, x, outputs):
    """R-Drop, with what BatchNormalization and dropout do."""
    return tf.reduce_sum((outputs - model(x, training=True)) ** 2, axis=1)


def test_a_model_of_so_many_rows_takes_them_in_parts(either):
    """Five, no more and no less."""

    def layers():
        kinds = either.layers
        hidden = kinds.Dense(4, activity_regularizer="l2")
        return [kinds.Input(batch_shape=[5, FEATURES]), hidden, kinds.Dense(CLASSES)]

    make = lambda: either.sequential(layers, shape=None)  # noqa: E731
    assert either.ours(make, replicas=1, parts=2).history["loss"][0] > 0


@pytest.mark.parametrize(
    "outputs, activation, loss",
    [slow(1, "sigmoid", "binary_crossentropy"), (CLASSES, "softmax", "sparse_categorical_crossentropy")],
)
def test_a_model_that_is_sure_and_wrong(either, outputs, activation, loss):
    """Of an activation's own output Keras takes the logits, of a part of it a probability that it cuts off at 1e-7."""
    make = lambda: either.classifier(either.layers.Rescaling(100.0), outputs=outputs, activation=activation)  # noqa: E731
    xy, given = (rows(40)[0], rows(40)[1] // 2), {"compiled": {"loss": loss}, "optimizer": lambda: either.sgd(1e-4)}
    assert apart(either.plain(make, xy, **given), either.ours(make, xy, replicas=1, parts=2, **given)) < SAME


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_an_own_loss_that_calls_a_model_with_batch_normalization(either, replicas):
    trained = either.ours(own_loss(either, twice), replicas=replicas, parts=2, compiled={"loss": None})
    assert trained.history["loss"][0] > 0


@SLOW
@pytest.mark.parametrize("draw", [lambda v: tf.nn.dropout(v, 0.5), lambda v: v + tf.random.normal(tf.shape(v))])
def test_layers_of_tf_keras_that_draw_by_themselves(draw):
    """Nothing can be said of such a model, but of its loss."""
    either = Either("tf_keras")
    make = lambda: either.classifier(either.layer(draw))  # noqa: E731
    assert either.ours(make, replicas=2, parts=2).history["loss"][0] > 0
    with pytest.raises(ValueError, match="in_batch_negatives"):
        either.ours(make, replicas=1, parts=2, compiled={"loss": in_batch_negatives})


@SLOW
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_sixteen_bits(either, policy):
    """Rows that are alike at once and in parts, where rounding is coarse; and in-batch negatives."""
    with either.policy(policy):
        make = lambda: either.classifier(*(either.keras.layers.Dense(64, "relu") for _ in range(4)), dropout=0.3)  # noqa: E731
        assert either.ours(make, replicas=2, parts=2, epochs=3).history["loss"][-1] < 1.2
        with pytest.raises(ValueError, match="in_batch_negatives"):
            either.ours(make, replicas=2, parts=2, compiled={"loss": in_batch_negatives})


# Metrics.


def largest(either):
    class Largest(either.keras.metrics.Metric):
        def __init__(self, start):
            super().__init__(name="largest")
            self.value = self.add_weight(name="value", shape=(), initializer=either.keras.initializers.Constant(start))

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.value.assign(tf.maximum(tf.convert_to_tensor(self.value), tf.reduce_max(y_pred)))

        def result(self):
            return tf.convert_to_tensor(self.value)

    return Largest


@pytest.mark.parametrize(
    "metric, name",
    [
        (lambda either: largest(either)(0.0), "largest"),
        slow(lambda either: largest(either)(-np.inf), "largest"),
        slow(lambda either: root_of_the_mean, "root_of_the_mean"),
    ],
)
def test_a_metric_that_is_no_sum(either, metric, name):
    """In `fit` and in `evaluate`."""
    model = either.build(replicas=2, gradient_accumulation_steps=2, compiled=lambda: {"metrics": [metric(either)]})
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match=f"must be a sum over rows. Received: metric '{name}'"):
            call(*rows(40), batch_size=10, verbose=0)


@SLOW
def test_such_a_metric_on_one_replica(either):
    """It is what plain Keras has."""
    compiled = lambda: {"metrics": [largest(either)(0.0), root_of_the_mean], "run_eagerly": True}  # noqa: E731
    found, expected = either.ours(replicas=1, parts=2, compiled=compiled), either.plain(compiled=compiled)
    for each in ("largest", "root_of_the_mean"):
        assert found.history[each] == pytest.approx(expected.history[each], abs=1e-5)
