"""A model's own `compute_loss` with one value per row, as the loss of a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfbert.step import values as checked
from tfbert.step.terms import Terms


class OwnLoss(Terms):
    """The mean over all rows of the global batch of what a model's `compute_loss(x, y, y_pred, sample_weight)` returns.

    As in plain Keras, weights and what layers add to the loss (`self.losses`) are its own business: all rows count.

    Args:
        model: The wrapped model, whose compiled loss its `compute_loss` cannot have: FineTuner is compiled.
    """

    takes_all = True
    compiled_loss: str
    """The model's attribute by which its `compute_loss` would ask for the compiled loss."""

    def __init__(self, model: Any):
        super().__init__(model.compute_loss)
        self._model = model

    def described(self) -> str:
        """As an error names it."""
        return f"compute_loss of {type(self._model).__name__}"

    def rows(self, labels: Any, sample_weight: Any) -> dict[str, Any]:
        """What `sums` needs of each row besides its inputs."""
        given = {"labels": labels, "sample_weight": sample_weight}
        return {name: value for name, value in given.items() if value is not None}

    def weights(self, sample_weight: Any, num_rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """1 for each row."""
        return super().weights(None, num_rows)

    def masked(self, weights: dict[str, tf.Tensor], predictions: Any) -> dict[str, tf.Tensor]:
        """As they are."""
        return weights

    def values(
        self, rows: dict[str, Any], predictions: Any, weights: dict[str, tf.Tensor], inputs: Any
    ) -> list[tf.Tensor]:
        """What the model returns for each row: float32 `[rows]`."""
        with _without(self._model, self.compiled_loss):
            values = self._model.compute_loss(inputs, rows.get("labels"), predictions, rows.get("sample_weight"))
        (weights,) = weights.values()
        name = self.described()
        checked.check_loss_values(values, weights, loss=name, mask=None)
        values = checked.one_for_each(tf.cast(values, tf.float32), weights, name)
        values = tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))
        return [tf.where(weights != 0, values, 0.0)]


@contextlib.contextmanager
def _without(model: Any, name: str) -> Iterator[None]:
    """While active, `super().compute_loss` and the compiled loss say what to write instead."""

    def refuse(*args: Any, **options: Any) -> None:
        raise _compiled_loss_in(model)

    before = getattr(model, name)
    object.__setattr__(model, name, refuse)
    try:
        yield
    finally:
        object.__setattr__(model, name, before)


def _compiled_loss_in(model: Any) -> ValueError:
    """For a `compute_loss` that wants the loss of `compile`, which is a mean already."""
    return ValueError(
        "compute_loss must return one value per row, and the compiled loss is one number. "
        f"Received: compute_loss of {type(model).__name__}, which calls super().compute_loss or self.compiled_loss. "
        "Call a function such as keras.losses.sparse_categorical_crossentropy there: it has a value per row."
    )
