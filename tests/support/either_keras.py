"""The same small training by plain Keras and by FineTuner, with Keras 3 or with tf_keras."""

import contextlib
import importlib
from typing import NamedTuple

import numpy as np

import tfbert
from tests.support.models import strategy_of

FEATURES, CLASSES = 5, 3


class Trained(NamedTuple):
    """What a run leaves."""

    weights: list
    history: dict
    model: object


class Either:
    """One of the two Kerases.

    Args:
        name: "keras" or "tf_keras".
    """

    def __init__(self, name):
        self.keras = importlib.import_module(name)
        self.is_keras_3 = name == "keras"

    @contextlib.contextmanager
    def policy(self, name):
        """While active, new layers have this precision."""
        mixed = self.keras.mixed_precision
        choose = self.keras.config.set_dtype_policy if self.is_keras_3 else mixed.set_global_policy
        choose(name)
        try:
            yield
        finally:
            choose("float32")

    def classifier(self, *layers, dropout=0.0):
        """Dense layers, with others in between."""
        self.keras.utils.set_random_seed(3)
        kinds = self.keras.layers
        first = kinds.Dense(8, activation="tanh")
        return self.keras.Sequential(
            [kinds.Input([FEATURES]), first, *layers, kinds.Dropout(dropout), kinds.Dense(CLASSES)]
        )

    def words(self):
        """A text's four words, of six, as a mean of embeddings."""
        self.keras.utils.set_random_seed(1)
        kinds = self.keras.layers
        layers = [kinds.Input([4], dtype="int32"), kinds.Embedding(6, 4), kinds.GlobalAveragePooling1D()]
        return self.keras.Sequential([*layers, kinds.Dense(CLASSES)])

    def tagger(self, *layers):
        """A tag for each position."""
        self.keras.utils.set_random_seed(1)
        return self.keras.Sequential(
            [self.keras.layers.Input([None, FEATURES]), *layers, self.keras.layers.Dense(CLASSES)]
        )

    def sgd(self, **options):
        """With a rate at which a step shows."""
        return self.keras.optimizers.SGD(0.3, **options)

    def scaled(self, optimizer):
        """With a loss scale."""
        wrap = self.keras.optimizers if self.is_keras_3 else self.keras.mixed_precision
        return wrap.LossScaleOptimizer(optimizer, initial_scale=8.0)

    def loss(self):
        """Of logits."""
        return self.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def plain(self, make=None, xy=None, *, replicas=1, optimizer=None, compiled=None, **fit):
        """Trains a model as Keras does."""
        return self._train(lambda model: model, make, xy, replicas, optimizer, compiled, fit)

    def ours(self, make=None, xy=None, *, replicas=2, optimizer=None, compiled=None, parts=1, wrap=None, **fit):
        """Trains a model in a FineTuner of so many micro-batches."""
        options = {"gradient_accumulation_steps": parts} | (wrap or {})
        return self._train(
            lambda model: tfbert.FineTuner(model, **options), make, xy, replicas, optimizer, compiled, fit
        )

    def _train(self, wrap, make, xy, replicas, optimizer, compiled, fit):
        with strategy_of(replicas).scope():
            model = wrap((make or self.classifier)())
            model.compile(**{"optimizer": (optimizer or self.sgd)(), "loss": self.loss()} | (compiled or {}))
        x, y = xy or rows(40)
        history = model.fit(x, y, **{"batch_size": 10, "shuffle": False, "verbose": 0} | fit)
        return Trained(weights(model), history.history, model)


def rows(count, seed=0):
    """Features and classes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, FEATURES)).astype(np.float32)
    return x, np.argmax(x[:, :CLASSES], axis=1).astype(np.int32)


def weights(model):
    """Those of a model, or of the one within it."""
    return [np.array(weight) for weight in getattr(model, "model", model).get_weights()]


def apart(one, other):
    """The largest difference of two runs' weights, or of two lists of weights."""
    pairs = zip(getattr(one, "weights", one), getattr(other, "weights", other), strict=True)
    return max(np.abs(first - second).max() for first, second in pairs)
