"""Masks, and labels of one axis: trained on as plain Keras does, by either Keras."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.either_keras import CLASSES, FEATURES, Either, apart, rows

SLOW = pytest.mark.slow
SAME = 1e-6
POSITIONS, WORDS = 6, 9


@pytest.fixture(params=["keras", pytest.param("tf_keras", marks=SLOW)])
def either(request):
    return Either(request.param)


def words(either):
    """Texts of one to six words; each position has a tag and a weight, padding too."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, WORDS, (40, POSITIONS)) * (np.arange(POSITIONS) < rng.integers(1, POSITIONS + 1, (40, 1)))
    weights = rng.uniform(0.5, 2, ids.shape).astype(np.float32)
    return ids.astype(np.int32), rng.integers(0, CLASSES, ids.shape), weights


def tagger(either, kind):
    kinds = either.keras.layers
    either.keras.utils.set_random_seed(1)
    if kind == "embedding":
        first = [kinds.Input([POSITIONS], dtype="int32"), kinds.Embedding(WORDS, 4, mask_zero=True)]
    else:
        first = [kinds.Input([POSITIONS, 1]), kinds.Masking(0.0)]
    hidden = kinds.LSTM(4, return_sequences=True) if kind == "recurrent" else kinds.Dense(4, activation="tanh")
    return either.keras.Sequential([*first, hidden, kinds.Dense(CLASSES)])


@pytest.mark.parametrize(
    "kind, replicas, parts",
    [
        ("embedding", 1, 1),
        pytest.param("embedding", 2, 2, marks=SLOW),
        pytest.param("masking", 1, 3, marks=SLOW),
        pytest.param("recurrent", 1, 2, marks=SLOW),
    ],
)
def test_a_mask_beside_weights_for_each_position(either, kind, replicas, parts):
    x, tags, weights = words(either)
    x = x if kind == "embedding" else x[..., None].astype(np.float32)
    fit = {
        "sample_weight": weights,
        "batch_size": 40,  # Over several, plain Keras takes a mean of means.
        "epochs": 3,
        "validation_data": (x[:20], tags[:20], weights[:20]),
        "compiled": {"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]},
    }
    expected = either.plain(lambda: tagger(either, kind), (x, tags), **fit)
    found = either.ours(lambda: tagger(either, kind), (x, tags), replicas=replicas, parts=parts, **fit)
    assert apart(found, expected) < SAME
    for name, values in expected.history.items():
        assert found.history[name] == pytest.approx(values, abs=1e-5), name


def test_labels_of_one_axis(either):
    """As many outputs as rows: only tf_keras makes the labels a column. With others, plain Keras 3 has an error."""

    def of(outputs):
        either.keras.utils.set_random_seed(1)
        kinds = either.keras.layers
        return either.keras.Sequential([kinds.Input([FEATURES]), kinds.Dense(outputs)])

    x, y = rows(20)
    y = y.astype(np.float32) + np.arange(20) % 4
    for outputs in (10, 1):
        fit = {"compiled": {"loss": "mse", "metrics": ["mae"] if outputs == 1 else []}}
        expected, found = (
            either.plain(lambda n=outputs: of(n), (x, y), **fit),
            either.ours(lambda n=outputs: of(n), (x, y), replicas=1, **fit),
        )
        assert apart(found, expected) < SAME
    if either.is_keras_3:
        for train in (either.plain, either.ours):
            with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="Dimensions|shapes|Incompatible"):
                train(lambda: of(3), (x, y), replicas=1, compiled={"loss": "mse"})


@SLOW
@pytest.mark.parametrize(
    "loss",
    [
        lambda y, p: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), p),
        "sparse_categorical_crossentropy",
    ],
)
def test_classes_of_one_axis_in_keras_3(loss):
    """A function gets them as they are."""
    either = Either("keras")
    make = lambda: either.keras.Sequential([either.classifier(), either.keras.layers.Softmax()])  # noqa: E731
    expected = either.plain(make, compiled={"loss": loss})
    assert apart(either.ours(make, replicas=2, parts=2, compiled={"loss": loss}), expected) < 1e-5


def test_a_loss_that_compares_rows_and_masks_them():
    """Circle has no weights to pass."""
    either = Either("keras")
    with pytest.raises(ValueError, match="Received: Circle.*a loss that compares rows with each other"):
        either.ours(replicas=1, compiled={"loss": either.keras.losses.Circle()})


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=SLOW)])
def test_export_after_training(either, replicas, tmp_path):
    model = either.ours(replicas=replicas).model
    model.export(str(tmp_path / "exported"))
    x, _ = rows(8)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(exported.serve(x), model.predict(x, verbose=0), atol=1e-6)
