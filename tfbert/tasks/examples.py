"""Rows as written -> a task and its examples.

data = load_data(DataConfig(train_file="train.tsv", validation_file="dev.tsv"))
data.task.label_names, len(data.train), data.validation["validation"].labels
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.data.files import RawTable
from tfbert.data.sources import read_all
from tfbert.errors import UsageError
from tfbert.tasks.base import Task
from tfbert.tasks.choose import choose_task, class_words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Texts with their labels.

    Attributes:
        name: Where they came from, for messages.
        text: The texts, or the first of each pair.
        text_pair: The second of each pair; None for single texts.
        labels: `[n]`, as the task makes them; None when unlabelled.
    """

    name: str
    text: list[str]
    text_pair: list[str] | None
    labels: np.ndarray | None

    def __len__(self) -> int:
        return len(self.text)

    def take(self, indices: Iterable[int]) -> Examples:
        """The examples at `indices`, in that order."""
        indices = np.asarray(list(indices), np.int64)
        return dataclasses.replace(
            self,
            text=[self.text[i] for i in indices],
            text_pair=None if self.text_pair is None else [self.text_pair[i] for i in indices],
            labels=None if self.labels is None else self.labels[indices],
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """What a run trains and evaluates on.

    Attributes:
        task: What the labels are, and what is made of them.
        train: To train on.
        validation: Name -> to evaluate on during training; usually one, `validation`; may be empty.
        test: Labelled, to evaluate on once, at the end; None without one.
        notes: What the user should know, one line each.
    """

    task: Task
    train: Examples
    validation: dict[str, Examples]
    test: Examples | None
    notes: tuple[str, ...]


def load_data(config: DataConfig) -> TaskData:
    """Reads everything a run trains and evaluates on.

    Reading a TensorFlow Datasets name starts TensorFlow's devices: set them up first.

    `max_train_examples` and `max_eval_examples` keep a random subset, always the same one, so that files sorted by
    class (as IMDB's) still give all classes.

    Raises:
        UsageError: for data that is not there, cannot be read, or does not fit together.
    """
    raw = read_all(config, class_words=class_words(config.task))
    tables = [raw.train, *raw.validation.values(), *([raw.test] if raw.test else [])]
    _check_same_columns(tables)
    notes = list(raw.notes)
    task = choose_task(raw, config.task, notes)
    for table in tables:
        notes += table.notes
        empty = sum(not text.strip() for texts in (table.text, table.text_pair or []) for text in texts)
        if empty:
            notes.append(f"{table.name}: {empty:,} empty text{'s' if empty > 1 else ''}")

    def examples(table: RawTable, limit: int) -> Examples:
        return subset(label_examples(table, task), limit, notes)

    train = examples(raw.train, config.max_train_examples)
    validation = {name: examples(table, config.max_eval_examples) for name, table in raw.validation.items()}
    test = examples(raw.test, config.max_eval_examples) if raw.test else None
    doubts = task.doubts(train.labels)
    for other in (*validation.values(), *([test] if test else [])):
        doubts += _rows_in_common(train, other)
    notes += [f"warning: {line}" for line in doubts]
    return TaskData(task=task, train=train, validation=validation, test=test, notes=tuple(notes))


def label_examples(table: RawTable, task: Task) -> Examples:
    """Turns a table, unlabelled or labelled, into examples.

    Raises:
        UsageError: for a label that is none of the task's.
    """
    labels = None if table.labels is None else task.labels(table)
    return Examples(name=table.name, text=table.text, text_pair=table.text_pair, labels=labels)


def subset(examples: Examples, limit: int, notes: list[str]) -> Examples:
    """At most `limit` examples (0: all), drawn at random but always the same ones; adds a line to `notes` if fewer."""
    if not 0 < limit < len(examples):
        return examples
    notes.append(f"{examples.name}: {limit:,} of {len(examples):,} examples, a random subset that is always the same")
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(examples))
    return examples.take(np.sort(order[:limit]))


def eval_prefix(name: str) -> str:
    """What the metrics of a set to evaluate on during training are called: `validation` -> `eval`,
    `validation_matched` -> `eval_matched`, `test` -> `eval`.

    A data set without a validation split is evaluated on `test` in its place.
    """
    return "eval" + ("" if name == "test" else name.removeprefix("validation"))


def _check_same_columns(tables: list[RawTable]) -> None:
    train, *others = tables
    for other in others:
        if len(other.text_columns) != len(train.text_columns):
            raise UsageError(
                "All data must be single texts, or all must be pairs. "
                f"Received: {train.name} with {' and '.join(train.text_columns)}, "
                f"{other.name} with {' and '.join(other.text_columns)}. Pass --text_column."
            )


def _rows_in_common(train: Examples, other: Examples) -> list[str]:
    """A line where examples are trained on and evaluated on."""
    if os.path.realpath(train.name) == os.path.realpath(other.name):
        return [f"{other.name} is trained on and evaluated on: its scores say nothing about other texts"]
    # What is evaluated on is the smaller part, to be kept in memory; an empty text is no sign of anything.
    evaluated = {key for key in _keys(other) if any(key)}
    seen = {key for key in _keys(train) if key in evaluated}
    count = sum(key in seen for key in _keys(other))
    return [f"{other.name}: {count:,} of {len(other):,} rows are in the training data too"] if count else []


def _keys(examples: Examples) -> Iterator[tuple[str, ...]]:
    """Each row's text, or two, without the blanks around."""
    columns = [examples.text] if examples.text_pair is None else [examples.text, examples.text_pair]
    return zip(*(map(str.strip, column) for column in columns), strict=True)
