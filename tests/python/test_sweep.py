"""`tfbert.sweep`: the same runs as the command's `--sweep`, and rows of what they gave."""

import io
import json
import pickle
import sys

import numpy as np
import pytest

import tfbert
from tests.support.sweeps import FakeRuns
from tfbert import UsageError, launch
from tfbert import python as module


@pytest.fixture
def fake(monkeypatch):
    fake = FakeRuns()
    monkeypatch.setattr(launch, "run_to_its_end", lambda command, variables, signals, **_: fake(command, {}, signals))
    return fake


def test_a_call_trains_the_grid_and_gives_its_table(fake, tmp_path):
    (tmp_path / "train.tsv").touch()
    options = {"train_file": tmp_path / "train.tsv", "validation_file": tmp_path / "train.tsv", "seeds": [1, 2]}
    options |= {"model": "scratch/tiny", "quiet": True, "output_dir": tmp_path / "out"}
    values = {"learning_rate": np.array([1e-5, 3e-5]), "xla": [True, False]}
    found = tfbert.sweep(values, **options)
    assert fake.started[:2] == ["learning_rate=1e-05,xla=true,seed=1", "learning_rate=1e-05,xla=true,seed=2"]
    assert len(fake.started) == 8 and found.directory == tmp_path / "out" and found.decisive == "eval_accuracy"
    written = json.loads((tmp_path / "out" / "sweep.json").read_text())["points"]
    assert [row["eval_accuracy"] for row in found] == [point["mean"]["eval_accuracy"] for point in written]
    assert found[0]["learning_rate"] == 3e-5 and found[0]["eval_accuracy_std"] > 0
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.directory) == (found, found.directory)
    assert tfbert.sweep(values, **options) == found and len(fake.started) == 8


NOT_SWEPT = [
    ({"lerning_rate": [1, 2]}, {}, "Did you mean learning_rate"),
    ({"learning_rate": []}, {}, "Each value of learning_rate in a sweep must be a number"),
    ({"learning_rate": 1e-5}, {}, r"a list of values\. Received: \{'learning_rate': 1e-05\}"),
    ({"learning_rate": "1e-5,3e-5"}, {}, "a list of values"),
    ({"learning_rate": [1e-5, None]}, {}, "must be a number. Received: .*None"),
    ({}, {}, "a dictionary"),
    ({"learning_rate": [1e-5]}, {"learning_rate": 1e-4}, "takes the place of learning_rate"),
    ({"learning_rate": [1e-5]}, {"epochs": 1}, "num_train_epochs"),
    ({"xla": [True]}, {"train": [("a", 1)], "model": "m"}, "read files. Received: train=pairs.* Write .*parquet"),
]


@pytest.mark.parametrize("values, options, message", NOT_SWEPT)
def test_what_cannot_be_swept_is_refused_before_anything_runs(fake, tmp_path, values, options, message):
    with pytest.raises(UsageError, match=message):
        tfbert.sweep(values, output_dir=tmp_path / "out", **options)
    assert fake.started == [] and not (tmp_path / "out").exists()


def test_a_run_is_shown_where_this_process_shows_its_own_output(monkeypatch):
    """A notebook replaces `sys.stderr`: what a child writes on its own would not be seen there."""
    command = [sys.executable, "-c", "import sys; print('out'); print('warning: few', file=sys.stderr); sys.exit(7)"]
    plain, red = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", plain)
    monkeypatch.setattr(sys, "stderr", red)
    with launch.Signals() as signals:
        assert module._start(False, command, {}, signals) == 7
        assert module._start(True, command, {}, signals) == 7
    assert (plain.getvalue(), red.getvalue()) == ("out\n", "warning: few\n")
