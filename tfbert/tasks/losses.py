"""The losses of the command: values per example or per token, float32; and the weight of each class in them.

Where a new head starts: at what the training labels are on average, so that the encoder need not learn it first.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, get_args

import keras
import numpy as np
import tensorflow as tf

from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.batches.pipeline import EncodedExamples
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
    counts = np.bincount(labels, minlength=num_classes)
    return asked_weights(training, len(labels) / (num_classes * np.maximum(counts, 1)), "classes")


def asked_weights(training: TrainingConfig | None, balanced: np.ndarray, what: str) -> np.ndarray:
    """The weights that `class_weights` asks for, `balanced` being those of this word; `what` they are of, for messages.
    Else as `class_weights`."""
    count, weights = len(balanced), training.class_weights if training is not None else ""
    if not weights:
        return np.ones(count, np.float32)
    if weights == "balanced":
        return np.asarray(balanced, np.float32)
    if len(weights) != count:
        rule = f"class_weights takes one weight for each of the {count} {what}"
        raise UsageError(f"{rule}. Received: {len(weights)} weights. Pass {count}, or --class_weights=balanced.")
    return np.asarray(weights, np.float32)


class Smoothed(keras.losses.Loss):
    """A loss that may smooth labels.

    Args:
        label_smoothing: The share of each label that is spread over all that it could be, 0 or more and below 1.
    """

    def __init__(self, label_smoothing: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.label_smoothing = label_smoothing

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return super().get_config() | {"label_smoothing": self.label_smoothing}


class SmoothedCrossEntropy(Smoothed):
    """Cross-entropy of logits with integer labels, with label smoothing.

    The target of class c is `(1 - label_smoothing) [c = label] + label_smoothing / num_classes` (Szegedy et al. 2016).
    """

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


class SpanCrossEntropy(keras.losses.Loss):
    """The mean of two cross-entropies: for the start of a span, and for its end (Devlin et al. 2018)."""

    def call(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """float32 `[rows]` from integers `[rows, 2]`, the first and last token, and logits `[rows, width, 2]`."""
        by_place, labels = tf.transpose(logits, [0, 2, 1]), tf.cast(labels, tf.int32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, by_place), axis=1)


ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadStart:
    """Where a task's new head starts.

    Attributes:
        bias: float32, its bias.
        scale: What its new weights are multiplied by.
        words: What that is, for the log.
    """

    bias: np.ndarray
    scale: float = 1.0
    words: str


def base_rate(
    labels: np.ndarray,
    problem_type: ProblemType,
    *,
    num_classes: int | None = None,
    sample_weight: np.ndarray | None = None,
    label_smoothing: float = 0.0,
) -> np.ndarray:
    """The bias with which a new head predicts the labels' frequencies, whatever the text.

    A bias of 0 says 1/n for each class, and 0.5 for each label. Where labels are rare, a small learning rate takes
    thousands of updates to move it away from there, in which the encoder learns to say "rare" instead of why (the prior
    of Lin et al. 2017, "Focal loss for dense object detection", section 3.3). Counts are smoothed by half an example.

    Args:
        labels: The training labels. Classes: integers of any shape, also `[rows, width]` for tags. Several labels a
            text: 0 or 1 `[rows, num_labels]`; a number above 0 is the weight of a label where a text has it.
            Regression: numbers `[rows]`.
        problem_type: transformers' word for what they are.
        num_classes: The number of classes; needed for classes alone.
        sample_weight: What each label weighs in the loss: in the shape of integers or numbers, 0 for a label that does
            not count, such as padding's; `[rows]` for several labels a text. None: 1 each.
        label_smoothing: As in the loss.

    Returns:
        float32: `[num_classes]`, the logarithm of each class's share, less their mean; `[num_labels]`, the log-odds of
        each label; or `[1]`, the mean.

    Raises:
        ValueError: for no labels that count, or labels that are not what `problem_type` says.

    Example:
        head = keras.layers.Dense(28)
        logits = head(encoder.output)
        head.bias.assign(tfbert.base_rate(train_labels, "multi_label_classification"))
    """
    one_label, several_labels, numbers = get_args(ProblemType)
    labels = np.asarray(labels)
    weights = np.ones(1) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if not labels.size or not weights.sum() > 0:
        received = f"labels of shape {labels.shape}, none with a weight above 0"
        raise ValueError(f"A base rate needs labels that count. Received: {received}. Pass those of the training data.")
    weights = weights * (np.count_nonzero(weights) / weights.sum())  # 1 on average: half an example stays half a one.
    if problem_type == one_label:
        weights = np.broadcast_to(weights, labels.shape)
        labels, weights = labels[weights > 0], weights[weights > 0]
        if num_classes is None or labels.dtype.kind not in "iu" or not 0 <= labels.min() <= labels.max() < num_classes:
            received = f"num_classes={num_classes} and {labels.dtype} labels from {labels.min()} to {labels.max()}"
            todo = "Pass the number of classes, and a sample_weight of 0 for labels that do not count."
            raise ValueError(f"Classes are integers from 0 to num_classes - 1. Received: {received}. {todo}")
        counts = np.bincount(labels, weights, num_classes) + 0.5
        logs = np.log((1 - label_smoothing) * counts / counts.sum() + label_smoothing / num_classes)
        bias = logs - logs.mean()
    elif problem_type == several_labels:
        if labels.ndim != 2 or (labels < 0).any():
            rule = "Several labels a text are 0 or 1 in a table [rows, num_labels]"
            received = f"labels of shape {labels.shape}, the least {labels.min()}"
            raise ValueError(f"{rule}. Received: {received}. Pass a column for each label.")
        weights = np.broadcast_to(weights, labels.shape[:1])
        present, absent = weights @ labels, weights @ (labels == 0)
        moved = label_smoothing / 2  # To the other side.
        yes, no = (1 - moved) * present + moved * absent, (1 - moved) * absent + moved * present
        bias = np.log((yes + 0.5) / (no + 0.5))
    elif problem_type == numbers:
        flat = labels.reshape(-1).astype(np.float64)
        bias = np.average(flat, weights=np.broadcast_to(weights, labels.size), keepdims=True)
    else:
        rule = f"problem_type must be one of {', '.join(get_args(ProblemType))}"
        raise ValueError(f"{rule}. Received: problem_type={problem_type!r}. Pass one of them.")
    return bias.astype(np.float32)


def class_start(encoded: EncodedExamples, training: TrainingConfig, num_classes: int, word: str) -> HeadStart:
    """The start of a head of classes, `word` being what these are called; with balanced weights it is 0."""
    bias = base_rate(
        encoded.labels,
        "single_label_classification",
        num_classes=num_classes,
        sample_weight=encoded.weights,
        label_smoothing=training.label_smoothing,
    )
    return HeadStart(bias=bias, words=f"the base rate of {num_classes} {word}")
