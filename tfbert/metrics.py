"""Task metrics over all predictions, on the host, through scikit-learn and SciPy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tfbert.errors import RunError, UsageError

ClassifierOrRegressor = Literal["classification", "regression"]

SAVED_MODEL_WAY_OUT = "Pass another model, or compute in float32"
"""What to do about a saved model whose logits are not finite."""

_LOWER_IS_BETTER = ("loss", "mse")
_ANY_CLASSES = ("accuracy", "macro_f1", "loss")
_TWO_CLASSES = ("accuracy", "macro_f1", "f1", "matthews_correlation", "loss")
_REGRESSION = ("pearson", "spearmanr", "mse", "loss")


def compute_metrics(
    task: ClassifierOrRegressor, logits: np.ndarray, labels: np.ndarray, *, way_out: str = SAVED_MODEL_WAY_OUT
) -> dict[str, float]:
    """Compares all predictions of an evaluation with the labels.

    Classification: `accuracy`; `macro_f1`, the mean F1 of the classes that occur in the labels or the predictions; for
    two classes also `f1` (of class 1) and `matthews_correlation`, which is 0 where all predictions or all labels are
    one class; `loss`, the mean cross-entropy in nats, without label smoothing or class weights. Ties go to the lower
    class.

    Regression: `pearson` and `spearmanr`, which are undefined and here 0 where predictions or labels are constant;
    `mse`; `loss`, the same number.

    Args:
        task: Which of the two.
        logits: float32 `[n, num_labels]`; `[n, 1]` or `[n]` for regression.
        labels: Integers `[n]` in 0 ... num_labels - 1; floats `[n]` for regression.
        way_out: What to do about logits that are not finite, for the message.

    Returns:
        Plain floats by metric name, in the order of `metric_names`.

    Raises:
        RunError: for logits that are NaN or infinite: the model has diverged.
        UsageError: for no examples.
    """
    labels = np.asarray(labels)
    logits = np.asarray(logits, np.float64)
    if not len(labels):
        raise UsageError("Metrics need an example. Received: no labelled examples. Check the evaluation data.")
    bad = len(labels) - int(np.isfinite(logits.reshape(len(labels), -1)).all(axis=1).sum())
    if bad:
        raise RunError(
            f"Predictions must be finite. Received: {bad} of {len(labels)} that are not: training has diverged. "
            f"{way_out}."
        )
    if task == "regression":
        return _regression_metrics(logits.reshape(len(labels)), labels.astype(np.float64))
    assert logits.shape[0] == len(labels) and labels.min() >= 0 and labels.max() < logits.shape[1], logits.shape
    return _classification_metrics(logits, labels.astype(np.int64))


def metric_names(task: ClassifierOrRegressor, num_labels: int) -> tuple[str, ...]:
    """The metrics that `compute_metrics` returns."""
    if task == "regression":
        return _REGRESSION
    return _TWO_CLASSES if num_labels == 2 else _ANY_CLASSES


def default_metric(task: ClassifierOrRegressor) -> str:
    """The metric that decides which weights are kept when the user names none."""
    return "pearson" if task == "regression" else "accuracy"


def check_metric_name(name: str, task: ClassifierOrRegressor, num_labels: int) -> None:
    """Checks that a metric exists for the task.

    Raises:
        UsageError: where it does not, such as `matthews_correlation` with three classes.
    """
    names = metric_names(task, num_labels)
    if name not in names:
        kind = "regression" if task == "regression" else f"classification into {num_labels} classes"
        raise UsageError(
            f"metric_for_best_model must be a metric of {kind}: {', '.join(names)}. "
            f"Received: metric_for_best_model={name!r}. Pass one of them."
        )


def is_better(name: str, new: float, best: float | None) -> bool:
    """Whether a value beats the best so far: lower for `loss` and `mse`, higher for the rest; a NaN never does."""
    if math.isnan(new):
        return False
    if best is None or math.isnan(best):
        return True
    return new < best if name in _LOWER_IS_BETTER else new > best


def confusion_matrix(logits: np.ndarray, labels: np.ndarray, num_labels: int) -> np.ndarray:
    """Counts examples by class.

    Args:
        logits: float32 `[n, num_labels]`.
        labels: Integers `[n]`.
        num_labels: All classes, also those that do not occur.

    Returns:
        int64 `[num_labels, num_labels]`; rows are the labels, columns the predictions.
    """
    from sklearn import metrics

    predictions = np.argmax(np.asarray(logits), axis=1)
    return metrics.confusion_matrix(np.asarray(labels), predictions, labels=np.arange(num_labels)).astype(np.int64)


def per_class(confusion: np.ndarray, label_names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and the number of examples of each class.

    Args:
        confusion: int64 `[num_labels, num_labels]`, as `confusion_matrix` returns it.
        label_names: In the order of the classes.

    Returns:
        By label name: `precision`, `recall` and `f1`, 0 where they are undefined, and `examples`.
    """
    hits, predicted, actual = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
    return {
        name: {
            "precision": float(hits[i] / max(predicted[i], 1)),
            "recall": float(hits[i] / max(actual[i], 1)),
            "f1": float(2 * hits[i] / max(predicted[i] + actual[i], 1)),
            "examples": int(actual[i]),
        }
        for i, name in enumerate(label_names)
    }


def _classification_metrics(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    from scipy.special import logsumexp
    from sklearn import metrics

    predictions = np.argmax(logits, axis=1)
    values = {
        "accuracy": metrics.accuracy_score(labels, predictions),
        "macro_f1": metrics.f1_score(labels, predictions, average="macro", zero_division=0),
    }
    if logits.shape[1] == 2:
        values["f1"] = metrics.f1_score(labels, predictions, pos_label=1, average="binary", zero_division=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # One class only: scikit-learn says so, and returns 0.
            values["matthews_correlation"] = metrics.matthews_corrcoef(labels, predictions)
    chosen = logits[np.arange(len(labels)), labels]
    values["loss"] = np.mean(logsumexp(logits, axis=1) - chosen)
    return {name: float(value) for name, value in values.items()}


def _regression_metrics(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    from scipy import stats

    mse = float(np.mean((predictions - targets) ** 2))
    return {
        "pearson": _correlation(stats.pearsonr, predictions, targets),
        "spearmanr": _correlation(stats.spearmanr, predictions, targets),
        "mse": mse,
        "loss": mse,
    }


def _correlation(function, predictions: np.ndarray, targets: np.ndarray) -> float:
    if np.ptp(predictions) == 0 or np.ptp(targets) == 0:  # Also a single example.
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's notice of nearly constant input.
        value = float(function(predictions, targets)[0])
    return 0.0 if math.isnan(value) else value
