"""`tfbert.sweep`: the same runs as the command's `--sweep`, and rows of what they gave."""

import io
import json
import pathlib
import pickle
import sys

import numpy as np
import pytest
from pyarrow import parquet

import tfbert
from tests.support.sweeps import FakeRuns, files_in
from tfbert.config.data import DataConfig
from tfbert.config.run import FINETUNE
from tfbert.config.types import Given
from tfbert.data.files import read_file
from tfbert.data.in_memory import given_table
from tfbert.data.reading import GivenTable, make_table
from tfbert.data.rows import open_rows
from tfbert.errors import UsageError
from tfbert.launch import launcher
from tfbert.launch.launcher import Signals
from tfbert.python import finetune as module
from tfbert.python.finetune import config_of, on_disk
from tfbert.tasks.tables import load_data


def sweep_xla(directory, **options):
    """A sweep of one run."""
    options = {"model": "scratch/tiny", "quiet": True} | options
    return tfbert.sweep({"xla": [True]}, output_dir=directory, **options)


@pytest.fixture
def fake(monkeypatch):
    fake = FakeRuns()
    monkeypatch.setattr(launcher, "run_to_its_end", lambda command, variables, signals, **_: fake(command, {}, signals))
    return fake


def test_a_call_trains_the_grid_and_gives_its_table(fake, tmp_path):
    (tmp_path / "train.tsv").touch()
    options = {"train_file": tmp_path / "train.tsv", "validation_file": tmp_path / "train.tsv"}
    options |= {"model": "scratch/tiny", "quiet": True}
    values = {"learning_rate": np.array([1e-5, 3e-5]), "xla": [True, False]}
    found = tfbert.sweep(values, seeds=[1, 2], output_dir=tmp_path / "out", **options)
    assert fake.started[:2] == ["learning_rate=1e-05,xla=true,seed=1", "learning_rate=1e-05,xla=true,seed=2"]
    assert len(fake.started) == 8 and found.directory == tmp_path / "out" and found.decisive == "eval_accuracy"
    written = json.loads((tmp_path / "out" / "sweep.json").read_text())["points"]
    assert [row["eval_accuracy"] for row in found] == [point["mean"]["eval_accuracy"] for point in written]
    assert found[0]["learning_rate"] == 3e-5 and found[0]["eval_accuracy_std"] > 0
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.directory) == (found, found.directory)
    assert tfbert.sweep(values, seeds=[1, 2], output_dir=tmp_path / "out", **options) == found
    assert len(fake.started) == 8


def test_data_in_memory_is_read_from_files_that_hold_the_same(fake, tmp_path):
    texts, labels = ["good, or", 'so "what"', "bad\nline", "ü"], [1, 0, 1, 0]
    given = {"train": {"text": texts, "label": labels}, "validation": {"a": list(zip(texts, labels, strict=True))}}
    given |= {"model": "scratch/tiny"}
    tfbert.sweep({"learning_rate": [1e-5]}, **given, output_dir=tmp_path / "out", quiet=True)
    data = json.loads((tmp_path / "out" / "learning_rate=1e-05" / "run_config.json").read_text())["data"]
    assert data["train_file"] == str(tmp_path / "out" / "data" / "train.parquet")
    assert data["validation_file"] == str(tmp_path / "out" / "data" / "a.parquet")
    for path in (data["train_file"], data["validation_file"]):
        assert parquet.read_table(path).to_pydict() == {"text": texts, "label": labels}
    assert tfbert.sweep({"learning_rate": [1e-5]}, **given, output_dir=tmp_path / "out", quiet=True)
    assert len(fake.started) == 1


def rows_of(table):
    """The columns of a table or a file, the rows of those whose names are their own, and the classes that it names."""
    file = open_rows(table, "parquet")
    once = [column for column in file.columns if file.columns.count(column) == 1]
    names = {column: file.label_names.get(column) for column in once}
    return file.columns, [row for _, row in file.read(once)], names


class Image:
    """What no file of rows can hold."""


COLUMNS = {"text": ["x", "y", "z"], "label": ["NA", "b", None], "genre": ["3", "2", "1"]}
CLASSES = {"label": ("b", "NA"), "genre": ("1", "2", "3")}


def two_classes():
    """As a Dataset of Hugging Face with two columns of classes is read; NA is a class where it is said to be one."""
    columns = list(COLUMNS)
    read = lambda places: zip(*(COLUMNS[columns[place]] for place in places), strict=True)  # noqa: E731
    return make_table("train", "Dataset", columns, 3, read, CLASSES)


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"text": ["a", "b"], "label": [1, 0]},
        lambda: {"text": ["a", "b", "c", "d"], "label": [1, "x", 2.5, True]},
        lambda: {"text": ["a", "b"], "label": [1, 2.0]},  # Arrow makes both 1.0 and 2.0.
        lambda: {"text": ["a", "b"], "label": [False, 0]},
        lambda: {"text": ["a", b"\xff"], "label": [1, None]},
        lambda: {"text": ["a", "b\ud800"], "label": [2**70, -1]},
        lambda: {"text": ["a", "b"], "label": [None, None], "n": [float("nan"), float("inf")]},
        lambda: [{"text": "a", "label": ["x"], "more": {"k": 1}}, {"text": "b", "label": [], "more": {"l": [1, "2"]}}],
        lambda: {"tokens": [["a", "b"], ["c"]], "ner_tags": [["O", "B-X"], [1]]},
        lambda: {"tokens": [["a", "b"], ["c"]], "ner_tags": [["O", "B-X"], ["O"]]},
        lambda: {"text": ["a", "b"], "labels": [[], []], "more": [{}, {}], "deep": [[[]], [[1, {}]]]},
        lambda: [{"question": "a", "context": "b", "answers": {"text": ["b"], "answer_start": [0]}} for _ in range(2)],
        lambda: {"text": ["a", "b"], "label": [[1, 0], [0.5, 1]]},
        lambda: pytest.importorskip("pandas").DataFrame(
            [["a", "b", 1], ["c", "d", 0]], columns=["text", "text", "label"]
        ),
        lambda: pytest.importorskip("pandas").DataFrame({"text": ["a", "b"], "label": [1, None]}, dtype=object),
        two_classes,
    ],
)
def test_what_is_written_for_the_runs_is_what_the_table_was(make, tmp_path):
    made = make()
    table = made if isinstance(made, GivenTable) else given_table("train", made)
    data = on_disk(DataConfig(train_file=Given(table.name, table)), tmp_path / "data", [])
    found, wanted = rows_of(pathlib.Path(data.train_file)), rows_of(table)
    assert repr(found[1]) == repr(wanted[1]).replace("b'\\xff'", "{'bytes': None}")  # Neither is text.
    assert (found[0], found[2]) == (wanted[0], wanted[2]) and data.label_names == ()
    written = files_in(tmp_path)
    on_disk(DataConfig(train_file=Given(table.name, table)), tmp_path / "data", [])
    assert files_in(tmp_path) == written


def test_each_column_of_classes_keeps_its_own_names(tmp_path):
    table = two_classes()
    data = on_disk(DataConfig(train_file=Given(table.name, table)), tmp_path / "data", [])
    for column, names in CLASSES.items():
        options = DataConfig(label_column=column, skip_bad_rows=True)
        for found in (read_file(table, options), read_file(data.train_file, options, names_ids=True)):
            assert found.label_names == names and found.labels == [text for text in COLUMNS[column] if text]


def test_columns_that_nobody_reads_may_hold_anything(fake, tmp_path):
    columns = {"text": ["a", "b"] * 4, "label": [0, 1] * 4, "image": [Image(), None] * 4, "day": [{1}, 2] * 4}
    for _ in range(2):  # Another object each time, of which nothing is told apart.
        given = columns | {"image": [Image() for _ in range(8)], "day": [np.datetime64("2026-11-26")] * 8}
        assert sweep_xla(tmp_path / "out", train=given, validation=0.5)
    assert len(fake.started) == 1
    table = read_file(tmp_path / "out" / "data" / "train.parquet")
    assert (table.text, table.labels) == (columns["text"], ["0", "1"] * 4)
    with pytest.raises(UsageError, match="A label must be a word"):
        read_file(tmp_path / "out" / "data" / "train.parquet", DataConfig(label_column="image"))


def test_rows_that_cannot_be_read_are_refused_or_left_out_as_everywhere(fake, tmp_path):
    rows = [{"text": "a", "label": 1}, "b", {"text": "c", "label": 0}]
    with pytest.raises(UsageError, match="Each record is a dictionary. Received: 'b' .*in train, row 2"):
        sweep_xla(tmp_path / "out", train=rows, validation=rows[:1])
    assert fake.started == [] and not (tmp_path / "out").exists()
    assert sweep_xla(tmp_path / "out", train=rows, validation=rows[:1], skip_bad_rows=True)
    assert read_file(tmp_path / "out" / "data" / "train.parquet", DataConfig(skip_bad_rows=True)).text == ["a", "c"]


TEXTS, LABELS = ["good", "bad", "fine", "poor"], ["pos", "neg", "pos", "neg"]
ROWS = list(zip(TEXTS, LABELS, strict=True))
GIVEN = {"train": ROWS, "validation": {"a": ROWS, "b": ROWS[1:]}, "test": ROWS[:2]}


@pytest.mark.parametrize(
    "other, said",
    [
        ({"train": [*ROWS[:3], ("poor", "pos")]}, "train=pairs of 4 rows and .*, a run with other data"),
        ({"train": [*ROWS[:3], ("Poor", "neg")]}, "train=pairs of 4 rows and"),
        ({"train": ROWS[::-1]}, "train=pairs of 4 rows and"),
        ({"train": ROWS * 2}, "train=pairs of 8 rows and"),
        ({"train": {"text": TEXTS, "label": LABELS, "id": [1, 2, 3, 4]}}, "train=columns of 4 rows and"),
        ({"train": {"text": TEXTS, "label": [1, 0, 1, 0]}}, "train=columns of 4 rows and"),
        ({"validation": {"a": ROWS, "b": ROWS[:3]}}, "validation_b=pairs of 3 rows and"),
        ({"validation": {"a": ROWS, "c": ROWS[1:]}}, "validation_c=pairs of 3 rows and"),
        ({"validation": ROWS}, "validation=pairs of 4 rows and"),
        ({"test": ROWS[1:3]}, "test=pairs of 2 rows and"),
    ],
)
@pytest.mark.parametrize("is_done", [True, False])
def test_a_sweep_again_with_other_data_is_refused_before_anything_is_written(fake, tmp_path, other, said, is_done):
    table = sweep_xla(tmp_path / "out", **GIVEN)
    if not is_done:
        (tmp_path / "out" / "xla=true" / "all_results.json").unlink()
        (tmp_path / "out" / "xla=true" / "checkpoints" / "step-00000004").mkdir(parents=True)
    before = files_in(tmp_path)
    with pytest.raises(UsageError, match=f"have the same data. Received: .*{said}"):
        sweep_xla(tmp_path / "out", **GIVEN | other)
    assert files_in(tmp_path) == before and len(fake.started) == 1
    if is_done:  # The same in another form is the same.
        assert sweep_xla(tmp_path / "out", **GIVEN | {"train": dict(text=TEXTS, label=LABELS)}) == table
        assert len(fake.started) == 1
        assert sweep_xla(tmp_path / "out", **GIVEN | other, overwrite_output_dir=True)
        assert len(fake.started) == 2


def test_data_may_be_repaired_while_there_is_no_run(fake, tmp_path):
    """A run that was refused wrote nothing, and one without a checkpoint starts at the beginning."""
    turned = GIVEN | {"train": ROWS[::-1]}
    fake._statuses = {"xla=true": 2}
    with pytest.raises(UsageError, match="which was refused"):
        sweep_xla(tmp_path / "out", **GIVEN)
    fake._statuses = {}
    assert sweep_xla(tmp_path / "out", **GIVEN)
    (tmp_path / "out" / "xla=true" / "all_results.json").unlink()
    assert sweep_xla(tmp_path / "out", **turned)
    (tmp_path / "out" / "data" / "train.parquet").unlink()  # To save space: it is written again.
    assert sweep_xla(tmp_path / "out", **turned)
    with pytest.raises(UsageError, match="a run with other data"):  # No run has read such a set.
        sweep_xla(tmp_path / "other", train=turned["train"], validation=GIVEN["validation"])
        sweep_xla(tmp_path / "other", **turned)


def test_the_names_and_the_order_of_classes_are_those_of_the_table(tmp_path):
    """Also where another column has names too."""
    datasets = pytest.importorskip("datasets")
    kinds = {"label": datasets.ClassLabel(names=["b", "a"]), "other": datasets.ClassLabel(names=["x", "y", "z"])}
    features = datasets.Features({"text": datasets.Value("string"), **kinds})
    rows = {"text": ["good", "bad", "fine"], "label": [0, 1, 1], "other": [2, 0, 1]}
    data = config_of(FINETUNE, None, {"model": "m"}, {"train": datasets.Dataset.from_dict(rows, features)}).data
    written = load_data(on_disk(data, tmp_path, []))
    assert written.task == load_data(data).task and written.task.label_names == ("b", "a")
    assert written.train.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (({"lerning_rate": [1, 2]},), {}, "Did you mean learning_rate"),
        (({"learning_rate": []},), {}, "an empty one"),
        (({"learning_rate": 1e-5},), {}, r"a list of values\. Received: learning_rate=1e-05"),
        (({"learning_rate": "1e-5,3e-5"},), {}, "a list of values"),
        (({"learning_rate": [1e-5, None]},), {}, "learning_rate must be a number. Received: 'None'"),
        (({},), {}, "a dictionary"),
        (({"learning_rate": [1e-5]},), {"learning_rate": 1e-4}, "takes the place of learning_rate"),
        (({"learning_rate": [1e-5]},), {"epochs": 1}, "num_train_epochs"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_runs(fake, tmp_path, arguments, options, message):
    with pytest.raises(UsageError, match=message):
        tfbert.sweep(*arguments, output_dir=tmp_path / "out", **options)
    assert fake.started == [] and not (tmp_path / "out").exists()


def test_a_run_is_shown_where_this_process_shows_its_own_output(monkeypatch):
    """A notebook replaces `sys.stderr`: what a child writes on its own would not be seen there."""
    command = [sys.executable, "-c", "import sys; print('out'); print('warning: few', file=sys.stderr); sys.exit(7)"]
    plain, red = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", plain)
    monkeypatch.setattr(sys, "stderr", red)
    with Signals() as signals:
        assert module._start(False, command, {}, signals) == 7
        assert module._start(True, command, {}, signals) == 7
    assert (plain.getvalue(), red.getvalue()) == ("out\n", "warning: few\n")
