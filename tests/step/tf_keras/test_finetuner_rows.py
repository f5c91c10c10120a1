"""Rows that only fill a share, masked positions, and variables that the loss does not reach: as in plain Keras."""

import functools
import logging

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.like_tf_keras import CLASSES, ROWS, assert_like_keras, classifier, data, logits_loss, sgd, train

SLOW = pytest.mark.slow
SPLITS = pytest.mark.parametrize("replicas, micro_batches", [(1, 4), pytest.param(2, 1, marks=SLOW)])


def texts(rows=ROWS, width=7, seed=0):
    """Token ids with padding of 0, a class a text and one a token."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, width + 1, (rows, 1))
    ids = np.where(np.arange(width) < lengths, rng.integers(1, 20, (rows, width)), 0).astype(np.int32)
    return ids, ids.max(axis=1) % CLASSES, ids % CLASSES


def mean_of_tokens():
    """Keras's own text classifier: the mean of a text without tokens is 0 / 0."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input([7], dtype=tf.int32),
            keras.layers.Embedding(20, 4, mask_zero=True),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(CLASSES),
        ]
    )


@pytest.mark.parametrize(
    "replicas, micro_batches, xla",
    [(2, 3, False), pytest.param(1, 4, False, marks=SLOW), pytest.param(2, 1, True, marks=SLOW)],
)
def test_rows_that_fill_a_share_harm_no_masked_mean(replicas, micro_batches, xla):
    x, y, _ = texts(41)  # Batches of 10, which 4 and 2 x 3 do not divide, and a last one of 1 that leaves shares empty.
    options = {"gradient_accumulation_steps": micro_batches, "jit_compile": xla}
    trained = assert_like_keras(mean_of_tokens, x, y, replicas=replicas, options=options)
    assert int(trained.counters.skipped_steps.numpy()) == 0


def test_rows_that_fill_a_share_are_rows_of_it_for_batch_normalisation():
    """Equal rows: statistics are those of one row only if no other row, as one of zeros, was added."""

    def normalised():
        keras.utils.set_random_seed(1)
        norm = keras.layers.BatchNormalization(momentum=0.0)
        return keras.Sequential([keras.layers.Input([5]), norm, keras.layers.Dense(CLASSES)])

    x, y = np.full([5, 5], 3.0, np.float32), np.zeros(5, np.int32)
    _, _, trained = train(normalised, x, y, options={"gradient_accumulation_steps": 2}, batch_size=5, epochs=1)
    norm = trained.model.layers[0]
    np.testing.assert_allclose(norm.moving_mean, np.full(5, 3.0), rtol=1e-6)
    np.testing.assert_allclose(norm.moving_variance, np.zeros(5), atol=1e-6)


@pytest.mark.parametrize(
    "replicas, micro_batches, xla",
    [(2, 2, False), pytest.param(1, 1, False, marks=SLOW), pytest.param(1, 2, True, marks=SLOW)],
)
def test_a_skipped_step_leaves_moving_averages_alone(replicas, micro_batches, xla):
    """One row of all: the averages of the other replica are those of a step that has not been, too."""

    def normalised():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(CLASSES)]
        return keras.Sequential([keras.layers.Input([5]), *layers])

    x, y = data(20)
    options = {"gradient_accumulation_steps": micro_batches, "jit_compile": xla}
    expected, _, _ = train(normalised, x[:10], y[:10], replicas=replicas, options=options, epochs=1)
    x[15] = np.inf
    found, _, trained = train(normalised, x, y, replicas=replicas, options=options, epochs=1)
    assert int(trained.counters.skipped_steps.numpy()) == 1
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    fresh = [v.numpy() for v in normalised().non_trainable_variables]
    assert not any(
        np.allclose(v, before) for v, before in zip(trained.model.non_trainable_variables, fresh, strict=True)
    )


def tagger(layer="SimpleRNN"):
    settings = {} if layer == "Dense" else {"return_sequences": True}
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input([7], dtype=tf.int32),
            keras.layers.Embedding(20, 4, mask_zero=True),
            getattr(keras.layers, layer)(4, **settings),
            keras.layers.Dense(CLASSES),
        ]
    )


@pytest.mark.parametrize(
    "replicas, micro_batches, policy, layer",
    [
        (1, 4, "float32", "Dense"),
        pytest.param(1, 4, "float32", "SimpleRNN", marks=SLOW),
        pytest.param(1, 4, "float32", "LSTM", marks=SLOW),
        pytest.param(2, 1, "mixed_bfloat16", "LSTM", marks=SLOW),
    ],
)
def test_masked_positions_count_as_much_as_they_are_told_to(replicas, micro_batches, policy, layer):
    """In metrics, which Keras gives the mask itself, for nothing."""
    keras.mixed_precision.set_global_policy(policy)
    x, _, y = texts()
    y = np.where(x == 0, 0, 1)  # Counted, padding would be wrong at first and then always right.
    settings = {"compiled": {"metrics": lambda: ["accuracy"]}, "sample_weight": (x > 0).astype(np.float32)}
    make, options = functools.partial(tagger, layer), {"gradient_accumulation_steps": micro_batches}
    found, history, _ = train(make, x, y, replicas=replicas, options=options, **settings)
    big, big_history, _ = train(make, x, y, **settings)
    tolerance = 1e-5 if policy == "float32" else 5e-2
    for one, other in zip(found, big, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)
    np.testing.assert_allclose(history["loss"], big_history["loss"], atol=tolerance)
    assert history["accuracy"][-1] == big_history["accuracy"][-1] == 1.0


def test_masked_positions_must_be_weighted():
    x, _, y = texts()
    with pytest.raises(ValueError, match=r"masked positions.*\[rows, positions\]"):
        train(tagger, x, y)


@SPLITS
def test_variables_that_the_loss_does_not_reach_stay_as_they_are(replicas, micro_batches, caplog):
    """Plain Keras leaves them out of the update, weight decay included, and says so."""

    class IdleHead(keras.Model):
        def __init__(self):
            super().__init__()
            self.used = classifier()
            self.idle = keras.layers.Dense(2, kernel_initializer="ones", name="idle")
            self.idle.build([None, 3])

        def call(self, inputs):
            return self.used(inputs)

    compiled = {"optimizer": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.5)}
    with caplog.at_level(logging.WARNING, "tfbert"):
        trained = assert_like_keras(
            IdleHead,
            *data(),
            replicas=replicas,
            options={"gradient_accumulation_steps": micro_batches},
            compiled=compiled,
        )
    np.testing.assert_array_equal(trained.model.idle.kernel, np.ones([3, 2]))
    said = [record.getMessage() for record in caplog.records if "does not depend" in record.getMessage()]
    assert len(said) == 1 and said[0].endswith("depend on them: kernel:0, bias:0")


def test_a_fixed_loss_scale_skips_what_is_not_finite():
    """Keras's own would apply it: all weights NaN."""
    x, y = data()
    x = x.copy()
    x[15] = np.inf
    optimizer = {"optimizer": lambda: keras.mixed_precision.LossScaleOptimizer(sgd(), dynamic=False, initial_scale=8)}
    settings = {"compiled": optimizer | {"loss": logits_loss}, "epochs": 1, "options": {"max_grad_norm": 1.0}}
    found, _, trained = train(classifier, x, y, **settings)
    assert all(np.isfinite(value).all() for value in found)
    assert int(trained.counters.skipped_steps.numpy()) == 1
    # The other batches train as if the scale were 1: it is a power of 2.
    plain, _, _ = train(classifier, x, y, **settings | {"compiled": {"optimizer": sgd}})
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_array_equal(one, other)
