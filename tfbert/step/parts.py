"""What differs between two Kerases: all that the step, its losses and its refusals ask of that of a model."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol

import tensorflow as tf


class KerasParts(Protocol):
    """One Keras. The folder of each has a class of its own; what both have alike, or only one of them, stands here.

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
    """

    keras: ModuleType
    libraries: frozenset[str]
    of_steps: frozenset[str]
    of_optimizers: tuple[str, ...]
    of_losses: tuple[str, ...]
    other: str
    means: tuple[str | None, ...]
    converts: bool
    compiled_loss: str
    normalization: type
    averages: tuple[str, ...]
    refuses_draws: bool
    Total: type

    # Models.

    def wrap(self, tuner: Any) -> None:
        """Completes a `FineTuner` around its model."""

    def needs_scope(self, here: tf.distribute.Strategy, there: tf.distribute.Strategy) -> bool:
        """Whether a model must be created in the scope of the one of two strategies in which it is wrapped."""
        return max(here.num_replicas_in_sync, there.num_replicas_in_sync) > 1

    def outputs_of(self, model: Any) -> Any:
        """The symbolic outputs of a functional model in their structure; None for any other model."""

    def value_of(self, variable: Any) -> tf.Variable:
        """What TensorFlow knows one of Keras's variables as."""

    def settled(self, model: Any, averages: list[tf.Variable]) -> list[tf.Variable]:
        """What a model's layers change in the forward pass, and is taken back where a step is skipped."""
        return averages

    def keyed(self, model: Any, num_parts: int) -> Any:
        """Takes over the randomness of a model's layers; `keyed(key, rows)` of it is as `Noise.keyed`.

        Args:
            model: A built model.
            num_parts: Micro-batches of a global batch, on all replicas.
        """

    # Files.

    def serialized(self, model: Any) -> dict[str, Any]:
        """A model's configuration."""
        return self.keras.saving.serialize_keras_object(model)

    def check_saved(self, forward: Any) -> None:
        """Raises NotImplementedError for a `forward` that no name leads to."""

    def deserialized(self, config: Any, custom_objects: dict[str, Any] | None) -> Any:
        """What a configuration was made of."""
        return self.keras.saving.deserialize_keras_object(config, custom_objects=custom_objects)

    # Losses.

    def loss_of(self, identifier: Any) -> Any:
        """The loss that Keras means by a name, a function or an object."""

    def loss_values(self, loss: Any, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """What a loss returns for rows of labels and predictions."""

    def gives_axis(self, predictions: tf.Tensor) -> bool:
        """Whether Keras makes labels `[rows]` into `[rows, 1]` beside predictions of two dimensions."""
        return True

    # Optimizers.

    def num_updates(self, optimizer: Any) -> tf.Tensor:
        """Steps made before this one, int64 `[]`."""

    def scaled(self, optimizer: Any, loss: tf.Tensor) -> tf.Tensor:
        """The loss times the optimizer's loss scale."""

    def scale_of(self, optimizer: Any) -> Any:
        """What `scaled` multiplies by, a number or a tensor; None for nothing."""

    def apply(
        self, optimizer: Any, grads: list[tf.Tensor], variables: list[Any], factor: tf.Tensor, is_finite: tf.Tensor
    ) -> None:
        """One update with `gradient x factor`, or none if the gradients are not finite; `iterations` counts either.

        Call it in a replica context, with values that are equal on all replicas.

        Args:
            optimizer: Any of this Keras, built for these variables, and perhaps others.
            grads: float32, summed over replicas.
            variables: What to update.
            factor: float32 `[]`, which takes the loss scale back and clips.
            is_finite: bool `[]`.
        """

    # Refusals of one Keras alone.

    def check_model(self, model: Any) -> None:
        """Raises ValueError for a model that this Keras cannot train here."""

    def check_optimizer(self, optimizer: Any, strategy: tf.distribute.Strategy) -> None:
        """Raises ValueError for an optimizer whose updates would not be those of the global batch."""
