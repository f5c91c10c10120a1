"""Detects the task where the data can be for no other, such as questions in SQuAD's form. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tfbert.config.data import DataConfig, is_pipe
from tfbert.data.columns import named_by_user
from tfbert.data.rows import labelled_source
from tfbert.errors import UsageError
from tfbert.tasks.registry import ENTRIES, entry_of

if TYPE_CHECKING:
    from tfbert.config.run import Config
    from tfbert.tasks.base import Task


def detect_task(config: Config) -> Config:
    """The same configuration, with the task set if the training data are certainly questions or tagged words."""
    data = config.data
    if data.task != "auto":
        return config
    task = _task_of_file(data) if data.train_file else task_of_dataset(data)
    return dataclasses.replace(config, data=dataclasses.replace(data, task=task)) if task else config


def _task_of_file(data: DataConfig) -> str | None:
    path = labelled_source(data.train_file)
    return next((entry.name for entry in ENTRIES if entry.holds(path, data)), None)


def task_of_dataset(config: DataConfig) -> str | None:
    """The only task whose examples a named data set can hold.

    Returns:
        None where the features fit texts with a label, or no task, and for an unknown name: reading it says why.
    """
    if config.dataset in ("", "demo"):
        return None
    from tfbert.data.tfds_builder import find_builder, table_of  # imports TensorFlow Datasets

    try:
        table = table_of(find_builder(config.dataset, config.data_dir), config.dataset, "train")
    except UsageError:
        return None
    entry = next((entry for entry in ENTRIES if entry.holds(table, config)), entry_of("auto"))
    return None if entry is entry_of("auto") else entry.name


def check_files(task: Task, data: DataConfig, paths: Iterable[str]) -> None:
    """Refuses files that are certainly not for a saved model's task.

    Raises:
        UsageError: naming the first such file.
    """
    # If the user chooses columns, the file may well fit another task. Any task may be for the texts of a table, whose
    # labels prediction does not read.
    others = [entry for entry in ENTRIES if entry.items_class != entry_of("auto").items_class]
    data = dataclasses.replace(data, text_column=named_by_user(*data.text_column))
    data = dataclasses.replace(data, label_column="".join(named_by_user(data.label_column)))
    for path in paths if not data.text_column else ():
        for entry in others:
            if entry.name != task.name and not is_pipe(path) and entry.holds(labelled_source(path), data):
                raise UsageError(
                    f"A file must fit the model's task. Received: {path!r}, which is for "
                    f"{entry.name.replace('_', ' ')}, and a model for {task.kind}. "
                    "Pass a model for that task, or another file, or the columns to read with --text_column."
                )
