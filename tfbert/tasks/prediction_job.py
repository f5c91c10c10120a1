"""What `--mode=predict` needs of an input: each group of tasks has jobs of its own."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from tfbert.data.open_file import BadRows
from tfbert.tasks.prediction_files import PredictionFile
from tfbert.tasks.trained import TrainedModel


class Job(Protocol):
    """A file to predict, and where the predictions go; each kind of task has one of its own.

    Attributes:
        name: The file's name.
        path: The file of predictions; None for standard output.
        columns: Those that are read, by the options that name them; empty where there is no choice.
    """

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> pathlib.Path | None: ...
    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]: ...

    def writer(self, model: TrainedModel, *, is_writer: bool) -> PredictionFile:
        """Where the predictions go; on a worker that does not write, nowhere.

        Raises:
            UsageError: for a model that does not fit the input.
        """

    def chunks(self, model: TrainedModel, bad_rows: BadRows) -> Iterator[Chunk]:
        """Consecutive rows, as many as are sorted by length and predicted together."""

    def encoder(self, model: TrainedModel) -> Callable[[Chunk], Any]:
        """A function that encodes a chunk, in several threads. Its result has the token ids as `tokens`, and all else
        that the task's `predictions` needs."""


class Chunk(Protocol):
    """Some rows of a file.

    Attributes:
        ids: For each row, what names it, or is written beside its prediction.
    """

    ids: list[Any]
