"""The types of options: what is taken for each annotation, what it becomes, and what is refused."""

import copy
import json
import pathlib
import pickle
import re
from fractions import Fraction

import numpy as np
import pytest

import tfbert
from tests.support.refusals import refused
from tfbert.config.modes import all_options

HOME = str(pathlib.Path("~").expanduser())


SAME = {
    "max_steps": [(np.int64(4), 4)],
    "learning_rate": [(np.float64(3e-5), 3e-5), (np.float32(0.5), 0.5), (Fraction(1, 4), 0.25), (None, None)],
    "num_train_epochs": [(2, 2.0)],
    "gradient_accumulation_steps": [(np.int32(2), 2), ("auto", "auto")],
    "class_weights": [([1, 2.5], (1.0, 2.5)), (np.array([1.0, 2.5]), (1.0, 2.5)), ("balanced", "balanced")],
    "optimizer": [(np.str_("lamb"), "lamb")],
    "mixed_precision": [(np.True_, True)],
    "seeds": [([np.int64(3), 4], (3, 4)), (5, (5,))],
    "output_dir": [(pathlib.Path("runs") / "mine", "runs/mine"), (pathlib.Path("~/mine"), f"{HOME}/mine")],
    "validation_file": [([pathlib.Path("a.tsv"), "~/b.tsv"], f"a.tsv,{HOME}/b.tsv")],
    "text_column": [("text", ("text",)), (["a", "b, or c"], ("a", "b, or c")), ("", ())],
    "label_names": [(pathlib.Path("names.txt"), ("names.txt",)), (np.array(["no", "yes"]), ("no", "yes"))],
    "whole_word_masking": [(None, None)],
    "input_files": [((pathlib.Path("a"), "b"), ("a", "b"))],
}


def part_of(name):
    """The class that has an option, or a part."""
    return tfbert.Config.classes()[all_options()[name].part] if name in all_options() else tfbert.Config


@pytest.mark.parametrize("name, given, held", [(name, *pair) for name, pairs in SAME.items() for pair in pairs])
def test_what_means_the_same_is_taken(name, given, held):
    found = getattr(part_of(name)(**{name: given}), name)
    assert found == held and type(found) is type(held)
    assert json.loads(json.dumps(found)) == (list(held) if isinstance(held, tuple) else held)


OTHERS = {
    "max_steps": ("2", 2.5, True, None, [3]),
    "learning_rate": ("3e-5", [1e-5, 3e-5], False, 3 + 0j),
    "class_weights": ({"a": 1.0}, ["1", "2"]),
    "mixed_precision": ("yes", "bf16", 0),
    "seeds": ("1,2", {1, 2}, np.ones([2, 2], int), [1.5]),
    "output_dir": (b"runs", 3),
    "delimiter": (pathlib.Path("x"),),
    "label_column": (1,),
    "text_column": ([0, 1], "a,b"),
    "lora_targets": (["query,key"],),
    "train_file": ({"text": ["a"] * 1000},),
    "training": ({"max_steps": 2},),
}
TAKES = {"max_steps": "an integer", "learning_rate": "a number", "class_weights": "a list of numbers or balanced"}
TAKES |= {"mixed_precision": "True or False", "seeds": "a list of integers", "output_dir": "a path"}
TAKES |= {"delimiter": "a string", "label_column": "a string or a list of strings", "text_column": "a list of strings"}
TAKES |= {"lora_targets": "a string or a list of strings", "train_file": "a path", "training": "of type TrainingConfig"}
WAYS = {"'bf16'": "Pass mixed_precision=True", "{'text'": "tfbert.finetune as train="}


@pytest.mark.parametrize("name, given", [(name, given) for name, values in OTHERS.items() for given in values])
def test_another_type_is_refused_where_it_is_given(name, given, as_python):
    with refused(f"^{name} must be {TAKES[name]}. Received: {name}=") as caught:
        part_of(name)(**{name: given})
    line = str(caught.value)
    way_out = next((way for begins, way in WAYS.items() if f"={begins}" in line), "Pass one, or leave it out")
    assert way_out in line and len(line) < 250


def test_all_wrong_types_are_named_at_once():
    with pytest.raises(tfbert.UsageError) as caught:
        tfbert.TrainingConfig(max_steps="2", warmup_steps=None, learning_rate=1e-5)
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["max_steps", "warmup_steps"]


UNKNOWN = [
    (tfbert.ModelConfig, {"model": "bert-base-uncased"}, "Did you mean model_name_or_path?"),
    (tfbert.TrainingConfig, {"max_step": 3}, "Did you mean max_steps?"),
    (tfbert.TrainingConfig, {"xla": True}, "It is one of RuntimeConfig."),
    (tfbert.OutputConfig, {"zzz": 1}, "It has output_dir, overwrite_output_dir"),
    (tfbert.Config, {"trainin": tfbert.TrainingConfig()}, "Did you mean training"),
    (tfbert.Config, {"max_steps": 3}, "It is one of TrainingConfig."),
]


@pytest.mark.parametrize("part, given, advice", UNKNOWN)
def test_an_unknown_name_is_refused_with_what_is_meant(part, given, advice):
    with pytest.raises(tfbert.UsageError, match=re.escape(advice)) as caught:
        part(**given)
    assert f"Received: {next(iter(given))}=" in str(caught.value)


def test_configurations_can_be_copied():
    config = tfbert.Config(training=tfbert.TrainingConfig(max_steps=3, class_weights=[1, 2]))
    copies = [pickle.loads(pickle.dumps(config)), copy.deepcopy(config), tfbert.Config.from_json(config.to_json())]
    assert copies == [config] * 3
