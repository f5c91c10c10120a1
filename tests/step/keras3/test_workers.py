"""Keras 3 on two workers, started by the launcher: the same as one process, also after a kill."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.multi_worker]


def run(out, *arguments, num_workers=1, status=0):
    out.mkdir(exist_ok=True)
    command = [sys.executable, str(HERE / "workers_script.py"), str(out), *map(str, arguments)]
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
