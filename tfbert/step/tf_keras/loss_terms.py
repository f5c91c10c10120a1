"""The terms of a loss made of tf_keras's losses and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.step.own_loss import OwnLoss
from tfbert.step.terms import Terms

Loss = keras.losses.Loss | Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class LossTerms(Terms):
    """See `Terms`."""

    def _loss_of(self, identifier: Any) -> Loss:
        return keras.losses.get(identifier)

    def _values_of(self, loss: Loss, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        if labels.dtype.is_floating and predictions.dtype.is_floating:
            labels = tf.cast(labels, predictions.dtype)
        return loss.call(labels, predictions) if isinstance(loss, keras.losses.Loss) else loss(labels, predictions)

    def _total_of(self, names: list[str], coefficients: list[float]) -> keras.metrics.Metric:
        return _Total(names, coefficients)


class OwnLossTerms(OwnLoss, LossTerms):
    """See `OwnLoss`."""

    compiled_loss = "compiled_loss"


class _Means:
    """Means that Keras does not track: they are not weights to save and load."""

    def __init__(self, names: list[str]):
        self.parts = [keras.metrics.Mean(name=name) for name in names]


@keras.saving.register_keras_serializable("tfbert")  # So that a saved FineTuner finds it.
class _Total(keras.metrics.Metric):
    """The weighted sum of means.

    Args:
        names: Names of the means.
        coefficients: What to multiply each mean by.
        name: The metric's own name.
        dtype: As Keras passes it.
    """

    def __init__(self, names: list[str], coefficients: list[float], name: str = "loss", dtype: Any = None):
        super().__init__(name=name, dtype=dtype)
        self.means = _Means(names)
        self._coefficients = list(coefficients)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {"names": [part.name for part in self.means.parts], "coefficients": list(self._coefficients)}
        return super().get_config() | own

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
    outputs = getattr(model, "output", None)
    return sorted(outputs) if isinstance(outputs, Mapping) else getattr(model, "output_names", None)
