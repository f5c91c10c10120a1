"""Data sets of TensorFlow Datasets, of every task: small ones, prepared in its own files with published features."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.data_sets import PAIR, prepare
from tests.support.flag_values import SCRATCH
from tests.support.refusals import refused
from tests.support.saved_models import model_with
from tests.support.task_runs import CHOICES, LABELS, QUESTIONS, SENTENCES, config_of
from tfbert import AnsweringConfig, Config, DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.data.tfds_builder import open_tests
from tfbert.modes.predict import labelled_sets
from tfbert.tasks.classification.classification import read_labelled
from tfbert.tasks.registry import detect_task
from tfbert.tasks.tables import load_data

TEXT = tfds.features.Text()
LIST = tfds.features.Sequence(TEXT)
CLASS = tfds.features.ClassLabel(num_classes=2)
NER = tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-LOC", "I-LOC"]))
XYZ = tfds.features.Sequence(tfds.features.ClassLabel(names=["x", "y", "z"]))
LETTERS = tfds.features.ClassLabel(names=list("ABCDE"))
SENTENCE = {"sentence": TEXT, "label": tfds.features.ClassLabel(names=["neg", "pos"])}
SCORED = {"sentence1": TEXT, "sentence2": TEXT, "label": np.float32}
NUMBERS = {"id": TEXT, "text": TEXT, "toxicity": np.float32, "threat": np.float32}
NUMBERED = tfds.features.Sequence(np.int64)
FLAGS = {"joy": np.bool_, "anger": np.bool_, "comment_text": TEXT}
ANSWERS = tfds.features.Sequence({"text": TEXT, "answer_start": np.int32})
SQUAD = {"id": TEXT, "title": TEXT, "context": TEXT, "question": TEXT, "answers": ANSWERS}
SQUAD_2 = SQUAD | {"plausible_answers": ANSWERS, "is_impossible": np.bool_}
COSMOS = {"context": TEXT, "question": TEXT, "answer0": TEXT, "answer1": TEXT, "label": np.int64}


def answers(*pairs):
    return {"text": [text for text, _ in pairs], "answer_start": [start for _, start in pairs]}


ZOE = "Zoë lives in Rome, a city."
ASKED = [
    ("q1", "t", ZOE, "Where does Zoë live?", answers(("Rome", 13), ("in Rome", 10))),
    ("q2", "t", ZOE, "Who lives in Rome?", answers(("Zoë", 0))),
]
ASKED_2 = [(*row, answers(), False) for row in ASKED]
ASKED_2.append(("q3", "t", ZOE, "Who left?", answers(), answers(("Zoë", 0)), True))
REVIEWS = [(f"text {i} é", i % 2) for i in range(6)]
PAIRS = [("a", 0, "b", 2), ("c", 1, "d", 0)]
WORDS = [(["New", "York", "wins"], [1, 2, 0]), (["x"], [0]), ([], []), (["Naïve", "Rome"], [0, 1])]
HIDDEN = [(["who", "knows"], [-1, -1])]
RACE = [("Zoë sang.", ["q1", "q2"], [["a", "b"], ["c", "d", "e"]], ["B", "A"])]
ARC = [("1", "Why?", "C", {"label": ["A", "B", "C"], "text": ["a", "b", "c"]})]
COPA_FEATURES = {"choice1": TEXT, "choice2": TEXT, "idx": np.int32, "premise": TEXT, "question": TEXT}
COPA_FEATURES["label"] = tfds.features.ClassLabel(names=["choice1", "choice2"])
COPA = [("sun", "grass", 0, "It rained.", "effect", "choice2")]
ONE = [("c", "q", "a", "b", 1)]
OF_RACE = {"article": TEXT, "questions": LIST, "options": tfds.features.Sequence(LIST), "answers": LIST}
OF_ARC = {"id": TEXT, "question": TEXT, "answerKey": LETTERS}
OF_ARC["choices"] = tfds.features.Sequence({"label": LETTERS, "text": TEXT})
WITH_TAGS = {"tokens": LIST, "tags": NER}
MNLI = {"train": [*PAIRS, ("e", 2, "f", -1)], "validation_matched": PAIRS}
MNLI |= {"validation_mismatched": PAIRS[:1], "test_matched": PAIRS}
IDS = {"train": [("one", [0, 2]), ("two", []), ("three", [1])], "test": [("?", [-1])]}
NAMES = {"train": [("one", ["b", "a"]), ("two", []), ("three", ["c"])]}
SETS = {
    "tiny_glue": (SENTENCE, {"train": REVIEWS, "validation": REVIEWS[:2], "test": [("unknown", -1)]}),
    "mnli": (PAIR, MNLI),
    "stsb": (SCORED, {"train": [("a", "b", 2.0), ("c", "d", 4.0)], "test": [("e", "f", -1.0)] * 2}),
    "no_train": (SENTENCE, {"test": REVIEWS}),
    "no_labels": (SENTENCE, {"train": [("a", -1)]}),
    "words": ({"text": TEXT, "label": TEXT}, {"train": [("a", "yes"), ("b", "None"), ("c", "NaN"), ("d", "")]}),
    "two_texts": ({"title": TEXT, "body": TEXT, "stars": np.int64}, {"train": [("a", "b", 3), ("c", "d", -1)]}),
    "ner": (WITH_TAGS, {"train": WORDS, "dev": WORDS[:1], "test": HIDDEN}),
    "only_test": ({"tokens": LIST, "ner": NUMBERED}, {"train": WORDS, "validation": HIDDEN, "test": WORDS}),
    "two_tags": ({"words": LIST, "first": NER, "other": NER}, {"train": [(["a", "b"], [0, 1], [1, 0])]}),
    "no_tags": ({"tokens": LIST, "title": TEXT}, {"train": [(["a"], "t")]}),
    "squad1": (SQUAD, {"train": ASKED, "validation": ASKED[:1]}),
    "squad2": (SQUAD_2, {"train": ASKED_2, "validation": ASKED_2[2:]}),
    "same_ids": (SQUAD, {"train": [ASKED[0], ASKED[0]]}),
    "ids": ({"text": TEXT, "labels": XYZ}, IDS),
    "names": ({"text": TEXT, "topics": LIST}, NAMES),
    "flags": (FLAGS, {"train": [(True, False, "one"), (False, False, "two")]}),
    "numbers": (NUMBERS, {"train": [("1", "one", 1.0, 0.0), ("2", "two", 0.0, 0.0)]}),
    "tiny_race": (OF_RACE, {"train": RACE, "validation": RACE}),
    "tiny_arc": (OF_ARC, {"train": ARC, "validation": ARC}),
    "tiny_copa": (COPA_FEATURES, {"train": COPA, "validation": COPA, "test": [(*COPA[0][:5], -1)]}),
    "cosmos": (COSMOS, {"train": ONE, "validation": [(*ONE[0][:4], -1)], "test": ONE}),
    "mixed": (COSMOS, {"train": [*ONE, (*ONE[0][:4], -1)], "validation_dev": ONE}),
    "both": ({"text": TEXT, "label": CLASS} | WITH_TAGS, {"train": [("a b", 1, ["a", "b"], [0, 1])]}),
    "scored": ({"text": TEXT, "score": np.float32} | WITH_TAGS, {"train": [("a b", 1.0, ["a", "b"], [0, 1])]}),
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("tfds")
    for name, (features, splits) in SETS.items():
        prepare(path, name, features, splits)
    prepare(path, "tiny_imdb", SENTENCE, {"train": REVIEWS, "test": REVIEWS[:3]}, file_format="array_record")
    return str(path)


@pytest.fixture(scope="module")
def load(data_dir):
    @functools.cache
    def loaded(name, task="auto", **columns):
        options = TaskOptions(answering=AnsweringConfig(version_2_with_negative=name == "squad2"))
        return load_data(DataConfig(dataset=name, data_dir=data_dir, task=task, **columns), options)

    return loaded


def rows(examples):
    """Each example's texts, and its label as a number, a list or what a question's answers are."""
    if hasattr(examples, "words"):
        labels = iter(examples.labels.tolist())
        return [(tuple(words), [next(labels) for _ in words]) for words in examples.words]
    labels = examples.answers if hasattr(examples, "answers") else examples.labels.tolist()
    return [(*texts, label) for texts, label in zip(examples.contents(), labels, strict=True)]


CHOSEN = {"tiny_arc": [("", "Why?", "a", "b", "c", 2)], "cosmos": [("c", "q", "a", "b", 1)]}
CHOSEN["tiny_copa"] = [("It rained.", "effect", "sun", "grass", 1)]


SLOW, OF_FILES = pytest.mark.slow, ("tiny_arc", "tiny_copa")  # Which test_choice_files has as files.
STARS = {"text_column": ("title", "body"), "label_column": "stars"}
OTHER = {"text_column": ("words",), "label_column": "other"}
TOXIC = {"label_column": "toxicity,threat"}
TAGGED = [(tuple(words), tags) for words, tags in WORDS if words]
ANSWERED = [(row[3], ZOE, tuple(zip(row[4]["text"], row[4]["answer_start"], strict=True))) for row in ASKED]
MNLI_SETS = {"validation_matched": 2, "validation_mismatched": 1}
OF_XYZ = [("one", [1, 0, 1]), ("three", [0, 1, 0]), ("two", [0, 0, 0])]
OF_ABC = [("one", [1, 1, 0]), ("three", [0, 0, 1]), ("two", [0, 0, 0])]


READ = [
    ("tiny_glue", "auto", {}, ("neg", "pos"), REVIEWS, {"validation": 2}),
    ("mnli:1.0.0", "auto", {}, ("0", "1", "2"), [("a", "b", 2), ("c", "d", 0)], MNLI_SETS),
    ("words", "auto", {}, ("None", "yes"), [("a", 1), ("b", 0)], {}),
    ("stsb", "auto", {}, (), [("a", "b", 2.0), ("c", "d", 4.0)], {}),
    ("tiny_imdb", "auto", {}, ("neg", "pos"), REVIEWS, {"test": 3}),
    ("two_texts", "auto", STARS, ("-1", "3"), [("a", "b", 1), ("c", "d", 0)], {}),
    ("ner", SENTENCES, {}, ("O", "B-LOC", "I-LOC"), TAGGED, {"validation": 1}),
    ("only_test", SENTENCES, {}, ("0", "1", "2"), TAGGED, {"test": 3}),
    ("two_tags", SENTENCES, OTHER, ("O", "B-LOC"), [(("a", "b"), [1, 0])], {}),
    ("ids", LABELS, {}, ("x", "y", "z"), OF_XYZ, {}),
    pytest.param("names", LABELS, {}, ("a", "b", "c"), OF_ABC, {}, marks=SLOW),
    ("flags", LABELS, {}, ("anger", "joy"), [("one", [0, 1]), ("two", [0, 0])], {}),
    ("numbers", LABELS, TOXIC, ("toxicity", "threat"), [("one", [1, 0]), ("two", [0, 0])], {}),
    ("squad1", QUESTIONS, {}, (), ANSWERED, {"validation": 1}),
    *(pytest.param(name, CHOICES, {}, (), CHOSEN[name], {"validation": 1}, marks=SLOW) for name in OF_FILES),
    ("mixed", CHOICES, {}, (), CHOSEN["cosmos"], {"validation_dev": 1}),
    ("cosmos", CHOICES, {}, (), CHOSEN["cosmos"], {"test": 1}),  # The labels of `validation` are held back.
]


@pytest.mark.parametrize("name, task, columns, names, train, others", READ)
def test_features_of_every_kind(load, name, task, columns, names, train, others):
    data = load(name, task, **columns)
    assert (data.task.label_names, sorted(rows(data.train)), data.test) == (names, sorted(train), None)
    assert {name: len(part) for name, part in data.validation.items()} == others
    own = name.partition(":")[0]
    assert f"{name} is {own}/1.0.0 of TensorFlow Datasets" in data.notes
    assert data.train.where(0).startswith("example ") and data.train.name == f"{name} 'train'"
    if "test" in others and task != CHOICES:
        assert f"{name} has no validation split: evaluating on 'test'" in data.notes
    if not others:
        assert any("nothing is evaluated during training" in note for note in data.notes)


LEFT_OUT = [
    ("mnli", "auto", {}, "mnli 'train': 1 unlabelled example left out"),
    ("words", "auto", {}, "words 'train': 2 unlabelled examples left out"),
    ("ner", SENTENCES, {}, "ner 'train': 1 empty sentence left out"),
    ("mixed", CHOICES, {}, "mixed 'train': 1 unlabelled question left out"),
    ("same_ids", QUESTIONS, {"skip_bad_rows": True}, "same_ids 'train': 1 of 2 questions skipped; the first: "),
]


@pytest.mark.parametrize("name, task, options, note", LEFT_OUT)
def test_rows_that_are_left_out_are_counted(load, name, task, options, note):
    assert any(line.startswith(note) for line in load(name, task, **options).notes)


def test_questions_without_an_answer(load):
    data = load("squad2", QUESTIONS)
    assert rows(data.validation["validation"]) == [("Who left?", ZOE, ())] and len(data.train) == 3


def test_without_the_training_data(data_dir):
    tables = read_labelled(DataConfig(dataset="mnli", data_dir=data_dir), ())
    assert {table.label_names for table in tables.values()} == {("0", "1", "2")}
    assert {name: len(table) for name, table in tables.items()} == {"eval_matched": 2, "eval_mismatched": 1}
    assert len(read_labelled(DataConfig(dataset="no_train", data_dir=data_dir), ())["eval"]) == 6
    with refused("Evaluation needs labels. Received: dataset='no_labels'"):
        read_labelled(DataConfig(dataset="no_labels", data_dir=data_dir), ())


def test_classes_have_the_names_of_the_data_set(data_dir):
    config = DataConfig(dataset="tiny_glue", data_dir=data_dir)
    with refused(r"'(neg|pos)' in tiny_glue.* into id2label of its config.json"):
        labelled_sets(config, model_with(("0", "1")))
    config = dataclasses.replace(config, label_names=("neg", "pos"))
    assert sorted(labelled_sets(config, model_with(("neg", "pos")))["eval"].labels) == [0, 1]
    with refused("names of label_names.* Received: '(neg|pos)' in tiny_glue"):
        labelled_sets(dataclasses.replace(config, label_names=("bad", "good")), model_with(("bad", "good")))
    assert load_data(config).task.label_names == ("neg", "pos")


def test_test_splits_row_by_row(data_dir):
    (file,) = open_tests("mnli", data_dir).values()
    assert (file.name, file.columns) == ("mnli 'test_matched'", ["premise", "hypothesis", "idx"])
    assert sorted(tuple(row) for _, row in file.read(file.columns)) == [("a", "b", 0), ("c", "d", 1)]
    with refused("needs a test split and the feature idx. Received: dataset='tiny_glue'"):
        open_tests("tiny_glue", data_dir)


BAD = [
    ("nr", "auto", {}, r"TensorFlow Datasets name\. Received: dataset='nr'.*Check the name"),
    ("what even: is/this", "auto", {}, r"TensorFlow Datasets name\. Received: dataset='what even: is/this'"),
    ("no_train", "auto", {}, r"needs a train split with labels\. Received: dataset='no_train' with splits test"),
    ("no_labels", "auto", {}, r"needs a train split with labels\. Received: dataset='no_labels'"),
    ("two_texts", "auto", {}, r"like the text\. Received: two_texts 'train' with columns 'body', 'stars', 'title'"),
    ("mnli", "auto", {"text_column": ("body",)}, r"text_column='body' is not in .*'hypothesis', 'idx', 'label'"),
    ("two_texts", "auto", {"text_column": ("stars",), "label_column": "body"}, r"for 'stars' in .*, example 1"),
    ("no_tags", SENTENCES, {}, r"the tags: each row needs a list\. Received: no_tags 'train' with columns 'tokens'\."),
    ("two_tags", SENTENCES, OTHER | {"text_column": ("first",)}, r"Words must be a list of strings .*first=\["),
    ("mnli", QUESTIONS, {}, r"No column looks like the question\. Received: mnli 'train' with .*'hypothesis'"),
    ("same_ids", QUESTIONS, {}, r"a unique id\. Received: .* in same_ids 'train', example 2 \(id 'q1'\)\. "),
    ("numbers", LABELS, {}, r"looks like the labels. Received: numbers 'train' with"),
    ("tiny_race", CHOICES, {}, r"Choices are a list of texts, .* example 1\. .*other_formats"),
]


@pytest.mark.parametrize("name, task, options, message", BAD)
def test_bad_data_sets(load, name, task, options, message):
    with refused(message):
        load(name, task, **options)


def test_some_questions_need_an_option(data_dir):
    with refused(r"need version_2_with_negative\. .* 1 of 3 questions of squad2 'train'"):
        load_data(DataConfig(dataset="squad2", data_dir=data_dir, task=QUESTIONS))


DECIDED = [
    ("squad1", {}, QUESTIONS),
    ("ner", {}, SENTENCES),
    ("two_tags", {"label_column": "other"}, SENTENCES),
    ("two_tags", {}, "auto"),  # Which of them are the tags?
    ("two_tags", {"text_column": ("first",), "label_column": "other"}, "auto"),  # Classes are no words.
    ("no_tags", {}, "auto"),
    ("no_such_name", {}, "auto"),
    *((name, {}, CHOICES) for name in CHOSEN),
    *((name, {}, LABELS) for name in ("ids", "names", "flags")),
    ("numbers", {"label_column": "toxicity,threat"}, LABELS),
    # These hold texts with a label, whatever else they hold.
    ("mnli", {}, "auto"),
    ("both", {}, "auto"),
    ("scored", {}, "auto"),
    ("both", {"text_column": ("tokens",), "label_column": "tags"}, SENTENCES),
]


@pytest.mark.parametrize("name, columns, task", DECIDED)
def test_the_features_decide_the_task(data_dir, name, columns, task):
    data = DataConfig(dataset=name, data_dir=data_dir, **columns)
    assert detect_task(Config(model=SCRATCH, data=data)).data.task == task


def test_auto_trains_that_task_and_what_the_user_asks_for_stays(data_dir):
    assert detect_task(config_of("--dataset=squad1", f"--data_dir={data_dir}")).data.task == QUESTIONS
    given = [f"--data_dir={data_dir}", "--task=classification"]
    assert detect_task(config_of("--dataset=squad1", *given)).data.task == "classification"
    assert detect_task(config_of()).data.task == detect_task(config_of("--dataset=demo")).data.task == "auto"
