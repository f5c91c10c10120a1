"""`tfbert.sweep`: the same runs as the command's `--sweep`, and rows of what they gave."""

import io
import json
import pickle
import sys

import numpy as np
import pytest
from pyarrow import parquet

import tfbert
from tests.support.sweeps import FakeRuns
from tfbert.config.commands import FINETUNE
from tfbert.errors import UsageError
from tfbert.launch.worker_group import Signals
from tfbert.modes import child
from tfbert.python import sweep as module
from tfbert.python.keywords import config_of
from tfbert.python.on_disk import on_disk
from tfbert.tasks.examples import load_data


@pytest.fixture
def fake(monkeypatch):
    fake = FakeRuns()
    monkeypatch.setattr(child, "run_to_its_end", lambda command, variables, signals, **_: fake(command, {}, signals))
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
    assert (
        tfbert.sweep(values, seeds=[1, 2], output_dir=tmp_path / "out", **options) == found and len(fake.started) == 8
    )


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
    with pytest.raises(UsageError, match="whose columns have one type each. Received: train=columns of 4 rows"):
        mixed = {"text": texts, "label": [1, "x", 2.5, []]}
        given |= {"train": mixed, "validation": 0.5, "output_dir": tmp_path / "b"}
        tfbert.sweep({"learning_rate": [1e-5]}, **given, quiet=True)


def test_the_names_and_the_order_of_classes_are_those_of_the_table(tmp_path):
    """Also where another column has names too."""
    datasets = pytest.importorskip("datasets")
    kinds = {"label": datasets.ClassLabel(names=["b", "a"]), "other": datasets.ClassLabel(names=["x", "y", "z"])}
    features = datasets.Features({"text": datasets.Value("string"), **kinds})
    rows = {"text": ["good", "bad", "fine"], "label": [0, 1, 1], "other": [2, 0, 1]}
    data = config_of(FINETUNE, None, {"model": "m"}, {"train": datasets.Dataset.from_dict(rows, features)}).data
    written = load_data(on_disk(data, tmp_path))
    assert written.task == load_data(data).task and written.task.label_names == ("b", "a")
    assert written.train.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (({"lerning_rate": [1, 2]},), {}, "Did you mean learning_rate"),
        (({"learning_rate": []},), {}, "an empty one"),
        (({"learning_rate": 1e-5},), {}, r"a list of values\. Received: learning_rate=1e-05"),
        (({"learning_rate": "1e-5,3e-5"},), {}, "a list of values"),
        (({"learning_rate": [1e-5, None]},), {}, "learning_rate is a number. Received: 'None'"),
        (("learning_rate=1e-5",), {}, "a dictionary"),
        (({},), {}, "a dictionary"),
        (({"output_dir": ["a", "b"]},), {}, "cannot vary output_dir"),
        (({"seed": [1, 2]},), {}, "Pass --seeds=1,2,3 beside"),
        (({"learning_rate": [1e-5]},), {"learning_rate": 1e-4}, "takes the place of learning_rate"),
        (({"learning_rate": [1e-5]},), {"epochs": 1}, "num_train_epochs"),
        (({"learning_rate": [1e-5]},), {"seeds": [1, 1]}, "Each seed trains once"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_runs(fake, tmp_path, arguments, options, message):
    with pytest.raises(UsageError, match=message):
        tfbert.sweep(*arguments, output_dir=tmp_path / "out", **options)
    assert fake.started == [] and not (tmp_path / "out").exists()


def test_a_call_for_one_run_says_which_is_for_several():
    with pytest.raises(UsageError, match="call tfbert.sweep"):
        tfbert.finetune(sweep="learning_rate=1e-5,3e-5")


def test_a_run_is_shown_where_this_process_shows_its_own_output(monkeypatch):
    """A notebook replaces `sys.stderr`: what a child writes on its own would not be seen there."""
    command = [sys.executable, "-c", "import sys; print('out'); print('warning: few', file=sys.stderr); sys.exit(7)"]
    plain, red = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", plain)
    monkeypatch.setattr(sys, "stderr", red)
    with Signals() as signals:
        assert module._Starter(quiet=False)(command, {}, signals) == 7
        assert module._Starter(quiet=True)(command, {}, signals) == 7
    assert (plain.getvalue(), red.getvalue()) == ("out\n", "warning: few\n")
