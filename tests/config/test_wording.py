"""Texts about options: with flags for the command's user, with arguments for Python's; and numbers in words."""

import pickle

import pytest

from tfbert.config.run import of_arguments
from tfbert.config.types import counted, rate_text
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


ROWS = {1: "1 row", 0: "0 rows", 2_000: "2,000 rows", -1: "-1 rows"}


@pytest.mark.parametrize("number, text", ROWS.items(), ids=str)
def test_a_number_of_things(number, text):
    assert counted(number, "row") == text


RATES = {(2468, 2): "1,234", (120, 10): "12", (1, 12): "0.083", (3.27, 1): "3.3", (9.96, 1): "10", (4, 1): "4"}
RATES |= {(0, 5): "0", (1, 0): "1,000,000,000", (1, 200_000): "5e-06"}


@pytest.mark.parametrize("number, seconds, text", [(*of, text) for of, text in RATES.items()])
def test_how_many_in_a_second(number, seconds, text):
    """A model that takes 12 seconds for an example does not predict 0 a second."""
    assert rate_text(number, seconds) == text
