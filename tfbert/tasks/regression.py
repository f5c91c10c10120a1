"""Regression: a score for each text or pair of texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tf_keras as keras

from tfbert.data.files import RawTable
from tfbert.errors import UsageError
from tfbert.model.head import Head
from tfbert.tasks.base import Judged, Task, rounded
from tfbert.tasks.classes import is_number, quoted
from tfbert.tasks.metrics import regression_metrics

if TYPE_CHECKING:
    import tensorflow as tf

    from tfbert.config.run import TrainingConfig


@dataclasses.dataclass(frozen=True)
class Regression(Task):
    """See `Task`. Labels are float32 scores, outputs `[n, 1]`.

    Metrics: `pearson` and `spearmanr`, which are undefined and here 0 where predictions or labels are constant; `mse`;
    `loss`, the same number.
    """

    name = "regression"
    pipeline_tag = "text-classification"
    default_metric = "pearson"

    @property
    def kind(self) -> str:
        return "regression"

    def labels(self, table: RawTable) -> np.ndarray:
        out = np.empty(len(table.labels), np.float32)
        for row, label in enumerate(table.labels):
            value = float(label) if is_number(label) else np.nan
            if not abs(value) <= float(np.finfo(np.float32).max):
                raise UsageError(
                    "A regression label must be a finite number. Received: "
                    f"{quoted(label)} in {table.where(row)}. Repair or drop the row, or pass --task=classification."
                )
            out[row] = value
        return out

    def in_own_words(self, table: RawTable, defined: Sequence[str] | None, notes: list[str]) -> RawTable:
        if defined:
            raise UsageError(
                "A regression model is evaluated on scores. "
                f"Received: {table.name} with the classes {', '.join(defined[:5])}. Pass other data."
            )
        return table

    def head(self) -> Head:
        return Head(labels=("LABEL_0",), has_names=False, problem_type="regression")

    def loss(self, training: TrainingConfig) -> keras.losses.Loss:
        """The squared error."""
        return keras.losses.MeanSquaredError()

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("pearson", "spearmanr", "mse", "loss")

    def _metrics(self, outputs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        return regression_metrics(outputs.reshape(len(labels)), labels.astype(np.float64))

    def judged(self, outputs: np.ndarray, labels: np.ndarray) -> Judged:
        """Wrongness is the absolute error."""
        scores = np.asarray(outputs, np.float64).reshape(len(labels))
        return Judged(
            wrongness=np.abs(scores - labels),
            labels=[f"{value:.4g}" for value in labels],
            predictions=[f"{value:.4g}" for value in scores],
            facts={},
        )

    def columns(self) -> list[str]:
        return ["score"]

    def rows(self, outputs: np.ndarray) -> Iterator[list[str | float]]:
        return ([score] for score in outputs[:, 0])

    def objects(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        return ({"score": rounded(score)} for score in outputs[:, 0])

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": outputs, "score": outputs[:, 0]}

    def card(self, takes: str) -> list[str]:
        return [f"BERT that scores {takes}."]
