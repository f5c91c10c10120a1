"""A finished run that goes further: with the state of its training as if it had been asked from the start, else refused
with what is possible; and a run that goes on with other devices than it began with."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.support.runs import checkpoints_in, log_of, make_config, run_to, undrawn, write_corpus
from tests.support.splits import NO_GRADIENT, ROOT, alone, assert_as_nearly, launched
from tests.support.task_runs import CHOICES, KINDS, QUESTIONS, run_of
from tfbert.errors import RunError, UsageError
from tfbert.output import output_dir
from tfbert.step.keras3.fused import WarmupSchedule
from tfbert.train.checkpoint import newest_intact
from tfbert.train.run import finetune

pytestmark = pytest.mark.usefixtures("undrawn")
CONSTANT = {"lr_schedule": "constant", "warmup_steps": 2, "num_train_epochs": None}


def config_for(shared, name, **options):
    saving = {"keep_optimizer": True, "eval_steps": 4, "save_steps": 5}
    return make_config(shared, name).changed(CONSTANT | saving | options)


@pytest.fixture(scope="module")
def finished(shared):
    """A run of 7 updates, in the middle of an epoch and of what lies between two evaluations; and its results."""
    with undrawn():
        return shared / "finished", finetune(config_for(shared, "finished", max_steps=7))


@pytest.fixture(scope="module")
def straight(shared):
    """A run of 12 updates at once, on one device; and its results."""
    with undrawn():
        return shared / "straight", finetune(config_for(shared, "straight", max_steps=12, keep_optimizer=False))


def sha(directory):
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


def copied(finished, shared, name):
    shutil.copytree(finished[0], shared / name)
    return shared / name


@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_finished_run_goes_further_as_if_asked_from_the_start(
    shared, finished, straight, stopped, logged, monkeypatch
):
    """Its last evaluation, which was due for its end alone, decides nothing; a signal in between changes nothing: by
    default test_told.py has one, and test_resume.py what the next start of a longer run reads."""
    directory = copied(finished, shared, f"longer-{stopped}")
    kept = [path.name for path in (directory / "checkpoints").glob("step-*")]
    assert finished[1]["global_step"] == 7 and kept == ["step-00000007"]
    longer = config_for(shared, directory.name, max_steps=12)
    if stopped:
        run_to(8, longer, monkeypatch)
        assert not (directory / output_dir.RESULTS).exists(), "a run that goes further is no finished one"
    further = finetune(longer)
    assert "a longer run than before, 12 updates in place of 7" in "\n".join(logged())
    assert sha(directory) == sha(straight[0])
    same = ["eval_loss", "eval_accuracy", "best_step", "train_loss", "global_step"]
    assert [further[name] for name in same] == [straight[1][name] for name in same]
    assert not (straight[0] / "checkpoints").exists()
    assert json.loads((directory / "run_config.json").read_text())["until_step"] == {"7": {"max_steps": 7}}


@pytest.mark.slow
def test_where_the_rate_falls_it_goes_on_on_the_line_of_the_longer_run(shared):
    """From the update at which it goes on, with the warm-up that it began with."""
    decaying = {"lr_schedule": "linear", "warmup_steps": 0, "warmup_ratio": 0.2}
    finetune(config_for(shared, "decaying", max_steps=6, **decaying))
    finetune(config_for(shared, "decaying", max_steps=12, **decaying))
    rates = [record["learning_rate"] for record in log_of(shared / "decaying", "train")]
    first, second = (WarmupSchedule(peak=5e-4, schedule="linear", warmup_steps=2, total_steps=n) for n in (6, 12))
    expected = [float((first if step < 6 else second)(tf.constant(step))) for step in range(12)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_run_that_dies_before_its_results_are_written_is_finished_by_the_next_start(shared, finished, monkeypatch):
    write = output_dir.write_json

    def failing(path, value):
        if path.name == output_dir.RESULTS:
            raise RunError("killed")
        write(path, value)

    config = config_for(shared, "dying", max_steps=7)
    with monkeypatch.context() as patch:
        patch.setattr(output_dir, "write_json", failing)
        with pytest.raises(RunError, match="killed"):
            finetune(config)
    names = sorted(path.name for path in (shared / "dying" / "checkpoints").iterdir())
    assert "last-00000007" in names and "step-00000007" not in names, "no start resumes without an update to make"
    finetune(config)
    assert sha(shared / "dying") == sha(finished[0])
    assert [path.name for path in (shared / "dying" / "checkpoints").glob("step-*")] == ["step-00000007"]


def refused(config, match):
    with pytest.raises(UsageError, match=match) as error:
        finetune(config)
    assert "\n" not in str(error.value)


def test_what_is_possible_without_the_state(shared, finished):
    shutil.rmtree(copied(finished, shared, "bare") / "checkpoints")
    refused(
        config_for(shared, "bare", max_steps=12),
        "a finished run without the state of its training, which --keep_optimizer keeps.*--model=.* to start a new run",
    )


def test_a_finished_run_goes_no_further_than_it_went(shared, finished):
    before = sorted(finished[0].rglob("*"))
    refused(config_for(shared, "finished", max_steps=7), "which holds a finished run. Pass another")
    refused(config_for(shared, "finished", max_steps=5), "7 of 7 planned updates done and 5 asked for now")
    refused(config_for(shared, "finished", max_steps=12, learning_rate=1e-3), "learning_rate=0.0005 before and 0.001")
    refused(config_for(shared, "finished", max_steps=12, resume="never"), "a finished run")
    assert sorted(finished[0].rglob("*")) == before


@pytest.mark.parametrize("step, without_better", [(5, 1), (7, 2)], ids=["before-its-end", "at-its-end"])
def test_a_run_that_stopped_early_would_stop_again(shared, finished, step, without_better):
    """Also one whose patience ended with its last update: a longer run from the start would have ended there."""
    directory = copied(finished, shared, f"early-{step}")
    shutil.rmtree(directory / "checkpoints")
    identity = newest_intact(finished[0] / "checkpoints").identity
    assert identity["facts"]["batch_order"] == 2  # Of earlier versions' runs it is refused: test_resume.py.
    identity["settings"]["early_stopping_patience"] = 2
    checkpoints_in(directory)[1](step, identity=identity, without_better=without_better)
    longer = config_for(shared, directory.name, max_steps=12, early_stopping_patience=2)
    refused(longer, f"a run that stopped early, at update {step}, and would stop there")


@pytest.mark.slow
def test_a_run_goes_on_on_fewer_devices_with_more_micro_batches(shared, straight, logged, monkeypatch):
    config = config_for(shared, "elastic", max_steps=12, keep_optimizer=False)
    run_to(7, config.accumulating(1).changed({"strategy": "mirrored", "num_replicas": 2}), monkeypatch)
    finetune(config.accumulating(4))
    line = "computed differently from before, with the same updates but for rounding: gradient_accum"
    assert line in "\n".join(logged())
    assert_as_nearly(shared / "elastic", straight[0])


# The command, killed by its own process after an update: its last checkpoint is older.
KILLED = """\
import os, signal, sys
sys.path.insert(0, {root!r})
from tfbert.train.fit import Save
on_step = Save.on_step
def dying(self, step):
    on_step(self, step)
    if step == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
Save.on_step = dying
import {command}
sys.exit({command}.main())
"""


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("kind", KINDS)
def test_killed_on_two_replicas_then_on_one_device_then_done_by_two_workers(tmp_path, kind, capsys):
    write_corpus(tmp_path)

    def start(name, how, kill_at=0, micro_batches=1, **runtime):
        command, config = run_of(kind, tmp_path, name, **runtime)
        # A high rate would make much of rounding.
        config = config.accumulating(micro_batches).changed({"learning_rate": 5e-4, "save_steps": 2})
        (tmp_path / "run.json").write_text(config.to_json())
        script = tmp_path / "killed.py"
        script.write_text(KILLED.format(root=str(ROOT), step=kill_at, command=command))
        how(str(script), [f"--run_config={tmp_path / 'run.json'}"])

    def killed(script, arguments):
        with pytest.raises(Exception, match="SIGKILL"):
            alone(script, arguments)

    start("straight", alone)
    start("elastic", killed, kill_at=3, strategy="mirrored", num_replicas=2)
    start("elastic", killed, kill_at=7, micro_batches=4)
    start("elastic", launched, micro_batches=2, strategy="multi_worker")
    until = json.loads((tmp_path / "elastic" / "run_config.json").read_text())["until_step"]
    names = {"gradient_accumulation_steps", "strategy"}
    assert [values.keys() for values in until.values()] == [names | {"num_replicas"}, names]
    # Windows give the questions more than twice the updates of the others, and words without an answer tiny gradients.
    limit = 1e-4 if kind == QUESTIONS else 1e-5
    without = (*NO_GRADIENT, "classifier.bias" if kind == CHOICES else "qa_outputs.bias")  # Scores may all be higher.
    largest = assert_as_nearly(tmp_path / "elastic", tmp_path / "straight", limit, without)
    with capsys.disabled():
        print(f"\n{kind}: 2 replicas, 1 x 4, 2 workers x 2: largest difference of a weight {largest:.1e}")
