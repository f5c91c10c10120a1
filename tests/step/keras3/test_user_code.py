"""Keras 3: what users bring works with plain Keras's numbers, wherever a batch is split."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.keras3 import (
    CLASSES,
    FEATURES,
    assert_close,
    assert_like_keras,
    build,
    classifier,
    data,
    logits_loss,
    sgd,
    train,
    weights,
    with_preprocessor,
)
from tfbert.step.keras3.data import for_fit

SLOW = pytest.mark.slow
SPLIT = {"replicas": 2, "options": {"gradient_accumulation_steps": 2}}
logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)


class Plain(keras.Model):
    """A subclassed model, built by its first batch; its call takes no `training`."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.out = keras.layers.Dense(CLASSES)

    def call(self, x):
        return self.out(self.hidden(x))


def made(kind=Plain):
    keras.utils.set_random_seed(3)
    return kind()


def two_heads(names=("tag", "score")):
    """Outputs by name or, without names, as a list."""
    keras.utils.set_random_seed(4)
    one, other = keras.Input([FEATURES], name="one"), keras.Input([2], name="other")
    hidden = keras.layers.Dense(6, activation="tanh")(keras.layers.Concatenate()([one, other]))
    tag, score = keras.layers.Dense(CLASSES, name="a")(hidden), keras.layers.Dense(1, name="b")(hidden)
    outputs = dict(zip(names, (tag, score), strict=True)) if names else [tag, score]
    return keras.Model({"one": one, "other": other}, outputs)


def of_two_heads(names=("tag", "score")):
    x, y = data()
    rng = np.random.default_rng(5)
    labels = y, rng.normal(size=(len(y), 1)).astype(np.float32)
    inputs = {"one": x, "other": rng.normal(size=(len(y), 2)).astype(np.float32)}
    return inputs, dict(zip(names, labels, strict=True)) if names else list(labels)


@SLOW
@pytest.mark.parametrize("names", [("tag", "score"), None])
def test_several_inputs_and_outputs_with_a_loss_each(names):
    """Terms by the names that Keras gives them, weighted by loss_weights and each by weights of its own."""
    inputs, labels = of_two_heads(names)
    losses = [logits_loss(), "mse"], [1.0, 0.3], [["accuracy"], ["mae"]]
    as_given = (lambda each: dict(zip(names, each, strict=True))) if names else list
    loss, loss_weights, metrics = map(as_given, losses)
    compiled = {"loss": lambda: loss, "loss_weights": lambda: loss_weights, "metrics": lambda: metrics}
    row_weights = np.linspace(0.5, 2, 40).astype(np.float32)
    fit = {"sample_weight": as_given([row_weights, row_weights[::-1].copy()])}
    make = lambda: two_heads(names)  # noqa: E731
    assert_like_keras(make, inputs, labels, compiled=compiled, **SPLIT, **fit)


@SLOW
@pytest.mark.parametrize("make", [made, lambda: classifier(regularizer="l2")])
def test_models_of_all_kinds(make):
    """Subclassed and unbuilt; with regularisation of weights, which counts once."""
    assert_like_keras(make, *data(37), **SPLIT)


@SLOW
@pytest.mark.parametrize(
    "compiled, labels, outputs",
    [
        ({"loss": lambda: "crossentropy"}, lambda y: y, "softmax"),
        ({"loss": lambda: "categorical_crossentropy"}, lambda y: np.eye(CLASSES, dtype=np.float32)[y], "softmax"),
        ({"loss": lambda: "mse"}, lambda y: np.eye(CLASSES, dtype=np.float32)[y], None),
        ({"loss": lambda: lambda y, p: keras.ops.mean((y - p) ** 2, -1)}, lambda y: np.eye(CLASSES)[y], None),
        ({"loss": lambda: "binary_crossentropy"}, lambda y: np.eye(CLASSES, dtype=np.int32)[y], "sigmoid"),
    ],
)
def test_losses(compiled, labels, outputs):
    x, y = data()
    assert_like_keras(lambda: classifier(activation=outputs), x, labels(y), compiled=compiled, **SPLIT)


@SLOW
def test_class_weight_and_a_data_set():
    x, y = data()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
    fit = {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}, "batch_size": None, "validation_data": batches.take(2)}
    compiled = {"metrics": lambda: ["accuracy"], "weighted_metrics": lambda: ["accuracy"]}
    assert_like_keras(classifier, batches, None, compiled=compiled, **SPLIT, **fit)


@SLOW
def test_generators_and_sequences():
    x, y = data()

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            part = slice(10 * index, 10 * index + 10)
            return x[part], y[part]

    def generate():
        for start in range(0, 40, 10):
            yield x[start : start + 10], y[start : start + 10]

    expected, _, _ = train(classifier, x, y, wrap=False, epochs=1)
    for batches in (Batches(), generate()):
        found, _, _ = train(classifier, batches, None, **SPLIT, epochs=1, batch_size=None)
        assert_close(found, expected)


@SLOW
def test_frozen_layers_schedules_and_learning_rates_that_callbacks_set():
    def frozen():
        model = classifier()
        model.layers[0].trainable = False
        return model

    rate = lambda: keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(0.5, 6))  # noqa: E731
    assert_like_keras(frozen, *data(), compiled={"optimizer": rate}, **SPLIT)
    callbacks = [keras.callbacks.LearningRateScheduler(lambda epoch, _: [0.5, 0.01][epoch])]
    assert_like_keras(classifier, *data(), callbacks=callbacks, **SPLIT)


@SLOW
def test_callbacks(tmp_path):
    x, y = data()
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=0, min_delta=10, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=10),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", save_best_only=True),
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.TensorBoard(tmp_path / "board"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.BackupAndRestore(tmp_path / "backup"),
    ]
    _, history, model = train(classifier, x, y, epochs=9, validation_data=(x, y), callbacks=callbacks, **SPLIT)
    assert len(history["loss"]) == 2
    loaded = keras.models.load_model(tmp_path / "best.keras")
    model.load_weights(tmp_path / "2.weights.h5")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    assert {path.name for path in tmp_path.iterdir()} == {
        "best.keras",
        "1.weights.h5",
        "2.weights.h5",
        "log.csv",
        "board",
    }


class WithOwnLoss(Plain):
    """Weighs what is uncertain; its twin below takes the mean, as Keras's step needs it."""

    def per_row(self, y, y_pred, sample_weight):
        weight = 1.0 if sample_weight is None else tf.cast(sample_weight, tf.float32)
        return weight * logits(y, y_pred) + 0.1 * tf.reduce_sum(tf.nn.softmax(y_pred) ** 2, axis=-1)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return self.per_row(y, y_pred, sample_weight)


class WithItsMean(WithOwnLoss):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.reduce_mean(self.per_row(y, y_pred, sample_weight))


def test_a_compute_loss_with_a_value_per_row_is_honoured():
    x, y = data()
    fit = {"sample_weight": np.linspace(0, 2, len(x)).astype(np.float32)}
    compiled = {"loss": lambda: None}
    expected, _, _ = train(lambda: made(WithItsMean), x, y, wrap=False, compiled=compiled, **fit)
    found, _, _ = train(lambda: made(WithOwnLoss), x, y, compiled=compiled, **SPLIT, **fit)
    assert_close(found, expected)


class Centred(keras.optimizers.SGD):
    """Gradients without their mean."""

    def apply_gradients(self, grads_and_vars):
        return super().apply_gradients([(grad - tf.reduce_mean(grad), variable) for grad, variable in grads_and_vars])


class Signed(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
        super().update_step(keras.ops.tanh(100 * gradient), variable, learning_rate)


@pytest.mark.parametrize("optimizer", [Centred, pytest.param(Signed, marks=SLOW)])
def test_an_own_optimizer_gets_the_gradients_of_the_global_batch(optimizer):
    assert_like_keras(classifier, *data(), compiled={"optimizer": lambda: optimizer(0.1)}, **SPLIT)


@SLOW
def test_weights_of_positions_and_masks():
    """A tag a token: positions without weight count for nothing, so that rows may be padded."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(27, 6, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, (27, 6))
    mask = (np.arange(6) < rng.integers(0, 7, (27, 1))).astype(np.float32)

    def make():
        keras.utils.set_random_seed(1)
        return keras.Sequential([keras.layers.Input([None, FEATURES]), keras.layers.Dense(CLASSES)])

    compiled = {"optimizer": lambda: keras.optimizers.SGD(0.5)}
    fit = {"sample_weight": mask, "batch_size": 27, "epochs": 1}
    found, history, _ = train(make, x, y, compiled=compiled, **SPLIT, **fit)
    flat = mask.reshape(-1) > 0
    packed = x.reshape(-1, FEATURES)[flat], y.reshape(-1)[flat]
    with_rows = lambda: keras.Sequential([keras.layers.Input([FEATURES]), keras.layers.Dense(CLASSES)])  # noqa: E731

    def same():
        keras.utils.set_random_seed(1)
        return with_rows()

    expected, other, _ = train(same, *packed, wrap=False, compiled=compiled, epochs=1, batch_size=int(flat.sum()))
    assert_close(found, expected)
    np.testing.assert_allclose(history["loss"], other["loss"], atol=1e-6)


@SLOW
def test_averages_of_normalization_on_several_replicas_are_means():
    """Plain Keras 3 shows and saves those of the first replica."""

    def make():
        keras.utils.set_random_seed(1)
        return keras.Sequential([keras.layers.Input([FEATURES]), keras.layers.BatchNormalization(momentum=0.5)])

    x = data()[0]
    found, _, _ = train(make, x, x, replicas=2, compiled={"loss": lambda: "mse"}, epochs=1)
    mean = np.zeros(FEATURES)
    for start in range(0, 40, 10):
        mean = 0.5 * mean + 0.5 * x[start : start + 10].mean(axis=0)
    np.testing.assert_allclose(found[2], mean, atol=1e-5)


TEXTS = np.array(["the film was good", "the film was bad", "a fox", "good fox a film"] * 6)
LABELS = np.array([1, 0, 1, 1] * 6)


@SLOW
@pytest.mark.parametrize("lora", [False, True])
def test_a_kerashub_task_takes_texts(lora):
    fit = {"validation_data": (TEXTS[:5], LABELS[:5])}
    compiled = {"metrics": lambda: ["accuracy"]}
    make = lambda: with_preprocessor(lora)  # noqa: E731
    expected, history, plain = train(make, TEXTS, LABELS, wrap=False, compiled=compiled, **fit)
    found, own, model = train(make, TEXTS, LABELS, compiled=compiled, **SPLIT, **fit)
    assert_close(found, expected)
    for name, values in history.items():
        np.testing.assert_allclose(own[name], values, atol=1e-5, err_msg=name)
    for texts in (TEXTS[:3], TEXTS[:3].tolist(), tf.data.Dataset.from_tensor_slices(TEXTS[:3]).batch(2)):
        found = model.predict(texts, verbose=0)
        np.testing.assert_allclose(found, plain.predict(texts, verbose=0), atol=1e-5)
    assert model.evaluate(TEXTS, LABELS, verbose=0) == pytest.approx(plain.evaluate(TEXTS, LABELS, verbose=0), abs=1e-5)
    one, other = model.train_on_batch(TEXTS[:5], LABELS[:5]), plain.train_on_batch(TEXTS[:5], LABELS[:5])
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_rows_given_as_arrays_are_in_the_same_order_on_all_workers():
    x, y = np.arange(20, dtype=np.float32)[:, None], np.arange(20)
    orders = []
    for _ in range(2):
        given = for_fit({"x": x, "y": y, "batch_size": 8}, classifier(), seed=3, num_workers=2)
        orders.append([np.concatenate([labels.numpy() for _, labels in given["x"]]).tolist() for _ in range(2)])
        assert given["x"].options().autotune.enabled is False  # Or the end of an epoch may wait: private.py.
    assert orders[0] == orders[1] and orders[0][0] != orders[0][1]
    assert all(sorted(order) == list(range(20)) for order in orders[0])
    assert given.keys() == {"x", "shuffle"} and not given["shuffle"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"y": LABELS}, "Received: x=a tf.data.Dataset and y. Leave them out"),
        ({"validation_split": 0.5}, "validation_split takes rows of arrays"),
        ({"x": iter([])}, "maps a KerasHub task's preprocessor over arrays"),
    ],
)
def test_texts_given_otherwise(arguments, message):
    model = build(with_preprocessor, compiled={"optimizer": sgd})
    given = {"x": tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)} | arguments
    with pytest.raises(ValueError, match=message):
        model.fit(**given, verbose=0)


def test_a_predict_step_of_ones_own_or_of_keras_hub_is_called():
    """KerasHub's detectors decode in theirs."""
    code = "def predict_step(self, data):\n    return tf.argmax(self(data), axis=-1)"
    for module in ("__main__", "keras_hub.src.models.detector"):
        names = {"tf": tf, "__name__": module}
        exec(code, names)
        model = build(type("Decoding", (Plain,), {"predict_step": names["predict_step"]}))
        assert model.predict(data()[0], verbose=0).shape == (len(data()[0]),)


def looked_up():
    """Words by a vocabulary, numbers by adapted moments."""
    keras.utils.set_random_seed(3)
    words = keras.layers.TextVectorization(vocabulary=["good", "bad", "film"], output_mode="multi_hot")
    moments = keras.layers.Normalization()
    moments.adapt(np.arange(12, dtype=np.float32).reshape(-1, 1))
    text, number = keras.Input([], dtype="string", name="text"), keras.Input([1], name="number")
    kind = keras.Input([], dtype="string", name="kind")
    ids = keras.layers.StringLookup(vocabulary=["x", "y"], output_mode="one_hot")(kind)
    joined = keras.layers.Concatenate()([words(text), moments(number), ids])
    return keras.Model({"text": text, "number": number, "kind": kind}, keras.layers.Dense(CLASSES)(joined))


@pytest.mark.parametrize("split", [{}, SPLIT], ids=["whole", "split"])
def test_lookup_tables_and_adapted_layers(split):
    rng = np.random.default_rng(0)
    x = {
        "text": tf.constant(rng.choice(["good film", "bad", "unknown"], 40).tolist()),
        "number": rng.normal(size=(40, 1)).astype(np.float32),
        "kind": tf.constant(rng.choice(["x", "y", "z"], 40).tolist()),
    }
    assert_like_keras(looked_up, x, rng.integers(0, CLASSES, 40), **split)
    with pytest.raises(ValueError, match="XLA"):
        train(looked_up, x, rng.integers(0, CLASSES, 40), options={"jit_compile": True})


def test_a_layer_that_carries_state_works_in_one_part():
    def recurrent():
        keras.utils.set_random_seed(3)
        return keras.Sequential(
            [keras.Input(batch_shape=(10, 4, 2)), keras.layers.GRU(5, stateful=True), keras.layers.Dense(CLASSES)]
        )

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4, 2)).astype(np.float32), rng.integers(0, CLASSES, 40)
    assert_like_keras(recurrent, x, y)
    with pytest.raises(ValueError, match="A stateful layer carries each row's state"):
        train(recurrent, x, y, options={"gradient_accumulation_steps": 2})


@SLOW
def test_a_saved_task_is_one_again(tmp_path):
    _, _, model = train(with_preprocessor, TEXTS, LABELS, validation_split=0.25)
    model.save(tmp_path / "task.keras")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*compile")
        loaded = keras.models.load_model(tmp_path / "task.keras")
    np.testing.assert_allclose(loaded.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0), atol=1e-6)
    loaded.fit(TEXTS, LABELS, verbose=0)
    model.model.save(tmp_path / "inner.keras")
    inner = keras.models.load_model(tmp_path / "inner.keras")
    assert_close(weights(inner), weights(model), 0)
