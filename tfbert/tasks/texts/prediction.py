"""Prediction of classes and numbers: texts of a file or of GLUE's test sets, and where the predictions go."""

from __future__ import annotations

import dataclasses
import pathlib

from tfbert.config.run import Config
from tfbert.data.open_file import OpenFile
from tfbert.tasks.prediction_files import PredictionFile
from tfbert.tasks.prediction_texts import TextJob, find_text_columns, open_text_file, text_job
from tfbert.tasks.texts import glue
from tfbert.tasks.texts.glue_file import GlueFile
from tfbert.tasks.trained import TrainedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueJob(TextJob):
    """A test set of GLUE, see `Job`.

    Attributes:
        task: GLUE's task.
    """

    task: str

    def writer(self, model: TrainedModel, *, is_writer: bool) -> PredictionFile:
        return GlueFile(self.path, glue.TASKS[self.task], model.task, is_writer=is_writer)


def open_texts(config: Config) -> list[TextJob]:
    """The texts to predict, and where the predictions go.

    Raises:
        UsageError: for input that cannot be opened, columns that do not exist, output without a known ending, or
            standard input or output that is closed.
    """
    if not config.data.dataset:
        file = open_text_file(config)
        task = config.predict.glue_task
        return [_glue_job(config, file, task) if task else text_job(config, file)]
    from tfbert.data.tfds_builder import open_tests  # imports TensorFlow Datasets

    files = open_tests(config.data.dataset, config.data.data_dir, config.data.text_column)
    tasks = {split: glue.task_of_split(config.data.dataset, split) for split in files}
    return [
        _glue_job(config, file, task) if (task := tasks[split]) else text_job(config, file)
        for split, file in files.items()
    ]


def _glue_job(config: Config, file: OpenFile, task: str) -> GlueJob:
    texts, id_column = find_text_columns(file, config.data.text_column, config.predict.id_column)
    path = pathlib.Path(config.output.output_dir) / glue.TASKS[task].file
    return GlueJob(file=file, texts=texts, id_column=id_column, path=path, format="glue", task=task)
