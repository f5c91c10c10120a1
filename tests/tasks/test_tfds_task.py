"""The task that is detected from the features of a data set of TensorFlow Datasets."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.data_sets import PAIR, prepare
from tests.support.task_runs import config_of
from tfbert.config.data import DataConfig
from tfbert.tasks.detect import detect_task, task_of_dataset
from tfbert.tasks.examples import load_data

QUESTIONS, SENTENCES = "question_answering", "token_classification"
TEXT = tfds.features.Text()
WORDS = tfds.features.Sequence(TEXT)
NER = tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-LOC"]))
CLASS = tfds.features.ClassLabel(num_classes=2)
SQUAD = {
    "id": TEXT,
    "title": TEXT,
    "context": TEXT,
    "question": TEXT,
    "answers": tfds.features.Sequence({"text": TEXT, "answer_start": np.int32}),
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("tfds"))
    answer = {"text": ["Rome"], "answer_start": [13]}
    rows = [("q1", "t", "Zoë lives in Rome.", "Where?", answer)]
    prepare(directory, "asked", SQUAD, {"train": rows, "validation": rows})
    rows = [("1", ["Rome", "fell"], [1, 0])]
    prepare(directory, "tagged", {"id": TEXT, "tokens": WORDS, "ner": NER}, {"train": rows, "validation": rows})
    prepare(directory, "pairs", PAIR, {"train": [("p", 0, "h", 1)]})
    both = {"text": TEXT, "label": CLASS, "tokens": WORDS, "tags": NER}
    prepare(directory, "both", both, {"train": [("a b", 1, ["a", "b"], [0, 1])]})
    scored = {"text": TEXT, "score": np.float32, "tokens": WORDS, "tags": NER}
    prepare(directory, "scored", scored, {"train": [("a b", 1.0, ["a", "b"], [0, 1])]})
    two = {"words": WORDS, "first": NER, "second": NER}
    prepare(directory, "two", two, {"train": [(["a", "b"], [0, 1], [1, 0])]})
    prepare(directory, "untagged", {"tokens": WORDS, "title": TEXT}, {"train": [(["a"], "t")]})
    return directory


@pytest.mark.parametrize(
    ("dataset", "columns", "task"),
    [
        ("asked", {}, QUESTIONS),
        ("tagged", {}, SENTENCES),
        ("two", {"label_column": "second"}, SENTENCES),
        ("two", {}, None),  # Which of them are the tags?
        ("untagged", {}, None),
        ("no_such_name", {}, None),
        # These hold texts with a label, whatever else they hold.
        ("pairs", {}, None),
        ("both", {}, None),
        ("scored", {}, None),
        ("both", {"text_column": ("tokens",), "label_column": "tags"}, SENTENCES),
    ],
)
def test_the_features_decide(data_dir, dataset, columns, task):
    assert task_of_dataset(DataConfig(dataset=dataset, data_dir=str(data_dir), **columns)) == task


@pytest.mark.parametrize(("dataset", "task"), [("asked", QUESTIONS), ("tagged", SENTENCES)])
def test_auto_trains_that_task(data_dir, dataset, task):
    config = detect_task(config_of(f"--dataset={dataset}", f"--data_dir={data_dir}"))
    data = load_data(config.data)
    assert (data.task.name, len(data.train), list(data.validation)) == (task, 1, ["validation"])


def test_what_the_user_asks_for_stays(data_dir):
    given = [f"--data_dir={data_dir}", "--task=classification"]
    assert detect_task(config_of("--dataset=asked", *given)).data.task == "classification"
    assert detect_task(config_of()).data.task == detect_task(config_of("--dataset=demo")).data.task == "auto"
