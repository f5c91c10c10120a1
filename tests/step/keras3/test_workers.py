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
from tests.support.processes import ROOT
from tests.support.updates import CLIP, DECAY, EPSILON, RATE, TOLERANCE

SCRIPT = pathlib.Path(__file__).with_name("workers_script.py")
pytestmark = [pytest.mark.slow, pytest.mark.multi_worker]


GRID = [":".join(cell) for cell in itertools.product(TOLERANCE, ("plain", "xla"), ("1", "4"))]
REFUSALS = {
    "arrays": "unsupported type",  # keras#20585
    "built": "Invalid reduction dimension 0",  # tensorflow#72388
    "dictionaries": "unsupported type",  # keras#20329
}


def run(out, *arguments, is_alone=False, status=0):
    out.mkdir(exist_ok=True)
    launcher = [] if is_alone else ["-m", "tfbert.launch", "--num_workers=2", "--grace_seconds=5", "--"]
    command = [sys.executable, *launcher, str(SCRIPT), str(out), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
    # The grid took 500 seconds on a slow machine.
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, cwd=out)
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone"), "train", 1, is_alone=True)[0]


def assert_like(found, alone):
    np.testing.assert_allclose(found["predictions"], alone["predictions"], atol=1e-5)
    np.testing.assert_allclose(found["evaluated"], alone["evaluated"], atol=1e-5)


def test_two_workers_are_one_process(alone, tmp_path):
    """Dropout on, an empty share, evaluation, prediction; only the chief writes, and rows given as arrays are shuffled
    alike on both."""
    found = run(tmp_path / "two", "train", 4)
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
    run(out, "train", 2, 7, status=9)
    assert (out / "backup").is_dir()
    found = run(out, "train", 2)
    for each in found:
        assert_like(each, alone)
        for name in ("loss", "val_loss"):
            np.testing.assert_allclose(each["history"][name], alone["history"][name][2:], atol=1e-5)
    assert found[0]["weights"] == found[1]["weights"]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    out = tmp_path_factory.mktemp("grid")
    refusals = run(out, "grid", *GRID)
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
    one, other = run(tmp_path / "out", "refused", case)
    assert one == other and name in one and "\n" not in one
