"""What a task is to the rest of the house: no other room knows labels, classes, metrics or what predictions look like.

Rows as written -> labels -> head -> loss -> predictions -> metrics, files and words: a task says each of them, in the
order in which a run asks.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tfbert.data.files import RawTable
from tfbert.errors import RunError, UsageError
from tfbert.model.head import Head

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras as keras

    from tfbert.config.run import TrainingConfig

SAVED_MODEL_WAY_OUT = "Pass another model, or compute in float32"
"""What to do about a saved model whose predictions are not finite."""
TRAINING_WAY_OUT = "Lower --learning_rate or raise --warmup_ratio"
"""What to do about those of a model in training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """How predictions for one set compare with its labels, for who reads a report.

    Attributes:
        wrongness: float64 `[n]`, how far off each prediction is; 0 for a right one.
        labels: Each label as a reader knows it.
        predictions: Each prediction likewise.
        facts: What JSON can hold of the set as a whole.
    """

    wrongness: np.ndarray
    labels: Sequence[str]
    predictions: Sequence[str]
    facts: dict[str, Any]


class Task(abc.ABC):
    """One task with its classes; equal ones are interchangeable.

    `outputs` below are what the model gives for examples, float32 `[n, num_labels]`, and `labels` what `labels` made of
    them.

    Attributes:
        name: What `--task` calls it.
        pipeline_tag: What the Hugging Face hub calls it.
        default_metric: Decides which weights are kept where the user names none.
        label_names: Name of each class; empty where there are none.
    """

    name: ClassVar[str]
    pipeline_tag: ClassVar[str]
    default_metric: ClassVar[str]
    label_names: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The task in a few words, such as `classification into 3 classes`."""

    # Rows as written.

    @abc.abstractmethod
    def labels(self, table: RawTable) -> np.ndarray:
        """The labels of a table that has them, `[n]`.

        Raises:
            UsageError: for one that is none of this task's.
        """

    @abc.abstractmethod
    def in_own_words(self, table: RawTable, defined: Sequence[str] | None, notes: list[str]) -> RawTable:
        """A table that a saved model of this task is evaluated on, its labels written as the model writes them.

        Args:
            table: As it was written.
            defined: The classes as the data set itself defines them; None where it does not.
            notes: Receives a line where labels were matched otherwise than by name.

        Raises:
            UsageError: for labels that are not the model's.
        """

    def doubts(self, labels: np.ndarray) -> list[str]:
        """What looks like an accident in the training labels, a line each."""
        return []

    # The model and its training.

    @abc.abstractmethod
    def head(self) -> Head:
        """What the model needs above its encoder."""

    @abc.abstractmethod
    def loss(self, training: TrainingConfig) -> keras.losses.Loss:
        """Values per example, float32 `[rows]`."""

    def example_weights(self, labels: np.ndarray, training: TrainingConfig) -> np.ndarray:
        """Each training example's weight in the loss: float32 `[n]`.

        Raises:
            UsageError: for weights that do not fit the labels.
        """
        return np.ones(len(labels), np.float32)

    def check_options(self, training: TrainingConfig) -> None:
        """Refuses options that have no effect on this task.

        Raises:
            UsageError: naming one.
        """
        for field in dataclasses.fields(training):
            value, tasks = getattr(training, field.name), field.metadata["tasks"]
            if tasks and self.name not in tasks and value != field.default:
                raise UsageError(
                    f"{field.name} is for {' and '.join(tasks)}, and this is {self.kind}. "
                    f"Received: {field.name}={value!r}. Drop --{field.name}."
                )

    # Predictions.

    @property
    @abc.abstractmethod
    def metric_names(self) -> tuple[str, ...]:
        """What `metrics` returns, in its order."""

    def metrics(
        self, outputs: np.ndarray, labels: np.ndarray, *, prefix: str = "", way_out: str = SAVED_MODEL_WAY_OUT
    ) -> dict[str, float]:
        """Compares all predictions of an evaluation with the labels, on the host.

        Args:
            outputs: One a label.
            labels: As `labels` made them.
            prefix: Put before each name, with an underscore; empty for none.
            way_out: What to do about predictions that are not finite, for the message.

        Returns:
            Plain floats by metric name.

        Raises:
            RunError: for predictions that are NaN or infinite: the model has diverged.
            UsageError: for no examples.
        """
        labels, outputs = np.asarray(labels), np.asarray(outputs, np.float64)
        if not len(labels):
            raise UsageError("Metrics need an example. Received: no labelled examples. Check the evaluation data.")
        bad = len(labels) - int(np.isfinite(outputs.reshape(len(labels), -1)).all(axis=1).sum())
        if bad:
            raise RunError(
                f"Predictions must be finite. Received: {bad} of {len(labels)} that are not: training has diverged. "
                f"{way_out}."
            )
        found = self._metrics(outputs, labels)
        return {f"{prefix}_{name}" if prefix else name: float(value) for name, value in found.items()}

    @abc.abstractmethod
    def _metrics(self, outputs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """The same, of float64 outputs that are finite, and at least one."""

    def check_metric(self, name: str) -> None:
        """Checks that a metric exists for this task.

        Raises:
            UsageError: where it does not, such as `matthews_correlation` with three classes.
        """
        if name not in self.metric_names:
            raise UsageError(
                f"metric_for_best_model must be a metric of {self.kind}: {', '.join(self.metric_names)}. "
                f"Received: metric_for_best_model={name!r}. Pass one of them."
            )

    def details(self, outputs: np.ndarray, labels: np.ndarray) -> tuple[dict[str, Any], list[str]]:
        """What an evaluation says beyond its metrics: what JSON can hold, by name, and lines for the screen."""
        return {}, []

    @abc.abstractmethod
    def judged(self, outputs: np.ndarray, labels: np.ndarray) -> Judged:
        """Each prediction beside its label, for a report."""

    def changes(self, outputs: np.ndarray, others: np.ndarray) -> dict[str, int]:
        """How many predictions two models make otherwise, by name; nothing where every small difference is one."""
        return {}

    @abc.abstractmethod
    def columns(self) -> list[str]:
        """The names of a table's columns of predictions, without that of the ids."""

    @abc.abstractmethod
    def rows(self, outputs: np.ndarray) -> Iterator[list[str | float]]:
        """Each prediction as a row of that table."""

    @abc.abstractmethod
    def objects(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        """Each prediction as an object of JSON, without its id."""

    @abc.abstractmethod
    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """What an exported model answers, by name, in the graph."""

    # Words.

    @abc.abstractmethod
    def card(self, takes: str) -> list[str]:
        """What a model of this task does, lines of Markdown for its card.

        Args:
            takes: `single texts` or `pairs of texts`.
        """


def rounded(value: float) -> float:
    """A float32 as the shortest number that gives it back."""
    return float(f"{value:.9g}")
