"""Metrics against those of scikit-learn, SciPy and NumPy, and values worked out by hand."""

import math
import warnings

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import spearmanr
from sklearn import metrics as sk

from tests.support.labelled import labelled
from tfbert.config.tables import facts_of
from tfbert.errors import RunError, UsageError
from tfbert.tasks import metrics
from tfbert.tasks.base import TRAINING_WAY_OUT
from tfbert.tasks.classification.classification import Classification, Regression

TWO = Classification(("0", "1"))


@pytest.mark.parametrize("names", [TWO.metric_names, ("accuracy", "macro_f1", "loss")], ids=["2 classes", "3 classes"])
@pytest.mark.parametrize("rows_at_once", [64, 1 << 16])
def test_classes_against_scikit_learn(monkeypatch, rows_at_once, names):
    monkeypatch.setattr(metrics, "_ROWS_AT_ONCE", rows_at_once)
    rng, num_classes = np.random.default_rng(0), 2 if names == TWO.metric_names else 3
    logits = rng.normal(size=(200, num_classes)).astype(np.float32)
    labels, predicted = rng.integers(0, num_classes, 200), logits.argmax(axis=1)

    values = TWO.metrics(logits, labelled(labels))

    assert list(values) == list(names)
    assert all(type(value) is float for value in values.values())
    assert values["accuracy"] == pytest.approx(sk.accuracy_score(labels, predicted))
    assert values["macro_f1"] == pytest.approx(sk.f1_score(labels, predicted, average="macro"))
    assert values["loss"] == pytest.approx(sk.log_loss(labels, softmax(np.float64(logits), axis=1)))
    if num_classes == 2:
        assert values["f1"] == pytest.approx(sk.f1_score(labels, predicted))
        assert values["matthews_correlation"] == pytest.approx(sk.matthews_corrcoef(labels, predicted))


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

    assert list(values) == list(facts_of("regression").metrics)
    assert values["pearson"] == pytest.approx(np.corrcoef(predicted, targets)[0, 1])
    assert values["spearmanr"] == pytest.approx(spearmanr(predicted, targets).statistic)
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
    logits = np.array([[0, 1], [value, 0], [1, 0]], np.float32)
    logits = logits[:, :1] if task == Regression() else logits
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
