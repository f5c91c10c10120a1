"""Metrics over all predictions, on the host, through scikit-learn and SciPy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Container, Mapping, Sequence

import numpy as np

from tfbert.config.tables import METRICS

_LOWER_IS_BETTER = ("loss", "mse", "perplexity")  # With or without the prefix of a set, as `eval_matched_loss`.
_TIES = ("loss", "f1", "exact_match", "exact")
"""What decides, in this order, where the metric that should is equal. Answers have no loss."""


def is_better(name: str, new: float, best: float | None) -> bool:
    """Whether a value beats the best so far: lower is better for losses, `mse` and `perplexity`, higher for the rest. A
    NaN never beats anything."""
    if math.isnan(new):
        return False
    if best is None or math.isnan(best):
        return True
    return new < best if name.endswith(_LOWER_IS_BETTER) else new > best


def decided_by(decisive: str, new: Mapping[str, float], best: Mapping[str, float]) -> tuple[int, str]:
    """Compares two evaluations. Where the metric that decides is equal, its set's loss does, then F1 or exact match.

    Args:
        decisive: The metric that decides, with the prefix of its set, such as `eval_matched_accuracy`.
        new: All metrics of an evaluation.
        best: Of another one; empty if there is none.

    Returns:
        1 if the new one is better, -1 if it is not, and the metric in which they differ; 0 and an empty name if they
        are equal in all of these. A NaN is never better.
    """
    for name in (decisive, *tie_breakers(decisive, new)):
        before = best.get(name)
        if name not in new or (name != decisive and before is None):
            continue
        if before is None or not (new[name] == before or math.isnan(new[name]) and math.isnan(before)):
            return (1 if is_better(name, new[name], before) else -1), name
    return 0, ""


def tie_breakers(decisive: str, names: Container[str]) -> list[str]:
    """What decides, in this order, where the metric that should is equal.

    Args:
        decisive: That metric, with the prefix of its set.
        names: The metrics that there are.
    """
    metric = max((name for name in METRICS if decisive.endswith(f"_{name}")), key=len, default="")
    stem = decisive.removesuffix(metric)
    return [name for name in (f"{stem}{tie}" for tie in _TIES) if name in names and name != decisive]


_ROWS_AT_ONCE = 1 << 16
"""So many rows are copied to float64 at a time: of a million rows and 200 classes, all copies together took 10 GB."""


def by_row(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], logits: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """A function's value for each row, float64 `[n]`: it is called with the float64 logits of some rows at a time."""
    starts = range(0, max(len(labels), 1), _ROWS_AT_ONCE)
    parts = ((array[start : start + _ROWS_AT_ONCE] for array in (logits, labels)) for start in starts)
    return np.concatenate([function(np.asarray(some, np.float64), own) for some, own in parts])


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The cross-entropy of each label, in nats: float64 `[n]`.

    Args:
        logits: `[n, num_labels]`.
        labels: Integers `[n]`.
    """
    from scipy.special import logsumexp

    return by_row(
        lambda some, own: logsumexp(some, axis=1) - some[np.arange(len(own)), own], np.asarray(logits), labels
    )


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


def ratios(hits: int, predicted: int, actual: int) -> dict[str, float]:
    """`precision`, `recall` and `f1` of so many right ones among the predicted and the actual ones, 0 where they are
    undefined."""
    parts = {"precision": (hits, predicted), "recall": (hits, actual), "f1": (2 * hits, predicted + actual)}
    return {name: float(part / max(whole, 1)) for name, (part, whole) in parts.items()}


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
        name: ratios(hits[i], predicted[i], actual[i]) | {"examples": int(actual[i])}
        for i, name in enumerate(label_names)
    }


def class_table(
    what: str, table: dict[str, dict[str, float]], confusion: np.ndarray, others: Sequence[str] = ()
) -> list[str]:
    """The numbers of each class and the confusion matrix as lines for the screen.

    Args:
        what: What messages call a class.
        table: Shares (floats) and counts (integers) by class.
        confusion: Its rows and columns are the classes, and `others`.
        others: Names of rows that have no numbers, and that nothing is taken for themselves.
    """
    names, cells = [*table, *others], max(8, len(f"{confusion.max():,}") + 1)
    width = max(map(len, [what, *names]))
    forms = {name: (max(len(name), 6), ".4f") for name in ("precision", "recall", "f1")}
    forms = {name: forms.get(name, (8, ",")) for name in next(iter(table.values()))}
    heads = "  ".join(f"{name:>{size}}" for name, (size, _) in forms.items())
    lines = [f"{what:{width}}  {heads} | predicted as {', '.join(names)}"]
    for name, counts in zip(names, confusion, strict=True):
        row = (f"{table[name][key]:{size}{form}}" for key, (size, form) in forms.items() if name in table)
        counts = counts if name in table else counts[: len(table)]
        lines.append(f"{name:{width}}  {'  '.join(row):{len(heads)}} |" + "".join(f"{n:{cells},}" for n in counts))
    return lines


def classification_metrics(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The metrics of `Classification`, from logits `[n, num_labels]` and int64 labels `[n]`."""
    from sklearn import metrics

    predictions = np.argmax(logits, axis=1)
    values = {
        "accuracy": metrics.accuracy_score(labels, predictions),
        "macro_f1": metrics.f1_score(labels, predictions, average="macro", zero_division=0),
    }
    if logits.shape[1] == 2:
        values["f1"] = metrics.f1_score(labels, predictions, pos_label=1, average="binary", zero_division=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # With only one class, scikit-learn warns and returns 0.
            values["matthews_correlation"] = metrics.matthews_corrcoef(labels, predictions)
    values["loss"] = np.mean(cross_entropy(logits, labels))
    return {name: float(value) for name, value in values.items()}


def regression_metrics(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """The metrics of `Regression`, from float64 `[n]` each."""
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
        warnings.simplefilter("ignore")  # SciPy's warning about nearly constant input.
        value = float(function(predictions, targets)[0])
    return 0.0 if math.isnan(value) else value
