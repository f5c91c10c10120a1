"""Reads the tables of a run or of an evaluation: from files, from a named data set, or the built-in corpus."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tfbert.config.data import DataConfig
from tfbert.config.given import Given
from tfbert.data.columns import about_columns
from tfbert.data.rows import Source, demo_table, labelled_source
from tfbert.errors import UsageError
from tfbert.tasks.base import Task, TaskData
from tfbert.tasks.sets import Examples, eval_prefix

Table = TypeVar("Table", bound=Any)
Read = Callable[[Source], Table]
"""Reads what an option names, as the task does."""


def read_training_tables(
    config: DataConfig, task: str, read: Read[Table], read_test: Read[Table] | None = None
) -> tuple[dict[str, Table], tuple[str, ...]]:
    """Reads what a run trains and is evaluated on.

    Args:
        config: Names a data set, or files.
        task: Whose built-in data these may be.
        read: Reads one set.
        read_test: Reads the test file; None: as any other.

    Returns:
        Tables by name, `train` first, then `validation...`, then `test`; and what the user should know, one line each.

    Raises:
        UsageError: for data that does not exist or cannot be read.
    """
    if not config.uses_files:
        return _by_name(config, task, read, with_train=True), ()
    tables = {"train": read(labelled_source(config.train_file))} | _validation(config, read)
    notes = () if config.has_validation_data else ("no validation_file: nothing is evaluated during training",)
    if config.test_file:
        tables["test"] = (read_test or read)(labelled_source(config.test_file))
    return tables, notes


def read_labelled_tables(
    config: DataConfig, task: str, read: Read[Table], choice_columns: Sequence[str] = ()
) -> dict[str, Table]:
    """Reads what a saved model is evaluated on.

    Args:
        config: As for `read_training_tables`; `test_file` may be standard input.
        task: As for `read_training_tables`.
        read: As for `read_training_tables`.
        choice_columns: The option of this name.

    Returns:
        Tables by the prefix of their metrics: `eval`, `test`, ... Their notes say which columns were read.

    Raises:
        UsageError: for data that does not exist or cannot be read.
    """
    tables = _validation(config, read) if config.uses_files else _by_name(config, task, read, with_train=False)
    found = {eval_prefix(name): table for name, table in tables.items()}
    if config.uses_files and config.test_file:
        found["test"] = read(labelled_source(config.test_file))
    asked = {"text_column": config.text_column, "label_column": (config.label_column,)}
    asked["choice_columns"] = choice_columns
    for name, table in found.items():
        notes = (*table.notes, *about_columns(table.name, table.columns, asked))
        found[name] = dataclasses.replace(table, notes=notes)
    return found


def _validation(config: DataConfig, read: Read[Table]) -> dict[str, Table]:
    paths = config.validation_files
    return {name: read(labelled_source(path)) for name, path in zip(validation_names(paths), paths, strict=True)}


def _by_name(config: DataConfig, task: str, read: Read[Table], *, with_train: bool) -> dict[str, Table]:
    if not config.header:
        raise UsageError("Only .tsv and .csv files can lack a header. Received: header=False. Drop --noheader.")
    if config.dataset not in ("", "demo"):
        from tfbert.data.tfds_builder import read_splits  # imports TensorFlow Datasets

        return read_splits(config.dataset, config.data_dir, read, with_train=with_train)
    if config.text_column or config.label_column:
        raise UsageError(
            "The demo corpus has no columns to choose. Received: "
            f"text_column={','.join(config.text_column)!r}, label_column={config.label_column!r}. Drop them."
        )
    splits = ("train", "validation") if with_train else ("validation",)
    tables = {split: read(demo_table(task, split)) for split in splits}
    return {split: dataclasses.replace(table, columns={}) for split, table in tables.items()}


def validation_names(paths: Sequence[str]) -> list[str]:
    """The names of validation files: `validation` for one, `validation_NAME` for each of several; of data in memory,
    their own.

    Raises:
        UsageError: for files with the same name.
    """
    if given := [path.argument for path in paths if isinstance(path, Given)]:
        return given
    if len(paths) <= 1:
        return ["validation"] * len(paths)
    names = [f"validation_{pathlib.Path(path).name.partition('.')[0]}" for path in paths]
    if len(set(names)) != len(names):
        raise UsageError(
            "Validation files need different names, so that their metrics can be told apart. "
            f"Received: validation_file={','.join(paths)!r}. Rename one."
        )
    return names


def data_of(
    task: Task,
    sets: dict[str, Examples],
    notes: Sequence[str],
    config: DataConfig,
    columns: Mapping[str, tuple[str, ...]],
) -> TaskData:
    """The sets by their names. Without a test file, a split `test` counts as validation if the data set has no other
    examples to evaluate on, as a part of the training examples that is held out."""
    is_last = config.test_file or config.validation_split is not None
    train, test = sets.pop("train"), sets.pop("test", None) if is_last else None
    return TaskData(task=task, train=train, validation=sets, test=test, notes=tuple(notes), columns=columns)
