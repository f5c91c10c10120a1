"""Tables with one word per row: in every format, with the sentence named on each row or on its first one."""

import json
import pathlib

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.refusals import refused
from tests.support.saved_models import read_json
from tests.support.served import random_model, save
from tests.support.task_runs import SENTENCES, command, config_of, write_tasks
from tfbert.config.data import DataConfig
from tfbert.errors import UsageError
from tfbert.modes.predict import labelled_sets
from tfbert.tasks.registry import detect_task
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.tagged import holds_tags, holds_word_rows, open_sentences, read_sentences

WORDS, TAGS = [["Ann", "left", "."], ["Oslo", "1,000"]], [["B-PER", "O", "O"], ["B-LOC", "O"]]
FLAT = [(word, tag) for words, tags in zip(WORDS, TAGS, strict=True) for word, tag in zip(words, tags, strict=True)]


def columns(names, ids):
    """A table: sentence, word, tag and, where there is a fourth name, a part of speech."""
    rows = zip(ids, *zip(*FLAT, strict=True), ["X"] * len(FLAT), strict=True)
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=False))


KAGGLE = columns(["Sentence #", "Word", "Tag", "POS"], ["Sentence: 1", None, None, "Sentence: 2", None])
SIMPLE = columns(["sentence_id", "words", "labels"], [0, 0, 0, 1, 1])
FRAME = columns(["sentence_idx", "token", "ner_tag"], [1.0, float("nan"), None, 2.0, None])
TABLES = {"kaggle": KAGGLE, "simple": SIMPLE, "frame": FRAME}


def delimited(table, separator):
    def cell(value):
        text = "" if value is None or value != value else str(value)
        return f'"{text}"' if separator in text else text

    rows = [table, *zip(*table.values(), strict=True)]
    return "".join(separator.join(map(cell, row)) + "\n" for row in rows)


def written(directory, kind, table):
    path = directory / f"a.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.table(table), path)
    elif kind in ("csv", "tsv"):
        path.write_text(delimited(table, "," if kind == "csv" else "\t"))
    else:
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        path.write_text(json.dumps(rows) if kind == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_forms_of_one_table(kind, table, tmp_path):
    path = written(tmp_path, kind, table)
    assert holds_tags(path) and detect_task(config_of(f"--train_file={path}")).data.task == SENTENCES
    found = read_sentences(path)
    first = 2 if kind in ("csv", "tsv") else 1
    assert (found.words, found.tags, list(found.lines)) == (WORDS, TAGS, [first, first + 3])
    assert found.where_word(1, 1).endswith(f" {first + 4}") and "each row holds a word" in found.notes[0]
    file = open_sentences(path)
    assert file.id_column == next(iter(table)) and not file.has_tags
    assert [sentence.words for sentence in file.read([file.id_column])] == WORDS


def test_columns_that_are_named(tmp_path):
    path = written(tmp_path, "csv", KAGGLE)
    options = DataConfig(text_column=("Word",), label_column="POS")
    assert holds_tags(path, options) and read_sentences(path, options).tags == [["X"] * 3, ["X"] * 2]
    path = written(tmp_path, "csv", columns(["sent_id", "surface", "gold"], [1, 1, 1, 2, 2]))
    assert not holds_tags(path)
    options = DataConfig(text_column=("surface",), label_column="gold")
    assert holds_tags(path, options) and read_sentences(path, options).tags == TAGS
    semicolons = tmp_path / "b.csv"
    semicolons.write_text(delimited(SIMPLE, ";"))
    assert not holds_tags(semicolons) and holds_tags(semicolons, DataConfig(delimiter=";"))
    assert read_sentences(semicolons, DataConfig(delimiter=";")).words == WORDS
    with (tmp_path / "a.csv").open("wb") as file:
        file.write(delimited(SIMPLE, ",").encode())
    with (tmp_path / "a.csv").open("rb") as stream:
        assert read_sentences(stream, DataConfig(input_format="csv")).words == WORDS


HEAD = "sentence_id,word,tag\n"
ORDERS = {
    "a blank row between": ("1,a,O\n,b,B-X\n,,\n,c,O\n2,d,O\n", "ab c d"),
    "the same name after it": ("1,a,O\n,,\n1,b,O\n", "a b"),
    "no name at the start": (",a,O\n,b,O\n2,c,O\n", "ab c"),
}


@pytest.mark.parametrize(("content", "words"), ORDERS.values(), ids=ORDERS)
def test_where_sentences_begin(content, words, write):
    assert read_sentences(write("a.csv", HEAD + content)).words == [list(own) for own in words.split()]


BAD = {
    "shuffled": ("1,a,O\n1,b,O\n2,c,O\n1,d,O\n", "in rows that follow one another.*sentence_id='1' again in .*line 6"),
    "two in turns": ("1,a,O\n1,b,O\n2,c,O\n1,d,O\n2,e,O\n", "sentence_id='1' again in .*line 6"),
    "numbers anew in each document": ("1,a,O\n2,c,O\n3,d,O\n1,e,O\n", "of its own: docs/other_formats.md"),
    "no word": ("1,a,O\n1,,O\n", "must not be blank.*column 'word' of .*line 4"),
    "no tag": ("1,a,O\n1,b,\n", "needs a tag.*line 4"),
    "a column more": ("1,a,O\n1,b,O,O\n", "must have 3 columns.*line 4"),
    "other bytes": (b"1,a,O\n1,\xc5l,O\n", "must be UTF-8. Received: byte 0xc5 in .*line 4"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_row_is_a_bad_sentence(content, message, write):
    content = content if isinstance(content, bytes) else content.encode()
    path = write("a.csv", f"{HEAD}0,x,O\n".encode() + content)
    with refused(message + r".*--skip_bad_rows\.$"):
        read_sentences(path)
    table = read_sentences(path, DataConfig(skip_bad_rows=True))
    assert table.words[0] == ["x"] and "sentences skipped" in table.notes[-1]


OTHERS = {
    "texts with ids": "sentence_id,text,label\n1,good film,1\n1,bad film,0\n",
    "phrases": "PhraseId,SentenceId,Phrase,Sentiment\n1,1,A film of,1\n2,1,A,2\n",
    "a word each": "sentence_id,word,label\n1,good,1\n2,bad,0\n",
    "no sentences": "word,tag\nAnn,B-PER\nleft,O\n",
    "a sentence and a label": "sentence,label\ngood,1\n,0\n",
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_other_tables_are_not_taken_for_words(content, write):
    path = pathlib.Path(write("a.csv", content))
    assert not holds_tags(path) and not holds_word_rows(path, DataConfig())
    assert detect_task(config_of(f"--train_file={path}")).data.task == "auto"


def test_a_classifier_of_single_words_is_warned_of(write):
    path = write("a.csv", "Word,Tag\nAnn,B-PER\nleft,O\n.,O\nOslo,B-LOC\n")
    config = DataConfig(train_file=path, text_column=("Word",), label_column="Tag")
    (note,) = (note for note in load_data(config).notes if "entity tags" in note)
    assert note.startswith("warning: ") and "sentence_id" in note


def test_training_evaluation_and_prediction(tmp_path):
    """The words and tags are the same as from CoNLL, and so are predictions, by sentence."""
    write_tasks(tmp_path)
    dev = read_sentences(tmp_path / "dev.conll")
    lines = ["Sentence #,Word,POS,Tag"]
    for number, (words, tags) in enumerate(zip(dev.words, dev.tags, strict=True), start=1):
        for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
            lines.append(f"{f'Sentence: {number}' if not place else ''},{word},X,{tag}")
    (tmp_path / "dev.csv").write_text("\n".join(lines) + "\n")
    table, file = (
        load_data(DataConfig(task=SENTENCES, train_file=str(tmp_path / f"dev.{x}"))) for x in ("csv", "conll")
    )
    assert table.train.words == file.train.words and table.train.labels.tolist() == file.train.labels.tolist()
    own = random_model(table.task, num_texts=1, max_seq_length=16)
    files = {f"{role}_file": str(tmp_path / f"dev.{x}") for role, x in (("validation", "csv"), ("test", "conll"))}
    evaluated = labelled_sets(DataConfig(**files), own)
    assert evaluated["eval"].words == evaluated["test"].words == dev.words
    assert evaluated["eval"].labels.tolist() == evaluated["test"].labels.tolist() == table.train.labels.tolist()
    save(own, tmp_path / "run")
    model = f"--model={tmp_path / 'run'}"
    for source, name in (("dev.csv", "a.jsonl"), ("dev.conll", "b.jsonl")):
        command("--mode=predict", model, f"--input_file={tmp_path / source}", f"--output_file={tmp_path / name}")
    rows, others = read_json(tmp_path / "a.jsonl"), read_json(tmp_path / "b.jsonl")
    assert [row.pop("id") for row in rows] == [f"Sentence: {number}" for number in range(1, len(dev) + 1)]
    assert [row.pop("id") for row in others] == list(range(len(dev))) and rows == others
    with pytest.raises(UsageError, match="the input with one more column.*which is a table with one word per row"):
        command(
            "--mode=predict", model, f"--input_file={tmp_path / 'dev.csv'}", f"--output_file={tmp_path / 'a.conll'}"
        )
