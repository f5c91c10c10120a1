"""Files as they are found: bad rows, other delimiters, names that do not say what is inside, standard input."""

import csv
import gzip
import io
import json
import pathlib
import sys

import pytest

from tests.support.refusals import refused
from tfbert.config.data import DataConfig
from tfbert.data.files import read_file
from tfbert.data.rows import open_rows
from tfbert.errors import UsageError
from tfbert.tasks.classification.classification import read_labelled
from tfbert.tasks.tables import load_data

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
