"""The time, read inside a graph."""

from __future__ import annotations

import time

import tensorflow as tf

from tfbert.private import is_op_determinism_enabled

OPERATIONS = ("Timestamp", "PyFunc")
"""The types of the operations that read the time, as a profile calls them."""


def read_clock(name: str | None = None) -> tf.Tensor:
    """Seconds since 1970 when the operation ran, float64 `[]`.

    Args:
        name: Name of the operation.
    """
    if is_op_determinism_enabled():  # TensorFlow's own operation fails then, although no result depends on the time.
        return tf.ensure_shape(tf.numpy_function(time.time, [], tf.float64, name=name), [])
    return tf.timestamp(name=name)
