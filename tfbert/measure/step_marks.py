"""Operations that do nothing but appear in a profile at a known point of a step: see `step_split`."""

from __future__ import annotations

import tensorflow as tf

from tfbert.measure.host_clock import read_clock

ROWS, GRADIENTS, REDUCED, UPDATED = "mark_rows", "mark_gradients", "mark_reduced", "mark_updated"
"""Names of the operations, in their order."""
FORWARD_BACKWARD, ALL_REDUCE, UPDATE = "forward_backward", "all_reduce", "update"
"""Name scopes, which GPU kernels carry."""


def mark(name: str, after: list[tf.Tensor]) -> None:
    """Adds an operation that runs as soon as these tensors are computed.

    For CPUs only: on a GPU the host would wait for the tensors, where otherwise kernels follow each other without it.

    Args:
        name: What the profile calls it.
        after: Tensors of the graph that is being traced.
    """
    # When TensorFlow inlines a call, control dependencies on the call are lost: depend on the values themselves.
    held = tf.identity_n(after) if len(after) > 1 else after
    with tf.control_dependencies(held):
        read_clock(name)
