"""Keras 3 on two workers, started by the launcher: the same as one process, also after a kill."""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.support.keras_hub import bert, reference_steps, texts
from tests.support.models import NumpyAdamW
from tests.support.updates import CLIP, DECAY, EPSILON, RATE, TOLERANCE

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.multi_worker]


GRID = [":".join(cell) for cell in itertools.product(TOLERANCE, ("plain", "xla"), ("1", "4"))]
REFUSALS = {
    "arrays": "unsupported type",  # keras#20585
    "built": "Invalid reduction dimension 0",  # tensorflow#72388
    "dictionaries": "unsupported type",  # keras#20329
}


def run(out, *arguments, num_workers=1, status=0, script="workers_script.py"):
    out.mkdir(exist_ok=True)
    command = [sys.executable, str(HERE / script), str(out), *map(str, arguments)]
    if num_workers > 1:
        launcher = [sys.executable, "-m", "tfbert.launch", f"--num_workers={num_workers}", "--grace_seconds=5", "--"]
        command = launcher + command[1:]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, cwd=out)
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone"), 1)[0]


def assert_like(found, alone):
    np.testing.assert_allclose(found["predictions"], alone["predictions"], atol=1e-5)
    np.testing.assert_allclose(found["evaluated"], alone["evaluated"], atol=1e-5)


def test_two_workers_are_one_process(alone, tmp_path):
    """Dropout on, an empty share, evaluation, prediction; only the chief writes, and rows given as arrays are shuffled
    alike on both."""
    found = run(tmp_path / "two", 4, num_workers=2)
    assert len(found) == 2
    for each in found:
        for name, values in alone["history"].items():
            np.testing.assert_allclose(each["history"][name], values, atol=1e-5, err_msg=name)
        assert_like(each, alone)
    assert found[0]["weights"] == found[1]["weights"] and found[0]["rows"] == found[1]["rows"]
    log = (tmp_path / "two" / "log.csv").read_text().splitlines()
    assert len(log) == 4 and log[0].startswith("epoch,")
    assert not (tmp_path / "two" / "backup").exists()


def test_killed_and_resumed_by_backup_and_restore(alone, tmp_path):
    """Both are killed in the third epoch; started again, they take up its beginning."""
    out = tmp_path / "killed"
    run(out, 2, 7, num_workers=2, status=9)
    assert (out / "backup").is_dir()
    found = run(out, 2, num_workers=2)
    for each in found:
        assert_like(each, alone)
        np.testing.assert_allclose(each["history"]["loss"], alone["history"]["loss"][2:], atol=1e-5)
        np.testing.assert_allclose(each["history"]["val_loss"], alone["history"]["val_loss"][2:], atol=1e-5)
    assert found[0]["weights"] == found[1]["weights"]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    out = tmp_path_factory.mktemp("grid")
    refusals = run(out, *GRID, num_workers=2, script="workers_grid_script.py")
    return [dict(np.load(out / f"{index}.npz")) for index in range(2)], refusals


@pytest.fixture(scope="module")
def one_big_batch():
    weights = reference_steps(bert(), *texts(43), NumpyAdamW(RATE, DECAY, EPSILON), batch_size=16, clip=CLIP)
    return np.concatenate([weight.ravel() for weight in weights])


@pytest.mark.parametrize("cell", GRID)
def test_every_cell_gives_the_weights_of_one_big_batch(cell, grid, one_big_batch):
    """KerasHub's BERT, dropout on; the last batch has eleven rows."""
    first, second = (weights[cell] for weights in grid[0])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, one_big_batch, atol=TOLERANCE[cell.split(":")[0]], rtol=0)


@pytest.mark.parametrize("what", REFUSALS)
def test_plain_keras_does_not_train(what, grid):
    for refusals in grid[1]:
        assert REFUSALS[what] in refusals[what]


@pytest.mark.parametrize(
    "case, name", [("loss", "in_batch_negatives"), ("metric", "root_of_the_mean"), ("evaluate", "root_of_the_mean")]
)
def test_workers_refuse_together(tmp_path, case, name):
    """What values show is refused by both in one line, not by one of them and then a lost worker."""
    one, other = run(tmp_path / "out", case, num_workers=2)
    assert one == other and name in one and "\n" not in one
