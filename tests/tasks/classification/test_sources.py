"""Files and TensorFlow Datasets -> examples: formats, columns, labels, and every bad input with its message."""

import gzip
import io
import json
import re
import socket
import types

import numpy as np
import pyarrow
import pytest
import tensorflow_datasets as tfds
from pyarrow import parquet

from tests.support.refusals import refused
from tfbert import DataConfig, UsageError
from tfbert.data.files import read_file
from tfbert.tasks.classes import class_ids
from tfbert.tasks.tables import load_data


def tsv(*rows: str) -> str:
    return "".join(f"{row}\n" for row in ("text\tlabel", *rows))


def json_lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- Parsing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "text\tid\tlabel\ngood film\t7\t1\n\nnaïve\t8\t0\n"),
        ("a.tsv.gz", "text\tid\tlabel\ngood film\t7\t1\n\nnaïve\t8\t0\n"),
        ("a.TSV", "\ufefftext\tid\tlabel\r\ngood film\t7\t1\r\n  \r\nnaïve\t8\t 0 "),
        ("a.csv", 'label,"text"\n1,good film\n\n0,"naïve"\n'),
        ("a.csv.gz", "\ufefflabel,text\r\n1,good film\r\n\r\n0,naïve"),
        ("a.jsonl", '{"text": "good film", "label": 1}\n\n{"label": "0", "text": "na\\u00efve"}\n'),
        ("a.json", '{"text": "good film", "label": 1}\n\n{"text": "naïve", "label": 0}'),
        ("b.json", '\ufeff[{"text": "good film", "label": 1},\n {"text": "naïve", "label": 0}]'),
        ("a.jsonl.gz", '\ufeff{"text": "good film", "label": "1"}\r\n\r\n{"text": "naïve", "label": 0}\r\n'),
    ],
)
def test_formats_give_the_same_table(write, name, content):
    table = read_file(write(name, content))
    assert (table.text, table.text_pair, table.labels) == (["good film", "naïve"], None, ["1", "0"])
    place = {"a.jsonl": "line 3", "a.json": "line 3", "a.jsonl.gz": "line 3", "b.json": "record 2"}.get(name, "line 4")
    assert table.where(1) == f"{table.name}, {place}"
    format = {"tsv": "tsv", "csv": "csv"}.get(name[2:5].lower(), "jsonl")
    streamed = read_file(io.BytesIO(content.encode()), DataConfig(input_format=format))
    assert (streamed.text, streamed.labels) == (table.text, table.labels)


@pytest.mark.parametrize(
    "text_type", [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int8(), "string")]
)
@pytest.mark.parametrize(
    ("labels", "expected"),
    [([1, 0], ["1", "0"]), ([1.0, 0.5], ["1.0", "0.5"]), ([True, False], ["true", "false"]), (["x", "y"], ["x", "y"])],
)
def test_parquet(tmp_path, text_type, labels, expected):
    path = tmp_path / "a.parquet"
    text = pyarrow.array(["good", "bad"]).cast(text_type)
    parquet.write_table(pyarrow.table({"text": text, "more": [1, 2], "label": labels}), path, row_group_size=1)
    table = read_file(path)
    assert (table.text, table.labels, table.where(1)) == (["good", "bad"], expected, f"{path}, row 2")


def test_tsv_text_is_taken_as_it_stands(write):
    texts = ['"quoted', 'in "the" middle', "a\u2028b\u2029c\x85d\x0be\x0cf\rg", "comma, here", "", "  spaces  "]
    table = read_file(write("a.tsv", tsv(*(f"{text}\t1" for text in texts))))
    assert table.text == texts
    assert list(table.lines) == [2, 3, 4, 5, 6, 7]


def test_csv_quotes(write):
    path = write("a.csv", 'text,label\n"two\nlines, and ""quotes""",1\nplain,0\n"three\r\nlines\n",2\nlast,3\n')
    table = read_file(path)
    assert table.text == ['two\nlines, and "quotes"', "plain", "three\r\nlines\n", "last"]
    assert list(table.lines) == [2, 4, 5, 8]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_texts_of_megabytes(write, name):
    text = "long " * 500_000
    content = json_lines({"text": text, "label": 1}) if name == "a.jsonl" else f"text\tlabel\n{text}\t1\n"
    table = read_file(write(name, content.replace("\t", ",") if name == "a.csv" else content))
    assert table.text == [text]


@pytest.mark.parametrize(
    ("header", "texts", "label"),
    [
        ("label\tsentence", ("sentence",), "label"),  # SST-2's train.tsv
        ("label\tcontent", ("content",), "label"),  # and its dev.tsv
        ("index\tsentence1\tsentence2\tlabel", ("sentence1", "sentence2"), "label"),
        ("index\tquestion\tsentence\tlabel", ("question", "sentence"), "label"),
        ("gold_label\tlabel1\tsentence2\tsentence1", ("sentence1", "sentence2"), "gold_label"),
        ("hypothesis\tpremise\tclass", ("premise", "hypothesis"), "class"),
        ("id\tquestion1\tquestion2\tis_duplicate", ("question1", "question2"), "is_duplicate"),
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", ("#1 String", "#2 String"), "Quality"),
        ("id\tlabel\trating\tscore\tText", ("Text",), "label"),
        ("sentence1\tsentence2\tscore", ("sentence1", "sentence2"), "score"),
        ("text\ttext_pair\tlabel", ("text", "text_pair"), "label"),
    ],
)
def test_columns_are_found_by_name(write, header, texts, label):
    columns = header.split("\t")
    table = read_file(write("a.tsv", f"{header}\n" + "\t".join(f"a {column}" for column in columns) + "\n"))
    assert table.text_columns == texts
    found = [table.text, *([table.text_pair] if table.text_pair else []), table.labels]
    assert found == [[f"a {column}"] for column in (*texts, label)]


def test_columns_by_choice_and_by_index(write):
    path = write("a.csv", "text,b,label,stars\none,two,x,5\n")
    table = read_file(path, DataConfig(text_column=("b", "text"), label_column="stars"))
    assert (table.text, table.text_pair, table.labels) == (["two"], ["one"], ["5"])
    table = read_file(write("b.csv", "5,one,two\n"), DataConfig(text_column=("2", "1"), label_column="0", header=False))
    assert (table.text, table.text_pair, table.labels, list(table.lines)) == (["two"], ["one"], ["5"], [1])


ONE = tsv("x\t1")
HEADLESS = {"text_column": ("2",), "label_column": "1", "header": False}
SPANS = '{"text": "Ann left", "entities": [{"label": "PER", "start_offset": 0, "end_offset": 3}]}'
BAD_FILES = {
    "empty": ("a.tsv", "", {}, r"at least one example\. Received: '.*a\.tsv', empty"),
    "empty json": ("a.jsonl", "\n", {}, r"at least one example"),
    "only a header": ("a.tsv", "text\tlabel\n", {}, r"at least one example.*with none"),
    "no such columns": ("a.tsv", "foo\tbar\nx\t1\n", {}, r"like the text.*'foo', 'bar'.*--text_column.*--noheader"),
    "no label column": ("a.tsv", "text\tid\nx\t1\n", {}, r"like the label\. Received: .*'text', 'id'.*--label_column"),
    "two texts": ("a.tsv", "text\treview\tlabel\nx\ty\t1\n", {}, r"text and review all look like the text.*--text"),
    "ambiguous label": ("a.tsv", "text\tclass\tscore\nx\ty\t1\n", {}, r"class and score all look like the label.*--la"),
    "absent text column": ("a.tsv", ONE, {"text_column": ("body",)}, r"text_column='body' is not in .*'text', 'label'"),
    "absent label column": ("a.tsv", ONE, {"label_column": "y"}, r"label_column='y' is not in .*'text', 'label'"),
    "text is the label": ("a.tsv", ONE, {"text_column": ("label",), "label_column": "label"}, "different columns"),
    "json without header": ("a.jsonl", "{}", HEADLESS, r"Only \.tsv and \.csv.*--noheader"),
    "too few cells": ("a.tsv", tsv("x\t1", "y"), {}, r"must have 2 columns.*Received: 1 in .*a\.tsv, line 3"),
    "too many csv cells": ("a.csv", 'text,label\n"a\nb",1\nc, d,1\n', {}, r"Received: 3 in .*a\.csv, line 4"),
    "quote in the middle": ("a.csv", 'text,label\n"x" y,1\n', {}, r"RFC 4180.*line 2"),
    "NaN label": ("a.jsonl", '{"text": "x", "label": NaN}', {}, r"needs a label.*line 1"),
    "list label": ("a.jsonl", '{"text": "x", "label": [1]}', {}, r"a word, a number.*label=\[1\] in .*line 1"),
    "number as text": ("a.jsonl", '{"text": 3, "label": 1}', {}, r"needs a text, as a string\. Received: 3 for 'text'"),
    "half a surrogate pair": ("a.jsonl", r'{"text": "\ud800", "label": 1}', {}, r"valid Unicode.*line 1"),
    "spans": ("a.jsonl", SPANS, {}, "like the label.*'entities'.* for another form, docs/"),
    "a delimiter of json": (
        "a.jsonl",
        "{}",
        {"delimiter": ";"},
        r"have a delimiter\. Received: '.*jsonl'\. Drop --deli",
    ),
    "a delimiter of parquet": ("a.parquet", "", {"delimiter": ";"}, r"have a delimiter\. Received: '.*a\.parquet'\. D"),
    "one column without delimiters": ("a.csv", "film\ngood\n", {}, "Pass --text_column, or indexes with --noheader"),
    "zero bytes in a label": ("a.tsv", tsv("x\t1", "y\tg\0ood"), {}, r"zero bytes in 'g\\x00ood' in .*line 3"),
    "not parquet": ("a.parquet", "text", {}, r"\.parquet file must be whole"),
}


@pytest.mark.parametrize(("name", "content", "options", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files(write, name, content, options, message):
    with refused(message) as caught:
        read_file(write(name, content), DataConfig(**options))
    assert "Received: " in str(caught.value)


WHOLE = gzip.compress(tsv(*(f"some text {i}\t{i % 2}" for i in range(1000))).encode())
HALF = r"gzip data, all of it\. Received: .*b\.tsv\.gz, broken after line \d+"
NO_GZIP = [
    (ONE.encode(), r"b\.tsv\.gz, broken .*Not a gzipped file .*or drop \.gz from its name"),
    (b"PK\x03\x04\x00", r"Not a gzipped file \(b'PK.*Copy it again"),
    (b"\x1f\x8b", HALF),
    (WHOLE[:-200], HALF),
    (WHOLE[:500] + b"\0" * 50 + WHOLE[550:], HALF),
]


@pytest.mark.parametrize("content, message", NO_GZIP, ids=range(5))
def test_gzip_that_is_none_or_not_whole(tmp_path, content, message):
    (tmp_path / "b.tsv.gz").write_bytes(content)
    with refused(message):
        read_file(tmp_path / "b.tsv.gz", DataConfig(skip_bad_rows=True))  # Half a file is no bad row.


def test_unreadable_files(tmp_path):
    for name in ("none.tsv", "none.parquet", "folder.tsv"):
        (tmp_path / "folder.tsv").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match=rf"Received: .*{name}"):
            read_file(tmp_path / name)


# --- Labels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "names", "ids"),
    [
        (["1", "0", "1"], ("0", "1"), [1, 0, 1]),
        (["10", "2", "9"], ("2", "9", "10"), [2, 0, 1]),
        (["1", "-1", "+1"], ("-1", "+1", "1"), [2, 0, 1]),
        (["4.0", "5", "1.0", "4"], ("1", "4", "5"), [1, 2, 0, 1]),
        (["spam", "ham", "Spam"], ("Spam", "ham", "spam"), [2, 1, 0]),
        (["3", "three", "3.0"], ("3", "3.0", "three"), [0, 2, 1]),
        (["true", "false"], ("false", "true"), [1, 0]),
        (["none", "a"], ("a", "none"), [1, 0]),
    ],
)
def test_class_names_and_ids(write, labels, names, ids):
    data = load_data(DataConfig(train_file=write("a.tsv", tsv(*(f"x\t{label}" for label in labels)))))
    assert (data.task.name, data.task.label_names) == ("classification", names)
    np.testing.assert_array_equal(data.train.labels, np.array(ids, np.int32), strict=True)


def test_json_labels_of_any_type(write):
    rows = [{"text": "x", "label": label} for label in (True, False)]
    data = load_data(DataConfig(train_file=write("a.jsonl", json_lines(*rows))))
    assert data.task.label_names == ("false", "true")
    rows = [{"text": "x", "label": label} for label in (2, "1", 3.0)]
    data = load_data(DataConfig(train_file=write("b.jsonl", json_lines(*rows))))
    assert (data.task.label_names, data.train.labels.tolist()) == (("1", "2", "3"), [1, 0, 2])


def test_map_labels_needs_no_file():
    np.testing.assert_array_equal(class_ids(["b", "a"], ("a", "b"), str), np.array([1, 0], np.int32), strict=True)
    assert class_ids(["2.0", "2"], ("1", "2"), str).tolist() == [1, 1]
    with pytest.raises(UsageError, match=r"one of the training data's 2: 'a', 'b'\. Received: 'c' in row 1\."):
        class_ids(["a", "c"], ("a", "b"), lambda row: f"row {row}")


@pytest.mark.parametrize(("task", "labels"), [("auto", "0.5 2 1e1 -3"), ("regression", "1 2 3 4")])
def test_regression(write, task, labels):
    path = write("a.tsv", tsv(*(f"x\t{label}" for label in labels.split())))
    data = load_data(DataConfig(train_file=path, validation_file=path, task=task))
    assert (data.task.name, data.task.label_names) == ("regression", ())
    np.testing.assert_array_equal(data.train.labels, np.array(labels.split(), np.float32), strict=True)
    assert any("regression;" in note for note in data.notes) == (task == "auto")


def test_fractions_can_be_classes(write):
    data = load_data(DataConfig(train_file=write("a.tsv", tsv("x\t0.5", "y\t1")), task="classification"))
    assert data.task.label_names == ("0.5", "1")


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
    "very many classes": ((MANY,), {}, r"1,001 distinct labels in the 4,004 rows.*or --task=classification if there"),
}


@pytest.mark.parametrize(("files", "options", "message"), BAD_RUNS.values(), ids=BAD_RUNS)
def test_bad_runs(write, files, options, message):
    roles = zip(("train", "validation", "test"), files, strict=False)
    paths = {f"{role}_file": write(f"{role}.tsv", content) for role, content in roles}
    with refused(message):
        load_data(DataConfig(**paths, **options))


def test_many_classes_when_asked_for(write):
    data = load_data(DataConfig(train_file=write("a.tsv", MANY), task="classification"))
    assert len(data.task.label_names) == 1001


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_column": ("other",)}, r"text_column='other' is not"),
        ({"label_column": "other"}, r"label_column='other' is not"),
        ({"header": False, "text_column": ("0",), "label_column": "1"}, r"can lack a header"),
        ({"header": False, "task": "token_classification"}, r"can lack a header"),
        ({"task": "regression"}, r"finite number\. Received: 'negative' in demo train, example 1"),
    ],
)
def test_options_that_the_demo_refuses(options, message):
    with pytest.raises(UsageError, match=message):
        load_data(DataConfig(dataset="demo", **options))


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
    def no_address(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_address)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    unprepared(monkeypatch, urls={"http://nowhere.example/a.zip": None}, download=lambda: pytest.fail("must not try"))
    said = r"no network: nowhere\.example has no address.*--data_dir.*--train_file"
    with refused(said):
        load_data(DataConfig(dataset="imdb_reviews"))


def test_tfds_download_that_fails(monkeypatch):
    def fail():
        raise ConnectionError("host went away\nmore")

    unprepared(monkeypatch, urls={}, download=fail)
    said = r"Received: dataset='imdb_reviews', data_dir='' \(host went away\)\. Prepare it"
    with pytest.raises(UsageError, match=said):
        load_data(DataConfig(dataset="imdb_reviews"))
