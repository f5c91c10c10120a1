"""Rows as they are read: blank lines, and CSV with quotes that are never closed."""

import csv
import io
import itertools
import json
import pathlib

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tfbert.data import rows
from tfbert.errors import UsageError


def read(content, format, *, header=True):
    """(line, values) of each row; `None` for one that cannot be read."""
    file = rows.open_rows(io.BytesIO(content.encode()), format, header=header)
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
    file = rows.open_rows(Endless(), "csv")
    with pytest.raises(
        UsageError, match=r"field larger than field limit \(1000\) in the row of standard input, line 2"
    ):
        list(file.read(["text"]))
    csv.field_size_limit(rows._FIELD_CHARACTERS)


class Endless(io.BytesIO):
    def __iter__(self):
        return itertools.chain([b"text,label\n", b'"stray,1\n'], itertools.repeat(b"good,0\n"))


def test_a_time_that_python_has_no_form_for(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"id": pyarrow.array([10**15], pyarrow.timestamp("ms"))}), path)
    with pytest.raises(UsageError, match=r"Received: .*a\.parquet \(.+\)\. Write it again"):
        list(rows.open_rows(path, "parquet").read(["id"]))


def test_a_txt_of_tagged_words_needs_its_task():
    with pytest.raises(UsageError, match="words with a tag each need --task=token_classification"):
        rows.file_format(pathlib.Path("train.txt"))


def test_a_key_that_comes_too_late_to_be_a_column_is_told_of_once(caplog):
    early, late = {"text": "a", "label": 0}, {"text": "b", "text_pair": "c", "label": 1}
    objects = [early] * rows._ROWS_OF_KEYS + [late, late, early, {"text": "d", "note": 1}]
    file = rows.open_rows(io.BytesIO("".join(json.dumps(row) + "\n" for row in objects).encode()), "jsonl")
    assert file.columns == ["text", "label"]
    assert len(list(file.read(file.columns))) == len(objects)
    first, second = (record.message for record in caplog.records)
    assert "line 1001 has 'text_pair', which no row before it has" in first
    assert "line 1004 has 'note'" in second
    of_a_list = rows.open_rows(io.BytesIO(json.dumps(objects).encode()), "jsonl")
    assert of_a_list.columns == ["text", "label", "text_pair", "note"], "a list is known whole"


@pytest.mark.parametrize("indent", [None, 1])
def test_one_json_text_is_read_whole_up_to_a_size(indent, monkeypatch):
    monkeypatch.setattr(rows, "_MOST_CHARACTERS", 100)
    text = json.dumps([{"text": "a", "label": 0}] * 10, indent=indent).encode()
    with pytest.raises(UsageError, match=r"read whole.*with more\. Write an object a line; docs/other_formats\.md"):
        rows.open_rows(io.BytesIO(text), "jsonl")
