"""Files of questions: SQuAD's own JSON, rows, answers that are not at answer_start, and what is refused in one line."""

import dataclasses
import io
import json
import pathlib

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support.refusals import refused
from tests.support.saved_models import model_with
from tfbert import Config, DataConfig, ModelConfig, PredictConfig, UsageError
from tfbert.data.reading import BadRows
from tfbert.data.rows import file_format
from tfbert.tasks.question_answering.question_answering import QuestionAnswering, QuestionItems, open_question_files
from tfbert.tasks.question_answering.squad import holds_questions, open_questions, read_questions, training_questions

SQUAD = pathlib.Path(__file__).parents[4] / "shared" / "data" / "squad"
CONTEXT = "Zoë 😀 lives in Oslo. Ben lives in Rome, not in Oslo."


def question(id, question="Where?", answers=(("Oslo", 15),), **more):
    return {"id": id, "question": question, "answers": [{"text": t, "answer_start": s} for t, s in answers], **more}


def nested(*paragraphs, **more):
    """One article; each paragraph a context and its questions."""
    paragraphs = [{"context": context, "qas": questions} for context, questions in paragraphs]
    return {"version": "1.1", "data": [{"title": "T", "paragraphs": paragraphs}], **more}


NESTED = nested(
    (CONTEXT, [question("a"), question("b", "Where is Ben?", [("Rome", 34), ("in Rome", 31)])]),
    ("Other words.", [question("c", "Which?", [("Other", 0)])]),
)
FLAT = [
    {"id": "a", "question": "Where?", "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [15]}},
    question("b", "Where is Ben?", [("Rome", 34), ("in Rome", 31)], context=CONTEXT),
    question("c", "Which?", [("Other", 0)], context="Other words."),
]


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def check(table):
    assert table.ids == ["a", "b", "c"] and len(table) == 3
    assert table.questions == ["Where?", "Where is Ben?", "Which?"]
    assert table.contexts == [CONTEXT, "Other words."]
    assert table.context_of.dtype == np.int32 and table.context_of.tolist() == [0, 0, 1]
    assert table.answers == [(("Oslo", 15),), (("Rome", 34), ("in Rome", 31)), (("Other", 0),)]
    assert table.notes == () and training_questions(table, []) is table


FILES = {
    "nested": ("a.json", json.dumps(NESTED)),
    "of many lines": ("a.json", json.dumps(NESTED, indent=1)),
    "of another name, gzip, BOM": ("a.jsonl.gz", "\ufeff" + json.dumps(NESTED, indent=2)),
    "lines": ("a.jsonl", lines(FLAT)),
    "rows in data": ("a.json", json.dumps({"version": 1, "data": FLAT})),
    "rows in a list": ("a.json", "[\n" + ",\n".join(map(json.dumps, FLAT)) + "\n]\n"),
}


@pytest.mark.parametrize(("name", "content"), FILES.values(), ids=FILES)
def test_every_form_is_the_same_table(write, name, content):
    path = write(name, content)
    check(read_questions(path))
    assert holds_questions(pathlib.Path(path))


@pytest.mark.parametrize("as_list", [False, True])
def test_parquet(tmp_path, as_list):
    (article,) = NESTED["data"]
    lists = [qa["answers"] for paragraph in article["paragraphs"] for qa in paragraph["qas"]]
    columns = [{name: [answer[name] for answer in own] for name in ("text", "answer_start")} for own in lists]
    rows = [row | {"answers": own} for row, own in zip(FLAT, lists if as_list else columns, strict=True)]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    table = read_questions(path)
    check(table)
    assert table.where(1) == "row 2" and holds_questions(path)


def test_where_and_take(write):
    table = read_questions(write("a.json", json.dumps(NESTED)))
    assert table.where(2) == "question 3"
    taken = table.take([2, 0, 2])
    assert (taken.ids, taken.contexts) == (["c", "a", "c"], [CONTEXT, "Other words."])
    assert [taken.context(row) for row in range(3)] == ["Other words.", CONTEXT, "Other words."]
    alone = table.take([2])
    assert (alone.contexts, alone.context_of.tolist(), alone.answers) == (["Other words."], [0], [(("Other", 0),)])
    assert alone.where(0) == table.where(2)
    assert read_questions(write("b.jsonl", "\n" + lines(FLAT))).where(1) == "line 3"


def test_other_columns_and_numbers_as_ids(write):
    rows = [{"id": i, "Q": row["question"], "C": row["context"], "gold": row["answers"]} for i, row in enumerate(FLAT)]
    table = read_questions(write("a.jsonl", lines(rows)), DataConfig(text_column=("Q", "C"), label_column="gold"))
    assert table.ids == ["0", "1", "2"] and table.contexts == [CONTEXT, "Other words."]
    with pytest.raises(UsageError, match="No column looks like the question.*'Q', 'C'"):
        read_questions(write("a.jsonl", lines(rows)))
    with pytest.raises(UsageError, match="two text columns.*Received: text_column='Q'"):
        read_questions(write("a.jsonl", lines(rows)), DataConfig(text_column=("Q",)))
    with pytest.raises(UsageError, match="no columns to choose.*label_column='gold'"):
        read_questions(write("a.json", json.dumps(NESTED)), DataConfig(label_column="gold"))


def test_standard_input():
    check(read_questions(io.BytesIO(json.dumps(NESTED, indent=3).encode())))
    check(read_questions(io.BytesIO(lines(FLAT).encode()), DataConfig(input_format="jsonl")))


# --- Questions without an answer -----------------------------------------------------------------------------------

ASKED_OF_NOTHING = [question("b", answers=(), is_impossible=True), question("c", "?", ())]


def test_questions_without_an_answer(write):
    path = write("a.json", json.dumps(nested((CONTEXT, [question("a", is_impossible=False), *ASKED_OF_NOTHING]))))
    with pytest.raises(UsageError, match=r"need version_2_with_negative\. Received: 2 of 3 .*the first with id 'b'"):
        read_questions(path)
    table = read_questions(path, version_2_with_negative=True)
    assert table.answers == [(("Oslo", 15),), (), ()]
    assert training_questions(table, []) is table


def test_answers_that_are_not_known(write):
    path = write("a.jsonl", lines([{key: row[key] for key in ("id", "question", "context")} for row in FLAT]))
    with pytest.raises(UsageError, match=r"needs 'answers'.* no 'answers' in .*line 1 \(id 'a'\)"):
        read_questions(path)
    assert not holds_questions(pathlib.Path(path))


# --- Answers that are elsewhere ------------------------------------------------------------------------------------

QUESTIONS = [
    question("right"),
    question("late", answers=[("Oslo", 44)]),  # At 15 and at 47.
    question("one of two", answers=[("Rome", 0), ("Rome", 34)]),
    question("nowhere", answers=[("Paris", 15)]),
    question("negative", answers=[("Oslo.", -5)]),  # As Python counts from the end, it would be right.
    question("beyond", answers=[("Rome", 10**9)]),
    question("none", answers=(), is_impossible=True),
]


def test_an_answer_elsewhere_is_counted_and_evaluated_but_not_trained_on(write):
    path = write("a.json", json.dumps(nested((CONTEXT, QUESTIONS))))
    table = read_questions(path, version_2_with_negative=True)
    expected = "5 of 7 answers are not in their context at answer_start: ids 'late', 'one of two', 'nowhere', "
    assert len(table) == 7 and table.notes == (f"{path}: {expected}'negative', 'beyond'",)
    notes = []
    sound = training_questions(table, notes)
    assert sound.ids == ["right", "one of two", "none"]
    assert sound.answers == [(("Oslo", 15),), (("Rome", 34),), ()]
    assert notes == [
        f"{path}: 5 answers that are not at answer_start are left out of training; "
        "questions left out because no answer remains: 4 of 7"
    ]
    twice = [question(f"{number}", answers=[("Paris", 0), ("Rome", 0)]) for number in range(8)]
    table = read_questions(write("b.json", json.dumps(nested((CONTEXT, twice)))))
    (note,) = table.notes
    assert "16 of 16 answers" in note and note.endswith(": ids '0', '1', '2', '3', '4' and 3 more")
    with pytest.raises(UsageError, match=r"none of 8 questions has one\. Repair the file: answer_start = "):
        training_questions(table, [])


# --- Bad input -----------------------------------------------------------------------------------------------------


def changed(**more):
    """A nested file whose second question is another."""
    bad = {key: value for key, value in (question("b") | more).items() if value is not ...}
    return nested((CONTEXT, [question("a"), bad]))


BAD = {
    "no id": (changed(id=...), "needs an id.*none in .*json, question 2"),
    "an empty id": (changed(id=""), "needs an id"),
    "an odd id": (changed(id=["b"]), r"needs an id.*id=\['b'\]"),
    "an id twice": (changed(id="a"), r"a unique id.*question 2 \(id 'a'\)"),
    "no question": (changed(question=...), r"needs a text.*none for 'question' in .*\(id 'b'\)"),
    "an empty question": (changed(question=" \n"), "A question must not be empty"),
    "a number": (changed(question=3), "needs a text.*3 for 'question'"),
    "half a pair": (changed(question="\ud83d?"), "valid Unicode"),
    "no answers": (changed(answers=...), "needs 'answers'"),
    "one text": (changed(answers="Oslo"), r"a list of objects.*text='Oslo', .* in .*question 2 \(id 'b'\)"),
    "texts": (changed(answers=["Oslo"]), "a list of objects"),
    "not as long": (changed(answers={"text": ["Oslo"], "answer_start": []}), "equally long.*answer_start=None"),
    "no start": (changed(answers=[{"text": "Oslo"}]), "with 'text', .*and 'answer_start', .*answer_start=None"),
    "no text": (changed(answers=[{"answer_start": 3}]), "text=None, answer_start=3"),
    "an empty text": (changed(answers=[{"text": "", "answer_start": 3}]), "an empty list.*text=''"),
    "a start in words": (changed(answers=[{"text": "Oslo", "answer_start": "15"}]), "whole number.*answer_start='15'"),
    "a fraction": (changed(answers=[{"text": "Oslo", "answer_start": 15.5}]), "whole number.*15.5"),
    "both": (changed(is_impossible=True), "true must have no answers.*is_impossible=True with 1 answer"),
    "neither": (changed(is_impossible="no"), "true or false.*'no'"),
    "no object": (nested((CONTEXT, [question("a"), "b"])), "every question is an object.*'b' in .*question 2"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_question_is_an_error_or_skipped_and_counted(write, content, message):
    path = write("a.json", json.dumps(content))
    with refused(rf"{message}.* Or pass --skip_bad_rows\.$") as error:
        read_questions(path)
    assert "Received: " in str(error.value)
    assert holds_questions(pathlib.Path(path)), "it can be for no other task"
    table = read_questions(path, DataConfig(skip_bad_rows=True))
    assert table.ids == ["a"]
    (note,) = table.notes
    assert note.startswith(f"{path}: 1 of 2 questions skipped; the first: ") and "\n" not in note


PARTS = {
    "no paragraphs": ({"title": "T"}, "every article is an object with a list 'paragraphs'.*'title': .*article 2"),
    "no questions": ({"paragraphs": [{"context": "a"}]}, "with a list 'qas'.*'context': .*article 2, paragraph 1"),
    "another type": ({"paragraphs": "a"}, "{'paragraphs': 'a'} in .*article 2"),
    "no context": ({"paragraphs": [{"qas": [question("z")]}]}, "none for 'context' in .*question 4"),
    "an empty context": ({"paragraphs": [{"context": "", "qas": [question("z")]}]}, "A context must not be empty"),
    "no article": (3, "every article is an object.*3 in .*article 2"),
}


@pytest.mark.parametrize(("article", "message"), PARTS.values(), ids=PARTS)
def test_a_bad_part_of_a_nested_file(write, article, message):
    path = write("a.json", json.dumps(NESTED | {"data": [*NESTED["data"], article]}))
    with pytest.raises(UsageError, match=message):
        read_questions(path)
    assert read_questions(path, DataConfig(skip_bad_rows=True)).ids == ["a", "b", "c"]


NO_FILES = {
    "not JSON": ("a.json", "question,context\na,b\n", "which is not JSON"),
    "half of it": ("a.json", json.dumps(NESTED)[:200], "which is not JSON"),
    "too deep": ("a.json", "[" * 100_000, "nested too deeply"),
    "another object": ("a.json", json.dumps({"dat": [1]}, indent=1), "'data' is a list of articles.*'dat'"),
    "a number": ("a.json", "3", "'data' is a list of articles"),
    "empty": ("a.json", "", "at least one example.*empty"),
    "no articles": ("a.json", '{"data": []}', "at least one example"),
    "a table": ("a.tsv", "question\tcontext\n", r"come as JSON .*a\.tsv' as tsv"),
    "MRQA": ("a.jsonl", [{"header": {}}, {"context": "c", "qas": []}], "the question.*for another form, docs/other"),
}


@pytest.mark.parametrize(("name", "content", "message"), NO_FILES.values(), ids=NO_FILES)
def test_a_file_that_cannot_be_read(write, name, content, message):
    with refused(message):
        read_questions(write(name, content))


def test_what_is_no_squad(write, tmp_path):
    assert not holds_questions(pathlib.Path(write("a.jsonl", '{"text": "a", "label": 1}\n')))
    assert not holds_questions(pathlib.Path(write("a.tsv", "question\tcontext\tanswers\n")))
    assert not holds_questions(pathlib.Path(write("a.json", "{")))
    assert not holds_questions(tmp_path / "none.json")
    for format, expected in (("squad", True), ("jsonl", False)):
        assert holds_questions(tmp_path / "none.json", DataConfig(input_format=format)) == expected, "as it is told"
    assert not holds_questions(tmp_path / "none.parquet")
    assert not holds_questions(tmp_path / "none.txt")


# --- Questions to be answered --------------------------------------------------------------------------------------


def asked(source, **options):
    file = open_questions(source, DataConfig(**options))
    wanted = [column for column in ("id", "question", "context") if column in file.columns]
    return [(line, str(row) if isinstance(row, UsageError) else row) for line, row in file.read(wanted)]


def test_questions_of_every_form(write):
    expected = [[row["id"], row["question"], row["context"]] for row in FLAT]
    table = "id\tcontext\tquestion\n" + "".join(f"{i}\t{c}\t{q}\n" for i, q, c in expected)
    for name, content in [("a.json", json.dumps(NESTED)), ("b.jsonl.gz", lines(FLAT)), ("c.tsv", table)]:
        rows = asked(pathlib.Path(write(name, content)))
        assert [row for _, row in rows] == expected
    assert [line for line, _ in rows] == [2, 3, 4]
    assert asked(io.BytesIO(table.encode()), input_format="tsv") == rows
    bare = table.split("\n", 1)[1].encode()
    file = open_questions(io.BytesIO(bare), DataConfig(input_format="tsv", header=False, text_column=("2", "1")))
    assert [row for _, row in file.read(["0", "2", "1"])] == expected


def items_of(path, bad_rows, output_file="out.jsonl"):
    """The names of the items that a model is asked."""
    asked = PredictConfig(input_file=path, output_file=output_file)
    model = dataclasses.replace(model_with(["a", "b"], num_texts=2), task=QuestionAnswering())
    (job,) = open_question_files(Config(mode="predict", model=ModelConfig(model_name_or_path="m"), predict=asked))
    return [item.name for item in job.items(QuestionItems(model), bad_rows)]


def test_questions_that_cannot_be_answered(write):
    """They are left out, or end the reading, and say where they are."""
    rows = [FLAT[0], FLAT[1] | {"context": " "}, FLAT[2] | {"question": ""}, FLAT[2]]
    path, skipping = write("a.jsonl", lines(rows)), BadRows(True)
    assert items_of(path, skipping) == [FLAT[0]["id"], FLAT[2]["id"]] and skipping.count == 2
    with pytest.raises(UsageError, match=r"A context must not be empty\..*a\.jsonl, line 2\. .*--skip_bad_rows"):
        items_of(path, BadRows(False))
    with pytest.raises(UsageError, match=r"A question must not be empty\..*a\.json, question 2\."):
        items_of(write("a.json", json.dumps(changed(question=""))), BadRows(False))


def test_a_repeated_id_is_a_bad_row_of_squads_form(write):
    rows, skipping = [FLAT[0] | {"id": own_id} for own_id in (1, "1", "b", "b", "c")], BadRows(True)
    path = write("a.jsonl", lines(rows))
    with pytest.raises(UsageError, match=r"unique id\. Received: '1' a second time in .*line 2.*--skip_bad_rows"):
        items_of(path, BadRows(False), "out.json")
    assert items_of(path, skipping, "out.json") == [1, "b", "c"] and skipping.count == 2


def test_questions_need_their_columns(write):
    with pytest.raises(UsageError, match="No column looks like the question.*Pass --text_column"):
        items_of(write("a.csv", "id,text\n1,a\n"), BadRows(False))


PUBLISHED = [
    ("new_wiki", 7938, 1581, 22794, 0),
    ("amazon", 9885, 2050, 27318, 0),
    ("xquad_en", 1190, 240, 1190, 0),
    ("dev_v2", 4065, 429, 6085, 2155),
]


@pytest.mark.skipif(not SQUAD.exists(), reason="needs SQuAD beside the checkout")
@pytest.mark.parametrize(("name", "questions", "contexts", "answers", "impossible"), PUBLISHED)
def test_published_files(name, questions, contexts, answers, impossible):
    path = SQUAD / f"{name}.json"
    table = read_questions(path, version_2_with_negative=impossible > 0)
    found = (len(table), len(table.contexts), sum(map(len, table.answers)), table.answers.count(()))
    assert found == (questions, contexts, answers, impossible)
    assert table.notes == () and holds_questions(path) and file_format(path) == "jsonl"
    assert [row[0] for _, row in open_questions(path, DataConfig()).read(["id"])] == table.ids
