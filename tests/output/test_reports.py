"""Callbacks hear each value once, whatever happens to a run and to them."""

import json

import pytest

from tfbert.errors import UsageError
from tfbert.output.callback import Callback, Record, RunInfo
from tfbert.output.reports import Reports, check_callbacks, read_reported


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


def begun(directory, callbacks, logged=(), first=0, key="a"):
    reports = Reports(directory, callbacks, read_reported(directory), key)
    info = RunInfo(directory=directory, options={}, first_step=first, total_steps=9)
    reports.start(info, {}, logged)
    return reports


def values(callback):
    return [call for call in callback.calls if call[0] in ("train", "eval")]


def test_a_run_tells_its_callbacks_in_order(tmp_path):
    one = Heard()
    reports = begun(tmp_path, [one])
    for told in (record(1), record(2), record(2, "eval")):
        reports.logged(told)
    reports.saved(2, {})
    reports.end("finished", 3, {"eval_loss": 1})
    assert one.calls == [
        ("start", 0),
        ("train", 1, 1.0),
        ("train", 2, 2.0),
        ("eval", 2, 2.0),
        ("save", 2),
        ("finished", 3),
    ]


def test_a_run_that_resumes_tells_what_was_not_told_and_nothing_again(tmp_path):
    first = Heard()
    reports = begun(tmp_path, [first])
    for told in (record(1), record(2), record(2, "eval")):
        reports.logged(told)
    # Killed after a line was written and before it was told; the checkpoint is of update 1.
    logged = [record(1), record(2), record(2, "eval"), record(3)]
    second, new = Heard(), Heard("new")
    reports = begun(tmp_path, [second, new], logged, first=1)
    assert reports.repeats
    assert values(second) == [("train", 3, 3.0)]
    assert values(new) == [("train", 1, 1.0), ("train", 2, 2.0), ("eval", 2, 2.0), ("train", 3, 3.0)]
    reports.logged(record(4))
    assert values(second)[-1] == values(new)[-1] == ("train", 4, 4.0)


def test_other_values_after_the_checkpoint_are_told(tmp_path):
    """Such as of a run that has become longer, and whose rate falls later."""
    reports = begun(tmp_path, [Heard()])
    for step in (1, 2, 3):
        reports.logged(record(step))
    again = Heard()
    reports = begun(tmp_path, [again], [record(1)], first=1, key="b")
    assert not reports.repeats
    for step in (2, 3):
        reports.logged(record(step))
    assert values(again) == [("train", 2, 2.0), ("train", 3, 3.0)]


class Dies(Heard):
    def on_start(self, step, values):
        raise SystemExit("killed")


def test_a_callback_has_its_id_before_it_begins_anything(tmp_path):
    """So that what it begins under it is found again, whenever a kill comes."""
    with pytest.raises(SystemExit):
        begun(tmp_path, [Heard("a"), Dies("b"), Heard("c")])
    again = [Heard("a"), Heard("b"), Heard("c")]
    noted = read_reported(tmp_path)["callbacks"]
    begun(tmp_path, again)
    ids = [callback._memory["id"] for callback in again]
    assert ids == [noted[name]["memory"]["id"] for name in "abc"] and len({*ids}) == 3
    assert [callback.calls[0][0] for callback in again] == ["start"] * 3


def test_who_fails_is_named_and_hears_later_what_it_missed(tmp_path):
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
    good, bad = Heard("good"), Heard("bad")
    begun(tmp_path, [bad, good], [record(1), record(2), record(3)], first=3)
    assert values(bad) == [("train", 2, 2.0), ("train", 3, 3.0)] and values(good) == []


def test_a_callback_of_several_runs_asks_each_anew(tmp_path):
    callback = Heard(stops_at=("train", 1))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        reports = begun(tmp_path / name, [callback])
        assert not reports.asks_to_end and not reports.who_asks
        reports.logged(record(1))
        assert reports.asks_to_end and reports.who_asks == "Heard"


def test_what_a_callback_remembers_is_there_at_the_next_start(tmp_path):
    class Remembering(Callback):
        def on_start(self, step, values):
            self._memory.setdefault("run", "abc")

    begun(tmp_path, [Remembering()])
    again = Remembering()
    begun(tmp_path, [again], first=1, key="other")
    note = read_reported(tmp_path)["callbacks"]["Remembering"]["memory"]
    assert again._memory == note == {"id": note["id"], "run": "abc"}


def test_workers_that_are_not_the_chief_tell_nothing(tmp_path):
    callback = Heard()
    reports = Reports(None, [callback])
    reports.start(RunInfo(directory=tmp_path, options={}, first_step=0, total_steps=9), {}, [])
    reports.logged(record(1))
    reports.end("finished")
    assert callback.calls == [] and list(tmp_path.iterdir()) == []


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
        check_callbacks(callbacks)
    check_callbacks([Heard("a"), Heard("b"), Heard()])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"callbacks": {"a": {}}}', '{"callbacks": {"a": {"last": [1, "x"]}}}']
)
def test_a_damaged_note_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "callbacks.json").write_text(text)
    with pytest.raises(UsageError, match="must be whole.*Remove it: they are told everything again") as error:
        read_reported(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("before, after", [("7,", "9,"), ('"values_of": "a"', '"values_of": "b"'), ('"crc32"', '"x"')])
def test_a_changed_note_is_refused(tmp_path, before, after):
    begun(tmp_path, [Heard()]).logged(record(7, "eval"))
    path = tmp_path / "callbacks.json"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(UsageError, match="must be whole"):
        read_reported(tmp_path)


def test_the_note_is_sealed_json(tmp_path):
    begun(tmp_path, [Heard()]).logged(record(7, "eval"))
    assert type(json.loads((tmp_path / "callbacks.json").read_text())["crc32"]) is int
    note = read_reported(tmp_path)
    memory = {"id": note["callbacks"]["Heard"]["memory"]["id"]}
    assert note == {"values_of": "a", "callbacks": {"Heard": {"last": [7, 1], "memory": memory}}}
