"""`--profile_steps`: which updates are profiled, and that no profiler is left behind."""

import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.support.runs import changed, make_config, run_to
from tfbert.train.run import finetune

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))


@pytest.mark.slow
def test_a_run_is_profiled_and_its_split_adds_up_to_its_steps(corpus):
    from profile_split import read_split

    finetune(changed(make_config(corpus, "out"), output={"profile_steps": (7, 9), "eval_steps": 0, "save_steps": 0}))
    parts = read_split(corpus / "out" / "profile")
    assert all(parts[part] > 0 for part in ("forward and backward", "update", "data"))
    assert parts["forward and backward"] > parts["update"]
    # Counted by Keras from the beginning of step 7 to the end of step 9; the log has the same steps by another clock.
    records = [json.loads(line) for line in (corpus / "out" / "log.jsonl").read_text().splitlines()]
    speeds = {r["step"]: r["examples_per_second"] for r in records if r["kind"] == "train"}
    seconds = np.mean([8 / speeds[8], 8 / speeds[9]])
    assert 0.3 * seconds < sum(parts.values()) < 3 * seconds


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_is_stopped_leaves_no_profiler(corpus, monkeypatch):
    """A process has one."""
    run_to(4, changed(make_config(corpus, "out"), output={"profile_steps": (3, 9)}), monkeypatch)
    assert list((corpus / "out" / "profile").rglob("*.xplane.pb"))
    tf.profiler.experimental.start(str(corpus / "another"))
    tf.profiler.experimental.stop(save=False)
