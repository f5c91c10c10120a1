"""Every preset parses, and so does every command that its header gives."""

import pathlib
import re
import shlex

import pytest

from tests.support.flag_values import parsed
from tfbert.config.modes import GlueTaskName
from tfbert.config.run import PRETRAIN

DIRECTORY = pathlib.Path(__file__).parents[2] / "flags" / "presets"
PRESETS = sorted(DIRECTORY.glob("*.flags"))
OF_PRETRAINING = sorted((DIRECTORY / "pretraining").glob("*.flags"))


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """The commands in a preset's header, as lists of words, in a directory where the preset is alone."""
    monkeypatch.chdir(tmp_path)

    def commands(path, script="run_finetune.py"):
        copy = tmp_path / path.relative_to(DIRECTORY.parents[1])
        copy.parent.mkdir(parents=True)
        copy.write_bytes(path.read_bytes())
        text = re.sub(r"\\\n#\s*", "", path.read_text(encoding="utf-8"))
        return [shlex.split(found)[2:] for found in re.findall(rf"^#\s+(python {script} .*)$", text, re.MULTILINE)]

    return commands


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_the_commands_of_a_preset_parse(path, commands):
    found = commands(path)
    assert found
    for words in found:
        for word in words:
            name, _, value = word.partition("=")
            for file in value.split(",") if name.endswith("_file") or value.endswith("labels.txt") else ():
                pathlib.Path(file).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(file).touch()
        config = parsed(*words)
        assert config.mode in ("train", "predict")
        assert config.mode == "predict" or any(path.name in word for word in words)


def test_every_task_of_glue_has_a_preset():
    tasks = {task.partition("-")[0] for task in GlueTaskName.__args__} - {"", "ax"}
    assert {f"glue-{task}" for task in tasks} <= {path.stem for path in PRESETS}


@pytest.mark.parametrize("path", OF_PRETRAINING, ids=lambda path: path.stem)
def test_a_preset_of_pretraining_prepares_and_trains_its_phase_on_any_devices(path, tmp_path, commands):
    (tmp_path / "records-128").mkdir()
    (tmp_path / "records-128" / "vocab.txt").touch()
    prepare, *train = (parsed(*words, command=PRETRAIN) for words in commands(path, PRETRAIN.script))
    assert prepare.mode == "prepare"
    assert {config.mode for config in train} == {"train"}
    assert [config.runtime.strategy for config in train] == ["one_device", "mirrored", "multi_worker"]
    size, phase = path.stem.split("-")[1:]
    for config in train:
        model = config.model.model_name_or_path
        assert model == (f"scratch/{size}" if phase == "phase1" else f"runs/bert-{size}-phase1")
        assert config.pretraining.train_records == (prepare.output.output_dir,)
        assert config.data.max_seq_length == prepare.data.max_seq_length
        assert config.pretraining.max_predictions_per_seq == prepare.pretraining.max_predictions_per_seq
        training = config.training
        assert (training.optimizer, training.lr_schedule, training.lr_power) == ("lamb", "polynomial", 0.5)
        shapes = {"phase1": (128, 20, 65_536, 7038, 6e-3, 0.2843), "phase2": (512, 80, 32_768, 1563, 4e-3, 0.128)}
        found = (training.global_batch_size, training.max_steps, training.learning_rate, training.warmup_ratio)
        assert (config.data.max_seq_length, config.pretraining.max_predictions_per_seq, *found) == shapes[phase]


def test_both_sizes_have_presets_for_both_phases():
    expected = {f"bert-{size}-{phase}" for size in ("base", "large") for phase in ("phase1", "phase2")}
    assert {path.stem for path in OF_PRETRAINING} == expected
