"""What is computed of several labels a text: the metrics against their definition, the loss against NumPy and PyTorch's
definition with positive weights, thresholds against a search."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn import metrics as sk

from tfbert.config.training import TrainingConfig
from tfbert.errors import UsageError
from tfbert.tasks.multi_label.multi_label_classification import (
    CANDIDATES,
    MeanBinaryCrossEntropy,
    choose_threshold,
    choose_thresholds,
    cutoffs,
    given_labels,
    label_table,
    left_out,
    multi_label_metrics,
    per_label,
    positive_weights,
    threshold_curve,
)

rng = np.random.default_rng(1)
NAMES = ("a", "b", "never", "always")
LABELS = np.column_stack([rng.random((40, 2)) < 0.3, np.zeros(40), np.ones(40)]).astype(np.int8)
LOGITS = 2.0 * LABELS - 1 + rng.standard_normal((40, 4))
PREDICTED = LOGITS > 0


def f1(hits, sizes):
    return 2 * hits / sizes if sizes else 0.0


def test_the_metrics_are_those_of_the_definitions():
    found = multi_label_metrics(LOGITS, LABELS, PREDICTED)
    hits, had, got = (LABELS & PREDICTED).sum(0), LABELS.sum(0), PREDICTED.sum(0)
    rows = zip((LABELS & PREDICTED).sum(1), LABELS.sum(1) + PREDICTED.sum(1), strict=True)
    expected = {
        "micro_f1": f1(hits.sum(), had.sum() + got.sum()),
        "macro_f1": np.mean([f1(h, n) for h, n in zip(hits, had + got, strict=True)]),
        "sample_f1": np.mean([f1(h, n) if n else 1.0 for h, n in rows]),
        "micro_precision": hits.sum() / got.sum(),
        "micro_recall": hits.sum() / had.sum(),
        "macro_precision": np.mean(hits / np.maximum(got, 1)),
        "macro_recall": np.mean(hits / np.maximum(had, 1)),
        "subset_accuracy": (LABELS == PREDICTED).all(1).mean(),
        "roc_auc": np.mean([sk.roc_auc_score(LABELS[:, i], LOGITS[:, i]) for i in (0, 1)]),
        "average_precision": np.mean([sk.average_precision_score(LABELS[:, i], LOGITS[:, i]) for i in (0, 1, 3)]),
        "loss": np.mean(np.log1p(np.exp(LOGITS)) - LABELS * LOGITS),
    }
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=1e-12)
    assert left_out(LABELS, NAMES) == {"roc_auc": ["never", "always"], "average_precision": ["never"]}


def test_a_text_without_labels_that_gets_none_is_right():
    labels, logits = np.zeros((3, 2), np.int8), np.array([[-1.0, -1.0], [-1.0, -1.0], [1.0, -1.0]])
    found = multi_label_metrics(logits, labels, logits > 0)
    assert (found["sample_f1"], found["subset_accuracy"], found["micro_f1"]) == (2 / 3, 2 / 3, 0.0)
    assert found["roc_auc"] == found["average_precision"] == 0.0 and np.isfinite(found["loss"])


def test_the_table_of_labels_and_its_lines():
    table = per_label(LOGITS, LABELS, PREDICTED, NAMES, (0.5,))
    for i, (name, row) in enumerate(table.items()):
        own = sk.precision_recall_fscore_support(LABELS[:, i], PREDICTED[:, i], average="binary", zero_division=0)
        assert [row[key] for key in ("precision", "recall", "f1")] == pytest.approx(own[:3]), name
        assert (row["examples"], row["predicted"]) == (LABELS[:, i].sum(), PREDICTED[:, i].sum())
    assert table["never"]["roc_auc"] is table["never"]["average_precision"] is table["always"]["roc_auc"] is None
    own = per_label(LOGITS, LABELS, PREDICTED, NAMES, (0.1, 0.2, 0.3, 0.4))
    assert [row["threshold"] for row in own.values()] == [0.1, 0.2, 0.3, 0.4]
    lines = label_table(table)
    assert len(lines) == 5 and {len(line) for line in lines} == {len(lines[0])}


def test_the_curve_of_thresholds():
    curve = threshold_curve(LOGITS, LABELS)
    at = curve["threshold"].index(0.5)
    found = multi_label_metrics(LOGITS, LABELS, PREDICTED)
    for name, key in (("micro F1", "micro_f1"), ("macro F1", "macro_f1"), ("micro recall", "micro_recall")):
        assert curve[name][at] == pytest.approx(found[key], abs=1e-5)
    assert {len(values) for values in curve.values()} == {49}


# --- The loss ---

rng = np.random.default_rng(0)
FEW_LOGITS = (3 * rng.standard_normal((7, 4))).astype(np.float32)
FEW_LABELS = (rng.random((7, 4)) < 0.4).astype(np.int8)


def reference(logits, labels, weights=1.0, smoothing=0.0):
    """A term is -w (t log p + (1 - t) log(1 - p)), with w other than 1 where the row has the label."""
    p, t = 1 / (1 + np.exp(-logits.astype(np.float64))), labels * (1 - smoothing) + smoothing / 2
    terms = -(t * np.log(p) + (1 - t) * np.log(1 - p))
    return (np.where(labels > 0, weights, 1.0) * terms).mean(axis=1)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [(1.0,) * 4, (0.5, 1.0, 3.0, 10.0)])
def test_a_row_has_the_mean_over_its_labels(weights, smoothing):
    found = MeanBinaryCrossEntropy(smoothing).call(FEW_LABELS * np.array(weights, np.float32), FEW_LOGITS)
    assert found.dtype == "float32" and found.shape == (7,)
    np.testing.assert_allclose(found, reference(FEW_LOGITS, FEW_LABELS, weights, smoothing), rtol=2e-6)


def test_large_logits_are_finite():
    far = np.array([[300.0, -300.0], [-300.0, 300.0]], np.float32)
    found = MeanBinaryCrossEntropy().call(np.array([[1.0, 0.0], [1.0, 0.0]], np.float32), far)
    np.testing.assert_allclose(found, [0.0, 300.0])


def test_balanced_weights_make_both_sides_equal():
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0]], np.int8)
    balanced = positive_weights(TrainingConfig(class_weights="balanced"), labels)
    np.testing.assert_allclose(balanced, [3 / 2, 1 / 5, 5.0])  # Each count at least 1: no weight is 0.
    np.testing.assert_array_equal(positive_weights(None, labels), np.ones(3))
    np.testing.assert_array_equal(positive_weights(TrainingConfig(class_weights=(1, 2, 3)), labels), [1, 2, 3])
    with pytest.raises(UsageError, match="one weight for each of the 3 labels. Received: 2 weights"):
        positive_weights(TrainingConfig(class_weights=(1, 2)), labels)


# --- Thresholds, and the labels that they give ---

rng = np.random.default_rng(3)
RARE_LABELS = (rng.random((60, 5)) < [0.5, 0.2, 0.1, 0.05, 0.0]).astype(np.int8)
RARE_LOGITS = (2.5 * RARE_LABELS - 3 + rng.standard_normal((60, 5))).astype(np.float32)


def best(scores):
    """The first of the best ones, beginning at 0.5 and going outwards, the lower side first."""
    order = sorted(range(len(CANDIDATES)), key=lambda i: (round(abs(CANDIDATES[i] - 0.5), 6), CANDIDATES[i]))
    return CANDIDATES[max(order, key=lambda i: scores[i])]


AVERAGES = {"micro_f1": "micro", "macro_f1": "macro", "sample_f1": "samples", "loss": "micro"}


@pytest.mark.parametrize("metric, average", AVERAGES.items())
def test_the_threshold_is_that_of_the_best_f1(metric, average):
    zero = 1 if average == "samples" else 0
    chances = expit(RARE_LOGITS.astype(np.float64))
    scores = [round(sk.f1_score(RARE_LABELS, chances > t, average=average, zero_division=zero), 12) for t in CANDIDATES]
    assert choose_threshold(RARE_LOGITS, RARE_LABELS, metric) == best(scores) != 0.5


def test_each_label_has_its_own():
    found = choose_thresholds(RARE_LOGITS, RARE_LABELS)
    for i, threshold in enumerate(found[:4]):
        given = expit(RARE_LOGITS[:, i, None].astype(np.float64)) > np.array(CANDIDATES)
        hits, sizes = (given & (RARE_LABELS[:, i, None] > 0)).sum(axis=0), given.sum(axis=0) + RARE_LABELS[:, i].sum()
        assert threshold == best(np.round(2 * hits / sizes, 12))
    assert found[4] == 0.5, "no text has this label"


def test_a_label_is_given_above_its_threshold():
    logits = np.array([[0.0, 1e-7, -1e-7, 3.0]], np.float32)
    assert given_labels(logits, (0.5,)).tolist() == [[False, True, False, True]]  # As transformers' logits > 0.
    assert given_labels(logits, (0.5, 0.5, 0.3, 0.99)).tolist() == [[False, True, True, False]]
    assert cutoffs((0.5, 0.75)).dtype == np.float32
    np.testing.assert_allclose(cutoffs((0.5, 0.75)), [0, np.log(3)], rtol=1e-7)
    assert not given_labels(np.array([[np.nan, np.nan]], np.float32), (0.01,)).any()
