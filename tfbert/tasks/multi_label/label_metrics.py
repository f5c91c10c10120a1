"""What is computed of the labels that texts have and get: metrics, through scikit-learn, on the host; from which
probability on a text gets a label, given or chosen on validation; and the loss.

Logits are compared with the logit of the threshold, in float32: here, in the graph of a served model and in
transformers, whose limit for 0.5 is a logit of 0, the same labels are given to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.config.training import TrainingConfig

NONE = "(none)"
"""Stands for no label in the table of labels against predicted ones."""


def label_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean binary cross-entropy over the labels of each row, in nats: float64 `[n]`.

    Args:
        logits: `[n, num_labels]`.
        labels: 0 or 1 `[n, num_labels]`.
    """
    logits = np.asarray(logits, np.float64)
    return (np.logaddexp(0, logits) - labels * logits).mean(axis=1)


def multi_label_metrics(logits: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """The metrics of `MultiLabelClassification`.

    Args:
        logits: float64 `[n, num_labels]`, finite.
        labels: 0 or 1 `[n, num_labels]`.
        predicted: bool `[n, num_labels]`: the labels that each row gets.
    """
    from sklearn import metrics

    labels, predicted = labels.astype(np.int64), predicted.astype(np.int64)
    by = {}
    for average in ("micro", "macro"):
        found = metrics.precision_recall_fscore_support(labels, predicted, average=average, zero_division=0)
        by[average] = dict(zip(("precision", "recall", "f1"), found, strict=False))
    some, both = labels.any(axis=0), labels.any(axis=0) & ~labels.all(axis=0)
    values = {
        "micro_f1": by["micro"]["f1"],
        "macro_f1": by["macro"]["f1"],
        # A row without labels that gets none is right.
        "sample_f1": metrics.f1_score(labels, predicted, average="samples", zero_division=1),
        "micro_precision": by["micro"]["precision"],
        "micro_recall": by["micro"]["recall"],
        "macro_precision": by["macro"]["precision"],
        "macro_recall": by["macro"]["recall"],
        "subset_accuracy": metrics.accuracy_score(labels, predicted),
        "roc_auc": _mean(metrics.roc_auc_score, labels[:, both], logits[:, both]),
        "average_precision": _mean(metrics.average_precision_score, labels[:, some], logits[:, some]),
        "loss": label_losses(logits, labels).mean(),
    }
    return {name: float(value) for name, value in values.items()}


def _mean(score: Any, labels: np.ndarray, logits: np.ndarray) -> float:
    """The mean of a score over labels; 0 for no labels."""
    columns = range(labels.shape[1])
    return float(np.mean([score(labels[:, i], logits[:, i]) for i in columns])) if len(columns) else 0.0


def left_out(labels: np.ndarray, label_names: Sequence[str]) -> dict[str, list[str]]:
    """The labels that the means of two metrics leave out, by the metric: ROC AUC is not defined for a label that all
    rows have, or none; average precision for one that none has."""
    all_rows, no_row = labels.all(axis=0), ~labels.any(axis=0)
    names = np.array(label_names, object)
    return {"roc_auc": names[all_rows | no_row].tolist(), "average_precision": names[no_row].tolist()}


def per_label(
    logits: np.ndarray,
    labels: np.ndarray,
    predicted: np.ndarray,
    label_names: Sequence[str],
    thresholds: Sequence[float],
) -> dict[str, dict[str, float | None]]:
    """By label name: `precision`, `recall` and `f1`, 0 where they are undefined; `roc_auc` and `average_precision`,
    None where they are; `threshold`; `examples`, the rows that have the label, and `predicted`, those that get it."""
    from sklearn import metrics

    labels, predicted = labels.astype(bool), predicted.astype(bool)
    hits, having, getting = (labels & predicted).sum(axis=0), labels.sum(axis=0), predicted.sum(axis=0)
    found: dict[str, dict[str, float | None]] = {}
    for i, name in enumerate(label_names):
        own, scores = labels[:, i], logits[:, i]
        found[name] = {
            "precision": float(hits[i] / max(getting[i], 1)),
            "recall": float(hits[i] / max(having[i], 1)),
            "f1": float(2 * hits[i] / max(getting[i] + having[i], 1)),
            "roc_auc": float(metrics.roc_auc_score(own, scores)) if 0 < having[i] < len(own) else None,
            "average_precision": float(metrics.average_precision_score(own, scores)) if having[i] else None,
            "threshold": thresholds[i if len(thresholds) > 1 else 0],
            "examples": int(having[i]),
            "predicted": int(getting[i]),
        }
    return found


def label_table(table: dict[str, dict[str, float | None]]) -> list[str]:
    """The table of the labels as lines for the screen."""
    width = max(len("label"), *map(len, table))
    lines = [f"{'label':{width}}  precision  recall      f1  roc auc  threshold  examples  predicted"]
    for name, row in table.items():
        auc = "      –" if row["roc_auc"] is None else f"{row['roc_auc']:7.4f}"
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {auc}"
        lines.append(f"{name:{width}}  {numbers}  {row['threshold']:9.2f}  {row['examples']:8,}  {row['predicted']:9,}")
    return lines


def threshold_curve(logits: np.ndarray, labels: np.ndarray) -> dict[str, list[float]]:
    """Micro F1, macro F1, micro precision and micro recall by one threshold for all labels."""
    labels = labels.astype(bool)
    having = labels.sum(axis=0)
    curve: dict[str, list[float]] = {"threshold": _CURVE.tolist()}
    for threshold in _CURVE:
        predicted = given_labels(logits, [threshold])
        hits, getting = (predicted & labels).sum(axis=0), predicted.sum(axis=0)
        values = {
            "micro F1": 2 * hits.sum() / max(getting.sum() + having.sum(), 1),
            "macro F1": (2 * hits / np.maximum(getting + having, 1)).mean(),
            "micro precision": hits.sum() / max(getting.sum(), 1),
            "micro recall": hits.sum() / max(having.sum(), 1),
        }
        for name, value in values.items():
            curve.setdefault(name, []).append(round(float(value), 5))
    return curve


def occurrences(labels: np.ndarray, predicted: np.ndarray) -> list[list[int]]:
    """How many rows have one label and get another: `[num_labels + 1, num_labels + 1]`, rows the labels, columns the
    predicted ones; the last stand for no label."""
    with_none = [np.column_stack([part, ~part.any(axis=1)]) for part in (labels.astype(bool), predicted.astype(bool))]
    return (with_none[0].astype(np.int64).T @ with_none[1].astype(np.int64)).tolist()


CANDIDATES = np.arange(1, 100) / 100
"""The thresholds that are tried. A finer choice would fit the rows of the validation set."""
_CURVE = CANDIDATES[1::2]
DEFAULT = 0.5
_BY_LABEL, _BY_ROW = "macro_f1", "sample_f1"


def cutoffs(thresholds: Sequence[float] | np.ndarray) -> np.ndarray:
    """The logits that a label's must exceed: float32, as many as thresholds."""
    values = np.asarray(thresholds, np.float64)
    return np.log(values / (1 - values)).astype(np.float32)


def given_labels(logits: np.ndarray, thresholds: Sequence[float]) -> np.ndarray:
    """Which labels texts get: bool `[n, num_labels]`.

    Args:
        logits: float32 `[n, num_labels]`.
        thresholds: One for all labels, or one for each.
    """
    return np.asarray(logits, np.float32) > cutoffs(thresholds)


def choose_threshold(logits: np.ndarray, labels: np.ndarray, metric: str) -> float:
    """The threshold for all labels by which F1 is best; of equal ones that nearest to 0.5, then the lower.

    Args:
        logits: float32 `[n, num_labels]`.
        labels: 0 or 1 `[n, num_labels]`.
        metric: The F1 is the macro or the sample one where this is its name, else the micro one.
    """
    labels = labels.astype(bool)
    scores = [_f1(logits > cutoff, labels, metric) for cutoff in cutoffs(CANDIDATES)]
    return float(CANDIDATES[_best(np.array(scores))])


def choose_thresholds(logits: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """For each label the threshold by which its own F1 is best, chosen likewise; 0.5 for a label that no text has.

    Args:
        logits: float32 `[n, num_labels]`.
        labels: 0 or 1 `[n, num_labels]`.
    """
    labels = labels.astype(bool)
    scores = np.stack([_f1_of_labels(logits > cutoff, labels) for cutoff in cutoffs(CANDIDATES)])
    best = [CANDIDATES[_best(column)] for column in scores.T]
    return tuple(
        float(value) if any_text else DEFAULT for value, any_text in zip(best, labels.any(axis=0), strict=True)
    )


def _best(scores: np.ndarray) -> int:
    """The place of the candidate with the best score."""
    equal = np.flatnonzero(scores == scores.max())
    return int(min(equal, key=lambda place: (round(abs(CANDIDATES[place] - DEFAULT), 6), place)))


def _f1(predicted: np.ndarray, labels: np.ndarray, metric: str) -> float:
    if metric == _BY_LABEL:
        return float(_f1_of_labels(predicted, labels).mean())
    if metric == _BY_ROW:
        hits, sizes = (predicted & labels).sum(axis=1), predicted.sum(axis=1) + labels.sum(axis=1)
        return float(np.where(sizes > 0, 2 * hits / np.maximum(sizes, 1), 1.0).mean())
    return float(2 * (predicted & labels).sum() / max(predicted.sum() + labels.sum(), 1))


def _f1_of_labels(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    hits, sizes = (predicted & labels).sum(axis=0), predicted.sum(axis=0) + labels.sum(axis=0)
    return 2 * hits / np.maximum(sizes, 1)


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
