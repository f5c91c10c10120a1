"""Questions are answered: the command's training, evaluation and prediction agree, in every format.

That a saved model is one of transformers, with its answers: tests/modes/test_load.py and test_serving_questions.py."""

import json

import numpy as np
import pytest

from tests.support.refusals import refused
from tests.support.saved_models import read_json
from tests.support.task_runs import QUESTIONS, arguments_of, command, evaluate, predict, write_tasks
from tfbert import DataConfig
from tfbert.data.in_memory import given_table
from tfbert.tasks.question_answering.question_answering import Candidates, QuestionAnswering, squad_metrics
from tfbert.tasks.question_answering.squad import read_questions
from tfbert.tasks.tables import load_data

METRICS = ("f1", "exact", "HasAns_f1", "HasAns_exact", "NoAns_f1", "NoAns_exact", "best_f1", "best_exact")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with the data and a model trained on it in `run`; and the results of the training."""
    directory = tmp_path_factory.mktemp("answering")
    write_tasks(directory)
    return directory, command(*arguments_of(directory, QUESTIONS, "run", is_small=True))


@pytest.fixture(scope="module")
def evaluated(trained):
    """The directory that `--mode=evaluate` of the saved model wrote, and what it found."""
    return trained[0] / "evaluated", evaluate(trained[0], "dev.json")


@pytest.fixture(scope="module")
def questions(trained):
    """Each question of the validation file in its order: id, question, context, texts of its answers."""
    (article,) = json.loads((trained[0] / "dev.json").read_text())["data"]
    return [
        (qa["id"], qa["question"], paragraph["context"], [answer["text"] for answer in qa["answers"]])
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


def test_evaluation_of_the_saved_model_is_that_of_training(trained, evaluated):
    _, results = trained
    directory, found = evaluated
    names = [f"eval_{name}" for name in METRICS]
    assert [found[name] for name in names] == pytest.approx([results[name] for name in names])
    assert found["eval_samples"] == found["eval_total"] == 26
    assert json.loads((directory / "eval_results.json").read_text()) == found


def test_the_files_of_an_evaluation_have_its_scores(evaluated, questions):
    directory, found = evaluated
    names = ("predictions", "nbest_predictions", "null_odds")
    predictions, best, odds = (json.loads((directory / f"eval_{name}.json").read_text()) for name in names)
    ids = [row[0] for row in questions]
    assert list(predictions) == list(best) == list(odds) == ids
    golds, answers = [row[3] for row in questions], [predictions[name] for name in ids]
    again = squad_metrics(golds, answers, np.array([odds[name] for name in ids]))
    assert {name: found[f"eval_{name}"] for name in again} == pytest.approx(again)
    for name, _, context, _ in questions:
        assert predictions[name] in context and (predictions[name] == "") == (odds[name] > 0)
        texts = [entry["text"] for entry in best[name]]
        assert len(texts) <= 21 and "" in texts
        assert sum(entry["probability"] for entry in best[name]) == pytest.approx(1)


@pytest.fixture(scope="module")
def answered(trained):
    """What prediction makes of the validation file where an answer is always given."""
    return read_json(predict(trained[0], trained[0] / "dev.json", "dev.jsonl", "--null_score_diff_threshold=1000"))


def test_predictions_are_those_of_the_evaluation(trained, evaluated):
    directory, _ = trained
    expected = json.loads((evaluated[0] / "eval_predictions.json").read_text())
    assert json.loads(predict(directory, directory / "dev.json", "out.json").read_text()) == expected


def test_rows_in_and_tables_out(trained, answered, questions, write):
    """In small chunks, with contexts that occur again, and columns of other names."""
    directory, _ = trained
    source = write("rows.jsonl", [{"idx": i, "about": row[2], "asked": row[1]} for i, row in enumerate(questions)])
    options = ("--null_score_diff_threshold=1000", "--text_column=asked,about")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfbert.tasks.question_answering.question_answering.QuestionItems.most", 7)
        found = predict(directory, source, "rows.tsv", *options).read_text().splitlines()
    assert [row["id"] for row in answered] == [row[0] for row in questions]
    assert found[0] == "id\tanswer\tstart\tend\tscore"
    cells = [line.split("\t") for line in found[1:]]
    assert [row[0] for row in cells] == [str(i) for i in range(26)]
    assert [row[1:4] for row in cells] == [[row["answer"], str(row["start"]), str(row["end"])] for row in answered]
    np.testing.assert_allclose([float(row[4]) for row in cells], [row["score"] for row in answered], atol=1e-5)


def test_an_answer_that_is_elsewhere_marks_no_other_words():
    """In a report, where `answer_start` of published data is wrong."""
    answers = [{"text": "film", "answer_start": 13}, {"text": "good", "answer_start": 13}]
    row = {"id": "q", "question": "which?", "context": "the film was good", "answers": answers}
    names = ("start_logit", "end_logit", "score", "null_start_logit", "null_end_logit", "null_score")
    place = {"row_splits": np.array([0, 1]), "char_start": np.array([0]), "char_end": np.array([3])}
    given = Candidates(**place, **dict.fromkeys(names, np.ones(1)))
    shown = QuestionAnswering().error_analysis(given, read_questions(given_table("train", [row]))).shown(0)
    marked = {part["mark"]: part["text"] for part in shown["context"] if part["mark"]}
    assert marked == {"wrong": "the", "answer": "good"} and shown["answers"] == ["film", "good"]


def test_an_answer_far_outside_its_context_is_misaligned_like_any_other(write):
    """Evaluation keeps it, also where its place is no int32; training leaves it out."""
    far = {"question": "which?", "context": "the film was good"}
    rows = [far | {"id": f"{p}", "answers": {"text": ["good"], "answer_start": [p]}} for p in (10**25, -(10**25))]
    files = {"train_file": write("train.jsonl", [FLAT, *rows]), "validation_file": write("dev.jsonl", rows)}
    data = load_data(DataConfig(task=QUESTIONS, **files))
    assert data.train.ids == ["a"] and data.train.labels.tolist() == [[4, 8]]
    (dev,) = data.validation.values()
    assert len(dev) == 2 and dev.labels.dtype == np.int32 and dev.labels.tolist() == [[17] * 2, [0] * 2]


# --- What is refused -----------------------------------------------------------------------------------------------


FLAT = {"id": "a", "question": "what?", "context": "the film", "answers": {"text": ["film"], "answer_start": [4]}}


OPTIONS = {
    "label_smoothing": (["--label_smoothing=0.1"], r"label_smoothing is for classification, multi_label.*=0\.1"),
    "packed": (["--batching=packed"], r"nothing to pack\. Received: batching='packed' for question answering"),
    "a metric": (["--metric_for_best_model=accuracy"], r"must be a metric of question answering.*f1, exact"),
    "conll": (["--input_format=conll", f"--task={QUESTIONS}"], r"come as JSON .*Received: .* as conll"),
}


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS)
def test_bad_options_of_training(trained, options, message):
    with refused(message):
        command(*arguments_of(trained[0], QUESTIONS, "never"), *options)
    assert not (trained[0] / "never" / "config.json").exists()


def test_a_threshold_of_no_answer_without_such_questions(trained):
    given = [arg for arg in arguments_of(trained[0], QUESTIONS, "never") if "version_2" not in arg]
    with refused("null_score_diff_threshold is for questions that may have no answer"):
        command(*given, "--null_score_diff_threshold=1")


USES = {
    "a format of tags": ("dev.json", "x.json", ["--output_format=conll"], r"jsonl, tsv, csv or squad\. .*'conll'"),
    "an ending": ("dev.json", "x.txt", [], r"x\.txt.* ends in \.jsonl, \.tsv, \.csv or \.json, "),
    "tags": ("dev.conll", "x.json", [], r"fit the model's task\. .*which is for token classification, and a model for"),
    "an id that is not there": ("dev.json", "x.json", ["--id_column=key"], r"id_column='key' for .*columns 'id', "),
    "a stride": ("dev.json", "x.json", ["--doc_stride=22"], "windows skip nothing"),
    "strict": ("dev.json", "x.json", ["--strict_entities"], r"strict_entities is for token_classification"),
}


@pytest.mark.parametrize(("source", "output", "options", "message"), USES.values(), ids=USES)
def test_bad_uses_of_a_model(trained, source, output, options, message):
    directory, _ = trained
    given = [f"--input_file={directory / source}", f"--output_file={directory / output}"]
    with refused(message):
        command("--mode=predict", f"--model={directory / 'run'}", *given, *options)
    assert not list(directory.glob("*x.*"))
