"""What users write themselves works with plain Keras's numbers, wherever a batch is split."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import SLOW, slow
from tests.support.either_keras import CLASSES, FEATURES, apart, rows, splits

SPLITS, SPLITS_OF_ONE = splits((2, 2)), splits((1, 3))


def optimizers(either):
    """Of users' own; by the signatures that Keras's examples have."""
    base = either.keras.optimizers.SGD
    more = {} if either.is_keras_3 else {"name": None}

    class Centred(base):
        """Gradients without their mean."""

        def apply_gradients(self, grads_and_vars):
            return super().apply_gradients([(g - tf.reduce_mean(g), v) for g, v in grads_and_vars])

    class Named(base):
        def apply_gradients(self, grads_and_vars, name=None):
            return super().apply_gradients([(g - tf.reduce_mean(g), v) for g, v in grads_and_vars], **more)

    class Halved(base):
        """Takes any argument."""

        def apply_gradients(self, grads_and_vars, **kwargs):
            return super().apply_gradients([(0.5 * grad, variable) for grad, variable in grads_and_vars], **kwargs)

    class Signed(base):
        def update_step(self, gradient, variable, *rate):
            super().update_step(tf.tanh(100 * gradient), variable, *rate)

    return {kind.__name__: kind for kind in (Centred, Named, Halved, Signed)}


@SLOW  # By default the next test has such an optimizer.
@SPLITS
@pytest.mark.parametrize("name", ["Centred", "Named", "Halved", "Signed"])
def test_an_own_optimizer_gets_the_gradients_of_the_global_batch(either, name, replicas, parts):
    either.like(optimizer=lambda: optimizers(either)[name](0.1), replicas=replicas, parts=parts)


@SPLITS
@pytest.mark.parametrize("weighted", [True, slow(False)])
def test_a_compute_loss_with_a_value_per_row_is_honoured(either, weighted, replicas, parts):
    """It weighs what is uncertain, with an own optimizer; its twin takes the mean, as Keras's step needs it."""

    def per_row(self, x=None, y=None, y_pred=None, sample_weight=None, **others):
        weight = 1.0 if sample_weight is None else tf.cast(sample_weight, tf.float32)
        values = either.keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
        return weight * values + 0.1 * tf.reduce_sum(tf.nn.softmax(y_pred) ** 2, axis=-1)

    def mean(self, *args, **others):
        return tf.reduce_mean(per_row(self, *args, **others))

    x, y = rows(40)
    fit = {"sample_weight": np.linspace(0, 2, len(x)).astype(np.float32)} if weighted else {}
    fit |= {"compiled": {"loss": None}, "optimizer": lambda: optimizers(either)["Signed"](0.1)}
    expected = either.plain(lambda: either.subclassed(compute_loss=mean), (x, y), **fit)
    make = lambda: either.subclassed(compute_loss=per_row)  # noqa: E731
    found = either.ours(make, (x, y), replicas=replicas, parts=parts, **fit)
    assert apart(found, expected) < 1e-5
    assert np.isfinite(found.history["loss"]).all(), "which tf_keras itself does not report"


def test_a_compute_loss_is_told_whether_it_trains(three):
    def told(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return 0 * y_pred[:, 0] + float(training)

    x, y = rows(8)
    model = three.build(lambda: three.subclassed(compute_loss=told), compiled={"loss": None, "run_eagerly": True})
    assert (model.train_on_batch(x, y), model.test_on_batch(x, y), model.evaluate(x, y, verbose=0)) == (1, 0, 0)


def test_a_predict_step_of_ones_own_or_of_keras_hub_is_called(either):
    """KerasHub's detectors decode in theirs."""
    code = "def predict_step(self, data):\n    return tf.argmax(self(data), axis=-1)"
    x, _ = rows(8)
    for module in ("__main__", "keras_hub.src.models.detector"):
        names = {"tf": tf, "__name__": module}
        exec(code, names)
        make = lambda: either.subclassed(predict_step=names["predict_step"])  # noqa: B023, E731
        assert either.build(make).predict(x, verbose=0).shape == (len(x),)


def looked_up(either):
    """Words by an adapted vocabulary, kinds by a given one, numbers by adapted moments."""
    either.keras.utils.set_random_seed(3)
    kinds = either.layers
    words = kinds.TextVectorization(max_tokens=20, output_mode="multi_hot")
    words.adapt(["good film", "bad film", "a dull plot"])
    moments = kinds.Normalization()
    moments.adapt(np.arange(12, dtype=np.float32).reshape(-1, 1))
    shapes = {"text": ([], "string"), "number": ([1], "float32"), "kind": ([], "string")}
    inputs = {name: either.keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in shapes.items()}
    ids = kinds.StringLookup(vocabulary=["x", "y"], output_mode="one_hot")(inputs["kind"])
    joined = kinds.Concatenate()([words(inputs["text"]), moments(inputs["number"]), ids])
    return either.keras.Model(inputs, kinds.Dense(CLASSES)(joined))


@SPLITS_OF_ONE
def test_lookup_tables_and_adapted_layers(either, replicas, parts, tmp_path):
    rng = np.random.default_rng(0)
    x = {
        "text": tf.constant(rng.choice(["good film", "bad", "a dull plot", "unknown"], 40).tolist()),
        "number": rng.normal(size=(40, 1)).astype(np.float32),
        "kind": tf.constant(rng.choice(["x", "y", "z"], 40).tolist()),
    }
    data, make = (x, rng.integers(0, CLASSES, 40)), lambda: looked_up(either)
    model = either.like(make, data, replicas=replicas, parts=parts).model
    np.testing.assert_allclose(
        model.predict(x, verbose=0), model.model(tf.nest.map_structure(tf.constant, x)), atol=1e-5
    )
    model.save_weights(str(tmp_path / "of.weights.h5") if either.is_keras_3 else str(tmp_path / "weights"))


def test_a_layer_that_carries_state_works_in_one_part(either):
    kinds = either.layers
    first = lambda: [kinds.Input(batch_shape=(10, 4, 2)), kinds.GRU(5, stateful=True)]  # noqa: E731
    make = lambda: either.sequential(lambda: [*first(), kinds.Dense(CLASSES)], shape=None)  # noqa: E731
    rng = np.random.default_rng(0)
    data = rng.normal(size=(40, 4, 2)).astype(np.float32), rng.integers(0, CLASSES, 40)
    either.like(make, data, replicas=None, parts=1)  # In no scope: tf_keras has no stateful layers under a strategy.
    with pytest.raises(ValueError, match="A stateful layer carries each row's state.*stateful=True and a batch in 2"):
        either.ours(make, data, replicas=None, parts=2)


@SLOW
@pytest.mark.parametrize("eagerly", [False, True])
def test_a_model_is_not_called_once_more_to_be_built(either, eagerly):
    class Counts(either.layers.Layer):
        """Counts its calls, and reports their mean."""

        def build(self, shape):
            self.calls = self.add_weight(name="calls", shape=(), initializer="zeros", trainable=False)
            self.seen = either.keras.metrics.Mean(name="seen")

        def call(self, x):
            self.calls.assign(tf.convert_to_tensor(self.calls) + 1.0)
            self.seen.update_state(tf.reduce_mean(x))
            return x

    make = lambda: either.sequential(lambda: [Counts(), either.layers.Dense(CLASSES)], shape=None)  # noqa: E731
    found = either.like(make, replicas=1, parts=1, compiled={"run_eagerly": eagerly}, epochs=2)
    assert float(np.asarray(found.model.model.layers[0].calls)) == 8 and "seen" in found.history


@SPLITS_OF_ONE
def test_a_loss_that_is_a_function_and_a_metric_whose_result_is_a_dictionary(either, replicas, parts):
    """tf_keras gives the loss labels in a column."""

    def loss(labels, predictions):
        classes = tf.one_hot(tf.cast(tf.reshape(labels, [-1]), tf.int32), CLASSES)
        return tf.reduce_mean(tf.abs(classes - predictions), axis=-1)

    class Both(either.keras.metrics.Metric):
        def __init__(self, name="both", **kwargs):
            super().__init__(name=name, **kwargs)
            self.right = self.add_weight(name="right", shape=(), initializer="zeros")
            self.count = self.add_weight(name="count", shape=(), initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            equal = tf.equal(tf.cast(tf.reshape(y_true, [-1]), tf.int64), tf.argmax(y_pred, axis=-1))
            self.right.assign_add(tf.reduce_sum(tf.cast(equal, tf.float32)))
            self.count.assign_add(tf.cast(tf.size(equal), tf.float32))

        def result(self):
            share = tf.convert_to_tensor(self.right) / tf.convert_to_tensor(self.count)
            return {"share_right": share, "share_wrong": 1 - share}

    model = either.like(replicas=replicas, parts=parts, compiled=lambda: {"loss": loss, "metrics": [Both()]}).model
    assert {"share_right", "share_wrong"} <= model.evaluate(*rows(8), verbose=0, return_dict=True).keys()


@SLOW
def test_a_layer_may_branch_on_tensors(either):
    if either.is_keras_3:
        pytest.skip("plain Keras 3 does not train such a layer either")

    class Branching(either.layers.Layer):
        """Branches and loops in Python over tensors, which AutoGraph makes operations of."""

        def call(self, inputs):
            total = tf.reduce_sum(inputs, axis=-1, keepdims=True)
            if tf.reduce_mean(total) > 0:
                total = total * 2.0
            for _ in tf.range(2):
                total = total + 1.0
            return inputs + total

    make = lambda: either.sequential(lambda: [Branching(), either.layers.Dense(2)])  # noqa: E731
    data = np.full([8, FEATURES], 0.01, np.float32), np.zeros([8], np.int32)
    losses = either.ours(make, data, replicas=1, parts=2, epochs=3).history["loss"]
    assert losses[0] > losses[1] > losses[2]


@SLOW
@SPLITS
@pytest.mark.parametrize(
    "class_weight", [{0: 0.0, 1: 1.0, 2: 2.0}, {0: -1.0, 1: 1.0, 2: 1.0}], ids=["zero", "negative"]
)
def test_class_weights_of_zero_and_below(either, class_weight, replicas, parts):
    """Keras divides by all rows; here rows of weight 0 do not count. So the plain model's loss is scaled by that."""
    x, y = rows(40)
    counted = np.array([class_weight[label] for label in y.tolist()], np.float32)
    found = either.ours(xy=(x, y), replicas=replicas, parts=parts, class_weight=class_weight)
    scale = np.concatenate([np.full(10, 10 / np.count_nonzero(part), np.float32) for part in counted.reshape(-1, 10)])
    assert apart(found, either.plain(xy=(x, y), sample_weight=counted * scale)) < 1e-5
