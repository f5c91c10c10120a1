"""What a run on questions with choices trains and evaluates on: questions as written -> the task, and its examples."""

from __future__ import annotations

import dataclasses

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.tasks.base import TaskData
from tfbert.tasks.choosing.multiple_choice import MultipleChoice
from tfbert.tasks.choosing.source import choice_source
from tfbert.tasks.held_out import equal, hold_out
from tfbert.tasks.tables import data_of, read_training_tables


def load_choices(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads questions with their choices."""
    own_notes: list[str] = []
    sets, notes = read_training_tables(config, choice_source(config, options.choosing))
    if config.validation_split is not None:
        # Questions about one context stay together; without contexts, equal questions.
        train = sets["train"]
        groups = equal(one.context.strip() or f"\0{one.question.strip()}" for one in train.asked)
        sets = hold_out(sets, config, own_notes, groups=groups)
        sets["validation"] = dataclasses.replace(sets["validation"], notes=())
    counts = [sets["train"].counts.min(), sets["train"].counts.max()]
    own_notes += [line for part in sets.values() for line in part.notes]
    if counts[0] != counts[1]:
        total, slots = int(sets["train"].counts.sum()), int(counts[1]) * len(sets["train"])
        packed = "" if config.batching == "packed" else "; --batching=packed computes no missing ones"
        own_notes.append(
            f"questions have {counts[0]} to {counts[1]} choices: {1 - total / slots:.0%} of all places for them are "
            f"empty{packed}"
        )
    notes = (*notes, *own_notes)
    return data_of(MultipleChoice(options.choosing), sets, notes, config, sets["train"].columns)
