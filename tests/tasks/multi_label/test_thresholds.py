"""Thresholds against a search with scikit-learn, and the labels that they give."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import f1_score

from tfbert.tasks.multi_label.multi_label_classification import (
    CANDIDATES,
    choose_threshold,
    choose_thresholds,
    cutoffs,
    given_labels,
)

rng = np.random.default_rng(3)
LABELS = (rng.random((60, 5)) < [0.5, 0.2, 0.1, 0.05, 0.0]).astype(np.int8)
LOGITS = (2.5 * LABELS - 3 + rng.standard_normal((60, 5))).astype(np.float32)


def best(scores):
    """The first of the best ones, beginning at 0.5 and going outwards, the lower side first."""
    order = sorted(range(len(CANDIDATES)), key=lambda i: (round(abs(CANDIDATES[i] - 0.5), 6), CANDIDATES[i]))
    return CANDIDATES[max(order, key=lambda i: scores[i])]


AVERAGES = {"micro_f1": "micro", "macro_f1": "macro", "sample_f1": "samples", "loss": "micro"}


@pytest.mark.parametrize("metric, average", AVERAGES.items())
def test_the_threshold_is_that_of_the_best_f1(metric, average):
    zero = 1 if average == "samples" else 0
    chances = expit(LOGITS.astype(np.float64))
    scores = [round(f1_score(LABELS, chances > t, average=average, zero_division=zero), 12) for t in CANDIDATES]
    assert choose_threshold(LOGITS, LABELS, metric) == best(scores) != 0.5


def test_each_label_has_its_own():
    found = choose_thresholds(LOGITS, LABELS)
    for i, threshold in enumerate(found[:4]):
        given = expit(LOGITS[:, i, None].astype(np.float64)) > np.array(CANDIDATES)
        hits, sizes = (given & (LABELS[:, i, None] > 0)).sum(axis=0), given.sum(axis=0) + LABELS[:, i].sum()
        assert threshold == best(np.round(2 * hits / sizes, 12))
    assert found[4] == 0.5, "no text has this label"


def test_a_label_is_given_above_its_threshold():
    logits = np.array([[0.0, 1e-7, -1e-7, 3.0]], np.float32)
    assert given_labels(logits, (0.5,)).tolist() == [[False, True, False, True]]  # As transformers' logits > 0.
    assert given_labels(logits, (0.5, 0.5, 0.3, 0.99)).tolist() == [[False, True, True, False]]
    assert cutoffs((0.5, 0.75)).dtype == np.float32
    np.testing.assert_allclose(cutoffs((0.5, 0.75)), [0, np.log(3)], rtol=1e-7)
    assert not given_labels(np.array([[np.nan, np.nan]], np.float32), (0.01,)).any()
