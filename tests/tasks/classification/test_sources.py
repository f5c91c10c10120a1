"""Files and TensorFlow Datasets -> examples of classes and scores, and every bad input with its message."""

import json
import re
import socket
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.labelled import json_lines, tsv, write_rows
from tests.support.refusals import refused
from tfbert import DataConfig, UsageError
from tfbert.tasks.tables import load_data

# --- Labels --------------------------------------------------------------------------------------------------------


WRITTEN = [  # Labels, the task that is asked for, the names of the classes, and what is trained on.
    (["1", "0", "1"], "auto", ("0", "1"), [1, 0, 1]),
    (["10", "2", "9"], "auto", ("2", "9", "10"), [2, 0, 1]),
    (["1", "-1", "+1"], "auto", ("-1", "+1", "1"), [2, 0, 1]),
    (["4.0", "5", "1.0", "4"], "auto", ("1", "4", "5"), [1, 2, 0, 1]),
    (["spam", "ham", "Spam"], "auto", ("Spam", "ham", "spam"), [2, 1, 0]),
    (["3", "three", "3.0"], "auto", ("3", "3.0", "three"), [0, 2, 1]),
    (["true", "false"], "auto", ("false", "true"), [1, 0]),
    ([True, False], "auto", ("false", "true"), [1, 0]),
    ([2, "1", 3.0], "auto", ("1", "2", "3"), [1, 0, 2]),
    (["none", "a"], "auto", ("a", "none"), [1, 0]),
    (["0.5", "1"], "classification", ("0.5", "1"), [0, 1]),
    (["0.5", "2", "1e1", "-3"], "auto", (), [0.5, 2, 10, -3]),
    (["1", "2", "3", "4"], "regression", (), [1, 2, 3, 4]),
]


@pytest.mark.parametrize("labels, task, names, trained", WRITTEN)
def test_labels_are_classes_or_scores(tmp_path, labels, task, names, trained):
    path = write_rows(tmp_path / ("a.tsv" if isinstance(labels[0], str) else "a.jsonl"), labels)
    data = load_data(DataConfig(train_file=path, validation_file=path, task=task))
    kind, dtype = ("classification", np.int32) if names else ("regression", np.float32)
    assert (data.task.name, data.task.label_names) == (kind, names)
    np.testing.assert_array_equal(data.train.labels, np.array(trained, dtype), strict=True)
    assert any("regression;" in note for note in data.notes) == (not names and task == "auto")


# --- A whole run's data --------------------------------------------------------------------------------------------


def test_files_of_sst2s_shape(write):
    train = write("train.tsv", "label\tsentence\r\n" + "0\tbad\r\n1\tgood\r\n" * 5)
    dev, test = write("dev.tsv", "label\tcontent\n1\tfine\n"), write("test.tsv", "label\tcontent\n0\tpoor\n")
    data = load_data(DataConfig(train_file=train, validation_file=dev, test_file=test))
    assert (data.train.text, data.validation["validation"].text) == (["bad", "good"] * 5, ["fine"])
    said = (f"{train}: reading 'sentence' and 'label', found by name",)
    assert (data.test.text, data.test.labels.tolist(), data.notes) == (["poor"], [0], said)


GOOD = tsv("x\t1", "y\t0")
SENTENCE, SCORES, CLASSES = {"text_column": ("sentence",)}, {"task": "regression"}, {"task": "classification"}
DEMO, BY_INDEX = {"dataset": "demo"}, {"header": False, "text_column": ("0",), "label_column": "1"}
PAIRED = "sentence1\tsentence2\tlabel\nx\ty\t1\nx\ty\t0\n"
MIXED = tsv(*(f"x\t{i // 2}" for i in range(51 * 2)), *(f"x\tw{i}" for i in range(50)))
MANY = tsv(*(f"x\tw{i % 1001}" for i in range(4004)))
BAD_RUNS = {
    "unknown label": ((GOOD, tsv("z\t0", "z\t2")), {}, r"data's 2: '0', '1'\. Received: '2' in .*\.tsv, line 3\."),
    "unlabelled test": ((GOOD, GOOD, "text\tid\nx\t1\n"), {}, r"like the label\. .*test\.tsv with.*--mode=predict"),
    "column not in all": (("sentence\tlabel\nx\t1\n", "content\tlabel\nx\t1\n"), SENTENCE, r"validation\.tsv with col"),
    "pairs and singles": ((PAIRED, GOOD), {}, r"train\.tsv with sentence1 and sentence2, .*\.tsv with text\. Pass"),
    "one class": ((tsv("x\t1", "y\t1.0"),), {}, r"at least two classes\. Received: only '1', '1\.0' in .*train\.tsv"),
    "words as scores": ((tsv("x\t1", "y\thigh"),), SCORES, r"finite number\. Received: 'high' in .*line 3"),
    "infinite score": ((tsv("x\t1", "y\t-inf"),), SCORES, r"Received: '-inf' in .*line 3"),
    "score beyond float32": ((tsv("x\t1.5", "y\t1e39"),), {}, r"Received: '1e39' in .*line 3"),
    "infinity among classes": ((tsv("x\t1", "y\t0", "z\t-inf"),), {}, r"finite.* Received: '-inf' in .*line 4"),
    "identifiers as labels": ((MIXED,), {}, r"Received: 101 distinct labels in the 152 rows.*Check --label_column\.$"),
    "counts as labels": ((tsv(*(f"x\t{i % 60}" for i in range(101))),), CLASSES, r"60 distinct labels.*--task=regr"),
    "no such text in the demo": ((), DEMO | {"text_column": ("other",)}, r"text_column='other' is not"),
    "no such label in the demo": ((), DEMO | {"label_column": "other"}, r"label_column='other' is not"),
    "indexes of the demo": ((), DEMO | BY_INDEX, r"can lack a header"),
    "the words of the demo": ((), DEMO | {"header": False, "task": "token_classification"}, r"can lack a header"),
    "the demo as scores": ((), DEMO | SCORES, r"finite number\. Received: 'negative' in demo train, example 1"),
    "very many classes": ((MANY,), {}, r"1,001 distinct labels in the 4,004 rows.*or --task=classification if there"),
}


@pytest.mark.parametrize(("files", "options", "message"), BAD_RUNS.values(), ids=BAD_RUNS)
def test_bad_runs(write, files, options, message):
    roles = zip(("train", "validation", "test"), files, strict=False)
    paths = {f"{role}_file": write(f"{role}.tsv", content) for role, content in roles}
    with refused(message):
        load_data(DataConfig(**paths, **options))


def test_many_classes_when_asked_for(write):
    assert len(load_data(DataConfig(train_file=write("a.tsv", MANY), **CLASSES)).task.label_names) == 1001


def test_subsets_are_random_and_always_the_same(write):
    path = write("a.tsv", tsv(*(f"{i}\t{i // 500}" for i in range(1000)), "last\t2"))
    most = {"max_train_examples": 100, "max_eval_examples": 50}
    config = DataConfig(train_file=path, validation_file=path, test_file=path, **most)
    data = load_data(config)
    assert (len(data.train), len(data.validation["validation"]), len(data.test)) == (100, 50, 50)
    assert min(np.bincount(data.train.labels)[:2]) > 35, "sorted by class, so both must be there"
    assert data.task.label_names == ("0", "1", "2"), "of the whole training set"
    numbers = [int(text) for text in data.train.text if text != "last"]
    assert numbers == sorted(set(numbers))
    assert data.train.text == load_data(config).train.text
    assert sum("100 of 1,001 examples" in note for note in data.notes) == 1
    assert len(load_data(DataConfig(train_file=path, max_train_examples=5000)).train) == 1001


def test_notes(write):
    data = load_data(DataConfig(train_file=write("a.tsv", tsv("\t0", " \t1", "x\t1"))))
    assert any("nothing is evaluated" in note for note in data.notes)
    assert any(re.search(r"a\.tsv: 2 empty texts", note) for note in data.notes)


QUESTIONS = [{"id": f"q{i}", "question": f"who {i}?", "answers": [{"text": "a", "answer_start": 0}]} for i in range(6)]
ARTICLE = {"paragraphs": [{"context": "a b", "qas": QUESTIONS[:2]}, {"context": "a c", "qas": QUESTIONS[2:]}]}
PLACES = {  # Where the example is that has a number at this place of its texts.
    "a.tsv": ("auto", "text\tlabel\n\n" + "".join(f"t{i}\t{i % 2}\n" for i in range(40)), "line {}", 3, 1),
    "a.jsonl": ("auto", json_lines(*({"text": f"t{i}", "label": i % 2} for i in range(9))), "line {}", 1, 1),
    "a.conll": ("token_classification", "".join(f"w{i}\tO\nx\tB-A\n\n" for i in range(9)), "line {}", 1, 3),
    "a.json": ("question_answering", json.dumps({"data": [ARTICLE]}), "question {}", 1, 1),
}


@pytest.mark.parametrize("name", PLACES)
def test_examples_of_a_subset_know_their_places(write, name):
    task, content, place, first, step = PLACES[name]
    path = write(name, content)
    config = DataConfig(task=task, train_file=path, validation_file=path, max_eval_examples=3)
    examples = load_data(config).validation["validation"]
    numbers = [int(re.search(r"\d+", texts[0])[0]) for texts in examples.contents()]
    assert [examples.where(row) for row in range(3)] == [place.format(first + step * number) for number in numbers]
    assert numbers != [0, 1, 2]


def test_several_validation_files(write):
    files = [write("dev_a.tsv", "text\tlabel\nx\t1\ny\t0\n"), write("dev_b.tsv", "text\tlabel\nz\t1\n")]
    found = load_data(DataConfig(train_file=files[0], validation_file=",".join(files))).validation
    assert {name: len(part) for name, part in found.items()} == {"validation_dev_a": 2, "validation_dev_b": 1}
    with pytest.raises(UsageError, match="need different names"):
        load_data(DataConfig(train_file=files[0], validation_file=f"{files[0]},{files[0]}"))


# --- TensorFlow Datasets -------------------------------------------------------------------------------------------


def unprepared(monkeypatch, *, urls, download):
    builder = types.SimpleNamespace(is_prepared=lambda: False, url_infos=urls, download_and_prepare=download)
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir: builder)


def test_tfds_without_network(monkeypatch):
    no_address = socket.gaierror(-2, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", mock.Mock(side_effect=no_address))
    monkeypatch.setattr("urllib.request.getproxies", dict)
    unprepared(monkeypatch, urls={"http://nowhere.example/a.zip": None}, download=lambda: pytest.fail("must not try"))
    with refused(r"no network: nowhere\.example has no address.*--data_dir.*--train_file"):
        load_data(DataConfig(dataset="imdb_reviews"))


def test_tfds_download_that_fails(monkeypatch):
    gone = mock.create_autospec(lambda: None, side_effect=ConnectionError("host went away\nmore"))
    unprepared(monkeypatch, urls={}, download=gone)
    with refused(r"Received: dataset='imdb_reviews', data_dir='' \(host went away\)\. Prepare it"):
        load_data(DataConfig(dataset="imdb_reviews"))
