"""What a saved model is used on, and what it answers: inputs in Python and rows of files become the same items, and
their answers have the keys of transformers' pipelines. Each group of tasks has a class of items of its own.

A fine-tuned model ready for use: what predictions, exported models and calls from Python share.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
import tensorflow as tf

from tfbert.batches.masked_records import MaskedRecords
from tfbert.batches.pipeline import EncodedExamples
from tfbert.bert.layers import fix_kernels
from tfbert.config.data import TYPED_TEXTS
from tfbert.errors import RunError, UsageError
from tfbert.model.bert_config import check_token_types
from tfbert.model.predictor import Predictor
from tfbert.tasks.base import SAVED_MODEL_WAY_OUT, Examples, Task

if TYPE_CHECKING:
    from tfbert.bert.pretrained import PreTrainedModel
    from tfbert.tokens.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A saved model, ready for use.

    Attributes:
        name: The directory or hub name, for messages.
        classifier: The model.
        tokenizer: Its tokenizer.
        task: The model's task, with its classes.
        num_texts: 1 for single texts, 2 for pairs; None if the directory does not say.
        max_seq_length: Longest input in tokens.
        columns: Those of the data that it was trained on, by the options that name them.
    """

    name: str
    classifier: PreTrainedModel
    tokenizer: Tokenizer
    task: Task
    num_texts: int | None
    max_seq_length: int
    columns: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def logits(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """The logits of a batch's inputs, for a `Predictor`: float32 `[rows, num_labels]`, or
        `[rows, width, num_labels]`; or whatever the task keeps of the model's outputs."""
        outputs = self.task.head().forward(self.classifier, inputs, training)
        return self.task.select_outputs(
            tf.nest.map_structure(lambda output: tf.cast(output, tf.float32), outputs), inputs
        )

    def predictor(self, strategy: tf.distribute.Strategy, rows_per_replica: int | None) -> Predictor:
        """A predictor with this model, which must have been loaded in the strategy's scope, and never changes again."""
        of_tokens = self.task.reads_tokens
        predictor = Predictor(self.logits, strategy, rows_per_replica=rows_per_replica, of_tokens=of_tokens)
        if predictor.is_one_cpu and self.classifier.compute_dtype == "bfloat16":
            fix_kernels(self.classifier)
        return predictor

    def encode(self, examples: Examples) -> EncodedExamples | MaskedRecords:
        """Examples as token ids, cut or split as in training."""
        return self.task.encode(examples, self.tokenizer, self.max_seq_length)

    def predict(self, predictor: Predictor, examples: Examples) -> Any:
        """The task's predictions for examples, in their order."""
        return self.task.predict(predictor, self.encode(examples))

    def check_texts(self, columns: Sequence[str], source: str) -> None:
        """Checks that data holds as many texts in each row as the model was trained on.

        Raises:
            UsageError: for pairs if the model takes single texts, and the reverse.
        """
        if self.num_texts is None:
            check_token_types(self.classifier.config, len(columns))
        if self.num_texts in (None, len(columns)):
            return
        takes, todo = ("pairs of texts", "FIRST,SECOND") if self.num_texts == 2 else ("single texts", "COLUMN")
        todo = f"--text_column={todo}"
        if source == TYPED_TEXTS:
            todo = "a --text_pair for each --text" if self.num_texts == 2 else "--text without --text_pair"
        raise UsageError(
            f"The model was trained on {takes}. Received: {source} with {' and '.join(columns)}. "
            f"Pass {todo}, or a model for {'single texts' if len(columns) == 1 else 'pairs'}."
        )


def check_finite(scores: np.ndarray, ids: Sequence[Any], name: str) -> None:
    """Refuses predictions that are not finite: their labels would look like any others.

    Args:
        scores: The numbers behind predictions, `[n, ...]`.
        ids: What names each example, by its `repr`.
        name: What messages call all examples together.

    Raises:
        RunError: for the first that is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=tuple(range(1, scores.ndim))))
    if len(bad):
        which = f"id {ids[bad[0]]!r}" if len(scores) == len(ids) else "a row"
        raise RunError(
            f"Predictions must be finite. Received: {str(scores[bad[0]]):.60} for {which} of {name}. "
            f"{SAVED_MODEL_WAY_OUT}."
        )


CHUNK_ROWS = 8192
"""The most items that are read, sorted by length and predicted together."""
CHUNK_CHARACTERS = 1 << 22
"""A chunk ends at this many characters too, so that memory does not grow with the length of texts."""
BEST = "best"
NAME = "inputs"
"""What messages call the inputs of a call."""


@dataclasses.dataclass(kw_only=True)
class Item:
    """Texts that are answered together.

    Attributes:
        name: What names them in a file of answers.
        texts: As they were given.
    """

    name: Any = None
    texts: Sequence[str]

    def __repr__(self) -> str:
        return repr(self.name)  # As messages show the id of an example.


ItemT = TypeVar("ItemT")


class Items(abc.ABC, Generic[ItemT]):
    """The items of one call, or of one file, and their answers.

    Args:
        model: The model that was called.
        top_k: How many answers each item gets; None for all; `BEST` for the usual number.

    Attributes:
        most: The most items that are predicted together.
        takes_top_k: Whether there are several answers to choose from.
        task: The model's.

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
        self._model, self._top_k, self.task = model, top_k, model.task

    # Inputs in Python.

    def is_one(self, inputs: Any) -> bool:
        """Whether `inputs` is one item, rather than many."""
        return isinstance(inputs, str | Mapping)

    @abc.abstractmethod
    def item(self, value: Any, where: str) -> ItemT:
        """Checks an input.

        Args:
            value: The input as it was given.
            where: What messages call it.

        Raises:
            UsageError: for an input that the model does not take.
        """

    def as_trained(self, value: Mapping[str, Any], option: str) -> list[Any]:
        """The values of the columns that the model was trained on; empty where an input lacks one of them, as a row of
        other data.

        Args:
            value: An input.
            option: The option that names the columns.
        """
        columns = self._model.columns.get(option, ())
        return [value[column] for column in columns] if all(column in value for column in columns) else []

    # Rows of files.

    def check_columns(self, texts: Sequence[str], source: str) -> None:
        """Refuses columns of texts that the model does not take.

        Raises:
            UsageError: naming them.
        """

    def row(self, texts: Mapping[str, Any], where: str) -> ItemT:
        """The item of a table's row.

        Args:
            texts: The values of the columns of texts, by the columns' names.
            where: What messages call it.

        Raises:
            UsageError: for a row that the model does not take.
        """
        raise NotImplementedError

    def notes(self, name: str) -> list[str]:
        """What the user should know at the end of a file, one line each."""
        return []

    # Predictions.

    def chunks(self, items: Iterable[ItemT]) -> Iterator[list[ItemT]]:
        """Consecutive items that are predicted together, few enough to bound the memory."""
        chunk, size = [], 0
        for item in items:
            chunk.append(item)
            size += self.size(item)
            if len(chunk) == self.most or size >= CHUNK_CHARACTERS:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def size(self, item: Any) -> int:
        """The number of its characters, about."""
        return sum(map(len, item.texts))

    @abc.abstractmethod
    def encode(self, items: Sequence[ItemT]) -> EncodedExamples:
        """Some items as token ids, in several threads."""

    def predictions(self, outputs: Any, encoded: Any) -> Any:
        """What the model's outputs say about the encoded items."""
        return self.task.predictions(outputs, encoded)

    def scores(self, predictions: Any) -> np.ndarray:
        """The numbers behind the predictions, `[n, ...]`."""
        return self.task.scores(predictions)

    # Answers.

    @abc.abstractmethod
    def answers(self, items: Sequence[ItemT], predictions: Any) -> Iterator[Any]:
        """The answer to each item, as a loaded model gives it.

        Args:
            items: Items that have been encoded.
            predictions: What `predictions` makes of the model's outputs for them.
        """

    def records(self, items: Sequence[ItemT], predictions: Any) -> Iterator[dict[str, Any]]:
        """The answer to each item, as a line of JSON holds it beside the item's name; a float32 is rounded by who
        writes it. Arguments as for `answers`."""
        return self.answers(items, predictions)

    def columns(self) -> Sequence[str]:
        """The columns of a table of answers beside the ids; if there is nothing else to say, keys of `records`."""
        raise NotImplementedError

    def cells(self, item: ItemT, record: dict[str, Any]) -> Iterable[Sequence[Any]]:
        """The rows of that table for an item and its record."""
        return [[record[column] for column in self.columns()]]


def check_whole(name: str, value: Any) -> None:
    """Refuses what is no whole number of at least 1.

    Raises:
        UsageError: naming it.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise UsageError(f"{name} must be a whole number of at least 1. Received: {name}={value!r:.60}. Pass another.")
