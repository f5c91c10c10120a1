"""The two commands: which options each has, and what each refuses of the other's."""

import dataclasses

import pytest
from absl import flags as absl_flags

from tests.support.flag_values import defined, parsed
from tfbert.commandline import flags_of
from tfbert.config.run import FINETUNE, PRETRAIN, Config
from tfbert.errors import UsageError


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
    for command, other, changed in (
        (FINETUNE, PRETRAIN, "--weight_decay=0.5"),
        (PRETRAIN, FINETUNE, "--masked_lm_prob=0.3"),
    ):
        config, path = parsed(changed, command=command), tmp_path / command.script
        path.write_text(config.to_json())
        assert parsed(f"--run_config={path}", command=command) == config
        again = parsed(f"--run_config={path}", "--seed=7", command=command)
        assert again == dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, seed=7))
        with pytest.raises(UsageError, match="Pre-training has a command of its own. Received: task=.* in run_config="):
            parsed(f"--run_config={path}", command=other)
