"""Regression: a score for each text or pair of texts."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tfbert.data.files import RawTable
from tfbert.errors import UsageError
from tfbert.model.head import Head, sequence_head
from tfbert.tasks.base import ErrorAnalysis, rounded
from tfbert.tasks.classes import is_number, quoted
from tfbert.tasks.losses import HeadStart, base_rate
from tfbert.tasks.metrics import regression_metrics
from tfbert.tasks.text_task import TextExamples, error_analysis_of_texts, takes
from tfbert.tasks.texts.source import OneLabelTask

if TYPE_CHECKING:
    import tensorflow as tf

    from tfbert.batches.pipeline import EncodedExamples
    from tfbert.config.tasks import TaskOptions
    from tfbert.config.training import TrainingConfig
    from tfbert.model.configuration import BertConfig

_LABEL = "LABEL_0"


@dataclasses.dataclass(frozen=True)
class Regression(OneLabelTask):
    """See `Task`. Labels are float32 scores, outputs `[n, 1]`.

    Metrics: `pearson` and `spearmanr`, which are 0 if predictions or labels are constant and they are undefined; `mse`;
    and `loss`, which equals `mse`.
    """

    name = "regression"
    pipeline_tag = "text-classification"
    default_metric = "pearson"

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Regression:
        """The task of a saved model."""
        return cls()

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

    def with_model_labels(self, table: RawTable, notes: list[str], *, are_given: bool) -> RawTable:
        if table.label_names:
            raise UsageError(
                "A regression model is evaluated on scores. "
                f"Received: {table.name} with the classes {', '.join(table.label_names[:5])}. Pass other data."
            )
        return table

    def head(self) -> Head:
        return sequence_head((_LABEL,), has_names=False, problem_type="regression")

    def head_start(self, encoded: EncodedExamples, training: TrainingConfig) -> HeadStart:
        """The mean of the targets; and new weights as large as their spread, which updates of a fixed size would take
        too long to reach."""
        mean, spread = base_rate(encoded.labels, "regression"), float(np.std(encoded.labels, dtype=np.float64))
        words = f"the mean of the targets, {mean[0]:.4g}, and their standard deviation, {spread:.4g}"
        return HeadStart(bias=mean, scale=spread or 1.0, words=words)

    def loss(self, training: TrainingConfig) -> keras.losses.Loss:
        """The squared error."""
        return keras.losses.MeanSquaredError()

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("pearson", "spearmanr", "mse", "loss")

    def _metrics(self, predictions: np.ndarray, examples: TextExamples) -> dict[str, float]:
        scores = predictions.astype(np.float64).reshape(len(examples))
        return regression_metrics(scores, examples.labels.astype(np.float64))

    def error_analysis(self, predictions: np.ndarray, examples: TextExamples) -> ErrorAnalysis:
        """The absolute errors."""
        labels = examples.labels
        scores = np.asarray(predictions, np.float64).reshape(len(labels))
        written = ([f"{value:.4g}" for value in column] for column in (labels, scores))
        return error_analysis_of_texts(examples, np.abs(scores - labels), "error", *written, {})

    def columns(self) -> list[str]:
        return ["score"]

    def cells(self, record: dict[str, Any]) -> list[Any]:
        return [record["score"]]

    def records(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        return ({"score": score} for score in outputs[:, 0])

    def entries(self, outputs: np.ndarray, most: int | None) -> Iterator[list[dict[str, Any]]]:
        """The score under the name of the only output, as in transformers."""
        return ([{"label": _LABEL, "score": rounded(score)}] for score in outputs[:, 0])

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": outputs, "score": outputs[:, 0]}

    def card(self, num_texts: int) -> str:
        return f"scores {takes(num_texts)}"
