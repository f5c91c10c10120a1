"""Gradient checkpointing (Chen et al. 2016): the backward pass recomputes each encoder layer from its input.

Between the passes only the layers' inputs are kept, not what their parts computed.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfbert.step.noise import same_noise


def recomputed(compute: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """The same function of tensors, computed again when its gradient is needed.

    The gradients are those of the plain pass: recomputation draws the same dropout noise. Where noise is not keyed, as
    outside `FineTuner`, that is impossible, and the function is returned unchanged.

    Args:
        compute: Computes an encoder layer's output.
    """
    noise = same_noise()
    if noise is None:
        return compute

    @tf.recompute_grad
    def again(*tensors: tf.Tensor) -> tf.Tensor:
        with noise():
            return compute(*tensors)

    return again
