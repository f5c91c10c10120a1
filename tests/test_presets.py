"""Every preset parses, and so does every command that its header gives."""

import pathlib
import re
import shlex

import pytest

import flags
from tests.flag_values import defined
from tfbert.config.modes import GlueTaskName

PRESETS = sorted((pathlib.Path(__file__).parent.parent / "flags" / "presets").glob("*.flags"))


def parse(arguments):
    values = defined()
    assert values(["run_finetune.py", *arguments]) == ["run_finetune.py"]
    return flags.config_from_flags(values)


def commands(path):
    """The commands in a preset's header, as lists of words."""
    text = re.sub(r"\\\n#\s*", "", path.read_text(encoding="utf-8"))
    return [shlex.split(found)[2:] for found in re.findall(r"^#\s+(python run_finetune.py .*)$", text, re.MULTILINE)]


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_the_commands_of_a_preset_parse(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flags" / "presets").mkdir(parents=True)
    (tmp_path / "flags" / "presets" / path.name).write_bytes(path.read_bytes())
    found = commands(path)
    assert found
    for words in found:
        for word in words:
            name, _, value = word.partition("=")
            for file in value.split(",") if name.endswith("_file") else ():
                pathlib.Path(file).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(file).touch()
        config = parse(words)
        assert config.mode in ("train", "predict")
        assert config.mode == "predict" or any(path.name in word for word in words)


def test_every_task_of_glue_has_a_preset():
    tasks = {task.partition("-")[0] for task in GlueTaskName.__args__} - {"", "ax"}
    assert {f"glue-{task}" for task in tasks} <= {path.stem for path in PRESETS}
