"""`train`, `validation` and `test` from memory: the run is that of the same rows in files, also killed and resumed."""

import copy
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.processes import ROOT
from tests.support.refusals import refused
from tests.support.runs import assert_same_bits, steps_logged, stop_at, undrawn, weights
from tests.support.task_runs import CHOICES, LABELS, QUESTIONS, SENTENCES, write_tasks
from tfbert.config.run import FINETUNE
from tfbert.python import config_of
from tfbert.tasks.registry import detect_task
from tfbert.tasks.tables import load_data
from tfbert.train.resume import decide


def rows_of(path):
    """The rows of a .tsv file, the labels as numbers."""
    with path.open() as file:
        return [row | {"label": int(row["label"])} for row in csv.DictReader(file, delimiter="\t")]


def pairs_of(path):
    return [(row["sentence"], row["label"]) for row in rows_of(path)]


def frame_of(path):
    return pytest.importorskip("pandas").DataFrame(rows_of(path))


def arguments(corpus, name, **options):
    """A run of 6 updates that saves at each third."""
    common = {"model": corpus / "model", "max_seq_length": 16, "global_batch_size": 8, "num_train_epochs": 1}
    common |= {"learning_rate": 5e-4, "save_steps": 3, "logging_steps": 1}
    return common | {"output_dir": corpus / name} | options


def call(corpus, name, **options):
    with undrawn():
        return tfbert.finetune(**arguments(corpus, name, **options))


def data_of(**data):
    config = detect_task(config_of(FINETUNE, None, {"model": "scratch/tiny"}, data)).resolved()
    return load_data(config.data, config.task_options)


def assert_same_examples(found, expected):
    pairs = zip(found.sets.values(), expected.sets.values(), strict=True)
    for ours, theirs in ((found.train, expected.train), *pairs):
        assert ours.checksum("", 0) == theirs.checksum("", 0)
        assert ours.labels.dtype == theirs.labels.dtype


@pytest.mark.parametrize("form", [frame_of, pairs_of])
def test_a_table_holds_the_examples_of_the_file(form, corpus):
    """tests/data/test_given_kinds.py has every kind of table."""
    train, dev = corpus / "train.tsv", corpus / "dev.tsv"
    expected, found = data_of(train=train, validation=dev), data_of(train=form(train), validation=form(dev))
    assert found.task == expected.task and list(found.sets) == list(expected.sets) == ["validation"]
    assert_same_examples(found, expected)
    held = [data_of(train=data, validation=0.25).validation["validation"] for data in (train, form(train))]
    assert held[0].text == held[1].text and len(held[0]) == 11


@pytest.mark.parametrize("first, then", [("file", frame_of), pytest.param(pairs_of, "file", marks=pytest.mark.slow)])
def test_a_run_from_a_file_resumes_from_memory_and_the_other_way_round(first, then, corpus, monkeypatch, caplog):
    """That both hold the same examples is shown above; that it ends in the same bits, for the second pair."""
    files = {"train": corpus / "train.tsv"}
    if then == "file":  # What is evaluated need not be shown twice.
        files |= {"validation": corpus / "dev.tsv", "test": corpus / "dev.tsv"}

    def given(form):
        return files if form == "file" else {name: form(path) for name, path in files.items()}

    with monkeypatch.context() as patch, pytest.raises(tfbert.Preempted):
        stop_at(patch, 4)
        call(corpus, "killed", **given(first))
    rows = rows_of(files["train"])
    rows[7]["sentence"] += " good"
    with pytest.raises(tfbert.UsageError, match="order of batches and precision. Received: .* train_crc32="):
        call(corpus, "killed", **given("file") | {"train": rows})
    with caplog.at_level("INFO", "tfbert"):
        results = call(corpus, "killed", **given(then))
    assert "resuming at step 4 of 6" in caplog.text
    if then != "file":
        return
    whole = call(corpus, "whole", **files)
    assert_same_bits(weights(corpus / "killed"), weights(corpus / "whole"))
    exact = [name for name in whole if name.startswith(("eval_", "test_")) and not name.endswith(("runtime", "second"))]
    assert {name: results[name] for name in exact} == {name: whole[name] for name in exact}


def test_a_run_that_saved_nothing_yet_starts_from_data_of_another_form(corpus):
    def config(**data):
        return config_of(FINETUNE, None, arguments(corpus, "run"), data).resolved()

    train, dev, run = corpus / "train.tsv", corpus / "dev.tsv", corpus / "run"
    run.mkdir()
    (run / "run_config.json").write_text(config(train=train, validation=dev).to_json())
    with pytest.raises(tfbert.UsageError, match="train_file=.* before and .* now"):
        decide(run, config(train=dev, validation=dev))
    assert "it starts at the beginning" in decide(run, config(train=rows_of(train), validation=dev)).notes[0]


def test_what_is_recorded_is_the_name_of_the_data(corpus):
    given = {"train": frame_of(corpus / "train.tsv"), "validation": pairs_of(corpus / "dev.tsv")}
    config = config_of(FINETUNE, None, {"model": "scratch/tiny"}, given)
    assert copy.deepcopy(config).data.train_file is config.resolved().data.train_file
    assert config.source == "DataFrame of 44 rows"
    data = json.loads(config.to_json())["data"]
    assert data["train_file"] == "train=DataFrame of 44 rows"
    assert data["validation_file"] == "validation=pairs of 12 rows"
    with pytest.raises(tfbert.UsageError, match="the name of data that was in memory: pass the data to tfbert.finetun"):
        tfbert.Config.from_json(config.to_json())


def test_several_validation_sets_have_names(corpus):
    dev = corpus / "dev.tsv"
    sets = {"own": rows_of(dev)[:4], "theirs": dev, "paired": pairs_of(dev), "framed": frame_of(dev)}
    found = data_of(train=dev, validation=sets).validation
    assert [*found] == [f"validation_{name}" for name in sets]
    assert [len(part) for part in found.values()] == [4, 12, 12, 12]
    columns = {name: [row[name] for row in rows_of(dev)] for name in ("sentence", "label")}
    assert [*data_of(train=dev, validation=columns).validation] == ["validation"]
    found = data_of(train=dev, validation={"a": pairs_of(dev), "b": pairs_of(dev)}).validation
    assert [*found] == ["validation_a", "validation_b"]


CLASHING = [
    ({"train": ""}, "train is rows or a path. Received: train=''. Pass"),
    ({"train": [("a", 1)], "validation": ""}, "validation is rows or a path. Received: validation=''. Pass"),
    ({"train": [("a", 1)], "train_file": "x.tsv"}, "train and train_file are one option"),
    ({"train": [("a", 1)], "validation": 0.1, "validation_split": 0.2}, "validation and validation_split are one"),
    ({"train": [("a", 1)], "validation": 1}, "above 0 and below 1. Received: validation_split=1.0. Pass"),
    ({"train": [("a", 1)], "validation": True}, "validation must be a path, a DataFrame"),
    ({"train": [("a", 1)], "input_format": "csv"}, "input_format takes effect with files only"),
    ({"train": [("a", 1)], "dataset": "glue/rte"}, "from a data set or from files, not both"),
    ({"train": {"train": [{"a": 1}]}}, "train is one set"),
    ({"train": [("a", 1)], "validation": {"a/b": [{"a": 1}]}}, "The name of a validation set has letters"),
    ({"train": [("a", 1)], "validation": {"a": "no/such.tsv"}}, "validation_file must be a file"),
    ({"vallidation": 0.1}, "Did you mean validation?"),
    ({"train_df": [("a", 1)]}, "Did you mean train?"),
    ({"val": 0.1}, "Here it is --validation_file."),
    ({"validation": [("a", 1)]}, "Training from files needs a training file"),
]


@pytest.mark.parametrize("options, said", CLASHING)
def test_what_does_not_go_together_is_refused_in_a_line(options, said):
    with refused(said):
        tfbert.finetune(model="scratch/tiny", **options)


def test_a_data_set_of_tensorflow_is_refused_with_the_line_that_reads_it():
    data = tf.data.Dataset.from_tensors("a")  # Not at import, which would set TensorFlow up in the runs below.
    with refused(r"Received: train=.* Pass list\(data.as_numpy_iterator\(\)\)"):
        tfbert.finetune(model="scratch/tiny", train=data)


def test_a_saved_model_is_evaluated_on_data_in_memory_as_on_its_file(runs, tmp_path):
    dev = runs / "dev.tsv"
    options = {"output_dir": tmp_path, "quiet": True}
    found = tfbert.evaluate(runs / "single", validation=rows_of(dev), test=dev, **options)
    exact = {name: value for name, value in found.items() if not name.endswith(("runtime", "second"))}
    tested = {name.removeprefix("test_"): value for name, value in exact.items() if name.startswith("test_")}
    assert tested == {name.removeprefix("eval_"): value for name, value in exact.items() if name.startswith("eval_")}
    trained = json.loads((runs / "single" / "all_results.json").read_text())
    assert found["eval_accuracy"] == pytest.approx(trained["eval_accuracy"], abs=1e-5) and found["eval_samples"] == 21
    assert json.loads((tmp_path / "eval_results.json").read_text()) == found


NOT_EVALUATED = [
    ({"train": [("a", 1)]}, "train is for another mode"),
    ({"validation": 0.1}, "validation_split is for another mode"),
    ({"learning_rate": 1.0}, "learning_rate is for another mode"),
    ({"vallidation": 1}, "Did you mean validation?"),
    ({}, "Evaluation needs labelled examples"),
]


@pytest.mark.parametrize("options, said", NOT_EVALUATED)
def test_what_an_evaluation_does_not_take_is_refused(options, said):
    with pytest.raises(tfbert.UsageError, match=said):
        tfbert.evaluate("somewhere", **options)


def test_pretraining_takes_no_rows():
    with pytest.raises(tfbert.UsageError, match="Received: train=.* Pre-training reads records"):
        tfbert.pretrain(train=[("a", 1)])


def records_of(task, path):
    """The rows of a file of `write_tasks`, as Python has them."""
    if task == SENTENCES:
        lines = [[line.split("\t") for line in block.splitlines()] for block in path.read_text().strip().split("\n\n")]
        return [{"tokens": [word for word, _, _ in rows], "tags": [tag for _, _, tag in rows]} for rows in lines]
    if task in (CHOICES, LABELS):
        return [json.loads(line) for line in path.read_text().splitlines()]
    paragraphs = [p for article in json.loads(path.read_text())["data"] for p in article["paragraphs"]]
    return [question | {"context": p["context"]} for p in paragraphs for question in p["qas"]]


ENDINGS = {"texts": ".tsv", SENTENCES: ".conll", QUESTIONS: ".json", CHOICES: ".jsonl", LABELS: "-labels.jsonl"}
PROGRAM = """\
import json, os, pathlib, random, sys
import pandas, tfbert
from tests.python.test_data import ENDINGS, records_of, rows_of
task, form, directory, name, *options = sys.argv[1:]
directory, options = pathlib.Path(directory), json.loads(options[0])
ending = ENDINGS[task]
paths = [directory / f"{name}{ending}" for name in ("train", "dev")]
rows = [rows_of(path) if task == "texts" else records_of(task, path) for path in paths]
if form == "shuffled":
    random.Random(json.loads(os.environ["TF_CONFIG"])["task"]["index"]).shuffle(rows[0])
train, dev = paths if form == "file" else map(pandas.DataFrame, rows) if form == "frame" else rows
tfbert.finetune(
    model="scratch/tiny", vocab_file=directory / "vocab.txt", train=train, validation=dev, output_dir=directory / name,
    global_batch_size=8, learning_rate=3e-3, logging_steps=1, save_steps=3, **options,
)
"""
SIZES = {"texts": {}, SENTENCES: {}, CHOICES: {"task": CHOICES, "max_seq_length": 24}}
SIZES |= {QUESTIONS: {"version_2_with_negative": True, "doc_stride": 9, "max_query_length": 5, "max_seq_length": 24}}
SIZES |= {LABELS: {"task": LABELS, "label_threshold": "auto_per_label"}}


def words_of(task, form, directory, name, **options):
    """The command that runs the program above."""
    program = directory / "program.py"
    program.write_text(PROGRAM)
    return [str(program), task, form, str(directory), name, json.dumps({"max_seq_length": 16} | SIZES[task] | options)]


def start(words, **options):
    options |= {"cwd": ROOT, "env": os.environ | {"PYTHONPATH": str(ROOT)}, "start_new_session": True}
    return subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, **options)


def end(process):
    """Waits for a process; its exit status, and the end of what it wrote to stderr."""
    _, errors = process.communicate(timeout=900)
    return process.returncode, errors.decode()[-4000:]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills by process group")
@pytest.mark.parametrize("task", SIZES)
def test_a_call_that_is_killed_and_repeated_with_data_of_other_forms_ends_in_the_same_bits(task, corpus):
    """Two replicas, dropout on; killed at three random times, each time resumed from another form of the data."""
    pytest.importorskip("pandas")
    if task != "texts":
        write_tasks(corpus)
    options = {"strategy": "mirrored", "num_replicas": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 12}
    assert end(start(words_of(task, "file", corpus, "whole", **options)))[0] == 0
    rng, killed = random.Random(int(os.environ.get("TFBERT_KILL_SEED", "7"))), 0
    for form in ("file", "frame", "records"):
        process = start(words_of(task, form, corpus, "killed", **options))
        until, limit = steps_logged(corpus / "killed") + rng.randrange(2, 9), time.monotonic() + 300
        while steps_logged(corpus / "killed") < until and process.poll() is None:
            assert time.monotonic() < limit
            time.sleep(0.05)
        killed += process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        end(process)
    status, errors = end(start(words_of(task, "frame", corpus, "killed", **options)))
    assert (status, killed) == (0, 3), errors
    assert_same_bits(weights(corpus / "killed"), weights(corpus / "whole"))


@pytest.mark.slow
@pytest.mark.multi_worker
def test_each_worker_passes_its_own_copy_and_others_are_refused(corpus):
    pytest.importorskip("pandas")
    launched = ["-m", "tfbert.launch", "--num_workers=2", "--"]
    assert end(start(words_of("texts", "file", corpus, "one", max_steps=3)))[0] == 0
    options = {"strategy": "multi_worker", "max_steps": 3}
    status, errors = end(start([*launched, *words_of("texts", "frame", corpus, "two", **options)]))
    assert status == 0, errors
    for name, value in weights(corpus / "one").items():
        np.testing.assert_allclose(weights(corpus / "two")[name], value, atol=2e-6, err_msg=name)
    process = start([*launched, *words_of("texts", "shuffled", corpus, "other", **options)], stdout=subprocess.PIPE)
    output, errors = process.communicate(timeout=900)
    assert process.returncode and b"All workers must have the same examples, in the same order" in output + errors
    assert not (corpus / "other" / "run_config.json").exists()
