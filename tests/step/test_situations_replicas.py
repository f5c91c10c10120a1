"""Situations that users of Keras report, on several replicas: what plain Keras does, and what FineTuner does.

The table in docs/fit.md has them, but for a lost worker and a file in another process. Where plain Keras has been
mended since, that is asserted too.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.either_keras import CLASSES, FEATURES, SLOW, apart, rows
from tests.support.models import strategy_of

SAME, OTHER = 1e-5, 1e-3
"""What rounding may change, and what it cannot."""


@SLOW
def test_the_optimizers_own_accumulation(either):
    """keras#20582."""
    big = either.plain(batch_size=20)
    assert apart(either.ours(batch_size=20, parts=2), big) < SAME
    if either.is_keras_3:
        with pytest.raises(RuntimeError, match="merge_call"):
            either.plain(optimizer=lambda: either.sgd(gradient_accumulation_steps=2), replicas=2)
    else:
        with pytest.raises((TypeError, ValueError), match="gradient_accumulation_steps"):
            either.sgd(gradient_accumulation_steps=2)


def error(kind, match):
    return lambda: pytest.raises(kind, match=match)


def clipped(option, largest):
    return {"optimizer": lambda either: lambda: either.sgd(**{option: largest})}, {}, {}, OTHER, SAME


MERGED = error(RuntimeError, "merge_call")
SITUATIONS = {
    # keras#19891, keras#19280, keras#19308: losses, metrics and weights depended on their number.
    "one or several replicas": ({"compiled": {"metrics": ["accuracy"]}}, {}, {}, SAME, SAME),
    "a last batch that they do not divide": ({"xy": rows(43)}, {}, {}, OTHER, OTHER),
    # tensorflow#36224: a replica without rows gave a loss that is not a number.
    "a last batch of fewer rows than replicas": ({"xy": rows(41)}, {}, {}, OTHER, OTHER),
    "a first batch that they do not divide": (
        *({"xy": rows(7)}, {}, {}),
        *(error(tf.errors.InvalidArgumentError, "AddN"), OTHER),
    ),
    # tensorflow#33929.
    "clipnorm before the sum over replicas": clipped("clipnorm", 0.05),
    "global_clipnorm before the sum over replicas": clipped("global_clipnorm", 0.05),
    "clipvalue before the sum over replicas": clipped("clipvalue", 0.01),
    # keras#19005; with a loss scale keras#21366, keras#20763.
    "XLA": (
        *({}, {"compiled": {"jit_compile": True}}, {"wrap": {"jit_compile": True}}),
        *[error(tf.errors.InvalidArgumentError, "from device")] * 2,
    ),
    "averaged weights that overwrite": (
        {"optimizer": lambda either: lambda: either.sgd(use_ema=True, ema_overwrite_frequency=2)},
        *({}, {}, MERGED, SAME),
    ),
}
"""Arguments of all trainings, of plain Keras's on two replicas, of ours; what plain Keras 3 and tf_keras make of it."""


@SLOW
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("what", SITUATIONS)
def test_two_replicas_are_one(either, what, policy):
    if policy != "float32" and what not in ("XLA", "one or several replicas"):
        pytest.skip("what a loss scale changes (keras#18666: merge_call) is in two of them")
    both, plain, ours, *results = SITUATIONS[what]
    both = both | ({"optimizer": both["optimizer"](either)} if "optimizer" in both else {})
    result = results[0 if either.is_keras_3 else 1]
    with either.policy(policy):
        one, found = either.plain(**both), either.ours(**both | ours)
        if callable(result):
            with result():
                either.plain(replicas=2, **both | plain)
        else:
            two = either.plain(replicas=2, **both | plain)
            assert np.isfinite(two.history["loss"]).all()
            assert (apart(one, two) > OTHER) == (result == OTHER)
    tolerance = SAME if policy == "float32" else OTHER
    assert apart(one, found) < tolerance
    for name, values in one.history.items():
        np.testing.assert_allclose(found.history[name], values, atol=tolerance)


@SLOW
def test_averages_of_batch_normalization(either):
    make = lambda: either.classifier(either.keras.layers.BatchNormalization(momentum=0.5))  # noqa: E731
    plain, found = either.plain(make, replicas=2), either.ours(make)
    mean = found.model.model.layers[1].moving_mean
    of_replicas = strategy_of(2).experimental_local_results(mean.value if either.is_keras_3 else mean)
    if either.is_keras_3:  # Plain Keras 3 shows and saves those of the first replica.
        shown = strategy_of(2).experimental_local_results(plain.model.layers[1].moving_mean.value)
        np.testing.assert_array_equal(plain.weights[4], shown[0].numpy())
        assert np.abs(shown[0] - shown[1]).max() > OTHER
        np.testing.assert_array_equal(of_replicas[0].numpy(), of_replicas[1].numpy())
        np.testing.assert_allclose(found.weights[4], np.mean(shown, axis=0), atol=SAME)
    else:
        np.testing.assert_allclose(found.weights[4], plain.weights[4], atol=SAME)


@SLOW
def test_synchronized_batch_normalization(either):
    """keras#18667. FineTuner says that it does not do this."""
    make = lambda: either.classifier(either.keras.layers.BatchNormalization(synchronized=True))  # noqa: E731
    one, two = (either.plain(make, replicas=count) for count in (1, 2))
    assert apart(one, two) < SAME
    with pytest.raises(ValueError, match="synchronized=True on several replicas"):
        either.ours(make)


@SLOW
def test_dropout(either):
    """Plain Keras draws other numbers for another number of replicas."""
    make = lambda: either.classifier(dropout=0.5)  # noqa: E731
    one, two = (either.plain(make, replicas=count) for count in (1, 2))
    assert apart(one, two) > OTHER
    assert apart(either.ours(make, replicas=1), either.ours(make, parts=2)) < SAME


@SLOW
def test_a_loss_that_is_one_number(either):
    """keras#16285: of a number that a loss took the mean of, a replica gives its own."""
    x, _ = rows(20)
    compiled = {"loss": lambda y, predicted: tf.reduce_mean((tf.cast(y, tf.float32) - predicted) ** 2)}
    one, two = (either.plain(xy=(x, x[:, :CLASSES]), replicas=count, compiled=compiled) for count in (1, 2))
    assert (apart(one, two) > OTHER) == either.is_keras_3
    with pytest.raises(ValueError, match="A loss must return one value per row"):
        either.ours(xy=(x, x[:, :CLASSES]), compiled=compiled)


@SLOW
def test_masks_of_several_lengths(either):
    """Plain Keras takes the mean over the positions of each replica."""
    x, y = texts_of_two_lengths()
    make = lambda: either.tagger(either.keras.layers.Masking())  # noqa: E731
    one, two = (either.plain(make, (x, y), replicas=count) for count in (1, 2))
    assert apart(one, two) > OTHER
    assert apart(one, either.ours(make, (x, y))) < SAME
    lengths = (np.abs(x).sum(axis=-1) > 0).astype(np.float32)
    assert apart(one, either.ours(either.tagger, (x, y), sample_weight=lengths)) < SAME


def texts_of_two_lengths():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(8, 6, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, (8, 6))
    x[4:, 1:] = 0
    return x, y


@SLOW
def test_what_batches_report(either):
    """tensorflow#39268: of a metric that is no mean, plain Keras 3 reports the mean of the replicas' values."""
    x, y = rows(40)
    y = (y > 0).astype(np.float32)[:, None]

    def make():
        either.keras.utils.set_random_seed(3)
        layers = either.keras.layers
        return either.keras.Sequential([layers.Input([FEATURES]), layers.Dense(1, activation="sigmoid")])

    def seen(train, replicas):
        class Batches(either.keras.callbacks.Callback):
            values = []

            def on_train_batch_end(self, batch, logs=None):
                self.values.append(float(logs["auc"]))

        with strategy_of(replicas).scope():
            metrics = [either.keras.metrics.AUC(name="auc")]
        train(make, (x, y), compiled={"loss": "binary_crossentropy", "metrics": metrics}, callbacks=[Batches()])
        return Batches.values

    one, two = (seen(lambda *a, n=n, **k: either.plain(*a, replicas=n, **k), n) for n in (1, 2))
    assert (np.abs(np.subtract(one, two)).max() > OTHER) == either.is_keras_3
    np.testing.assert_allclose(seen(either.ours, 2), one, atol=SAME)
