"""What a run writes while it runs. Progress of long passes: how fast, how much time is left, and nothing about what
takes no time. What callbacks hear of a run, whatever happens to it and to them."""

import contextlib
import io
import json
import logging
import os
import pathlib
import sys
import types
from unittest import mock

import pytest

from tests.support.corpora import made_up_corpus
from tests.support.saved_models import read_json
from tfbert.corpus.sources import file_digests
from tfbert.corpus.vocabulary import learn_vocab
from tfbert.errors import RunError, UsageError
from tfbert.output import logs
from tfbert.output.logs import PassProgress, RunLog


def log_in(directory, **options):
    """A log of a run of four updates, closed at the end of the block."""
    return contextlib.closing(RunLog(directory, total_steps=4, **options))


LINES = [f'{{"step": {step}, "kind": "train", "time": "", "loss": {step}}}\n' for step in (1, 2, 3)]


def test_each_record_is_a_line_with_step_kind_and_time(tmp_path):
    with log_in(tmp_path) as log:
        log.record(2, "train", {"loss": 0.5, "learning_rate": 1e-5})
        assert len(read_json(tmp_path / "log.jsonl")) == 1, "a line is there at once, not when the run ends"
        log.record(4, "eval", {"eval_accuracy": 0.75})
    first, second = read_json(tmp_path / "log.jsonl")
    assert first.pop("time") <= second.pop("time")
    assert first == {"step": 2, "kind": "train", "loss": 0.5, "learning_rate": 1e-5}
    assert second == {"step": 4, "kind": "eval", "eval_accuracy": 0.75}


def test_a_resumed_log_forgets_what_happens_again(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES) + '{"step": 4, "lo')
    with log_in(tmp_path, first_step=2) as log:
        log.record(3, "train", {"loss": 9})
    assert [(r["step"], r["loss"]) for r in read_json(path)] == [(1, 1), (2, 2), (3, 9)]
    RunLog(tmp_path, total_steps=4, first_step=0).close()
    assert path.read_text() == ""


def test_a_resumed_log_is_whole_at_once_and_at_any_time(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    history = "".join(LINES[:2])
    path.write_text(history)
    with log_in(tmp_path, first_step=2):
        assert path.read_text() == history, "nothing waits for the first record"

    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left on device"):
        RunLog(tmp_path, total_steps=4, first_step=1)
    assert path.read_text() == history


def test_damaged_lines_of_a_resumed_log_are_left_out(tmp_path, logged):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINES[0].encode() + b'{"st\xffp"\r: 1}\n\0\0\n{"loss": 1}\n' + LINES[1].encode())
    RunLog(tmp_path, total_steps=4, first_step=2).close()
    assert [(r["step"], r["loss"]) for r in read_json(path)] == [(1, 1), (2, 2)]
    assert logged() == [f"3 damaged lines left out of {path}"]


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("step", [1, 95])
def test_a_step_that_was_changed_hides_no_later_values(tmp_path, caplog, place, step):
    path = tmp_path / "log.jsonl"
    steps = [10, 20, 30, 30, 40, 50]
    lines = [{"step": at, "kind": "train", "time": "2026-01-01T00:00:00+00:00", "loss": 1.0} for at in steps]
    lines[place]["step"] = step
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with contextlib.closing(RunLog(tmp_path, total_steps=90, first_step=50)) as log:
        log.record(60, "train", {"loss": 0.5})
    found = [record["step"] for record in read_json(path)]
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
    with log_in(tmp_path) as log, pytest.raises(RunError, match="log.jsonl .No such file"):
        (tmp_path / "log.jsonl").unlink()
        log.record(1, "train", {"loss": 0.5})


def test_workers_that_are_not_the_chief_write_and_say_nothing(tmp_path, logged, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with log_in(None) as log:
        log.record(1, "train", {"loss": 0.5})
        log.advance(1, "step 1/4")
    assert not list(tmp_path.iterdir()) and not logged()


def test_without_a_terminal_progress_is_lines(tmp_path, logged):
    with log_in(tmp_path) as log:
        log.advance(1, "step 1/4")
        logging.getLogger("tfbert").info("evaluation at step 1")
    assert logged() == ["step 1/4", "evaluation at step 1"]


@pytest.mark.parametrize("seconds, text", [(0, "0:00"), (59.6, "1:00"), (125, "2:05"), (3723, "1:02:03")])
def test_durations_as_a_clock_shows_them(seconds, text):
    assert logs.clock_text(seconds) == text


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
    with log_in(tmp_path) as log:
        logger.info("ready after 6.6 s")
        assert terminal.getvalue() == "ready after 6.6 s\n"
        log.advance(1, "step 1/4")
        logger.info("evaluation at step 1")
        logger.warning("something else")
        log.advance(2, "step 2/4")
    assert logging.root.handlers == [handler]
    shown = terminal.getvalue().split("\n")
    for line in ("evaluation at step 1", "something else"):
        (found,) = [text for text in shown if line in text]
        assert found.rpartition("\r")[2].removeprefix("\x1b[A") == line
    assert "step 2/4" in shown[-2]


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until its `now` is changed."""
    clock = types.SimpleNamespace(now=0.0)
    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(logs, "time", clock)
    return clock


def test_a_log_has_lines_now_and_then_and_one_at_the_end(clock, logged):
    with PassProgress("hashing", 400, "MB") as passing:
        for clock.now in (4, 9, 12, 19, 24):
            passing.advance(40, 1000)
        clock.now = 60
    assert logged() == [
        "hashing: 30%, 250 MB/s, 0:28 left",
        "hashing: 50%, 208 MB/s, 0:24 left",
        "hashing: 5,000 MB in 1:00, 83 MB/s",
    ]


def test_no_time_left_is_made_up_before_any_work_is_done(clock, logged):
    with PassProgress("reading", 400) as passing:
        clock.now = 20
        passing.advance(0, 1000)
    assert logged()[0] == "reading: 0%, 50 sentences/s"


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_nothing_is_said_of_a_short_pass(stream, clock, logged, monkeypatch):
    stream = stream()
    monkeypatch.setattr("sys.stderr", stream)
    with PassProgress("hashing", 2) as passing:
        for clock.now in (1, 1.9):
            passing.advance(1, 1)
    assert logged() == [] and stream.getvalue() == ""


def test_a_failed_pass_is_not_said_to_be_done(clock, logged):
    with pytest.raises(ValueError), PassProgress("hashing", 2):
        clock.now = 60
        raise ValueError
    assert logged() == []


def terminal(monkeypatch):
    """A terminal that shows passes of any length; no fixture, as pytest replaces `sys.stderr` after those."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(logs, "SECONDS_WITHOUT_NEWS", 0)
    return stream


def test_a_terminal_has_a_bar(monkeypatch):
    stream = terminal(monkeypatch)
    with PassProgress("hashing", 2, "MB") as passing:
        passing.advance(1, 1)
        passing.advance(1, 1)
    assert "hashing: 100%" in stream.getvalue() and "MB/s" in stream.getvalue()


def test_an_evaluation_says_how_far_it_is(clock, logged):
    with logs.evaluating(100, "data/dev.tsv") as on_rows:
        for clock.now in (5, 12, 20):
            on_rows(25)
    assert logged() == ["evaluating dev.tsv: 50%, 4.2 rows/s, 0:12 left"]


def test_an_evaluation_leaves_nothing_behind(clock, monkeypatch):
    stream = terminal(monkeypatch)
    with logs.evaluating(100, "test") as on_rows:
        on_rows(50)
    shown = stream.getvalue()
    assert "evaluating test: " in shown and shown.endswith(" \r") and not shown.split("\r")[-2].strip()


@pytest.fixture
def talkative(monkeypatch):
    """Every step of every pass is logged."""
    monkeypatch.setattr(logs, "_SECONDS_BETWEEN_LINES", 0)
    monkeypatch.setattr(logs, "SECONDS_WITHOUT_NEWS", 0)


def test_hashing_a_corpus_says_how_far_it_is(tmp_path, talkative, logged, monkeypatch):
    monkeypatch.setattr("tfbert.corpus.sources._PIECE", 10)
    sizes = {"a": 25, "b": 0, "c": 15}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    file_digests([str(tmp_path / name) for name in sizes])
    shares = [line.split(",")[0] for line in logged()]
    assert shares[:-1] == [f"hashing the corpus: {share}%" for share in (25, 50, 62, 88, 100)]


def test_learning_a_vocabulary_says_what_is_done(talkative, logged, monkeypatch):
    said = "tfbert.tokens.vocabulary.log_if_slow"
    monkeypatch.setattr(said, lambda what: contextlib.nullcontext(logs.log.info("%s ...", what)))
    corpus = made_up_corpus(num_documents=6, num_parts=2)
    learn_vocab(corpus, 100, seed=0)
    lines = logged()
    assert len({len(document) for part in corpus.parts() for document in corpus.read(part)}) > 1
    assert [line.split(":")[0] for line in lines] == [
        *["reading a sample"] * 9,  # Six documents, the ends of two parts, and all of it.
        "learning a vocabulary of 100 tokens from 6 documents",
        *["normalizing the sample"] * 7,
        *["counting the words of the sample"] * 7,
        "merging characters into 100 tokens ...",
    ]
    shares = [int(line.split(": ")[1].split("%")[0]) for line in lines if line.startswith("reading") and "%" in line]
    assert shares[:3] == [0, 0, 0] and shares[-1] == 100 and shares == sorted(shares)


class Heard(logs.Callback):
    def __init__(self, name="", fails_at=None, stops_at=None):
        self.name, self.calls, self.fails_at, self.stops_at = name, [], fails_at, stops_at

    def on_start(self, step, values):
        self._hear("start", step)

    def on_log(self, step, values):
        self._hear("train", step, values["loss"])

    def on_evaluate(self, step, values):
        self._hear("eval", step, values["eval_loss"])

    def on_save(self, step, values):
        self._hear("save", step)

    def on_end(self, step, values):
        self._hear(self.outcome, step)

    def _hear(self, what, step, *values):
        if (what, step) == self.fails_at:
            raise KeyError("a bug of mine")
        self.calls.append((what, step, *values))
        if (what, step) == self.stops_at:
            self.stop()


def record(step, kind="train"):
    name = "loss" if kind == "train" else "eval_loss"
    return logs.Record(step=step, kind=kind, time="2026-01-01T00:00:00+00:00", values={name: float(step)})


def begun(directory, callbacks, logged=(), first=0):
    reports = logs.Reports(callbacks)
    reports.start(logs.RunInfo(directory=directory, options={}, first_step=first, total_steps=9), {}, logged)
    return reports


def values(callback):
    return [call for call in callback.calls if call[0] in ("train", "eval")]


def test_trackers_alone_are_told_what_earlier_starts_logged(tmp_path):
    class Tracker(Heard):
        _hears_all = True

    own, tracker = Heard(), Tracker()
    reports = begun(tmp_path, [own, tracker], [record(1), record(1, "eval")], first=1)
    reports.logged(record(2))
    assert values(own) == [("train", 2, 2.0)]
    assert tracker.calls == [("start", 1), ("train", 1, 1.0), ("eval", 1, 1.0), ("train", 2, 2.0)]


def test_who_fails_is_named_and_hears_the_end_alone(tmp_path):
    good, bad = Heard("good"), Heard("bad", fails_at=("train", 2))
    reports = begun(tmp_path, [bad, good])
    for step in (1, 2, 3):
        reports.logged(record(step))
    assert reports.asks_to_end and reports.failed[0] is bad
    error = reports.error("It ended.")
    assert str(error) == "Callback bad failed: KeyError: 'a bug of mine'. It ended."
    assert isinstance(error.__cause__, KeyError)
    reports.end("failed")
    assert [call[0] for call in bad.calls] == ["start", "train", "failed"] and len(values(good)) == 3


def test_a_callback_of_several_runs_asks_each_anew(tmp_path):
    callback = Heard(stops_at=("train", 1))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        reports = begun(tmp_path / name, [callback])
        assert not reports.asks_to_end and not reports.who_asks
        reports.logged(record(1))
        assert reports.asks_to_end and reports.who_asks == "Heard"


NO_CALLBACKS = [
    ([Heard], "must be a tfbert.callbacks.Callback, made already. Received: <class .*Heard.>"),
    ([print], "Received: <built-in function print>. Derive it from that class"),
    ([Heard(), Heard()], "told apart by their names. Received: two called 'Heard'. Set the attribute name"),
]


@pytest.mark.parametrize("callbacks, message", NO_CALLBACKS)
def test_what_is_no_callback_is_refused(callbacks, message):
    with pytest.raises(UsageError, match=message):
        logs.all_callbacks((), callbacks)
    logs.all_callbacks((), [Heard("a"), Heard("b"), Heard()])
