"""What is computed of several labels a text, against its definition label by label and row by row."""

import numpy as np
import pytest
from sklearn import metrics as sk

from tfbert.tasks.multi_label.multi_label_classification import (
    label_table,
    left_out,
    multi_label_metrics,
    occurrences,
    per_label,
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


def test_the_curve_and_what_occurs_with_what():
    curve = threshold_curve(LOGITS, LABELS)
    at = curve["threshold"].index(0.5)
    found = multi_label_metrics(LOGITS, LABELS, PREDICTED)
    for name, key in (("micro F1", "micro_f1"), ("macro F1", "macro_f1"), ("micro recall", "micro_recall")):
        assert curve[name][at] == pytest.approx(found[key], abs=1e-5)
    assert {len(values) for values in curve.values()} == {49}
    both = occurrences(np.array([[1, 1], [0, 0], [1, 0]]), np.array([[1, 0], [0, 1], [0, 0]]))
    assert both == [[1, 0, 1], [1, 0, 0], [0, 1, 0]]  # The last: no label.
