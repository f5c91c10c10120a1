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
from tfbert.config.tasks import CorpusConfig, PretrainingConfig
from tfbert.errors import UsageError

HOME = str(pathlib.Path("~").expanduser())


@pytest.mark.parametrize(
    "part, name, given, held",
    [
        (tfbert.TrainingConfig, "max_steps", np.int64(4), 4),
        (tfbert.TrainingConfig, "learning_rate", np.float64(3e-5), 3e-5),
        (tfbert.TrainingConfig, "learning_rate", np.float32(0.5), 0.5),
        (tfbert.TrainingConfig, "learning_rate", Fraction(1, 4), 0.25),
        (tfbert.TrainingConfig, "learning_rate", None, None),
        (tfbert.TrainingConfig, "num_train_epochs", 2, 2.0),
        (tfbert.TrainingConfig, "gradient_accumulation_steps", np.int32(2), 2),
        (tfbert.TrainingConfig, "gradient_accumulation_steps", "auto", "auto"),
        (tfbert.TrainingConfig, "class_weights", [1, 2.5], (1.0, 2.5)),
        (tfbert.TrainingConfig, "class_weights", np.array([1.0, 2.5]), (1.0, 2.5)),
        (tfbert.TrainingConfig, "class_weights", "balanced", "balanced"),
        (tfbert.TrainingConfig, "optimizer", np.str_("lamb"), "lamb"),
        (tfbert.RuntimeConfig, "mixed_precision", np.True_, True),
        (tfbert.RuntimeConfig, "seeds", [np.int64(3), 4], (3, 4)),
        (tfbert.RuntimeConfig, "seeds", 5, (5,)),
        (tfbert.OutputConfig, "output_dir", pathlib.Path("runs") / "mine", "runs/mine"),
        (tfbert.OutputConfig, "output_dir", pathlib.Path("~/mine"), f"{HOME}/mine"),
        (tfbert.DataConfig, "validation_file", [pathlib.Path("a.tsv"), "~/b.tsv"], f"a.tsv,{HOME}/b.tsv"),
        (tfbert.DataConfig, "text_column", "text", ("text",)),
        (tfbert.DataConfig, "text_column", ["a", "b, or c"], ("a", "b, or c")),
        (tfbert.DataConfig, "text_column", "", ()),
        (tfbert.DataConfig, "label_names", pathlib.Path("names.txt"), ("names.txt",)),
        (tfbert.DataConfig, "label_names", np.array(["no", "yes"]), ("no", "yes")),
        (PretrainingConfig, "whole_word_masking", None, None),
        (CorpusConfig, "input_files", (pathlib.Path("a"), "b"), ("a", "b")),
    ],
)
def test_what_means_the_same_is_taken(part, name, given, held):
    found = getattr(part(**{name: given}), name)
    assert found == held and type(found) is type(held)
    assert json.loads(json.dumps(found)) == (list(held) if isinstance(held, tuple) else held)


@pytest.mark.parametrize(
    "part, name, given, way_out",
    [
        (tfbert.TrainingConfig, "max_steps", "2", "Pass max_steps=2."),
        (tfbert.TrainingConfig, "max_steps", 2.0, "Pass max_steps=2."),
        (tfbert.TrainingConfig, "max_steps", 2.5, "Pass one, or leave"),
        (tfbert.TrainingConfig, "max_steps", True, "Pass one, or leave"),
        (tfbert.TrainingConfig, "max_steps", None, "Leave it out"),
        (tfbert.TrainingConfig, "max_steps", [3], "Pass max_steps=3."),
        (tfbert.TrainingConfig, "learning_rate", "3e-5", "Pass learning_rate=3e-05."),
        (tfbert.TrainingConfig, "learning_rate", [1e-5, 3e-5], "a number. Received"),
        (tfbert.TrainingConfig, "learning_rate", False, "Pass one, or leave"),
        (tfbert.TrainingConfig, "learning_rate", 3 + 0j, "a number. Received"),
        (tfbert.TrainingConfig, "gradient_accumulation_steps", 2.0, "Pass gradient_accumulation_steps=2."),
        (tfbert.TrainingConfig, "class_weights", {"a": 1.0}, "a list of numbers"),
        (tfbert.TrainingConfig, "class_weights", ["1", "2"], "a list of numbers"),
        (tfbert.TrainingConfig, "optimizer", None, "one of adamw, lamb"),
        (tfbert.RuntimeConfig, "mixed_precision", "yes", "Pass mixed_precision=True."),
        (tfbert.RuntimeConfig, "mixed_precision", "bf16", "True or False. Received"),
        (tfbert.RuntimeConfig, "xla", 0, "Pass xla=False."),
        (tfbert.RuntimeConfig, "seeds", "1,2", "Pass seeds=[1, 2]."),
        (tfbert.RuntimeConfig, "seeds", {1, 2}, "a list of integers"),
        (tfbert.RuntimeConfig, "seeds", np.ones([2, 2], int), "a list of integers"),
        (tfbert.RuntimeConfig, "seeds", [1.5], "a list of integers"),
        (tfbert.OutputConfig, "output_dir", b"runs", "a path. Received"),
        (tfbert.OutputConfig, "output_dir", 3, "a path. Received"),
        (tfbert.DataConfig, "delimiter", pathlib.Path("x"), "a string. Received"),
        (tfbert.DataConfig, "label_column", 1, "Pass label_column='1'."),
        (tfbert.DataConfig, "text_column", [0, 1], "Pass text_column=['0', '1']."),
        (tfbert.DataConfig, "text_column", "a,b", "Pass text_column=['a', 'b']."),
        (tfbert.DataConfig, "validation_file", ["a,b.tsv"], "a path or a list of paths"),
        (tfbert.DataConfig, "train_file", {"text": ["a"] * 1000}, "a path. Received"),
        (tfbert.Config, "training", {"max_steps": 2}, "of type TrainingConfig"),
        (tfbert.Config, "output", "runs", "Pass OutputConfig(...)."),
    ],
)
def test_another_type_is_refused_where_it_is_given(part, name, given, way_out, as_python):
    with refused(f"^{name} must be ") as caught:
        part(**{name: given})
    line = str(caught.value)
    assert f"Received: {name}=" in line and way_out in line and len(line) < 250


def test_all_wrong_types_are_named_at_once():
    with pytest.raises(UsageError) as caught:
        tfbert.TrainingConfig(max_steps="2", warmup_steps=None, learning_rate=1e-5)
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["max_steps", "warmup_steps"]


@pytest.mark.parametrize(
    "part, given, advice",
    [
        (tfbert.ModelConfig, {"model": "bert-base-uncased"}, "Did you mean model_name_or_path?"),
        (tfbert.TrainingConfig, {"max_step": 3}, "Did you mean max_steps?"),
        (tfbert.TrainingConfig, {"xla": True}, "It is one of RuntimeConfig."),
        (tfbert.OutputConfig, {"zzz": 1}, "It has output_dir, overwrite_output_dir"),
        (tfbert.Config, {"trainin": tfbert.TrainingConfig()}, "Did you mean training"),
        (tfbert.Config, {"max_steps": 3}, "It is one of TrainingConfig."),
    ],
)
def test_an_unknown_name_is_refused_with_what_is_meant(part, given, advice):
    with pytest.raises(UsageError, match=re.escape(advice)) as caught:
        part(**given)
    assert f"Received: {next(iter(given))}=" in str(caught.value)


def test_configurations_can_be_copied():
    config = tfbert.Config(training=tfbert.TrainingConfig(max_steps=3, class_weights=[1, 2]))
    copies = [pickle.loads(pickle.dumps(config)), copy.deepcopy(config), tfbert.Config.from_json(config.to_json())]
    assert copies == [config] * 3
