"""The output directory: what is refused, what is replaced, what is whole. The lock on it: who is kept out, what is
left, what is not touched."""

import errno
import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import pytest

from tests.support.flag_values import configured
from tests.support.processes import ROOT
from tests.support.refusals import refused
from tfbert import RunError, UsageError
from tfbert.output import output_dir
from tfbert.output.output_dir import LOCK, locked

NOW = "20261121-093000"


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", NOW)


def test_the_directory_is_the_one_asked_for(tmp_path):
    assert output_dir.run_directory(configured(output_dir=tmp_path / "run")) == tmp_path / "run"


NAMED = [
    ("train", "scratch/tiny", "", "demo-tiny"),
    ("train", "some/bert-base", "glue/sst2", "sst2-bert_base"),
    ("evaluate", "some/model", "glue/sst2", "evaluate-sst2-model"),
]


@pytest.mark.parametrize("mode, model, dataset, name", NAMED)
def test_without_one_it_is_named_for_data_model_and_time_and_other_modes_than_training(mode, model, dataset, name):
    config = configured(mode, model=model, dataset=dataset)
    assert output_dir.run_directory(config) == pathlib.Path("runs", f"{name}-{NOW}")


def test_files_are_named_without_their_endings(tmp_path):
    (tmp_path / "my reviews.tsv.gz").write_text("")
    config = configured(model="scratch/tiny", train_file=tmp_path / "my reviews.tsv.gz")
    assert output_dir.run_directory(config).name == f"my_reviews-tiny-{NOW}"


def test_json_is_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "all_results.json"
    output_dir.write_json(path, {"eval_accuracy": 0.5})
    assert json.loads(path.read_text()) == {"eval_accuracy": 0.5}

    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left on device"):
        output_dir.write_json(path, {"eval_accuracy": 0.75})
    assert json.loads(path.read_text()) == {"eval_accuracy": 0.5}


def test_workers_and_restarts_of_one_launch_share_the_time_of_their_start(monkeypatch):
    assert output_dir.start_time() == NOW
    monkeypatch.delenv("TFBERT_LAUNCHED_AT")
    assert re.fullmatch(r"\d{8}-\d{6}", output_dir.start_time()) and output_dir.start_time() != NOW


def test_text_that_is_not_utf8_is_written_as_escapes(tmp_path):
    """Python's form of the name of a file in Latin-1, as in a report."""
    output_dir.write_text(tmp_path / "page.html", "größe, l\udce4tin.tsv")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "größe, l\\udce4tin.tsv"


@pytest.mark.parametrize("write", [output_dir.write_text, lambda path, text: output_dir.write_json(path, [text])])
def test_no_file_is_written_through_a_link(write, tmp_path):
    mine, path = tmp_path / "mine", tmp_path / "out" / "x.json"
    path.parent.mkdir()
    mine.write_text("mine")
    for name in ("x.json", ".x.json.partial"):
        (path.parent / name).symlink_to(mine)
    write(path, "new")
    assert mine.read_text() == "mine" and "new" in path.read_text() and not path.is_symlink()
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_where_a_directory_can_be_made(tmp_path, monkeypatch):
    output_dir.check_writable(tmp_path / "new" / "run")
    (tmp_path / "file").write_text("")
    bad = {"file": "must be a directory", "file/run": None}
    bad |= {os.fsdecode(b"\xff/run"): r"must be UTF-8. Received: b'.*xff/run'"}
    for name, message in bad.items():
        with pytest.raises(UsageError, match=message):
            output_dir.check_writable(tmp_path / name)
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(pathlib.Path(path)) or False)
    with pytest.raises(UsageError, match="must be writable"):
        output_dir.check_writable(tmp_path / "new" / "run")
    assert asked == [tmp_path]


def test_what_is_cleared_is_a_runs_and_no_link_is_followed(tmp_path):
    run, disk = tmp_path / "run", tmp_path / "disk"
    (disk / "step-1").mkdir(parents=True)
    (run / "tensorboard").mkdir(parents=True)
    (run / "checkpoints").symlink_to(disk)
    for name in (output_dir.RESULTS, output_dir.LOG, "config.json", "notes.txt", output_dir.RUN_CONFIG):
        (run / name).write_text("old")
    output_dir.clear(run)
    assert output_dir.contents(run) == ["notes.txt", output_dir.RUN_CONFIG]
    (run / output_dir.EVAL_RESULTS).write_text("of weights that the next ones replace")
    output_dir.clear_results(run)
    assert output_dir.contents(run) == ["notes.txt", output_dir.RUN_CONFIG]
    assert (disk / "step-1").is_dir()


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
