"""Keras 3: what plain Keras would do and the step does not is refused by name, and objects of the other Keras."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfbert
from tests.support.keras3 import CLASSES, build, classifier, data, logits_loss, sgd, train
from tests.support.models import strategy_of
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.step.tf_keras.finetuner import FineTuner as TFKerasFineTuner


class Plain(keras.Model):
    """A subclassed model."""

    def __init__(self):
        super().__init__()
        self.out = keras.layers.Dense(CLASSES)

    def call(self, x):
        return self.out(x)


def method(name, base=Plain):
    def own(self, *args, **kwargs):
        return getattr(super(type(self), self), name)(*args, **kwargs)

    return type("Own", (base,), {name: own})


def test_one_name_for_both():
    one = tf_keras.Sequential([tf_keras.layers.Input([3]), tf_keras.layers.Dense(2)])
    three = classifier()
    assert type(tfbert.FineTuner(one)) is TFKerasFineTuner and type(tfbert.FineTuner(three)) is FineTuner
    for made in (tfbert.FineTuner(one), tfbert.FineTuner(three)):
        assert isinstance(made, tfbert.FineTuner)
    assert not isinstance(three, tfbert.FineTuner) and issubclass(FineTuner, tfbert.FineTuner)

    class Tuner(tfbert.FineTuner):
        def greeting(self):
            return f"{super().name} of {type(self).__name__}"

    assert isinstance(Tuner(one, name="x"), TFKerasFineTuner) and Tuner(one, name="x").greeting() == "x of Tuner"
    with pytest.raises(ValueError, match="Received: model=.* of Keras 3|Received: model=Sequential of Keras 3"):
        Tuner(three)


@pytest.mark.parametrize(
    "name",
    [
        *("train_step", "test_step", "compute_metrics", "make_train_function", "make_test_function"),
        *("get_metrics_result", "compile", "reset_metrics"),
    ],
)
def test_a_models_own_method(name):
    with pytest.raises(ValueError, match=f"model Own with a {name} of its own"):
        tfbert.FineTuner(method(name)())


def test_however_it_came_there():
    class Mixin:
        def train_step(self, data):
            return {}

    class Below(type("Mixed", (Mixin, Plain), {})):
        pass

    assigned = Plain()
    object.__setattr__(assigned, "test_step", functools.partial(Mixin.train_step, assigned))
    for model in (Below(), assigned):
        with pytest.raises(ValueError, match="of its own"):
            tfbert.FineTuner(model)


@pytest.mark.parametrize("name", ["fit", "evaluate", "predict", "train_on_batch"])
def test_a_method_that_users_call(name):
    model = tfbert.FineTuner(method(name)())
    model.compile(sgd(), logits_loss())
    x, y = data()
    with pytest.raises(ValueError, match=f"model Own with a {name} of its own"):
        getattr(model, name)(x) if name == "predict" else getattr(model, name)(x, y)


COMPILED = {
    "an optimizer that accumulates": (
        lambda: {"optimizer": keras.optimizers.Adam(0.1, gradient_accumulation_steps=4)},
        r"Received: an optimizer with gradient_accumulation_steps=4\. Pass FineTuner\(gradient_accumulation_steps=4",
    ),
    "one within a loss scale": (
        lambda: {
            "optimizer": keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1, gradient_accumulation_steps=2))
        },
        "gradient_accumulation_steps=2",
    ),
    "a sum": (
        lambda: {"loss": keras.losses.MeanSquaredError(reduction="sum")},
        "Received: a loss with reduction='sum'",
    ),
    "a mean by weights": (
        lambda: {"loss": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")},
        "reduction='mean_with_sample_weight'",
    ),
    "no loss": (lambda: {"loss": None}, "FineTuner needs a loss for an output. Received: loss=None"),
    "a task's own loss": (lambda: {"loss": "auto"}, "Received: loss='auto'"),
    "XLA of all": (lambda: {"jit_compile": True}, r"Pass FineTuner\(jit_compile=True\)"),
    "a loss's own call": (
        lambda: {"loss": method("__call__", keras.losses.MeanSquaredError)()},
        "loss Own with a __call__ of its own",
    ),
    "another step's gradients": (
        lambda: {"optimizer": method("scale_loss", keras.optimizers.SGD)(0.1)},
        "optimizer Own with a scale_loss of its own",
    ),
    "a loss of tf_keras": (
        lambda: {"loss": type("Below", (tf_keras.losses.MeanSquaredError,), {})()},
        "Received: loss=Below of tf_keras. Write `import keras`",
    ),
    "a function of tf_keras": (lambda: {"loss": tf_keras.losses.mean_squared_error}, "loss=mean_squared_error of tf_k"),
    "an optimizer of tf_keras": (lambda: {"optimizer": tf_keras.optimizers.SGD(0.1)}, "optimizer=SGD of tf_keras"),
    "a schedule of tf_keras": (
        lambda: {"optimizer": keras.optimizers.SGD(tf_keras.optimizers.schedules.PolynomialDecay(0.1, 5))},
        "learning_rate=PolynomialDecay of tf_keras",
    ),
    "a metric of tf_keras": (lambda: {"metrics": [tf_keras.metrics.Mean()]}, "metrics=Mean of tf_keras"),
}


@pytest.mark.parametrize("what", COMPILED)
def test_arguments_of_compile(what):
    given, message = COMPILED[what]
    with pytest.raises(ValueError, match=message):
        tfbert.FineTuner(classifier()).compile(**{"optimizer": sgd(), "loss": logits_loss()} | given())


def test_callbacks_of_the_other_keras():
    model = build(classifier)
    with pytest.raises(ValueError, match="Received: callbacks=EarlyStopping of tf_keras"):
        model.fit(*data(), callbacks=[tf_keras.callbacks.EarlyStopping()])
    other = tfbert.FineTuner(tf_keras.Sequential([tf_keras.layers.Input([5]), tf_keras.layers.Dense(CLASSES)]))
    other.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(ValueError, match="Received: callbacks=EarlyStopping of Keras 3"):
        other.fit(*data(), callbacks=[keras.callbacks.EarlyStopping()])


@pytest.mark.parametrize("hold", [lambda layer: layer, lambda layer: [layer], lambda layer: {"a": layer}])
def test_a_layer_of_the_other_keras_within_a_model(hold):
    """Keras 3 would not train it, without a word."""

    class Mixed(Plain):
        def __init__(self):
            super().__init__()
            self.first = hold(tf_keras.layers.Dense(8))

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = Mixed()

    for make in (Mixed, Outer):
        with pytest.raises(ValueError, match=r"Received: Dense of tf_keras as Mixed\.first\. Use a layer of Keras 3"):
            tfbert.FineTuner(make())


def test_scopes():
    outside, optimizer = classifier(), sgd()
    with strategy_of(2).scope():
        with pytest.raises(ValueError, match="FineTuner under MirroredStrategy"):
            tfbert.FineTuner(outside)
        model = tfbert.FineTuner(classifier())
        with pytest.raises(ValueError, match="an optimizer created under .*, and a model under MirroredStrategy"):
            model.compile(optimizer, logits_loss())
    with pytest.raises(ValueError, match="which is one already"):
        tfbert.FineTuner(tfbert.FineTuner(classifier()))


def test_other_strategies():
    scope = tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"]).scope()
    with scope, pytest.raises(ValueError, match="MultiWorkerMirroredStrategy. Received: CentralStorageStrategy"):
        tfbert.FineTuner(classifier())


def test_synchronized_normalization():
    def make():
        return keras.Sequential([keras.layers.Input([5]), keras.layers.BatchNormalization(synchronized=True)])

    build(make)
    with pytest.raises(ValueError, match="synchronized=True on several replicas"):
        build(make, replicas=2, compiled={"loss": "mse"}).fit(*data(), verbose=0)


class Drawing(keras.layers.Layer):
    def call(self, x):
        return x + keras.random.gamma(keras.ops.shape(x), 1.0, seed=3)


class OfTensorFlow(keras.layers.Layer):
    def call(self, x):
        return tf.nn.dropout(x, 0.5)


def _within_a_loop(x):
    return tf.map_fn(lambda row: row + tf.random.normal([5]), x)


_GENERATOR = tf.random.Generator.from_seed(1)
OF_TENSORFLOW = {
    "gamma": lambda x: x + tf.random.gamma([5], 1.0),
    "poisson": lambda x: x + tf.random.poisson([5], 1.0),
    "binomial": lambda x: x + tf.random.stateless_binomial([5], [1, 2], 3.0, 0.5, tf.float32),
    "categorical": lambda x: x + tf.cast(tf.random.categorical(x, 5), x.dtype),
    "stateless": lambda x: x + tf.random.stateless_normal(tf.shape(x), [1, 2]),
    "uniform": lambda x: x + tf.random.stateless_uniform(tf.shape(x), [1, 2]),
    "whole": lambda x: x + tf.cast(tf.random.stateless_uniform(tf.shape(x), [1, 2], 0, 5, tf.int32), x.dtype),
    "generator": lambda x: x + _GENERATOR.normal([5]),
    "shuffle": lambda x: tf.random.experimental.stateless_shuffle(x, [1, 2]),
    "loop": _within_a_loop,
    "function": tf.function(lambda x: x + tf.random.truncated_normal([5])),
}


class Counting(keras.layers.Layer):
    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.count.assign_add(1.0)
        return x


class Seeding(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + tf.cast(self.generator.next()[0], x.dtype)


class Measuring(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean(name="inside")

    def call(self, x):
        self.mean.update_state(x)
        return x


@pytest.mark.parametrize(
    "layer, message",
    [
        (Drawing, "a layer that calls keras.random.gamma, and a batch in 2 parts"),
        (OfTensorFlow, "a layer that draws by itself"),
        (Counting, "A layer's own state must change once in a step"),
        (Seeding, "A layer's own state must change once in a step"),
        (Measuring, "metric 'inside' of a layer"),
    ],
)
def test_what_would_depend_on_the_split(layer, message):
    def make():
        return keras.Sequential([keras.layers.Input([5]), layer(), keras.layers.Dense(CLASSES)])

    with pytest.raises(ValueError, match=message):
        build(make, gradient_accumulation_steps=2).fit(*data(8), verbose=0)


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_whatever_tensorflow_draws_by_itself_is_noticed(name):
    layers = [keras.layers.Input([5]), keras.layers.Lambda(OF_TENSORFLOW[name]), keras.layers.Dense(CLASSES)]
    with pytest.raises(ValueError, match="a layer that draws by itself"):
        build(lambda: keras.Sequential(layers), gradient_accumulation_steps=2).fit(*data(8), verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [Drawing, Counting, Seeding, Measuring])
def test_and_works_in_one_part(layer):
    def make():
        return keras.Sequential([keras.layers.Input([5]), layer(), keras.layers.Dense(CLASSES)])

    _, history, _ = train(make, *data(8))
    assert np.isfinite(history["loss"]).all()
    assert ("inside" in history) == (layer is Measuring)


def test_losses_without_a_value_per_row():
    class OneNumber(Plain):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return super().compute_loss(x, y, y_pred, sample_weight)

    with pytest.raises(ValueError, match=r"calls super\(\).compute_loss or self.compiled_loss"):
        train(OneNumber, *data(8), compiled={"loss": lambda: None})
    with pytest.raises(ValueError, match="A loss must return one value per row"):
        train(Plain, *data(8), compiled={"loss": lambda: lambda y, p: keras.ops.mean(p)})


def test_another_backend(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="trains with TensorFlow. Received: a model of Keras 3 with the backend 'jax'"):
        tfbert.FineTuner(classifier())
