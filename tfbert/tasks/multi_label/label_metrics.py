"""What is computed of the labels that texts have and get, through scikit-learn, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfbert.tasks.multi_label.thresholds import CANDIDATES, given_labels

_CURVE = CANDIDATES[1::2]
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
