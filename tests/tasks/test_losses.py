"""The command's losses against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tfbert.config.training import TrainingConfig
from tfbert.tasks.losses import SmoothedCrossEntropy
from tfbert.tasks.texts.classification import Classification
from tfbert.tasks.texts.regression import Regression


def numpy_cross_entropy(labels, logits, smoothing):
    logits = logits.astype(np.float64)
    log_softmax = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
    log_softmax -= logits.max(1, keepdims=True)
    targets = np.full(logits.shape, smoothing / logits.shape[1])
    targets[np.arange(len(labels)), labels] += 1 - smoothing
    return -(targets * log_softmax).sum(1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("num_classes", [2, 5])
@pytest.mark.parametrize("column", [False, True])
def test_smoothed_cross_entropy_equals_numpy(smoothing, num_classes, column):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 10, (9, num_classes)).astype(np.float32)
    labels = rng.integers(0, num_classes, 9).astype(np.int32)
    given = labels[:, None] if column else labels
    found = SmoothedCrossEntropy(smoothing).call(tf.constant(given), tf.constant(logits))
    assert found.shape == (9,) and found.dtype == tf.float32
    np.testing.assert_allclose(found, numpy_cross_entropy(labels, logits, smoothing), rtol=1e-5, atol=1e-5)


def test_huge_logits_give_no_nan():
    found = SmoothedCrossEntropy(0.1).call(tf.constant([0, 1]), tf.constant([[1e4, -1e4], [1e4, -1e4]]))
    np.testing.assert_allclose(found, [0.05 * 2e4, 0.95 * 2e4], rtol=1e-6)


def test_a_loss_can_be_rebuilt_from_its_configuration():
    assert SmoothedCrossEntropy.from_config(SmoothedCrossEntropy(0.3).get_config()).label_smoothing == 0.3


def test_regression_is_the_squared_error():
    loss = Regression().loss(TrainingConfig())
    found = loss.call(tf.constant([[1.0], [2.5]]), tf.constant([[0.0], [3.0]]))
    np.testing.assert_allclose(found, [1.0, 0.25])


def test_classification_smooths_as_asked():
    assert Classification(("0", "1")).loss(TrainingConfig(label_smoothing=0.25)).label_smoothing == 0.25
