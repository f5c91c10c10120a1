"""Rows that nobody is to train on, and files without labels: left out, or refused in a line, in every task."""

import pathlib

import pytest

from tests.support.flag_values import SCRATCH
from tests.support.refusals import refused
from tests.support.task_runs import CHOICES, LABELS, QUESTIONS, SENTENCES
from tfbert import Config, DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.config.types import Given
from tfbert.data.in_memory import given_table
from tfbert.data.reading import BadRows
from tfbert.data.rows import open_rows
from tfbert.tasks.classification.classification import Classification, Regression
from tfbert.tasks.multi_label.multi_label_classification import MultiLabelClassification
from tfbert.tasks.multiple_choice import MultipleChoice
from tfbert.tasks.question_answering.question_answering import QuestionAnswering
from tfbert.tasks.registry import detect_task
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.token_classification import TokenClassification

# --- Annotations that Prodigy says were rejected or ignored ----------------------------------------------------------


ANSWERS = ["accept", "reject", "accept", "ignore", None, "accept"]
KEPT = [0, 2, 4, 5]


ANSWER = {"context": "a b", "answers": {"text": ["a"], "answer_start": [0]}}
ROWS = {
    "classification": lambda i: {"text": f"text {i}", "label": "ab"[i % 2]},
    "regression": lambda i: {"text": f"text {i}", "label": i + 0.5},
    LABELS: lambda i: {"text": f"text {i}", "labels": [["a", "b"][i % 2], "c"]},
    SENTENCES: lambda i: {"tokens": [f"text {i}", "x"], "tags": ["O", "B-x"]},
    QUESTIONS: lambda i: {"id": str(i), "question": f"text {i}"} | ANSWER,
    CHOICES: lambda i: {"question": f"text {i}", "choice0": "a", "choice1": "b", "label": i % 2},
}


def rows_of(task, answers):
    return [ROWS[task](i) | ({} if answer is None else {"answer": answer}) for i, answer in enumerate(answers)]


def load(task, rows, **options):
    return load_data(DataConfig(task=task, train_file=Given("train", given_table("train", rows)), **options))


@pytest.mark.parametrize("task", ROWS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_what_was_rejected_or_ignored_is_left_out(task, in_memory, write):
    rows = rows_of(task, ANSWERS)
    source = Given("train", given_table("train", rows)) if in_memory else write("train.jsonl", rows)
    with refused("of Prodigy.*answer='reject' in .* 2. Drop.*other_formats.*--skip_bad"):
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
    with refused("only 'a' in .*: 2 of 4 rows skipped; the first: .*answer='reject'.*Check"):
        load("classification", rows_of("classification", ["accept", "reject", "accept", "ignore"]), skip_bad_rows=True)


def test_prediction_answers_all_rows(write):
    file = open_rows(pathlib.Path(write("new.csv", "text,answer\na,accept\nb,reject\n")), "csv")
    assert list(BadRows(False).usable(file.read(["text"]), lambda line, row: row[0])) == ["a", "b"]


# --- Files without labels --------------------------------------------------------------------------------------------


TEXTS = [f"text {i}" for i in range(12)]


ASKED = {"question": "Who sang?", "context": "Ella sang."}
OF_TWO = {"question": "Who?", "choices": ["Ella", "Ada"]}


def rows(head, rest=lambda i: ""):
    """A table with a text in each row, and what comes after it."""
    return f"{head}\n" + "".join(f"{text}{rest(i)}\n" for i, text in enumerate(TEXTS))


IN_JSON = [{"text": text, "lang": "en"} for text in TEXTS]
NO_WORDS = [("b.jsonl", [{"tokens": ["Ella"]}, {"tokens": ["sang"]}]), ("b.conll", "Ella\nsang\n\nNow\n")]
CHOSEN = ("a.jsonl", [OF_TWO | {"label": 0}, OF_TWO | {"label": 1}])
NO_CHOICES = [("b.jsonl", [OF_TWO]), ("c.jsonl", [OF_TWO | {"label": -1}] * 2)]
NO_ANSWERS_YET = [("b.jsonl", [ASKED | {"id": "1"}])]
ANSWERED = ("a.jsonl", [ASKED | {"id": "1", "answers": {"text": ["Ella"], "answer_start": [0]}}])
TASKS = {  # A model, a file with labels, and those without.
    "multi_label_classification": (
        MultiLabelClassification(("toxic", "insult")),
        ("a.csv", rows("comment_text,labels", lambda i: f",{['toxic', 'toxic|insult'][i % 2]}")),
        [("b.csv", rows("comment_text,id", lambda i: f",{i}")), ("b.tsv", rows("text")), ("b.jsonl", IN_JSON)],
    ),
    "classification": (
        Classification(("a", "b")),
        ("a.csv", rows("text,label", lambda i: f",{'ab'[i % 2]}")),
        [("b.csv", rows("text")), ("c.csv", rows("text,label", lambda i: ","))],
    ),
    "regression": (
        Regression(),
        ("a.csv", rows("text,label", lambda i: f",{i}.5")),
        [("b.csv", rows("text")), ("c.csv", rows("text,label", lambda i: ",-1"))],
    ),
    "token_classification": (TokenClassification(("O", "B-PER")), ("a.conll", "Ella\tB-PER\n\nNow\tO\n"), NO_WORDS),
    "question_answering": (QuestionAnswering(), ANSWERED, NO_ANSWERS_YET),
    "multiple_choice": (MultipleChoice(TaskOptions().choosing), CHOSEN, NO_CHOICES),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_file_without_labels_is_refused_in_a_line(name, write):
    task, labelled, others = TASKS[name]
    labelled = write(*labelled)
    assert len(load_data(DataConfig(train_file=labelled, validation_file=labelled, task=name)).train)
    assert len(task.labelled_sets(DataConfig(test_file=labelled), [], lambda columns, source: None)["test"])
    for number, path in enumerate(write(*other) for other in others):
        is_told = ".*--mode=predict" if number == 0 else ""  # Others have a column for labels, without any.
        for role in ("train_file", "validation_file", "test_file"):
            with refused(f"Received: .*{path}{is_told}"):
                load_data(DataConfig(**{"train_file": labelled, role: path}, task=name))
        for role in ("validation_file", "test_file"):
            with refused(f"Received: .*{path}"):
                task.labelled_sets(DataConfig(**{role: path}), [], lambda columns, source: None)


NO_LABELS = "id,text\n1,good\n2,bad\n3,fine\n"
IN_COLUMNS = "id,text,toxic,rude\n1,good,0,0\n2,bad,1,1\n3,odd,1,0\n4,fine,0,1\n"
MOOD = "id,text,mood\n1,good,1\n2,bad,0\n3,fine,1\n"
MANY = {"task": "multi_label_classification", "label_names": ("toxic", "rude")}
CASES = {  # The task is found from the training file, or its columns are named.
    "a number": ("text,score\na,0.5\nb,1.5\nc,2.25\n", {}),
    "a label that is asked for": (MOOD, {"label_column": "mood"}),
    "labels that are asked for": (IN_COLUMNS, {"label_column": "toxic,rude"}),
    "labels that are named": (IN_COLUMNS, MANY),
}


@pytest.mark.parametrize(("train", "given"), CASES.values(), ids=CASES)
def test_a_run_says_that_a_file_without_labels_is_for_prediction(write, train, given):
    paths = {"train_file": write("a.csv", train), "validation_file": write("unlabelled.csv", NO_LABELS)}
    with refused("Received: .*unlabelled.*--mode=predict"):
        load_data(detect_task(Config(model=SCRATCH, data=DataConfig(**paths, **given))).data)
