"""What goes wrong around a run: a full disk, a directory that vanishes. One clear line, status 1, nothing lost."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import ROOT
from tests.support.runs import changed, make_config, steps_logged
from tfbert.train.checkpoint import newest_intact


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 12 MB, where this machine lets us mount one: room for two checkpoints and not for many."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(directory)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs to mount a tmpfs")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def start(config, path):
    """The command in a process of its own; its messages go to `path`.err."""
    path.with_suffix(".json").write_text(config.to_json())
    with path.with_suffix(".err").open("w") as errors:
        command = [sys.executable, str(ROOT / "run_finetune.py"), f"--run_config={path.with_suffix('.json')}"]
        return subprocess.Popen(command, stderr=errors)


def long_run(corpus, directory, **output):
    """A run of 2,400 updates that saves every 10."""
    config = make_config(corpus, "unused")
    saving = {"output_dir": str(directory), "save_steps": 10, "eval_steps": 10_000, "save_total_limit": 0}
    return changed(config, training={"num_train_epochs": 400}, output=saving | output)


def newest(directory):
    """The step of the newest sound checkpoint."""
    return newest_intact(directory / "checkpoints").step


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_leaves_the_checkpoint_before(corpus, small_disk):
    directory = small_disk / "run"
    process = start(long_run(corpus, directory), corpus / "full")
    assert process.wait(timeout=180) == 1
    errors = (corpus / "full.err").read_text().splitlines()
    assert "error: A checkpoint must be written whole" in errors[-1] and "No space left on device" in errors[-1]
    assert "Traceback" not in "\n".join(errors)
    step = newest(directory)
    assert f"resumes from {directory}/checkpoints/step-{step:08}" in errors[-1]
    assert not list((directory / "checkpoints").glob(".partial*"))

    # With room again, the same run goes on.
    for path in sorted((directory / "checkpoints").glob("step-*"))[:-1]:
        shutil.rmtree(path)
    process = start(long_run(corpus, directory, save_total_limit=1), corpus / "again")
    while not (directory / "checkpoints" / f"step-{step + 10:08}").exists():
        assert process.poll() is None, (corpus / "again.err").read_text()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 75, (corpus / "again.err").read_text()
    assert newest(directory) >= step + 10


@pytest.mark.slow
def test_an_output_directory_that_is_deleted_ends_the_run(corpus):
    directory = corpus / "run"
    process = start(long_run(corpus, directory), corpus / "deleted")
    while steps_logged(directory) < 5:
        assert process.poll() is None, (corpus / "deleted.err").read_text()
        time.sleep(0.01)
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)
    assert process.wait(timeout=60) == 1
    errors = (corpus / "deleted.err").read_text()
    assert errors.splitlines()[-1].startswith("run_finetune.py: error: ") and "Traceback" not in errors
    assert not directory.exists(), "nothing is written where a directory was taken away"
