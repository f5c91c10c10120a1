"""The results of a run: each speed over the time it is said to be over."""

import types

import pytest

from tests.test_callbacks import Clock, Log, a_model, progress_over, update
from tfbert.summary import train_results


def test_speeds_with_warm_up_leave_out_evaluation():
    log, clock, model = Log(), Clock(), a_model()
    progress, _ = progress_over(log, clock, model, [])
    for step, seconds in enumerate([6, 2, 1, 1]):
        update(model, 1.0)
        clock.now += seconds
        if step == 2:  # An evaluation and a checkpoint took 40 s.
            clock.now += 40
            progress.steps.paused += 40
        progress.on_train_batch_end(step)
    model.optimizer.iterations.assign(4)
    config = types.SimpleNamespace(num_hidden_layers=2, hidden_size=8, intermediate_size=16, num_labels=2)
    results = train_results(model, progress, progress.schedule, 50.0, config, num_replicas=1)
    assert results["train_examples_per_second_with_warmup"] == pytest.approx(4 * 8 / 10)
    assert results["train_examples_per_second_steady"] == pytest.approx(2 * 8 / 2)
    assert results["train_samples_per_second"] == pytest.approx(4 * 8 / 50)
