"""An interrupted run ends in the weights of one that never stopped, to the bit; damaged checkpoints are passed over."""

import contextlib
import dataclasses
import json
import os
import pathlib
import types

import numpy as np
import pytest

from tests.support.refusals import refused
from tests.support.runs import TIMES, assert_same_bits, checkpoints_in, flipped, log_of, make_config, run_to, weights
from tfbert.errors import RunError, UsageError
from tfbert.model.weights import write_weights
from tfbert.output.output_dir import seal, unseal
from tfbert.train import resume
from tfbert.train.checkpoint import MODEL, STATE, RunState, newest_intact, tidy
from tfbert.train.run import finetune

FLOAT16 = {"mixed_precision": True, "mixed_precision_dtype": "float16"}
WAYS = [
    {"strategy": "mirrored", "num_replicas": 2},
    {"xla": True},
    FLOAT16,
    {"strategy": "mirrored", "num_replicas": 2, "xla": True} | FLOAT16,
]
"""By default test_told.py has a run on one device."""


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("runtime", WAYS, ids=lambda runtime: "-".join(map(str, runtime.values())))
def test_a_stopped_run_goes_on_to_the_same_bits(corpus, monkeypatch, runtime):
    run_to(7, make_config(corpus, "run", **runtime), monkeypatch)
    straight = finetune(make_config(corpus, "straight", **runtime))
    assert not (corpus / "run" / "all_results.json").exists()
    resumed = finetune(make_config(corpus, "run", **runtime))

    assert_same_bits(weights(corpus / "straight"), weights(corpus / "run"))
    timeless = [k for k in straight if not k.startswith(TIMES)]
    assert {k: straight[k] for k in timeless} == {k: resumed[k] for k in timeless}
    assert [record["step"] for record in log_of(corpus / "run", "train")] == list(range(1, 13))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_damaged_checkpoints_are_passed_over_and_other_runs_refused(corpus, caplog, monkeypatch):
    """And the best evaluation is forgotten where its examples are others: metrics of two sets do not compare, and the
    old best would never be beaten."""
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
    lines = (corpus / "dev.tsv").read_text().splitlines()
    (corpus / "dev.tsv").write_text("\n".join(lines[:8]) + "\n")
    caplog.set_level("INFO", "tfbert")
    results = finetune(config)
    assert "step-00000007 is not whole (step-00000007/optimizer.safetensors is damaged)" in caplog.text
    assert results["global_step"] == 12
    size = results["checkpoint_bytes"]
    assert results["checkpoints"] == 1 and size > 3 * (corpus / "run" / MODEL).stat().st_size
    assert f"checkpoints written: 1, {results['checkpoint_seconds']:.1f} s and {size / 1e6:.0f} MB each" in caplog.text
    assert f"resuming at step 6 of 12 from {corpus}/run/checkpoints/step-00000006" in caplog.text
    # Nothing goes on from a finished run.
    assert "checkpoints removed: " in caplog.text.splitlines()[-1] and not (corpus / "run" / "checkpoints").exists()
    assert "the best evaluation so far is forgotten" in caplog.text
    assert results["best_step"] > 6
    assert json.loads((corpus / "run" / "report.json").read_text())["evaluation"]["num_examples"] == 7


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def saved_in(tmp_path, *steps, keep=0):
    """The directory of checkpoints of these steps, written one after the other."""
    checkpoints, save = checkpoints_in(tmp_path, keep=keep)
    for step in steps:
        save(step)
    return checkpoints.directory


def test_damaged_newer_checkpoints_make_room_for_the_one_written(tmp_path):
    directory = saved_in(tmp_path, 400, 500)
    flip_a_bit(directory / "step-00000500" / "optimizer.safetensors")
    assert newest_intact(directory).step == 400
    assert checkpoints_in(tmp_path, keep=1)[1](450) > 0
    assert [path.name for path in directory.iterdir()] == ["step-00000450"]
    saved_in(tmp_path, 460, 470, 480, keep=2)
    assert sorted(path.name for path in directory.iterdir()) == ["step-00000470", "step-00000480"]


@pytest.mark.parametrize("damage", [flip_a_bit, pathlib.Path.unlink], ids=["bit", "missing"])
def test_a_checkpoint_is_as_sound_as_the_best_weights_it_refers_to(tmp_path, caplog, damage):
    checkpoints, save = checkpoints_in(tmp_path)
    checkpoints.save_best({"w": np.ones(3, np.float32)}, 2)
    save(4, best_step=2)
    checkpoints.save_best({"w": np.zeros(3, np.float32)}, 6)
    save(8, best_step=6)
    assert newest_intact(checkpoints.directory).step == 8
    damage(tmp_path / "checkpoints" / "best-00000006" / "model.safetensors")
    assert newest_intact(checkpoints.directory).step == 4
    assert "step-00000008 is not whole" in caplog.text and "best-00000006/model.safetensors" in caplog.text


def test_best_weights_damaged_after_they_were_written_never_pass_for_right(tmp_path):
    checkpoints, save = checkpoints_in(tmp_path)
    checkpoints.save_best({"w": np.ones(3, np.float32)}, 2)
    flip_a_bit(tmp_path / "checkpoints" / "best-00000002" / "model.safetensors")
    save(4, best_step=2)
    save(8, best_step=2)
    # The updates are not lost with them.
    state = newest_intact(checkpoints.directory)
    assert (state.step, state.best, state.best_step) == (8, {}, 0)


def two_checkpoints(tmp_path):
    """`step-4` and `step-8`, the best weights at 4."""
    tmp_path.mkdir(exist_ok=True)
    checkpoints, save = checkpoints_in(tmp_path)
    checkpoints.save_best({"w": np.zeros(3, np.float32)}, 4)
    save(4, best_step=4)
    save(8, best_step=4, identity={"settings": {"learning_rate": 5e-5}})
    return checkpoints.directory


def test_every_byte_that_is_changed_is_noticed_or_harmless(tmp_path, caplog):
    directory = two_checkpoints(tmp_path)
    caplog.set_level("ERROR", "tfbert")  # Thousands of warnings take seconds.
    right, before = newest_intact(directory), newest_intact(tmp_path / "none")
    assert right.step == 8 and before is None
    for path in sorted((directory / "step-00000008").iterdir()):
        original = path.read_bytes()
        damages = [original[:n] + bytes([original[n] ^ 1 << n % 8]) + original[n + 1 :] for n in range(len(original))]
        damages += [original[:n] for n in range(0, len(original), 1 if path.name == STATE else 16)]
        damages += [bytes(len(original)), original + b"\0"]
        for damage in damages:
            path.write_bytes(damage)
            found = newest_intact(directory)
            is_harmless = path.name == STATE and found == right
            assert is_harmless or found.step == 4, (path.name, damage)
            if is_harmless:
                assert unseal(damage.decode()) == unseal(original.decode()), "only the space between values"
        path.write_bytes(original)
    assert newest_intact(directory) == right
    # The best weights, to which both refer: the updates are not lost with them.
    best = directory / "best-00000004" / MODEL
    for _ in flipped(best):
        assert newest_intact(directory) == dataclasses.replace(right, best={}, best_step=0)


WRONG = ["[]", "8", "null", "[" * 100_000, '{"a":' * 100_000, "{}", {"step": "8"}, {"format": 5}, {"surplus": 1}]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: str(wrong)[:30])
def test_a_state_of_the_wrong_shape_is_passed_over(tmp_path, wrong):
    path = two_checkpoints(tmp_path) / "step-00000008" / STATE
    content = unseal(path.read_text())
    if isinstance(wrong, dict):
        values = content | wrong
        wrong = seal(values) if wrong == {"surplus": 1} else json.dumps(values)
    path.write_text(wrong)
    assert newest_intact(path.parent.parent).step == 4


def test_a_directory_and_its_content_must_agree(tmp_path):
    directory = two_checkpoints(tmp_path)
    for name in ("step-00000012", "step-0000000008", "step-100000000"):
        (directory / "step-00000008").rename(directory / name)
        assert newest_intact(directory).step == 4
        (directory / name).rename(directory / "step-00000008")
    (directory / "step-00000008").rename(directory / "step-00000002")
    assert newest_intact(directory).step == 4


def test_the_newest_is_the_one_of_the_highest_number(tmp_path):
    assert newest_intact(saved_in(tmp_path, 99_999_999, 100_000_000)).step == 100_000_000


VERSIONS = {
    5: "the version of tfbert that began it; this one writes format 4. Received: .*step-00000008 of format 5",
    3: "of format 3. Finish it with that version",
}


@pytest.mark.parametrize("version, line", VERSIONS.items())
def test_a_checkpoint_of_another_version_is_not_replaced(tmp_path, version, line):
    path = two_checkpoints(tmp_path) / "step-00000008" / STATE
    path.write_text(seal(unseal(path.read_text()) | {"format": version, "more": 1}))
    with refused(line):
        newest_intact(path.parent.parent)


def test_what_is_gone_when_it_is_read_is_a_failed_run_and_no_wrong_use(tmp_path):
    checkpoints, save = checkpoints_in(tmp_path)
    save(4)
    (checkpoints.directory / "step-00000004" / MODEL).unlink()
    state = RunState(step=4, best={}, best_step=0, without_better=0, identity={})
    with pytest.raises(RunError, match="must hold this run's variables"):
        checkpoints.restore(types.SimpleNamespace(model=None), state)


def files_below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_a_finished_run_keeps_no_checkpoint_unless_all_were_asked_for(tmp_path):
    for keep in (2, 0):
        run = tmp_path / str(keep)
        directory = two_checkpoints(run)
        (directory / ".partial-step-00000009").mkdir()
        write_weights({"w": np.ones(3, np.float32)}, run / MODEL)
        lines = tidy(run, keep=keep)
        assert lines == (["checkpoints removed: no longer needed"] if keep else ["2 checkpoints kept as models"])
        assert files_below(directory) == ([] if keep else [f"step-0000000{n}/{MODEL}" for n in (4, 8)])
        assert newest_intact(directory) is None
    assert not (tmp_path / "2" / "checkpoints").exists() and tidy(tmp_path / "2", keep=2) == []


@contextlib.contextmanager
def dying_after(monkeypatch, calls):
    """The process dies when it has changed so many names of files."""

    def dying(original):
        def call(*arguments, **options):
            nonlocal calls
            calls -= 1
            if calls < 0:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir", "replace"):
            patch.setattr(os, name, dying(getattr(os, name)))
        yield


def test_a_kill_while_checkpoints_are_removed_leaves_a_finished_model(tmp_path, monkeypatch):
    for keep in (2, 0):
        run = tmp_path / str(keep)
        two_checkpoints(run)
        write_weights({"w": np.ones(3, np.float32)}, run / MODEL)
        right, allowed = (run / MODEL).read_bytes(), 0
        while True:
            try:
                with dying_after(monkeypatch, allowed):
                    tidy(run, keep=keep)
                break
            except KeyboardInterrupt:
                assert (run / MODEL).read_bytes() == right
                allowed += 1
        assert allowed > 3, "nothing was interrupted"
        kept = [] if keep else [f"checkpoints/step-0000000{step}/{MODEL}" for step in (4, 8)]
        assert files_below(run) == [*kept, MODEL]


def test_the_state_of_a_finished_run_is_kept_whatever_interrupts(tmp_path, monkeypatch):
    """As a checkpoint with its best weights, and with nothing else."""
    for keep, allowed in ((keep, allowed) for keep in (2, 0) for allowed in range(12)):
        run = tmp_path / f"{keep}-{allowed}"
        run.mkdir()
        checkpoints, save = checkpoints_in(run)
        for step in (4, 8):
            checkpoints.save_best({"w": np.full(3, step, np.float32)}, step)
            save(step, best_step=step)
        identity = {"settings": {}, "choices": {}, "facts": {}}
        model = types.SimpleNamespace(optimizer=types.SimpleNamespace(variables=[]), counters=types.SimpleNamespace())
        checkpoints.save_last(model, RunState(step=9, best={"eval_loss": 1.0}, best_step=8, identity=identity))
        assert newest_intact(checkpoints.directory).step == 8, "no run resumes where it has nothing to do"
        write_weights({"w": np.full(3, 8, np.float32)}, run / MODEL)
        with contextlib.suppress(KeyboardInterrupt), dying_after(monkeypatch, allowed):
            tidy(run, keep=keep, keep_state=True)
        tidy(run, keep=keep, keep_state=True)
        assert newest_intact(checkpoints.directory).step == 9
        models = [] if keep else ["step-00000004", "step-00000008"]
        assert sorted(p.name for p in checkpoints.directory.iterdir()) == ["best-00000008", *models, "step-00000009"]


def test_a_link_to_another_disk_is_emptied_and_stays(tmp_path):
    run = tmp_path / "run"
    two_checkpoints(tmp_path / "disk")
    run.mkdir()
    (run / "checkpoints").symlink_to(tmp_path / "disk" / "checkpoints")
    (tmp_path / "disk" / "checkpoints" / "mine").write_text("mine")
    tidy(run, keep=2)
    assert files_below(tmp_path / "disk") == ["checkpoints/mine"] and (run / "checkpoints").is_symlink()


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    """A disk has no room for the one after update 9; a whole run on such a disk: test_kills.py."""

    def full_disk(tensors, path):
        if "step-00000009" in str(path):
            path.write_bytes(b"half")
            raise RunError(f"The weights must be written whole. Received: {path} (No space left on device).")
        write_weights(tensors, path)

    monkeypatch.setattr("tfbert.train.checkpoint.write_weights", full_disk)
    directory = saved_in(tmp_path, 6, 7)
    with pytest.raises(RunError, match="No space left on device.*resumes from .*step-00000007"):
        saved_in(tmp_path, 9)
    assert sorted(path.name for path in directory.iterdir()) == ["step-00000006", "step-00000007"]
    assert newest_intact(directory).step == 7


@pytest.mark.slow
def test_a_restart_goes_on_although_the_first_start_was_to_overwrite(corpus, monkeypatch):
    straight = finetune(make_config(corpus, "straight"))
    config = make_config(corpus, "run").changed({"overwrite_output_dir": True})
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-093000")
    (corpus / "run").mkdir()
    (corpus / "run" / "log.jsonl").write_text("another run's\n")
    (corpus / "run" / "run_config.json").write_text(make_config(corpus, "run").to_json())
    for step in (4, 8):
        assert f"after step {step} of 12" in run_to(step, config, monkeypatch)
    assert finetune(config)["train_loss"] == straight["train_loss"]
    assert_same_bits(weights(corpus / "straight"), weights(corpus / "run"))

    written = (corpus / "run" / "log.jsonl").read_text()
    monkeypatch.setattr(resume, "_done", set())  # As in a process of its own.
    assert finetune(config)["global_step"] == 12, "finished already: the results are read"
    assert (corpus / "run" / "log.jsonl").read_text() == written
