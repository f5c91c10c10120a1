"""Files and directories as they are found: formats, columns, bad rows, delimiters, other programs' files, pipes."""

import bz2
import csv
import gzip
import io
import itertools
import json
import os
import pathlib
import sys
import threading

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support.flag_values import SCRATCH
from tests.support.labelled import json_lines, tsv
from tests.support.refusals import refused
from tfbert import Config, DataConfig, ModelConfig, PredictConfig, UsageError
from tfbert.data import rows
from tfbert.data.files import read_file
from tfbert.data.reading import ROWS, WORDS, lines_of
from tfbert.data.rows import file_format, input_source, open_rows
from tfbert.tasks.classification.classification import read_labelled
from tfbert.tasks.question_answering.squad import holds_questions
from tfbert.tasks.registry import detect_task
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.tagged import read_sentences

STS = [f'main-captions\tMSRvid\t2012test\t{i:04}\t{i % 26 / 5:.3f}\tA "plane {i}.\tA plane is {i}.' for i in range(40)]


def detected(path):
    """What a run on a file reads, with the task that it is for."""
    return detect_task(Config(model=SCRATCH, data=DataConfig(train_file=str(path)))).data


def rows_in(source, format, *columns):
    return [row for _, row in open_rows(source, format).read(columns)]


def delimited(rows, **options):
    """Rows as the csv module writes them."""
    file = io.StringIO()
    csv.writer(file, **options).writerows(rows)
    return file.getvalue()


# --- Parsing -------------------------------------------------------------------------------------------------------


ALIKE = [
    ("a.tsv", "text\tid\tlabel\ngood film\t7\t1\n\nnaïve\t8\t0\n"),
    ("a.tsv.gz", "text\tid\tlabel\ngood film\t7\t1\n\nnaïve\t8\t0\n"),
    ("a.TSV", "\ufefftext\tid\tlabel\r\ngood film\t7\t1\r\n  \r\nnaïve\t8\t 0 "),
    ("a.csv", 'label,"text"\n1,good film\n\n0,"naïve"\n'),
    ("a.csv.gz", "\ufefflabel,text\r\n1,good film\r\n\r\n0,naïve"),
    ("a.jsonl", '{"text": "good film", "label": 1}\n\n{"label": "0", "text": "na\\u00efve"}\n'),
    ("a.json", '{"text": "good film", "label": 1}\n\n{"text": "naïve", "label": 0}'),
    ("b.json", '\ufeff[{"text": "good film", "label": 1},\n {"text": "naïve", "label": 0}]'),
    ("a.jsonl.gz", '\ufeff{"text": "good film", "label": "1"}\r\n\r\n{"text": "naïve", "label": 0}\r\n'),
]


@pytest.mark.parametrize(("name", "content"), ALIKE)
def test_formats_give_the_same_table(write, name, content):
    table = read_file(write(name, content))
    assert (table.text, table.text_pair, table.labels) == (["good film", "naïve"], None, ["1", "0"])
    place = {"a.jsonl": "line 3", "a.json": "line 3", "a.jsonl.gz": "line 3", "b.json": "record 2"}.get(name, "line 4")
    assert table.where(1) == f"{table.name}, {place}"
    format = {"tsv": "tsv", "csv": "csv"}.get(name[2:5].lower(), "jsonl")
    for source in (io.BytesIO(content.encode()), write("rows.data", content)):
        other = read_file(source, DataConfig(input_format=format))
        assert (other.text, other.labels) == (table.text, table.labels)


TEXT_TYPES = [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int8(), "string")]


@pytest.mark.parametrize("text_type", TEXT_TYPES)
@pytest.mark.parametrize("labels", [[1, 0], [1.0, 0.5], [True, False], ["x", "y"]])
def test_parquet(tmp_path, text_type, labels):
    path = tmp_path / "a.parquet"
    text = pyarrow.array(["good", "bad"]).cast(text_type)
    parquet.write_table(pyarrow.table({"text": text, "more": [1, 2], "label": labels}), path, row_group_size=1)
    table = read_file(path)
    assert (table.text, table.where(1)) == (["good", "bad"], f"{path}, row 2")
    assert table.labels == [str(label).lower() for label in labels]


def test_tsv_text_is_taken_as_it_stands(write):
    texts = ['"quoted', 'in "the" middle', "a\u2028b\u2029c\x85d\x0be\x0cf\rg", "comma, here", "", "  spaces  "]
    table = read_file(write("a.tsv", tsv(*(f"{text}\t1" for text in texts))))
    assert (table.text, [*table.lines]) == (texts, [2, 3, 4, 5, 6, 7])


def test_csv_quotes(write):
    path = write("a.csv", 'text,label\n"two\nlines, and ""quotes""",1\nplain,0\n"three\r\nlines\n",2\nlast,3\n')
    table, texts = read_file(path), ['two\nlines, and "quotes"', "plain", "three\r\nlines\n", "last"]
    assert (table.text, [*table.lines]) == (texts, [2, 4, 5, 8])


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_texts_of_megabytes(write, name):
    text = "long " * 500_000
    content = json_lines({"text": text, "label": 1}) if name == "a.jsonl" else f"text\tlabel\n{text}\t1\n"
    assert read_file(write(name, content.replace("\t", ",") if name == "a.csv" else content)).text == [text]


HEADERS = [
    ("label\tsentence", ("sentence",), "label"),  # SST-2's train.tsv
    ("label\tcontent", ("content",), "label"),  # and its dev.tsv
    ("index\tsentence1\tsentence2\tlabel", ("sentence1", "sentence2"), "label"),
    ("index\tquestion\tsentence\tlabel", ("question", "sentence"), "label"),
    ("gold_label\tlabel1\tsentence2\tsentence1", ("sentence1", "sentence2"), "gold_label"),
    ("hypothesis\tpremise\tclass", ("premise", "hypothesis"), "class"),
    ("id\tquestion1\tquestion2\tis_duplicate", ("question1", "question2"), "is_duplicate"),
    ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", ("#1 String", "#2 String"), "Quality"),
    ("id\tlabel\trating\tscore\tText", ("Text",), "label"),
    ("sentence1\tsentence2\tscore", ("sentence1", "sentence2"), "score"),
    ("text\ttext_pair\tlabel", ("text", "text_pair"), "label"),
]


@pytest.mark.parametrize(("header", "texts", "label"), HEADERS)
def test_columns_are_found_by_name(write, header, texts, label):
    table = read_file(write("a.tsv", f"{header}\n" + "\t".join(f"a {column}" for column in header.split("\t")) + "\n"))
    assert table.text_columns == texts
    found = [table.text, *([table.text_pair] if table.text_pair else []), table.labels]
    assert found == [[f"a {column}"] for column in (*texts, label)]


def test_columns_by_choice(write):
    path = write("a.csv", "text,b,label,stars\none,two,x,5\n")
    table = read_file(path, DataConfig(text_column=("b", "text"), label_column="stars"))
    assert (table.text, table.text_pair, table.labels) == (["two"], ["one"], ["5"])


ONE, SKIPPED = tsv("x\t1"), {"skip_bad_rows": True}
HEADLESS = {"text_column": ("2",), "label_column": "1", "header": False}
SEMICOLON, NO_ROW = {"delimiter": ";"}, ".* none that can be used; the first: .*"
SPANS = '{"text": "Ann left", "entities": [{"label": "PER", "start_offset": 0, "end_offset": 3}]}'
BAD_FILES = {
    "empty": ("a.tsv", "", {}, r"at least one example\. Received: '.*a\.tsv', empty"),
    "empty json": ("a.jsonl", "\n", {}, r"at least one example"),
    "only a header": ("a.tsv", "text\tlabel\n", {}, r"at least one example.*with none"),
    "blank lines alone in TSV": ("a.tsv", "\n \n", HEADLESS, "at least one example"),
    "blank lines alone in CSV": ("a.csv", "\n \n", HEADLESS, "at least one example"),
    "no such columns": ("a.tsv", "foo\tbar\nx\t1\n", {}, r"like the text.*'foo', 'bar'.*--text_column.*--noheader"),
    "no label column": ("a.tsv", "text\tid\nx\t1\n", {}, r"like the label\. Received: .*'text', 'id'.*--label_column"),
    "two texts": ("a.tsv", "text\treview\tlabel\nx\ty\t1\n", {}, r"text and review all look like the text.*--text"),
    "ambiguous label": ("a.tsv", "text\tclass\tscore\nx\ty\t1\n", {}, r"class and score all look like the label.*--la"),
    "absent text column": ("a.tsv", ONE, {"text_column": ("body",)}, r"text_column='body' is not in .*'text', 'label'"),
    "absent label column": ("a.tsv", ONE, {"label_column": "y"}, r"label_column='y' is not in .*'text', 'label'"),
    "text is the label": ("a.tsv", ONE, {"text_column": ("label",), "label_column": "label"}, "different columns"),
    "json without header": ("a.jsonl", "{}", HEADLESS, r"Only \.tsv and \.csv.*--noheader"),
    "too few cells": ("a.tsv", tsv("x\t1", "y"), {}, r"must have 2 columns.*Received: 1 in .*a\.tsv, line 3"),
    "too many csv cells": ("a.csv", 'text,label\n"a\nb",1\nc, d,1\n', {}, r"Received: 3 in .*a\.csv, line 4"),
    "quote in the middle": ("a.csv", 'text,label\n"x" y,1\n', {}, r"RFC 4180.*line 2"),
    "NaN label": ("a.jsonl", '{"text": "x", "label": NaN}', {}, r"needs a label.*line 1"),
    "list label": ("a.jsonl", '{"text": "x", "label": [1]}', {}, r"a word, a number.*label=\[1\] in .*line 1"),
    "number as text": ("a.jsonl", '{"text": 3, "label": 1}', {}, r"needs a text, as a string\. Received: 3 for 'text'"),
    "half a surrogate pair": ("a.jsonl", r'{"text": "\ud800", "label": 1}', {}, r"valid Unicode.*line 1"),
    "half a pair in a label": ("a.jsonl", r'{"text": "x", "label": "\ud800"}', {}, r"valid Unicode.*line 1"),
    "spans": ("a.jsonl", SPANS, {}, "like the label.*'entities'.* for another form, docs/"),
    "a delimiter of json": ("a.jsonl", "{}", SEMICOLON, r"have a delimiter\. Received: '.*jsonl'\. Drop --deli"),
    "a delimiter of parquet": ("a.parquet", "", SEMICOLON, r"have a delimiter\. Received: '.*a\.parquet'\. Drop"),
    "one column without delimiters": ("a.csv", "film\ngood\n", {}, "Pass --text_column, or indexes with --noheader"),
    "zero bytes in a label": ("a.tsv", tsv("x\t1", "y\tg\0ood"), {}, r"zero bytes in 'g\\x00ood' in .*line 3"),
    "tagged words": ("train.txt", "", {}, "words with a tag each need --task=token_classification"),
    "bad rows only": ("a.tsv", "text\tlabel\na\nb\n", SKIPPED, f"at least one example{NO_ROW}line 2"),
    "half a JSON text": ("a.json", '[{"text": "a", "label": 1}, {"te', SKIPPED, "which is not JSON"),
    "not parquet": ("a.parquet", "text", {}, r"\.parquet file must be whole"),
}


@pytest.mark.parametrize(("name", "content", "options", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files(write, name, content, options, message):
    with refused(message) as caught:
        read_file(write(name, content), DataConfig(**options))
    assert "Received: " in str(caught.value)


WHOLE = gzip.compress(tsv(*(f"some text {i}\t{i % 2}" for i in range(1000))).encode())
HALF = r"gzip data, all of it\. Received: .*b\.tsv\.gz, broken after line \d+"
NO_GZIP = [
    (ONE.encode(), r"b\.tsv\.gz, broken .*Not a gzipped file .*or drop \.gz from its name"),
    (b"PK\x03\x04\x00", r"Not a gzipped file \(b'PK.*Copy it again"),
    (b"\x1f\x8b", HALF),
    (WHOLE[:-200], HALF),
    (WHOLE[:500] + b"\0" * 50 + WHOLE[550:], HALF),
]


@pytest.mark.parametrize("content, message", NO_GZIP, ids=range(5))
def test_gzip_that_is_none_or_not_whole(tmp_path, content, message):
    (tmp_path / "b.tsv.gz").write_bytes(content)
    with refused(message):
        read_file(tmp_path / "b.tsv.gz", DataConfig(skip_bad_rows=True))  # Half a file is no bad row.


def test_unreadable_files(tmp_path):
    for name in ("none.tsv", "none.parquet", "folder.tsv"):
        (tmp_path / "folder.tsv").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match=rf"Received: .*{name}"):
            read_file(tmp_path / name)


# --- Bad rows ------------------------------------------------------------------------------------------------------


BAD = {
    "too many columns": ("a.tsv", "text\tlabel\na\t1\nb\t0\tx\n", "must have 2 columns"),
    "no label": ("a.csv", "text,label\na,1\nb,\n", "needs a label"),
    "no text": ("a.jsonl", '{"text": "a", "label": 1}\n{"text": null, "label": 0}\n', "needs a text"),
    "broken": ("a.jsonl", '{"text": "a", "label": 1}\n{"te\n', "one object per line"),
    "not UTF-8": ("a.tsv", b"text\tlabel\na\t1\n\xff\t0\n", "must be UTF-8"),
}


@pytest.mark.parametrize(("name", "content", "rule"), BAD.values(), ids=BAD)
def test_a_bad_row_is_an_error_or_skipped_and_counted(write, name, content, rule):
    path = write(name, content)
    with pytest.raises(UsageError, match=rf"{rule}.* Or pass --skip_bad_rows\.$"):
        read_file(path)
    table = read_file(path, DataConfig(skip_bad_rows=True))
    assert (table.text, table.labels) == (["a"], ["1"])
    (note,) = table.notes
    assert note.startswith(f"{path}: 1 of 2 rows skipped; the first: ") and rule in note and "\n" not in note


def test_sts_b_as_it_is_published(write):
    """Tab-separated under the name .csv, without a header, quotes as they come, two more columns in some rows."""
    lines = [line for one in STS[:30] for line in (one, f"{one}\thttp://a.example\tCC BY-SA")] + STS[30:]
    train, dev = (write(name, "\n".join(lines)) for name in ("sts-train.csv", "sts-dev.csv"))
    files = {"train_file": train, "validation_file": dev, "test_file": dev, "input_format": "tsv"}
    columns = {"header": False, "text_column": ("5", "6"), "label_column": "4"}
    config = DataConfig(**files, **columns, skip_bad_rows=True)
    data = load_data(config)
    assert (data.task.name, len(data.train), data.train.text[1]) == ("regression", 40, 'A "plane 1.')
    assert sum("30 of 70 rows skipped; the first: Every row must have 7 columns" in note for note in data.notes) == 3
    tables = read_labelled(config, ())
    assert len(tables["eval"]) == len(tables["test"]) == 40
    assert "30 of 70 rows skipped" in tables["test"].notes[0]


# --- Delimiters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", ["\t", ";", "|", ","])
def test_csv_with_any_delimiter_is_what_the_csv_module_wrote(write, delimiter):
    rng, chars = np.random.default_rng(0), list(f'a,"\n {delimiter}')
    pairs = [tuple("".join(rng.choice(chars, rng.integers(0, 9))) for _ in range(2)) for _ in range(500)]
    rows = [("text", "text_pair", "label"), *((*pair, "1") for pair in pairs)]
    table = read_file(write("a.csv", delimited(rows, delimiter=delimiter)), DataConfig(delimiter=delimiter))
    assert list(zip(table.text, table.text_pair, strict=True)) == pairs


def test_tsv_with_another_delimiter_has_plain_quotes(write):
    table = read_file(write("a.tsv", 'text;label\n"a;1\n'), DataConfig(delimiter=";"))
    assert (table.text, table.labels) == (['"a'], ["1"])


ONE_COLUMN = [
    ("a.csv", "text\tlabel", r"--delimiter=tab \(--input_format=tsv where quotes are plain characters\) as"),
    ("a.csv", "text;label", "--delimiter=';' as"),
    ("a.tsv", "a|b, c|d|e", r"--delimiter='\|' as"),
    ("a.tsv", "text,label", "--delimiter=, as"),
]


@pytest.mark.parametrize(("name", "first", "option"), ONE_COLUMN)
def test_a_file_of_one_column_names_the_likely_delimiter(write, name, first, option):
    path = write(name, f"{first}\n")
    with refused(rf"looks like the text\..*, or {option} its only column looks like several"):
        read_file(path)
    with pytest.raises(UsageError, match=f", or {option}"):
        read_file(path, DataConfig(header=False, text_column=("0",), label_column="1"))
    assert "delimiter" not in open_rows(pathlib.Path(write("b.csv", "a;b,c\nx,y\n")), "csv").hint


# --- Names and standard input --------------------------------------------------------------------------------------


PIPED = [("tsv", b"text\tlabel\na\t1\n"), ("csv", b"label,text\n1,a"), ("jsonl", b'{"text": "a", "label": 1}')]


@pytest.mark.parametrize(("format", "content"), PIPED)
def test_labelled_rows_from_standard_input(monkeypatch, format, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    test = read_labelled(DataConfig(test_file="-", input_format=format), ())["test"]
    assert (test.name, test.text, test.labels, test.where(0)[:14]) == ("standard input", ["a"], ["1"], "standard input")


def test_standard_input_that_cannot_be_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"PAR1")))
    with pytest.raises(UsageError, match="Parquet is read from a file"):
        read_labelled(DataConfig(test_file="-", input_format="parquet"), ())
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="Standard input must be open.*test_file='-'"):
        read_labelled(DataConfig(test_file="-", input_format="tsv"), ())


# --- Blank lines, and CSV with quotes that are never closed ----------------------------------------------------------


def read(content, format, *, header=True):
    """(line, values) of each row; `None` for one that cannot be read."""
    file = open_rows(io.BytesIO(content.encode()), format, header=header)
    return [(line, None if isinstance(row, UsageError) else row) for line, row in file.read(file.columns)]


BLANK = [
    # Where an empty text has another form, a blank line is no row.
    ("csv", '\ntext\n""\n\n  \na\n""\n" "\n\n', True, [(3, [""]), (6, ["a"]), (7, [""]), (8, [" "])]),
    ("csv", 'text\r\n""\r\n\r\na\r\n', True, [(2, [""]), (4, ["a"])]),
    ("csv", 'text,x\n,1\n\n"",2\n', True, [(2, ["", "1"]), (4, ["", "2"])]),
    ("csv", "text,x\n,\na,b\n", True, [(2, ["", ""]), (3, ["a", "b"])]),
    ("csv", '""\n\na\n', False, [(1, [""]), (3, ["a"])]),
    ("tsv", "\ntext\tx\n\t1\n\n  \n\t2\n", True, [(3, ["", "1"]), (6, ["", "2"])]),
    ("tsv", "\n\na\tb\n\n", False, [(3, ["a", "b"])]),
    ("jsonl", '\n{"text": ""}\n\n{"text": "a"}\n', True, [(2, [""]), (4, ["a"])]),
    # Here it has none.
    ("tsv", "\ntext\n\na\n  \n\n", True, [(3, [""]), (4, ["a"]), (5, ["  "]), (6, [""])]),
    ("tsv", "\n\na\n\n", False, [(1, [""]), (2, [""]), (3, ["a"]), (4, [""])]),
    ("text", "\na\n\n", True, [(1, [""]), (2, ["a"]), (3, [""])]),
]


@pytest.mark.parametrize(("format", "content", "header", "expected"), BLANK)
def test_blank_lines(format, content, header, expected):
    assert read(content, format, header=header) == expected


def test_files_that_were_joined_each_with_its_header():
    for format, mark in (("tsv", "\t"), ("csv", ",")):
        joined = f"text{mark}label\na{mark}label\n" * 2
        assert read(joined, format) == [(2, ["a", "label"]), (3, None), (4, ["a", "label"])]
        marked = f"text{mark}label\na{mark}x\n\ufeffText{mark} LABEL\nb{mark}y\n"
        assert read(marked, format) == [(2, ["a", "x"]), (3, None), (4, ["b", "y"])]
        assert read("text\na\ntext\n", format) == [(2, ["a"]), (3, ["text"])]  # May be what someone wrote.
    assert read("a\tb\na\tb\n", "tsv", header=False) == [(1, ["a", "b"]), (2, ["a", "b"])]


def test_a_stray_quote_ends_the_reading(monkeypatch):
    """With its line, and with no more of the file than a field may have."""
    lines = ["text,label", "good,0", '"stray,1', *(["good,0"] * 9)]
    with pytest.raises(UsageError, match="RFC 4180.*Received: .* in the row of standard input, line 3. Repair"):
        read("\n".join(lines), "csv")
    monkeypatch.setattr(rows, "_FIELD_CHARACTERS", 1000)
    with refused(r"field larger than field limit \(1000\) in the row of standard input, line 2"):
        rows_in(Endless(), "csv", "text")
    csv.field_size_limit(rows._FIELD_CHARACTERS)


def test_a_quote_that_is_closed_by_a_row_far_below_is_told(caplog):
    lines = ["text,label", '"stray,1', *(["good,0"] * rows._LONG_ROW), 'bad",0', "good,0"]
    assert len(read("\n".join(lines), "csv")) == 2
    assert "standard input: the row in line 2 takes 102 lines: a field in quotes goes on" in caplog.text
    caplog.clear()
    read("\n".join(lines[: rows._LONG_ROW] + lines[-2:]), "csv")
    assert not caplog.text


class Endless(io.BytesIO):
    def __iter__(self):
        return itertools.chain([b"text,label\n", b'"stray,1\n'], itertools.repeat(b"good,0\n"))


def test_a_time_that_python_has_no_form_for(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"id": pyarrow.array([10**15], pyarrow.timestamp("ms"))}), path)
    with pytest.raises(UsageError, match=r"Received: .*a\.parquet \(.+\)\. Write it again"):
        rows_in(path, "parquet", "id")


def test_a_key_that_comes_too_late_to_be_a_column_is_told_of_once(caplog):
    early, late = {"text": "a", "label": 0}, {"text": "b", "text_pair": "c", "label": 1}
    objects = [early] * rows._ROWS_OF_KEYS + [late, late, early, {"text": "d", "note": 1}]
    file = open_rows(io.BytesIO(json_lines(*objects).encode()), "jsonl")
    assert file.columns == ["text", "label"]
    assert len(list(file.read(file.columns))) == len(objects)
    first, second = (record.message for record in caplog.records)
    assert "line 1001 has 'text_pair', which no row before it has" in first
    assert "line 1004 has 'note'" in second
    of_a_list = open_rows(io.BytesIO(json.dumps(objects).encode()), "jsonl")
    assert of_a_list.columns == ["text", "label", "text_pair", "note"], "a list is known whole"


@pytest.mark.parametrize("indent", [None, 1])
def test_one_json_text_is_read_whole_up_to_a_size(indent, monkeypatch):
    monkeypatch.setattr(rows, "_MOST_CHARACTERS", 100)
    with pytest.raises(UsageError, match=r"read whole.*with more\. Write an object a line; docs/other_formats\.md"):
        open_rows(io.BytesIO(json.dumps([{"text": "a", "label": 0}] * 10, indent=indent).encode()), "jsonl")


# --- As other programs write them: another encoding, Excel's first line, a wrong ending ------------------------------


TEXTS, LABELS = ["one, two", "drei; 3 €", "日本 😀"], ["good", "bad", "good"]
RECORDS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_other_encodings_are_refused_with_the_way_out(write, encoding):
    text = delimited([("text", "label"), ("one, two", "good"), ("drei; 3 €", "bad")])
    for name in ("a.csv", "a.json"):
        with refused("must be UTF-8. .* as in UTF-16 or UTF-32. Convert it with iconv -f UTF-16 -t UTF-8"):
            read_file(write(name, text.encode(encoding)))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["Привет\nмир\n", "مرحبا\nعالم\n", "नमस्ते\nदुनिया\n", "สวัสดี\nโลก\n"])
def test_utf_16_is_seen_in_any_script_and_where_it_begins_later(text, encoding):
    for start in (b"", b"Good.\n"):
        with refused("must be UTF-8. .*, whose line [1-4] is as in UTF-16"):
            list(lines_of(io.BytesIO(start + text.encode(encoding)), "a.txt"))


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"', "\ufeffsep=;"])
def test_the_line_in_which_excel_names_the_delimiter_is_refused(write, first):
    path = write("a.csv", f"{first}\r\ntext;label\r\none, two;good\r\n")
    for delimiter in ("", ";"):
        with refused("begins with its columns' names. .*line 1: '[sS].*Drop the line, and pass the character as --d"):
            read_file(path, DataConfig(delimiter=delimiter))
    assert open_rows(write("a.csv", "sep\na\n"), "csv").columns == ["sep"]


NO_TEXT = "such as of an archive, Excel or Parquet. Give it the ending of what it is, unpack it, save a sheet as CSV"
OTHERS = {
    "gzip": (gzip.compress(b"text\tlabel\nx\t1\n"), f"{NO_TEXT}, or conv"),
    "zip": (b"PK\x03\x04\x14\x00\x06\x00xl/workbook.xml\n", f"{NO_TEXT}, or conv"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", f"{NO_TEXT}, or conv"),
    "bzip2": (bz2.compress(b"text\tlabel\n"), f"{NO_TEXT}, or conv"),
    "Parquet": (b"PAR1\x15\x04\x15\n", f"{NO_TEXT}, or conv"),
    "fastText": (b"__label__2 Great CD: my lovely Pat\n", "of fastText, whose labels are in the texts. Give it"),
    "old Mac": (b"text\tlabel\rgood\t1\rbad\t0\r", "returns, as on old Macs"),
}


@pytest.mark.parametrize("format", ["csv", "text"])
@pytest.mark.parametrize("content, message", OTHERS.values(), ids=OTHERS)
def test_what_is_no_text_is_refused_whatever_its_ending(write, content, message, format):
    for source in (write(f"a.{format}", content), io.BytesIO(content)):
        with refused(message):
            rows_in(source, format, "text")


@pytest.mark.parametrize("line", ["PAR1 is a magic number", "BZh is not", "a\rb", "a\0b", "%PDF-1.4"])
def test_texts_that_only_begin_so_are_read(write, line):
    assert rows_in(write("a.txt", f"{line}\nmore\n"), "text", "text") == [[line], ["more"]]


OTHER = ["a.xlsx", "a.csv.zip", "a.tgz", "a.parquet.gz", "a.gz", "a.arrow", "a.pkl", "a.ndjson", "rows.data", "a"]


@pytest.mark.parametrize("name", OTHER)
def test_other_endings_lead_to_the_page(name):
    said = r"Save a sheet as CSV \(UTF-8\), unpack an archive, rename or convert other files; docs/"
    for formats in (ROWS, WORDS):
        with refused(rf"A data file ends in .*\. {said}"):
            file_format(pathlib.Path(name), formats)


def as_pandas(*texts, **options):
    rows = [("text", "label"), *((text, str(i % 2)) for i, text in enumerate(texts))]
    return delimited(rows, delimiter="\t", lineterminator="\n", **options)


OF_CSV = DataConfig(input_format="csv", delimiter="\t")
QUOTED = ['He said "hi"', "plain", '"All of it"', "more", "and more", "the last"]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_tsv_with_quotes_as_pandas_writes_it(write, caplog, quoting):
    path = write("a.tsv", as_pandas(*QUOTED, quoting=quoting))
    if quoting == csv.QUOTE_ALL:
        with pytest.raises(UsageError, match="--input_format=csv --delimiter=tab as quotes enclose the names"):
            read_file(path)
    else:
        read_file(path)
        assert "2 fields are quoted as in CSV, such as" in caplog.text and "read with the quotes" in caplog.text
        assert "--input_format=csv --delimiter=tab reads them without" in caplog.text
    assert read_file(path, OF_CSV).text == QUOTED


@pytest.mark.parametrize("text", ["two\nlines", "a\ttab", 'a "quote"\nand\ttab'])
def test_a_quoted_field_with_tabs_or_line_ends_names_the_way_out(write, text):
    path = write("a.tsv", as_pandas("plain", text))
    with pytest.raises(UsageError, match="2 columns, .*, line 3.*or pass --input_format=csv --delimiter=tab if quotes"):
        read_file(path)
    assert read_file(path, OF_CSV).text == ["plain", text]


PLAIN_QUOTES = [
    ['"a" b', 'c "d"', '"', '""', '"e', 'f"', "g", "h"],  # GLUE's.
    ['"""What is ""x""?"""', '"an open quote', "a", "b", "c", "d"],
    ['"One" is "two"', "a", "b", "c", "d", "e"],
    ['"a"', "b", "c", "d", "e", "f"],
]


@pytest.mark.parametrize("texts", PLAIN_QUOTES)
def test_plain_quotes_are_no_csv(write, caplog, texts):
    path = write("a.tsv", tsv(*(f"{text}\t{i % 2}" for i, text in enumerate(texts))))
    assert read_file(path).text == texts and caplog.text == ""


# --- JSON ----------------------------------------------------------------------------------------------------------

ARRAYS = {
    "records": json.dumps(RECORDS),
    "records of many lines": json.dumps(RECORDS, indent=2),
    "a record a line": "[\n" + ",\n".join(map(json.dumps, RECORDS)) + "\n]",
    "under data": json.dumps({"version": "1", "data": RECORDS}),
    "under data, a line that is one record": '{"data": [\n' + "\n,".join(map(json.dumps, RECORDS)) + "\n]}",
    "pandas' table": json.dumps({"schema": {"fields": []}, "data": [{"index": 0} | row for row in RECORDS]}),
    "lines": json_lines(*RECORDS),
}


@pytest.mark.parametrize("text", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_arrays_of_texts(write, text, name):
    path = write(name, text)
    table = read_file(path)
    assert (table.text, table.labels) == (TEXTS, LABELS)
    config = detected(path)
    assert config.task == "auto" and not holds_questions(pathlib.Path(path))
    assert load_data(config).task.label_names == ("bad", "good")


def test_a_bad_record_is_named_and_skipped(write):
    path = write("a.json", json.dumps([*RECORDS[:1], "text", *RECORDS[1:]]))
    with pytest.raises(UsageError, match="Received: 'text' in .*a.json, record 2.*--skip_bad_rows"):
        read_file(path)
    table = read_file(path, DataConfig(skip_bad_rows=True))
    assert (table.text, table.labels) == (TEXTS, LABELS)


TAGGED = [{"id": 0, "tokens": ["Ada", "wrote"], "ner_tags": ["B-PER", "O"]}, {"tokens": ["Hm"], "ner_tags": ["O"]}]


@pytest.mark.parametrize("value", [TAGGED, {"data": TAGGED}])
def test_arrays_of_tagged_words(write, value):
    path = write("a.json", json.dumps(value, indent=1))
    table = read_sentences(path)
    assert (table.words, table.tags) == ([["Ada", "wrote"], ["Hm"]], [["B-PER", "O"], ["O"]])
    assert detected(path).task == "token_classification"


BY_COLUMN = {key: {str(i): row[key] for i, row in enumerate(RECORDS)} for key in ("text", "label")}
SPLIT = {"columns": ["text", "label"], "index": [0], "data": [["a", "b"]]}
SPAN = {"start": 0, "end": 3, "labels": ["PER"]}
NO_ROWS = {
    "columns": (BY_COLUMN, "with 'text', 'label'. Convert it; docs/|Every row needs a text"),
    "lists": ({"text": ["a film", "bad"], "label": [0, 1]}, "with 'text', 'label'. Convert"),  # No words and tags.
    "index": (dict(enumerate(RECORDS)), "an object with '0', '1', '2'. Convert|like the text.* '0', '1', '2'"),
    "split": (SPLIT, r"a list that begins with \['a', 'b'\]. Convert it; docs/other_formats.md"),
    "values": ([["a", "good"]], r"a list that begins with \['a', 'good'\]. Convert it; docs/other"),
    "texts": (["a", "b"], "a list that begins with 'a'"),
    "nothing": ([], "at least one example"),
    "Label Studio": (
        [{"annotations": [{"result": []}], "data": {"text": "a"}}],
        "like the text.*for another form, docs/",
    ),
    "doccano": ({"id": 1, "text": "Ada", "label": [[0, 3, "PER"]]}, "for spans of characters, docs/other_formats.md"),
    "Label Studio's spans": ([{"text": "Ada", "label": [SPAN]}], "for spans of characters, docs/other_formats.md"),
    "several labels": ({"text": "Ada", "label": ["a", "b"]}, "or for several labels --task=multi_label_class"),
    "SQuAD": ({"data": [{"title": "", "paragraphs": []}]}, "SQuAD's articles of questions. Pass --task=question"),
}


@pytest.mark.parametrize("case", NO_ROWS)
@pytest.mark.parametrize("indent", [None, 1])
def test_json_of_other_forms_is_one_line(write, case, indent):
    value, message = NO_ROWS[case]
    if indent and case in ("doccano", "several labels"):  # These have an object a line.
        message = "an object with 'id', 'text', 'label'. Convert|an object with 'text', 'label'. Convert"
    with refused(message):
        read_file(write("a.json", json.dumps(value, indent=indent)))


@pytest.mark.parametrize("as_lines", [True, False])
def test_a_key_that_the_first_row_lacks_is_a_column(write, as_lines):
    rows = [{"question": "why?", "label": 0}, {"question": "who?", "sentence": "Ada.", "label": 1}]
    path = write("a.json", json_lines(*rows) if as_lines else json.dumps(rows))
    with pytest.raises(UsageError, match="needs a text.* Received: none for 'sentence' in .* 1. "):
        read_file(path)
    table = read_file(path, DataConfig(skip_bad_rows=True))
    assert (table.text, table.text_pair, table.labels) == (["who?"], ["Ada."], ["1"])


# --- Pipes ---------------------------------------------------------------------------------------------------------


def predicting(name, **data):
    saved = ModelConfig(model_name_or_path="saved")
    return Config(mode="predict", model=saved, predict=PredictConfig(input_file=str(name)), data=DataConfig(**data))


def test_a_pipe_is_read_once(tmp_path):
    from tfbert.tasks.classification.glue import open_texts

    pipe = tmp_path / "rows.tsv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(as_pandas(*TEXTS)))
    writer.start()
    (job,) = open_texts(predicting(pipe))
    assert (job.name, [row for _, row in job.rows]) == (str(pipe), [[text] for text in TEXTS])
    writer.join()


def test_where_a_pipe_cannot_be_read(tmp_path):
    pipe = tmp_path / "63"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="A pipe has no ending that tells its format.*--input_format"):
        predicting(pipe)
    assert predicting(pipe, input_format="tsv").predict.input_file == str(pipe)
    for option in ("train_file", "validation_file", "test_file"):
        (problem,) = DataConfig(**{option: str(pipe)}).problems()
        assert "63'. A pipe can be read only once: write it to a file first" in problem
    assert input_source(str(tmp_path)) == pathlib.Path(tmp_path)


# --- Directories -----------------------------------------------------------------------------------------------------


def load(path: pathlib.Path):
    """The task that the files are for, and the data."""
    assert DataConfig(train_file=str(path)).problems() == []
    config = detected(path)
    return config.task, load_data(config)


def tree(path: pathlib.Path, **folders) -> pathlib.Path:
    for folder, texts in folders.items():
        (path / folder).mkdir(parents=True)
        for name, text in texts.items():
            (path / folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


REVIEWS = {f"{i}_9.txt": f"text {i}\nin two lines" for i in range(12)}


def test_a_folder_for_each_class(tmp_path, caplog):
    path = tree(tmp_path / "train", pos=REVIEWS, neg={**REVIEWS, ".DS_Store": b"\0"}, unsup={"0_0.txt": "x"})
    (path / "__MACOSX" / "pos").mkdir(parents=True)
    (path / "urls_pos.txt").write_text("not read")
    with caplog.at_level("INFO", "tfbert"):
        task, data = load(path)
    assert (task, data.task.label_names, len(data.train)) == ("auto", ("neg", "pos"), 24)
    assert data.train.labels.tolist() == [0] * 12 + [1] * 12
    assert [text for (text,) in data.train.contents()] == [REVIEWS[name] for name in sorted(REVIEWS)] * 2
    assert "1 text in 'unsup' left out" in caplog.text
    rows = rows_in(path, file_format(path), "id", "label")
    assert rows[0] == ["neg/0_9.txt", "neg"] and rows[-1] == ["pos/9_9.txt", "pos"]


def test_texts_alone_are_for_prediction(tmp_path):
    path = tree(tmp_path, new={"b.txt": "B", "a": "A"}) / "new"
    assert PredictConfig(input_file=str(path)).problems() == []
    assert open_rows(path, file_format(path)).columns == ["id", "text"]
    (path / "a").write_text(long := "A\0" * 3 + "A" * 99)  # Not as in UTF-16.
    assert rows_in(path, file_format(path), "id", "text") == [["a", long], ["b.txt", "B"]]
    with pytest.raises(UsageError, match="No column looks like the label"):
        load(path)


def test_directories_of_anything_else_are_refused(tmp_path):
    tree(tmp_path, **{"deep/train/pos": REVIEWS, "deep/train/neg": REVIEWS, "bad/pos": REVIEWS})
    tree(tmp_path, empty={}, tables={"train.csv": "text,label\n"}, **{"bad/neg": {"0.txt": b"caf\xe9"}})
    tree(tmp_path, **{"wide/pos": REVIEWS, "wide/neg": {"0.txt": "Это плохо.".encode("utf-16-le")}})
    tree(tmp_path, one={"state.json": "{}"}, several={"dataset_dict.json": "{}"})
    said = r"which datasets' save_to_disk wrote. Pass data.parquet, .*load_from_disk\('.*'\).to_parquet"
    for name, message in (
        ("empty", "empty', which is empty. Pass the files"),
        ("tables", "tables', with 'train.csv'. Pass the files"),
        ("deep", "deep/train', with 'neg'. Pass '.*deep/train' if"),
        ("one", said),
        ("several", said),
        ("bad", "UTF-8. Received: byte 0xe9 in .*neg/0.txt"),
        ("wide", "UTF-8. Received: .*neg/0.txt, whose line 1 is as in UTF-16"),
    ):
        with refused(message):
            load(tmp_path / name)
