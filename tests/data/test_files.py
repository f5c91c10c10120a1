"""Files and directories as they are found: bad rows, blank lines, delimiters, other programs' files, JSON, pipes."""

import bz2
import csv
import dataclasses
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
from tests.support.refusals import refused
from tfbert import Config, DataConfig, ModelConfig, PredictConfig, UsageError
from tfbert.data import rows
from tfbert.data.files import read_file
from tfbert.data.reading import ROWS, WORDS, lines_of
from tfbert.data.rows import file_format, input_source, open_rows
from tfbert.tasks.classification.classification import read_labelled
from tfbert.tasks.question_answering.squad import holds_questions
from tfbert.tasks.registry import ENTRIES, detect_task
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.tagged import read_sentences

STS = [f'main-captions\tMSRvid\t2012test\t{i:04}\t{i % 26 / 5:.3f}\tA "plane {i}.\tA plane is {i}.' for i in range(40)]
STS_LICENSED = [f"{line}\thttp://a.example\tCC BY-SA" for line in STS]


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


def test_a_file_of_bad_rows_only(write):
    path = write("a.tsv", "text\tlabel\na\nb\n")
    with pytest.raises(UsageError, match=r"at least one example.* none that can be used; the first: .*line 2"):
        read_file(path, DataConfig(skip_bad_rows=True))


def test_sts_b_as_it_is_published(write):
    """Tab-separated under the name .csv, without a header, quotes as they come, two more columns in some rows."""
    lines = [line for pair in zip(STS[:30], STS_LICENSED[:30], strict=True) for line in pair] + STS[30:]
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
def test_csv_with_any_delimiter(write, delimiter):
    rows = [["label", "text"], ["1", f'with "{delimiter}", and\na line'], ["0", "plain"]]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    table = read_file(write("a.csv", text.getvalue()), DataConfig(delimiter=delimiter))
    assert list(zip(table.labels, table.text, strict=True)) == [tuple(row) for row in rows[1:]]


def test_tsv_with_another_delimiter_has_plain_quotes(write):
    table = read_file(write("a.tsv", 'text;label\n"a;1\n'), DataConfig(delimiter=";"))
    assert (table.text, table.labels) == (['"a'], ["1"])


@pytest.mark.parametrize(
    ("name", "first", "option"),
    [
        ("a.csv", "text\tlabel", r"--delimiter=tab \(--input_format=tsv where quotes are plain characters\) as"),
        ("a.csv", "text;label", "--delimiter=';' as"),
        ("a.tsv", "a|b, c|d|e", r"--delimiter='\|' as"),
        ("a.tsv", "text,label", "--delimiter=, as"),
    ],
)
def test_a_file_of_one_column_names_the_likely_delimiter(write, name, first, option):
    path = write(name, f"{first}\n")
    said = rf"looks like the text\..*, or {option} its only column looks like several"
    with refused(said):
        read_file(path)
    with pytest.raises(UsageError, match=f", or {option}"):
        read_file(path, DataConfig(header=False, text_column=("0",), label_column="1"))
    assert "delimiter" not in open_rows(pathlib.Path(write("b.csv", "a;b,c\nx,y\n")), "csv").hint


# --- Names and standard input --------------------------------------------------------------------------------------


def test_a_format_whatever_the_name(write):
    rows = [{"text": f"text {i}", "label": i % 2} for i in range(20)]
    path = write("rows.data", "".join(json.dumps(row) + "\n" for row in rows))
    assert len(load_data(DataConfig(train_file=path, input_format="jsonl")).train) == 20
    with pytest.raises(UsageError, match="A data file ends in"):
        load_data(DataConfig(train_file=path))
    packed = write("rows.gz", gzip.compress(b"twice"))
    with pytest.raises(UsageError, match="A data file ends in"):
        read_file(packed)


class Stdin:
    def __init__(self, content):
        self.buffer = io.BytesIO(content)


@pytest.mark.parametrize(
    ("format", "content"),
    [("tsv", b"text\tlabel\na\t1\n"), ("csv", b"label,text\n1,a"), ("jsonl", b'{"text": "a", "label": 1}')],
)
def test_labelled_rows_from_standard_input(monkeypatch, format, content):
    monkeypatch.setattr(sys, "stdin", Stdin(content))
    test = read_labelled(DataConfig(test_file="-", input_format=format), ())["test"]
    assert (test.name, test.text, test.labels, test.where(0)[:14]) == ("standard input", ["a"], ["1"], "standard input")


def test_standard_input_that_cannot_be_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(b"PAR1"))
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


@pytest.mark.parametrize(
    ("format", "content", "expected"),
    [
        # Where an empty text has another form, a blank line is no row.
        ("csv", '\ntext\n""\n\n  \na\n""\n" "\n\n', [(3, [""]), (6, ["a"]), (7, [""]), (8, [" "])]),
        ("csv", 'text\r\n""\r\n\r\na\r\n', [(2, [""]), (4, ["a"])]),
        ("csv", 'text,x\n,1\n\n"",2\n', [(2, ["", "1"]), (4, ["", "2"])]),
        ("tsv", "\ntext\tx\n\t1\n\n  \n\t2\n", [(3, ["", "1"]), (6, ["", "2"])]),
        ("jsonl", '\n{"text": ""}\n\n{"text": "a"}\n', [(2, [""]), (4, ["a"])]),
        # Here it has none.
        ("tsv", "\ntext\n\na\n  \n\n", [(3, [""]), (4, ["a"]), (5, ["  "]), (6, [""])]),
        ("text", "\na\n\n", [(1, [""]), (2, ["a"]), (3, [""])]),
    ],
)
def test_blank_lines(format, content, expected):
    assert read(content, format) == expected


def test_blank_lines_without_a_header():
    assert read("\n\na\n\n", "tsv", header=False) == [(1, [""]), (2, [""]), (3, ["a"]), (4, [""])]
    assert read("\n\na\tb\n\n", "tsv", header=False) == [(3, ["a", "b"])]
    assert read('""\n\na\n', "csv", header=False) == [(1, [""]), (3, ["a"])]
    for format in ("tsv", "csv"):
        with pytest.raises(UsageError, match="at least one example"):
            read("\n \n", format, header=False)


def test_files_that_were_joined_each_with_its_header():
    for format, mark in (("tsv", "\t"), ("csv", ",")):
        joined = f"text{mark}label\na{mark}label\n" * 2
        assert read(joined, format) == [(2, ["a", "label"]), (3, None), (4, ["a", "label"])]
        marked = f"text{mark}label\na{mark}x\n\ufeffText{mark} LABEL\nb{mark}y\n"
        assert read(marked, format) == [(2, ["a", "x"]), (3, None), (4, ["b", "y"])]
        assert read("text\na\ntext\n", format) == [(2, ["a"]), (3, ["text"])]  # May be what someone wrote.
    assert read("a\tb\na\tb\n", "tsv", header=False) == [(1, ["a", "b"]), (2, ["a", "b"])]


def test_csv_that_is_right_is_what_the_csv_module_reads():
    rng = np.random.default_rng(0)
    table = [["".join(rng.choice(list('a,"\n '), rng.integers(0, 9))) for _ in range(2)] for _ in range(500)]
    text = io.StringIO()
    csv.writer(text).writerows([["a", "b"], *table])
    assert [row for _, row in read(text.getvalue(), "csv")] == table


def test_a_stray_quote_ends_the_reading(monkeypatch):
    """With its line, and with no more of the file than a field may have."""
    lines = ["text,label", "good,0", '"stray,1', *(["good,0"] * 9)]
    with pytest.raises(UsageError, match="RFC 4180.*Received: .* in the row of standard input, line 3. Repair"):
        read("\n".join(lines), "csv")
    monkeypatch.setattr(rows, "_FIELD_CHARACTERS", 1000)
    file = open_rows(Endless(), "csv")
    with pytest.raises(
        UsageError, match=r"field larger than field limit \(1000\) in the row of standard input, line 2"
    ):
        list(file.read(["text"]))
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
        list(open_rows(path, "parquet").read(["id"]))


def test_a_txt_of_tagged_words_needs_its_task():
    with pytest.raises(UsageError, match="words with a tag each need --task=token_classification"):
        file_format(pathlib.Path("train.txt"))


def test_a_key_that_comes_too_late_to_be_a_column_is_told_of_once(caplog):
    early, late = {"text": "a", "label": 0}, {"text": "b", "text_pair": "c", "label": 1}
    objects = [early] * rows._ROWS_OF_KEYS + [late, late, early, {"text": "d", "note": 1}]
    file = open_rows(io.BytesIO("".join(json.dumps(row) + "\n" for row in objects).encode()), "jsonl")
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
    text = json.dumps([{"text": "a", "label": 0}] * 10, indent=indent).encode()
    with pytest.raises(UsageError, match=r"read whole.*with more\. Write an object a line; docs/other_formats\.md"):
        open_rows(io.BytesIO(text), "jsonl")


# --- As other programs write them: another encoding, Excel's first line, a wrong ending ------------------------------


TEXTS, LABELS = ["one, two", "drei; 3 €", "日本 😀"], ["good", "bad", "good"]
RECORDS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]


def content(name, delimiter=","):
    """The rows in the format of a name."""
    if ".jsonl" in name:
        return "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in RECORDS)
    if ".tsv" in name:
        return "".join(f"{row[0]}\t{row[1]}\n" for row in [("text", "label"), *zip(TEXTS, LABELS, strict=True)])
    rows = [f'"{row[0]}"{delimiter}{row[1]}\r\n' for row in [("text", "label"), *zip(TEXTS, LABELS, strict=True)]]
    return "".join(rows)


def check(table):
    assert (table.text, table.labels) == (TEXTS, LABELS)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_other_encodings_are_refused_with_the_way_out(tmp_path, encoding):
    for name in ("a.csv", "a.json"):
        (tmp_path / name).write_bytes(content("a.csv").replace("日本 😀", "x").encode(encoding))
        with refused("must be UTF-8. .* as in UTF-16 or UTF-32. Convert it with iconv -f UTF-16 -t UTF-8"):
            read_file(tmp_path / name)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["Привет\nмир\n", "مرحبا\nعالم\n", "नमस्ते\nदुनिया\n", "สวัสดี\nโลก\n"])
def test_utf_16_is_seen_in_any_script_and_where_it_begins_later(text, encoding):
    for start in (b"", b"Good.\n"):
        with refused("must be UTF-8. .*, whose line [1-4] is as in UTF-16"):
            list(lines_of(io.BytesIO(start + text.encode(encoding)), "a.txt"))


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"', "\ufeffsep=;"])
def test_the_line_in_which_excel_names_the_delimiter_is_refused(tmp_path, first):
    (tmp_path / "a.csv").write_text(f"{first}\r\n" + content("a.csv", ";"))
    for options in ({}, {"delimiter": ";"}):
        with refused("begins with its columns' names. .*line 1: '[sS].*Drop the line, and pass the character as --d"):
            read_file(tmp_path / "a.csv", DataConfig(**options))
    (tmp_path / "a.csv").write_text("sep\na\n")
    assert open_rows(tmp_path / "a.csv", "csv").columns == ["sep"]


OTHERS = {
    "gzip": gzip.compress(b"text\tlabel\nx\t1\n"),
    "zip": b"PK\x03\x04\x14\x00\x06\x00xl/workbook.xml\n",
    "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0",
    "bzip2": bz2.compress(b"text\tlabel\n"),
    "Parquet": b"PAR1\x15\x04\x15\n",
    "fastText": b"__label__2 Great CD: my lovely Pat\n",
    "old Mac": b"text\tlabel\rgood\t1\rbad\t0\r",
}
SAID = (
    "such as of an archive, Excel or Parquet. Give it the ending of what it is, unpack it, save a sheet as CSV, or conv"
)
SAID_OF = {"fastText": "of fastText, whose labels are in the texts. Give it", "old Mac": "returns, as on old Macs"}


@pytest.mark.parametrize("format", ["csv", "text"])
@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_text_is_refused_whatever_its_ending(tmp_path, case, format):
    path = tmp_path / f"a.{format}"
    path.write_bytes(OTHERS[case])
    for source in (path, io.BytesIO(OTHERS[case])):
        with refused(SAID_OF.get(case, SAID)):
            list(open_rows(source, format).read(["text"]))


@pytest.mark.parametrize("line", ["PAR1 is a magic number", "BZh is not", "a\rb", "a\0b", "%PDF-1.4"])
def test_texts_that_only_begin_so_are_read(tmp_path, line):
    path = tmp_path / "a.txt"
    path.write_text(f"{line}\nmore\n", newline="")
    assert [row for _, row in open_rows(path, "text").read(["text"])] == [[line], ["more"]]


@pytest.mark.parametrize("name", ["a.xlsx", "a.csv.zip", "a.tgz", "a.parquet.gz", "a.arrow", "a.pkl", "a.ndjson", "a"])
def test_other_endings_lead_to_the_page(tmp_path, name):
    for formats in (ROWS, WORDS):
        with refused(r"Save a sheet as CSV \(UTF-8\), unpack an archive, rename or convert other files; docs/"):
            file_format(tmp_path / name, formats)


def as_pandas(*texts, header=("text", "label"), **options):
    file = io.StringIO()
    writer = csv.writer(file, delimiter="\t", lineterminator="\n", **options)
    writer.writerows([header, *((text, str(i % 2)) for i, text in enumerate(texts))])
    return file.getvalue()


QUOTED = ['He said "hi"', "plain", '"All of it"', "more", "and more", "the last"]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_tsv_with_quotes_as_pandas_writes_it(tmp_path, caplog, quoting):
    path = tmp_path / "a.tsv"
    path.write_text(as_pandas(*QUOTED, quoting=quoting))
    if quoting == csv.QUOTE_ALL:
        with pytest.raises(UsageError, match="--input_format=csv --delimiter=tab as quotes enclose the names"):
            read_file(path)
    else:
        read_file(path)
        assert "2 fields are quoted as in CSV, such as" in caplog.text and "read with the quotes" in caplog.text
        assert "--input_format=csv --delimiter=tab reads them without" in caplog.text
    assert read_file(path, DataConfig(input_format="csv", delimiter="\t")).text == QUOTED


@pytest.mark.parametrize("text", ["two\nlines", "a\ttab", 'a "quote"\nand\ttab'])
def test_a_quoted_field_with_tabs_or_line_ends_names_the_way_out(tmp_path, text):
    path = tmp_path / "a.tsv"
    path.write_text(as_pandas("plain", text))
    with pytest.raises(UsageError, match="2 columns, .*, line 3.*or pass --input_format=csv --delimiter=tab if quotes"):
        read_file(path)
    assert read_file(path, DataConfig(input_format="csv", delimiter="\t")).text == ["plain", text]


@pytest.mark.parametrize(
    "texts",
    [
        ['"a" b', 'c "d"', '"', '""', '"e', 'f"', "g", "h"],  # GLUE's.
        ['"""What is ""x""?"""', '"an open quote', "a", "b", "c", "d"],
        ['"One" is "two"', "a", "b", "c", "d", "e"],
        ['"a"', "b", "c", "d", "e", "f"],
    ],
)
def test_plain_quotes_are_no_csv(tmp_path, caplog, texts):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(texts)))
    assert read_file(path).text == texts and caplog.text == ""


# --- JSON ----------------------------------------------------------------------------------------------------------

ARRAYS = {
    "records": json.dumps(RECORDS),
    "records of many lines": json.dumps(RECORDS, indent=2),
    "a record a line": "[\n" + ",\n".join(map(json.dumps, RECORDS)) + "\n]",
    "under data": json.dumps({"version": "1", "data": RECORDS}),
    "under data, a line that is one record": '{"data": [\n' + "\n,".join(map(json.dumps, RECORDS)) + "\n]}",
    "pandas' table": json.dumps({"schema": {"fields": []}, "data": [{"index": 0} | row for row in RECORDS]}),
    "lines": "".join(json.dumps(row) + "\n" for row in RECORDS),
}


@pytest.mark.parametrize("text", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_arrays_of_texts(tmp_path, text, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    check(read_file(path))
    config = detect_task(Config(model=SCRATCH, data=DataConfig(train_file=str(path))))
    assert config.data.task == "auto" and not holds_questions(path)
    assert load_data(config.data).task.label_names == ("bad", "good")


def test_a_bad_record_is_named_and_skipped(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([*RECORDS[:1], "text", *RECORDS[1:]]))
    with pytest.raises(UsageError, match="Received: 'text' in .*a.json, record 2.*--skip_bad_rows"):
        read_file(path)
    check(read_file(path, DataConfig(skip_bad_rows=True)))
    path.write_text(json.dumps(RECORDS)[:-4])
    with pytest.raises(UsageError, match="which is not JSON"):
        read_file(path, DataConfig(skip_bad_rows=True))


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"data": rows}])
def test_arrays_of_tagged_words(tmp_path, wrap):
    rows = [{"id": 0, "tokens": ["Ada", "wrote"], "ner_tags": ["B-PER", "O"]}, {"tokens": ["Hm"], "ner_tags": ["O"]}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(wrap(rows), indent=1))
    table = read_sentences(path)
    assert (table.words, table.tags) == ([["Ada", "wrote"], ["Hm"]], [["B-PER", "O"], ["O"]])
    config = detect_task(Config(model=SCRATCH, data=DataConfig(train_file=str(path))))
    assert config.data.task == "token_classification"


BY = {key: [row[key] for row in RECORDS] for key in ("text", "label")}
SPLIT = {"columns": ["text", "label"], "index": [0], "data": [["a", "b"]]}
SPAN = {"start": 0, "end": 3, "labels": ["PER"]}
NO_ROWS = {
    "columns": (
        {key: dict(enumerate(values)) for key, values in BY.items()},
        "with 'text', 'label'. Convert it; docs/|Every row needs a text",
    ),
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
def test_json_of_other_forms_is_one_line(tmp_path, case, indent):
    value, message = NO_ROWS[case]
    if indent and case in ("doccano", "several labels"):
        return  # These have an object a line.
    (tmp_path / "a.json").write_text(json.dumps(value, indent=indent))
    with refused(message):
        read_file(tmp_path / "a.json")


@pytest.mark.parametrize("as_lines", [True, False])
def test_a_key_that_the_first_row_lacks_is_a_column(tmp_path, as_lines):
    rows = [{"question": "why?", "label": 0}, {"question": "who?", "sentence": "Ada.", "label": 1}]
    text = "".join(json.dumps(row) + "\n" for row in rows) if as_lines else json.dumps(rows)
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UsageError, match="needs a text.* Received: none for 'sentence' in .* 1. "):
        read_file(tmp_path / "a.json")
    table = read_file(tmp_path / "a.json", DataConfig(skip_bad_rows=True))
    assert (table.text, table.text_pair, table.labels) == (["who?"], ["Ada."], ["1"])


def test_no_consensus_in_snli_is_no_class(tmp_path):
    (tmp_path / "snli.tsv").write_text("sentence1\tsentence2\tgold_label\na\tb\t-\na\tc\tneutral\n")
    config = DataConfig(train_file=str(tmp_path / "snli.tsv"))
    with pytest.raises(UsageError, match="Received: '-', which stands for a missing one beside 'neutral' in .*line 2"):
        load_data(config)
    (tmp_path / "snli.tsv").write_text("sentence1\tsentence2\tgold_label\na\tb\t-\na\tc\tneutral\na\td\tother\n")
    data = load_data(dataclasses.replace(config, skip_bad_rows=True))
    assert (data.task.label_names, data.train.lines.tolist()) == (("neutral", "other"), [3, 4])


# --- Pipes ---------------------------------------------------------------------------------------------------------


def predicting(name, **data):
    saved = ModelConfig(model_name_or_path="saved")
    return Config(mode="predict", model=saved, predict=PredictConfig(input_file=str(name)), data=DataConfig(**data))


def test_a_pipe_is_read_once(tmp_path):
    from tfbert.tasks.classification.glue import open_texts

    pipe = tmp_path / "rows.tsv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(content("a.tsv")))
    writer.start()
    (job,) = open_texts(predicting(pipe))
    assert job.name == str(pipe)
    assert [row for _, row in job.rows] == [[text] for text in TEXTS]
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
    config = DataConfig(train_file=str(path))
    assert config.problems() == []
    task = next((e.name for e in ENTRIES if e.holds(input_source(str(path)), config)), "auto")
    return task, load_data(DataConfig(train_file=str(path), task=task))


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
    rows = [row for _, row in open_rows(path, file_format(path)).read(["id", "label"])]
    assert rows[0] == ["neg/0_9.txt", "neg"] and rows[-1] == ["pos/9_9.txt", "pos"]


def test_texts_alone_are_for_prediction(tmp_path):
    path = tree(tmp_path, new={"b.txt": "B", "a": "A"}) / "new"
    assert PredictConfig(input_file=str(path)).problems() == []
    file = open_rows(path, file_format(path))
    assert file.columns == ["id", "text"]
    assert [row for _, row in file.read(file.columns)] == [["a", "A"], ["b.txt", "B"]]
    with pytest.raises(UsageError, match="No column looks like the label"):
        load(path)


def test_directories_of_anything_else_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "train.csv").write_text("text,label\n")
    deep = tree(tmp_path / "deep", **{"train/pos": REVIEWS, "train/neg": REVIEWS})
    bad = tree(tmp_path / "bad", pos=REVIEWS, neg={"0.txt": b"caf\xe9"})
    saved = tree(tmp_path, one={"state.json": "{}"}, several={"dataset_dict.json": "{}"})
    said = r"which datasets' save_to_disk wrote. Pass data.parquet, .*load_from_disk\('.*'\).to_parquet"
    for path, message in (
        (tmp_path / "empty", "empty', which is empty. Pass the files"),
        (tmp_path / "tables", "tables', with 'train.csv'. Pass the files"),
        (deep, "deep/train', with 'neg'. Pass '.*deep/train' if"),
        (saved / "one", said),
        (saved / "several", said),
        (bad, "UTF-8. Received: byte 0xe9 in .*neg/0.txt"),
    ):
        with refused(message):
            load(path)
