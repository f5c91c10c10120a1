"""Texts about options: with flags for the command's user, with arguments for Python's."""

import pickle

import pytest

from tfbert.config.run import of_arguments
from tfbert.errors import Preempted, RunError, UsageError, in_command

WORDED = [
    ("Pass --strategy=mirrored or drop --num_replicas.", "Pass strategy='mirrored' or drop num_replicas."),
    ("Add --mixed_precision.", "Add mixed_precision=True."),
    ("Drop --noheader.", "Drop header=False."),
    ("Pass for example --profile_steps=10,15.", "Pass for example profile_steps=[10, 15]."),
    ("Pass --text_column=a,b, not more.", "Pass text_column=['a', 'b'], not more."),
    ("--delimiter=';' or --delimiter=tab.", "delimiter=';' or delimiter='tab'."),
    ("--optimizer=lamb --lr_schedule=linear --dropout=0.5", "optimizer='lamb', lr_schedule='linear', dropout=0.5"),
    ("--gradient_accumulation_steps=auto, --xla, or", "gradient_accumulation_steps='auto', xla=True, or"),
    ("--label_column=0 names it", "label_column='0' names it"),
    ("--max_steps=N", "max_steps=N"),
    ("--model, a directory", "model, a directory"),
    ("Pass another, or --mode=predict.", "Pass another, or the command's --mode=predict."),
    ("--num_workers=N -- COMMAND", "--num_workers=N -- COMMAND"),  # Not an option of a run.
    ("a--seed --nonsense", "a--seed --nonsense"),
]


@pytest.mark.parametrize("text, worded", WORDED)
def test_flags_become_arguments(text, worded):
    assert of_arguments(text) == of_arguments(worded) == worded


@pytest.mark.parametrize("kind", [UsageError, RunError, Preempted])
def test_an_error_speaks_to_its_reader(kind, as_python):
    error = pickle.loads(pickle.dumps(kind("Drop --noheader.")))
    assert str(error) == "Drop header=False."
    with in_command():
        assert str(error) == "Drop --noheader."
    assert str(error) == "Drop header=False."
