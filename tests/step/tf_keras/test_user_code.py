"""Methods that plain Keras calls and FineTuner's step does not: honoured with Keras's numbers, or refused by name."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.like_tf_keras import (
    CLASSES,
    FEATURES,
    assert_like_keras,
    classifier,
    data,
    logits_loss,
    sgd,
    splits,
    train,
)
from tests.support.models import random_batch, strategy_of
from tests.support.tf_keras_models import tiny_bert
from tfbert.step.tf_keras.finetuner import FineTuner


class Plain(keras.Model):
    """A subclassed model."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.out = keras.layers.Dense(CLASSES)

    def call(self, x):
        return self.out(self.hidden(x))


def method(name, base=Plain):
    """A model class with a method of its own."""

    def own(self, *args, **kwargs):
        return getattr(super(type(self), self), name)(*args, **kwargs)

    return type("Own", (base,), {name: own})


OF_MODELS = ["train_step", "test_step", "compute_metrics", "make_train_function", "get_metrics_result", "compile"]


@pytest.mark.parametrize("name", [*OF_MODELS, "make_test_function", "reset_metrics"])
def test_a_models_own_method_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"model Own with a {name} of its own"):
        FineTuner(method(name)())


def test_however_the_method_came_there():
    class Mixin:
        def train_step(self, data):
            return {}

    class Mixed(Mixin, Plain):
        pass

    class Below(Mixed):
        pass

    assigned = Plain()
    assigned.train_step = lambda data: {}
    bound = Plain()
    bound.test_step = functools.partial(Mixin.train_step, bound)
    for model in (Mixed(), Below(), assigned, bound):
        with pytest.raises(ValueError, match="of its own"):
            FineTuner(model)
    later = Plain()
    model = FineTuner(later)
    later.train_step = Mixin.train_step
    with pytest.raises(ValueError, match="a train_step of its own"):
        model.compile(optimizer=sgd(), loss=logits_loss())


@pytest.mark.parametrize("name", ["train_on_batch", "test_on_batch"])
def test_a_method_for_one_batch_that_users_call(name):
    model = FineTuner(method(name)())
    model.compile(optimizer=sgd(), loss=logits_loss())
    with pytest.raises(ValueError, match=f"model Own with a {name} of its own"):
        getattr(model, name)(*data())


def test_properties_count_too():
    class Tracked(Plain):
        @property
        def metrics(self):
            return []

    with pytest.raises(ValueError, match="a metrics of its own"):
        FineTuner(Tracked())


def test_a_library_has_its_own_and_a_user_of_it_not():
    model = tiny_bert()
    FineTuner(model)  # transformers overrides train_step, test_step, compile and compute_loss itself.
    with pytest.raises(ValueError, match="a train_step of its own"):
        FineTuner(method("train_step", type(model))(model.config))


def test_a_subclass_of_finetuner():
    class Tuner(FineTuner):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return 0.0

    with pytest.raises(ValueError, match="a FineTuner Tuner with a compute_loss of its own"):
        Tuner(classifier())


def call_of_loss(self, y_true, y_pred, sample_weight=None):
    return 2 * keras.losses.Loss.__call__(self, y_true, y_pred, sample_weight)


def test_a_loss_that_does_more_than_its_call():
    loss = type("Doubled", (keras.losses.SparseCategoricalCrossentropy,), {"__call__": call_of_loss})
    below = type("Below", (loss,), {})
    for kind in (loss, below):
        with pytest.raises(ValueError, match=r"loss \w+ with a __call__ of its own"):
            FineTuner(classifier()).compile(optimizer=sgd(), loss=kind(from_logits=True))
    values = type(
        "Values", (keras.losses.SparseCategoricalCrossentropy,), {"call": lambda self, y, p: 0.5 * logits(y, p)}
    )
    assert_like_keras(classifier, *data(), compiled={"loss": values}, options={"gradient_accumulation_steps": 3})


def logits(labels, predictions):
    return keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)


@pytest.mark.parametrize("name", ["compute_gradients", "aggregate_gradients", "minimize"])
def test_an_optimizers_own_method(name):
    kind = type("Own", (keras.optimizers.SGD,), {name: lambda self, *args, **kwargs: None})
    below = type("Below", (kind,), {})
    for optimizer in (kind(0.1), below(0.1), keras.mixed_precision.LossScaleOptimizer(kind(0.1))):
        with pytest.raises(ValueError, match=f"with a {name} of its own"):
            FineTuner(classifier()).compile(optimizer=optimizer, loss=logits_loss())


class Centred(keras.optimizers.SGD):
    """Gradients without their mean, by the signature that Keras's examples have."""

    def apply_gradients(self, grads_and_vars, name=None):
        centred = [(grad - tf.reduce_mean(grad), variable) for grad, variable in grads_and_vars]
        return super().apply_gradients(centred, name=name)


class Halved(keras.optimizers.SGD):
    """An own `apply_gradients` that takes any argument."""

    def apply_gradients(self, grads_and_vars, **kwargs):
        return super().apply_gradients([(0.5 * grad, variable) for grad, variable in grads_and_vars], **kwargs)


@splits((1, 1), (2, 2))
@pytest.mark.parametrize("optimizer", [Centred, Halved])
def test_an_own_apply_gradients_gets_the_global_batchs(optimizer, replicas, micro_batches):
    options = {"gradient_accumulation_steps": micro_batches}
    assert_like_keras(
        classifier, *data(), replicas=replicas, options=options, compiled={"optimizer": lambda: optimizer(0.3)}
    )


class WithOwnLoss(Plain):
    """Weighs what is uncertain; its plain twin below takes the mean, as Keras's step needs it."""

    def per_row(self, y, y_pred, sample_weight):
        weight = 1.0 if sample_weight is None else tf.cast(sample_weight, tf.float32)
        return weight * logits(y, y_pred) + 0.1 * tf.reduce_sum(tf.nn.softmax(y_pred) ** 2, axis=-1)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return self.per_row(y, y_pred, sample_weight)


class WithItsMean(WithOwnLoss):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return tf.reduce_mean(self.per_row(y, y_pred, sample_weight))


def made(kind):
    keras.utils.set_random_seed(3)
    model = kind()
    model(np.zeros([1, FEATURES], np.float32))
    return model


@splits((1, 1), (2, 2))
@pytest.mark.parametrize("weighted", [False, True])
def test_a_compute_loss_with_a_value_per_row_is_honoured(weighted, replicas, micro_batches):
    x, y = data()
    fit = {"sample_weight": np.linspace(0, 2, len(x)).astype(np.float32)} if weighted else {}
    compiled = {"loss": lambda: None}
    expected, _, _ = train(lambda: made(WithItsMean), x, y, wrap=False, compiled=compiled, **fit)
    found, other, _ = train(
        lambda: made(WithOwnLoss),
        x,
        y,
        replicas=replicas,
        compiled=compiled,
        options={"gradient_accumulation_steps": micro_batches},
        **fit,
    )
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    assert len(other["loss"]) == 2 and np.isfinite(other["loss"]).all(), "which Keras itself does not report"


def test_a_compute_loss_with_one_number_is_refused():
    x, y = data()
    with pytest.raises(ValueError, match="compute_loss of WithItsMean, which returns one number"):
        train(lambda: made(WithItsMean), x, y, compiled={"loss": lambda: None, "run_eagerly": True})


def test_a_compute_loss_that_asks_for_the_compiled_one():
    x, y = data()
    kind = method("compute_loss")
    with pytest.raises(ValueError, match="compute_loss must return one value per row, and the compiled loss"):
        train(lambda: made(kind), x, y, compiled={"run_eagerly": True})


def looked_up():
    """Words by an adapted vocabulary, numbers by adapted moments."""
    keras.utils.set_random_seed(3)
    words = keras.layers.TextVectorization(max_tokens=20, output_mode="multi_hot")
    words.adapt(["good film", "bad film", "a dull plot"])
    text = keras.Input([], dtype=tf.string, name="text")
    number = keras.Input([1], name="number")
    moments = keras.layers.Normalization()
    moments.adapt(np.arange(12, dtype=np.float32).reshape(-1, 1))
    kind = keras.Input([], dtype=tf.string, name="kind")
    ids = keras.layers.StringLookup(vocabulary=["x", "y"], output_mode="one_hot")(kind)
    joined = keras.layers.Concatenate()([words(text), moments(number), tf.cast(ids, tf.float32)])
    return keras.Model([text, number, kind], keras.layers.Dense(CLASSES)(joined))


@splits((1, 1), (2, 2))
def test_lookup_tables_and_adapted_layers(replicas, micro_batches, tmp_path):
    rng = np.random.default_rng(0)
    x = {
        "text": np.array(rng.choice(["good film", "bad", "a dull plot", "unknown"], 40)),
        "number": rng.normal(size=(40, 1)).astype(np.float32),
        "kind": np.array(rng.choice(["x", "y", "z"], 40)),
    }
    y = rng.integers(0, CLASSES, 40)
    options = {"gradient_accumulation_steps": micro_batches}

    def numbers(model):
        return [w.numpy() for w in model.weights if hasattr(w, "numpy")]

    with strategy_of(1).scope():
        plain = looked_up()
        plain.compile(optimizer=sgd(), loss=logits_loss(), run_eagerly=True)
    fit = {"batch_size": 10, "epochs": 2, "shuffle": False, "verbose": 0}
    plain.fit(x, y, **fit)
    with strategy_of(replicas).scope():
        inner = looked_up()
        model = FineTuner(inner, **options)
        model.compile(optimizer=sgd(), loss=logits_loss())
    model.fit(x, y, **fit)
    for one, two in zip(numbers(inner), numbers(plain), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    np.testing.assert_allclose(model.predict(x, verbose=0), plain.predict(x, verbose=0), atol=1e-5)
    model.save_weights(str(tmp_path / "weights"))


class Measures(keras.layers.Layer):
    """Reports a mean of its inputs, in the way asked for."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.mean = keras.metrics.Mean(name="own") if way == "attribute" else None

    def call(self, x):
        if self.way == "add_metric":
            self.add_metric(tf.reduce_mean(x), name="own")
        else:
            self.mean.update_state(tf.reduce_mean(x))
        return x


class Counts(keras.layers.Layer):
    """Counts its calls."""

    def build(self, shape):
        self.calls = self.add_weight("calls", shape=[], initializer="zeros", trainable=False)

    def call(self, x, training=None):
        if training:
            self.calls.assign_add(1.0)
        return x


class Recalls(keras.layers.Layer):
    """Keeps the mean of what it saw."""

    def build(self, shape):
        self.seen = self.add_weight("seen", shape=[], initializer="zeros", trainable=False)

    def call(self, x):
        self.seen.assign(0.9 * self.seen + 0.1 * tf.reduce_mean(x))
        return x


_seen = []


class Global(keras.layers.Layer):
    """Assigns a variable that no layer holds."""

    def __init__(self):
        super().__init__()
        _seen.append(tf.Variable(0.0, trainable=False))
        self.place = len(_seen) - 1

    def call(self, x):
        _seen[self.place].assign_add(1.0)
        return x


WITH_STATE = {
    "a global": Global,
    "add_metric": lambda: Measures("add_metric"),
    "a metric": lambda: Measures("attribute"),
    "a count": Counts,
    "an average": Recalls,
}


def with_layer(make, *before):
    keras.utils.set_random_seed(3)
    return keras.Sequential([*before, keras.layers.Dense(8, activation="tanh"), make(), keras.layers.Dense(CLASSES)])


@pytest.mark.parametrize("make", WITH_STATE.values(), ids=WITH_STATE)
def test_a_layers_own_state_is_kerass_where_a_batch_is_one_part(make):
    assert_like_keras(lambda: with_layer(make, keras.layers.Input([FEATURES])), *data())


@pytest.mark.parametrize(("replicas", "micro_batches"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("make", WITH_STATE.values(), ids=WITH_STATE)
def test_and_refused_where_it_would_depend_on_the_split(make, replicas, micro_batches):
    x, y = data()  # Built by its first batch: Keras itself cannot build some of them on several replicas.
    with pytest.raises(ValueError, match="^A layer's own (metric is updated|state must change once)"):
        train(lambda: with_layer(make), x, y, replicas=replicas, options={"gradient_accumulation_steps": micro_batches})


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_model_is_not_called_once_more_to_be_built(eagerly):
    x, y = data()
    kept = []

    def make():
        model = with_layer(lambda: Measures("attribute"))
        kept.append(model)
        return model

    settings = {"run_eagerly": eagerly}
    _, expected, _ = train(make, x, y, wrap=False)
    _, found, _ = train(make, x, y, compiled=settings)
    np.testing.assert_allclose(found["own"], expected["own"], atol=1e-5)
    kept.clear()

    def count():
        kept.append(with_layer(Counts))
        return kept[-1]

    train(count, x, y, compiled=settings)
    (calls,) = [w.numpy() for w in kept[0].weights if "calls" in w.name]
    assert calls == 8


def test_a_refusal_while_tracing_is_one_line():
    x, y = data()
    with pytest.raises(ValueError, match="^A loss must return one value per row") as caught:
        train(classifier, x, y, compiled={"loss": lambda: lambda y, p: tf.reduce_mean(logits(y, p))})
    assert "\n" not in str(caught.value)


def recurrent():
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.layers.Input(batch_shape=[10, 4, FEATURES]),
            keras.layers.GRU(6, stateful=True),
            keras.layers.Dense(CLASSES),
        ]
    )


def test_a_stateful_recurrent_layer():
    x = np.random.default_rng(0).normal(size=(40, 4, FEATURES)).astype(np.float32)
    y = np.random.default_rng(1).integers(0, CLASSES, 40)
    fit = {"batch_size": 10, "epochs": 2, "shuffle": False, "verbose": 0}
    plain, inner = recurrent(), recurrent()  # In no scope: Keras has no stateful layers under a strategy.
    plain.compile(optimizer=sgd(), loss=logits_loss(), run_eagerly=True)
    plain.fit(x, y, **fit)
    model = FineTuner(inner)
    model.compile(optimizer=sgd(), loss=logits_loss())
    model.fit(x, y, **fit)
    for one, two in zip(inner.weights, plain.weights, strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), atol=1e-5)
    model = FineTuner(recurrent(), gradient_accumulation_steps=2)
    model.compile(optimizer=sgd(), loss=logits_loss())
    with pytest.raises(ValueError, match="stateful=True and a batch in 2 parts"):
        model.fit(x, y, **fit)


class Both(keras.metrics.Metric):
    """A metric whose result is a dictionary."""

    def __init__(self, name="both", **kwargs):
        super().__init__(name=name, **kwargs)
        self.right = self.add_weight("right", initializer="zeros")
        self.count = self.add_weight("count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        equal = tf.equal(tf.cast(tf.reshape(y_true, [-1]), tf.int64), tf.argmax(y_pred, axis=-1))
        self.right.assign_add(tf.reduce_sum(tf.cast(equal, tf.float32)))
        self.count.assign_add(tf.cast(tf.size(equal), tf.float32))

    def result(self):
        return {"share_right": self.right / self.count, "share_wrong": 1 - self.right / self.count}


@splits((1, 1), (2, 2))
def test_a_metric_whose_result_is_a_dictionary(replicas, micro_batches):
    options = {"gradient_accumulation_steps": micro_batches}
    model = assert_like_keras(
        classifier, *data(), replicas=replicas, options=options, compiled={"metrics": lambda: [Both()]}
    )
    assert {"share_right", "share_wrong"} <= model.evaluate(*data(), verbose=0, return_dict=True).keys()


def test_the_line_for_transformers_optimizer_makes_the_same_updates():
    from transformers import create_optimizer

    pair = create_optimizer(init_lr=1e-2, num_train_steps=10, num_warmup_steps=0, weight_decay_rate=0.1)
    with pytest.raises(ValueError, match="pass the first"):
        FineTuner(classifier()).compile(optimizer=pair, loss=logits_loss())
    with pytest.raises(ValueError, match="AdamW") as caught:
        FineTuner(classifier()).compile(optimizer=pair[0], loss=logits_loss())
    assert "AdamWeightDecay(" not in str(caught.value) and "keras.optimizers.AdamW(" in str(caught.value)
    lines = [
        part for part in str(caught.value).split("`") if "optimizer" in part and "(" in part and part.startswith("opt")
    ]
    assert len(lines) == 2
    names = {"keras": keras, "learning_rate": pair[1]}
    for line in lines:
        exec(line, names)
    x, y = data()
    theirs, ours = classifier(), classifier()
    theirs.compile(optimizer=pair[0], loss=logits_loss(), run_eagerly=True)
    theirs.fit(x, y, batch_size=10, epochs=2, shuffle=False, verbose=0)
    model = FineTuner(ours)
    model.compile(optimizer=names["optimizer"], loss=logits_loss())
    model.fit(x, y, batch_size=10, epochs=2, shuffle=False, verbose=0)
    for one, two in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), atol=1e-5)


def test_labels_among_the_inputs_of_a_hugging_face_model():
    inputs, labels, _ = random_batch(8)
    found = []
    for data_set in ((inputs, labels), ({**inputs, "labels": labels},)):
        keras.utils.set_random_seed(3)
        bert = tiny_bert(dropout=0.0)
        model = FineTuner(bert, gradient_accumulation_steps=2)
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss=logits_loss())
        model.fit(tf.data.Dataset.from_tensor_slices(data_set).batch(4), verbose=0)
        found.append([w.numpy() for w in bert.weights])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="SparseCategoricalCrossentropy"):
        FineTuner(tiny_bert()).compile(optimizer=sgd())


@splits((1, 1), (2, 2))
@pytest.mark.parametrize(
    "class_weight", [{0: 0.0, 1: 1.0, 2: 2.0}, {0: -1.0, 1: 1.0, 2: 1.0}], ids=["zero", "negative"]
)
def test_class_weights_of_zero_and_below(class_weight, replicas, micro_batches):
    """Keras divides by all rows; here rows of weight 0 do not count. So the plain model's loss is scaled by that."""
    x, y = data()
    options = {"gradient_accumulation_steps": micro_batches}
    counted = np.array([class_weight[label] for label in y.tolist()], np.float32)
    compiled = {"optimizer": lambda: keras.optimizers.SGD(0.3)}
    found, _, _ = train(
        classifier, x, y, replicas=replicas, options=options, compiled=compiled, class_weight=class_weight, epochs=1
    )
    scale = np.concatenate([np.full(10, 10 / np.count_nonzero(part), np.float32) for part in counted.reshape(-1, 10)])
    expected, _, _ = train(classifier, x, y, wrap=False, compiled=compiled, sample_weight=counted * scale, epochs=1)
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_model_of_another_scope():
    outside = classifier()
    with strategy_of(2).scope(), pytest.raises(ValueError, match="scope"):
        FineTuner(outside)


def test_keras_3_by_what_a_class_derives_from():
    import keras as keras3

    class Loss(keras3.losses.Loss):
        def call(self, y_true, y_pred):
            return y_pred

    class Stop(keras3.callbacks.Callback):
        pass

    with pytest.raises(ValueError, match="tf_keras"):
        FineTuner(classifier()).compile(optimizer=sgd(), loss=Loss())
    model = FineTuner(classifier())
    model.compile(optimizer=sgd(), loss=logits_loss())
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="tf_keras"):
            call(*data(), verbose=0, callbacks=[Stop()])


def test_an_own_predict_step_is_called():
    class Classes(Plain):
        def predict_step(self, data):
            return tf.argmax(self(data, training=False), axis=-1)

    x, _ = data()
    model = FineTuner(Classes())
    assert model.predict(x, verbose=0).shape == (len(x),)
