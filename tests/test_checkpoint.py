"""An interrupted run ends in the weights of one that never stopped, to the bit; damaged checkpoints are passed over."""

import dataclasses
import json
import os
import pathlib
import signal
import types

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from tfbert.callbacks import Progress
from tfbert.checkpoint import Checkpoints, RunState
from tfbert.config import Config, DataConfig, ModelConfig, OutputConfig, RuntimeConfig, TrainingConfig
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.finetune import finetune

WORDS = ["good", "bad", "not", "very", "dull", "fine", "plot", "cast", "the", "a", "was", "film", "slow", "bright"]


def write_corpus(directory):
    """Files of 44 training and 12 validation rows, and a vocabulary."""
    rng = np.random.default_rng(0)
    for name, rows in (("train.tsv", 44), ("dev.tsv", 12)):
        lines = ["label\tsentence"]
        lines += [f"{i % 2}\t{' '.join(rng.choice(WORDS, rng.integers(3, 9)))}" for i in range(rows)]
        (directory / name).write_text("\n".join(lines) + "\n")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (directory / "vocab.txt").write_text("\n".join([*special, *WORDS]) + "\n")


@pytest.fixture
def corpus(tmp_path):
    """A directory with `write_corpus`'s files."""
    write_corpus(tmp_path)
    return tmp_path


def make_config(corpus, name, **runtime):
    """Two epochs of 6 updates: mid-epoch at every odd place, dropout on, the last batch of an epoch short."""
    return Config(
        model=ModelConfig(model_name_or_path="scratch/tiny", vocab_file=str(corpus / "vocab.txt")),
        data=DataConfig(
            train_file=str(corpus / "train.tsv"), validation_file=str(corpus / "dev.tsv"), max_seq_length=16
        ),
        training=TrainingConfig(global_batch_size=8, num_train_epochs=2, gradient_accumulation_steps=2),
        runtime=RuntimeConfig(**runtime),
        output=OutputConfig(output_dir=str(corpus / name), save_steps=3, eval_steps=2, logging_steps=1),
    )


def weights(directory):
    return load_file(pathlib.Path(directory) / "model.safetensors")


def assert_same_bits(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value.view(np.uint8), second[name].view(np.uint8), err_msg=name)


def stop_at(monkeypatch, step, number=signal.SIGTERM):
    """Sends this process a real signal while the run is at `step`."""
    original = Progress.on_step

    def on_step(self, now):
        original(self, now)
        if now == step:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Progress, "on_step", on_step)


def run_to(step, config, monkeypatch):
    """Runs until a signal stops it at `step`."""
    with monkeypatch.context() as patch:
        stop_at(patch, step)
        with pytest.raises(Preempted):
            finetune(config)


# Results that are times, or follow from them.
TIMES = ("train_runtime", "train_s", "train_examples", "train_tokens", "train_model", "step_seconds", "compile_seconds")
TIMES += ("data_wait_share", "peak_memory", "checkpoint")
SLOW = pytest.mark.slow
GRID = [
    pytest.param({}, id="one_device-float32"),
    pytest.param({"strategy": "mirrored", "num_replicas": 2}, id="mirrored-float32", marks=SLOW),
    pytest.param({"xla": True}, id="one_device-float32-xla", marks=SLOW),
    pytest.param({"mixed_precision": True, "mixed_precision_dtype": "float16"}, id="one_device-float16", marks=SLOW),
    pytest.param(
        {
            "strategy": "mirrored",
            "num_replicas": 2,
            "mixed_precision": True,
            "mixed_precision_dtype": "float16",
            "xla": True,
        },
        id="mirrored-float16-xla",
        marks=SLOW,
    ),
]


@pytest.mark.parametrize("runtime", GRID)
def test_a_stopped_run_goes_on_to_the_same_bits(corpus, monkeypatch, runtime):
    straight = finetune(make_config(corpus, "straight", **runtime))
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(Preempted, match="after step 7 of 12"):
            finetune(make_config(corpus, "resumed", **runtime))
    assert not (corpus / "resumed" / "all_results.json").exists()
    resumed = finetune(make_config(corpus, "resumed", **runtime))

    assert_same_bits(weights(corpus / "straight"), weights(corpus / "resumed"))
    timeless = [k for k in straight if not k.startswith(TIMES)]
    assert {k: straight[k] for k in timeless} == {k: resumed[k] for k in timeless}
    steps = [json.loads(line) for line in (corpus / "resumed" / "log.jsonl").read_text().splitlines()]
    assert [r["step"] for r in steps if r["kind"] == "train"] == list(range(1, 13))
    with pytest.raises(UsageError, match="a finished run"):
        finetune(make_config(corpus, "resumed", **runtime))


def test_damaged_checkpoints_are_passed_over_and_other_runs_refused(corpus, monkeypatch, caplog):
    config = make_config(corpus, "run")
    run_to(7, config, monkeypatch)
    kept = sorted(p.name for p in (corpus / "run" / "checkpoints").glob("step-*"))
    assert kept == ["step-00000006", "step-00000007"]

    text = (corpus / "train.tsv").read_text()
    (corpus / "train.tsv").write_text(text.replace("good", "dull"))
    with pytest.raises(UsageError, match="train_crc32="):
        finetune(config)
    (corpus / "train.tsv").write_text(text)

    damaged = corpus / "run" / "checkpoints" / "step-00000007" / "optimizer.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    caplog.set_level("INFO", "tfbert")
    results = finetune(config)
    assert "step-00000007 is not whole (optimizer.safetensors is damaged)" in caplog.text
    assert results["global_step"] == 12
    size = sum(p.stat().st_size for p in (corpus / "run" / "checkpoints" / "step-00000009").iterdir())
    assert (results["checkpoints"], results["checkpoint_bytes"]) == (1, size)
    assert f"checkpoints written: 1, {results['checkpoint_seconds']:.1f} s and {size / 1e6:.0f} MB each" in caplog.text


def test_the_best_evaluation_is_forgotten_when_the_examples_are_others(corpus, monkeypatch, caplog):
    """Metrics of two sets do not compare: the old best would never be beaten."""
    config = make_config(corpus, "run")
    run_to(7, config, monkeypatch)
    lines = (corpus / "dev.tsv").read_text().splitlines()
    (corpus / "dev.tsv").write_text("\n".join(lines[:8]) + "\n")
    with caplog.at_level("INFO", "tfbert"):
        results = finetune(config)
    assert "the best evaluation so far is forgotten" in caplog.text
    assert results["best_step"] > 7
    assert json.loads((corpus / "run" / "report.json").read_text())["evaluation"]["num_examples"] == 7


def checkpoints_in(tmp_path, keep=0):
    """Checkpoints of hardly anything, and a function that saves one."""
    checkpoints = Checkpoints(
        tmp_path / "checkpoints", is_writer=True, keep=keep, save_model=lambda path: (path / "model").write_text("m")
    )
    optimizer = types.SimpleNamespace(variables=[tf.Variable(1.0)])
    model = types.SimpleNamespace(optimizer=optimizer, progress=types.SimpleNamespace())

    def save(step, best_step=0):
        best = {"eval_loss": 1.0} if best_step else {}
        return checkpoints.save(
            model, RunState(step=step, best=best, best_step=best_step, without_better=0, identity={})
        )

    return checkpoints, save


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_damaged_newer_checkpoints_make_room_for_the_one_written(tmp_path):
    checkpoints, save = checkpoints_in(tmp_path)
    save(400)
    save(500)
    flip_a_bit(tmp_path / "checkpoints" / "step-00000500" / "optimizer.safetensors")
    checkpoints, save = checkpoints_in(tmp_path, keep=1)
    assert checkpoints.newest_sound().step == 400
    assert save(450) > 0
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000450"]
    checkpoints, save = checkpoints_in(tmp_path, keep=2)
    for step in (460, 470, 480):
        save(step)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-00000470", "step-00000480"]


@pytest.mark.parametrize("damage", [flip_a_bit, pathlib.Path.unlink], ids=["bit", "missing"])
@pytest.mark.parametrize("is_old", [False, True], ids=["", "earlier version"])
def test_a_checkpoint_is_as_sound_as_the_best_weights_it_refers_to(tmp_path, caplog, damage, is_old):
    checkpoints, save = checkpoints_in(tmp_path)
    checkpoints.save_best({"w": np.ones(3, np.float32)}, 2)
    save(4, best_step=2)
    checkpoints.save_best({"w": np.zeros(3, np.float32)}, 6)
    save(8, best_step=6)
    if is_old:
        for path in tmp_path.rglob("state.json"):
            content = json.loads(path.read_text())
            del content["best_file"]
            path.write_text(json.dumps(content))
    assert checkpoints.newest_sound().step == 8
    damage(tmp_path / "checkpoints" / "best-00000006" / "model.safetensors")
    if is_old and damage is flip_a_bit:
        return  # It says nothing to compare with.
    assert checkpoints.newest_sound().step == 4
    assert "step-00000008 is not whole" in caplog.text and "best-00000006/model.safetensors" in caplog.text


def test_best_weights_damaged_after_they_were_written_never_pass_for_right(tmp_path):
    checkpoints, save = checkpoints_in(tmp_path)
    checkpoints.save_best({"w": np.ones(3, np.float32)}, 2)
    flip_a_bit(tmp_path / "checkpoints" / "best-00000002" / "model.safetensors")
    save(4, best_step=2)
    save(8, best_step=2)
    # The updates are not lost with them.
    state = checkpoints.newest_sound()
    assert (state.step, state.best, state.best_step) == (8, {}, 0)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(corpus, monkeypatch):
    import tfbert.checkpoint as checkpoint

    config = make_config(corpus, "run")
    original, calls = checkpoint.write_weights, []

    def full_disk(tensors, path):
        calls.append(path)
        if "step-00000006" in str(path):
            path.write_bytes(b"half")
            raise RunError(f"The weights could not be written to {path}: No space left on device")
        original(tensors, path)

    monkeypatch.setattr(checkpoint, "write_weights", full_disk)
    with pytest.raises(RunError, match="No space left on device.*goes on from .*step-00000003"):
        finetune(config)
    names = sorted(p.name for p in (corpus / "run" / "checkpoints").iterdir())
    assert [n for n in names if not n.startswith("best")] == ["step-00000003"]
    monkeypatch.setattr(checkpoint, "write_weights", original)
    assert finetune(config)["global_step"] == 12


@pytest.mark.slow
def test_a_restart_goes_on_although_the_first_start_was_to_overwrite(corpus, monkeypatch):
    straight = finetune(make_config(corpus, "straight"))
    config = make_config(corpus, "run")
    config = dataclasses.replace(config, output=dataclasses.replace(config.output, overwrite_output_dir=True))
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-093000")
    (corpus / "run").mkdir()
    (corpus / "run" / "log.jsonl").write_text("another run's\n")
    (corpus / "run" / "run_config.json").write_text(make_config(corpus, "run").to_json())
    for step in (4, 8):
        with monkeypatch.context() as patch:
            stop_at(patch, step)
            with pytest.raises(Preempted, match=f"after step {step} of 12"):
                finetune(config)
    assert finetune(config)["train_loss"] == straight["train_loss"]
    assert_same_bits(weights(corpus / "straight"), weights(corpus / "run"))

    written = (corpus / "run" / "log.jsonl").read_text()
    assert finetune(config)["global_step"] == 12, "finished already: the results are read"
    assert (corpus / "run" / "log.jsonl").read_text() == written
