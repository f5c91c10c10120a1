"""The losses of the command: values per example or per token, float32; and the weight of each class in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.config.training import TrainingConfig


def class_weights(training: TrainingConfig | None, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """The weight of each class: float32 `[num_classes]`.

    Args:
        training: Its `class_weights` is read; None: 1 each.
        labels: int `[n]`, all labels of the training data.
        num_classes: The number of classes.

    Raises:
        UsageError: if the number of weights is not the number of classes.
    """
    weights = training.class_weights if training is not None else ""
    if not weights:
        return np.ones(num_classes, np.float32)
    if weights == "balanced":
        counts = np.bincount(labels, minlength=num_classes)
        weights = len(labels) / (num_classes * np.maximum(counts, 1))
    if len(weights) != num_classes:
        raise UsageError(
            f"class_weights takes one weight for each of the {num_classes} classes. "
            f"Received: {len(weights)} weights. Pass {num_classes}, or --class_weights=balanced."
        )
    return np.asarray(weights, np.float32)


class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy of logits with integer labels, with label smoothing.

    The target of class c is `(1 - label_smoothing) [c = label] + label_smoothing / num_classes` (Szegedy et al. 2016).

    Args:
        label_smoothing: The share of each label that is spread over all classes, 0 or more and below 1.
    """

    def __init__(self, label_smoothing: float = 0.0, **kwargs):
        super().__init__(name="cross_entropy", **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """float32 `[rows]` from integers `[rows]` or `[rows, 1]` and logits `[rows, num_classes]`; or `[rows, width]`
        from integers `[rows, width]` (or with a last dimension of 1) and logits `[rows, width, num_classes]`."""
        labels, logits = tf.convert_to_tensor(labels), tf.convert_to_tensor(logits)
        if labels.shape.rank == logits.shape.rank:  # Keras may add a last dimension of 1 to labels.
            labels = tf.squeeze(labels, -1)
        labels = tf.cast(labels, tf.int32)  # Keras makes them floating.
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if self.label_smoothing:
            uniform = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)
            loss = (1 - self.label_smoothing) * loss + self.label_smoothing * uniform
        return loss

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {"label_smoothing": self.label_smoothing}


class SpanCrossEntropy(keras.losses.Loss):
    """The mean of two cross-entropies: for the start of a span, and for its end (Devlin et al. 2018)."""

    def __init__(self, **kwargs):
        super().__init__(name="span_cross_entropy", **kwargs)

    def call(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """float32 `[rows]` from integers `[rows, 2]`, the first and last token, and logits `[rows, width, 2]`."""
        by_place, labels = tf.transpose(logits, [0, 2, 1]), tf.cast(labels, tf.int32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, by_place), axis=1)

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {}
