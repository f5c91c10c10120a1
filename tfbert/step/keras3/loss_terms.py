"""The terms of a loss made of Keras 3's losses and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfbert.step.keras3.private import loss_of, outputs_of
from tfbert.step.own_loss import OwnLoss
from tfbert.step.terms import Terms


class LossTerms(Terms):
    """See `Terms`."""

    usable: Callable[[Any], Any]
    """What a loss can read of labels."""

    def rows(self, labels: Any, sample_weight: Any) -> dict[str, Any]:
        """As `Terms.rows`."""
        return super().rows(self.usable(labels), sample_weight)

    def _loss_of(self, identifier: Any) -> Any:
        # Which loss a name is may depend on the shapes of what it compares.
        return identifier

    def _values_of(self, loss: Any, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        made = loss_of(loss, labels, predictions)
        # As Loss.__call__ does.
        labels, predictions = (keras.ops.convert_to_tensor(each, dtype=made.dtype) for each in (labels, predictions))
        return made.call(labels, predictions)

    def _is_given_axis(self, predictions: tf.Tensor) -> bool:
        return predictions.shape[-1] == 1

    def _total_of(self, names: list[str], coefficients: list[float]) -> keras.metrics.Metric:
        return _Total(names, coefficients)


class OwnLossTerms(OwnLoss, LossTerms):
    """See `OwnLoss`."""

    compiled_loss = "_compile_loss"


class _Means:
    """Means that Keras does not track: they are not weights to save and load."""

    def __init__(self, names: list[str]):
        self.parts = [keras.metrics.Mean(name=name) for name in names]


class _Total(keras.metrics.Metric):
    """The weighted sum of means.

    Args:
        names: Names of the means.
        coefficients: What to multiply each mean by.
    """

    def __init__(self, names: list[str], coefficients: list[float]):
        super().__init__(name="loss")
        self.means = _Means(names)
        self._coefficients = coefficients

    def update_state(self) -> None:
        """Nothing: the parts are updated."""

    def result(self) -> tf.Tensor:
        """float32 `[]`."""
        return tf.add_n([c * part.result() for c, part in zip(self._coefficients, self.means.parts, strict=True)])

    def reset_state(self) -> None:
        """Resets the parts too."""
        for part in self.means.parts:
            part.reset_state()


def output_names(model: keras.Model) -> list[str] | None:
    """Names of a functional model's outputs, by its dictionary or its layers; None for any other model."""
    outputs = outputs_of(model)
    return sorted(outputs) if isinstance(outputs, Mapping) else getattr(model, "output_names", None)
