"""Runs killed with SIGKILL end in the bits of a run never killed: {devices} x {precision} x {XLA}, dropout on; and
pre-training, tagged words, answers, choices and several labels a text, on one device and two workers.

Each case is one `tfbert.launch` that starts again by itself after three kills: from outside at a random time, by the
worker itself with half of a checkpoint's file written, and from outside once more. The seed of the times is
TFBERT_KILL_SEED. Prints a line a case.

And what goes wrong around a run: a full disk, a directory that vanishes. One clear line, status 1, nothing lost.
"""

import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.support.processes import ROOT
from tests.support.runs import assert_same_bits, make_config, steps_logged, weights
from tests.support.task_runs import KINDS, TEXTS, run_of
from tfbert.train.checkpoint import newest_intact

STEPS = 120
LIMIT_SECONDS = 1500.0
"""For a run that hangs. Cases that compile with XLA in five starts took six minutes, two at a time on two cores."""

# The command, but the chief dies in the middle of a checkpoint while the file `armed` is there.
WORKER = """\
import os, pathlib, signal, sys
sys.path.insert(0, {root!r})
import tfbert.train.checkpoint as checkpoint
armed, original = pathlib.Path({armed!r}), checkpoint.write_weights

def write_weights(tensors, path):
    original(tensors, path)
    if path.name == checkpoint.OPTIMIZER and armed.exists():
        os.truncate(path, path.stat().st_size // 2)
        armed.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

checkpoint.write_weights = write_weights
import {command}
sys.exit({command}.main())
"""

DEVICES = {
    "one_device": (1, {"strategy": "one_device"}),
    "mirrored": (1, {"strategy": "mirrored", "num_replicas": 2}),
    "two_workers": (2, {"strategy": "multi_worker"}),
}
PRECISIONS = {"float32": {}, "float16": {"mixed_precision": True, "mixed_precision_dtype": "float16"}}


def workers_of(launcher):
    """Process ids of the launcher's children."""
    return [int(pid) for pid in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


LORA = "lora"
GRID = [(TEXTS, *case) for case in itertools.product(DEVICES, PRECISIONS, (False, True))]
OTHERS = [kind for kind in (*KINDS, LORA) if kind != TEXTS]
GRID += [(kind, devices, "float32", False) for kind in OTHERS for devices in ("one_device", "two_workers")]


def start(config, path, *command):
    """A process of a command with this configuration; its messages go to `path`.err."""
    path.with_suffix(".json").write_text(config.to_json())
    with path.with_suffix(".err").open("w") as errors:
        words = [sys.executable, *command, f"--run_config={path.with_suffix('.json')}"]
        return subprocess.Popen(words, cwd=ROOT, stderr=errors, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("kind, devices, precision, xla", GRID)
def test_killed_runs_end_in_the_same_bits(corpus, capsys, kind, devices, precision, xla):
    num_workers, runtime = DEVICES[devices]
    armed, script = corpus / "armed", corpus / "worker.py"

    def launched(name, *flags):
        # Each start compiles each width anew.
        compiled = {"xla": True, "max_compiled_shapes": 2} if xla else {}
        task, rank = (TEXTS, 4) if kind == LORA else (kind, 0)
        command, config = run_of(task, corpus, name, **compiled, **runtime, **PRECISIONS[precision])
        script.write_text(WORKER.format(root=str(ROOT), armed=str(armed), command=command))
        options = {"num_train_epochs": None, "max_steps": STEPS, "lora_rank": rank, "save_steps": 7, "eval_steps": 20}
        launch = ("-m", "tfbert.launch", f"--num_workers={num_workers}", *flags, "--", str(script))
        return start(config.changed(options), corpus / name, *launch)

    assert launched("straight").wait(timeout=LIMIT_SECONDS) == 0, (corpus / "straight.err").read_text()[-3000:]

    seed = [int(os.environ.get("TFBERT_KILL_SEED", "0")), len(devices), len(precision), xla]
    rng = np.random.default_rng(seed)
    targets = [int(rng.integers(1, 50)), int(rng.integers(60, 110))]
    directory = corpus / "killed"
    launcher = launched("killed", "--max_restarts=4", "--restart_delay_seconds=0.2")
    kills, deadline = [], time.monotonic() + LIMIT_SECONDS
    while launcher.poll() is None and time.monotonic() < deadline:
        step = steps_logged(directory)
        if targets and step >= targets[0] and not armed.exists() and (pids := workers_of(launcher.pid)):
            time.sleep(rng.uniform(0, 0.03))
            os.kill(pids[rng.integers(len(pids))], signal.SIGKILL)
            kills.append(step)
            if len(targets) == 2:
                armed.touch()
            targets.pop(0)
            while launcher.poll() is None and set(workers_of(launcher.pid)) & set(pids):
                time.sleep(0.01)
        time.sleep(0.002)
    has_ended = launcher.poll() is not None
    launcher.kill()  # Nothing where it has ended.
    errors = (corpus / "killed.err").read_text()
    assert has_ended, f"still running after {LIMIT_SECONDS} s: {errors[-3000:]}"
    assert launcher.wait() == 0, errors[-3000:]
    assert not targets and not armed.exists(), f"killed at {kills}"
    assert errors.count("all workers start again") == 3, errors[-3000:]
    assert_same_bits(weights(corpus / "straight"), weights(directory))
    saved = [(d / "config.json").read_text() for d in (corpus / "straight", directory)]
    assert saved[0] == saved[1], "what an evaluation decides, such as thresholds, is decided again"
    one, other = (json.loads((d / "all_results.json").read_text()) for d in (corpus / "straight", directory))
    assert (one["train_loss"], one["best_step"]) == (other["train_loss"], other["best_step"])
    with capsys.disabled():
        case = f"{kind} {devices} {precision} {'XLA' if xla else ''}"
        print(f"\n{case}: killed at steps {kills} and in a write; same bits")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 12 MB, where this machine lets us mount one: room for two checkpoints and not for many."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(directory)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs to mount a tmpfs")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def start_long(corpus, directory, name, **options):
    """The command in a process of its own: a run of 2,400 updates that saves every 10."""
    saving = {"output_dir": str(directory), "save_steps": 10, "eval_steps": 10_000, "save_total_limit": 0}
    config = make_config(corpus, "unused").changed({"num_train_epochs": 400} | saving | options)
    return start(config, corpus / name, str(ROOT / "run_finetune.py"))


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_leaves_the_checkpoint_before(corpus, small_disk):
    directory = small_disk / "run"
    process = start_long(corpus, directory, "full")
    assert process.wait(timeout=180) == 1
    errors = (corpus / "full.err").read_text().splitlines()
    assert "error: A checkpoint must be written whole" in errors[-1] and "No space left on device" in errors[-1]
    assert "Traceback" not in "\n".join(errors)
    step = newest_intact(directory / "checkpoints").step
    assert f"resumes from {directory}/checkpoints/step-{step:08}" in errors[-1]
    assert not list((directory / "checkpoints").glob(".partial*"))

    # With room again, the same run goes on.
    for path in sorted((directory / "checkpoints").glob("step-*"))[:-1]:
        shutil.rmtree(path)
    process = start_long(corpus, directory, "again", save_total_limit=1)
    while not (directory / "checkpoints" / f"step-{step + 10:08}").exists():
        assert process.poll() is None, (corpus / "again.err").read_text()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 75, (corpus / "again.err").read_text()
    assert newest_intact(directory / "checkpoints").step >= step + 10


@pytest.mark.slow
def test_an_output_directory_that_is_deleted_ends_the_run(corpus):
    directory = corpus / "run"
    process = start_long(corpus, directory, "deleted")
    while steps_logged(directory) < 5:
        assert process.poll() is None, (corpus / "deleted.err").read_text()
        time.sleep(0.01)
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)
    assert process.wait(timeout=60) == 1
    errors = (corpus / "deleted.err").read_text()
    assert errors.splitlines()[-1].startswith("run_finetune.py: error: ") and "Traceback" not in errors
    assert not directory.exists(), "nothing is written where a directory was taken away"
