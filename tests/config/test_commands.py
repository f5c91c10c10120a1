"""The two commands: which options each has, and what each refuses of the other's."""

import dataclasses

import pytest
from absl import flags as absl_flags

import flags
from tfbert.config.commands import FINETUNE, PRETRAIN
from tfbert.config.run import Config
from tfbert.errors import UsageError

OPTIONS = {
    part.name: {field.name for field in dataclasses.fields(part.default_factory)}
    for part in dataclasses.fields(Config)
    if part.default_factory is not dataclasses.MISSING
}


def parse(command, *arguments):
    values = absl_flags.FlagValues()
    flags.define_flags(values, command)
    values([command.script, *arguments])
    return flags.config_from_flags(values, command)


def test_every_option_belongs_to_a_command_and_no_name_to_two_parts():
    found = [command.options() for command in (FINETUNE, PRETRAIN)]
    for part, names in OPTIONS.items():
        assert names == {name for options in found for name in options.get(part, ())}, part
    names = [name for part in OPTIONS.values() for name in part]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("command", [FINETUNE, PRETRAIN], ids=lambda command: command.script)
def test_a_command_has_flags_for_its_options_and_no_others(command):
    values = absl_flags.FlagValues()
    flags.define_flags(values, command)
    own = {name for names in command.options().values() for name in names}
    assert set(values) - own == {"mode", "model", "run_config"}
    assert tuple(values["mode"].parser.choices) == command.modes


def test_what_it_trains_is_settled_by_the_command():
    assert parse(PRETRAIN).data.task == "pretraining"
    assert parse(FINETUNE).data.task == "auto"
    with pytest.raises(UsageError, match=r"Pre-training has a command of its own.*run_pretraining\.py"):
        parse(FINETUNE, "--task=pretraining")
    with pytest.raises(absl_flags.UnrecognizedFlagError, match="train_file"):
        parse(PRETRAIN, "--train_file=x.tsv")


def test_a_corpus_of_files_may_have_rows_that_are_left_out():
    arguments = ["--mode=prepare", "--output_dir=x", "--learn_vocab=100", "--input_files=a.jsonl", "--skip_bad_rows"]
    assert parse(PRETRAIN, *arguments).data.skip_bad_rows


def test_a_run_is_repeated_by_the_command_that_made_it(tmp_path):
    paths = {}
    for command, changed in ((FINETUNE, "--weight_decay=0.5"), (PRETRAIN, "--masked_lm_prob=0.3")):
        config = parse(command, changed)
        paths[command.script] = tmp_path / command.script
        paths[command.script].write_text(config.to_json())
        assert parse(command, f"--run_config={paths[command.script]}") == config
        again = parse(command, f"--run_config={paths[command.script]}", "--seed=7")
        assert again == dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, seed=7))
    for command, other in ((FINETUNE, PRETRAIN), (PRETRAIN, FINETUNE)):
        with pytest.raises(UsageError, match="must come from a run of"):
            parse(command, f"--run_config={paths[other.script]}")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--mode=prepare", "--vocab_file={file}"], "Records need a directory"),
        (["--mode=prepare", "--output_dir=x"], "a vocabulary from a file, or learns one"),
        (["--mode=prepare", "--output_dir=x", "--vocab_file={file}", "--learn_vocab=100"], "Pass one of them"),
        (
            ["--mode=prepare", "--output_dir=x", "--vocab_file={file}", "--input_files=a", "--dataset=b"],
            "files or from a data set",
        ),
        (["--mode=prepare", "--output_dir=x", "--learn_vocab=100", "--text_column=a,b"], "text of one column"),
        (
            ["--mode=prepare", "--output_dir=x", "--learn_vocab=100", "--shards=1-"],
            "shards must be a number or a range",
        ),
        (["--mode=prepare", "--output_dir=x", "--learn_vocab=100", "--learning_rate=1"], "no effect with mode=prepare"),
        (["--mode=prepare", "--output_dir=x", "--learn_vocab=100", "--beam_args=--x"], "for engine=beam"),
        (["--mode=prepare", "--output_dir=x", "--learn_vocab=100", "--short_seq_prob=2"], "0 or more and at most 1"),
        (
            ["--dupe_factor=2"],
            "dupe_factor has no effect with mode=train.* Drop --dupe_factor, or add --mode=prepare.$",
        ),
        (["--dataset=glue/sst2"], "Pre-training reads prepared records. Received: dataset='glue/sst2'"),
        (["--mode=prepare", "--output_dir=x", "--learn_vocab=100", "--skip_bad_rows"], "takes effect with files only"),
        (["--train_records=a", "--skip_bad_rows"], "skip_bad_rows takes effect with files only"),
        (["--validation_records=a"], "training needs train_records too"),
        (["--train_records=a", "--eval_steps=5"], "needs records to evaluate on"),
        (["--masked_lm_prob=0"], "above 0 and below 1"),
        (["--mode=evaluate", "--model=somewhere"], "Evaluation needs records"),
        (["--mode=evaluate", "--validation_records=a"], "needs a trained model"),
    ],
)
def test_options_of_pretraining_that_do_not_fit_are_refused(arguments, message, tmp_path):
    (tmp_path / "vocab.txt").write_text("a\n")
    with pytest.raises(UsageError, match=message):
        parse(PRETRAIN, *(argument.format(file=tmp_path / "vocab.txt") for argument in arguments))
