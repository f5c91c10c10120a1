"""From which probability on a text gets a label: given, or chosen on validation.

Logits are compared with the logit of the threshold, in float32: here, in the graph of a served model and in
transformers, whose limit for 0.5 is a logit of 0, the same labels are given to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CANDIDATES = np.arange(1, 100) / 100
"""The thresholds that are tried. A finer choice would fit the rows of the validation set."""
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
