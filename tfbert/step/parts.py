"""What differs between two Kerases: all that the step, its losses and its refusals ask of that of a model."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import tensorflow as tf


class KerasParts:
    """One Keras. The folder of each has a class of its own, which says what it is for; what both have alike, or only
    one of them, stands here.

    Attributes:
        keras: The library.
        libraries: Packages whose own overrides are no user code.
        of_steps: Those of them that may have a step, and a loss, of their own.
        of_optimizers: What comes before `apply_gradients` in plain Keras, where there is no micro-batch and no other
            replica yet.
        of_losses: What plain Keras calls of a `Loss` besides its `call`.
        other: The package of the other Keras.
        means: Reductions of a loss that FineTuner's mean stands for.
        converts: Whether a user's code in `fit` may branch on tensors in Python (AutoGraph); else, tracing takes less.
        compiled_loss: A model's attribute by which its `compute_loss` would ask for the compiled loss.
        normalization: The class of layers that take means over a batch, and may.
        averages: Their attributes that may follow the parts of a batch.
        refuses_draws: Whether layers that draw by themselves are refused where a batch is in several parts.
        Total: A metric, `tfbert.step.terms.Total` of this Keras.
        keyed: Of a built model and the number of micro-batches on all replicas: takes over the randomness of its
            layers; `keyed(key, rows)` of it is as `Noise.keyed`.
    """

    keras: ModuleType

    def wrap(self, tuner: Any) -> None:
        """Completes a `FineTuner` around its model."""

    def settled(self, model: Any, averages: list[tf.Variable]) -> list[tf.Variable]:
        """What a model's layers change in the forward pass, and is taken back where a step is skipped."""
        return averages

    def serialized(self, model: Any) -> dict[str, Any]:
        """A model's configuration."""
        return self.keras.saving.serialize_keras_object(model)

    def check_saved(self, forward: Any) -> None:
        """Raises NotImplementedError for a `forward` that no name leads to."""

    def deserialized(self, config: Any, custom_objects: dict[str, Any] | None) -> Any:
        """What a configuration was made of."""
        return self.keras.saving.deserialize_keras_object(config, custom_objects=custom_objects)

    def gives_axis(self, predictions: tf.Tensor) -> bool:
        """Whether Keras makes labels `[rows]` into `[rows, 1]` beside predictions of two dimensions."""
        return True

    def check_model(self, model: Any) -> None:
        """Raises ValueError for a model that this Keras cannot train here."""
