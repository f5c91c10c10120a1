"""A batch as `fit` gets it: inputs, labels and weights, wherever its data set puts the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.step import refusals
from tfbert.step.dropout import Rows


def unpack(data: Any, model: keras.Model, *, needs_labels: bool = True, xla: bool = False) -> tuple[Any, Any, Any]:
    """Inputs, labels and sample weights, each None where there are none.

    Hugging Face's models may get their labels among the inputs, as their own `train_step` allows: under the names of
    the model's arguments. They are taken out, and named as the outputs are where there are several.

    Raises:
        ValueError: for a batch without labels, or one that cannot be cut into micro-batches.
    """
    refusals.check_data(data, xla=xla)
    inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    if labels is None and isinstance(inputs, Mapping) and hasattr(model, "get_label_to_output_name_mapping"):
        from transformers.utils import find_labels

        names = [name for name in find_labels(type(model)) if name in inputs]
        to_output = model.get_label_to_output_name_mapping()
        found = {to_output.get(name, name): inputs[name] for name in names}
        labels = next(iter(found.values())) if len(found) == 1 else found or None
        inputs = {name: value for name, value in inputs.items() if name not in names}
    if needs_labels and labels is None:
        raise refusals.no_labels(inputs)
    return inputs, labels, sample_weight


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
