"""What FineTuner does not take of Keras is refused with a line that says what to do."""

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.models import strategy_of
from tests.test_finetuner_user import CLASSES, FEATURES, classifier, data, logits_loss
from tfbert.finetuner import FineTuner


def test_a_keras_3_model_says_what_to_import():
    with pytest.raises(ValueError, match="import tf_keras as keras") as caught:
        FineTuner(keras3.Sequential([keras3.layers.Dense(2)]))
    assert "Received: model=Sequential of Keras 3" in str(caught.value)


@pytest.mark.parametrize(
    "argument, value, received",
    [
        ("optimizer", keras3.optimizers.Adam(), "optimizer=Adam"),
        ("loss", keras3.losses.SparseCategoricalCrossentropy(), "loss=SparseCategoricalCrossentropy"),
        ("loss", keras3.losses.sparse_categorical_crossentropy, "loss="),
        ("metrics", [keras3.metrics.SparseCategoricalAccuracy()], "metrics=SparseCategoricalAccuracy"),
        ("metrics", ["accuracy", keras3.metrics.Mean()], "metrics=Mean"),
        ("metrics", {"output": keras3.metrics.Mean()}, "metrics=Mean"),
        ("metrics", [keras3.metrics.sparse_categorical_accuracy], "metrics="),
        ("weighted_metrics", [keras3.metrics.Mean()], "weighted_metrics=Mean"),
    ],
)
def test_keras_3_objects_say_what_to_import(argument, value, received):
    with pytest.raises(ValueError, match="import tf_keras as keras") as caught:
        FineTuner(classifier()).compile(**({"optimizer": "adam", "loss": "mse"} | {argument: value}))
    assert f"Received: {received}" in str(caught.value) and "of Keras 3" in str(caught.value)


@pytest.mark.parametrize("loss", [None, ["mse", "mae"], {"a": "mse"}, ("mse",)])
def test_one_loss_is_needed(loss):
    with pytest.raises(ValueError, match="one output with one loss.*Received: loss="):
        FineTuner(classifier()).compile("sgd", loss)


def test_xla_is_an_argument_of_the_constructor():
    with pytest.raises(ValueError, match=r"FineTuner\(jit_compile=True\)"):
        FineTuner(classifier()).compile("sgd", "mse", jit_compile=True)


@pytest.mark.parametrize("options", [{"gradient_accumulation_steps": 0}, {"max_grad_norm": -1.0}])
def test_options_out_of_range(options):
    with pytest.raises(ValueError, match="Received: .*=") as caught:
        FineTuner(classifier(), **options)
    assert next(iter(options)) in str(caught.value)


@pytest.mark.parametrize("optimizer", [keras.optimizers.legacy.SGD(0.1), keras.optimizers.legacy.Adam(0.1)])
def test_legacy_optimizers_name_their_successors(optimizer):
    with pytest.raises(ValueError, match="Received: optimizer=.*legacy"):
        FineTuner(classifier()).compile(optimizer, "mse")


def test_what_is_no_model():
    with pytest.raises(ValueError, match="tf_keras.Model. Received: model="):
        FineTuner(lambda x: x)


def test_a_model_with_nothing_to_train():
    model = classifier()
    model.trainable = False
    trained = FineTuner(model)
    trained.compile("sgd", logits_loss())
    with pytest.raises(ValueError, match="none that are trainable"):
        trained.fit(*data(), verbose=0)


def test_a_model_with_several_outputs():
    inputs = keras.Input([FEATURES])
    trained = FineTuner(keras.Model(inputs, [keras.layers.Dense(2)(inputs), keras.layers.Dense(2)(inputs)]))
    trained.compile("sgd", logits_loss())
    with pytest.raises(ValueError, match="one output"):
        trained.fit(*data(), verbose=0)


def test_labels_are_needed():
    trained = FineTuner(classifier())
    trained.compile("sgd", logits_loss())
    with pytest.raises(ValueError, match="label"):
        trained.fit(data()[0], verbose=0)


@pytest.mark.parametrize(
    "loss, compiled, match",
    [
        (lambda: "mse", {"loss_weights": 0.1}, "loss_weights=0.1"),
        (lambda: keras.losses.MeanSquaredError(reduction="sum"), {}, "reduction='sum'"),
    ],
)
def test_losses_that_would_be_changed_in_silence(loss, compiled, match):
    with pytest.raises(ValueError, match=match):
        FineTuner(classifier()).compile("sgd", loss(), **compiled)


@pytest.mark.parametrize("reduction", ["auto", "none", "sum_over_batch_size"])
def test_losses_that_are_means(reduction):
    FineTuner(classifier()).compile("sgd", keras.losses.MeanSquaredError(reduction=reduction))


def test_a_loss_of_the_whole_batch():
    def squares(labels, predictions):
        return tf.reduce_mean(tf.square(tf.cast(labels, tf.float32) - predictions))

    trained = FineTuner(classifier(1))
    trained.compile("sgd", squares)
    with pytest.raises(ValueError, match="one value a row.*Received: squares"):
        trained.fit(*data(), verbose=0)


def test_a_loss_that_depends_on_nothing():
    trained = FineTuner(classifier(1))
    trained.compile("sgd", lambda labels, predictions: tf.cast(labels, tf.float32))
    with pytest.raises(ValueError, match="depend on a trainable variable"):
        trained.fit(*data(), verbose=0)


def test_batches_that_cannot_be_cut():
    model = keras.Sequential([keras.layers.Embedding(5, 4), keras.layers.GlobalAveragePooling1D()])
    trained = FineTuner(model)
    trained.compile("sgd", logits_loss())
    rows = tf.ragged.constant([[1, 2], [3], [4, 1, 2], [2]])
    with pytest.raises(ValueError, match=r"dense tensors. Received: a RaggedTensor.*to_tensor\(\)"):
        trained.fit(tf.data.Dataset.from_tensors((rows, tf.constant([0, 1, 0, 1]))), verbose=0)


def normalised(layer):
    return keras.Sequential(
        [
            keras.layers.Input([FEATURES]),
            layer(name="norm"),
            keras.layers.Dense(CLASSES),
        ]
    )


@pytest.mark.parametrize(
    "layer",
    [
        lambda name: keras.layers.BatchNormalization(synchronized=True, name=name),
        lambda name: keras.layers.experimental.SyncBatchNormalization(name=name),
    ],
)
def test_layers_that_talk_to_other_replicas(layer):
    with strategy_of(2).scope():
        trained = FineTuner(normalised(layer))
        trained.compile("sgd", logits_loss())
    with pytest.raises(ValueError, match="'norm' with synchronized=True"):
        trained.fit(*data(), verbose=0)

    alone = FineTuner(normalised(layer))
    alone.compile("sgd", logits_loss())
    assert np.isfinite(alone.fit(*data(), verbose=0).history["loss"]).all()
