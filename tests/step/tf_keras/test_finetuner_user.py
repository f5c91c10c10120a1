"""FineTuner from a user's own code: what plain Keras does on one device, it does too, under any split."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.like_tf_keras import (
    CLASSES,
    FEATURES,
    ROWS,
    SPLITS,
    SPLITS_OF_ONE,
    assert_like_keras,
    classifier,
    data,
    logits_loss,
    sgd,
    train,
)
from tests.support.models import random_batch, strategy_of
from tests.support.tf_keras_models import tiny_bert
from tfbert.step.tf_keras.finetuner import FineTuner


def slow(*case):
    """A case of what quick ones guard as well."""
    return pytest.param(*case, marks=pytest.mark.slow)


# Losses.


@pytest.mark.parametrize(
    "loss, outputs, activation, labels",
    [
        slow("SparseCategoricalCrossentropy", CLASSES, "softmax", "column"),
        slow(lambda: keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), 3, None, "one_hot"),
        slow("binary_crossentropy", 1, "sigmoid", "binary"),
        slow("mean_squared_error", 1, None, "float"),
        slow("sparse_categorical_crossentropy", CLASSES, "softmax", "classes"),
        slow("categorical_crossentropy", CLASSES, "softmax", "one_hot"),
        slow("binary_crossentropy", 1, "sigmoid", "column_binary"),
        slow("mse", 1, None, "classes"),
        slow("mse", CLASSES, None, "one_hot"),
        slow(lambda: keras.losses.BinaryCrossentropy(from_logits=True), 1, None, "column_binary"),
        slow(lambda: keras.losses.Huber(), 1, None, "float"),
        slow(lambda: keras.losses.CosineSimilarity(), CLASSES, None, "one_hot"),
    ],
)
def test_keras_losses_give_keras_weights(loss, outputs, activation, labels):
    x, y = data()
    labels = {
        "classes": y,
        "column": y[:, None],
        "one_hot": np.eye(CLASSES, dtype=np.float32)[y],
        "binary": (y > 0).astype(np.int32),
        "column_binary": (y > 0).astype(np.float32)[:, None],
        "float": x[:, 0] * 2 - x[:, 1],
    }[labels]
    assert_like_keras(
        lambda: classifier(outputs, activation),
        x,
        labels,
        compiled={"loss": loss},
        options={"gradient_accumulation_steps": 2},
    )


def _numbers(*, width, squeezed):
    """A model with a number for each row of `[rows, 5]`, or for each position of `[rows, 7, 5]`."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input([width, FEATURES] if width else [FEATURES])
    outputs = keras.layers.Dense(1, activation="sigmoid")(inputs)
    return keras.Model(inputs, tf.squeeze(outputs, -1) if squeezed else outputs)


@pytest.mark.parametrize(
    "replicas, micro_batches", [(1, 3), *(pytest.param(*split, marks=pytest.mark.slow) for split in ((1, 1), (2, 2)))]
)
@pytest.mark.parametrize(
    "loss", ["mse", "binary_crossentropy", pytest.param(keras.losses.Huber, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "width, squeezed, column", [(0, True, True), (0, True, False), (7, False, False), (7, True, True)]
)
def test_a_last_dimension_of_1_makes_no_difference(width, squeezed, column, loss, replicas, micro_batches):
    """`[rows]` beside `[rows, 1]` broadcasts to `[rows, rows]`: a loss that depends on the split, and no error."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(21, width, FEATURES) if width else (21, FEATURES)).astype(np.float32)
    y = rng.integers(0, 2, x.shape[:-1]).astype(np.float32)
    assert_like_keras(
        lambda: _numbers(width=width, squeezed=squeezed),
        x,
        y[..., None] if column else y,
        replicas=replicas,
        compiled={"loss": loss},
        options={"gradient_accumulation_steps": micro_batches},
        batch_size=7,  # As many rows as positions.
    )


def test_a_users_own_loss_function():
    def loss(labels, predictions):
        return tf.reduce_mean(tf.abs(tf.one_hot(tf.cast(labels[:, 0], tf.int32), CLASSES) - predictions), axis=-1)

    assert_like_keras(classifier, *data(), compiled={"loss": lambda: loss}, options={"gradient_accumulation_steps": 2})


@pytest.mark.slow
@SPLITS_OF_ONE
def test_a_loss_for_every_position_of_a_sequence(replicas, micro_batches):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 7, FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, (12, 7)).astype(np.int32)

    def tagger():
        keras.utils.set_random_seed(1)
        return keras.Sequential([keras.layers.Input([7, FEATURES]), keras.layers.Dense(CLASSES)])

    for weights in (None, rng.uniform(0.5, 2, (12, 7)).astype(np.float32)):
        assert_like_keras(
            tagger,
            x,
            y,
            sample_weight=weights,
            batch_size=6,
            replicas=replicas,
            options={"gradient_accumulation_steps": micro_batches},
        )


# Weights of rows.


@pytest.mark.slow
@SPLITS_OF_ONE
def test_class_weight(replicas, micro_batches):
    assert_like_keras(
        classifier,
        *data(),
        class_weight={0: 0.5, 1: 2.0, 2: 3.0},
        replicas=replicas,
        options={"gradient_accumulation_steps": micro_batches},
    )


@pytest.mark.slow
@SPLITS
def test_sample_weight(replicas, micro_batches):
    weights = np.random.default_rng(5).uniform(0.1, 3, ROWS)
    assert_like_keras(
        classifier,
        *data(),
        sample_weight=weights,
        replicas=replicas,
        compiled={"metrics": ["accuracy"], "weighted_metrics": lambda: [keras.metrics.SparseCategoricalAccuracy("w")]},
        options={"gradient_accumulation_steps": micro_batches},
    )


def test_rows_without_weight_count_for_nothing():
    """As if they were not there; plain Keras would divide by them."""
    x, y = data()
    weights = np.tile([1.0, 1.0, 0.0, 1.0, 0.0], ROWS // 5)
    found, history, _ = train(classifier, x, y, sample_weight=weights, options={"gradient_accumulation_steps": 2})
    kept = weights > 0
    expected, expected_history, _ = train(classifier, x[kept], y[kept], wrap=False, batch_size=6)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)
    np.testing.assert_allclose(history["loss"], expected_history["loss"], atol=1e-5)


def test_a_nan_in_a_row_without_weight_does_no_harm():
    x, y = data()
    weights = np.ones(ROWS)
    weights[7] = 0.0
    found, _, _ = train(classifier, x, y, sample_weight=weights, batch_size=ROWS)
    spoilt = x.copy()
    spoilt[7] = 1e30  # Finite, but its loss need not be.
    again, _, _ = train(classifier, spoilt, y, sample_weight=weights, batch_size=ROWS)
    for one, other in zip(again, found, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


# Metrics, evaluation, prediction.


@SPLITS_OF_ONE
def test_metrics_are_keras_own(replicas, micro_batches):
    x, y = data()
    metrics = {
        "metrics": lambda: ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")],
        "weighted_metrics": lambda: [keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy")],
    }
    trained = assert_like_keras(
        classifier,
        x,
        y,
        compiled=metrics,
        class_weight={0: 1.0, 1: 2.0, 2: 0.5},
        validation_data=data(23, seed=1),
        replicas=replicas,
        options={"gradient_accumulation_steps": micro_batches},
    )
    assert [metric.name for metric in trained.metrics] == ["loss", "accuracy", "top2", "entropy"]


@pytest.mark.parametrize("rows, replicas", [(17, 2), slow(1, 2), slow(1, 1), slow(17, 1), slow(40, 1), slow(40, 2)])
def test_evaluate_and_predict_are_the_wrapped_models(rows, replicas):
    x, y = data(rows)
    model = classifier()
    model.compile("sgd", logits_loss(), metrics=["accuracy"], run_eagerly=True)
    with strategy_of(replicas).scope():
        trained = FineTuner(classifier(), gradient_accumulation_steps=4)
        trained.compile("sgd", logits_loss(), metrics=["accuracy"])
    weights = np.linspace(0.5, 1.5, rows)
    for options in ({}, {"sample_weight": weights}):
        expected = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True, **options)
        found = trained.evaluate(x, y, batch_size=8, verbose=0, return_dict=True, **options)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, abs=1e-6), name
    np.testing.assert_allclose(trained.predict(x, batch_size=8, verbose=0), model(x), atol=1e-6)


def test_bert_predicts_its_logits():
    inputs, labels, _ = random_batch(7)
    model = tiny_bert(num_hidden_layers=1)
    trained = FineTuner(model)
    trained.compile("adam", logits_loss(), metrics=["accuracy"], run_eagerly=True)
    logits = model(inputs).logits.numpy()
    np.testing.assert_allclose(trained.predict(inputs, batch_size=4, verbose=0), logits, atol=1e-5)
    result = trained.evaluate(inputs, labels, batch_size=4, verbose=0, return_dict=True)
    expected = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True).numpy().mean()
    assert result["loss"] == pytest.approx(expected, abs=1e-5)
    assert result["accuracy"] == pytest.approx((logits.argmax(1) == labels).mean())


# Regularisation.


@SPLITS_OF_ONE
def test_regularisation_is_added_once_however_the_batch_is_split(replicas, micro_batches):
    assert_like_keras(
        lambda: classifier(regularizer=keras.regularizers.l2(0.1)),
        *data(),
        validation_data=data(11, seed=1),
        replicas=replicas,
        options={"gradient_accumulation_steps": micro_batches},
    )


# Optimizers.


OPTIMIZERS = {
    "sgd": sgd,
    "adam": lambda: keras.optimizers.Adam(0.05),
    "adamw": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.1),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.5)),
    "name": lambda: "adagrad",
}
QUICK = {("schedule", 1)}


@pytest.mark.parametrize(
    "name, replicas",
    [
        pytest.param(name, replicas, marks=() if (name, replicas) in QUICK else pytest.mark.slow)
        for name in OPTIMIZERS
        for replicas in (1, 2)
    ],
)
def test_keras_optimizers(name, replicas):
    trained = assert_like_keras(
        classifier,
        *data(),
        compiled={"optimizer": OPTIMIZERS[name]},
        replicas=replicas,
        options={"gradient_accumulation_steps": 5},
    )
    assert int(trained.optimizer.iterations.numpy()) == 8


# Models.


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_a_model_that_is_built_by_its_first_batch(replicas):
    class Late(keras.Model):
        def __init__(self):
            super().__init__()
            keras.utils.set_random_seed(1)
            self.hidden, self.out = keras.layers.Dense(4, "relu"), keras.layers.Dense(CLASSES)

        def call(self, inputs):
            return self.out(self.hidden(inputs))

    assert_like_keras(Late, *data(), replicas=replicas, options={"gradient_accumulation_steps": 2})


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_frozen_layers_stay_and_can_be_thawed(replicas):
    with strategy_of(replicas).scope():
        model = classifier()
        model.layers[0].trainable = False
        trained = FineTuner(model, gradient_accumulation_steps=2)
        trained.compile(sgd(), logits_loss())
    before = [w.numpy() for w in model.weights]
    trained.fit(*data(), batch_size=10, verbose=0)
    moved = [bool((w.numpy() != b).any()) for w, b in zip(model.weights, before, strict=True)]
    assert moved == [False, False] + [True] * (len(moved) - 2) or moved == [True, True, False, False]
    model.layers[0].trainable = True
    with strategy_of(replicas).scope():
        trained.compile(keras.optimizers.Adam(0.1), logits_loss())
    before = [w.numpy() for w in model.weights]
    trained.fit(*data(), batch_size=ROWS, verbose=0)
    for variable, start in zip(model.weights, before, strict=True):  # Adam's first step.
        np.testing.assert_allclose(np.abs(variable.numpy() - start), 0.1, rtol=1e-2)


@pytest.mark.slow
def test_compiling_again_takes_the_new_optimizer():
    model = classifier()
    trained = FineTuner(model)
    trained.compile(keras.optimizers.SGD(1e-6), logits_loss())
    trained.fit(*data(), batch_size=10, verbose=0)
    before = [w.numpy() for w in model.weights]
    trained.compile(keras.optimizers.Adam(0.1), logits_loss())
    trained.fit(*data(), batch_size=ROWS, verbose=0)
    for variable, start in zip(model.weights, before, strict=True):
        np.testing.assert_allclose(np.abs(variable.numpy() - start), 0.1, rtol=1e-2)  # Adam's first step.


@pytest.mark.parametrize("layer", [slow("SimpleRNN"), slow("LSTM")])
def test_a_recurrent_model_with_a_mask(layer):
    def tagger():
        keras.utils.set_random_seed(1)
        return keras.Sequential(
            [
                keras.layers.Input([9], dtype=tf.int32),
                keras.layers.Embedding(20, 4, mask_zero=True),
                getattr(keras.layers, layer)(4),
                keras.layers.Dense(CLASSES),
            ]
        )

    rng = np.random.default_rng(0)
    x = np.where(np.arange(9) < rng.integers(2, 9, (ROWS, 1)), rng.integers(1, 20, (ROWS, 9)), 0).astype(np.int32)
    assert_like_keras(tagger, x, x.max(1) % CLASSES, options={"gradient_accumulation_steps": 2}, epochs=1)


@pytest.mark.parametrize("replicas", [slow(1), slow(2)])
def test_several_named_inputs(replicas):
    def make():
        keras.utils.set_random_seed(1)
        a, b = keras.Input([2], name="a"), keras.Input([3], name="b")
        return keras.Model({"a": a, "b": b}, keras.layers.Dense(CLASSES)(keras.layers.Concatenate()([a, b])))

    x, y = data()
    inputs = {"a": x[:, :2], "b": x[:, 2:]}
    assert_like_keras(make, inputs, y, replicas=replicas, options={"gradient_accumulation_steps": 2})


@pytest.mark.parametrize("replicas, micro_batches", [(1, 3), slow(1, 1), slow(2, 3)])
def test_a_model_of_raw_texts(replicas, micro_batches):
    texts = np.array(["good film", "bad film", "dull", "bright and good", "bad bad plot"] * 8, dtype=object)
    labels = np.array([1, 0, 0, 1, 0] * 8)

    def make():
        keras.utils.set_random_seed(1)
        vocabulary = ["good", "bad", "film", "dull", "bright", "plot"]
        return keras.Sequential(
            [
                keras.layers.Input([], dtype=tf.string),
                keras.layers.TextVectorization(vocabulary=vocabulary, output_sequence_length=4),
                keras.layers.Embedding(9, 4),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(2),
            ]
        )

    options = {"gradient_accumulation_steps": micro_batches}
    expected, _, _ = train(make, tf.constant(texts), labels, wrap=False)
    found, _, _ = train(make, tf.constant(texts), labels, replicas=replicas, options=options)
    for one, other in zip(found, expected, strict=True):
        if one.dtype == np.float32:
            np.testing.assert_allclose(one, other, atol=2e-6)


# Ways of running.


@pytest.mark.parametrize(
    "setting", [slow({"run_eagerly": True}), {"steps_per_execution": 2}], ids=lambda s: next(iter(s))
)
@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_other_ways_to_run_a_step(setting, replicas):
    if replicas == 2 and "run_eagerly" in setting:
        pytest.skip("tf_keras itself runs eagerly under no MirroredStrategy of several devices")
    assert_like_keras(
        classifier,
        *data(),
        compiled=setting,
        replicas=replicas,
        options={"gradient_accumulation_steps": 2},
    )


@SPLITS_OF_ONE
def test_train_on_batch_and_datasets(replicas, micro_batches):
    x, y = data()
    expected, history, _ = train(classifier, x, y, wrap=False, epochs=1)
    options = {"gradient_accumulation_steps": micro_batches}
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
    found, found_history, _ = train(
        classifier, dataset, None, batch_size=None, epochs=1, replicas=replicas, options=options
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)
    np.testing.assert_allclose(found_history["loss"], history["loss"], atol=1e-5)
    with strategy_of(replicas).scope():
        model = classifier()
        trained = FineTuner(model, **options)
        trained.compile(sgd(), logits_loss())
    for start in range(0, ROWS, 10):
        trained.train_on_batch(x[start : start + 10], y[start : start + 10])
    for one, other in zip(model.weights, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other, atol=2e-6)


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_standard_callbacks(replicas, tmp_path):
    # Under MirroredStrategy tf_keras cannot read the metrics' variables back from .weights.h5, of any model.
    name = "epoch-{epoch}.weights.h5" if replicas == 1 else "epoch-{epoch}"
    x, y = data()
    with strategy_of(replicas).scope():
        model = classifier()
        trained = FineTuner(model, gradient_accumulation_steps=2)
        trained.compile(keras.optimizers.SGD(5.0), logits_loss(), metrics=["accuracy"])
    history = trained.fit(
        x,
        y,
        batch_size=10,
        epochs=12,
        verbose=0,
        shuffle=False,
        validation_data=(x, (y + 1) % CLASSES),  # Learning makes it worse.
        callbacks=[
            keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True, start_from_epoch=0),
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.1, patience=1, min_delta=100.0),
            keras.callbacks.ModelCheckpoint(str(tmp_path / name), save_weights_only=True),
            keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
            keras.callbacks.TerminateOnNaN(),
        ],
    ).history
    epochs = len(history["loss"])
    best = int(np.argmin(history["val_loss"]))
    assert epochs == best + 4 < 12
    np.testing.assert_allclose(history["lr"][:3], [5.0, 5.0, 0.5], rtol=1e-6)
    assert trained.evaluate(x, (y + 1) % CLASSES, verbose=0)[0] == pytest.approx(history["val_loss"][best], rel=1e-5)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == epochs + 1
    kept = [w.numpy() for w in model.weights]
    trained.load_weights(str(tmp_path / name.format(epoch=1)))
    assert trained.evaluate(x, (y + 1) % CLASSES, verbose=0)[0] == pytest.approx(history["val_loss"][0], rel=1e-5)
    trained.load_weights(str(tmp_path / name.format(epoch=best + 1)))
    for one, other in zip(model.weights, kept, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)


def test_a_configuration_makes_the_same_model():
    options = {"gradient_accumulation_steps": 3, "max_grad_norm": 2.0, "jit_compile": True, "seed": 7, "name": "mine"}
    first = FineTuner(classifier(), **options)
    second = FineTuner.from_config(first.get_config())
    assert {**second.get_config(), "model": None} == {**options, "model": None}
    second.model.set_weights(first.model.get_weights())
    x, _ = data()
    np.testing.assert_array_equal(second(x).numpy(), first(x).numpy())


class Branching(keras.layers.Layer):
    """Branches and loops in Python over tensors, which AutoGraph makes operations of."""

    def call(self, inputs):
        total = tf.reduce_sum(inputs, axis=-1, keepdims=True)
        if tf.reduce_mean(total) > 0:
            total = total * 2.0
        for _ in tf.range(2):
            total = total + 1.0
        return inputs + total


def test_a_users_layer_may_branch_on_tensors():
    inputs = keras.Input([4])
    model = FineTuner(keras.Model(inputs, keras.layers.Dense(2)(Branching()(inputs))), gradient_accumulation_steps=2)
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(np.ones([8, 4], np.float32), np.zeros([8], np.int32), epochs=3, verbose=0)
    losses = history.history["loss"]
    assert losses[0] > losses[1] > losses[2]
