"""The inputs of one call of a loaded model in Python: checked entry by entry, encoded, and answered with the keys of
transformers' pipelines. Each group of tasks has a class of its own."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from tfbert.batches.pipeline import EncodedExamples
from tfbert.errors import UsageError
from tfbert.tasks.prediction_texts import CHUNK_ROWS
from tfbert.tasks.trained import TrainedModel

BEST = "best"
NAME = "inputs"
"""What messages call the inputs of a call."""


Entry = TypeVar("Entry")


class Inputs(abc.ABC, Generic[Entry]):
    """The entries of one call.

    Args:
        model: The model that was called.
        top_k: How many answers each entry gets; None for all; `BEST` for the usual number.

    Attributes:
        most: The most entries that are predicted together.
        takes_top_k: Whether there are several answers to choose from.

    Raises:
        UsageError: for a `top_k` that this task does not have, or no number.
    """

    most: int = CHUNK_ROWS
    takes_top_k: bool = False

    def __init__(self, model: TrainedModel, top_k: int | None | Literal["best"] = BEST):
        if top_k != BEST and not self.takes_top_k:
            raise UsageError(
                f"top_k chooses among classes, and this is {model.task.kind}. Received: top_k={top_k!r}. Drop it."
            )
        if top_k is not None and top_k != BEST:
            check_whole("top_k", top_k)
        self._model, self._top_k = model, top_k

    @abc.abstractmethod
    def is_one(self, inputs: Any) -> bool:
        """Whether `inputs` is one entry, rather than many."""

    @abc.abstractmethod
    def entry(self, value: Any, where: str) -> Entry:
        """Checks an entry.

        Args:
            value: The entry as it was given.
            where: What messages call it.

        Raises:
            UsageError: for an entry that the model does not take.
        """

    def as_trained(self, value: Mapping[str, Any], option: str) -> list[Any]:
        """The values of the columns that the model was trained on; empty where an entry lacks one of them, as a row of
        other data.

        Args:
            value: An entry.
            option: The option that names the columns.
        """
        columns = self._model.columns.get(option, ())
        return [value[column] for column in columns] if all(column in value for column in columns) else []

    @abc.abstractmethod
    def size(self, entry: Entry) -> int:
        """The number of its characters, about."""

    @abc.abstractmethod
    def encode(self, entries: Sequence[Entry]) -> EncodedExamples:
        """Some entries as token ids."""

    def predictions(self, outputs: Any, encoded: Any) -> Any:
        """What the model's outputs say about the encoded entries."""
        return self._model.task.predictions(outputs, encoded)

    def scores(self, predictions: Any) -> np.ndarray:
        """The numbers behind the predictions, `[n, ...]`."""
        return self._model.task.scores(predictions)

    @abc.abstractmethod
    def answers(self, entries: Sequence[Entry], predictions: Any) -> Iterator[Any]:
        """The answer to each entry.

        Args:
            entries: Entries that have been encoded.
            predictions: What `predictions` makes of the model's outputs for them.
        """


def check_whole(name: str, value: Any) -> None:
    """Refuses what is no whole number of at least 1.

    Raises:
        UsageError: naming it.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise UsageError(f"{name} must be a whole number of at least 1. Received: {name}={value!r:.60}. Pass another.")
