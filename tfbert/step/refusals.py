"""What `FineTuner` does not accept from Keras, or warns of, each with a line that says what to do instead."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.private import layers_of

_MEANS = (keras.losses.Reduction.AUTO, keras.losses.Reduction.SUM_OVER_BATCH_SIZE, keras.losses.Reduction.NONE)


def check_model(model: Any) -> None:
    """Raises ValueError for anything but a tf_keras model."""
    if not isinstance(model, keras.Model):
        raise _keras3_error("model", model) or ValueError(
            f"FineTuner wraps a tf_keras.Model. Received: model={model!r}. Build it with `import tf_keras`."
        )


def check_compile(given: dict[str, Any]) -> None:
    """Raises ValueError for arguments of `compile` that would be ignored or mean something else.

    Args:
        given: All of them, by name.
    """
    for argument, value in given.items():
        for item in tf.nest.flatten(value):
            if error := _keras3_error(argument, item):
                raise error
    optimizer, loss = given["optimizer"], given["loss"]
    if given["jit_compile"]:
        raise ValueError(
            "XLA compiles the local part of a step only. Received: compile(jit_compile=True). "
            "Pass FineTuner(jit_compile=True)."
        )
    losses = [each for each in tf.nest.flatten(loss) if each is not None]
    if not losses:
        raise ValueError(f"FineTuner needs a loss for an output. Received: loss={loss!r}. Pass a Keras loss.")
    for each in losses:
        if isinstance(each, keras.losses.Loss) and each.reduction not in _MEANS:
            raise ValueError(
                "FineTuner takes the mean over the global batch. "
                f"Received: a loss with reduction={each.reduction!r}. Drop it, and scale the learning rate instead."
            )
    if isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        name = type(optimizer).__name__
        raise ValueError(
            f"FineTuner works with tf_keras's current optimizers. Received: optimizer={name} (legacy). "
            f"Use keras.optimizers.{name}."
        )


def check_layers(model: keras.Model) -> None:
    """Raises ValueError for layers that communicate with other replicas within a micro-batch."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return
    for layer in layers_of(model):
        if getattr(layer, "synchronized", False):  # BatchNormalization, and the older SyncBatchNormalization.
            raise ValueError(
                "A replica computes its micro-batches alone. "
                f"Received: layer {layer.name!r} with synchronized=True on several replicas. "
                "Set synchronized=False."
            )


def warn_of_bfloat16_biases(model: keras.Model) -> None:
    """Warns of layers whose biases get wrong gradients from TensorFlow: in bfloat16 on a CPU, without XLA."""
    if tf.config.get_visible_devices("GPU"):
        return
    for layer in layers_of(model):
        if getattr(layer, "compute_dtype", None) == "bfloat16" and getattr(layer, "use_bias", False):
            warnings.warn(
                "On a CPU, TensorFlow sums the gradient of a bias in bfloat16: the more rows, the more it is off. "
                f"Received: layer {layer.name!r} with bfloat16 and use_bias=True. Train in float32, or with "
                "FineTuner(jit_compile=True); for BERT, pass forward=tfbert.classifier.forward.",
                RuntimeWarning,
                stacklevel=2,
            )
            return


def check_saved_forward(forward: Callable[..., Any] | None) -> None:
    """Raises NotImplementedError, Keras's sign for "no configuration", for a function that no name leads to."""
    if forward is None or (isinstance(forward, types.FunctionType) and "<" not in forward.__qualname__):
        return
    raise NotImplementedError(
        "A function is saved by its name; a lambda, a partial and a method have none. "
        f"Received: forward={forward!r}. Write a function in a module, or save weights: model.save_weights, or "
        "model.model.save_pretrained of a Hugging Face model."
    )


def check_data(data: Any) -> None:
    """Raises ValueError for a batch that cannot be cut into micro-batches."""
    for tensor in tf.nest.flatten(data):
        if isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor)):
            raise ValueError(
                f"FineTuner cuts batches of dense tensors. Received: a {type(tensor).__name__}. "
                "Make it dense in the data set: tensor.to_tensor(), or tf.sparse.to_dense(tensor)."
            )


def check_loss_values(values: tf.Tensor, weights: tf.Tensor, *, loss: Any, mask: tf.Tensor | None) -> None:
    """Raises ValueError for a loss from which no mean over the rows of the global batch can be computed.

    Args:
        values: What the loss returned for a micro-batch.
        weights: `[rows]`, or `[rows, positions]`.
        loss: The loss.
        mask: Keras's mask of the predictions; None for none.
    """
    if values.shape.rank == 0:
        raise ValueError(
            "A loss must return one value per row: the mean over the global batch must not depend on the split. "
            f"Received: {getattr(loss, '__name__', type(loss).__name__)}, which returns one number. "
            "Leave out its mean over the rows: tf.reduce_mean(..., axis=-1) keeps one value per row."
        )
    if values.shape.rank < weights.shape.rank:
        raise ValueError(
            "Each weight must belong to a value of the loss. "
            f"Received: sample_weight of {weights.shape.rank} dimensions and a loss of {values.shape.rank}, "
            f"{getattr(loss, '__name__', type(loss).__name__)}. "
            "Pass one weight per row, or a loss with a value per position."
        )
    if mask is not None and values.shape.rank > weights.shape.rank:
        # Keras takes the mean over the positions that a replica's rows leave unmasked: another mean for each split.
        raise ValueError(
            "A row's loss is the mean over its positions, and sample_weight must say which of them count. "
            "Received: masked positions without a sample_weight for each. "
            "Pass sample_weight of shape [rows, positions], 0 where there is padding."
        )


def _keras3_error(argument: str, value: Any) -> ValueError | None:
    module = getattr(value, "__module__", None) or ""
    if module.split(".")[0] != "keras":
        return None
    name = getattr(value, "__name__", type(value).__name__)
    return ValueError(
        f"FineTuner works with tf_keras (Keras 2) objects. Received: {argument}={name} of Keras 3. "
        "Write `import tf_keras as keras` and use its objects."
    )
