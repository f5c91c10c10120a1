"""Situations that users of Keras report, on one device: what plain Keras does, and what FineTuner does.

The table in docs/fit.md has them, but for a lost worker and a file in another process. Where plain Keras has been
mended since, that is asserted too.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.either_keras import CLASSES, FEATURES, SLOW, Either, apart, rows, weights

ROOT = pathlib.Path(__file__).parents[2]
SAME, OTHER = 1e-5, 1e-3


@SLOW  # By default test_refusals has FineTuner's half.
def test_objects_of_the_two_kerases_together(three):
    """keras#19262, #21666: transformers' models for TensorFlow are of tf_keras, while `tf.keras` is Keras 3."""
    from tests.support.tf_keras_models import tiny_bert  # Imports transformers, which no quick test here needs.

    two = Either("tf_keras")
    adam = three.keras.optimizers.Adam(1e-5)
    for model in (tiny_bert(), two.classifier()):
        with pytest.raises(ValueError, match="Could not interpret optimizer identifier"):
            model.compile(adam, "mse")
        with pytest.raises(ValueError, match="Received: optimizer=Adam of Keras 3. Write `import tf_keras`"):
            tfbert.FineTuner(model).compile(adam, "mse")
    model, adam = three.classifier(), two.keras.optimizers.Adam(1e-5)
    with pytest.raises(ValueError, match="Could not interpret optimizer identifier"):
        model.compile(adam, "mse")
    with pytest.raises(ValueError, match="Received: optimizer=Adam of tf_keras. Write `import keras`"):
        tfbert.FineTuner(model).compile(adam, "mse")


def test_a_lost_worker_ends_fit_in_one_line(either):
    """Plain Keras shows the message of the operation that noticed it, in four lines."""

    class Loses(either.keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            message = "Collective ops is aborted by: unhealthy:\n/job:worker/replica:0/task:1\nRestart your program"
            raise tf.errors.UnavailableError(None, None, message)

    with pytest.raises(tfbert.RunError, match="lost contact with worker 1. See its output") as caught:
        either.ours(replicas=1, callbacks=[Loses()])
    assert "\n" not in str(caught.value)
    with pytest.raises(tf.errors.UnavailableError, match="\n"):
        either.plain(callbacks=[Loses()])


def accumulating(three, **options):
    return lambda: three.sgd(gradient_accumulation_steps=2, **options)


def parts_of_two_sizes(three):
    """keras#19990: equal parts are exact since; others still have the same share, whatever their size."""
    data, big = {"xy": rows(30)}, {"batch_size": 30}
    small = three.plain(batch_size=20, optimizer=accumulating(three), **data)
    return three.plain(**big, **data), small, three.ours(parts=4, replicas=1, **big, **data)


def an_epoch_that_ends_between_two_updates(three):
    """Plain Keras leaves the last rows to the next epoch, or to nobody."""
    data, big = {"xy": rows(50)}, {"batch_size": 20}
    small = three.plain(optimizer=accumulating(three), **data)
    return three.plain(**big, **data), small, three.ours(parts=2, replicas=1, **big, **data)


def a_schedule_of_the_learning_rate(three):
    """Plain Keras counts micro-batches, so that the rate falls as many times too fast."""
    rate = lambda: three.keras.optimizers.schedules.PolynomialDecay(0.5, 2)  # noqa: E731
    whole = {"batch_size": 20, "optimizer": lambda: three.keras.optimizers.SGD(rate())}
    small = lambda: three.keras.optimizers.SGD(rate(), gradient_accumulation_steps=2)  # noqa: E731
    return three.plain(**whole), three.plain(optimizer=small), three.ours(parts=2, replicas=1, **whole)


def one_micro_batch_that_is_not_finite(three):
    """With a loss scale, plain Keras leaves out that part, and trains on the others as if they were all."""
    fit = {"sample_weight": np.where(np.arange(40) == 12, np.inf, 1.0).astype(np.float32)}
    whole = {"batch_size": 20, "optimizer": lambda: three.scaled(three.sgd())}
    parts = three.plain(optimizer=lambda: three.scaled(accumulating(three)()), **fit)
    return three.plain(**whole, **fit), parts, three.ours(parts=2, **whole, **fit)


def rows_of_weight_zero(either):
    """keras#19740: they count in the mean of plain Keras."""
    x, y = rows(8)
    fit = {"xy": (x, y), "sample_weight": np.repeat([1.0, 0.0], 4).astype(np.float32)}
    return either.plain(xy=(x[:4], y[:4])), either.plain(**fit), either.ours(parts=2, **fit)


def classes_of_weight_zero(either):
    x, y = rows(30)
    fit = {"xy": (x, y), "batch_size": 30, "class_weight": {0: 1.0, 1: 1.0, 2: 0.0}}
    alone = either.plain(xy=(x[y != 2], y[y != 2]), batch_size=30)
    return alone, either.plain(**fit), either.ours(parts=2, **fit)


def padding_of_weight_zero(either):
    """tensorflow#34491: the loss is divided by all positions."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(8, 6, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, (8, 6))
    mask = (np.arange(6) < np.repeat([6, 1], 4)[:, None]).astype(np.float32)
    alone = either.plain(either.tagger, (x[mask > 0][:, None], y[mask > 0][:, None]), batch_size=int(mask.sum()))
    trained = [train(either.tagger, (x, y), sample_weight=mask) for train in (either.plain, either.ours)]
    return alone, *trained


@SLOW
@pytest.mark.parametrize(
    "situation",
    [
        *(parts_of_two_sizes, an_epoch_that_ends_between_two_updates, a_schedule_of_the_learning_rate),
        *(one_micro_batch_that_is_not_finite, rows_of_weight_zero, classes_of_weight_zero, padding_of_weight_zero),
    ],
)
def test_what_plain_keras_makes_otherwise(either, situation):
    """Each gives a reference, plain Keras's training and ours."""
    if "zero" not in situation.__name__ and not either.is_keras_3:
        pytest.skip("only Keras 3 accumulates")
    expected, plain, found = situation(either)
    assert apart(expected, plain) > OTHER and apart(expected, found) < SAME
    assert found.history["loss"][-1] == pytest.approx(expected.history["loss"][-1], abs=SAME)


def test_adam_where_a_token_occurs_twice(either):
    """Plain Keras 3 adds up the squares of the parts of its gradient. tf_keras and FineTuner square their sum."""

    def make():
        kinds = either.keras.layers
        embedding = kinds.Embedding(3, 1, embeddings_initializer="ones")
        return either.keras.Sequential([kinds.Input([2], dtype="int32"), embedding, kinds.GlobalAveragePooling1D()])

    data = np.array([[1, 1]]), np.array([[0.0]], np.float32)
    train = {"optimizer": lambda: either.keras.optimizers.Adam(0.1), "compiled": {"loss": "mse"}}
    plain, found = either.plain(make, data, **train), either.ours(make, data, replicas=1, **train)
    assert plain.weights[0][1, 0] == pytest.approx(0.85858 if either.is_keras_3 else 0.9, abs=1e-5)
    assert found.weights[0][1, 0] == pytest.approx(0.9, abs=1e-5)


@SLOW
def test_clipping_where_a_token_occurs_twice(either):
    """The norm of an embedding's gradient, of which plain Keras adds up the parts of one token by themselves."""
    clip, data = 1e-2, (np.zeros((4, 4), np.int32), np.zeros(4, np.int32))
    before = weights(either.words())

    def moved(trained):
        return np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(before, trained.weights, strict=True))) / clip

    optimizer = lambda: either.keras.optimizers.SGD(1.0, global_clipnorm=clip)  # noqa: E731
    assert moved(either.plain(either.words, data, optimizer=optimizer)) == pytest.approx(1.2511, abs=1e-3)
    assert moved(either.ours(either.words, data, optimizer=optimizer)) == pytest.approx(1, abs=1e-3)


@SLOW
def test_dropout_and_accumulation(three):
    make = lambda: three.classifier(dropout=0.5)  # noqa: E731
    plain = three.plain(make, batch_size=20), three.plain(make, optimizer=accumulating(three))
    assert apart(*plain) > OTHER
    found = [three.ours(make, batch_size=20, replicas=1, parts=parts) for parts in (1, 2)]
    assert apart(*found) < SAME


@SLOW
def test_dropout_in_a_run_that_is_taken_up_again(either, tmp_path):
    """Two epochs, or one, a file and another one."""
    make = lambda: either.classifier(dropout=0.5)  # noqa: E731
    straight = {}
    for name, train in (("plain", either.plain), ("ours", either.ours)):
        straight[name] = train(make, replicas=1, epochs=2)
        train(make, replicas=1).model.save(tmp_path / f"{name}.keras")
    for name, is_same in (("plain", False), ("ours", True)):
        loaded = either.keras.models.load_model(tmp_path / f"{name}.keras")
        assert isinstance(loaded, tfbert.FineTuner) == (name == "ours")
        loaded.fit(*rows(40), batch_size=10, shuffle=False, verbose=0)
        difference = apart(straight[name].weights, weights(loaded))
        assert difference == 0 if is_same else difference > OTHER


@SLOW
def test_averages_in_a_step_that_is_skipped(either):
    """With a loss scale, the weights are spared; the averages of BatchNormalization only by FineTuner."""
    x, y = rows(20)
    x[12] = np.inf
    make = lambda: either.classifier(either.keras.layers.BatchNormalization())  # noqa: E731
    optimizer = lambda: either.scaled(either.sgd())  # noqa: E731
    plain, found = (train(make, (x, y), replicas=1, optimizer=optimizer) for train in (either.plain, either.ours))
    assert [bool(np.isfinite(weight).all()) for weight in plain.weights] == [True] * 4 + [False] * 2 + [True] * 2
    assert all(np.isfinite(weight).all() for weight in found.weights)


@SLOW
@pytest.mark.parametrize("is_known", [True, False])
def test_a_file_in_another_process(three, tmp_path, is_known):
    """Keras 3 imports no class that a file names: `from tfbert import FineTuner` makes it known."""
    three.ours(replicas=1).model.save(tmp_path / "model.keras")
    lines = ["import keras", *(["from tfbert import FineTuner"] if is_known else [])]
    lines.append("print(type(keras.models.load_model('model.keras')).__name__)")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    if is_known:
        assert done.stdout.strip() == "FineTuner", done.stderr
    else:
        assert "Could not locate class 'FineTuner'" in done.stderr
