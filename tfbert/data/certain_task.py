"""The task that data are beyond doubt for: questions in SQuAD's form, or tagged words. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from tfbert.data.squad import looks_like_squad
from tfbert.data.tagged import looks_tagged

if TYPE_CHECKING:
    from tfbert.config.data import DataConfig
    from tfbert.config.run import Config


def settle_task(config: Config) -> Config:
    """The same configuration, with the task set if the training data are certainly questions or tagged words."""
    data = config.data
    if data.task != "auto":
        return config
    task = _task_of_file(data) if data.train_file else _task_of_dataset(data)
    return dataclasses.replace(config, data=dataclasses.replace(data, task=task)) if task else config


def _task_of_file(data: DataConfig) -> str | None:
    path = pathlib.Path(data.train_file)
    return next((name for name, holds in HOLDS.items() if holds(path, data)), None)


def _task_of_dataset(data: DataConfig) -> str | None:
    if data.dataset in ("", "demo"):
        return None
    from tfbert.data.tfds_task import task_of_dataset  # imports TensorFlow Datasets

    return task_of_dataset(data.dataset, data.data_dir, data.text_column, data.label_column)


def _holds_questions(path: pathlib.Path, data: DataConfig) -> bool:
    return data.input_format == "squad" or (data.input_format == "auto" and looks_like_squad(path))


def _holds_tags(path: pathlib.Path, data: DataConfig) -> bool:
    columns = {"text_column": data.text_column, "label_column": data.label_column}
    return looks_tagged(path, format=data.input_format, delimiter=data.separator, **columns)


HOLDS = {"question_answering": _holds_questions, "token_classification": _holds_tags}
"""By task, whether a file is beyond doubt for it."""
