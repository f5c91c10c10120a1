"""Rows that nobody is to train on: annotations that Prodigy says were rejected or ignored, whatever the task."""

import json

import pytest

from tests.support.task_runs import CHOICES, LABELS, QUESTIONS, SENTENCES
from tfbert.config.data import DataConfig
from tfbert.config.types import Given
from tfbert.data.in_memory import given_table
from tfbert.data.reading import BadRows
from tfbert.data.rows import open_rows
from tfbert.errors import UsageError
from tfbert.tasks.tables import load_data

ANSWERS = ["accept", "reject", "accept", "ignore", None, "accept"]
KEPT = [0, 2, 4, 5]


ROWS = {
    "classification": lambda i: {"text": f"text {i}", "label": "ab"[i % 2]},
    "regression": lambda i: {"text": f"text {i}", "label": i + 0.5},
    LABELS: lambda i: {"text": f"text {i}", "labels": [["a", "b"][i % 2], "c"]},
    SENTENCES: lambda i: {"tokens": [f"text {i}", "x"], "tags": ["O", "B-x"]},
    QUESTIONS: lambda i: {
        "id": str(i), "question": f"text {i}", "context": "a b", "answers": {"text": ["a"], "answer_start": [0]},
    },
    CHOICES: lambda i: {"question": f"text {i}", "choice0": "a", "choice1": "b", "label": i % 2},
}  # fmt: skip


def rows_of(task, answers):
    return [ROWS[task](i) | ({} if answer is None else {"answer": answer}) for i, answer in enumerate(answers)]


def load(task, rows, **options):
    return load_data(DataConfig(task=task, train_file=Given("train", given_table("train", rows)), **options))


@pytest.mark.parametrize("task", ROWS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_what_was_rejected_or_ignored_is_left_out(task, in_memory, tmp_path):
    rows = rows_of(task, ANSWERS)
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = Given("train", given_table("train", rows)) if in_memory else str(path)
    data = load_data(DataConfig(task=task, train_file=source))
    texts = [str(content) for content in data.train.contents()]
    assert len(texts) == len(KEPT) and all(f"text {i}" in text for i, text in zip(KEPT, texts, strict=True))
    (note,) = [note for note in data.notes if "left out" in note]
    assert ": 2 " in note and "answer='reject'" in note and note.endswith((" 2", "record 2"))


@pytest.mark.parametrize("task", ROWS)
def test_other_answers_change_nothing(task):
    rows = rows_of(task, ["Paris", "reject", "ignore", "accept", "42", None])
    data = load(task, rows)
    assert len(data.train) == 6 and not any("left out" in note for note in data.notes)


def test_an_answer_that_is_read_is_no_verdict():
    rows = [{"text": f"x {i}", "answer": "accept" if i % 2 else "reject"} for i in range(6)]
    data = load("classification", rows, label_column="answer")
    assert data.task.label_names == ("accept", "reject") and len(data.train) == 6


def test_answers_that_prodigy_does_not_write():
    rows = rows_of("classification", ["accept", "rejected", "accept"])
    with pytest.raises(UsageError, match="one of accept, reject, ignore. Received: answer='rejected' in .*, row 2"):
        load("classification", rows)
    more = rows_of("classification", ["accept"] * 3)
    assert len(load("classification", [*rows, *more], skip_bad_rows=True).train) == 5
    with pytest.raises(UsageError, match="none that can be used; the first: answer='reject' in"):
        load("classification", rows_of("classification", ["reject", "ignore"]))


def test_one_class_that_is_left_says_what_was_left_out():
    rows = rows_of("classification", ["accept", "reject", "accept", "ignore"])
    with pytest.raises(UsageError, match="only 'a' in .*: 2 rows left out; the first: answer='reject'.*Check"):
        load("classification", rows)


def test_prediction_answers_all_rows(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("text,answer\na,accept\nb,reject\n")
    rows = list(BadRows(False).usable(open_rows(path, "csv").read(["text"]), lambda line, row: row[0]))
    assert rows == ["a", "b"]
