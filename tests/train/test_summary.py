"""The results of a run: each speed over the time it is said to be over."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.support.clocks import Clock, Log, a_model, progress_over, schedule, update
from tests.support.models import strategy_of
from tfbert import Config, DataConfig, OutputConfig, RuntimeConfig, TrainingConfig
from tfbert.model.files import BertConfig
from tfbert.tasks.classification.classification import Classification
from tfbert.train.fit import banner, train_results


def test_speeds_with_warm_up_leave_out_evaluation():
    log, clock, model = Log(), Clock(), a_model()
    progress, _ = progress_over(log, clock, model, [])
    for step, seconds in enumerate([6, 2, 1, 1]):
        update(model, 1.0)
        clock.now += seconds
        if step == 2:  # An evaluation and a checkpoint took 40 s.
            clock.now += 40
            progress.steps.paused += 40
        progress.on_step(step + 1)
    model.optimizer.iterations.assign(4)
    config = BertConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=1, intermediate_size=16, num_labels=2)
    model.all_reduce_dtype = "bfloat16"
    model.trainable_variables = [tf.Variable(np.zeros(shape)) for shape in ([3, 4], [5])]
    run = types.SimpleNamespace(
        model=model,
        schedule=schedule(),
        classifier=types.SimpleNamespace(config=config, lora=None, num_parameters=lambda **only: 17 + 3 * (not only)),
        strategy=types.SimpleNamespace(num_replicas_in_sync=1),
        data=types.SimpleNamespace(task=Classification(("0", "1"))),
    )
    results = train_results(run, progress, 50.0)
    assert results["train_examples_per_second_with_warmup"] == pytest.approx(4 * 8 / 10)
    assert results["train_examples_per_second_steady"] == pytest.approx(2 * 8 / 2)
    assert results["train_samples_per_second"] == pytest.approx(4 * 8 / 50)
    assert results["gradient_bytes"] == 2 * (3 * 4 + 5), "as they are summed, whatever the weights are"
    assert (results["trained_parameters"], results["parameters"]) == (17, 20)
    run.classifier.lora = "some"
    of_frozen = train_results(run, progress, 50.0)["train_model_gflops_per_second"]
    assert of_frozen == pytest.approx(results["train_model_gflops_per_second"] * 2 / 3, abs=0.01)


class Encoded(types.SimpleNamespace):
    may_be_cut = True

    def __len__(self):
        return len(self.lengths)


@pytest.mark.parametrize("longest, has_validation", [(9, True), (16, False)])
def test_the_banner_says_nothing_that_says_nothing(longest, has_validation, monkeypatch):
    run = types.SimpleNamespace(
        config=Config(data=DataConfig(max_seq_length=16), training=TrainingConfig(global_batch_size=8)).resolved(),
        data=types.SimpleNamespace(
            notes=(),
            train=[1, 2, 3],
            task=Classification(("0", "1")),
            validation={"validation": [1, 2]} if has_validation else {},
            test=None,
        ),
        schedule=types.SimpleNamespace(first_step=0, total_steps=6, warmup_steps=1, steps_per_epoch=2, eval_steps=2),
        directory="out",
        train=Encoded(lengths=np.array([3, 5, longest])),
        strategy=strategy_of(1),
        batches=types.SimpleNamespace(description="few"),
        classifier=types.SimpleNamespace(num_parameters=lambda: 1),
        head_start="",
        resumed=None,
    )
    text = "\n".join(banner(run))
    assert ("evaluation every 2" in text) == has_validation == ("nothing to evaluate on" not in text)
    assert ("1 text fills all 16 and may be cut" in text) == (longest == 16) == ("may be cut" in text)
    assert "above the number of examples" in text
    run.schedule.eval_steps = 47
    assert (", evaluation at the end" in "\n".join(banner(run))) == has_validation
    assert "no checkpoint before the end (save_steps=500): a killed run begins at step 0 again" in text
    run.config = dataclasses.replace(run.config, output=OutputConfig(output_dir="out", save_steps=5)).resolved()
    assert "no checkpoint" not in "\n".join(banner(run))
    run.schedule.first_step = 5
    assert "a killed run begins at step 5 again" in "\n".join(banner(run))
    config = dataclasses.replace(run.config, runtime=RuntimeConfig(all_reduce_dtype="bfloat16"))
    run.config = config.resolved()
    assert "on CPU, no gradients to sum in bfloat16: one replica" in "\n".join(banner(run))
    run.config = dataclasses.replace(config, runtime=RuntimeConfig(xla=True)).resolved()
    assert not any("--xla" in line for line in banner(run)), "there is no GPU"
    with monkeypatch.context() as patch:
        patch.setattr("tensorflow.config.list_logical_devices", lambda kind: [kind])
        for steps, is_said in ((504, True), (505, False)):
            run.schedule.total_steps = steps
            said = "warning: --xla compiles each width of batches for 12 s or more, which 499 updates hardly"
            assert any(line.startswith(said) for line in banner(run)) == is_said
    run.config = config.resolved()
    run.strategy = strategy_of(2)
    assert "(logical devices that share its cores), gradients summed in bfloat16" in "\n".join(banner(run))
