"""Gradient checkpointing (Chen et al. 2016): the backward pass recomputes each encoder layer from its input.

Between the passes only the layers' inputs are kept, not what their parts computed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    import tf_keras as keras

_DROPOUT = {"tf_keras": "tfbert.step.dropout", "keras": "tfbert.step.keras3.dropout"}
"""Where the noise of layers of each Keras is."""


def recomputed(compute: Callable[..., tf.Tensor], layer: keras.layers.Layer) -> Callable[..., tf.Tensor]:
    """The same function of tensors, computed again when its gradient is needed.

    The gradients are those of the plain pass: recomputation draws the same dropout noise. Where noise is not keyed, as
    outside `FineTuner`, that is impossible, and the function is returned unchanged.

    Args:
        compute: Computes an encoder layer's output.
        layer: The layer whose dropout `compute` uses.
    """
    noise = _same_noise(layer)
    if noise is None:
        return compute

    @tf.recompute_grad
    def again(*tensors: tf.Tensor) -> tf.Tensor:
        with noise():
            return compute(*tensors)

    return again


def _same_noise(layer: keras.layers.Layer) -> Callable[[], contextlib.AbstractContextManager[None]] | None:
    roots = {each.__module__.split(".")[0] for each in type(layer).__mro__}
    (module,) = (module for root, module in _DROPOUT.items() if root in roots)
    return importlib.import_module(module).same_noise(layer)
