"""Questions with choices of TensorFlow Datasets, from small ones prepared in its own files with published features."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.data_sets import PAIR, prepare
from tfbert.config.data import DataConfig
from tfbert.config.tasks import ChoosingConfig
from tfbert.data.tfds_builder import find_builder
from tfbert.errors import UsageError
from tfbert.tasks.choosing.tfds import holds_choices, read_tfds_choices
from tfbert.tasks.detect import task_of_dataset

TEXT, LIST = tfds.features.Text(), tfds.features.Sequence(tfds.features.Text())
LETTERS = tfds.features.ClassLabel(names=list("ABCDE"))
SETS = {
    "tiny_race": (
        {"article": TEXT, "questions": LIST, "options": tfds.features.Sequence(LIST), "answers": LIST},
        [("Zoë sang.", ["q1", "q2"], [["a", "b"], ["c", "d", "e"]], ["B", "A"])],
        [("Zoë sang.", "q1", ("a", "b"), 1), ("Zoë sang.", "q2", ("c", "d", "e"), 0)],
    ),
    "tiny_arc": (
        {
            "id": TEXT,
            "question": TEXT,
            "choices": tfds.features.Sequence({"label": LETTERS, "text": TEXT}),
            "answerKey": LETTERS,
        },
        [("1", "Why?", {"label": ["A", "B", "C"], "text": ["a", "b", "c"]}, "C")],
        [("", "Why?", ("a", "b", "c"), 2)],
    ),
    "tiny_copa": (
        {
            "choice1": TEXT,
            "choice2": TEXT,
            "idx": np.int32,
            "label": tfds.features.ClassLabel(names=["choice1", "choice2"]),
            "premise": TEXT,
            "question": TEXT,
        },
        [("sun", "grass", 0, "choice2", "It rained.", "effect")],
        [("It rained.", "What happened as a result?", ("sun", "grass"), 1)],
    ),
    "tiny_cosmos": (
        {"context": TEXT, "question": TEXT, "answer0": TEXT, "answer1": TEXT, "label": np.int64},
        [("c", "q", "a", "b", 1)],
        [("c", "q", ("a", "b"), 1)],
    ),
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("tfds"))
    for name, (features, rows, _) in SETS.items():
        prepare(directory, name, features, {"train": rows, "validation": rows})
    held_back = [(*row[:-1], -1) for row in SETS["tiny_cosmos"][1]]
    rows = SETS["tiny_cosmos"][1]
    prepare(directory, "held_back", SETS["tiny_cosmos"][0], {"train": rows, "validation": held_back, "test": rows})
    prepare(directory, "tiny_nli", PAIR, {"train": [("p", 0, "h", 1)]})
    return directory


@pytest.mark.parametrize("name", SETS)
def test_published_features(data_dir, name):
    tables = read_tfds_choices(DataConfig(dataset=name, data_dir=data_dir), ChoosingConfig())
    assert list(tables) == ["train", "validation"]
    train = tables["train"]
    found = zip(train.asked, train.labels.tolist(), strict=True)
    assert [(one.context, one.question, one.choices, label) for one, label in found] == SETS[name][2]
    assert train.notes[0] == f"{name} is {name}/1.0.0 of TensorFlow Datasets"
    assert train.where(0).startswith("example 1")
    assert task_of_dataset(DataConfig(dataset=name, data_dir=data_dir)) == "multiple_choice"


def test_a_split_whose_labels_are_held_back_is_not_evaluated_on(data_dir):
    tables = read_tfds_choices(DataConfig(dataset="held_back", data_dir=data_dir), ChoosingConfig(), with_train=False)
    assert list(tables) == ["test"]


def test_other_features_are_refused(data_dir):
    config = DataConfig(dataset="tiny_nli", data_dir=data_dir)
    assert not holds_choices(find_builder("tiny_nli", data_dir), config)
    with pytest.raises(UsageError, match="No column looks like") as error:
        read_tfds_choices(config, ChoosingConfig())
    assert "\n" not in str(error.value)
