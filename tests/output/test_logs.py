"""What a run writes while it runs."""

import contextlib
import io
import json
import logging
import os
import pathlib
import sys
from unittest import mock

import pytest

from tfbert.errors import RunError
from tfbert.output.logs import RunLog, clock_text


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


LINES = [f'{{"step": {step}, "kind": "train", "time": "", "loss": {step}}}\n' for step in (1, 2, 3)]


def test_each_record_is_a_line_with_step_kind_and_time(tmp_path):
    log = RunLog(tmp_path, total_steps=4)
    log.record(2, "train", {"loss": 0.5, "learning_rate": 1e-5})
    assert len(read(tmp_path / "log.jsonl")) == 1, "a line is there at once, not when the run ends"
    log.record(4, "eval", {"eval_accuracy": 0.75})
    log.close()
    first, second = read(tmp_path / "log.jsonl")
    assert first.pop("time") <= second.pop("time")
    assert first == {"step": 2, "kind": "train", "loss": 0.5, "learning_rate": 1e-5}
    assert second == {"step": 4, "kind": "eval", "eval_accuracy": 0.75}


def test_a_resumed_log_forgets_what_happens_again(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES) + '{"step": 4, "lo')
    log = RunLog(tmp_path, total_steps=4, first_step=2)
    log.record(3, "train", {"loss": 9})
    log.close()
    assert [(r["step"], r["loss"]) for r in read(path)] == [(1, 1), (2, 2), (3, 9)]
    RunLog(tmp_path, total_steps=4, first_step=0).close()
    assert path.read_text() == ""


def test_a_resumed_log_is_whole_at_once_and_at_any_time(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    history = "".join(LINES[:2])
    path.write_text(history)
    log = RunLog(tmp_path, total_steps=4, first_step=2)
    assert path.read_text() == history, "nothing waits for the first record"
    log.close()

    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left on device"):
        RunLog(tmp_path, total_steps=4, first_step=1)
    assert path.read_text() == history


def test_damaged_lines_of_a_resumed_log_are_left_out(tmp_path, logged):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINES[0].encode() + b'{"st\xffp"\r: 1}\n\0\0\n{"loss": 1}\n' + LINES[1].encode())
    RunLog(tmp_path, total_steps=4, first_step=2).close()
    assert [(r["step"], r["loss"]) for r in read(path)] == [(1, 1), (2, 2)]
    assert logged() == [f"3 damaged lines left out of {path}"]


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("step", [1, 95])
def test_a_step_that_was_changed_hides_no_later_values(tmp_path, caplog, place, step):
    path = tmp_path / "log.jsonl"
    steps = [10, 20, 30, 30, 40, 50]
    lines = [{"step": at, "kind": "train", "time": "2026-01-01T00:00:00+00:00", "loss": 1.0} for at in steps]
    lines[place]["step"] = step
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = RunLog(tmp_path, total_steps=90, first_step=50)
    log.record(60, "train", {"loss": 0.5})
    log.close()
    found = [record["step"] for record in read(path)]
    assert found == sorted(found) and found[-1] == 60 and set(steps[place + 1 :]) <= set(found)
    assert bool(caplog.records) is (step == 1 and place > 0)  # At 95, it is of an update that happens again.


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="Linux's")
def test_a_full_disk_is_told_of_once(tmp_path):
    (tmp_path / "log.jsonl").touch()
    log = RunLog(tmp_path, total_steps=4)
    log._file.close()
    log._file = log._open.enter_context(open("/dev/full", "w"))  # noqa: PTH123, SIM115
    with pytest.raises(RunError, match="log.jsonl .No space left on device"), contextlib.closing(log):
        log.record(1, "train", {"loss": 0.5})


def test_a_log_that_was_deleted_is_an_error(tmp_path):
    log = RunLog(tmp_path, total_steps=4)
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(RunError, match="log.jsonl .No such file"):
        log.record(1, "train", {"loss": 0.5})
    log.close()


def test_workers_that_are_not_the_chief_write_and_say_nothing(tmp_path, logged, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = RunLog(None, total_steps=4)
    log.record(1, "train", {"loss": 0.5})
    log.advance(1, "step 1/4")
    log.close()
    assert not list(tmp_path.iterdir()) and not logged()


def test_without_a_terminal_progress_is_lines(tmp_path, logged):
    log = RunLog(tmp_path, total_steps=4)
    log.advance(1, "step 1/4")
    logging.getLogger("tfbert").info("evaluation at step 1")
    log.close()
    assert logged() == ["step 1/4", "evaluation at step 1"]


@pytest.mark.parametrize("seconds, text", [(0, "0:00"), (59.6, "1:00"), (125, "2:05"), (3723, "1:02:03")])
def test_durations_as_a_clock_shows_them(seconds, text):
    assert clock_text(seconds) == text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_is_drawn_from_the_first_update_on_and_lines_stand_above_it(tmp_path, monkeypatch):
    """An empty bar ran into "ready after 6.6 s", and each later line into the bar of its time."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = logging.StreamHandler(terminal)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    logger = logging.getLogger("tfbert")
    monkeypatch.setattr(logger, "level", logging.INFO)
    log = RunLog(tmp_path, total_steps=4)
    logger.info("ready after 6.6 s")
    assert terminal.getvalue() == "ready after 6.6 s\n"
    log.advance(1, "step 1/4")
    logging.getLogger("tfbert").info("evaluation at step 1")
    logger.warning("something else")
    log.advance(2, "step 2/4")
    log.close()
    assert logging.root.handlers == [handler]
    shown = terminal.getvalue().split("\n")
    for line in ("evaluation at step 1", "something else"):
        (found,) = [text for text in shown if line in text]
        assert found.rpartition("\r")[2].removeprefix("\x1b[A") == line
    assert "step 2/4" in shown[-2]
