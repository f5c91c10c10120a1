"""`--profile_steps`: which updates are profiled, and a profiler that is never left behind."""

import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.support.runs import changed, make_config, stop_at
from tfbert.errors import Preempted, UsageError

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))


@pytest.mark.slow
def test_a_run_is_profiled_and_its_split_adds_up_to_its_steps(corpus):
    from profile_split import read_split

    from tfbert.train.run import finetune

    finetune(changed(make_config(corpus, "out"), output={"profile_steps": (7, 9), "eval_steps": 0, "save_steps": 0}))
    parts = read_split(corpus / "out" / "profile")
    assert all(parts[part] > 0 for part in ("forward and backward", "update", "data"))
    assert parts["forward and backward"] > parts["update"]
    # Counted by Keras from the beginning of step 7 to the end of step 9; the log has the same steps by another clock.
    records = [json.loads(line) for line in (corpus / "out" / "log.jsonl").read_text().splitlines()]
    speeds = {r["step"]: r["examples_per_second"] for r in records if r["kind"] == "train"}
    seconds = np.mean([8 / speeds[8], 8 / speeds[9]])
    assert 0.3 * seconds < sum(parts.values()) < 3 * seconds


def test_a_run_stopped_while_it_is_profiled_leaves_no_profiler_behind(corpus, monkeypatch):
    from tfbert.train.run import finetune

    with monkeypatch.context() as patched, pytest.raises(Preempted):
        stop_at(patched, 5)
        finetune(changed(make_config(corpus, "stopped"), output={"profile_steps": (3, 9)}))
    assert list((corpus / "stopped" / "profile").rglob("*.xplane.pb"))
    tf.profiler.experimental.start(str(corpus / "another"))  # A process has one.
    tf.profiler.experimental.stop(save=False)


def test_steps_beyond_the_run_are_refused_before_anything_is_written(corpus):
    from tfbert.train.run import finetune

    with pytest.raises(UsageError, match="profile_steps must lie within the run's 12 updates"):
        finetune(changed(make_config(corpus, "out"), output={"profile_steps": (10, 13)}))
    assert not (corpus / "out").exists()
