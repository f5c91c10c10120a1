"""The options as arguments of `tfbert.finetune` and `tfbert.pretrain`: names, types, and what they make."""

import inspect
import pathlib
import subprocess
import sys

import pytest

import tfbert
from tests.support.flag_values import configured, parsed
from tests.support.refusals import message_of
from tfbert.config.modes import all_options
from tfbert.config.run import FINETUNE, PRETRAIN
from tfbert.config.types import EVERY
from tfbert.python import config_of

EVALUATION = configured("evaluate", model="m", dataset="glue/sst2")


def test_arguments_make_the_configuration_that_flags_make(tmp_path):
    for name in ("train.tsv", "dev.tsv", "other.tsv"):
        (tmp_path / name).write_text("label\ttext\n0\ta\n1\tb\n")
    words = {"train_file": tmp_path / "train.tsv", "validation_file": [tmp_path / "dev.tsv", tmp_path / "other.tsv"]}
    words |= {"model": "scratch/mini", "output_dir": tmp_path / "out", "text_column": ["text"], "header": True}
    words |= {"num_train_epochs": 2, "learning_rate": 3e-5, "class_weights": [1, 2.5], "mixed_precision": True}
    words |= {"profile_steps": (2, 3)}
    lists = {name: ",".join(map(str, value)) for name, value in words.items() if isinstance(value, (list, tuple))}
    expected = parsed(*(f"--{name}={text}" for name, text in (words | lists).items()))
    found = config_of(FINETUNE, None, words)
    assert found == expected and found.to_json() == expected.to_json()


def test_arguments_change_a_configuration():
    base = configured(max_steps=3, warmup_steps=2)
    assert config_of(FINETUNE, base, {"max_steps": 5}) == configured(max_steps=5, warmup_steps=2)
    assert config_of(FINETUNE, base, {}) == base


@pytest.mark.parametrize("function, command", [(tfbert.finetune, FINETUNE), (tfbert.pretrain, PRETRAIN)])
def test_every_option_of_training_is_an_argument_with_its_default(function, command):
    parameters = inspect.signature(function).parameters
    for name in command.names():
        field, known = all_options()[name].field, name if name != "model_name_or_path" else "model"
        is_of_one_run = "train" in field.metadata["modes"] and name not in ("seeds", "sweep")
        assert (known in parameters) == is_of_one_run, name
        assert known not in parameters or parameters[known].default == field.default
    assert {mode for mode in EVERY if mode in parameters} <= {"train"}  # Which is an argument: the data.


ANSWERS = [
    (tfbert.finetune, {"num_epochs": 3}, "Here it is num_train_epochs."),
    (tfbert.finetune, {"num_train_epoch": 3}, "Did you mean num_train_epochs?"),
    (tfbert.finetune, {"epochs": 3}, "Did you mean num_train_epochs?"),
    (tfbert.finetune, {"fp16": True}, "Here it is mixed_precision=True."),
    (tfbert.finetune, {"save_strategy": "no"}, "save_steps=0 writes no checkpoint before."),
    (tfbert.finetune, {"load_best_model_at_end": False}, "It is not an option: a run keeps its best weights"),
    (tfbert.finetune, {"task": "ner"}, "Pass task='token_classification'."),
    (tfbert.finetune, {"mixed_precision": "bf16"}, "Pass mixed_precision=True, mixed_precision_dtype='bfloat16'."),
    (tfbert.finetune, {"mixed_precision": "None"}, "Drop it: float32 is the default."),
    (tfbert.finetune, {"mixed_precision": "yes"}, "must be True or False."),
    (tfbert.finetune, {"bf16": True}, "Here it is mixed_precision=True, mixed_precision_dtype='bfloat16'."),
    (tfbert.finetune, {"no_cuda": True}, "Here it is device='cpu'."),
    (tfbert.finetune, {"masked_lm_prob": 0.1}, "It is a flag of run_pretraining.py."),
    (tfbert.finetune, {"mlm_probability": 0.1}, "In run_pretraining.py it is masked_lm_prob."),
    (tfbert.pretrain, {"doc_stride": 64}, "It is a flag of run_finetune.py."),
    (tfbert.finetune, {"input_file": "x.tsv"}, "input_file is for another mode"),
    (tfbert.finetune, {"mode": "predict"}, "tfbert.load returns"),
    (tfbert.finetune, {"flagfile": "glue-sst2"}, "Presets are for the command"),
    (tfbert.finetune, {"xyzzy": 1}, "See help(tfbert.finetune)."),
    (tfbert.finetune, {"seed": [1, 2]}, "Call it for each, or tfbert.sweep with seeds=[1, 2]."),
    (tfbert.finetune, {"learning_rate": [5, 10]}, "Pass one, or leave it out for the default."),
]


@pytest.mark.parametrize("function, options, answer", ANSWERS)
def test_an_argument_that_is_unknown_or_has_several_values_is_answered(function, options, answer, as_python):
    line = message_of(function, **options)
    (name,) = options
    assert answer in line and f"Received: {name}=" in line and "--" not in line and "\n" not in line


def test_all_that_is_wrong_is_said_at_once_before_tensorflow_is_imported():
    code = """
import sys, tfbert
try:
    tfbert.finetune(fp16=True, max_steps="2", xla=1)
except ValueError as error:
    print(error)
print("tensorflow" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *lines, imported = done.stdout.splitlines()
    assert [line.split(". Received: ")[1].split("=")[0] for line in lines] == ["fp16", "max_steps", "xla"]
    assert imported == "False" and not done.stderr


def test_rules_are_those_of_the_command_in_arguments(as_python):
    assert message_of(tfbert.finetune, num_replicas=2).endswith("Pass strategy='mirrored' or drop num_replicas.")
    assert "Pass model='bert-base-uncased' or another" in message_of(tfbert.finetune, train=[("good", 1), ("bad", 0)])
    wrong = message_of(tfbert.finetune, model="m", train_file=pathlib.Path("no.tsv"))
    assert wrong.startswith("train_file must be a file")


NO_CALL = [
    ({"task": "pretraining"}, "Call tfbert.pretrain"),
    ({"seeds": [1, 2]}, "Received: seeds='1,2'. Call tfbert.sweep"),
    ({"sweep": "xla=true,false"}, "A call is one run"),
    ({"model": "a", "model_name_or_path": "b"}, "model and model_name_or_path are one option"),
    ({"config": {"max_steps": 3}}, "must be a tfbert.Config"),
    ({"config": EVALUATION}, "trains"),
]


@pytest.mark.parametrize("options, answer", NO_CALL)
def test_what_a_call_cannot_do_is_refused(options, answer):
    assert answer in message_of(tfbert.finetune, **options)


def test_callbacks_are_read_once_and_may_be_one_or_none(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr("tfbert.python.verb_of", lambda config: lambda config, callbacks: told.append(callbacks) or {})
    one = tfbert.callbacks.Callback()
    for callbacks in ([one], iter([one]), one, None):
        tfbert.finetune(output_dir=tmp_path / "out", callbacks=callbacks, quiet=True)
    assert told == [[one], [one], [one], []]
    assert "made already. Received: 3." in message_of(tfbert.finetune, output_dir=tmp_path / "out", callbacks=3)
