"""The output directory: what is refused, what is replaced, what is whole."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tfbert import output
from tfbert.config import Config, DataConfig, ModelConfig, OutputConfig, TrainingConfig
from tfbert.errors import RunError, UsageError


def config_for(directory="", **options):
    return Config(output=OutputConfig(output_dir=str(directory), **options))


def test_the_directory_is_the_one_asked_for(tmp_path):
    assert output.choose(config_for(tmp_path / "run")) == tmp_path / "run"


@pytest.mark.parametrize(
    "model, dataset, name", [("scratch/tiny", "", "demo-tiny"), ("some/bert-base", "glue/sst2", "sst2-bert_base")]
)
def test_without_one_it_is_named_for_data_model_and_time(model, dataset, name):
    config = Config(model=ModelConfig(model_name_or_path=model), data=DataConfig(dataset=dataset))
    chosen = output.choose(config)
    assert chosen.parent == pathlib.Path("runs")
    assert re.fullmatch(rf"{name}-\d{{8}}-\d{{6}}", chosen.name)


def test_files_are_named_without_their_endings(tmp_path):
    (tmp_path / "my reviews.tsv.gz").write_text("")
    config = Config(data=DataConfig(train_file=str(tmp_path / "my reviews.tsv.gz")))
    assert output.choose(config).name.startswith("my_reviews-tiny-")


def check(directory, *, can_resume=False, **options):
    before = sorted(directory.parent.rglob("*"))
    try:
        output.check(directory, config_for(directory, **options), can_resume=can_resume)
    finally:
        assert sorted(directory.parent.rglob("*")) == before


def test_a_new_or_empty_directory_will_do(tmp_path):
    check(tmp_path / "new" / "run")
    (tmp_path / "empty").mkdir()
    check(tmp_path / "empty")


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", output.RUN_CONFIG, output.RESULTS])
def test_a_directory_that_holds_files_is_refused(name, tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / name).write_text("{}")
    with pytest.raises(UsageError, match="must be new or empty.*--overwrite_output_dir"):
        check(directory)


@pytest.mark.parametrize("mode", ["evaluate", "benchmark", "", None])
def test_only_a_run_is_overwritten(mode, tmp_path):
    directory = tmp_path / "run"
    for name in ("checkpoints", "profile", "tensorboard"):
        (directory / name).mkdir(parents=True)
        (directory / name / "mine").write_text("mine")
    for name in ("README.md", "config.json", output.RESULTS, output.EVAL_RESULTS):
        (directory / name).write_text("{}")
    if mode is not None:
        (directory / output.RUN_CONFIG).write_text(json.dumps({"mode": mode}) if mode else "not JSON")
    before = sorted(tmp_path.rglob("*"))
    rule = "overwrite_output_dir replaces an earlier training run, and nothing else.*which holds 'README.md'"
    with pytest.raises(UsageError, match=rule) as error:
        check(directory, overwrite_output_dir=True)
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError, match=rule):
        output.prepare(directory, config_for(directory, overwrite_output_dir=True), is_resumed=False)
    assert sorted(tmp_path.rglob("*")) == before
    # Whatever is missing, of whatever version: a run that ended early may have left its configuration alone.
    (directory / output.RUN_CONFIG).write_text('{"mode": "train", "gone": 1}')
    check(directory, overwrite_output_dir=True)


def test_overwriting_keeps_the_mark_of_a_run_until_it_is_replaced(tmp_path, monkeypatch):
    directory = tmp_path / "run"
    config = config_for(directory, overwrite_output_dir=True)
    output.prepare(directory, config, is_resumed=False)
    (directory / output.RESULTS).write_text("{}")
    (directory / "checkpoints").mkdir()

    def killed(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(output.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        output.prepare(directory, config, is_resumed=False)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="a finished run"):
        check(directory)
    check(directory, overwrite_output_dir=True)
    output.prepare(directory, config, is_resumed=False)
    assert sorted(path.name for path in directory.iterdir()) == [".lock", output.RUN_CONFIG]


def test_a_run_that_could_not_write_its_first_file_leaves_an_empty_directory(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(RunError):
        patch.setattr(os, "fsync", fail)
        output.prepare(tmp_path / "run", config_for(tmp_path / "run"), is_resumed=False)
    check(tmp_path / "run")


def test_a_link_to_checkpoints_elsewhere_is_taken_away_and_not_what_it_leads_to(tmp_path):
    directory = tmp_path / "run"
    config = config_for(directory, overwrite_output_dir=True)
    output.prepare(directory, config, is_resumed=False)
    (tmp_path / "disk" / "step-1").mkdir(parents=True)
    (directory / "checkpoints").symlink_to(tmp_path / "disk")
    output.prepare(directory, config, is_resumed=False)
    assert not (directory / "checkpoints").exists() and (tmp_path / "disk" / "step-1").is_dir()


@pytest.mark.parametrize("model", ["run", "link", "run/checkpoints/step-1"])
def test_the_model_is_not_overwritten_by_its_own_run(model, tmp_path):
    directory = tmp_path / "run"
    output.prepare(directory, config_for(directory), is_resumed=False)
    (directory / "checkpoints" / "step-1").mkdir(parents=True)
    (tmp_path / "link").symlink_to(directory)
    for overwrite in (True, False):
        config = Config(
            model=ModelConfig(model_name_or_path=str(tmp_path / model)),
            output=OutputConfig(output_dir=str(directory), overwrite_output_dir=overwrite),
        )
        with pytest.raises(UsageError, match="output_dir must not hold the model.*Pass another --output_dir"):
            output.check(directory, config, can_resume=False)
    (tmp_path / "new").mkdir()
    output.check(tmp_path / "new", config, can_resume=False)


def test_an_unfinished_run_goes_on_and_a_finished_one_does_not(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / output.RUN_CONFIG).write_text(config_for(directory).to_json())
    check(directory)
    check(directory, can_resume=True)
    with pytest.raises(UsageError, match="must be new or empty"):
        check(directory, resume="never")
    (directory / output.RESULTS).write_text("{}")
    with pytest.raises(UsageError, match="a finished run"):
        check(directory, can_resume=True)


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="must be a directory"):
        check(tmp_path / "run", overwrite_output_dir=True)


def test_below_a_file_is_no_directory_either(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        output.check(tmp_path / "file" / "run", config_for(tmp_path / "file" / "run"), can_resume=False)


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(pathlib.Path(path)) or False)
    with pytest.raises(UsageError, match="must be writable"):
        check(tmp_path / "new" / "run")
    assert asked == [tmp_path]


def test_preparing_takes_an_earlier_runs_files_away_and_no_others(tmp_path):
    directory = tmp_path / "run"
    (directory / "checkpoints" / "step-1").mkdir(parents=True)
    (directory / "tensorboard").mkdir()
    for name in (output.RESULTS, output.LOG, "config.json", "notes.txt"):
        (directory / name).write_text("old")
    (directory / output.RUN_CONFIG).write_text('{"mode": "train"}')
    config = config_for(directory, overwrite_output_dir=True)
    output.prepare(directory, config, is_resumed=False)
    assert sorted(path.name for path in directory.iterdir()) == [".lock", "notes.txt", output.RUN_CONFIG]
    assert Config.from_json((directory / output.RUN_CONFIG).read_text()) == config


def test_preparing_a_resumed_run_keeps_its_files(tmp_path):
    directory = tmp_path / "run"
    (directory / "checkpoints").mkdir(parents=True)
    (directory / output.LOG).write_text("{}\n")
    output.prepare(directory, config_for(directory), is_resumed=True)
    assert sorted(p.name for p in directory.iterdir()) == [".lock", "checkpoints", output.LOG, output.RUN_CONFIG]
    assert (directory / output.LOG).read_text() == "{}\n"


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="must be writable"):
        output.prepare(tmp_path / "file" / "run", Config(), is_resumed=False)


def test_run_config_is_what_was_run(tmp_path):
    config = Config(training=TrainingConfig(learning_rate=3e-5, class_weights=(1.0, 2.0)))
    output.prepare(tmp_path / "run", config, is_resumed=False)
    assert Config.from_json((tmp_path / "run" / output.RUN_CONFIG).read_text()) == config


def test_json_is_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "all_results.json"
    output.write_json(path, {"eval_accuracy": 0.5})
    assert json.loads(path.read_text()) == {"eval_accuracy": 0.5}

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match="No space left on device"):
        output.write_json(path, {"eval_accuracy": 0.75})
    assert json.loads(path.read_text()) == {"eval_accuracy": 0.5}


def test_workers_and_restarts_of_one_launch_share_a_directory(monkeypatch):
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-093000")
    assert output.choose(Config()) == pathlib.Path("runs/demo-tiny-20261121-093000")


def test_what_this_launch_wrote_is_gone_on_with_whatever_was_asked(tmp_path, monkeypatch):
    directory = tmp_path / "run"
    config = config_for(directory, resume="never")
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-093000")
    assert not output.is_of_this_launch(directory)
    output.prepare(directory, config, is_resumed=False)
    assert output.is_of_this_launch(directory)
    check(directory, resume="never", can_resume=True)
    check(directory, overwrite_output_dir=True, can_resume=True)

    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-100000")
    assert not output.is_of_this_launch(directory)
    with pytest.raises(UsageError, match="must be new or empty"):
        check(directory, resume="never", can_resume=True)
    monkeypatch.delenv("TFBERT_LAUNCHED_AT")
    assert not output.is_of_this_launch(directory)


def command_directory():
    return pathlib.Path(__file__).parent.parent


def test_two_processes_do_not_write_to_one_directory(tmp_path):
    output.prepare(tmp_path / "run", config_for(tmp_path / "run"), is_resumed=False)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    program = (
        "import pathlib, sys\nfrom tfbert import output\nfrom tfbert.config import Config, OutputConfig\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "config = Config(output=OutputConfig(output_dir=str(path), overwrite_output_dir=True))\n"
        "output.prepare(path, config, is_resumed=False)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=command_directory())
    assert "output directory of its own. Received:" in done.stderr.splitlines()[-1]
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    # The same process may start again, and another one once the run has ended.
    output.prepare(tmp_path / "run", config_for(tmp_path / "run"), is_resumed=False)
    assert subprocess.run([*command[:3], str(tmp_path / "new")], cwd=command_directory()).returncode == 0
    output.prepare(tmp_path / "new", config_for(tmp_path / "new", overwrite_output_dir=True), is_resumed=False)
    output.release(tmp_path / "run")
    output.release(tmp_path / "elsewhere")
    assert subprocess.run(command, cwd=command_directory()).returncode == 0


def test_a_run_that_ended_in_the_meantime_is_not_replaced(tmp_path):
    """Between the look at a directory and the first write to it, a model is loaded: another run can end there."""
    directory, config = tmp_path / "run", config_for(tmp_path / "run")
    output.check(directory, config, can_resume=False)
    output.prepare(directory, config, is_resumed=False)
    output.release(directory)
    (directory / output.RESULTS).write_text("{}")
    with pytest.raises(UsageError, match="a finished run"):
        output.prepare(directory, config, is_resumed=False)
    assert (directory / output.RESULTS).read_text() == "{}"
    output.release(directory)


def test_a_requeued_slurm_job_is_the_same_launch(tmp_path, monkeypatch):
    """Its command may say --overwrite_output_dir: it must not delete what it wrote before."""
    directory, config = tmp_path / "run", config_for(tmp_path / "run", overwrite_output_dir=True)
    monkeypatch.delenv("TFBERT_LAUNCHED_AT", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "71")
    output.prepare(directory, config, is_resumed=False)
    assert not output.is_of_this_launch(directory), "a second command of the same start is another run"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert output.is_of_this_launch(directory)
    output.prepare(directory, config, is_resumed=True)
    assert not output.is_of_this_launch(directory)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert output.is_of_this_launch(directory)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert not output.is_of_this_launch(directory)


def test_who_stops_a_run_reads_how_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.delenv("TFBERT_LAUNCHED_AT", raising=False)
    run = tmp_path / "run"
    assert output.way_on(config_for(run), run) == f"the same command goes on in {run}"
    for config in (config_for(), config_for(run, overwrite_output_dir=True), config_for(run, resume="never")):
        assert output.way_on(config, run).startswith(f"--output_dir={run} goes on, with --resume=auto")
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-093000")
    output.prepare(run, config_for(run), is_resumed=False)
    # A launcher that was told to stop will be started anew, which is another launch.
    assert output.way_on(config_for(run, resume="never"), run).startswith("--output_dir")
