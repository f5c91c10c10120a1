"""Metrics against values worked out in NumPy or by hand."""

import math
import warnings

import numpy as np
import pytest

from tests.support.labelled import labelled
from tfbert.config.tables import facts_of
from tfbert.errors import RunError, UsageError
from tfbert.tasks import metrics
from tfbert.tasks.base import TRAINING_WAY_OUT
from tfbert.tasks.classification.classification import Classification, Regression

TWO = Classification(("0", "1"))


def f1(labels, predictions, cls):
    hits = np.sum((predictions == cls) & (labels == cls))
    total = np.sum(predictions == cls) + np.sum(labels == cls)
    return 2 * hits / total if total else 0.0


def cross_entropy(logits, labels):
    p = np.exp(np.float64(logits))
    return -np.mean(np.log(p[np.arange(len(labels)), labels] / p.sum(axis=1)))


def test_two_classes_by_hand():
    # 3 true positives, 1 false positive, 2 false negatives, 4 true negatives.
    labels = np.array([1, 1, 1, 0, 1, 1, 0, 0, 0, 0])
    predicted = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    logits = np.stack([-predicted, predicted], axis=1).astype(np.float32)

    values = TWO.metrics(logits, labelled(labels))

    assert list(values) == list(TWO.metric_names)
    assert all(type(value) is float for value in values.values())
    assert values["accuracy"] == pytest.approx(0.7)
    assert values["f1"] == pytest.approx(6 / 9)
    assert values["macro_f1"] == pytest.approx((6 / 9 + 8 / 11) / 2)
    assert values["matthews_correlation"] == pytest.approx((3 * 4 - 1 * 2) / math.sqrt(4 * 5 * 5 * 6))
    assert values["loss"] == pytest.approx(cross_entropy(logits, labels))


@pytest.mark.parametrize("rows_at_once", [64, 1 << 16])
def test_three_classes_against_numpy(monkeypatch, rows_at_once):
    monkeypatch.setattr(metrics, "_ROWS_AT_ONCE", rows_at_once)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 200)
    predicted = logits.argmax(axis=1)

    values = TWO.metrics(logits, labelled(labels))

    assert list(values) == ["accuracy", "macro_f1", "loss"]
    assert values["accuracy"] == pytest.approx(np.mean(predicted == labels))
    assert values["macro_f1"] == pytest.approx(np.mean([f1(labels, predicted, c) for c in range(3)]))
    assert values["loss"] == pytest.approx(cross_entropy(logits, labels))


def test_macro_f1_leaves_out_classes_that_do_not_occur():
    logits = np.array([[2, 1, 0], [0, 3, 1], [4, 1, 0]], np.float32)
    assert TWO.metrics(logits, labelled(np.array([0, 1, 0])))["macro_f1"] == 1.0


def test_loss_of_large_logits_is_exact():
    assert TWO.metrics(np.array([[0, 30000], [30000, 0]], np.float32), labelled(np.array([1, 1])))["loss"] == 15000.0


def test_one_class_only_is_zero_without_warnings():
    logits = np.array([[1, 0]] * 4, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = TWO.metrics(logits, labelled(np.array([0, 0, 0, 0])))
        wrong = TWO.metrics(logits, labelled(np.array([0, 1, 1, 1])))
    assert (values["accuracy"], values["matthews_correlation"], values["f1"]) == (1.0, 0.0, 0.0)
    assert (wrong["accuracy"], wrong["matthews_correlation"], wrong["f1"]) == (0.25, 0.0, 0.0)


def test_regression_against_numpy():
    rng = np.random.default_rng(1)
    targets = rng.normal(size=50).astype(np.float32)
    predicted = (0.5 * targets + rng.normal(size=50)).astype(np.float32)

    values = Regression().metrics(predicted[:, None], labelled(targets))

    rank = [np.argsort(np.argsort(x)) for x in (predicted, targets)]
    assert list(values) == list(facts_of("regression").metrics)
    assert values["pearson"] == pytest.approx(np.corrcoef(predicted, targets)[0, 1])
    assert values["spearmanr"] == pytest.approx(np.corrcoef(*rank)[0, 1])
    assert values["mse"] == values["loss"] == pytest.approx(np.mean((np.float64(predicted) - targets) ** 2))
    assert Regression().metrics(predicted, labelled(targets)) == values


@pytest.mark.parametrize("predicted, targets", [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [2, 2, 2]), ([5], [4])])
def test_correlation_with_a_constant_is_zero(predicted, targets):
    values = Regression().metrics(np.float32(predicted), labelled(np.float32(targets)))
    assert values["pearson"] == values["spearmanr"] == 0.0
    assert values["mse"] == pytest.approx(np.mean((np.array(predicted) - targets) ** 2))


@pytest.mark.parametrize("task", [TWO, Regression()])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_diverged_model_is_a_run_error(task, value):
    logits = np.array([[0, 1], [value, 0], [1, 0]], np.float32)[:, : 1 if task == Regression() else 2]
    with pytest.raises(RunError, match="for id 1 of labelled, 1 of 3 are not. Pass another model"):
        task.metrics(logits, labelled(np.array([0, 1, 0])))
    with pytest.raises(RunError, match="1 of 3 are not. Lower --learning_rate"):
        task.metrics(logits, labelled(np.array([0, 1, 0])), prefix="eval", way_out=TRAINING_WAY_OUT)


def test_no_examples_is_a_usage_error():
    with pytest.raises(UsageError, match="need at least one labelled example"):
        TWO.metrics(np.zeros([0, 2], np.float32), labelled(np.zeros([0], int)))


def test_confusion_matrix_counts_all_classes():
    matrix = metrics.confusion_matrix(np.eye(3, dtype=np.float32)[[0, 1, 1, 0]], np.array([0, 0, 1, 1]), 3)
    np.testing.assert_array_equal(matrix, [[1, 1, 0], [1, 1, 0], [0, 0, 0]])
    assert matrix.dtype == np.int64


COMPARED = [
    ("accuracy", 0.9, 0.8, True),
    ("accuracy", 0.8, 0.8, False),
    ("loss", 0.5, 0.4, False),
    ("loss", 0.3, 0.4, True),
    ("mse", 0.3, 0.4, True),
    ("pearson", -0.5, None, True),
    ("loss", math.nan, None, False),
    ("loss", 3.0, math.nan, True),
    ("perplexity", 0.1, 0.2, True),
    ("masked_accuracy", 0.1, 0.2, False),
]


@pytest.mark.parametrize("name, new, best, expected", COMPARED)
def test_is_better(name, new, best, expected):
    assert metrics.is_better(name, new, best) is expected


def test_metric_names():
    assert set(TWO.metric_names) == set(facts_of("classification").metrics)
    assert set(Regression().metric_names) == set(facts_of("regression").metrics)
    five = Classification(tuple("abcde"))
    assert five.default_metric in five.metric_names and Regression().default_metric in Regression().metric_names
    TWO.check_metric("matthews_correlation")
    Regression().check_metric("spearmanr")
    for name, task, kind in [
        ("matthews_correlation", five, "classification into 5 classes"),
        ("f1", five, "classification into 5 classes"),
        ("accuracy", Regression(), "regression"),
        ("pearson", TWO, "classification into 2 classes"),
    ]:
        with pytest.raises(UsageError, match=f"a metric of {kind}: .* Received: metric_for_best_model='{name}'"):
            task.check_metric(name)
