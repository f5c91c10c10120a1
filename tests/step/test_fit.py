"""FineTuner from a user's own code: what plain Keras does on one device, it does too, under any split."""

import contextlib
import logging
import re

import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.cases import SLOW, slow
from tests.support.either_keras import CLASSES, FEATURES, OVER_BOTH, apart, rows, splits, weights
from tests.support.models import strategy_of

SPLITS, SPLITS_OF_ONE = splits((2, 2)), splits((1, 3))
"""Quick where what matters is what all replicas make together, or what one does."""


# Losses.

X, Y = rows(40)
ONE_HOT = np.eye(CLASSES, dtype=np.float32)[Y]
LABELS = {
    "classes": Y,
    "column": Y[:, None],
    "one_hot": ONE_HOT,
    "binary": (Y > 0).astype(np.int32),
    "column_binary": (Y > 0).astype(np.float32)[:, None],
    "float": X[:, 0] * 2 - X[:, 1],
}


@SLOW
@pytest.mark.parametrize(
    "loss, outputs, activation, labels",
    [
        (lambda losses: losses.SparseCategoricalCrossentropy(), CLASSES, "softmax", "column"),
        (lambda losses: losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), 3, None, "one_hot"),
        (lambda losses: losses.BinaryCrossentropy(from_logits=True), 1, None, "column_binary"),
        (lambda losses: losses.Huber(), 1, None, "float"),
        (lambda losses: losses.CosineSimilarity(), CLASSES, None, "one_hot"),
        (lambda losses: lambda y, p: tf.reduce_mean((y - p) ** 2, -1), CLASSES, None, "one_hot"),
        (lambda losses: "binary_crossentropy", 1, "sigmoid", "binary"),
        (lambda losses: "mean_squared_error", 1, None, "float"),
        (lambda losses: "sparse_categorical_crossentropy", CLASSES, "softmax", "classes"),
        (lambda losses: "categorical_crossentropy", CLASSES, "softmax", "one_hot"),
    ],
)
def test_keras_losses_give_keras_weights(either, loss, outputs, activation, labels):
    make = lambda: either.classifier(outputs=outputs, activation=activation)  # noqa: E731
    either.like(make, (X, LABELS[labels]), compiled=lambda: {"loss": loss(either.keras.losses)})


@SPLITS_OF_ONE
@pytest.mark.parametrize("loss", ["mse", slow("binary_crossentropy"), slow("huber")])
@pytest.mark.parametrize(
    "width, squeezed, column", [slow(0, True, True), slow(0, True, False), (7, False, False), slow(7, True, True)]
)
def test_a_last_dimension_of_1_makes_no_difference(either, width, squeezed, column, loss, replicas, parts):
    """`[rows]` beside `[rows, 1]` broadcasts to `[rows, rows]`: a loss that depends on the split, and no error.

    A number for each row of `[rows, 5]`, or for each position of `[rows, 7, 5]`.
    """
    kinds, positions, rng = either.layers, [width] if width else [], np.random.default_rng(0)
    layers = lambda: [kinds.Dense(1, activation="sigmoid"), *([kinds.Reshape(positions)] if squeezed else [])]  # noqa: E731
    x = rng.normal(size=(21, *positions, FEATURES)).astype(np.float32)
    y = rng.integers(0, 2, x.shape[:-1]).astype(np.float32)
    fit = {"batch_size": 7}  # As many rows as positions.
    data = x, y[..., None] if column else y
    make = lambda: either.sequential(layers, shape=[*positions, FEATURES])  # noqa: E731
    either.like(make, data, replicas=replicas, parts=parts, compiled={"loss": loss}, **fit)


# Weights of rows.


def test_what_is_huge_in_a_row_without_weight_does_no_harm(either):
    fit = {"sample_weight": np.where(np.arange(40) == 7, 0.0, 1.0).astype(np.float32), "batch_size": 40}
    spoilt = X.copy()
    spoilt[7] = 1e30  # Finite, but its loss need not be.
    found = either.ours(xy=(X, Y), replicas=1, compiled={"run_eagerly": True}, **fit)
    again = either.ours(xy=(spoilt, Y), replicas=1, **fit)
    assert apart(again, found) < 2e-6


# Metrics, evaluation, prediction.


@SPLITS
def test_history_and_weights_are_those_of_plain_keras(either, replicas, parts):
    """Metrics, weighted or not, sample_weight and evaluation; what batches report; what layers add to the loss, which
    comes once however a batch is split; averages of the weights that overwrite them."""
    x, y = rows(37)
    seen = []  # By one for both runs: what batches report comes twice.
    note = lambda batch, logs: seen.append([float(logs[name]) for name in sorted(logs)])  # noqa: E731
    entropy = lambda: either.keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy")  # noqa: E731
    compiled = lambda: {"metrics": ["accuracy"], "weighted_metrics": [entropy()]}  # noqa: E731
    fit = {"validation_data": (x[:13], y[:13]), "sample_weight": np.linspace(0.3, 2, 37).astype(np.float32)}
    averages = {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 3}
    optimizer = lambda: either.keras.optimizers.AdamW(1e-2, weight_decay=0.1, epsilon=1e-3, **averages)  # noqa: E731
    make = lambda: either.classifier(regularizer=either.keras.regularizers.L2(0.1))  # noqa: E731
    callbacks = [either.keras.callbacks.LambdaCallback(on_train_batch_end=note)]
    fit |= {"replicas": replicas, "parts": parts, "callbacks": callbacks, "epochs": 2}
    found = either.like(make, (x, y), compiled=compiled, optimizer=optimizer, **fit)
    one, other = np.split(np.array(seen), 2)
    np.testing.assert_allclose(other, one, atol=1e-5)
    if not either.is_keras_3:
        assert [metric.name for metric in found.model.metrics] == ["loss", "accuracy", "entropy"]


@pytest.mark.parametrize("count, replicas", [(17, 2), slow(1, 2), slow(1, 1), slow(17, 1), slow(40, 1), slow(40, 2)])
def test_evaluate_and_predict_are_the_wrapped_models(either, count, replicas):
    x, y = rows(count)
    model = either.classifier()
    model.compile("sgd", either.loss(), metrics=["accuracy"], run_eagerly=True)
    trained = either.build(replicas=replicas, gradient_accumulation_steps=4, compiled={"metrics": ["accuracy"]})
    options = {"sample_weight": np.linspace(0.5, 1.5, count), "batch_size": 8, "verbose": 0, "return_dict": True}
    assert trained.evaluate(x, y, **options) == pytest.approx(model.evaluate(x, y, **options), abs=1e-6)
    np.testing.assert_allclose(trained.predict(x, batch_size=8, verbose=0), model(x), atol=1e-6)


# Optimizers.


@SLOW
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "schedule", "name"])
def test_keras_optimizers(either, name, replicas):
    kinds = either.keras.optimizers
    make = {"schedule": lambda: kinds.SGD(kinds.schedules.ExponentialDecay(0.5, 2, 0.5)), "name": lambda: "adagrad"}
    make |= {each: lambda: getattr(kinds, name)(0.01) for each in ("SGD", "Adam", "AdamW", "RMSprop")}
    found = either.like(replicas=replicas, parts=5, optimizer=make[name], epochs=2)
    assert int(found.model.optimizer.iterations.numpy()) == 8


# Models.


@pytest.mark.parametrize("replicas, parts", [(1, 4), slow(2, 2)])
def test_what_is_frozen_or_not_reached_by_the_loss_stays_as_it_is(either, replicas, parts, caplog):
    """Plain Keras leaves it out of the update, weight decay included, and names what is not reached.

    Compiled again, a model has the new optimizer, which trains what is trainable now.
    """
    kinds = either.layers

    class IdleHead(either.keras.Model):
        def __init__(self):
            super().__init__()
            self.used = either.classifier()
            self.used.layers[0].trainable = False
            self.idle = kinds.Dense(2, kernel_initializer="ones", name="idle")
            self.idle.build([None, 3])

        def call(self, inputs):
            return self.used(inputs)

    optimizer = lambda: either.keras.optimizers.AdamW(0.01, weight_decay=0.5)  # noqa: E731
    warns = pytest.warns(UserWarning, match="Gradients do not exist")  # As Keras 3 does of the plain model's.
    with caplog.at_level(logging.WARNING, "tfbert"), warns if either.is_keras_3 else contextlib.nullcontext():
        trained = either.like(IdleHead, replicas=replicas, parts=parts, optimizer=optimizer).model
    np.testing.assert_array_equal(np.array(trained.model.idle.kernel), np.ones([3, 2]))
    said = [record.getMessage() for record in caplog.records if "does not depend" in record.getMessage()]
    names = r"\S*idle/kernel, \S*idle/bias" if either.is_keras_3 else "kernel:0, bias:0"
    assert len(said) == 1 and re.search(f"depend on them: {names}$", said[0])
    trained.model.used.layers[0].trainable = True
    with strategy_of(replicas).scope():
        trained.compile(either.keras.optimizers.Adam(0.1), either.loss())
    before = weights(trained.model.used)
    trained.fit(X, Y, batch_size=40, verbose=0)
    for now, start in zip(weights(trained.model.used), before, strict=True):  # Adam's first step.
        np.testing.assert_allclose(np.abs(now - start), 0.1, rtol=1e-2)


# Ways of running.


@SLOW
@SPLITS
def test_data_sets_generators_and_sequences(either, replicas, parts):
    sequence = either.keras.utils.PyDataset if either.is_keras_3 else either.keras.utils.Sequence

    class Batches(sequence):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            part = slice(10 * index, 10 * index + 10)
            return X[part], Y[part]

    expected, made = either.plain(), Batches()
    data_set = tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)
    others = (made, (made[index] for index in range(4))) if either.is_keras_3 or replicas == 1 else ()
    for batches in (data_set, *others):
        found = either.ours(xy=(batches, None), batch_size=None, replicas=replicas, parts=parts)
        assert apart(found, expected) < 1e-5
        np.testing.assert_allclose(found.history["loss"], expected.history["loss"], atol=1e-5)


def test_single_batches(either):
    """In Keras 3, their rows are divided among the replicas."""
    x, y = rows(11)
    plain = either.classifier()
    plain.compile(either.sgd(momentum=0.9), either.loss(), run_eagerly=True)
    optimizer = lambda: either.sgd(momentum=0.9)  # noqa: E731
    replicas = 2 if either.is_keras_3 else 1
    model = either.build(replicas=replicas, gradient_accumulation_steps=2, optimizer=optimizer)
    for _ in range(2):
        expected, found = plain.train_on_batch(x, y), model.train_on_batch(x, y)
        assert float(found) == pytest.approx(float(expected), abs=1e-6)
    assert apart(weights(model), weights(plain)) < 1e-5
    assert float(model.test_on_batch(x, y)) == pytest.approx(float(plain.test_on_batch(x, y)), abs=1e-6)
    np.testing.assert_allclose(model.predict_on_batch(x), plain.predict_on_batch(x), atol=1e-6)
    if either.is_keras_3:
        sparse = either.keras.Sequential([either.keras.Input([FEATURES], sparse=True), either.layers.Dense(2)])
        assert tfbert.FineTuner(sparse).predict_on_batch(tf.sparse.from_dense(x)).shape == (11, 2)


@SLOW
@pytest.mark.parametrize("replicas", [1, 2])
def test_standard_callbacks(either, replicas, tmp_path):
    kinds, other = either.keras.callbacks, (Y + 1) % CLASSES
    options = {"optimizer": lambda: either.sgd(5.0), "compiled": {"metrics": ["accuracy"]}}
    trained = either.build(replicas=replicas, gradient_accumulation_steps=2, **options)
    callbacks = [
        kinds.EarlyStopping("val_loss", patience=3, restore_best_weights=True, start_from_epoch=0),
        kinds.ReduceLROnPlateau("val_loss", factor=0.1, patience=1, min_delta=100.0),
        kinds.CSVLogger(str(tmp_path / "log.csv")),
        kinds.TerminateOnNaN(),
    ]
    if either.is_keras_3:
        callbacks += [
            kinds.ModelCheckpoint(str(tmp_path / "best.keras"), monitor="val_loss", save_best_only=True),
            kinds.TensorBoard(str(tmp_path / "board")),
            kinds.BackupAndRestore(str(tmp_path / "backup")),
        ]
    fit = {"validation_data": (X, other), "batch_size": 10, "shuffle": False, "verbose": 0}  # Learning makes it worse.
    history = trained.fit(X, Y, epochs=12, callbacks=callbacks, **fit).history
    epochs, best = len(history["loss"]), int(np.argmin(history["val_loss"]))
    assert epochs == best + 4 < 12
    np.testing.assert_allclose(history["learning_rate" if either.is_keras_3 else "lr"][:3], [5.0, 5.0, 0.5], rtol=1e-6)
    assert trained.evaluate(X, other, verbose=0)[0] == pytest.approx(history["val_loss"][best], rel=1e-5)
    if either.is_keras_3:
        loaded = either.keras.models.load_model(str(tmp_path / "best.keras"))
        np.testing.assert_allclose(loaded.predict(X, verbose=0), trained.predict(X, verbose=0), atol=1e-5)
        assert (tmp_path / "board").is_dir() and not (tmp_path / "backup").exists()
    assert len((tmp_path / "log.csv").read_text().splitlines()) == epochs + 1


@OVER_BOTH
def test_a_configuration_makes_the_same_model(either):
    options = {"gradient_accumulation_steps": 3, "max_grad_norm": 2.0, "jit_compile": True, "seed": 7, "name": "mine"}
    options["all_reduce_dtype"] = "bfloat16"
    first = tfbert.FineTuner(either.classifier(), **options)
    second = type(first).from_config(first.get_config())
    assert second.get_config() | {"model": None} == options | {"model": None}
    second.model.set_weights(first.model.get_weights())
    np.testing.assert_array_equal(second(X).numpy(), first(X).numpy())


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_export(either, replicas, tmp_path):
    model = either.build(replicas=replicas)
    expected = model.predict(X, verbose=0)
    model.export(str(tmp_path / "exported"))
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(exported.serve(X), expected, atol=1e-6)


def test_a_batch_without_rows_is_an_update_without_gradients(either):
    """Of a width that random counters do not divide: they are counted for each row."""
    layers = lambda: [either.layers.Dense(5), either.layers.Dropout(0.5), either.layers.Dense(2)]  # noqa: E731
    model = either.build(lambda: either.sequential(layers, shape=[4]), replicas=None)
    rows = lambda: ((np.ones([n, 4], np.float32), np.zeros(n, np.int64)) for n in (4, 0, 3))  # noqa: E731
    signature = (tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int64))
    model.fit(tf.data.Dataset.from_generator(rows, output_signature=signature), verbose=0)
    assert (int(model.counters.finite_steps), int(model.counters.skipped_steps)) == (3, 0)
