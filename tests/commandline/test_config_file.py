"""`--config`: a flat file of options means what the same flags mean, or is refused with its line."""

import json
import pathlib

import pytest

from tests.support.refusals import message_of, refused
from tfbert.commandline import parse
from tfbert.config.run import FINETUNE, Config, points_of


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.tsv").touch()


def parsed(*arguments, mode="", command=FINETUNE):
    return parse(command, ["x", *arguments], mode)


def write(name, text):
    pathlib.Path(name).write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return f"--config={name}"


FLAGS = ("--model=scratch/mini", "--learning_rate=3e-5", "--xla", "--noheader", "--global_batch_size=10")
FLAGS += ("--text_column=0", "--label_column=1", "--train_file=t.tsv", "--label_names=no,yes", "--class_weights=1,2.5")
YAML = """\
# Ours.
model: scratch/mini
learning_rate: 3e-5     # A text to YAML 1.1.
xla: yes
header: false
global_batch_size: 010  # 8 to YAML 1.1.
text_column: 0
label_column: "1"
train_file: t.tsv
label_names: [no, yes]  # False and true to YAML 1.1.
class_weights: 1,2.5
seed:
num_train_epochs: null
"""
JSON = {"model": "scratch/mini", "learning_rate": 3e-5, "xla": True, "header": False, "global_batch_size": 10}
JSON |= {"text_column": [0], "label_column": "1", "train_file": "t.tsv", "label_names": ["no", "yes"], "seed": None}
JSON |= {"class_weights": [1, 2.5]}


@pytest.mark.parametrize("name, text", [("run.yaml", YAML), ("run.yml", "\ufeff" + YAML), ("run.json", JSON)])
def test_a_file_is_the_same_as_its_flags(name, text):
    assert parsed(write(name, text)) == parsed(*FLAGS)


READ = [
    *(("xla", text, True) for text in ("true", "TRUE", "t", "yes", "on", "1")),
    *(("xla", text, False) for text in ("false", "f", "No", "off", "0")),
    ("global_batch_size", "010", 10),
    ("global_batch_size", "0x10", 16),
    ("learning_rate", "3e-5", 3e-5),
    ("gradient_accumulation_steps", "auto", "auto"),
    ("model_name_or_path", "1", "1"),
]


@pytest.mark.parametrize("name, text, value", READ)
def test_a_text_is_read_alike_as_a_flag_in_a_file_and_in_a_sweep(name, text, value):
    swept = points_of(parsed(f"--sweep={name}={text}"))[0].config
    for config in (parsed(f"--{name}={text}"), parsed(write("a.yaml", f"{name}: '{text}'")), swept):
        found = config.values()[name]
        assert found == value and type(found) is type(value)


def test_the_command_line_replaces_what_the_file_says():
    file = write("run.yaml", "seed: 7\nxla: true\nmodel_name_or_path: scratch/mini\nmode: evaluate\n")
    config = parsed("--seed=8", "--model=scratch/tiny", file, "--noxla", mode="train")
    assert config == parsed("--seed=8", "--model=scratch/tiny")
    assert parsed("--config", "run.yaml", "--mode=train").runtime.seed == 7
    assert parsed("--config=") == Config()


def test_a_list_may_hold_commas_and_may_stand_where_a_text_may_be_several_values():
    rows = 'model: m\ntrain_file: t.tsv\nlabel_names: ["a,b", c]\nlabel_column: [toxic, obscene]\n'
    data = parsed(write("run.yaml", rows)).data
    assert (data.label_names, data.label_column) == (("a,b", "c"), "toxic,obscene")


def test_a_file_may_name_a_preset_and_a_run(tmp_path):
    (tmp_path / "run_config.json").write_text(parsed("--seed=7", "--xla").to_json())
    config = parsed(write("run.yaml", "flagfile: glue-sst2\nrun_config: run_config.json\nseed: 8\n"))
    assert (config.runtime.seed, config.runtime.xla, config.training.metric_for_best_model) == (8, True, "accuracy")


NOT_HELD = [
    ("seed: 1\nlerning_rate: 2", "'lerning_rate' in f.yaml, line 2. Did you mean --learning_rate?"),
    ("per_device_train_batch_size: 2", "line 1. Here it is --global_batch_size"),
    ("train_records: r", "line 1. It is a flag of run_pretraining.py."),
    ("config: other.yaml", "names no other"),
    ("seed: 1\nxla: true\nseed: 2", "Received: 'seed' twice, in f.yaml, line 3."),
    ("model: a\nmodel_name_or_path: b", "'model' and 'model_name_or_path', which are the same, in f.yaml, line 2"),
    ("training:\n  max_steps: 3", "flat.*an object as 'training' in f.yaml, line 1. Write max_steps: ... without"),
    ("<<: {seed: 1}", "an object as '<<'"),
    ("seed: 1.5", "seed must be an integer. Received: seed='1.5' in f.yaml, line 1."),
    ("output_dir: true", 'output_dir must be a path. .*Put it in quotes, "true"'),
    ("label_names: [true, false]", "label_names must be a list of strings. .*Put it in quotes"),
    ("task: ner", "Received: task='ner' in f.yaml, line 1. Write task: token_classification."),
    ("save_strategy: 'no'", "'save_strategy' in f.yaml, line 1. It is not needed: .*--save_steps=0"),
    ("seed: [1, 2]", r"seed must be an integer. Received: seed=\['1', '2'\] in .* Write one value."),
    ('label_column: ["a,b", c]', "label_column must be a string or a list .* Write values without commas"),
    ("text_column: [[a], b]", "text_column must be a list of strings. .* Write plain values."),
    ("seeds: [1, null]", "seeds must be a list of integers. .* Write plain values."),
    ("a: [1\nb: 3", "must be YAML"),
    ("a: 1\n---\nb: 2", "must be YAML"),
    ("- seed", "has none"),
    ("", "has none"),
]


@pytest.mark.parametrize("text, answer", NOT_HELD)
def test_what_a_file_must_not_hold(text, answer):
    with refused(answer):
        parsed(write("f.yaml", text))


def test_json_is_as_strict():
    message = message_of(parsed, write("f.json", '{"seed": 1, "xla": "maybe", "seed": true, "training": {}}'))
    assert [line.partition(".")[0] for line in message.splitlines()] == [
        "xla must be true or false",
        "Every option has one value",
        "A file of options is flat, a flag's name and its value in each line",
    ]
    assert "must be JSON" in message_of(parsed, write("f.json", '{"seed": 1'))
    many = "".join(f"x{number}: 1\n" for number in range(9))
    assert len(message_of(parsed, write("f.yaml", many)).splitlines()) == 9, "all at once"


def test_each_kind_of_file_says_which_flag_takes_it(tmp_path):
    (tmp_path / "run_config.json").write_text(Config().to_json())
    assert "Pass --run_config=run_config.json" in message_of(parsed, "--config=run_config.json")
    write("run.yaml", "seed: 1"), write("run.json", {"learning_rate": 1})
    assert "A run configuration must be JSON" in message_of(parsed, "--run_config=run.yaml")
    assert "Config has no option of this name. Received: learning_rate=" in message_of(parsed, "--run_config=run.json")


def test_a_word_that_says_the_mode_goes_with_no_other():
    assert parsed("--mode=train", mode="train") == Config()
    with refused(r"says the mode itself\. Received: mode='evaluate' beside it\."):
        parsed("--mode=evaluate", mode="train")
