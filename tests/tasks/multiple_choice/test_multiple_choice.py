"""One of several choices: the command's training, evaluation, prediction and export agree; and metrics with NumPy."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401 - The SavedModel's operations.
from safetensors.numpy import load_file, save_file
from transformers import BertTokenizerFast

import tfbert
from tests.support.labelled import json_lines
from tests.support.refusals import message_of
from tests.support.saved_models import read_json, save_with_nan
from tests.support.task_runs import CHOICES, arguments_of, command, config_of, predict, write_tasks
from tests.support.transformers_4 import transformers_4
from tfbert.errors import RunError, UsageError
from tfbert.tasks.multiple_choice import Choices, choice_metrics
from tfbert.train.run import finetune

METRICS = ("accuracy", "mean_reciprocal_rank", "loss")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """With the data, a model trained on it in `run`, and the results of the training."""
    directory = tmp_path_factory.mktemp("choosing")
    write_tasks(directory)
    results = finetune(config_of(*arguments_of(directory, CHOICES, "run", is_small=True)))  # With a report.
    (directory / "results.json").write_text(json.dumps(results))
    return directory


@pytest.fixture(scope="module")
def rows(directory):
    return read_json(directory / "dev.jsonl")


@pytest.fixture(scope="module")
def predicted(directory):
    return read_json(predict(directory, directory / "dev.jsonl", "a.jsonl"))


def whole(path):
    return json.loads(path.read_text())


def test_evaluation_of_the_saved_model_is_that_of_training(directory, predicted, rows):
    flags = ["--mode=evaluate", f"--model={directory / 'run'}", f"--validation_file={directory / 'dev.jsonl'}"]
    found, results = command(*flags, f"--output_dir={directory / 'evaluated'}"), whole(directory / "results.json")
    assert [found[f"eval_{name}"] for name in METRICS] == pytest.approx([results[f"eval_{name}"] for name in METRICS])
    assert found["eval_samples"] == 13
    assert whole(directory / "evaluated" / "eval_results.json") == found
    right = [one["index"] == row["label"] for one, row in zip(predicted, rows, strict=True)]
    assert found["eval_accuracy"] == pytest.approx(np.mean(right))
    shares = [one["probabilities"][row["label"]] for one, row in zip(predicted, rows, strict=True)]
    assert found["eval_loss"] == pytest.approx(-np.log(shares).mean(), rel=1e-5)


def test_predictions_are_those_of_transformers(directory, predicted, rows):
    tokenizer = BertTokenizerFast.from_pretrained(directory / "run")
    model = transformers_4("TFBertForMultipleChoice").from_pretrained(directory / "run")
    assert type(model).__name__ == "TF" + whole(directory / "run" / "config.json")["architectures"][0]
    for one, row in zip(predicted, rows, strict=True):
        seconds = [f"{row['question']} {choice}" for choice in row["choices"]]
        options = {"truncation": "only_first", "max_length": 24, "padding": True, "return_tensors": "tf"}
        inputs = tokenizer([row["context"]] * len(seconds), seconds, **options)
        logits = model({name: part[None] for name, part in inputs.items()}).logits
        np.testing.assert_allclose(one["probabilities"], tf.nn.softmax(logits)[0], atol=1e-5)
        assert one["index"] == int(np.argmax(logits)) and one["choice"] == row["choices"][one["index"]]
        assert one["score"] == max(one["probabilities"]) and len(one["probabilities"]) == len(row["choices"])


def test_a_head_of_transformers_is_loaded_whatever_labels_its_configuration_has(directory, predicted, tmp_path):
    """Theirs has two, LABEL_0 and LABEL_1, which mean nothing."""
    for name in ("vocab.txt", "tokenizer_config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((directory / "run" / name).read_bytes())
    config = whole(directory / "run" / "config.json")
    config = {name: value for name, value in config.items() if name not in ("id2label", "label2id", "tfbert")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = tfbert.load(tmp_path, max_seq_length=24)(read_json(directory / "dev.jsonl")[1], top_k=None)
    scores = {one["index"]: one["score"] for one in found}
    assert scores == pytest.approx(dict(enumerate(predicted[1]["probabilities"])))
    tensors = load_file(tmp_path / "model.safetensors")
    assert {"classifier.weight", "classifier.bias", "bert.pooler.dense.weight"} <= {*tensors}
    assert tensors["classifier.weight"].shape == (1, tensors["bert.pooler.dense.weight"].shape[0])
    tensors["classifier.weight"] = np.tile(tensors["classifier.weight"], (2, 1))
    tensors["classifier.bias"] = np.tile(tensors["classifier.bias"], 2)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match="head has 2 labels"):
        tfbert.load(tmp_path)


def test_a_table_has_the_same_predictions(directory, predicted):
    table = [line.split("\t") for line in predict(directory, directory / "dev.jsonl", "a.tsv").read_text().splitlines()]
    assert table[0] == ["id", "index", "choice", "score", "probabilities"]
    for cells, one in zip(table[1:], predicted, strict=True):
        assert cells == [str(one["id"]), str(one["index"]), one["choice"], str(one["score"]), cells[4]]
        assert json.loads(cells[4]) == one["probabilities"]


def test_bad_rows_of_another_form_are_named_or_skipped(directory, predicted, rows, tmp_path, logged):
    long = {"question": "film " * 30, "options": ["a", "b"], "id": "long"}
    asked = [{"article": row["context"], "question": row["question"], "options": row["choices"]} for row in rows]
    named = [row | {"id": f"n{i}", "label": "nonsense"} for i, row in enumerate(asked)]
    source = tmp_path / "new.jsonl"
    source.write_text(json_lines(named[0], long, {"id": "x"}, *named[1:]))
    with pytest.raises(UsageError, match="only the context is cut.*new.jsonl, line 2"):
        predict(directory, source, "c.jsonl")
    with pytest.raises(UsageError, match="id_column='key' for .*new.jsonl with columns 'article'"):
        predict(directory, source, "c.jsonl", "--id_column=key")
    found = read_json(predict(directory, source, "c.jsonl", "--skip_bad_rows"))
    assert found == [one | {"id": f"n{i}"} for i, one in enumerate(predicted)]
    text = "\n".join(logged())
    assert re.search(r"contexts of \d+ of 13 questions are cut to fit 24 tokens", text) and "2 rows skipped" in text


def test_a_loaded_model(directory, predicted, rows):
    choose = tfbert.load(directory / "run")
    assert choose.task == "multiple_choice" and "multiple choice" in repr(choose)
    found = choose(rows, batch_size=3)
    assert [one["choice"] for one in found] == [one["choice"] for one in predicted]
    assert [one["score"] for one in found] == pytest.approx([one["score"] for one in predicted], rel=1e-5)
    best = choose(rows[0], top_k=2)
    assert len(best) == 2 and best[0] == choose(rows[0]) and best[0]["score"] >= best[1]["score"]
    assert {"index", "choice", "score"} == best[0].keys()
    every = choose({"question": "q", "choices": np.array(["a", "b", "c"])}, top_k=None)
    assert sorted(one["index"] for one in every) == [0, 1, 2] and sum(o["score"] for o in every) == pytest.approx(1)
    for bad in ("text", {"question": "q"}, {"choices": ["a", "b"]}, {"question": "q", "choices": "ab"},
                {"question": "q", "choices": ["a"]}, {"question": "q", "choices": ["a", ""]},
                {"question": "film " * 40, "choices": ["a", "b"]}):  # fmt: skip
        assert "\n" not in message_of(choose, bad)


def test_predictions_that_are_not_finite_are_refused(directory, tmp_path):
    save_with_nan(directory / "run", tmp_path / "nan", "film")
    with pytest.raises(RunError, match="must be finite"):
        tfbert.load(tmp_path / "nan")({"question": "film", "choices": ["a", "b"]})


def test_an_exported_model_takes_the_tokens_of_transformers(directory, predicted, rows, logged):
    """As docs/after_training.md has it."""
    command("--mode=export", f"--model={directory / 'run'}", f"--output_dir={directory / 'export'}")
    assert "The export takes token ids: its graph does not hold the tokenizer" in "\n".join(logged())
    tokenizer = BertTokenizerFast.from_pretrained(directory / "export")
    choose = tf.saved_model.load(str(directory / "export")).signatures
    assert set(choose) == {"serving_default", "token_ids"}
    for one, row in zip(predicted, rows, strict=True):
        pairs = [[row["context"], f"{row['question']} {choice}"] for choice in row["choices"]]
        ids = tokenizer(pairs, truncation="only_first", max_length=24, padding=True, return_tensors="np")
        found = choose["token_ids"](**{name: tf.constant(value, tf.int32) for name, value in ids.items()})
        assert not any(found["error"].numpy())
        np.testing.assert_allclose(tf.nn.softmax(found["logits"][:, 0]), one["probabilities"], atol=1e-5)


def test_metrics_are_those_of_a_plain_loop():
    rng = np.random.default_rng(2)
    counts = rng.integers(2, 6, 40)
    splits = np.concatenate([[0], np.cumsum(counts)])
    scores = rng.integers(-3, 4, splits[-1]).astype(np.float32)  # Many are equal.
    labels = np.array([rng.integers(count) for count in counts])
    found = choice_metrics(Choices.of(scores, splits), labels)
    expected = []
    for i, label in enumerate(labels):
        own = scores[splits[i] : splits[i + 1]].astype(float)
        rank = sorted(range(len(own)), key=lambda j: (-own[j], j)).index(label)
        expected.append((rank == 0, 1 / (rank + 1), np.log(np.exp(own).sum()) - own[label]))
    assert found == pytest.approx(dict(zip(METRICS, np.mean(expected, axis=0), strict=True)))


def test_the_report_and_the_card(directory):
    page = (directory / "run" / "report.html").read_text()
    assert "Most wrong" in page and 'class="answer"' in page
    card = (directory / "run" / "README.md").read_text()
    assert "pipeline_tag: multiple-choice" in card and "AutoModelForMultipleChoice" in card
