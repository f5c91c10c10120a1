"""What callbacks hear of a run, whatever happens to it and to them."""

import pytest

from tfbert.errors import UsageError
from tfbert.output.logs import Callback, Record, Reports, RunInfo, all_callbacks


class Heard(Callback):
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
    return Record(step=step, kind=kind, time="2026-01-01T00:00:00+00:00", values={name: float(step)})


def begun(directory, callbacks, logged=(), first=0):
    reports = Reports(callbacks)
    info = RunInfo(directory=directory, options={}, first_step=first, total_steps=9)
    reports.start(info, {}, logged)
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


@pytest.mark.parametrize(
    "callbacks, message",
    [
        ([Heard], "must be a tfbert.callbacks.Callback, made already. Received: <class .*Heard.>"),
        ([print], "Received: <built-in function print>. Derive it from that class"),
        ([Heard(), Heard()], "told apart by their names. Received: two called 'Heard'. Set the attribute name"),
    ],
)
def test_what_is_no_callback_is_refused(callbacks, message):
    with pytest.raises(UsageError, match=message):
        all_callbacks((), callbacks)
    all_callbacks((), [Heard("a"), Heard("b"), Heard()])
