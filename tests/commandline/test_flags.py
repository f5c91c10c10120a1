"""The command line: one flag a field, from the dataclasses; files of flags; a run's own configuration. The two
commands: which options each has, and what each refuses of the other's."""

import dataclasses
import inspect
import json
from typing import Literal, get_args, get_origin

import pytest
from absl import flags as absl_flags

from tests.support.flag_values import defined, parsed
from tfbert.commandline import Reader, flags_of
from tfbert.config.modes import all_options
from tfbert.config.run import FINETUNE, PRETRAIN, Config
from tfbert.errors import UsageError

# Texts of flags and what they mean, by the type of their option.
TEXTS = {int: ("7", 7), float: ("3e-5", 3e-5), str: ("x, y", "x, y"), int | Literal["auto"]: ("auto", "auto")}
TEXTS |= {tuple[str, ...]: ("a,b", ("a", "b")), tuple[int, ...]: ("1,2", (1, 2))}


def given(option):
    """A text, and the value, that are not the default."""
    kind, default = option.kind, option.field.default
    if option.field.metadata["repeats"]:
        return "one, text", ("one, text",)
    members = [kind, *get_args(kind)]
    if bool in members:
        return str(not default).lower(), not default
    if words := [word for member in members if get_origin(member) is Literal for word in get_args(member)]:
        return next((word,) * 2 for word in reversed(words) if word != default)
    return next(TEXTS[member] for member in members if member in TEXTS)


def test_every_option_has_a_flag_with_its_default_and_its_docstring():
    for name in FINETUNE.names():
        option, flag = all_options()[name], flags_of(FINETUNE)[name]
        assert flag.default == option.field.default
        source = " ".join(inspect.getsource(Config.classes()[option.part]).split())
        doc = source.partition(f" {name}: ")[2].split('"""')[1]
        assert flag.help.endswith(doc[1:]) and len(doc) > 20  # What it needs may come first.


def test_every_flag_reaches_its_field_and_the_json():
    for name in FINETUNE.names():
        option, reader = all_options()[name], Reader(FINETUNE)
        text, value = given(option)
        reader.read_line([f"--{name}={text}"])
        part = Config.classes()[option.part](**reader.values)
        assert getattr(part, name) == value != option.field.default, name
        assert type(part)(**json.loads(json.dumps(dataclasses.asdict(part)))) == part


def test_flags_beside_a_run_config_replace_its_values(tmp_path):
    path = tmp_path / "run_config.json"
    first = parsed("--seed=7", "--text_column=a,b", "--class_weights=1,2", "--xla", "--model=scratch/mini")
    path.write_text(first.to_json())
    second = parsed(f"--run_config={path}", "--seed=42", "--noxla", "--class_weights=balanced", "--model=scratch/tiny")
    assert (second.runtime, second.data) == (Config().runtime, first.data), "also a flag back at its default"
    assert second.training == dataclasses.replace(first.training, class_weights="balanced")
    assert first.training.class_weights == (1.0, 2.0) and second.model.model_name_or_path == "scratch/tiny"


def test_a_home_directory_is_found_as_by_the_shell(monkeypatch, tmp_path):
    """Shells leave `--output_dir=~/x` alone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "t.tsv").touch()
    config = parsed("--output_dir=~/runs/a", "--model=~/bert", "--train_file=~/t.tsv", "--text_column=~/no_path")
    assert config.output.output_dir == f"{tmp_path}/runs/a"
    assert config.model.model_name_or_path == f"{tmp_path}/bert"
    assert (config.data.train_file, config.data.text_column) == (f"{tmp_path}/t.tsv", ("~/no_path",))
    (tmp_path / "run_config.json").write_text(config.to_json())
    assert parsed("--run_config=~/run_config.json") == config


def test_every_option_belongs_to_a_command_and_no_name_to_two_parts():
    names = [field.name for part in Config.classes().values() for field in dataclasses.fields(part)]
    assert len(names) == len({*names}) and {*names} == {*FINETUNE.names(), *PRETRAIN.names()}


@pytest.mark.parametrize("command", [FINETUNE, PRETRAIN], ids=lambda command: command.script)
def test_a_command_has_flags_for_its_options_and_no_others(command):
    flags = flags_of(command)
    assert {*defined(command)} == {*flags} - {"config", "flagfile", "help"}
    assert {*command.names()} <= {*flags}
    assert {*flags} - {*command.names()} == {"mode", "model", "run_config", "config", "flagfile", "help"}
    assert flags["mode"].choices == command.modes


def test_what_it_trains_is_settled_by_the_command():
    assert (parsed(command=PRETRAIN).data.task, parsed(command=FINETUNE).data.task) == ("pretraining", "auto")
    with pytest.raises(UsageError, match=r"Pre-training has a command of its own.*run_pretraining\.py"):
        parsed("--task=pretraining", command=FINETUNE)
    with pytest.raises(absl_flags.UnrecognizedFlagError, match="train_file"):
        parsed("--train_file=x.tsv", command=PRETRAIN)


def test_a_corpus_of_files_may_have_rows_that_are_left_out():
    arguments = ["--mode=prepare", "--output_dir=x", "--learn_vocab=100", "--input_files=a.jsonl", "--skip_bad_rows"]
    assert parsed(*arguments, command=PRETRAIN).data.skip_bad_rows


def test_a_run_is_repeated_by_the_command_that_made_it(tmp_path):
    changes = ((FINETUNE, PRETRAIN, "--weight_decay=0.5"), (PRETRAIN, FINETUNE, "--masked_lm_prob=0.3"))
    for command, other, changed in changes:
        config, path = parsed(changed, command=command), tmp_path / command.script
        path.write_text(config.to_json())
        assert parsed(f"--run_config={path}", command=command) == config
        again = parsed(f"--run_config={path}", "--seed=7", command=command)
        assert again == dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, seed=7))
        with pytest.raises(UsageError, match="Pre-training has a command of its own. Received: task=.* in run_config="):
            parsed(f"--run_config={path}", command=other)
