"""The output directory: what is refused, what is replaced, what is whole."""

import json
import os
import pathlib
import re
from unittest import mock

import pytest

from tests.support.flag_values import SCRATCH
from tfbert import Config, DataConfig, ModelConfig, OutputConfig, RunError, UsageError
from tfbert.output import output_dir

NOW = "20261121-093000"


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", NOW)


def test_the_directory_is_the_one_asked_for(tmp_path):
    config = Config(output=OutputConfig(output_dir=str(tmp_path / "run")))
    assert output_dir.run_directory(config) == tmp_path / "run"


@pytest.mark.parametrize(
    "mode, model, dataset, name",
    [
        ("train", "scratch/tiny", "", "demo-tiny"),
        ("train", "some/bert-base", "glue/sst2", "sst2-bert_base"),
        ("evaluate", "some/model", "glue/sst2", "evaluate-sst2-model"),
    ],
)
def test_without_one_it_is_named_for_data_model_and_time_and_other_modes_than_training(mode, model, dataset, name):
    config = Config(mode=mode, model=ModelConfig(model_name_or_path=model), data=DataConfig(dataset=dataset))
    assert output_dir.run_directory(config) == pathlib.Path("runs", f"{name}-{NOW}")


def test_files_are_named_without_their_endings(tmp_path):
    (tmp_path / "my reviews.tsv.gz").write_text("")
    config = Config(model=SCRATCH, data=DataConfig(train_file=str(tmp_path / "my reviews.tsv.gz")))
    assert output_dir.run_directory(config).name == f"my_reviews-tiny-{NOW}"


def test_json_is_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "all_results.json"
    output_dir.write_json(path, {"eval_accuracy": 0.5})
    assert json.loads(path.read_text()) == {"eval_accuracy": 0.5}

    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left on device"):
        output_dir.write_json(path, {"eval_accuracy": 0.75})
    assert json.loads(path.read_text()) == {"eval_accuracy": 0.5}


def test_workers_and_restarts_of_one_launch_share_the_time_of_their_start(monkeypatch):
    assert output_dir.start_time() == NOW
    monkeypatch.delenv("TFBERT_LAUNCHED_AT")
    assert re.fullmatch(r"\d{8}-\d{6}", output_dir.start_time()) and output_dir.start_time() != NOW


def test_text_that_is_not_utf8_is_written_as_escapes(tmp_path):
    """Python's form of the name of a file in Latin-1, as in a report."""
    output_dir.write_text(tmp_path / "page.html", "größe, l\udce4tin.tsv")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "größe, l\\udce4tin.tsv"


@pytest.mark.parametrize("write", [output_dir.write_text, lambda path, text: output_dir.write_json(path, [text])])
def test_no_file_is_written_through_a_link(write, tmp_path):
    mine, path = tmp_path / "mine", tmp_path / "out" / "x.json"
    path.parent.mkdir()
    mine.write_text("mine")
    for name in ("x.json", ".x.json.partial"):
        (path.parent / name).symlink_to(mine)
    write(path, "new")
    assert mine.read_text() == "mine" and "new" in path.read_text() and not path.is_symlink()
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_where_a_directory_can_be_made(tmp_path, monkeypatch):
    output_dir.check_writable(tmp_path / "new" / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="must be a directory"):
        output_dir.check_writable(tmp_path / "file")
    with pytest.raises(UsageError):
        output_dir.check_writable(tmp_path / "file" / "run")
    with pytest.raises(UsageError, match=r"must be UTF-8. Received: b'.*xff/run'"):
        output_dir.check_writable(tmp_path / os.fsdecode(b"\xff") / "run")
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(pathlib.Path(path)) or False)
    with pytest.raises(UsageError, match="must be writable"):
        output_dir.check_writable(tmp_path / "new" / "run")
    assert asked == [tmp_path]


def test_what_is_cleared_is_a_runs_and_no_link_is_followed(tmp_path):
    run, disk = tmp_path / "run", tmp_path / "disk"
    (disk / "step-1").mkdir(parents=True)
    (run / "tensorboard").mkdir(parents=True)
    (run / "checkpoints").symlink_to(disk)
    for name in (output_dir.RESULTS, output_dir.LOG, "config.json", "notes.txt", output_dir.RUN_CONFIG):
        (run / name).write_text("old")
    output_dir.clear(run)
    assert output_dir.contents(run) == ["notes.txt", output_dir.RUN_CONFIG]
    assert (disk / "step-1").is_dir()
