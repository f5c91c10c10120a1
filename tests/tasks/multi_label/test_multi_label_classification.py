"""Several labels a text: training and every use of a model, against transformers and scikit-learn; what is computed."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit
from sklearn import metrics as sk

import tfbert
from tests.support.labelled import labelled
from tests.support.runs import write_corpus
from tests.support.saved_models import read_json, reference_logits_of
from tests.support.served import export_of
from tests.support.task_runs import LABEL_WORDS, LABELS, arguments_of, command, predict, write_label_sets
from tests.support.transformers_4 import transformers_4
from tfbert import MultiLabelConfig, TrainingConfig, UsageError
from tfbert.config.tasks import TaskOptions
from tfbert.model.files import load_config
from tfbert.tasks.multi_label import multi_label_classification as multi_label
from tfbert.tasks.multi_label.multi_label_classification import CANDIDATES, MultiLabelClassification
from tfbert.tasks.registry import task_of_model


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Data, a vocabulary, and `run`, trained for a few updates with thresholds of its own choice."""
    directory = tmp_path_factory.mktemp("labels")
    write_corpus(directory)
    write_label_sets(directory)
    training = [*arguments_of(directory, LABELS, "run", is_small=True), "--num_train_epochs=1"]
    results = command(*training, f"--test_file={directory / 'train-labels.jsonl'}")
    (directory / "results.json").write_text(json.dumps(results))
    return directory


@pytest.fixture(scope="module")
def texts(data):
    return [row["text"] for row in read_json(data / "dev-labels.jsonl")]


@pytest.fixture(scope="module")
def logits(data, texts):
    """transformers' logits of the validation texts, each alone."""
    return reference_logits_of(data / "run", texts)


@pytest.fixture(scope="module")
def thresholds(data):
    found = json.loads((data / "run" / "config.json").read_text())
    assert found["problem_type"] == LABELS and found["architectures"] == ["BertForSequenceClassification"]
    assert list(found["id2label"].values()) == list(LABEL_WORDS)
    return np.array(found["tfbert"]["label_threshold"])


def gold_of(path):
    return np.array([[label in row["labels"] for label in LABEL_WORDS] for row in read_json(path)])


def test_the_model_has_the_thresholds_that_are_best_on_validation(data, logits, thresholds):
    gold, chances = gold_of(data / "dev-labels.jsonl"), expit(logits)
    for i, threshold in enumerate(thresholds):
        scores = [sk.f1_score(gold[:, i], chances[:, i] > t / 100, zero_division=0) for t in range(1, 100)]
        own = sk.f1_score(gold[:, i], chances[:, i] > threshold, zero_division=0)
        assert own == pytest.approx(max(scores)) and 0 < threshold < 1


def test_an_evaluation_is_that_of_training_and_of_scikit_learn(data, logits, thresholds, tmp_path):
    flags = ["--mode=evaluate", f"--model={data / 'run'}", f"--output_dir={tmp_path / 'out'}"]
    flags += [f"--validation_file={data / 'dev-labels.jsonl'}", f"--test_file={data / 'train-labels.jsonl'}"]
    found = command(*flags)
    trained = json.loads((data / "results.json").read_text())
    for name in MultiLabelClassification(LABEL_WORDS).metric_names:
        for metric in (f"eval_{name}", f"test_{name}"):
            assert found[metric] == pytest.approx(trained[metric], abs=1e-6)
    gold, predicted = gold_of(data / "dev-labels.jsonl"), expit(logits) > thresholds
    assert found["eval_micro_f1"] == pytest.approx(sk.f1_score(gold, predicted, average="micro"))
    assert found["eval_loss"] == pytest.approx(sk.log_loss(gold.ravel(), expit(logits.astype(np.float64)).ravel()))
    assert [found["eval_per_label"][name]["threshold"] for name in LABEL_WORDS] == thresholds.tolist()


def expected_of(row, thresholds, most=None):
    """(names, chances), the most probable first: those above the thresholds, or so many."""
    order = np.argsort(-row, kind="stable")
    kept = order[:most] if most else [i for i in order if expit(row[i]) > thresholds[i]]
    return [LABEL_WORDS[i] for i in kept], [float(expit(row[i])) for i in kept]


def test_predictions_are_lists_of_labels_or_columns(data, logits, thresholds):
    rows = read_json(predict(data, data / "dev-labels.jsonl", "labels.jsonl"))
    assert len({len(row["labels"]) for row in rows}) > 1 and [row["id"] for row in rows] == list(range(21))
    for row, own in zip(rows, logits, strict=True):
        names, chances = expected_of(own, thresholds)
        assert row["labels"] == names and row["scores"] == pytest.approx(chances, abs=1e-5)

    def task(**asked):
        options = TaskOptions(multi_label=MultiLabelConfig(**asked))
        return task_of_model(load_config(data / "run"), data / "run", options)

    cells = [task().cells(record) for record in task().records(logits)]
    assert task().columns() == ["labels", "scores"] and task(label_threshold=0.4).thresholds == (0.4,)
    assert [labels for labels, _ in cells] == ["|".join(row["labels"]) for row in rows]
    for row, own in zip(task(top_k=2).records(logits), logits, strict=True):
        assert row["labels"] == expected_of(own, thresholds, 2)[0]
    wide = task(column_per_label=True)
    assert wide.columns() == [*LABEL_WORDS]
    np.testing.assert_allclose([wide.cells(record) for record in wide.records(logits)], expit(logits), atol=1e-5)


def test_a_loaded_model_answers_as_the_pipeline_does(data, texts, logits, thresholds):
    model, texts = tfbert.load(data / "run"), texts[:5]
    assert repr(model).endswith("multi-label classification with 4 labels)")
    options = {"model": str(data / "run"), "framework": "tf", "torch_dtype": None}
    pipeline = transformers_4("pipeline")("text-classification", **options)
    for k in (None, 2):
        theirs = pipeline(texts, truncation=True, max_length=16, top_k=k)
        for mine, other in zip(model(texts, top_k=k), theirs, strict=True):
            assert [entry["label"] for entry in mine] == [entry["label"] for entry in other]
            assert [entry["score"] for entry in mine] == pytest.approx([entry["score"] for entry in other], abs=1e-5)
    for mine, own in zip(model(texts), logits, strict=False):
        assert [entry["label"] for entry in mine] == expected_of(own, thresholds)[0]
    strict = tfbert.load(data / "run", multi_label=tfbert.MultiLabelConfig(label_threshold=0.999))
    assert strict(texts[0]) == []
    np.testing.assert_allclose(model.predict_proba(texts), expit(logits[:5]), atol=1e-5)
    np.testing.assert_array_equal(model.predict(texts), expit(logits[:5]) > thresholds)
    assert model.classes_.tolist() == list(LABEL_WORDS) and strict.predict(texts).tolist() == [[0] * 4] * 5


def test_an_exported_model_gives_the_labels_of_predictions(data, texts, logits, thresholds, tmp_path):
    results = export_of(data, "run", tmp_path / "out")
    assert results["label_threshold"] == thresholds.tolist() and results["label_names"] == list(LABEL_WORDS)
    served = tf.saved_model.load(str(tmp_path / "out"))
    found = {name: value.numpy() for name, value in served.signatures["text"](text=tf.constant(texts)).items()}
    np.testing.assert_allclose(found["probabilities"], expit(logits), atol=1e-5)
    np.testing.assert_array_equal(found["is_given"], expit(logits) > thresholds)
    for names, own in zip(found["labels"], logits, strict=True):
        given = [name.decode() for name in names if name]
        assert given == expected_of(own, thresholds)[0] and not any(names[len(given) :])
    bad_ids = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), tf.constant([[999]]))
    bad = served.signatures["token_ids"](**bad_ids)
    assert bad["error"].numpy()[0] and not bad["is_given"].numpy().any() and not any(bad["labels"].numpy()[0])


def test_the_report_has_labels_thresholds_and_the_worst(data):
    from tfbert.report.pages import write_report

    page = write_report(data / "run").read_text()
    assert page.count("<svg") >= 3 and "One threshold for all labels" in page and "chosen on these texts" in page
    facts = json.loads((data / "run" / "report.json").read_text())["evaluation"]
    assert list(facts["per_label"]) == list(LABEL_WORDS)
    assert {"label", "prediction", "text", "where"} <= facts["worst"][0].keys()


def test_thresholds_that_mean_nothing_are_refused(data, tmp_path):
    saved = load_config(data / "run")
    with pytest.raises(UsageError, match="training chooses"):
        task_of_model(saved, tmp_path, TaskOptions(multi_label=MultiLabelConfig(label_threshold="auto")))
    for bad in (0, 1, "0.5", [0.5, 0.5], [0.5, 0.5, 0.5, 2], None, True):
        saved.tfbert = {"label_threshold": bad}
        with pytest.raises(UsageError, match="is a probability, or one for each label. Received"):
            task_of_model(saved, tmp_path, TaskOptions())
    saved.tfbert = None  # As transformers' own trainer leaves a model.
    task = task_of_model(saved, tmp_path, TaskOptions())
    assert (task.name, task.thresholds, task.label_names) == (LABELS, (0.5,), LABEL_WORDS)
    for value in (0, 1, -0.1, float("nan"), "best"):
        with pytest.raises(UsageError, match="label_threshold"):
            tfbert.Config(multi_label=MultiLabelConfig(label_threshold=value))


def test_what_other_tasks_and_runs_do_not_have_is_refused(data):
    flags = arguments_of(data, LABELS, "refused", is_small=True)
    with pytest.raises(UsageError, match="auto_per_label is chosen on validation examples. Received: none"):
        command(*[flag for flag in flags if not flag.startswith("--validation_file")])
    with pytest.raises(UsageError, match="must be a metric of multi-label classification .* micro_f1, macro_f1"):
        command(*flags, "--metric_for_best_model=accuracy")
    with pytest.raises(UsageError, match="label_threshold is for multi_label_classification, and this is classific"):
        command("--label_threshold=0.3", f"--output_dir={data / 'other'}", "--max_steps=1")
    with pytest.raises(UsageError, match="takes none of these options. Received: "):
        command("--mode=predict", f"--model={data / 'run'}", "--dataset=glue/rte", f"--output_dir={data / 'glue'}")
    task = MultiLabelClassification(("a|b", "c"))
    with pytest.raises(UsageError, match=r"separates labels by '\|', .* Received: the label 'a\|b'. Write .jsonl"):
        task.columns()
    assert dataclasses.replace(task, asked=MultiLabelConfig(column_per_label=True)).columns() == ["a|b", "c"]


def test_the_rarest_label_of_each_text():
    labels = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 1]])
    assert MultiLabelClassification(("a", "b", "c")).strata(labelled(labels)).tolist() == [1, 0, 3, 2]


def test_the_screen_has_the_telling_metrics_and_the_one_that_decides():
    task = MultiLabelClassification(("a", "b"))
    found = {f"eval_{name}": 0.5 for name in task.metric_names}
    names = ["eval_micro_f1", "eval_macro_f1", "eval_subset_accuracy", "eval_roc_auc", "eval_loss"]
    assert task.metrics_line(found).split("  ") == [f"{name} 0.5000" for name in names]
    names.insert(2, "eval_sample_f1")
    assert task.metrics_line(found, "eval_sample_f1").split("  ") == [f"{name} 0.5000" for name in names]


# --- The metrics ---


rng = np.random.default_rng(1)
GOLD_NAMES = ("a", "b", "never", "always")
GOLD = np.column_stack([rng.random((40, 2)) < 0.3, np.zeros(40), np.ones(40)]).astype(np.int8)
LOGITS = 2.0 * GOLD - 1 + rng.standard_normal((40, 4))
PREDICTED = LOGITS > 0


def test_the_metrics_are_those_of_the_definitions():
    found = multi_label.multi_label_metrics(LOGITS, GOLD, PREDICTED)
    hits, had, got = (GOLD & PREDICTED).sum(0), GOLD.sum(0), PREDICTED.sum(0)
    rows = zip((GOLD & PREDICTED).sum(1), GOLD.sum(1) + PREDICTED.sum(1), strict=True)
    expected = {
        "micro_f1": 2 * hits.sum() / (had + got).sum(),
        "macro_f1": np.mean(2 * hits / np.maximum(had + got, 1)),
        "sample_f1": np.mean([2 * h / n if n else 1.0 for h, n in rows]),
        "micro_precision": hits.sum() / got.sum(),
        "micro_recall": hits.sum() / had.sum(),
        "macro_precision": np.mean(hits / np.maximum(got, 1)),
        "macro_recall": np.mean(hits / np.maximum(had, 1)),
        "subset_accuracy": (GOLD == PREDICTED).all(1).mean(),
        "roc_auc": np.mean([sk.roc_auc_score(GOLD[:, i], LOGITS[:, i]) for i in (0, 1)]),
        "average_precision": np.mean([sk.average_precision_score(GOLD[:, i], LOGITS[:, i]) for i in (0, 1, 3)]),
        "loss": np.mean(np.log1p(np.exp(LOGITS)) - GOLD * LOGITS),
    }
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=1e-12)
    assert multi_label.left_out(GOLD, GOLD_NAMES) == {"roc_auc": ["never", "always"], "average_precision": ["never"]}


def test_a_text_without_labels_that_gets_none_is_right():
    labels, logits = np.zeros((3, 2), np.int8), np.array([[-1.0, -1.0], [-1.0, -1.0], [1.0, -1.0]])
    found = multi_label.multi_label_metrics(logits, labels, logits > 0)
    assert (found["sample_f1"], found["subset_accuracy"], found["micro_f1"]) == (2 / 3, 2 / 3, 0.0)
    assert found["roc_auc"] == found["average_precision"] == 0.0 and np.isfinite(found["loss"])


def test_the_table_of_labels_and_its_lines():
    table = multi_label.per_label(LOGITS, GOLD, PREDICTED, GOLD_NAMES, (0.5,))
    for i, (name, row) in enumerate(table.items()):
        own = sk.precision_recall_fscore_support(GOLD[:, i], PREDICTED[:, i], average="binary", zero_division=0)
        assert [row[key] for key in ("precision", "recall", "f1")] == pytest.approx(own[:3]), name
        assert (row["examples"], row["predicted"]) == (GOLD[:, i].sum(), PREDICTED[:, i].sum())
    assert table["never"]["roc_auc"] is table["never"]["average_precision"] is table["always"]["roc_auc"] is None
    own = multi_label.per_label(LOGITS, GOLD, PREDICTED, GOLD_NAMES, (0.1, 0.2, 0.3, 0.4))
    assert [row["threshold"] for row in own.values()] == [0.1, 0.2, 0.3, 0.4]
    lines = multi_label.label_table(table)
    assert len(lines) == 5 and {len(line) for line in lines} == {len(lines[0])}


def test_the_curve_of_thresholds():
    curve = multi_label.threshold_curve(LOGITS, GOLD)
    at = curve["threshold"].index(0.5)
    found = multi_label.multi_label_metrics(LOGITS, GOLD, PREDICTED)
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
    found = multi_label.MeanBinaryCrossEntropy(smoothing).call(FEW_LABELS * np.array(weights, np.float32), FEW_LOGITS)
    assert found.dtype == "float32" and found.shape == (7,)
    np.testing.assert_allclose(found, reference(FEW_LOGITS, FEW_LABELS, weights, smoothing), rtol=2e-6)


def test_large_logits_are_finite():
    far = np.array([[300.0, -300.0], [-300.0, 300.0]], np.float32)
    found = multi_label.MeanBinaryCrossEntropy().call(np.array([[1.0, 0.0], [1.0, 0.0]], np.float32), far)
    np.testing.assert_allclose(found, [0.0, 300.0])


def test_balanced_weights_make_both_sides_equal():
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0]], np.int8)
    balanced = multi_label.positive_weights(TrainingConfig(class_weights="balanced"), labels)
    np.testing.assert_allclose(balanced, [3 / 2, 1 / 5, 5.0])  # Each count at least 1: no weight is 0.
    np.testing.assert_array_equal(multi_label.positive_weights(None, labels), np.ones(3))
    assert multi_label.positive_weights(TrainingConfig(class_weights=(1, 2, 3)), labels).tolist() == [1, 2, 3]
    with pytest.raises(UsageError, match="one weight for each of the 3 labels. Received: 2 weights"):
        multi_label.positive_weights(TrainingConfig(class_weights=(1, 2)), labels)


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
    assert multi_label.choose_threshold(RARE_LOGITS, RARE_LABELS, metric) == best(scores) != 0.5


def test_each_label_has_its_own():
    found = multi_label.choose_thresholds(RARE_LOGITS, RARE_LABELS)
    for i, threshold in enumerate(found[:4]):
        given = expit(RARE_LOGITS[:, i, None].astype(np.float64)) > np.array(CANDIDATES)
        hits, sizes = (given & (RARE_LABELS[:, i, None] > 0)).sum(axis=0), given.sum(axis=0) + RARE_LABELS[:, i].sum()
        assert threshold == best(np.round(2 * hits / sizes, 12))
    assert found[4] == 0.5, "no text has this label"


def test_a_label_is_given_above_its_threshold():
    logits = np.array([[0.0, 1e-7, -1e-7, 3.0]], np.float32)
    # As transformers' logits > 0.
    assert multi_label.given_labels(logits, (0.5,)).tolist() == [[False, True, False, True]]
    assert multi_label.given_labels(logits, (0.5, 0.5, 0.3, 0.99)).tolist() == [[False, True, True, False]]
    assert multi_label.cutoffs((0.5, 0.75)).dtype == np.float32
    np.testing.assert_allclose(multi_label.cutoffs((0.5, 0.75)), [0, np.log(3)], rtol=1e-7)
    assert not multi_label.given_labels(np.array([[np.nan, np.nan]], np.float32), (0.01,)).any()
