"""Questions with choices in the forms in which they are published; each is read exactly, or refused in one line."""

import json

import pytest

from tests.support.flag_values import SCRATCH
from tests.support.labelled import json_lines
from tests.support.refusals import refused
from tfbert import ChoosingConfig, Config, DataConfig, UsageError
from tfbert.config.tasks import TaskOptions
from tfbert.data.in_memory import given_table
from tfbert.tasks.multiple_choice import asked_of, holds_choices, open_choices, read_choices
from tfbert.tasks.registry import detect_task
from tfbert.tasks.tables import load_data

_IN_ORDER = [index % 4 for index in range(8)]


NUMBERED = [
    ("c q 1 2 3 4 label", "1 2 3 4", "0123", _IN_ORDER),
    ("0 1 2 3 4 5 label", "2 3 4 5", "0123", _IN_ORDER),  # As columns of a file without a header are called.
    ("c q A B C D label", "A B C D", "ABCD", _IN_ORDER),
    ("c q A B C D label", "D C B A", "ABCD", [3 - index for index in _IN_ORDER]),
    ("x q a b c d label", "d c b a", ["(a)", "B", "c.", "d"], [3 - index for index in _IN_ORDER]),
]


@pytest.mark.parametrize("columns, choices, shown, expected", NUMBERED)
def test_labels_that_are_numbers_count_from_0_whatever_columns_are_called(columns, choices, shown, expected, write):
    rows = [[f"c{i}", f"q{i}", *(f"{each}{i}" for each in "stuv"), shown[i % 4]] for i in range(8)]
    path = write("a.csv", "\n".join(map(",".join, [columns.split(), *rows])))
    config = DataConfig(task="multiple_choice", train_file=path, text_column=columns.split()[:2])
    options = TaskOptions(choosing=ChoosingConfig(choice_columns=tuple(choices.split())))
    assert [*load_data(config, options).train.labels] == expected


OF_HF = {"id": "1", "question": "Why?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"}
SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    '0,v,1,"He sits. He",He sits.,He,gold,"eats, a lot",runs,flies,"is ""x""",0\n1,v,1,A b,A.,b,gold,c,d,e,f,3\n'
)
HELLASWAG = {"ind": 1, "activity_label": "x", "ctx_a": "a", "ctx_b": "b", "ctx": "a b", "endings": ["e", "f", "g"]}
COPA = {"premise": "My body cast a shadow.", "choice1": "sun", "choice2": "grass", "idx": 7}


RACE_HF = {"example_id": "h", "article": "art", "answer": "C", "question": "q", "options": ["u", "v", "w"]}
DREAM_HF = {"dialogue": ["M: x", "W: y"], "question": "q", "choice": ["a", "b"], "answer": "b", "id": 0}
READ_SWAG = [("He sits.", "He", ("eats, a lot", "runs", "flies", 'is "x"'), 0), ("A.", "b", ("c", "d", "e", "f"), 3)]
OF_COPA = [COPA | {"question": "cause", "label": 0}, COPA | {"question": "effect", "label": 1}]
READ_COPA = [(COPA["premise"], "cause", ("sun", "grass"), 0), (COPA["premise"], "effect", ("sun", "grass"), 1)]
GOOD = {"context": "c", "question": "q", "choices": ["u", "v"], "label": 0}
FLAT = json_lines(GOOD | {"label": "v"}, GOOD | {"choices": ["x", "y", "z"], "label": "x"})
CELLS = 'context,question,choices,label\nc,q,"[""u"",""v""]",1\nc,,"[\'x\', \'y\', \'z\']",2\n'
OF_LETTERS = [("", "r", ("u", "v"), 0), ("", "q", ("u", "v", "w"), 2)]
TWELVE = f"question,{','.join(f'option_{i}' for i in range(1, 13))},label\nq,{','.join('abcdefghijkl')},11\n"
NUMBERS = "question,choice0,choice1,choice2,label\nq,3,7,9,7\nq,2,1,0,2\n"
FORMS = {
    "race_hf.jsonl": (json_lines(RACE_HF), [("art", "q", ("u", "v", "w"), 2)]),
    "arc_hf.jsonl": (json_lines(OF_HF), [("", "Why?", ("a", "b"), 1)]),
    "dream_hf.jsonl": (json_lines(DREAM_HF), [("M: x W: y", "q", ("a", "b"), 1)]),
    "swag.csv": (SWAG, READ_SWAG),
    "hellaswag.jsonl": (json_lines(HELLASWAG | {"label": "2"}), [("a b", "", ("e", "f", "g"), 2)]),
    "copa.jsonl": (json_lines(*OF_COPA), READ_COPA),
    "copa_tfds.jsonl": (json_lines(*({**row, "label": f"choice{row['label'] + 1}"} for row in OF_COPA)), READ_COPA),
    "cosmos.csv": ("context,question,answer0,answer1,answer2,label\nc,q,a,b,c,2\n", [("c", "q", ("a", "b", "c"), 2)]),
    "piqa.jsonl": (json_lines({"goal": "g", "sol1": "a", "sol2": "b", "label": 1}), [("", "g", ("a", "b"), 1)]),
    "letters.tsv": ("question\tA\tB\tC\tanswer\nr\tu\tv\t\tA\nq\tu\tv\tw\tC\n", OF_LETTERS),
    "flat.jsonl": (FLAT, [("c", "q", ("u", "v"), 1), ("c", "q", ("x", "y", "z"), 0)]),
    "cells.csv": (CELLS, [("c", "q", ("u", "v"), 1), ("c", "", ("x", "y", "z"), 2)]),
    "twelve.csv": (TWELVE, [("", "q", tuple("abcdefghijkl"), 11)]),
    "numbers_as_texts.csv": (NUMBERS, [("", "q", ("3", "7", "9"), 1), ("", "q", ("2", "1", "0"), 0)]),
}


def read(path, *, choice_columns=(), **options):
    return read_choices(path, DataConfig(**options), choice_columns)


def shown(examples):
    rows = zip(examples.asked, examples.labels.tolist(), strict=True)
    return [(asked.context, asked.question, asked.choices, label) for asked, label in rows]


def assert_found(path):
    """The task is seen to be this one."""
    assert holds_choices(path, DataConfig())
    assert detect_task(Config(model=SCRATCH, data=DataConfig(train_file=path))).data.task == "multiple_choice"


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_read_exactly_and_found(write, name):
    text, expected = FORMS[name]
    path = write(name, text)
    found = read(path)
    assert shown(found) == expected and not found.notes
    assert_found(path)


def test_tables(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = [GOOD, GOOD | {"label": 1}]
    frame, expected = pandas.DataFrame(rows), [("c", "q", ("u", "v"), 0), ("c", "q", ("u", "v"), 1)]
    frame.to_parquet(tmp_path / "a.parquet")
    assert shown(read(tmp_path / "a.parquet")) == expected
    for value in (rows, frame, pandas.DataFrame([json.loads(json.dumps(OF_HF))])):
        table = given_table("train", value)
        assert holds_choices(table, DataConfig())
        assert shown(read(table)) == (FORMS["arc_hf.jsonl"][1] if "answerKey" in table.columns else expected)


def test_columns_by_other_names(write):
    path = write("a.csv", "text,ask,first,second,third,right\nc,q,u,v,,B\nd,r,x,y,z,C\n")
    options = {"text_column": ("text", "ask"), "label_column": "right"}
    expected = [("c", "q", ("u", "v"), 1), ("d", "r", ("x", "y", "z"), 2)]
    assert shown(read(path, choice_columns=("first", "second", "third"), **options)) == expected
    assert not holds_choices(path, DataConfig()) and not holds_choices(path, DataConfig(**options))
    headless = write("b.csv", "q,u,v,w,x,A\n")
    columns = {"header": False, "text_column": ("0",), "label_column": "5"}
    assert shown(read(headless, choice_columns=tuple("1234"), **columns)) == [("", "q", tuple("uvwx"), 0)]


NO_LISTS = json_lines({"question": "a", "choices": "a or b", "label": "a"})
BAD_FIRST = [
    *(("a.csv", f"question,choice0,choice1,label\n{bad}\nq,u,v,1\n", "") for bad in (",u,v,0", "q,u,,0", "q,,v,0")),
    ("a.csv", "question,choice0,choice1,label\n" + "q,u,,0\n" * 30, "at least two choices"),
    ("b.jsonl", NO_LISTS, "Choices are a list of texts"),
]


@pytest.mark.parametrize("name, text, rule", BAD_FIRST)
def test_bad_rows_at_the_beginning_or_alone_do_not_hide_whose_the_file_is(write, name, text, rule):
    """Nor is it told that it has no column of texts."""
    path = write(name, text)
    assert_found(path)
    with refused(rf"{rule}.* in .*{name}, line {2 if name == 'a.csv' else 1}"):
        read(path)


OTHER_FILES = [
    ("a.csv", "text,label\na,1\nb,0\n"),
    ("a.jsonl", json_lines({"question": "q", "context": "c", "answers": {"text": ["a"], "answer_start": [0]}})),
    ("a.tsv", "question\tanswer\tlabel\na\tb\t1\n"),
    ("a.jsonl", json_lines({"text": "a", "choices": ["a", "b"], "label": "a"})),
    ("a.jsonl", json_lines({"question": "q", "passage": "p", "choices": "a or b", "label": "a"})),
    ("a.csv", "question,choices\nq,a\n"),
    ("a.json", json.dumps([[1, 2], [3, 4]])),
]


@pytest.mark.parametrize("name, text", OTHER_FILES)
def test_other_files_are_for_other_tasks(write, name, text):
    assert not holds_choices(write(name, text), DataConfig())


NAMED = {"text": ["a", "b"], "label": ["A", "B"]}
BAD = [
    (GOOD | {"choices": ["u"]}, "at least two choices"),
    (GOOD | {"choices": ["u", " "]}, "at least two choices, none of them empty"),
    (GOOD | {"choices": ["u", 3]}, "Every row needs a text, as a string"),
    (GOOD | {"choices": "u, v"}, "Choices are a list"),
    (GOOD | {"choices": NAMED | {"text": ["a"]}}, "Choices are a list"),
    (GOOD | {"choices": NAMED, "label": "C"}, "must be the name of one choice"),
    (GOOD | {"context": " ", "question": ""}, "needs a context or a question"),
    *((GOOD | {"label": label}, "needs a label") for label in (None, -1)),
    *((GOOD | {"label": label}, "number of the right choice") for label in (2, True, 0.5, "w")),
]


@pytest.mark.parametrize("row, rule", BAD)
def test_a_bad_row_is_refused_in_one_line_or_skipped_and_counted(write, row, rule):
    path = write("a.jsonl", json_lines(GOOD, GOOD, row, GOOD | {"label": 1}))
    with refused(rf"{rule}.*line 3.*skip_bad_rows"):
        read(path)
    found = read(path, skip_bad_rows=True)
    assert found.labels.tolist() == [0, 0, 1] and "1 of 4 questions skipped" in found.notes[0]


UNCLEAR = [
    ("question,choice0,choice1,label\nq,a,b,1\nq,a,b,2\n", "count from 1"),
    ("question,choice0,choice1,choice2,label\nq,1,2,0,1\nq,2,1,0,0\n", "could be read as numbers and texts"),
    ("question,choice0,choice1,label\nq,B,A,A\nr,B,A,B\n", "could be read as letters and texts"),
    ("question,choice0,choice1,label\nq,u,u,u\nr,v,w,w\n", "and most here are texts. Received: 'u' for 2"),
    ("premise,choice1,choice2,label\np,a,b,choice3\n", "number of the right choice from 0, its letter, or a text"),
    ("question,choice0,choice1,choice2,label\nq,u,,w,0\n", "none of them empty, but the last ones"),
    ("question,A,B,C,label\nq,u,v,w,C\nr,u,v,,C\n", "its letter, .* Received: 'C' for 2 choices in .*line 3"),
    ("question,context,passage,choice0,choice1,label\nq,c,p,u,v,0\n", "all look like the context"),
    ("question,context,context,choice0,choice1,label\nq,c,d,u,v,0\n", "context and context all .*: rename all but"),
    ("question,label\nq,0\n", "No column looks like the choices"),
    ("choice0,choice1,label\na,b,0\n", "No column looks like a context or a question"),
    ("question,choice0,choice1\nq,a,b\n", "needs a label"),
]


@pytest.mark.parametrize("text, rule", UNCLEAR)
def test_what_could_mean_two_things_is_refused(write, text, rule):
    with refused(rule):
        read(write("a.csv", text))


def test_a_run_reads_what_it_trains_on(write):
    rows = [GOOD | {"context": f"c{i // 3}", "choices": list("uvwxyz"[: 2 + i % 3]), "label": i % 2} for i in range(30)]
    path = write("a.jsonl", json_lines(*rows))
    data = load_data(DataConfig(train_file=path, task="multiple_choice", validation_split=0.2), TaskOptions())
    held = data.validation["validation"]
    assert len(data.train) + len(held) == 30 and len(held) == 6
    assert not {one.context for one in held.asked} & {one.context for one in data.train.asked}


def test_labels_are_not_looked_at_where_nothing_is_compared_with_them(write):
    """Not even where two columns look like them."""
    path = write("a.csv", "question,choice0,choice1,answer,target\nq,u,v,nonsense,\n")
    file, columns = open_choices(path, DataConfig(), labelled=False)
    ((_, row),) = file.read(columns.all)
    found = asked_of(dict(zip(columns.all, row, strict=True)), columns, "it", labelled=False)
    assert (found.question, found.choices, found.label) == ("q", ("u", "v"), None)
    with pytest.raises(UsageError, match="all look like the label"):
        read(path)


def test_doubts(write):
    rows = [GOOD | {"question": f"q{i}", "choices": ["u", "v", "w"], "label": 1 + i % 2} for i in range(30)]
    rows.append(GOOD | {"question": "x", "choices": ["u", "u", "v"], "label": 2})
    data = load_data(DataConfig(train_file=write("a.jsonl", json_lines(*rows)), task="multiple_choice"))
    assert any("the first choice is right in no example" in note for note in data.notes)
    assert any("1 of 31 questions have equal choices, the first in line 31" in note for note in data.notes)


def test_examples_that_differ_only_in_their_number_of_choices_are_not_the_same(write):
    one = read(write("a.jsonl", json_lines(GOOD | {"choices": ["a", "b", "q"]}, GOOD | {"choices": ["a", "b"]})))
    other = read(write("b.jsonl", json_lines(GOOD | {"choices": ["a", "b"]}, GOOD | {"choices": ["q", "a", "b"]})))
    assert one.checksum("x", 0) != other.checksum("x", 0)
    assert one.take([1]).where(0) == "line 2"
