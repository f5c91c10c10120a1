"""What tasks share that give labels or numbers to whole texts, or pairs of texts: a row of logits for each."""

from __future__ import annotations

import abc
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tfbert.batches.pipeline import EncodedExamples
from tfbert.data.files import RawTable
from tfbert.errors import UsageError
from tfbert.tasks.base import ErrorAnalysis, InMemory, Task, place_of, rounded

if TYPE_CHECKING:
    import tensorflow as tf

    from tfbert.config.training import TrainingConfig
    from tfbert.tokens.tokenizer import Tokenizer


log = logging.getLogger("tfbert")

MOST_WINDOWS = 32
"""The most windows of a text that training reads: memory grows with those of a batch's longest text."""


def check_same_columns(train: RawTable, others: Iterable[RawTable]) -> None:
    """Refuses tables of single texts beside tables of pairs.

    Raises:
        UsageError: naming two that differ.
    """
    for other in others:
        if len(other.text_columns) != len(train.text_columns):
            raise UsageError(
                "All data must be single texts, or all must be pairs. "
                f"Received: {train.name} with {' and '.join(train.text_columns)}, "
                f"{other.name} with {' and '.join(other.text_columns)}. Pass --text_column."
            )


def about_empty(name: str, *columns: Iterable[str] | None) -> list[str]:
    """A line about the empty texts of a table, if there are any."""
    empty = sum(not text.strip() for texts in columns if texts is not None for text in texts)
    return [f"{name}: {empty:,} empty text{'s' if empty > 1 else ''}"] if empty else []


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextExamples(InMemory):
    """Texts with their labels, see `Examples`.

    Attributes:
        name: Where they came from, for messages.
        text: The texts, or the first of each pair.
        text_pair: The second of each pair; None for single texts.
        labels: `[n]`, as the task makes them; None when unlabelled.
        lines: int64 `[n]`: where each is, counted from 1 in `unit`; None for texts of no file.
        unit: What `lines` counts: `line` or `row`.
    """

    name: str
    text: list[str]
    text_pair: list[str] | None
    labels: np.ndarray | None
    lines: np.ndarray | None = None
    unit: str = "line"

    @classmethod
    def of_table(cls, table: RawTable, labels: np.ndarray | None) -> Self:
        """The texts of a table with their labels, `[n, ...]` as the task makes them; None: unlabelled."""
        lines = np.asarray(table.lines, np.int64)
        return cls(
            name=table.name, text=table.text, text_pair=table.text_pair, labels=labels, lines=lines, unit=table.unit
        )

    @property
    def num_texts(self) -> int:
        return 1 if self.text_pair is None else 2

    def __len__(self) -> int:
        return len(self.text)

    def take(self, indices: Iterable[int]) -> TextExamples:
        indices = np.asarray(list(indices), np.int64)
        return dataclasses.replace(
            self,
            text=[self.text[i] for i in indices],
            text_pair=None if self.text_pair is None else [self.text_pair[i] for i in indices],
            labels=None if self.labels is None else self.labels[indices],
            lines=None if self.lines is None else self.lines[indices],
        )

    def where(self, row: int) -> str:
        return place_of(row, self.lines, self.unit)

    def texts(self) -> list[str]:
        return self.text + (self.text_pair or [])

    def contents(self) -> Iterator[tuple[str, ...]]:
        columns = [self.text] if self.text_pair is None else [self.text, self.text_pair]
        return zip(*(map(str.strip, column) for column in columns), strict=True)


class TextTask(Task[TextExamples, np.ndarray]):
    """A task whose outputs are float32 `[n, num_labels]`; its predictions are its outputs."""

    # Training.

    def encode(
        self,
        examples: TextExamples,
        tokenizer: Tokenizer,
        max_seq_length: int,
        training: TrainingConfig | None = None,
    ) -> EncodedExamples:
        count = len(examples)
        weights = np.ones(count, np.float32) if training is None else self.example_weights(examples.labels, training)
        tokens = tokenizer.encode(examples.text, examples.text_pair, max_seq_length=max_seq_length)
        if training is not None and tokens.splits is not None:
            longer = int((np.diff(tokens.splits) > MOST_WINDOWS).sum())
            tokens = tokens.thinned(MOST_WINDOWS) if longer else tokens
            if longer:
                log.warning(
                    "%s: texts of more than %d windows of %d tokens: %s of %s; training reads %d windows of each, "
                    "spread evenly over it, evaluation and prediction read all; a larger --max_seq_length makes fewer",
                    *(examples.name, MOST_WINDOWS, max_seq_length, f"{longer:,}", f"{count:,}", MOST_WINDOWS),
                )
        return EncodedExamples(tokens=tokens, labels=examples.labels, weights=weights)

    def example_weights(self, labels: np.ndarray, training: TrainingConfig) -> np.ndarray:
        """Each training example's weight in the loss: float32 `[n]`.

        Raises:
            UsageError: for weights that do not fit the labels.
        """
        return np.ones(len(labels), np.float32)

    # Predictions.

    def predictions(self, outputs: np.ndarray, encoded: EncodedExamples) -> np.ndarray:
        """The outputs; of texts in windows the mean of these."""
        if encoded.splits is None:
            return outputs
        totals = np.add.reduceat(outputs, encoded.splits[:-1], axis=0)
        return totals / np.diff(encoded.splits)[:, None].astype(np.float32)

    @abc.abstractmethod
    def columns(self) -> list[str]:
        """The names of the columns of a table of predictions, without the ids' column."""

    @abc.abstractmethod
    def cells(self, record: dict[str, Any]) -> list[Any]:
        """One of `records` as a row of that table."""

    @abc.abstractmethod
    def records(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        """Each prediction as a JSON object, without its id; float32 is not rounded yet."""

    def shares(self, outputs: np.ndarray) -> np.ndarray:
        """The probability of each class: float32 `[n, num_labels]`."""
        raise NotImplementedError

    def entries(self, outputs: np.ndarray, most: int | None) -> Iterator[list[dict[str, Any]]]:
        """Each prediction as transformers' pipelines return it: `label` and `score` of its classes, best first.

        Args:
            outputs: The model's.
            most: The most classes; None: all.
        """
        order = np.argsort(-outputs, axis=1, kind="stable")[:, :most]
        scores = np.take_along_axis(self.shares(outputs), order, axis=1)
        for places, own in zip(order.tolist(), scores.tolist(), strict=True):
            names = (self.label_names[place] for place in places)
            yield [{"label": name, "score": rounded(score)} for name, score in zip(names, own, strict=True)]

    def best(self, outputs: np.ndarray) -> Iterator[Any]:
        """Each prediction as a loaded model gives it where no number of classes is asked for: the best class, as
        `entries` has it."""
        return (best for (best,) in self.entries(outputs, 1))

    @abc.abstractmethod
    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of an exported model by name, computed in the graph."""

    def example(self, num_texts: int) -> str:
        return '{"text": "...", "text_pair": "..."}' if num_texts == 2 else '"..."'


def error_analysis_of_texts(
    examples: TextExamples,
    errors: np.ndarray,
    measure: str,
    labels: Sequence[str],
    predictions: Sequence[str],
    facts: dict[str, Any],
) -> ErrorAnalysis:
    """Texts with their labels and predictions in readable form."""

    def shown(row: int) -> dict[str, Any]:
        pair = None if examples.text_pair is None else examples.text_pair[row]
        found = {"text": examples.text[row], "text_pair": pair}
        return found | {"label": labels[row], "prediction": predictions[row]}

    return ErrorAnalysis(errors=errors, measure=measure, shown=shown, facts=facts)


def takes(num_texts: int) -> str:
    """What a model takes, in words."""
    return "pairs of texts" if num_texts == 2 else "single texts"
