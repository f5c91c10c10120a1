"""Rows that nobody is to train on: annotations that Prodigy says were rejected or ignored are bad rows of any task."""

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
    with pytest.raises(UsageError, match="of Prodigy.*answer='reject' in .* 2. Drop.*other_formats.*--skip_bad"):
        load_data(DataConfig(task=task, train_file=source))
    data = load_data(DataConfig(task=task, train_file=source, skip_bad_rows=True))
    texts = [str(content) for content in data.train.contents()]
    assert len(texts) == len(KEPT) and all(f"text {i}" in text for i, text in zip(KEPT, texts, strict=True))
    (note,) = [note for note in data.notes if "skipped" in note]
    assert ": 2 of 6 " in note and "answer='reject'" in note


@pytest.mark.parametrize("task", ROWS)
def test_other_answers_change_nothing(task):
    assert len(load(task, rows_of(task, ["Paris", "rejected", "no", "accept", "42", None])).train) == 6


def test_an_answer_that_is_read_is_no_verdict():
    rows = [{"text": f"x {i}", "answer": "accept" if i % 2 else "reject"} for i in range(6)]
    data = load("classification", rows, label_column="answer")
    assert data.task.label_names == ("accept", "reject") and len(data.train) == 6


def test_one_class_that_is_left_says_what_was_left_out():
    rows = rows_of("classification", ["accept", "reject", "accept", "ignore"])
    with pytest.raises(UsageError, match="only 'a' in .*: 2 of 4 rows skipped; the first: .*answer='reject'.*Check"):
        load("classification", rows, skip_bad_rows=True)


def test_prediction_answers_all_rows(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("text,answer\na,accept\nb,reject\n")
    rows = list(BadRows(False).usable(open_rows(path, "csv").read(["text"]), lambda line, row: row[0]))
    assert rows == ["a", "b"]
