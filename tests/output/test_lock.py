"""The lock on an output directory: who is kept out, what is left, what is not touched."""

import errno
import fcntl
import os
import pathlib
import subprocess
import sys
from unittest import mock

import pytest

from tests.support.refusals import refused
from tfbert.errors import RunError, UsageError
from tfbert.output import output_dir
from tfbert.output.output_dir import LOCK, locked

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = (
    "import pathlib, sys\nfrom tfbert.output.output_dir import locked\nwith locked(pathlib.Path(sys.argv[1])): pass\n"
)


def test_another_process_is_kept_out_until_the_end(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    with locked(tmp_path / "run"):
        (tmp_path / "run" / "log").write_text("mine")
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert "output directory of its own. Received:" in done.stderr.splitlines()[-1]
        with pytest.raises(RunError, match="another process is writing"), locked(tmp_path / "run"):
            pass
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [LOCK, "log"]
    assert subprocess.run(command, cwd=ROOT).returncode == 0


def test_nothing_is_left_of_a_start_that_wrote_nothing(tmp_path):
    with pytest.raises(UsageError, match="bad input"), locked(tmp_path / "runs" / "a"):
        assert (tmp_path / "runs" / "a" / LOCK).exists()
        raise UsageError("bad input")
    assert not list(tmp_path.iterdir())
    (tmp_path / "runs").mkdir()
    with locked(tmp_path / "runs" / "a"):
        pass
    (tmp_path / "runs" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError), locked(tmp_path / "runs"):
        raise UsageError("not a run's")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["runs", "thesis.txt"], "what was there stays"


def test_a_lock_of_a_killed_run_is_no_lock(tmp_path):
    (tmp_path / LOCK).write_text("")
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "pipe"])
def test_a_lock_that_is_no_file_is_refused_and_left_alone(kind, tmp_path):
    mine, path = tmp_path / "thesis.txt", tmp_path / "run" / LOCK
    mine.write_text("mine")
    path.parent.mkdir()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(mine if kind == "link" else tmp_path / "new")
    before = sorted(tmp_path.rglob("*"))
    with refused("and .lock in it a file. Received: .*remove what is in the way"), locked(path.parent):
        pass
    assert mine.read_text() == "mine" and sorted(tmp_path.rglob("*")) == before


def test_a_lock_that_is_removed_meanwhile_is_nobodys(tmp_path, monkeypatch):
    """Between opening the file and locking it, the run that held it can end without having written."""
    original = fcntl.flock

    def flock(descriptor, operation):
        (tmp_path / LOCK).unlink()
        original(descriptor, operation)

    monkeypatch.setattr(output_dir.fcntl, "flock", flock)
    with pytest.raises(RunError), locked(tmp_path):
        pass


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr(output_dir.fcntl, "flock", mock.Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    with locked(tmp_path / "run"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="must be writable"), locked(tmp_path / "file" / "run"):
        pass


def test_those_who_share_let_each_other_in_and_nobody_else(tmp_path):
    with locked(tmp_path, shared=True):
        with locked(tmp_path, shared=True):
            pass
        assert (tmp_path / LOCK).exists(), "the first one still has it"
        with pytest.raises(RunError, match="another process is writing"), locked(tmp_path):
            pass
    with locked(tmp_path), pytest.raises(RunError, match="another process is writing"), locked(tmp_path, shared=True):
        pass


def test_a_file_server_that_is_gone_does_not_hide_why_the_run_ended(tmp_path, monkeypatch):
    gone = mock.Mock(side_effect=OSError(errno.EBADFD, "File descriptor in bad state"))
    with pytest.raises(RunError, match="The log must be writable"), locked(tmp_path / "run"):
        monkeypatch.setattr(output_dir.fcntl, "flock", gone)
        monkeypatch.setattr(output_dir.os, "close", gone)
        raise RunError("The log must be writable.")
