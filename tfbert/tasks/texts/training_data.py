"""What a run on texts trains and evaluates on: rows as written -> the task, and its examples."""

from __future__ import annotations

from collections.abc import Container

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.data.files import RawTable
from tfbert.data.label_names import given_names
from tfbert.data.labels import NAMES_OR_MISSING
from tfbert.tasks.base import Task, TaskData
from tfbert.tasks.classes import have_fractions, maybe_thousands
from tfbert.tasks.held_out import hold_out, that_share_texts
from tfbert.tasks.registry import warnings_of_others
from tfbert.tasks.tables import data_of, read_training_tables
from tfbert.tasks.text_task import about_empty, check_same_columns
from tfbert.tasks.texts.classification import Classification
from tfbert.tasks.texts.regression import Regression
from tfbert.tasks.texts.source import text_source


def load_texts(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads texts with one label each."""
    notes: list[str] = []
    class_words = {*_class_words(config.task), *given_names(config)}
    is_regression = config.task == Regression.name
    source = text_source(config, class_words, is_regression=is_regression, names_ids=not is_regression)
    tables, more = read_training_tables(config, source)
    check_same_columns(tables["train"], tables.values())
    notes += [*more, *warnings_of_others(Classification.name, tables["train"])]
    task = choose_task(tables["train"], config.task, notes)
    for table in tables.values():
        notes += [*table.notes, *about_empty(table)]
    sets = {name: task.examples(table) for name, table in tables.items()}
    if config.validation_split is not None:
        groups = that_share_texts(list(sets["train"].contents()), config.validation_split, notes)
        strata = sets["train"].labels if task.label_names else None
        sets = hold_out(sets, config, notes, groups=groups, strata=strata)
    return data_of(task, sets, notes, config, tables["train"].columns)


def _class_words(asked: str) -> Container[str]:
    """The words that usually stand for a missing label in files, but are classes with the given `--task`."""
    return NAMES_OR_MISSING if asked == Classification.name else ()


def choose_task(train: RawTable, asked: str, notes: list[str]) -> Task:
    """The task of training data.

    Args:
        train: As it was written.
        asked: `--task`.
        notes: Receives a line if the labels lead to a task that the user may not expect, or are numbers that may be
            meant otherwise.

    Raises:
        UsageError: for labels that do not fit the task.
    """
    is_scores = train.is_regression or (train.label_names is None and have_fractions(train.labels))
    if asked == "auto" and is_scores:
        notes.append("the labels have fractions, so this is regression; --task=classification takes them as classes")
    if asked == Regression.name or (asked == "auto" and is_scores):
        notes += maybe_thousands(train.labels)
        return Regression()
    return Classification.of_rows(train, train.label_names, is_asked_for=asked == Classification.name)
