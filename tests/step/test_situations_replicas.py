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


@SLOW
def test_one_or_several_replicas(either):
    """keras#19891, keras#19280, keras#19308: losses, metrics and weights depended on their number."""
    compiled = {"metrics": ["accuracy"]}
    one, two = (either.plain(replicas=count, compiled=compiled) for count in (1, 2))
    found = either.ours(compiled=compiled)
    assert max(apart(one, two), apart(one, found)) < SAME
    for name, values in one.history.items():
        np.testing.assert_allclose([two.history[name], found.history[name]], [values, values], atol=SAME)


@SLOW  # By default `test_history_and_weights_are_those_of_plain_keras` has such a batch.
def test_a_last_batch_that_they_do_not_divide(either):
    one, two = (either.plain(xy=rows(43), replicas=count) for count in (1, 2))
    assert apart(one, two) > OTHER
    assert apart(one, either.ours(xy=rows(43))) < SAME


@SLOW
def test_a_last_batch_of_fewer_rows_than_replicas(either):
    """tensorflow#36224: a replica without rows gave a loss that is not a number."""
    one, two = (either.plain(xy=rows(41), replicas=count) for count in (1, 2))
    assert np.isfinite(two.history["loss"]).all() and apart(one, two) > OTHER
    assert apart(one, either.ours(xy=rows(41))) < SAME


@SLOW
def test_a_first_batch_that_they_do_not_divide(either):
    one = either.plain(xy=rows(7))
    if either.is_keras_3:
        with pytest.raises(tf.errors.InvalidArgumentError, match="AddN"):
            either.plain(xy=rows(7), replicas=2)
    else:
        assert apart(one, either.plain(xy=rows(7), replicas=2)) > OTHER
    assert apart(one, either.ours(xy=rows(7))) < SAME


@SLOW
@pytest.mark.parametrize("option, largest", [("clipnorm", 0.05), ("global_clipnorm", 0.05), ("clipvalue", 0.01)])
def test_clipping_before_the_sum_over_replicas(either, option, largest):
    """tensorflow#33929."""
    optimizer = lambda: either.sgd(**{option: largest})  # noqa: E731
    one, two = (either.plain(replicas=count, optimizer=optimizer) for count in (1, 2))
    assert (apart(one, two) > OTHER) == either.is_keras_3
    assert apart(one, either.ours(optimizer=optimizer)) < SAME


@SLOW
def test_a_loss_scale(either):
    """keras#18666: merge_call."""
    with either.policy("mixed_float16"):
        one, two = (either.plain(replicas=count) for count in (1, 2))
        found = either.ours()
    assert "LossScale" in type(two.model.optimizer).__name__ and "LossScale" in type(found.model.optimizer).__name__
    assert max(apart(one, two), apart(one, found)) < OTHER


@SLOW
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_xla(either, policy):
    """keras#19005; with a loss scale keras#21366, keras#20763."""
    with either.policy(policy):
        one = either.plain()
        with pytest.raises(tf.errors.InvalidArgumentError, match="from device"):
            either.plain(replicas=2, compiled={"jit_compile": True})
        found = either.ours(wrap={"jit_compile": True})
    assert apart(one, found) < (SAME if policy == "float32" else OTHER)


@SLOW
def test_several_batches_in_one_execution(either):
    compiled = {"steps_per_execution": 3}
    one = either.plain()
    if either.is_keras_3:
        with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value for placeholder"):
            either.plain(replicas=2, compiled=compiled)
    else:
        assert apart(one, either.plain(replicas=2, compiled=compiled)) < SAME
    assert apart(one, either.ours(compiled=compiled)) < SAME


@SLOW
def test_averaged_weights_that_overwrite(either):
    optimizer = lambda: either.sgd(use_ema=True, ema_overwrite_frequency=2)  # noqa: E731
    one = either.plain(optimizer=optimizer)
    if either.is_keras_3:
        with pytest.raises(RuntimeError, match="merge_call"):
            either.plain(replicas=2, optimizer=optimizer)
    else:
        assert apart(one, either.plain(replicas=2, optimizer=optimizer)) < SAME
    assert apart(one, either.ours(optimizer=optimizer)) < SAME


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
    """Plain Keras takes the mean over the positions of each replica; FineTuner asks for weights."""
    x, y = texts_of_two_lengths()
    make = lambda: either.tagger(either.keras.layers.Masking())  # noqa: E731
    one, two = (either.plain(make, (x, y), replicas=count) for count in (1, 2))
    assert apart(one, two) > OTHER
    with pytest.raises(ValueError, match="masked positions without a sample_weight for each"):
        either.ours(make, (x, y))
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
