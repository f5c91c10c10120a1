"""The command's losses against NumPy; and where a new head starts: where the loss of a model that reads nothing is
least."""

import logging
import re

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file
from scipy.special import log_softmax

import tfbert
from tests.support.labelled import labelled
from tests.support.models import tiny_bert
from tfbert.batches.pipeline import EncodedExamples
from tfbert.bert.models import TFBertForSequenceClassification
from tfbert.tasks.classification.classification import Classification, Regression
from tfbert.tasks.losses import SmoothedCrossEntropy, base_rate, class_weights
from tfbert.tasks.multi_label import multi_label_classification as multi_label
from tfbert.tasks.token_classification.token_classification import SentenceExamples, TokenClassification
from tfbert.tokens.tokenizer import TokenIds
from tfbert.train.build import start_head
from tfbert.train.run import finetune

RNG = np.random.default_rng(0)
WEIGHTS = {"none": "", "balanced": "balanced", "given": (1.0, 5.0, 0.5)}


def slope(loss, labels, weights, bias):
    """The gradient by the bias of what a model that predicts the bias everywhere loses."""
    bias = tf.Variable(bias)
    with tf.GradientTape() as tape:
        logits = tf.broadcast_to(bias, [len(labels), 3])
        total = tf.reduce_sum(loss(tf.constant(labels), logits) * weights) / np.sum(weights)
    return tape.gradient(total, bias).numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("how", WEIGHTS)
def test_no_other_bias_has_a_lower_loss(how, smoothing):
    """By the losses of the command, over so many rows that half an example is nothing."""
    training = tfbert.TrainingConfig(class_weights=WEIGHTS[how], label_smoothing=smoothing)
    labels = RNG.choice(3, 50_000, p=[0.9, 0.02, 0.08]).astype(np.int32)
    weights = class_weights(training, labels, 3)[labels]
    options = {"num_classes": 3, "sample_weight": weights, "label_smoothing": smoothing}
    bias = base_rate(labels, "single_label_classification", **options)
    assert np.abs(slope(SmoothedCrossEntropy(smoothing).call, labels, weights, bias)).max() < 1e-4
    several = (RNG.random((50_000, 3)) < [0.7, 0.01, 0.2]).astype(np.int8)
    weighted = several * multi_label.positive_weights(training, several)
    bias = base_rate(weighted, "multi_label_classification", label_smoothing=smoothing)
    ones = np.ones(50_000, np.float32)
    assert np.abs(slope(multi_label.MeanBinaryCrossEntropy(smoothing).call, weighted, ones, bias)).max() < 1e-4
    if how == "balanced":
        np.testing.assert_allclose(bias, 0, atol=1e-4)


def test_counts_are_smoothed_by_half_an_example():
    found = base_rate(np.array([0, 0, 0, 2]), "single_label_classification", num_classes=3)
    expected = np.log(np.array([3.5, 0.5, 1.5]) / 5.5)
    np.testing.assert_allclose(found, expected - expected.mean(), rtol=1e-6)
    found = base_rate(np.array([[1, 0], [0, 0], [1, 0]]), "multi_label_classification")
    np.testing.assert_allclose(found, np.log([2.5 / 1.5, 0.5 / 3.5]), rtol=1e-6)
    assert base_rate(np.array([1.0, 2.0, 6.0]), "regression") == 3
    # Weights of any size: a thousandth each is 1 each.
    scaled = base_rate(np.array([0, 1, 1]), "single_label_classification", num_classes=2, sample_weight=[1e-3] * 3)
    np.testing.assert_allclose(scaled, base_rate(np.array([0, 1, 1]), "single_label_classification", num_classes=2))


def test_padding_does_not_count():
    tags, counts = np.array([[1, 2, -100], [2, -100, -100]]), np.array([[1, 1, 0], [1, 0, 0]])
    found = base_rate(tags, "single_label_classification", num_classes=3, sample_weight=counts)
    np.testing.assert_array_equal(found, base_rate(np.array([1, 2, 2]), "single_label_classification", num_classes=3))


NO_LABELS_FOR_IT = [
    ([], "regression", {}, r"needs labels that count.*shape \(0,\)"),
    ([1, 2], "regression", {"sample_weight": [0, 0]}, "needs labels that count"),
    ([0, 3], "single_label_classification", {"num_classes": 3}, "num_classes=3 and int64 labels from 0 to 3"),
    ([0, 1], "single_label_classification", {}, "num_classes=None"),
    ([0.5, 1], "single_label_classification", {"num_classes": 3}, "float64 labels"),
    ([-100, 1], "single_label_classification", {"num_classes": 3}, "from -100 to 1.*sample_weight of 0"),
    ([0, 1], "multi_label_classification", {}, r"shape \(2,\)"),
    ([[0, -1]], "multi_label_classification", {}, "the least -1"),
    ([1], "classes", {}, "problem_type.*'classes'"),
]


@pytest.mark.parametrize("labels, problem_type, options, message", NO_LABELS_FOR_IT)
def test_labels_that_are_something_else_are_refused(labels, problem_type, options, message):
    with pytest.raises(ValueError, match=message):
        base_rate(np.array(labels), problem_type, **options)


def rows_with(labels):
    """Encoded examples of which only the labels matter."""
    labels = np.array(labels)
    tokens = TokenIds(flat=labels, row_splits=np.arange(len(labels) + 1), second_start=labels)
    return EncodedExamples(tokens=tokens, labels=labels, weights=np.ones(len(labels), np.float32))


@pytest.mark.usefixtures("undrawn")
def test_a_new_head_starts_there_and_one_from_a_file_stays(corpus, write, caplog):
    """Over an update that moves nothing."""
    caplog.set_level(logging.INFO, logger="tfbert")
    train = write("train.jsonl", [{"text": f"text {i}", "label": "ab"[i % 5 == 0]} for i in range(40)])
    config = tfbert.Config(
        model=tfbert.ModelConfig(model_name_or_path=str(corpus / "model")),
        data=tfbert.DataConfig(train_file=train, max_seq_length=16),
        training=tfbert.TrainingConfig(max_steps=1, learning_rate=1e-12, weight_decay=0.0),
        output=tfbert.OutputConfig(output_dir=str(corpus / "prior")),
    )
    finetune(config)
    expected = np.log(32.5 / 8.5) / 2 * np.array([1, -1])
    saved = load_file(corpus / "prior" / "model.safetensors")
    np.testing.assert_allclose(saved["classifier.bias"], expected, rtol=1e-5)
    assert "The new head starts at the base rate of 2 classes" in caplog.text
    assert "The new head started at the base rate of 2 classes." in (corpus / "prior" / "README.md").read_text()
    kept = TFBertForSequenceClassification.from_pretrained(corpus / "prior")
    assert start_head(CLASSES, kept, rows_with([0, 1, 1]), tfbert.TrainingConfig()) == ""
    np.testing.assert_allclose(kept.classifier.bias, expected, rtol=1e-5)


def test_numbers_start_at_their_mean_with_weights_of_their_spread():
    labels = RNG.normal(3000, 700, 40).round(1)
    model = tiny_bert(num_labels=1, num_hidden_layers=1)
    kernel = model.classifier.kernel.numpy()
    for new, head_bias in (((), "prior"), (("classifier.bias",), "zero")):
        model.new_weights = new
        assert start_head(Regression(), model, rows_with(labels), tfbert.TrainingConfig(head_bias=head_bias)) == ""
        np.testing.assert_array_equal(model.classifier.bias, [0.0])
    said = start_head(Regression(), model, rows_with(labels), tfbert.TrainingConfig())
    assert said.startswith("The new head starts at the mean of the targets")
    np.testing.assert_allclose(model.classifier.bias, [labels.mean()], rtol=1e-5)
    np.testing.assert_allclose(model.classifier.kernel, kernel * labels.std(), rtol=1e-4)


CLASSES, LABELS = Classification(("a", "b")), multi_label.MultiLabelClassification(("a", "b"))
TAGS = TokenClassification(("O", "B-X"))
WORDS = SentenceExamples(name="labelled", words=[["word"] * 2], labels=np.array([0, 1], np.int32))
NO_LABEL = "none of 2 texts gets a label.*highest is 0.27.*--label_threshold=auto"


ALIKE = [
    (CLASSES, labelled(np.array([0, 1])), [[0, 1], [0, 1]], [[0, 1], [1, 0]], "all 2 texts get the class 'b'"),
    (TAGS, WORDS, [[1, 0], [1, 0]], [[1, 0], [0, 1]], "all 2 words get the tag 'O'"),
    (LABELS, labelled(np.array([[1, 0], [0, 0]])), [[-1, -2], [-1, -2]], [[1, -2], [-1, -2]], NO_LABEL),
]


@pytest.mark.parametrize("task, examples, alike, not_alike, said", ALIKE, ids=["classes", "tags", "labels"])
def test_predictions_that_are_all_alike_are_said(task, examples, alike, not_alike, said):
    (line,) = task.remarks(np.array(alike, np.float32), examples)
    assert line.startswith("labelled") and re.search(said, line)
    assert task.remarks(np.array(not_alike, np.float32), examples) == []


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("num_classes", [2, 5])
@pytest.mark.parametrize("column", [False, True])
def test_smoothed_cross_entropy_equals_numpy(smoothing, num_classes, column):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 10, (9, num_classes)).astype(np.float32)
    labels = rng.integers(0, num_classes, 9).astype(np.int32)
    found = SmoothedCrossEntropy(smoothing).call(labels[:, None] if column else labels, logits)
    assert found.shape == (9,) and found.dtype == tf.float32
    targets = smoothing / num_classes + (1 - smoothing) * np.eye(num_classes)[labels]
    expected = -np.sum(targets * log_softmax(logits.astype(np.float64), axis=1), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_huge_logits_give_no_nan():
    found = SmoothedCrossEntropy(0.1).call(tf.constant([0, 1]), tf.constant([[1e4, -1e4], [1e4, -1e4]]))
    np.testing.assert_allclose(found, [0.05 * 2e4, 0.95 * 2e4], rtol=1e-6)


def test_regression_is_the_squared_error():
    found = Regression().loss(tfbert.TrainingConfig()).call(tf.constant([[1.0], [2.5]]), tf.constant([[0.0], [3.0]]))
    np.testing.assert_allclose(found, [1.0, 0.25])


def test_classification_smooths_as_asked_also_when_its_loss_is_rebuilt():
    loss = Classification(("0", "1")).loss(tfbert.TrainingConfig(label_smoothing=0.25))
    assert loss.label_smoothing == SmoothedCrossEntropy.from_config(loss.get_config()).label_smoothing == 0.25
