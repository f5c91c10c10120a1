"""The losses of the command: per-example values, float32."""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras


class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy of logits with integer labels, a share of each label spread over all classes.

    The target of class c is `(1 - label_smoothing) [c = label] + label_smoothing / num_classes` (Szegedy et al. 2016).

    Args:
        label_smoothing: The share, 0 or more and below 1.
    """

    def __init__(self, label_smoothing: float = 0.0, **kwargs):
        super().__init__(name="cross_entropy", **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """float32 `[rows]` from integers `[rows]` or `[rows, 1]` and logits `[rows, num_classes]`."""
        labels = tf.reshape(labels, [-1])
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if self.label_smoothing:
            uniform = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)
            loss = (1 - self.label_smoothing) * loss + self.label_smoothing * uniform
        return loss

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {"label_smoothing": self.label_smoothing}
