"""Keras's masks: an attribute of a tensor, which is lost wherever an operation or a function makes a new tensor."""

from __future__ import annotations

import tensorflow as tf


def mask_of(tensor: tf.Tensor) -> tf.Tensor | None:
    """bool, which entries of a layer's output are not padding, as Keras noted it; None for all."""
    return getattr(tensor, "_keras_mask", None)


def with_mask(tensor: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    """The tensor with Keras's note on it, where there is one: Keras's metrics read it."""
    if mask is not None:
        tensor._keras_mask = mask
    return tensor
