"""A model's own `compute_loss` with one value per row, as the loss of a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.step import refusals
from tfbert.step.terms import LossTerms


class OwnLoss(LossTerms):
    """The mean over all rows of the global batch of what a model's `compute_loss(x, y, y_pred, sample_weight)` returns.

    As in plain Keras, weights and what layers add to the loss (`self.losses`) are its own business: all rows count.

    Args:
        model: The wrapped model, whose compiled loss its `compute_loss` cannot have: FineTuner is compiled.
    """

    def __init__(self, model: keras.Model):
        super().__init__(model.compute_loss)
        self._model = model

    def rows(self, labels: Any, sample_weight: Any) -> dict[str, Any]:
        """What `sums` needs of each row besides its inputs."""
        given = {"labels": labels, "sample_weight": sample_weight}
        return {name: value for name, value in given.items() if value is not None}

    def weights(self, sample_weight: Any, num_rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """1 for each row."""
        return super().weights(None, num_rows)

    def sums(
        self, rows: dict[str, Any], predictions: Any, weights: dict[str, tf.Tensor], added: list[tf.Tensor], inputs: Any
    ) -> tf.Tensor:
        """The sum over rows, and nothing for what the model adds."""
        with _without_compiled_loss(self._model):
            values = self._model.compute_loss(inputs, rows.get("labels"), predictions, rows.get("sample_weight"))
        (weights,) = weights.values()
        name = f"compute_loss of {type(self._model).__name__}"
        refusals.check_loss_values(values, weights, loss=name, mask=None)
        values = refusals.one_for_each(tf.cast(values, tf.float32), weights, name)
        values = tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))
        return tf.stack([tf.reduce_sum(tf.where(weights != 0, values, 0.0)), 0.0])


@contextlib.contextmanager
def _without_compiled_loss(model: keras.Model) -> Iterator[None]:
    """While active, `super().compute_loss` and `self.compiled_loss` say what to write instead."""

    def refuse(*args: Any, **options: Any) -> None:
        raise refusals.compiled_loss_in(model)

    before = model.compiled_loss
    object.__setattr__(model, "compiled_loss", refuse)
    try:
        yield
    finally:
        object.__setattr__(model, "compiled_loss", before)
