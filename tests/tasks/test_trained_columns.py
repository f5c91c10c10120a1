"""A saved model reads the columns that it was trained on where data has them, and says so where it reads others."""

import collections
import dataclasses
import json
import pathlib
import re

import pytest

from tests.support.saved_models import model_with
from tfbert import BertConfig, ChoosingConfig, Config, DataConfig, ModelConfig, PredictConfig, UsageError
from tfbert.config.tasks import TaskOptions
from tfbert.config.types import Recorded
from tfbert.data.files import about_columns, find_columns, in_data
from tfbert.data.reading import OpenFile
from tfbert.model.files import record_inputs
from tfbert.modes.load import as_saved, saved_task
from tfbert.tasks.multiple_choice import ChoiceItems
from tfbert.tasks.registry import entry_of
from tfbert.tasks.tables import load_data
from tfbert.tasks.text_task import TextItems
from tfbert.tasks.token_classification.tagged import read_sentences

ANSWERS = {"text": ["Ella"], "answer_start": [0]}
HEADLINE_AND_MOOD, OTHER_TEXT = {"text_column": ("headline",), "label_column": "mood"}, {"text": "no"}
TAGGED = {"tokens": ["no", "no"], "tags": ["O", "O"], "types": ["B-X", "O"]}
ASKED = {"question": "no?", "context": "no", "passage": "Ella sang", "gold": ANSWERS}
CHOICES = {"question": "no?", "x": "Ella", "y": "Ada", "choices": ["no", "nor"], "label": 1}
ROWS = {  # Other columns have the usual names.
    "texts": lambda i: OTHER_TEXT | {"headline": f"good {i}", "label": "ab"[i % 2], "mood": "ba"[i % 2]},
    "scores": lambda i: OTHER_TEXT | {"headline": f"good {i}", "label": i, "mood": i / 2},
    "pairs": lambda i: {"sentence1": "x", "sentence2": "y", "a": f"one {i}", "b": f"two {i}", "label": "ab"[i % 2]},
    "several labels": lambda i: OTHER_TEXT | {"headline": f"good {i}", "labels": ["a"], "topics": ["b", "c"][i % 2 :]},
    "words": lambda i: TAGGED | {"forms": ["Ella", f"s{i}"]},
    "questions": lambda i: ASKED | {"id": f"{i}", "q": f"who {i}?"},
    "choices": lambda i: CHOICES | {"ask": f"who {i}?", "right": i % 2},
}
TOLD = {  # The task, and what training is told.
    "texts": ("classification", HEADLINE_AND_MOOD),
    "scores": ("regression", HEADLINE_AND_MOOD),
    "pairs": ("classification", {"text_column": ("a", "b")}),
    "several labels": ("multi_label_classification", HEADLINE_AND_MOOD | {"label_column": "topics"}),
    "words": ("token_classification", {"text_column": ("forms",), "label_column": "types"}),
    "questions": ("question_answering", {"text_column": ("q", "passage"), "label_column": "gold"}),
    "choices": ("multiple_choice", {"text_column": ("ask",), "label_column": "right", "choice_columns": ("x", "y")}),
}
CASES = {name: (task, [ROWS[name](i) for i in range(4)], columns) for name, (task, columns) in TOLD.items()}


def model_of(path):
    """The directory of the model, beside all files of a test."""
    return pathlib.Path(path).parent / "model"


def trained(path, task, columns):
    """Saves the configuration that a run on a file saves; returns what it was trained on."""
    choosing = ChoosingConfig(choice_columns=columns.get("choice_columns", ()))
    asked = {option: value for option, value in columns.items() if option != "choice_columns"}
    data = load_data(DataConfig(train_file=path, task=task, **asked), TaskOptions(choosing=choosing))
    names = data.task.label_names or ["x"]
    config = BertConfig(architectures=[f"BertFor{data.task.head().kind}"], id2label=dict(enumerate(names)))
    config.problem_type = {"multi_label_classification": task, "regression": task}.get(task)
    record_inputs(config, num_texts=data.train.num_texts, max_seq_length=16, columns=data.columns, **data.task.notes())
    config.save_pretrained(model_of(path))
    for name in ("model.safetensors", "vocab.txt"):  # Nothing here reads them.
        (model_of(path) / name).touch()
    return data


def evaluated(path, **options):
    """What an evaluation reads, and what it says about columns."""
    data, notes = DataConfig(test_file=path, **options), []
    config = as_saved(Config(mode="evaluate", model=ModelConfig(model_name_or_path=str(model_of(path))), data=data))
    found = saved_task(config).labelled_sets(config.data, notes, lambda columns, source: None)["test"]
    return found, [note for note in notes if "reading" in note]


def predicted(path, **options):
    """What a prediction reads: the columns, and what is said about them."""
    asked = PredictConfig(input_file=path, output_file=f"{path}.predicted.jsonl")
    model = ModelConfig(model_name_or_path=str(model_of(path)))
    config = as_saved(Config(mode="predict", model=model, predict=asked, data=DataConfig(**options)))
    (job,) = entry_of(saved_task(config).name).open_jobs(config)
    asked = {"text_column": config.data.text_column, "choice_columns": config.choosing.choice_columns}
    return dict(job.columns), about_columns(job.name, job.columns, asked)


def in_tuples(columns):
    return {option: (value,) if isinstance(value, str) else value for option, value in columns.items()}


@pytest.mark.parametrize(("task", "rows", "columns"), CASES.values(), ids=CASES)
def test_the_columns_of_training_are_read_again(task, rows, columns, write):
    path = write("train.jsonl", rows)
    data, expected = trained(path, task, columns), in_tuples(columns)
    assert dict(data.columns) == {"label_column": ("label",)} | expected
    found, (line,) = evaluated(path)
    assert list(found.contents()) == list(data.train.contents()) and found.labels.tolist() == data.train.labels.tolist()
    assert line.endswith(", as in training")
    assert all(repr(name) in line for names in expected.values() for name in names)
    columns, (line,) = predicted(path)
    assert columns.pop("label_column", ()) == ()
    assert columns == {option: names for option, names in data.columns.items() if option != "label_column"}
    assert line.endswith(", as in training")


FOUND = {  # What training finds by name, and columns of other sets with more usual names.
    "classification": (lambda i: {"comment": f"good {i}", "target": "ab"[i % 2]}, {"text": "no", "label": "a"}),
    "multi_label_classification": (lambda i: {"text": f"good {i}", "category": ["a", "b"][i % 2 :]}, {"labels": ["a"]}),
    "token_classification": (lambda i: {"words": ["Ella", f"s{i}"], "tags": ["B-X", "O"]}, TAGGED),
    "multiple_choice": (lambda i: {"goal": f"who {i}?", "choices": ["x", "y"], "answer": i % 2}, {"label": 0}),
    "choices": (lambda i: {"goal": f"who {i}?", "ending0": "x", "ending1": "y", "answer": i % 2}, {"choices": ["no"]}),
}


@pytest.mark.parametrize("task", FOUND)
def test_other_sets_of_a_run_are_read_by_the_columns_of_its_training_data(task, write):
    row, others = FOUND[task]
    task = {"choices": "multiple_choice"}.get(task, task)
    more = write("more.jsonl", [row(i) | {name: others[name] for name in others.keys() - row(i)} for i in range(4)])
    path = write("train.jsonl", [row(i) for i in range(4)])
    data = load_data(DataConfig(train_file=path, validation_file=more, task=task))
    found = data.validation["validation"]
    assert list(found.contents()) == list(data.train.contents()) and found.labels.tolist() == data.train.labels.tolist()


@pytest.mark.parametrize("asked, found", [({}, "'text' and 'label'"), ({"text_column": ("text",)}, "'label'")])
def test_training_says_which_columns_it_found(asked, found, write):
    path = write("train.jsonl", [ROWS["texts"](i) for i in range(4)])
    assert f"{path}: reading {found}, found by name" in load_data(DataConfig(train_file=path, **asked)).notes
    named = load_data(DataConfig(train_file=path, label_column="label", text_column=("text",)))
    assert not any("reading" in note for note in named.notes)


def test_what_a_user_names_counts_and_what_is_not_there_is_said(write):
    task, rows, columns = CASES["texts"]
    trained(write("train.jsonl", rows), task, columns)
    named, said = evaluated(write("a.jsonl", rows), text_column=("text",), label_column="label")
    assert (list(named.contents())[0], said) == (("no",), [])
    asked = {"text_column": ("text",)}
    assert predicted(write("b.jsonl", rows), **asked) == (asked, [])
    # One of the two is named: the other is that of training.
    _, (line,) = evaluated(write("c.jsonl", rows), text_column=("text",))
    assert line.endswith("c.jsonl: reading 'mood', as in training")
    # Without the columns of training, others are found by name, and the log says so.
    others = [{"text": "yes", "label": row["label"], "page": 3} for row in rows]
    found, (line,) = evaluated(write("d.jsonl", others))
    assert list(found.contents())[0] == ("yes",)
    missing = "the model was trained on 'headline' and 'mood', which are not there"
    assert line.startswith("warning: ") and line.endswith(f"reading 'text' and 'label'; {missing}")
    _, (line,) = predicted(write("e.jsonl", others))
    assert line.endswith("reading 'text'; the model was trained on 'headline', which is not there")
    assert predicted(write("f.txt", "a text\n")) == ({}, []), "there is nothing to choose"
    # Another case, and blanks around a name, are the same name.
    capitals = [{" Headline": "HEAD", "Mood": row["mood"], "text": "no", "label": "a"} for row in rows]
    found, (line,) = evaluated(write("g.jsonl", capitals))
    assert list(found.contents())[0] == ("HEAD",) and line.endswith("reading ' Headline' and 'Mood', as in training")
    # Several columns look like the text: training decides.
    many = [{"text": "no", "sentence": "nor", "review": "neither", "headline": "HEAD"} for _ in rows]
    assert predicted(write("h.jsonl", many))[0] == {"text_column": ("headline",)}


def test_a_model_that_does_not_say_is_read_as_before(write):
    task, rows, columns = CASES["texts"]
    path = write("train.jsonl", rows)
    trained(path, task, columns)
    file = model_of(path) / "config.json"
    config = json.loads(file.read_text())
    del config["tfbert"]["columns"]
    file.write_text(json.dumps(config))
    _, (line,) = evaluated(write("a.jsonl", rows), label_column="mood")
    assert line.endswith("a.jsonl: reading 'text', found by name")
    config["tfbert"]["columns"] = {"text_column": 3}
    file.write_text(json.dumps(config))
    with pytest.raises(UsageError, match="config.json must give tfbert as an object with .*columns"):
        evaluated(write("b.jsonl", rows))


def test_conll_files_have_the_columns_that_training_was_told(write):
    path = write("train.conll", 3 * "1\tElla\tNNP\tB-X\n2\tsang\tVBD\tO\n\n")
    told = {"text_column": ("1",), "label_column": "2"}
    assert dict(trained(path, "token_classification", told).columns) == in_tuples(told)
    found, (line,) = evaluated(path)
    assert found.words[0] == ["Ella", "sang"] and line.endswith("reading '1' and '2', as in training")
    assert predicted(path)[0]["text_column"] == ("1",)
    # What was found depends on how many columns there are.
    plain = read_sentences(write("plain.conll", "Ella NNP B-X\nsang VBD O\n"))
    assert dict(plain.columns) == {"text_column": (), "label_column": ()}
    (line,) = predicted(write("d.conll", "Ella\n\nsang\n"))[1]
    assert line.endswith("the usual columns; the model was trained on '1', which is not there, or holds something else")


OTHER_LAYOUTS = [
    ({"text_column": ("1",)}, "Ella B-X\nsang O\n\n"),
    ({"text_column": ("1",), "label_column": "3"}, "Ella B-X\nsang O\n\n"),
    ({"text_column": ("1",), "label_column": "3"}, "Ella x B-X\nsang y O\n\n"),
    ({"text_column": ("1",), "label_column": "2"}, "Ella 1 NNP\nsang 2 VBD\n\n"),
]


@pytest.mark.parametrize("told, row", OTHER_LAYOUTS)
def test_conll_files_of_another_layout_are_read_by_themselves(write, told, row):
    trained(write("train.conll", "1 Ella NNP B-X\n2 sang VBD O\n\n" * 3), "token_classification", told)
    found, (line,) = evaluated(write("a.conll", 3 * row))
    assert found.words[0] == ["Ella", "sang"]
    assert line.startswith("warning: ") and "reading the usual columns; the model was trained on '1'" in line
    # What a user names is never left aside.
    with pytest.raises(UsageError, match="Received: text_column='9'"):
        evaluated(write("b.conll", 3 * row), text_column=("9",))


def test_words_to_predict_in_another_layout_are_read_by_themselves(write):
    rows = 3 * "1 Ella NNP B-X\n2 sang VBD O\n\n"
    trained(write("train.conll", rows), "token_classification", {"text_column": ("1",)})
    for row in ("Ella B-X\nsang O\n\n", "Ella 1\nsang 2\n\n"):
        columns, (line,) = predicted(write(f"{row[5]}.conll", 3 * row))
        assert not any(columns.values()) and "was trained on '1', which is not there, or holds something else" in line
    rule = "The words are in the column that --text_column names, .* where column 1 cannot hold the words"
    with pytest.raises(UsageError, match=rule):
        predicted(write("d.conll", 3 * "Ella B-X\nsang O\n\n"), text_column=("1",))


OF_ONE = {name: case for name, case in CASES.items() if name != "several labels"}


@pytest.mark.parametrize(("task", "rows", "columns"), OF_ONE.values(), ids=OF_ONE)
def test_a_file_without_any_of_the_columns_says_what_the_model_was_trained_on(task, rows, columns, write):
    trained(write("train.jsonl", rows), task, columns)
    path = write("a.jsonl", [{"one": "x", "two": "y"}] * 3)
    names = " and ".join(repr(name) for name in columns["text_column"])
    for read in (evaluated, predicted):
        with pytest.raises(UsageError, match=f"Received: .*'one', 'two'. Training reads {names}") as error:
            read(path)
        assert not re.search(r"Received: \w+_column=", str(error.value))


def test_names_of_columns_by_users_and_by_models():
    columns = ["a", "B", "text"]
    model = (Recorded("A"), Recorded("b"))
    assert in_data(model, columns) == ("a", "B") and in_data(model, ["a", "text"]) == ()
    assert in_data(("x",), columns) == ("x",) and in_data((), columns) == () and in_data(("",), ["", "a"]) == ()
    assert in_data((Recorded("a"),), ["A", "a"]) == ("a",), "the same name comes first"
    for own, asked, said in (
        (columns, "x", "text_column='x' is not in the data"),
        (["a", "a", "text"], Recorded("a"), "'a' is in the data twice.*Training reads 'a'. Columns of one"),
    ):
        with pytest.raises(UsageError, match=said):
            find_columns(OpenFile(name="f", columns=own, read=iter), (asked,), columns=own, require_label=False)
    data = dataclasses.replace(DataConfig(text_column=model, label_column=Recorded("l")), max_seq_length=9)
    assert all(isinstance(name, Recorded) for name in (*data.text_column, data.label_column))


INPUTS = [
    (("headline",), {"headline": "good", "text": "no", "id": 3}, ("good",)),
    (("headline",), {"text": "good"}, ("good",)),
    (("text",), {"text": "good", "label": 1}, ("good",)),
    (("a", "b"), {"a": "one", "b": "two", "text": "no"}, ("one", "two")),
    (("a", "b"), {"text": "one", "text_pair": "two"}, ("one", "two")),
    (("a", "b"), collections.namedtuple("Row", "b a")("two", "one"), ("one", "two")),
    (("a", "b"), collections.namedtuple("Pair", "premise hypothesis")("one", "two"), ("one", "two")),
]


@pytest.mark.parametrize("columns, row, expected", INPUTS)
def test_a_row_is_an_input_of_a_loaded_model(columns, row, expected):
    named = {"text_column": columns, "label_column": ["label"]}
    model = dataclasses.replace(model_with(["a", "b"], num_texts=len(columns)), columns=named)
    assert tuple(TextItems(model).item(row, "it").texts) == expected
    with pytest.raises(UsageError, match="A text has the key 'text'"):
        TextItems(model).item({"title": "good", "id": 3}, "it")


def test_rows_of_choices_are_inputs_of_a_loaded_model(monkeypatch):
    monkeypatch.setattr(ChoiceItems, "checked", lambda self, asked, where: asked)  # There is no tokenizer.
    named = {"text_column": ["story", "ask"], "choice_columns": ["x", "y", "z"]}
    inputs = ChoiceItems(dataclasses.replace(model_with(["a", "b"]), columns=named))
    found = inputs.item({"story": "s", "ask": "q?", "x": "1", "y": "2", "z": "", "choices": ["no", "nor"]}, "it")
    assert (found.context, found.question, found.choices) == ("s", "q?", ("1", "2"))
    assert inputs.item({"question": "q?", "choices": ["1", "2"]}, "it").choices == ("1", "2")
