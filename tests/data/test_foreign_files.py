"""Files as other programs write them: another encoding, Excel's first line, arrays of JSON, a wrong ending."""

import bz2
import csv
import dataclasses
import gzip
import io
import json
import os
import pathlib
import threading

import pytest

from tests.support.flag_values import SCRATCH
from tests.support.refusals import refused
from tfbert.config.data import DataConfig
from tfbert.config.modes import ModelConfig, PredictConfig
from tfbert.config.run import Config
from tfbert.data.files import read_file
from tfbert.data.reading import ROWS, WORDS
from tfbert.data.rows import file_format, input_source, open_rows
from tfbert.errors import UsageError
from tfbert.tasks.question_answering.squad import holds_questions
from tfbert.tasks.registry import detect_task
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.tagged import read_sentences

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
    "lists": (
        {"text": ["a film", "bad"], "label": [0, 1]},
        "with 'text', 'label'. Convert|Every row needs a text",
    ),
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
