"""Questions of TensorFlow Datasets, from small ones prepared in its own files with the features of `squad`."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.data_sets import PAIR, prepare
from tfbert.config.data import DataConfig
from tfbert.config.tasks import AnsweringConfig, TaskOptions
from tfbert.errors import UsageError
from tfbert.tasks.answering.tfds import read_tfds_questions
from tfbert.tasks.examples import load_data

ANSWERS = tfds.features.Sequence({"text": tfds.features.Text(), "answer_start": np.int32})
SQUAD = {
    "id": tfds.features.Text(),
    "title": tfds.features.Text(),
    "context": tfds.features.Text(),
    "question": tfds.features.Text(),
    "answers": ANSWERS,
}
SQUAD_2 = SQUAD | {"plausible_answers": ANSWERS, "is_impossible": np.bool_}


def answers(*pairs):
    return {"text": [text for text, _ in pairs], "answer_start": [start for _, start in pairs]}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("tfds"))
    context = "Zoë lives in Rome, a city."
    rows = [
        ("q1", "t", context, "Where does Zoë live?", answers(("Rome", 13), ("in Rome", 10))),
        ("q2", "t", context, "Who lives in Rome?", answers(("Zoë", 0))),
    ]
    prepare(directory, "tiny_squad", SQUAD, {"train": rows, "validation": rows[:1]})
    none = ("q3", "t", context, "Who left?", answers(), answers(("Zoë", 0)), True)
    second = [(*row, answers(), False) for row in rows] + [none]
    prepare(directory, "tiny_squad2", SQUAD_2, {"train": second, "validation": second[2:]})
    prepare(directory, "tiny_nli", PAIR, {"train": [("p", 0, "h", 1)]})
    prepare(directory, "same_ids", SQUAD, {"train": [rows[0], rows[0]]})
    return directory


def test_features_of_squad(data_dir):
    tables = read_tfds_questions("tiny_squad", data_dir)
    assert list(tables) == ["train", "validation"]
    train = tables["train"]
    found = {name: (train.questions[i], train.answers[i]) for i, name in enumerate(train.ids)}
    assert found == {
        "q1": ("Where does Zoë live?", (("Rome", 13), ("in Rome", 10))),
        "q2": ("Who lives in Rome?", (("Zoë", 0),)),
    }
    assert train.contexts == ["Zoë lives in Rome, a city."] and not train.is_impossible.any()
    assert train.where(0) == "tiny_squad 'train', example 1"
    assert train.notes == ("tiny_squad is tiny_squad/1.0.0 of TensorFlow Datasets",)
    assert list(read_tfds_questions("tiny_squad", data_dir, with_train=False)) == ["validation"]


def test_questions_without_an_answer(data_dir):
    table = read_tfds_questions("tiny_squad2", data_dir, version_2_with_negative=True)["validation"]
    assert (table.ids, table.answers, table.is_impossible.tolist()) == (["q3"], [()], [True])
    config = DataConfig(dataset="tiny_squad2", data_dir=data_dir, task="question_answering")
    data = load_data(config, TaskOptions(answering=AnsweringConfig(version_2_with_negative=True)))
    assert (len(data.train), list(data.validation), data.test) == (3, ["validation"], None)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("tiny_squid", r"TensorFlow Datasets name\. Received: dataset='tiny_squid'.*tiny_squad"),
        ("tiny_nli", r"the features of squad: .* Received: dataset='tiny_nli' with hypothesis, idx, label, premise\."),
        ("tiny_squad2", r"need version_2_with_negative\. Received: 1 of 3 questions of tiny_squad2 'train'"),
        ("same_ids", r"a unique id\. Received: a repeated id in same_ids 'train', example 2 \(id 'q1'\)\. "
         r"Rename or drop it\.$"),
    ],
)  # fmt: skip
def test_bad_data_sets(data_dir, dataset, message):
    with pytest.raises(UsageError, match=message) as caught:
        read_tfds_questions(dataset, data_dir)
    assert "\n" not in str(caught.value)
