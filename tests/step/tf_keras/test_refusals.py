"""What FineTuner does not take of Keras is refused with a line that says what to do."""

import warnings

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.like_tf_keras import CLASSES, FEATURES, classifier, data, logits_loss
from tests.support.models import strategy_of
from tfbert.step.tf_keras.finetuner import FineTuner


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


@pytest.mark.parametrize("loss", [None, [None], {"a": None}])
def test_a_loss_is_needed(loss):
    with pytest.raises(ValueError, match="needs a loss.*Received: loss="):
        FineTuner(classifier()).compile("sgd", loss)


@pytest.mark.parametrize("argument", ["loss", "loss_weights"])
@pytest.mark.parametrize("names", [["one", "two"], ["one", "two", "three"], {"first": 1, "third": 1}])
def test_names_that_are_not_the_outputs(argument, names):
    given = {"loss": "mse", "loss_weights": 1.0}
    value = dict.fromkeys(names, given[argument]) if isinstance(names, dict) else [given[argument]] * len(names)
    model = two_outputs() if len(names) != 2 or isinstance(names, dict) else classifier()
    with pytest.raises(ValueError, match=f"those of the outputs.*Received: {argument} for"):
        FineTuner(model).compile("sgd", **given | {argument: value})


def test_xla_is_an_argument_of_the_constructor():
    with pytest.raises(ValueError, match=r"FineTuner\(jit_compile=True\)"):
        FineTuner(classifier()).compile("sgd", "mse", jit_compile=True)


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 0},
        {"gradient_accumulation_steps": 2.5},
        {"gradient_accumulation_steps": "auto"},
        {"max_grad_norm": -1.0},
        {"max_grad_norm": float("nan")},
        {"max_grad_norm": None},
    ],
)
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


def two_outputs():
    inputs = keras.Input([FEATURES])
    return keras.Model(inputs, [keras.layers.Dense(CLASSES, name=name)(inputs) for name in ("first", "second")])


def test_labels_of_one_output_for_several():
    trained = FineTuner(two_outputs())
    trained.compile("sgd", logits_loss())
    with pytest.raises(ValueError, match="labels of its own. Received: labels for 1 outputs.*first, second"):
        trained.fit(*data(), verbose=0)


def test_a_loss_for_an_output_that_a_model_does_not_have():
    class Named(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(CLASSES)

        def call(self, inputs):
            return {"first": self.dense(inputs), "second": self.dense(inputs)}

    x, y = data()
    trained = FineTuner(Named())
    trained.compile("sgd", {"first": logits_loss(), "third": logits_loss()})
    with pytest.raises(ValueError, match="Received: outputs for first, second, and losses for first, third"):
        trained.fit(x, {"first": y, "third": y}, verbose=0)


def test_a_weight_for_each_position_of_a_loss_for_each_row():
    x, y = data()
    trained = FineTuner(classifier())
    trained.compile("sgd", logits_loss())
    with pytest.raises(ValueError, match="sample_weight of 2 dimensions and a loss of 1, SparseCategorical"):
        trained.fit(x, y, sample_weight=np.ones([len(x), 4]), verbose=0)


def test_labels_are_needed():
    trained = FineTuner(classifier())
    trained.compile("sgd", logits_loss())
    with pytest.raises(ValueError, match="label"):
        trained.fit(data()[0], verbose=0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda: keras.losses.MeanSquaredError(reduction="sum"),
        lambda: ["mse", keras.losses.MeanSquaredError(reduction="sum")],
    ],
)
def test_losses_that_would_be_changed_in_silence(loss):
    with pytest.raises(ValueError, match="reduction='sum'"):
        FineTuner(classifier()).compile("sgd", loss())


@pytest.mark.parametrize("reduction", ["auto", "none", "sum_over_batch_size"])
def test_losses_that_are_means(reduction):
    FineTuner(classifier()).compile("sgd", keras.losses.MeanSquaredError(reduction=reduction))


def test_a_loss_of_the_whole_batch():
    def squares(labels, predictions):
        return tf.reduce_mean(tf.square(tf.cast(labels, tf.float32) - predictions))

    trained = FineTuner(classifier(1))
    trained.compile("sgd", squares)
    with pytest.raises(ValueError, match="one value per row.*Received: squares"):
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


@pytest.mark.parametrize("policy, xla, warns", [("mixed_bfloat16", 0, 1), ("mixed_bfloat16", 1, 0), ("float32", 0, 0)])
def test_biases_that_tensorflow_sums_in_bfloat16_are_warned_of(policy, xla, warns):
    keras.mixed_precision.set_global_policy(policy)
    model = FineTuner(keras.Sequential([keras.layers.Dense(2, name="named")]), jit_compile=bool(xla))
    model.compile(optimizer="adam", loss=logits_loss())
    model.build([None, 3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.create_variables()
    messages = [str(each.message) for each in caught if "bfloat16" in str(each.message)]
    assert len(messages) == warns and all("Received: layer 'named'" in message for message in messages)
