"""Small models of either Keras, the same training by plain Keras and by FineTuner, and what stands for both."""

import collections
import contextlib
import functools
import importlib

import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.cases import quick
from tests.support.models import strategy_of
from tfbert import finetuner

FEATURES, CLASSES = 5, 3
OVER_BOTH = pytest.mark.parametrize("either", ["keras", "tf_keras"], indirect=True)
"""For tests that train nothing: by default the others run with Keras 3 alone, as tf_keras is an extra."""


def splits(*chosen):
    """Marks a test to run under these of the splits, and under the others when the slow ones run."""
    return pytest.mark.parametrize("replicas, parts", quick([(1, 1), (1, 3), (2, 2)], *chosen))


Trained = collections.namedtuple("Trained", "weights history model")
"""What a run leaves."""


class Either:
    """One of the two Kerases.

    Args:
        name: "keras" or "tf_keras".
    """

    def __init__(self, name):
        self.keras = importlib.import_module(name)
        self.layers = self.keras.layers
        self.is_keras_3 = name == "keras"

    @property
    def step(self):
        """What `FineTuner` knows of this Keras."""
        return finetuner._class_of(self.keras.__name__)._parts

    @contextlib.contextmanager
    def policy(self, name):
        """While active, new layers have this precision."""
        choose = self.keras.config.set_dtype_policy if self.is_keras_3 else self.keras.mixed_precision.set_global_policy
        choose(name)
        try:
            yield
        finally:
            choose("float32")

    def sequential(self, make_layers, shape=(FEATURES,), seed=3, dtype=None):
        """Layers, made once the seed is set, after an input; without a shape, built by the first batch."""
        self.keras.utils.set_random_seed(seed)
        inputs = [] if shape is None else [self.layers.Input(shape, dtype=dtype)]
        return self.keras.Sequential([*inputs, *make_layers()])

    def classifier(self, *layers, dropout=0.0, outputs=CLASSES, activation=None, regularizer=None):
        """Dense layers, with others in between."""
        dense = self.layers.Dense
        return self.sequential(
            lambda: [
                dense(8, activation="tanh", kernel_regularizer=regularizer),
                *layers,
                self.layers.Dropout(dropout),
                dense(outputs, activation=activation, bias_regularizer=regularizer),
            ]
        )

    def words(self):
        """A text's four words, of six, as a mean of embeddings."""
        kinds = self.layers
        make = lambda: [kinds.Embedding(6, 4), kinds.GlobalAveragePooling1D(), kinds.Dense(CLASSES)]  # noqa: E731
        return self.sequential(make, shape=[4], seed=1, dtype="int32")

    def tagger(self, *layers):
        """A tag for each position."""
        return self.sequential(lambda: [*layers, self.layers.Dense(CLASSES)], shape=[None, FEATURES], seed=1)

    def bert(self, **options):
        """Ours, or transformers', with random weights."""
        module = importlib.import_module(f"tests.support.{'' if self.is_keras_3 else 'tf_keras_'}models")
        return module.tiny_bert(**options)

    def subclassed(self, base=None, seed=3, **methods):
        """A model, built by its first batch, with these methods of its own; its call takes no `training`."""
        kinds = self.layers

        class Plain(self.keras.Model):
            def __init__(self):
                super().__init__()
                self.hidden = kinds.Dense(8, activation="tanh")
                self.out = kinds.Dense(CLASSES)

            def call(self, x):
                return self.out(self.hidden(x))

        self.keras.utils.set_random_seed(seed)
        return type("Own", (base or Plain,), methods)()

    def layer(self, function, adds=False):
        """A layer that computes a function of its inputs, or adds it to the loss."""

        class Own(self.layers.Layer):
            def call(self, inputs):
                if adds:
                    self.add_loss(function(inputs))
                    return inputs
                return function(inputs)

        return Own()

    def sgd(self, rate=0.3, **options):
        """With a rate at which a step shows."""
        return self.keras.optimizers.SGD(rate, **options)

    def scaled(self, optimizer, **options):
        """With a loss scale."""
        wrap = self.keras.optimizers if self.is_keras_3 else self.keras.mixed_precision
        return wrap.LossScaleOptimizer(optimizer, **{"initial_scale": 8.0} | options)

    def loss(self, **options):
        """Of logits."""
        return self.keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)

    def plain(self, make=None, xy=None, *, replicas=None, optimizer=None, compiled=None, **fit):
        """Trains a model as Keras does; eagerly, where no replicas are asked for: a reference need not be traced."""
        options = lambda: {"run_eagerly": replicas is None} | _made(compiled)  # noqa: E731
        return self._train(lambda model: model, make, xy, replicas, optimizer, options, fit)

    def ours(self, make=None, xy=None, *, replicas=2, optimizer=None, compiled=None, parts=1, wrap=None, **fit):
        """Trains a model in a FineTuner of so many micro-batches."""
        tuner = functools.partial(tfbert.FineTuner, **{"gradient_accumulation_steps": parts} | (wrap or {}))
        return self._train(tuner, make, xy, replicas, optimizer, compiled, fit)

    def like(self, make=None, xy=None, *, replicas=2, parts=2, wrap=None, optimizer=None, compiled=None, **fit):
        """Trains a model by plain Keras, eagerly on one device, and here: weights and history are the same.

        `compiled` gives the arguments of `compile`, or is a function that does where they are objects.
        """
        kinds = {"optimizer": optimizer or (lambda: self.sgd(momentum=0.9))}
        eagerly = lambda: _made(compiled) | {"run_eagerly": True}  # noqa: E731
        expected = self.plain(make, xy, compiled=eagerly, **kinds, **fit)
        found = self.ours(make, xy, replicas=replicas, parts=parts, wrap=wrap, compiled=compiled, **kinds, **fit)
        assert apart(found, expected) < 1e-5
        assert found.history.keys() == expected.history.keys()
        for name, values in expected.history.items():
            np.testing.assert_allclose(found.history[name], values, atol=1e-5, err_msg=name)
        return found

    def build(self, make=None, *, replicas=1, policy="float32", optimizer=None, compiled=None, **options):
        """A compiled FineTuner in the scope of its strategy."""
        with self.policy(policy), _scope(replicas):
            model = tfbert.FineTuner((make or self.classifier)(), **options)
            model.compile(**{"optimizer": (optimizer or self.sgd)(), "loss": self.loss()} | _made(compiled))
        return model

    def _train(self, wrap, make, xy, replicas, optimizer, compiled, fit):
        with _scope(replicas):
            model = wrap((make or self.classifier)())
            model.compile(**{"optimizer": (optimizer or self.sgd)(), "loss": self.loss()} | _made(compiled))
        x, y = xy or rows(40)
        history = model.fit(x, y, **{"batch_size": 10, "shuffle": False, "verbose": 0} | fit)
        return Trained(weights(model), history.history, model)


def _made(compiled):
    """Arguments of `compile`; tf_keras takes metrics that are made in the model's scope alone."""
    return compiled() if callable(compiled) else compiled or {}


def _scope(replicas):
    return contextlib.nullcontext() if replicas is None else strategy_of(replicas).scope()


def rows(count, seed=0):
    """Features and classes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, FEATURES)).astype(np.float32)
    return x, np.argmax(x[:, :CLASSES], axis=1).astype(np.int32)


def weights(model):
    """Those of a model, or of the one within it."""
    inner = getattr(model, "model", model)
    return [weight.numpy() for weight in inner.weights if hasattr(weight, "numpy")]  # A table of tf_keras has none.


def apart(one, other):
    """The largest difference of two runs' weights, or of two lists of weights."""
    pairs = zip(getattr(one, "weights", one), getattr(other, "weights", other), strict=True)
    return max(np.abs(first - second).max() for first, second in pairs if first.dtype.kind in "fiu" and first.size)


def scores_of_pairs(outputs):
    return tf.matmul(outputs, outputs, transpose_b=True)


def in_batch_negatives(labels, outputs):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(outputs)[0]), scores_of_pairs(outputs))


def root_of_the_mean(labels, outputs):
    return tf.sqrt(tf.reduce_mean((tf.cast(tf.reshape(labels, [-1, 1]), tf.float32) - outputs) ** 2))
