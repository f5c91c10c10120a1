"""Tagged sentences of TensorFlow Datasets, from small ones prepared in its own files."""

import re

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.data_sets import prepare
from tfbert.config.data import DataConfig
from tfbert.errors import UsageError
from tfbert.tasks.examples import load_data
from tfbert.tasks.tagging.tfds import read_tfds_tagged

WORDS = tfds.features.Sequence(tfds.features.Text())
NER = tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-LOC", "I-LOC"]))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("tfds"))
    rows = [(["New", "York", "wins"], [1, 2, 0]), (["", "x"][1:], [0]), ([], []), (["Naïve", "Rome"], [0, 1])]
    hidden = [(["who", "knows"], [-1, -1])]
    prepare(directory, "tiny_ner", {"tokens": WORDS, "tags": NER}, {"train": rows, "dev": rows[:1], "test": hidden})
    ids = tfds.features.Sequence(np.int64)
    prepare(directory, "only_test", {"tokens": WORDS, "ner": ids}, {"train": rows, "validation": hidden, "test": rows})
    three = {"words": WORDS, "pos": NER, "other": NER, "title": tfds.features.Text()}
    prepare(directory, "two_tags", three, {"train": [(["a", "b"], [0, 1], [1, 0], "t")]})
    prepare(directory, "no_tags", {"tokens": WORDS, "title": tfds.features.Text()}, {"train": [(["a"], "t")]})
    prepare(directory, "uneven", {"tokens": WORDS, "tags": NER}, {"train": [(["a", "b"], [0])]})
    return directory


def test_splits_words_and_the_names_of_classes(data_dir):
    tables = read_tfds_tagged("tiny_ner", data_dir)
    assert list(tables) == ["train", "validation"]
    train = tables["train"]
    assert sorted(zip(train.words, train.tags, strict=True)) == [
        (["Naïve", "Rome"], ["O", "B-LOC"]),
        (["New", "York", "wins"], ["B-LOC", "I-LOC", "O"]),
        (["x"], ["O"]),
    ]
    assert (tables["validation"].name, tables["validation"].words) == ("tiny_ner 'dev'", [["New", "York", "wins"]])
    assert re.fullmatch(r"tiny_ner 'train', example [1-4]", train.where(0))
    assert train.notes[0] == "tiny_ner is tiny_ner/1.0.0 of TensorFlow Datasets"
    assert "tiny_ner 'train': 1 empty sentence left out" in train.notes
    assert list(read_tfds_tagged("tiny_ner", data_dir, with_train=False)) == ["validation"]


def test_a_validation_split_without_tags_gives_way_to_test(data_dir):
    tables = read_tfds_tagged("only_test", data_dir)
    assert list(tables) == ["train", "test"] and tables["test"].tags.count(["1", "2", "0"]) == 1
    assert "only_test has no validation split: evaluating on 'test'" in tables["train"].notes
    # As with texts, that is what is evaluated during training, and nothing else is.
    data = load_data(DataConfig(dataset="only_test", data_dir=data_dir, task="token_classification"))
    assert {name: len(examples) for name, examples in data.validation.items()} == {"test": 3}
    assert data.test is None and data.task.label_names == ("0", "1", "2")


def test_columns_by_choice(data_dir):
    tables = read_tfds_tagged("two_tags", data_dir, ("words",), "other")
    assert tables["train"].tags == [["B-LOC", "O"]]
    assert "two_tags has no labelled split besides 'train': nothing is evaluated during training" in (
        tables["train"].notes
    )


@pytest.mark.parametrize(
    ("dataset", "columns", "message"),
    [
        ("tiny_nur", {}, r"TensorFlow Datasets name\. Received: dataset='tiny_nur'.*Pass for example tiny_ner"),
        ("no_tags", {}, r"the tags: each row needs a list\. Received: dataset='no_tags' with columns 'tokens'\."),
        ("two_tags", {"label_column": "ner"}, r"label_column='ner' is not in the data.*'other', 'pos', 'words'"),
        ("two_tags", {"text_column": ("pos",), "label_column": "other"}, r"Words must be strings\. Received: 'pos'"),
        ("uneven", {}, r"one tag\. Received: 2 words and 1 tags in uneven 'train', example 1\."),
    ],
)
def test_bad_data_sets(data_dir, dataset, columns, message):
    with pytest.raises(UsageError, match=message) as caught:
        read_tfds_tagged(dataset, data_dir, **columns)
    assert "\n" not in str(caught.value)


def test_nothing_to_evaluate(data_dir):
    with pytest.raises(UsageError, match=r"Evaluation needs labels\. Received: dataset='two_tags'"):
        read_tfds_tagged("two_tags", data_dir, label_column="pos", with_train=False)
