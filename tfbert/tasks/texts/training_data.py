"""What a run on texts trains and evaluates on: rows as written -> the task, and its examples."""

from __future__ import annotations

from collections.abc import Container

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.data.files import RawData, RawTable
from tfbert.data.labels import NAMES_OR_MISSING
from tfbert.errors import UsageError
from tfbert.tasks.base import Task, TaskData
from tfbert.tasks.classes import have_fractions
from tfbert.tasks.registry import warnings_of_others
from tfbert.tasks.texts.classification import Classification
from tfbert.tasks.texts.regression import Regression
from tfbert.tasks.texts.source import read_all


def load_texts(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads texts with one label each."""
    raw = read_all(config, class_words=_class_words(config.task))
    tables = [raw.train, *raw.validation.values(), *([raw.test] if raw.test else [])]
    _check_same_columns(tables)
    notes = list(raw.notes)
    notes += warnings_of_others(Classification.name, raw.train)
    task = choose_task(raw, config.task, notes)
    for table in tables:
        notes += table.notes
        empty = sum(not text.strip() for texts in (table.text, table.text_pair or []) for text in texts)
        if empty:
            notes.append(f"{table.name}: {empty:,} empty text{'s' if empty > 1 else ''}")
    return TaskData(
        task=task,
        train=task.examples(raw.train),
        validation={name: task.examples(table) for name, table in raw.validation.items()},
        test=task.examples(raw.test) if raw.test else None,
        notes=tuple(notes),
    )


def _class_words(asked: str) -> Container[str]:
    """The words that usually stand for a missing label in files, but are classes with the given `--task`."""
    return NAMES_OR_MISSING if asked == Classification.name else ()


def choose_task(raw: RawData, asked: str, notes: list[str]) -> Task:
    """The task of training data.

    Args:
        raw: As it was written.
        asked: `--task`.
        notes: Receives a line if the labels lead to a task that the user may not expect.

    Raises:
        UsageError: for labels that do not fit the task.
    """
    is_scores = raw.is_regression or (raw.label_names is None and have_fractions(raw.train.labels))
    if asked == "auto" and is_scores:
        notes.append("the labels have fractions, so this is regression; --task=classification takes them as classes")
        return Regression()
    if asked == Regression.name:
        return Regression()
    return Classification.of_rows(raw.train, raw.label_names, is_asked_for=asked == Classification.name)


def _check_same_columns(tables: list[RawTable]) -> None:
    train, *others = tables
    for other in others:
        if len(other.text_columns) != len(train.text_columns):
            raise UsageError(
                "All data must be single texts, or all must be pairs. "
                f"Received: {train.name} with {' and '.join(train.text_columns)}, "
                f"{other.name} with {' and '.join(other.text_columns)}. Pass --text_column."
            )
