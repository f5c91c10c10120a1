"""Predictions as GLUE's server takes them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfbert.errors import UsageError
from tfbert.tasks.base import Task
from tfbert.tasks.prediction_files import PredictionFile
from tfbert.tasks.texts import glue


class GlueFile(PredictionFile):
    """A submission to GLUE's server: `index` and `prediction`, in the order of the indexes.

    Args:
        path: The file to write.
        glue_task: The task of the test set.
        task: The model's.
        is_writer: Whether to write at all.

    Raises:
        UsageError: for a model with other labels than the task's.
    """

    def __init__(self, path: pathlib.Path, glue_task: glue.GlueTask, task: Task, *, is_writer: bool):
        super().__init__(path, is_writer=is_writer)
        names = task.label_names
        self._written = glue_task.predictions(names) if glue_task.labels or names else None
        self._rows: list[tuple[int, str]] = []  # The largest test set has 390,965.

    def write(self, ids: Sequence[Any], outputs: np.ndarray) -> None:
        """As `PredictionFile.write`; the lines follow at the end.

        Raises:
            UsageError: for an id that is not a number.
        """
        for name, row in zip(ids, outputs, strict=True):
            try:
                index = int(name)
            except ValueError:
                raise UsageError(
                    f"GLUE's ids must be numbers. Received: id {name!r}. Pass their column with --id_column."
                ) from None
            text = glue.score_text(float(row[0])) if self._written is None else self._written[int(row.argmax())]
            self._rows.append((index, text))

    def _last_lines(self) -> Iterable[str]:
        return (f"{index}\t{text}" for index, text in sorted(self._rows))

    def _header(self) -> Iterable[str]:
        return ["index\tprediction"]
