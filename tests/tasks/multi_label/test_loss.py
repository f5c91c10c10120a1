"""The loss of several labels a text against NumPy, and against PyTorch's definition with positive weights."""

import numpy as np
import pytest

from tfbert.config.training import TrainingConfig
from tfbert.errors import UsageError
from tfbert.tasks.multi_label.multi_label_classification import MeanBinaryCrossEntropy, positive_weights

rng = np.random.default_rng(0)
LOGITS = (3 * rng.standard_normal((7, 4))).astype(np.float32)
LABELS = (rng.random((7, 4)) < 0.4).astype(np.int8)


def reference(logits, labels, weights=1.0, smoothing=0.0):
    """A term is -w (t log p + (1 - t) log(1 - p)), with w other than 1 where the row has the label."""
    p, t = 1 / (1 + np.exp(-logits.astype(np.float64))), labels * (1 - smoothing) + smoothing / 2
    terms = -(t * np.log(p) + (1 - t) * np.log(1 - p))
    return (np.where(labels > 0, weights, 1.0) * terms).mean(axis=1)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [(1.0,) * 4, (0.5, 1.0, 3.0, 10.0)])
def test_a_row_has_the_mean_over_its_labels(weights, smoothing):
    found = MeanBinaryCrossEntropy(smoothing).call(LABELS * np.array(weights, np.float32), LOGITS)
    assert found.dtype == "float32" and found.shape == (7,)
    np.testing.assert_allclose(found, reference(LOGITS, LABELS, weights, smoothing), rtol=2e-6)


def test_large_logits_are_finite():
    far = np.array([[300.0, -300.0], [-300.0, 300.0]], np.float32)
    found = MeanBinaryCrossEntropy().call(np.array([[1.0, 0.0], [1.0, 0.0]], np.float32), far)
    np.testing.assert_allclose(found, [0.0, 300.0])


def test_balanced_weights_make_both_sides_equal():
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0]], np.int8)
    balanced = positive_weights(TrainingConfig(class_weights="balanced"), labels)
    np.testing.assert_allclose(balanced, [3 / 2, 1 / 5, 5.0])  # Each count at least 1: no weight is 0.
    np.testing.assert_array_equal(positive_weights(None, labels), np.ones(3))
    np.testing.assert_array_equal(positive_weights(TrainingConfig(class_weights=(1, 2, 3)), labels), [1, 2, 3])
    with pytest.raises(UsageError, match="one weight for each of the 3 labels. Received: 2 weights"):
        positive_weights(TrainingConfig(class_weights=(1, 2)), labels)
