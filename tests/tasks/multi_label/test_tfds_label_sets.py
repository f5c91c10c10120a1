"""Several labels a text from TensorFlow Datasets, from small ones prepared in its own files."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.data_sets import prepare
from tests.support.flag_values import SCRATCH
from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.errors import UsageError
from tfbert.tasks.detect import detect_task
from tfbert.tasks.examples import load_data

TEXT = tfds.features.Text()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("tfds"))
    classes = tfds.features.Sequence(tfds.features.ClassLabel(names=["x", "y", "z"]))
    rows = [("one", [0, 2]), ("two", []), ("three", [1])]
    prepare(directory, "tiny_ids", {"text": TEXT, "labels": classes}, {"train": rows, "validation": rows[:2]})
    names = [("one", ["b", "a"]), ("two", []), ("three", ["c"])]
    prepare(directory, "tiny_names", {"text": TEXT, "topics": tfds.features.Sequence(TEXT)}, {"train": names})
    flags = {"joy": np.bool_, "anger": np.bool_, "comment_text": TEXT}
    prepare(directory, "tiny_flags", flags, {"train": [(True, False, "one"), (False, False, "two")]})
    numbers = {"id": TEXT, "text": TEXT, "toxicity": np.float32, "threat": np.float32}
    prepare(directory, "tiny_numbers", numbers, {"train": [("1", "one", 1.0, 0.0), ("2", "two", 0.0, 0.0)]})
    soft = [("1", "one", 0.4, 0.0)]
    prepare(directory, "tiny_soft", numbers, {"train": soft})
    return directory


def load(name, data_dir, **options):
    return load_data(DataConfig(dataset=name, data_dir=data_dir, task="multi_label_classification", **options))


def by_text(examples):
    return {text: row.tolist() for text, row in zip(examples.text, examples.labels, strict=True)}


@pytest.mark.parametrize(
    "name, options, names, expected",
    [
        ("tiny_ids", {}, ("x", "y", "z"), {"one": [1, 0, 1], "two": [0, 0, 0], "three": [0, 1, 0]}),
        ("tiny_names", {}, ("a", "b", "c"), {"one": [1, 1, 0], "two": [0, 0, 0], "three": [0, 0, 1]}),
        ("tiny_flags", {}, ("anger", "joy"), {"one": [0, 1], "two": [0, 0]}),
        ("tiny_numbers", {"label_column": "toxicity,threat"}, ("toxicity", "threat"), {"one": [1, 0], "two": [0, 0]}),
    ],
)
def test_features_of_every_kind(data_dir, name, options, names, expected):
    data = load(name, data_dir, **options)
    assert (data.task.label_names, by_text(data.train)) == (names, expected)
    assert any(f"{name} is {name}/1.0.0 of TensorFlow Datasets" in note for note in data.notes)
    config = Config(model=SCRATCH, data=DataConfig(dataset=name, data_dir=data_dir, **options))
    assert detect_task(config).data.task == "multi_label_classification"


def test_splits_and_what_is_refused(data_dir):
    data = load("tiny_ids", data_dir)
    assert {name: len(part) for name, part in data.validation.items()} == {"validation": 2} and data.test is None
    with pytest.raises(UsageError, match="holds 0 or 1 in each row, .* Received: 0.4.* for 'toxicity' in tiny_soft"):
        load("tiny_soft", data_dir, label_column="toxicity,threat")
    with pytest.raises(UsageError, match="a feature of 0 and 1 for each. Received: dataset='tiny_numbers' with"):
        load("tiny_numbers", data_dir)
