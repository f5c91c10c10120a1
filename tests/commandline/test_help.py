"""`--help` by topic, and what a flag that does not exist is answered with."""

import re
import subprocess
import sys

import pytest

from tests.support.processes import ROOT
from tests.support.refusals import refused
from tfbert.commandline import flags_of, help_text, help_topic, parse, presets
from tfbert.config.modes import all_options
from tfbert.config.run import FINETUNE, PRETRAIN

COMMANDS = pytest.mark.parametrize("command", [FINETUNE, PRETRAIN], ids=lambda command: command.word)


def names_in(text):
    return re.findall(r"--(?:\[no\])?(\w+)", "\n".join(re.findall(r"^  --.*$", text, re.MULTILINE)))


@COMMANDS
def test_help_says_what_it_is_then_examples_then_every_flag_once(command):
    text = help_text(command, "")
    assert text.startswith(command.summary[:60])
    assert sorted(names_in(text)) == sorted(flags_of(command))
    examples, _, flags = text.partition("Flags by topic")
    assert 3 <= len(re.findall(rf"^  python {command.script}", examples, re.MULTILINE)) <= 5
    topics = re.findall(r"^(\w+): ", flags, re.MULTILINE)
    assert topics == ["general", *dict.fromkeys(all_options()[name].part for name in command.names())]
    assert max(map(len, text.splitlines())) <= 100


@COMMANDS
def test_the_examples_parse(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.tsv", "dev.tsv", "new.tsv"):
        (tmp_path / name).touch()
    for arguments, _ in command.examples:
        config = parse(command, ["x", *arguments.replace("'", "").split()])
        assert config.mode in command.modes
        if "--flagfile" in arguments and command is FINETUNE:
            assert config.data.dataset not in ("", "demo"), "a preset has no data, and would train on the demo's"


def test_a_flag_has_its_choices_its_text_and_its_default():
    text = "  --seed=N\n      Decides initial weights, data order and dropout. Default: 42.\n"
    assert help_text(FINETUNE, "seed") == text
    assert help_text(FINETUNE, "xla").startswith("  --[no]xla\n      Compile each replica's forward")
    assert help_text(FINETUNE, "xla").endswith(" Default: off.\n")
    assert "Default" not in help_text(PRETRAIN, "whole_word_masking"), "unset is not off: records decide"
    shown = help_text(FINETUNE, "--strategy")
    assert shown.startswith("  --strategy=one_device|mirrored|multi_worker\n      `one_device`; `mirrored`: all GPUs")
    assert "  --model_name_or_path=TEXT, --model=TEXT\n" in help_text(FINETUNE, "model_name_or_path")
    assert "  --gradient_accumulation_steps=N|auto\n" in help_text(FINETUNE, "training")
    assert "With --lr_schedule=polynomial: the rate" in " ".join(help_text(FINETUNE, "lr_power").split())


def test_a_topic_has_its_flags_alone():
    text = help_text(FINETUNE, "export")
    assert text.startswith("export: What `--mode=export` writes.\n")
    assert names_in(text) == ["export_format", "export_float16"]
    assert re.findall(r"^  (\S+)$", help_text(FINETUNE, "presets"), re.MULTILINE) == list(presets())
    assert "On 1, 4 and 8 GPUs" not in help_text(FINETUNE, "presets"), "what leads to a preset's commands"
    with refused(r"takes a topic \(general, model, .*presets\), a flag or .*help='trainin'\. Did you mean tr"):
        help_text(FINETUNE, "trainin")
    with refused("help='fp16'. Did you mean mixed_precision"):
        help_text(FINETUNE, "fp16")


def test_a_command_explains_what_it_has_itself():
    for command in (FINETUNE, PRETRAIN):
        assert set(re.findall(r"`(\w+)`", help_text(command, "mode"))) == set(command.modes)
        assert set(command.texts) <= {"mode", *command.names()}
    for name in ("dataset", "skip_bad_rows"):
        assert "`--mode=prepare`" in help_text(PRETRAIN, name)
        assert "`--mode=prepare`" not in help_text(FINETUNE, name)
    assert "label" not in help_text(PRETRAIN, "skip_bad_rows")


def test_a_word_that_is_no_flag_shows_the_flags_that_speak_of_it():
    text = help_text(FINETUNE, "gpu")
    assert text.startswith("Flags that speak of 'gpu':\n  --strategy=")
    assert {"device", "num_replicas", "mixed_precision_dtype"} < set(names_in(text)) < set(flags_of(FINETUNE))
    assert {"lora_rank", "lora_alpha", "keep_adapter"} < set(names_in(help_text(FINETUNE, "lora")))
    assert "--export_format" not in help_text(FINETUNE, "gpu", "predict")


def test_the_help_of_a_mode_has_its_flags_alone():
    text = help_text(FINETUNE, "", "predict")
    found = set(names_in(text))
    assert {"input_file", "model", "config", "device"} <= found
    assert not found & {"mode", "learning_rate", "train_file", "seeds", "export_float16"}
    (example,) = re.findall(r"^  python .*", text, re.MULTILINE)
    assert example == "  python run_finetune.py --model=runs/sst2 --input_file=new.tsv"
    assert "--input_files" in help_text(PRETRAIN, "", "prepare")


TOPICS = {"--help": "", "--xla -h": "", "--help=data": "data", "--help data": "data", "--help --xla": ""}
TOPICS |= dict.fromkeys(("--xla", "-- --help", "--helpful"), None)


@pytest.mark.parametrize("words, topic", TOPICS.items(), ids=TOPICS)
def test_help_is_asked_for_in_these_ways(words, topic):
    assert help_topic(words.split()) == topic


def test_help_needs_no_tensorflow_and_may_be_cut_short():
    code = (
        "import sys; from tfbert.commandline import run_command; from tfbert.config.run import FINETUNE\n"
        "status = run_command(FINETUNE, ['x', '--help'])\n"
        'sys.exit(f\'{status} {sorted({"tensorflow", "numpy", "transformers"} & set(sys.modules))}\')'
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "0 []" and len(done.stdout.splitlines()) > 100
    script = f'"{sys.executable}" run_finetune.py --help | head -1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == "" and done.stdout.splitlines()[-1] in ("0", "141")
