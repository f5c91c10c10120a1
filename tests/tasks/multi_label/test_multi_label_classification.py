"""Several labels a text, from training to every way of using the model, against transformers and scikit-learn."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit
from sklearn import metrics as sk

import tfbert
from tests.support.runs import write_corpus
from tests.support.saved_models import read_json, reference_logits_of
from tests.support.served import export_of
from tests.support.task_runs import LABEL_WORDS, LABELS, arguments_of, command, write_label_sets
from tests.support.transformers_4 import transformers_4
from tfbert.config.tasks import MultiLabelConfig, TaskOptions
from tfbert.errors import UsageError
from tfbert.model.files import load_config
from tfbert.tasks.multi_label.multi_label_classification import MultiLabelClassification, rarest_labels
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
def logits(data):
    """transformers' logits of the validation texts, each alone."""
    return reference_logits_of(data / "run", [row["text"] for row in read_json(data / "dev-labels.jsonl")])


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
        for prefix in ("eval", "test"):
            assert found[f"{prefix}_{name}"] == pytest.approx(trained[f"{prefix}_{name}"], abs=1e-6)
    gold, predicted = gold_of(data / "dev-labels.jsonl"), expit(logits) > thresholds
    assert found["eval_micro_f1"] == pytest.approx(sk.f1_score(gold, predicted, average="micro"))
    assert found["eval_loss"] == pytest.approx(sk.log_loss(gold.ravel(), expit(logits.astype(np.float64)).ravel()))
    assert [found["eval_per_label"][name]["threshold"] for name in LABEL_WORDS] == thresholds.tolist()


def expected_of(row, thresholds, most=None):
    """(names, chances), the most probable first: those above the thresholds, or so many."""
    order = np.argsort(-row, kind="stable")
    kept = order[:most] if most else [i for i in order if expit(row[i]) > thresholds[i]]
    return [LABEL_WORDS[i] for i in kept], [float(expit(row[i])) for i in kept]


def test_predictions_are_lists_of_labels_or_columns(data, logits, thresholds, tmp_path):
    flags = [f"--input_file={data / 'dev-labels.jsonl'}", f"--output_file={tmp_path / 'labels.jsonl'}"]
    command("--mode=predict", f"--model={data / 'run'}", *flags)
    rows = read_json(tmp_path / "labels.jsonl")
    assert len({len(row["labels"]) for row in rows}) > 1 and [row["id"] for row in rows] == list(range(21))
    for row, own in zip(rows, logits, strict=True):
        names, chances = expected_of(own, thresholds)
        assert row["labels"] == names and row["scores"] == pytest.approx(chances, abs=1e-5)

    def task(**asked):
        return task_of_model(
            load_config(data / "run"), data / "run", TaskOptions(multi_label=MultiLabelConfig(**asked))
        )

    cells = [task().cells(record) for record in task().records(logits)]
    assert task().columns() == ["labels", "scores"] and task(label_threshold=0.4).thresholds == (0.4,)
    assert [labels for labels, _ in cells] == ["|".join(row["labels"]) for row in rows]
    for row, own in zip(task(top_k=2).records(logits), logits, strict=True):
        assert row["labels"] == expected_of(own, thresholds, 2)[0]
    wide = task(column_per_label=True)
    assert wide.columns() == [*LABEL_WORDS]
    np.testing.assert_allclose([wide.cells(record) for record in wide.records(logits)], expit(logits), atol=1e-5)


@functools.cache
def pipeline(directory):
    return transformers_4("pipeline")("text-classification", model=str(directory), framework="tf", torch_dtype=None)


def test_a_loaded_model_answers_as_the_pipeline_does(data, logits, thresholds):
    model, texts = tfbert.load(data / "run"), [row["text"] for row in read_json(data / "dev-labels.jsonl")][:5]
    assert repr(model).endswith("multi-label classification with 4 labels)")
    for k in (None, 2):
        theirs = pipeline(data / "run")(texts, truncation=True, max_length=16, top_k=k)
        for mine, other in zip(model(texts, top_k=k), theirs, strict=True):
            assert [entry["label"] for entry in mine] == [entry["label"] for entry in other]
            scores = [entry["score"] for entry in other]
            assert [entry["score"] for entry in mine] == pytest.approx(scores, abs=1e-5)
    for mine, own in zip(model(texts), logits, strict=False):
        assert [entry["label"] for entry in mine] == expected_of(own, thresholds)[0]
    strict = tfbert.load(data / "run", multi_label=tfbert.MultiLabelConfig(label_threshold=0.999))
    assert strict(texts[0]) == []
    np.testing.assert_allclose(model.predict_proba(texts), expit(logits[:5]), atol=1e-5)
    np.testing.assert_array_equal(model.predict(texts), expit(logits[:5]) > thresholds)
    assert model.classes_.tolist() == list(LABEL_WORDS) and strict.predict(texts).tolist() == [[0] * 4] * 5


def test_an_exported_model_gives_the_labels_of_predictions(data, logits, thresholds, tmp_path):
    results = export_of(data, "run", tmp_path / "out")
    assert results["label_threshold"] == thresholds.tolist() and results["label_names"] == list(LABEL_WORDS)
    served = tf.saved_model.load(str(tmp_path / "out"))
    texts = [row["text"] for row in read_json(data / "dev-labels.jsonl")]
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


def refusal(saved, tmp_path, **options):
    with pytest.raises(UsageError) as caught:
        task_of_model(saved, tmp_path, TaskOptions(multi_label=MultiLabelConfig(**options)))
    return str(caught.value)


def test_thresholds_that_mean_nothing_are_refused(data, tmp_path):
    saved = load_config(data / "run")
    assert "training chooses" in refusal(saved, tmp_path, label_threshold="auto")
    for bad in (0, 1, "0.5", [0.5, 0.5], [0.5, 0.5, 0.5, 2], None, True):
        saved.tfbert = {"label_threshold": bad}
        assert "is a probability, or one for each label. Received" in refusal(saved, tmp_path)
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
    assert rarest_labels(labels).tolist() == [1, 0, 3, 2]


def test_the_screen_has_the_telling_metrics_and_the_one_that_decides():
    task = MultiLabelClassification(("a", "b"))
    found = {f"eval_{name}": 0.5 for name in task.metric_names}
    names = ["eval_micro_f1", "eval_macro_f1", "eval_subset_accuracy", "eval_roc_auc", "eval_loss"]
    assert task.metrics_line(found).split("  ") == [f"{name} 0.5000" for name in names]
    names.insert(2, "eval_sample_f1")
    assert task.metrics_line(found, "eval_sample_f1").split("  ") == [f"{name} 0.5000" for name in names]
