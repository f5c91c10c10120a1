"""Rows as written -> a task and its examples.

data = load_data(DataConfig(train_file="train.tsv", validation_file="dev.tsv"))
data.task.label_names, len(data.train), data.validation["validation"].labels
"""

from __future__ import annotations

import dataclasses
import os

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.tasks.base import TaskData
from tfbert.tasks.registry import entry_of
from tfbert.tasks.sets import Examples, subset


def load_data(config: DataConfig, options: TaskOptions | None = None) -> TaskData:
    """Reads everything a run trains and evaluates on.

    Reading from TensorFlow Datasets starts TensorFlow's devices: set them up first.

    `max_train_examples` and `max_eval_examples` keep a random subset, always the same one, so that files sorted by
    class (as IMDB's) still give all classes.

    Args:
        config: Names a data set, or files.
        options: Options of single tasks; None for their defaults.

    Raises:
        UsageError: for data that does not exist, cannot be read, or does not fit together.
    """
    data, notes = entry_of(config.task).load(config, options or TaskOptions()), []

    def part(examples: Examples, limit: int) -> Examples:
        return subset(examples, limit, notes)

    train = part(data.train, config.max_train_examples)
    others = {name: part(examples, config.max_eval_examples) for name, examples in data.sets.items()}
    doubts = data.task.doubts(train)
    for other in others.values():
        doubts += _rows_in_common(train, other)
    notes = [*data.notes, *notes, *(f"warning: {line}" for line in doubts)]
    test = others.pop("test", None) if data.test is not None else None
    return dataclasses.replace(data, train=train, validation=others, test=test, notes=tuple(notes))


def _rows_in_common(train: Examples, other: Examples) -> list[str]:
    """A line if some examples are both trained on and evaluated on."""
    if os.path.realpath(train.name) == os.path.realpath(other.name):
        return [f"{other.name} is used for training and for evaluation: its scores say nothing about other texts"]
    # Keeps only the contents of the evaluation set in memory, as it is smaller. Empty texts do not count as equal.
    evaluated = {key for key in other.contents() if any(key)}
    seen = {key for key in train.contents() if key in evaluated}
    count = sum(key in seen for key in other.contents())
    return [f"{other.name}: {count:,} of {len(other):,} rows are in the training data too"] if count else []
