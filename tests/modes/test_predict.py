"""`--mode=predict`: labels as transformers gives them, every format in and out, bad rows, GLUE's files."""

import csv
import decimal
import functools
import gzip
import io
import json
import sys
import types
from datetime import date, datetime

import numpy as np
import pyarrow
import pytest
import tensorflow_datasets as tfds
from pyarrow import parquet
from scipy.special import softmax

from tests.support import saved_models as saved
from tests.support.data_sets import PAIR, prepare
from tests.support.flag_values import configured
from tests.support.processes import command
from tests.support.refusals import refused
from tests.support.saved_models import predict_with as run
from tests.support.saved_models import read_json, reference_logits_of
from tfbert import RunError, UsageError
from tfbert.data.reading import BadRows
from tfbert.data.rows import open_rows
from tfbert.modes.predict import ahead
from tfbert.output import logs
from tfbert.tasks import prediction as items_module
from tfbert.tasks.prediction import table_job
from tfbert.tasks.text_task import TextItems

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
TEXTS = ["good film", "the plot was bad and very slow " * 3, "", "dull", "a bright cast"]


def read_tsv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(scope="module")
def expected(runs):
    """transformers' logits for TEXTS."""
    return reference_logits_of(runs / "single", TEXTS)


def write_texts(path, texts=TEXTS):
    """The texts in the format that the path's ending says."""
    lines = [json.dumps({"text": text}) if path.suffix == ".jsonl" else text for text in texts]
    path.write_text("".join(f"{line}\n" for line in ["text"] * (path.suffix == ".tsv") + lines))
    return path


def test_a_file_of_predictions_is_what_transformers_says(runs, tmp_path):
    labels, logits = saved.reference_logits(runs / "single", runs / "dev.tsv")
    results = run(runs, input_file=runs / "dev.tsv", output_file=tmp_path / "out" / "labels.tsv")
    rows = read_tsv(tmp_path / "out" / "labels.tsv")
    assert list(rows[0]) == ["id", "label", "probability_0", "probability_1"]
    assert [row["id"] for row in rows] == [str(i) for i in range(21)]
    assert [int(row["label"]) for row in rows] == logits.argmax(axis=1).tolist()
    chances = softmax(logits, axis=1)
    found = [[float(row["probability_0"]), float(row["probability_1"])] for row in rows]
    np.testing.assert_allclose(found, chances, atol=1e-5)
    assert (results["predict_samples"], results["predict_skipped_rows"]) == (21, 0)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["labels.tsv"]

    run(runs, input_file=runs / "dev.tsv", output_file=tmp_path / "labels.jsonl")
    objects = read_json(tmp_path / "labels.jsonl")
    np.testing.assert_allclose([row["logits"] for row in objects], logits, atol=1e-5)
    names = saved.label_names(runs / "single")
    assert [row["label"] for row in objects] == [names[i] for i in logits.argmax(axis=1)]
    found = [[row["probabilities"][name] for name in names] for row in objects]
    np.testing.assert_allclose(found, chances, atol=1e-5)


def test_order_and_ids_hold_over_many_chunks_and_on_two_replicas(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(TextItems, "most", 7)
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(["good", "bad", "film", "slow"], rng.integers(1, 14))) for _ in range(40)]
    expected = reference_logits_of(runs / "single", texts)
    path = tmp_path / "in.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("label,idx,sentence\n" + "".join(f"?,n{i * 3},{text}\n" for i, text in enumerate(texts)))
    two = {"strategy": "mirrored", "num_replicas": 2, "per_device_eval_batch_size": 2}
    for options, name in (({}, "one.jsonl"), (two, "two.jsonl")):
        run(runs, input_file=path, output_file=tmp_path / name, **options)
        rows = read_json(tmp_path / name)
        assert [row["id"] for row in rows] == [f"n{i * 3}" for i in range(40)]
        np.testing.assert_allclose([row["logits"] for row in rows], expected, atol=1e-5)


def test_progress_counts_examples_while_a_chunk_is_computed(runs, tmp_path, monkeypatch, logged):
    monkeypatch.setattr(logs, "_SECONDS_BETWEEN_LINES", 0)
    path = write_texts(tmp_path / "in.txt", ["good film", "bad"] * 5)
    run(runs, input_file=path, output_file=tmp_path / "out.jsonl", per_device_eval_batch_size=3)
    counts = [line.split(", ")[0] for line in logged() if line.endswith(" examples/s")]
    assert counts == [f"predicting: {n} examples" for n in (3, 6, 9, 10)]


def chunks_of(file, id_column, bad_rows):
    """Its rows as items of a model of single texts."""
    config = configured("predict", model="m", input_file="-", id_column=id_column)
    items = TextItems(saved.model_with(["a", "b"]))
    return items.chunks(table_job(config, file, ("text",), format="tsv").items(items, bad_rows))


def test_chunks_end_where_texts_are_long(monkeypatch, tmp_path):
    monkeypatch.setattr(items_module, "CHUNK_CHARACTERS", 100)
    file = open_rows(write_texts(tmp_path / "in.txt", ["x" * 60] * 5), "text")
    assert [[item.name for item in chunk] for chunk in chunks_of(file, "", BadRows(False))] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("format, name", [("jsonl", "in.jsonl"), slow("auto", "in.txt")])
def test_standard_input_to_standard_output(runs, tmp_path, monkeypatch, capsys, expected, format, name):
    content = write_texts(tmp_path / name).read_bytes()
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
    run(runs, input_file="-", input_format=format)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out), delimiter="\t"))
    assert [int(row["label"]) for row in rows] == expected.argmax(axis=1).tolist()


def test_texts_of_the_command_line_are_answered_in_json(runs, capsys, expected):
    run(runs, text=TEXTS)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4]
    np.testing.assert_allclose([row["logits"] for row in rows], expected, atol=1e-5)
    with pytest.raises(UsageError, match="Pass --text without --text_pair, or a model for pairs"):
        run(runs, text=("a",), text_pair=("b",))
    with pytest.raises(UsageError, match="Pass a --text_pair for each --text, or a model for single texts"):
        run(runs, "pairs", text=("a",))


def test_hostile_text_is_answered_and_bytes_are_noted(runs, tmp_path, caplog):
    """The reference drops bytes that are not UTF-8, and lets no text write control tokens."""
    path = tmp_path / "in.tsv"
    path.write_bytes(b"text\tx\n" + b"".join(text + b"\ty\n" for text in saved.HOSTILE))
    with caplog.at_level("INFO", "tfbert"):
        run(runs, input_file=path, output_file=tmp_path / "out.jsonl")
    assert "left out of 1 text, the first 0xff in" in caplog.text and "line 9" in caplog.text
    empty = sum(not text.decode(errors="ignore").strip() for text in saved.HOSTILE)
    assert f"in.tsv: {empty} empty text" in caplog.text and "answered like any other" in caplog.text
    assert "in.tsv: no column of ids is known (--id_column): rows are numbered from 0" in caplog.text
    plain = [text.decode(errors="ignore") for text in saved.HOSTILE]
    plain[4] = "[ SEP ] good [ CLS ] film [ PAD ] [ UNK ] [ MASK ]"
    expected = reference_logits_of(runs / "single", plain)
    np.testing.assert_allclose([row["logits"] for row in read_json(tmp_path / "out.jsonl")], expected, atol=1e-5)


BROKEN = {
    "in.tsv": ("id\ttext\na\tgood\nb\nc\tbad\n", 3),
    "first.jsonl": ('nothing\n{"id": "a", "text": "good"}\n{"id": "c", "text": "bad"}\n', 1),
    "noid.jsonl": ('{"id": "a", "text": "good"}\n{"text": "good"}\n{"id": "c", "text": "bad"}\n', 2),
}
"""Of other formats: tests/data/test_files.py."""


@pytest.mark.parametrize("skip, message", [(None, r"Received: ' '\.$"), (False, "Or pass --skip_bad_rows")])
def test_what_was_typed_is_corrected_and_not_skipped(skip, message):
    with pytest.raises(UsageError, match=message):
        BadRows(skip).add(UsageError("A context must not be blank. Received: ' '."))


@pytest.mark.parametrize("name", [name if name in ("in.tsv", "first.jsonl") else slow(name) for name in BROKEN])
def test_a_broken_row_is_an_error_with_its_line_or_skipped_and_counted(runs, tmp_path, caplog, name):
    content, line = BROKEN[name]
    (tmp_path / name).write_text(content)
    options = {"input_file": tmp_path / name, "output_file": tmp_path / "out.tsv"}
    if name != "first.jsonl":  # There, no row is known to be whole before one has been found.
        with refused(rf"{name}.*line {line}\b.*--skip_bad_rows"):
            run(runs, **options)
        assert [path.name for path in tmp_path.iterdir()] == [name]
    with caplog.at_level("INFO", "tfbert"):
        results = run(runs, **options, skip_bad_rows=True)
    assert [row["id"] for row in read_tsv(tmp_path / "out.tsv")] == ["a", "c"]
    assert (results["predict_samples"], results["predict_skipped_rows"]) == (2, 1)
    assert f"line {line}" in caplog.text and "1 row skipped" in caplog.text
    assert "no column of ids" not in caplog.text


IDS = [
    ([datetime(2026, 1, 2, 3), datetime(2026, 1, 3)], ["2026-01-02 03:00:00", "2026-01-03 00:00:00"]),
    ([date(2026, 1, 2), None], ["2026-01-02"]),
    ([decimal.Decimal("1.50"), decimal.Decimal("2.00")], ["1.50", "2.00"]),
    ([1.5, float("nan")], [1.5]),
    ([True, False], [True, False]),
    ([b"a", b"b"], []),
    ([{"a": 1}, {"a": 2}], []),
]


@pytest.mark.parametrize(("ids", "written"), IDS)
def test_ids_that_json_cannot_hold(tmp_path, ids, written):
    parquet.write_table(pyarrow.table({"id": ids, "text": ["good", "bad"]}), tmp_path / "in.parquet")
    bad_rows = BadRows(True)
    file = open_rows(tmp_path / "in.parquet", "parquet")
    found = [item.name for chunk in chunks_of(file, "id", bad_rows) for item in chunk]
    assert json.loads(json.dumps(found, allow_nan=False)) == found == written
    assert bad_rows.count == 2 - len(written)


def test_columns_that_look_like_labels_do_not_matter(runs, tmp_path, expected):
    (tmp_path / "in.tsv").write_text("label\tLabel\ttext\n" + "".join(f"x\ty\t{text}\n" for text in TEXTS))
    run(runs, input_file=tmp_path / "in.tsv", output_file=tmp_path / "out.TSV.GZ")
    with gzip.open(tmp_path / "out.TSV.GZ", "rt") as file:  # An ending says the same in any case.
        rows = [*csv.DictReader(file, delimiter="\t")]
    assert [int(row["label"]) for row in rows] == expected.argmax(axis=1).tolist()


@pytest.mark.parametrize("name", ["out.tsv", slow("out.jsonl")])
def test_predictions_that_are_not_finite_are_no_predictions(runs, tmp_path, name):
    saved.save_with_nan(runs / "single", tmp_path / "broken", word="dull")
    write_texts(tmp_path / "in.txt")
    with pytest.raises(RunError, match=r"Received: \[nan nan\] for id 3 of .*in\.txt, .* are not\. Pass another"):
        run(tmp_path, "broken", input_file=tmp_path / "in.txt", output_file=tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "in.txt"]


def test_a_header_that_is_missing(runs, tmp_path, expected):
    (tmp_path / "in.tsv").write_text("".join(f"k{i}\t{text}\n" for i, text in enumerate(TEXTS)))
    options = {"input_file": tmp_path / "in.tsv", "output_file": tmp_path / "out.jsonl", "header": False}
    run(runs, text_column="1", id_column="0", **options)
    rows = read_json(tmp_path / "out.jsonl")
    assert [row["id"] for row in rows] == [f"k{i}" for i in range(5)]
    np.testing.assert_allclose([row["logits"] for row in rows], expected, atol=1e-5)


BAD = {
    "output exists": ("single", {"output_file": "{runs}/dev.tsv"}, "must not exist yet"),
    "output ending": ("single", {"output_file": "out.xls"}, r"ends in \.tsv, \.csv or \.jsonl,"),
    "input ending": ("single", {"input_file": "{runs}/vocab.doc"}, "A data file ends in"),
    "id": ("single", {"id_column": "key"}, "id_column='key' for .*dev.tsv with columns 'label', 'sentence'"),
    "pairs": ("pairs", {}, "trained on pairs of texts.*--text_column=FIRST,SECOND"),
    "single": ("single", {"input_file": "{runs}/pairs.tsv"}, "trained on single texts.*--text_column=COLUMN"),
    "GLUE labels": ("pairs", {"input_file": "{runs}/pairs.tsv", "glue_task": "rte"}, "must be those of the task"),
    "GLUE classes": ("scores", {"glue_task": "rte"}, "entailment, not_entailment. Received: a model for regression"),
    "GLUE regression": ("single", {"glue_task": "stsb"}, "those of the task: a score. Received: 0, 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_writes_nothing(runs, case, tmp_path, monkeypatch):
    (runs / "vocab.doc").write_text("good\n")
    monkeypatch.chdir(tmp_path)
    model, options, message = BAD[case]
    options = {"input_file": "{runs}/dev.tsv"} | options
    if "glue_task" not in options:
        options.setdefault("output_file", "out.tsv")
    before = sorted(runs.rglob("*"))
    with refused(message):
        run(runs, model, **{name: value.format(runs=runs) for name, value in options.items()})
    assert sorted(runs.rglob("*")) == before and not list(tmp_path.iterdir())


def test_glue_files_from_local_files(runs, tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n" + "".join(f"{9 - i}\t{text or 'x'}\n" for i, text in enumerate(TEXTS)))
    run(runs, input_file=path, glue_task="sst2", output_dir=tmp_path / "glue")
    logits = reference_logits_of(runs / "single", [text or "x" for text in TEXTS])
    lines = [f"{9 - i}\t{label}" for i, label in reversed(list(enumerate(logits.argmax(axis=1))))]
    assert (tmp_path / "glue" / "SST-2.tsv").read_text().splitlines() == ["index\tprediction", *lines]
    run(runs, "scores", input_file=path, glue_task="stsb", output_dir=tmp_path / "glue")
    scores = reference_logits_of(runs / "scores", [text or "x" for text in TEXTS])[::-1, 0]
    rows = read_tsv(tmp_path / "glue" / "STS-B.tsv")
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], np.clip(scores, 0, 5), atol=6e-4)


@pytest.mark.slow
def test_glue_files_from_a_data_set(tmp_path, monkeypatch):
    """MNLI has two test sets, whose examples TensorFlow Datasets shuffles."""
    words = ["entailment", "neutral", "contradiction"]
    saved.save_random(tmp_path / "mnli", words, num_texts=2)
    texts = {"test_matched": ["good film", "the plot", "bad", "slow"], "test_mismatched": ["dull", "fine cast"]}
    splits = {name: [(text, i, "a film", -1) for i, text in enumerate(part)] for name, part in texts.items()}
    prepare(tmp_path / "data", "tiny_mnli", PAIR, splits)
    real = tfds.builder
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir: real("tiny_mnli", data_dir=data_dir))
    run(tmp_path, "mnli", dataset="glue/mnli", data_dir=tmp_path / "data", output_dir=tmp_path / "glue")
    assert sorted(path.name for path in (tmp_path / "glue").iterdir()) == ["MNLI-m.tsv", "MNLI-mm.tsv"]
    for name, part in (("MNLI-m.tsv", "test_matched"), ("MNLI-mm.tsv", "test_mismatched")):
        logits = reference_logits_of(tmp_path / "mnli", texts[part], ["a film"] * len(texts[part]))
        lines = [f"{i}\t{words[label]}" for i, label in enumerate(logits.argmax(axis=1))]
        assert (tmp_path / "glue" / name).read_text().splitlines() == ["index\tprediction", *lines]


def test_things_made_ahead_keep_their_order_and_errors():
    assert list(ahead(range(100))) == list(range(100))
    assert list(ahead([])) == []

    def broken():
        yield 1
        raise UsageError("line 7")

    found = []
    with pytest.raises(UsageError, match="line 7"):
        for item in ahead(broken()):
            found.append(item)
    assert found == [1]


@pytest.mark.slow
def test_the_command_reads_a_pipe_and_exits(runs, tmp_path):
    words = ("--mode=predict", f"--model={runs / 'single'}", "--input_file=-")
    done = command(tmp_path, *words, "--output_format=jsonl", text="good film\nbad\n")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    assert "predicted 2 examples in" in done.stderr
    wrong = command(tmp_path, *words, "--learning_rate=1", "--seed=3")
    assert wrong.returncode == 2 and wrong.stdout == ""
    assert [line.split()[2] for line in wrong.stderr.splitlines()] == ["learning_rate", "seed"]
