"""docs/other_formats.md: each piece of code writes a file that is read, of one that is not."""

import json
import pathlib
import pickle
import re

import pytest
import tensorflow_datasets as tfds

from tests.support.data_sets import prepare
from tests.support.refusals import refused
from tfbert import DataConfig
from tfbert.data.files import read_file
from tfbert.tasks.multi_label.table import SetReader
from tfbert.tasks.multiple_choice import read_choices
from tfbert.tasks.question_answering import squad
from tfbert.tasks.token_classification.tagged import in_usual_form, read_sentences

pandas = pytest.importorskip("pandas")
PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "other_formats.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
CORPUS = "A corpus of TensorFlow Datasets"


def tagged(path):
    table = in_usual_form(read_sentences(path, DataConfig()), [])
    pairs = (zip(words, tags, strict=True) for words, tags in zip(table.words, table.tags, strict=True))
    return [" ".join(map("/".join, own)) for own in pairs]


def texts(path):
    table = read_file(path)
    return list(zip(table.text, table.labels, strict=True))


def chosen(path):
    found = read_choices(path, DataConfig())
    rows = zip(found.asked, found.labels.tolist(), strict=True)
    return [(one.context, one.question, one.choices, label) for one, label in rows]


def labelled(path):
    return SetReader(DataConfig(), "")(path, DataConfig()).labels


def answers(path):
    table = squad.read_questions(path)
    return list(zip(table.ids, table.answers, strict=True))


OSLO = {"text": "oslo", "char_spans": [[14, 17]], "token_spans": [[3, 3]]}
ASKED = {"qid": "q1", "question": "Where?", "answers": ["Oslo", "the capital"], "detected_answers": [OSLO]}
MRQA = {"id": "", "context": "Zoë  lives in Oslo.", "qas": [ASKED]}
OF_SQUAD = {"id": "q1", "question": "Who?", "answers": [{"text": "Zoë", "answer_start": 0}]}
TWO = ["Ann/B-PER Lee/I-PER left/O", "Oslo/B-LOC"]
FRAME = pandas.DataFrame({"text": ["a", "b"], "label": ["x", "y"]})
FORMS = {  # What the old file holds, what reads the new one, and what it then is.
    "Other endings": {"old.pkl": pickle.dumps(FRAME), "data.parquet": (texts, [("a", "x"), ("b", "y")])},
    "Other encodings, and Excel's first line": {
        "old.csv": "sep=,\ntext,label\na,x\nb,y\n".encode("utf-16"),
        "data.csv": (texts, [("a", "x"), ("b", "y")]),
    },
    "Lines of fastText": {
        "old.txt": "__label__2 Great CD: my Pat\n__label__1 a 'bad' one\n",
        "data.tsv": (texts, [("Great CD: my Pat", "2"), ("a 'bad' one", "1")]),
    },
    "Spans of characters": {
        "old.jsonl": '{"text": "Ann Lee left. Oslo", "label": [[0, 7, "PER"], [14, 18, "LOC"]]}',
        "data.jsonl": (tagged, ["Ann/B-PER Lee/I-PER left/O ./O Oslo/B-LOC"]),
    },
    "Entity tags that are written otherwise": {
        "old.conll": "Ann X B_PER\nLee X I_PER\nleft X O\n\nOslo X LOC-b\n",
        "data.conll": (tagged, TWO),
    },
    "Words that start with a hash": {
        "old.conll": "-DOCSTART- O\n\n#Oslo HT\nnow RB\n\nleft VB\n",
        "data.jsonl": (tagged, ["#Oslo/HT now/RB", "left/VB"]),
    },
    "One word per row": {
        "old.csv": "Sentence #,Word,POS,Tag\n1,Ann,X,B-PER\n,Lee,X,I-PER\n,left,X,O\n2,Oslo,X,B-LOC\n1,Rome,X,B-LOC\n",
        "data.jsonl": (tagged, [*TWO, "Rome/B-LOC"]),
    },
    "Words without blank lines between sentences": {
        "old.conll": "1\tAnn\tB-PER\n1\tLee\tI-PER\n1\tleft\tO\n2\tOslo\tB-LOC\n",
        "data.jsonl": (tagged, TWO),
    },
    "Words in a .csv with blank lines between sentences": {
        "old.csv": "word,tag\nAnn,B-PER\nLee,I-PER\nleft,O\n\nOslo,B-LOC\n",
        "data.jsonl": (tagged, TWO),
    },
    "Texts with a tag for each word": {
        "old.csv": "text,labels\nfly to Oslo,O O B-city\nBoston please,B-city O\n",
        "data.jsonl": (tagged, ["fly/O to/O Oslo/B-city", "Boston/B-city please/O"]),
    },
    "JSON that is not a list of objects": {
        "old.json": '{"columns": ["text", "label"], "index": [0, 1], "data": [["a", "x"], ["b", "y"]]}',
        "data.jsonl": (texts, [("a", "x"), ("b", "y")]),
    },
    "JSON that is one text of more than 1 GiB": {
        "old.json": '{"data": [{"text": "a", "label": "x"},\n {"text": "b", "label": "y"}\n]}',
        "data.jsonl": (texts, [("a", "x"), ("b", "y")]),
    },
    "Annotations of Prodigy that were rejected": {
        "old.jsonl": '{"text": "a", "label": "x", "answer": "accept"}\n{"text": "b", "answer": "reject"}\n',
        "data.jsonl": (texts, [("a", "x")]),
    },
    "Choices: dialogues of DREAM": {
        "old.json": '[[["M: a", "W: b"], [{"question": "q", "choice": ["u", "v"], "answer": "v"}], "5-1"]]',
        "data.jsonl": (chosen, [("M: a W: b", "q", ("u", "v"), 1)]),
    },
    "Choices: articles of RACE": {
        "old.jsonl": '{"id": "h1", "article": "x", "questions": ["q"], "options": [["u", "v"]], "answers": ["B"]}',
        "data.jsonl": (chosen, [("x", "q", ("u", "v"), 1)]),
    },
    "Choices: keys inside of a question": {
        "old.jsonl": '{"question": {"stem": "q", "choice_A": "u", "choice_B": "v"}, "answerKey": "B"}\n'
        '{"answerKey": "2", "question": {"stem": "r", "choices": [{"text": "a", "label": "1"}, '
        '{"text": "b", "label": "2"}]}}',
        "data.jsonl": (chosen, [("", "q", ("u", "v"), 1), ("", "r", ("a", "b"), 1)]),
    },
    "Choices: questions of COPA as sentences": {
        "old.jsonl": '{"premise": "p", "choice1": "u", "choice2": "v", "question": "effect", "label": 0}',
        "data.jsonl": (chosen, [("p", "What happened as a result?", ("u", "v"), 0)]),
    },
    "Several labels: sets and tuples as text": {
        "old.csv": "text,labels\np,\"{'b', 'a'}\"\nq,set()\nr,\"('b',)\"\ns,\"('b', 'a')\"\n",
        "data.csv": (labelled, [("a", "b"), (), ("b",), ("b", "a")]),
    },
    "Questions: lines of MRQA": {
        "old.jsonl.gz": json.dumps({"header": {"dataset": "x"}}) + "\n" + json.dumps(MRQA) + "\n",
        "data.jsonl": (answers, [("q1", (("Oslo", 14), ("the capital", -1)))]),
    },
    "Questions: paragraphs of SQuAD without articles": {
        "old.json": json.dumps([{"context": MRQA["context"], "qas": [OF_SQUAD]}]),
        "data.json": (answers, [("q1", (("Zoë", 0),))]),
    },
}


SAID = {  # Instead of the page's name.
    "Other encodings, and Excel's first line": "line 1 is as in UTF-16 or UTF-32. Convert it with iconv -f UTF-16",
    "Words without blank lines between sentences": "column 0 cannot hold the words: 0: '1', '2'; 1: 'Ann', 'Lee'",
    "JSON that is one text of more than 1 GiB": "in old.json, line 1 .*Convert it to JSON lines",
}


@pytest.mark.parametrize("heading", FORMS)
def test_code_of_the_page_writes_what_is_read(heading, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (old, content), (new, (read, expected)) = FORMS[heading].items()
    write(old, content)
    if "is read as it is" not in PAGE.partition(f"## {heading}")[2].partition("```")[0]:
        with refused(SAID.get(heading, "docs/other_formats")):
            read(pathlib.Path(old))
    exec(SECTIONS[heading], {})
    assert read(pathlib.Path(new)) == expected


def test_a_corpus_of_a_data_set_becomes_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, "named", {"text": tfds.features.Text()}, {"train": [["Zoë"], ["left"]]})
    exec(SECTIONS[CORPUS].replace('"wiki40b/en"', '"named", data_dir="."'), {})
    lines = pathlib.Path("corpus.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["text"] for line in lines) == ["Zoë", "left"]


def test_each_heading_has_code():
    assert list(SECTIONS) == re.findall("^## (.*)", PAGE, re.MULTILINE)
    assert {*SECTIONS} == {*FORMS, CORPUS}
