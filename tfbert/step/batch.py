"""A batch as `fit` gets it: what can be cut into micro-batches, and which rows of the global batch it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfbert.step.noise import Rows


def check_data(data: Any, *, xla: bool = False) -> None:
    """Raises ValueError for a batch that cannot be cut into micro-batches, or that XLA does not take."""
    for tensor in tf.nest.flatten(data):
        if xla and getattr(tensor, "dtype", None) == tf.string:
            raise ValueError(
                "XLA compiles numbers only. Received: a batch with texts, and FineTuner(jit_compile=True). "
                "Leave out jit_compile, or turn texts into numbers in the data set."
            )
        if isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor)):
            raise ValueError(
                f"FineTuner cuts batches of dense tensors. Received: a {type(tensor).__name__}. "
                "Make it dense in the data set: tensor.to_tensor(), or tf.sparse.to_dense(tensor)."
            )


def no_labels(inputs: Any) -> ValueError:
    """For a batch of inputs alone."""
    among = f", with {', '.join(sorted(inputs))}" if isinstance(inputs, Mapping) else ""
    return ValueError(
        f"FineTuner needs labels for its loss. Received: inputs alone{among}. "
        "Let the data set give pairs, (inputs, labels), or pass y."
    )


def num_rows_of(tensors: Any) -> tf.Tensor:
    """Rows of the first of some tensors, int32 `[]`."""
    return tf.shape(next(tensor for tensor in tf.nest.flatten(tensors) if tensor is not None))[0]


def rows_of(inputs: Any, rows: Any, weights: Any, first_row: tf.Tensor, micro_batch: tf.Tensor) -> Rows:
    """Which rows of the global batch a micro-batch holds, for its noise.

    Packed inputs have a different number of rows than labels: only the place of the micro-batch is known then.
    """
    num_rows = num_rows_of(weights)
    known = {tensor.shape[0] for tensor in tf.nest.flatten((inputs, rows))} - {None}
    count = num_rows if not known else known.pop() if len(known) == 1 else 1
    return Rows(first_row + tf.cast(micro_batch * num_rows, tf.int64), count)
