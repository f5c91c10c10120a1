"""The loss of several labels a text, and the weight of each label in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.config.training import TrainingConfig


def positive_weights(training: TrainingConfig | None, labels: np.ndarray) -> np.ndarray:
    """The weight of each label in the texts that have it; in the others it weighs 1.

    `balanced` is the number of texts without the label over the number of those with it, each at least 1, so that both
    weigh the same in all.

    Args:
        training: Its `class_weights` is read; None: 1 each.
        labels: 0 or 1 `[n, num_labels]`, those of the training data.

    Returns:
        float32 `[num_labels]`, above 0.

    Raises:
        UsageError: if the number of weights is not the number of labels.
    """
    count, num_labels = labels.shape
    weights = training.class_weights if training is not None else ""
    if not weights:
        return np.ones(num_labels, np.float32)
    if weights == "balanced":
        having = labels.sum(axis=0, dtype=np.int64)
        weights = np.maximum(count - having, 1) / np.maximum(having, 1)
    if len(weights) != num_labels:
        raise UsageError(
            f"class_weights takes one weight for each of the {num_labels} labels. "
            f"Received: {len(weights)} weights. Pass {num_labels}, or --class_weights=balanced."
        )
    return np.asarray(weights, np.float32)


class MeanBinaryCrossEntropy(keras.losses.Loss):
    """The mean over a row's labels of the binary cross-entropy of their logits.

    Without weights and smoothing it is PyTorch's `BCEWithLogitsLoss` of a row; with weights alone, that with
    `pos_weight`. With smoothing the target of a label is `1 - label_smoothing / 2` where the row has it and
    `label_smoothing / 2` where not, and the weight is that of the whole term.

    Args:
        label_smoothing: The share of each label that is spread over having it and not, 0 or more and below 1.
    """

    def __init__(self, label_smoothing: float = 0.0, **kwargs):
        super().__init__(name="mean_binary_cross_entropy", **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """float32 `[rows]` from float32 `[rows, num_labels]`: the weight of each label that a row has, 0 for each that
        it has not; and logits `[rows, num_labels]`."""
        logits = tf.convert_to_tensor(logits)
        labels = tf.cast(labels, logits.dtype)
        has = labels > 0
        smoothing = tf.constant(self.label_smoothing, logits.dtype)
        targets = tf.where(has, 1 - smoothing / 2, smoothing / 2)
        terms = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
        return tf.reduce_mean(tf.where(has, labels, 1) * terms, axis=-1)

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {"label_smoothing": self.label_smoothing}
