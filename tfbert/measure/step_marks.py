"""Operations that do nothing but appear in a profile at a known point of a step: see benchmarks/profile_split.py."""

from __future__ import annotations

import tensorflow as tf

from tfbert.measure.host_clock import read_clock

ROWS, GRADIENTS, REDUCED, UPDATED = "mark_rows", "mark_gradients", "mark_reduced", "mark_updated"
"""Names of the operations, in their order."""
FORWARD_BACKWARD, ALL_REDUCE, UPDATE = "forward_backward", "all_reduce", "update"
"""Name scopes, which GPU kernels carry."""


def mark(name: str, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Adds an operation between these tensors and what is made of the ones that are returned.

    For CPUs only: on a GPU the host would wait for the tensors, where otherwise kernels follow each other without it.

    Args:
        name: What the profile calls it.
        tensors: Tensors of the graph that is being traced.

    Returns:
        The same values. Whatever takes the tensors themselves may run before the operation.
    """
    # When TensorFlow inlines a call, control dependencies on the call are lost: depend on the values themselves.
    held = tf.identity_n(tensors) if len(tensors) > 1 else tensors
    with tf.control_dependencies(held):
        clock = read_clock(name)
    with tf.control_dependencies([clock]):
        return [tf.identity(tensor) for tensor in held]
