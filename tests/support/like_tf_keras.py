"""The same training through FineTuner and of the plain Keras model."""

import numpy as np
import pytest
import tf_keras as keras

from tests.support.models import strategy_of
from tfbert.step.tf_keras.finetuner import FineTuner

ROWS, FEATURES, CLASSES = 40, 5, 3


def classifier(outputs=CLASSES, activation=None, regularizer=None, seed=3, width=FEATURES):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.layers.Input([width]),
            keras.layers.Dense(8, activation="tanh", kernel_regularizer=regularizer),
            keras.layers.Dense(outputs, activation=activation, bias_regularizer=regularizer),
        ]
    )


def data(rows=ROWS, classes=CLASSES, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    return x, np.argmax(x[:, :classes], axis=1).astype(np.int32)


def sgd():
    return keras.optimizers.SGD(0.3, momentum=0.9)


def logits_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def train(make_model, x, y, *, wrap=True, replicas=1, options=None, compiled=None, **fit):
    """Weights, history and trained model, after `fit` through FineTuner or of the plain model itself.

    The plain model runs eagerly unless told otherwise: what it computes is the same, and nothing is traced.
    """
    strategy = strategy_of(replicas if wrap else 1)
    with strategy.scope():
        model = make_model()
        trained = FineTuner(model, **(options or {})) if wrap else model
        settings = {"optimizer": sgd(), "loss": logits_loss(), "run_eagerly": not wrap}
        settings |= {key: value() if callable(value) else value for key, value in (compiled or {}).items()}
        trained.compile(**settings)
    fit = {"batch_size": 10, "epochs": 2, "shuffle": False, "verbose": 0} | fit
    history = trained.fit(x, y, **fit)
    return [w.numpy() for w in model.weights], history.history, trained


def assert_like_keras(make_model, x, y, *, replicas=1, options=None, compiled=None, atol=1e-5, **fit):
    expected, expected_history, _ = train(make_model, x, y, wrap=False, compiled=compiled, **fit)
    found, history, trained = train(make_model, x, y, replicas=replicas, options=options, compiled=compiled, **fit)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=atol)
    assert history.keys() == expected_history.keys()
    for name, values in expected_history.items():
        np.testing.assert_allclose(history[name], values, atol=1e-5, err_msg=name)
    return trained


def splits(*quick):
    """Marks a test to run under these of the splits, and under the others when the slow ones run."""
    cases = [(1, 1), (1, 3), (2, 2)]
    return pytest.mark.parametrize(
        "replicas, micro_batches",
        [pytest.param(*case, marks=() if case in quick else pytest.mark.slow) for case in cases],
    )


SPLITS, SPLITS_OF_ONE = splits((2, 2)), splits((1, 3))
"""Quick where what matters is what all replicas make together, or what one does."""
