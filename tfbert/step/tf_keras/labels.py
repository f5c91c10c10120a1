"""Inputs, labels and weights of tf_keras's batches, wherever a data set puts the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tf_keras as keras

from tfbert.step import batch


def unpack(data: Any, model: keras.Model, *, needs_labels: bool = True, xla: bool = False) -> tuple[Any, Any, Any]:
    """Inputs, labels and sample weights, each None where there are none.

    Hugging Face's models may get their labels among the inputs, as their own `train_step` allows: under the names of
    the model's arguments. They are taken out, and named as the outputs are where there are several.

    Raises:
        ValueError: for a batch without labels, or one that cannot be cut into micro-batches.
    """
    batch.check_data(data, xla=xla)
    inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    if labels is None and isinstance(inputs, Mapping) and hasattr(model, "get_label_to_output_name_mapping"):
        from transformers.utils import find_labels

        names = [name for name in find_labels(type(model)) if name in inputs]
        to_output = model.get_label_to_output_name_mapping()
        found = {to_output.get(name, name): inputs[name] for name in names}
        labels = next(iter(found.values())) if len(found) == 1 else found or None
        inputs = {name: value for name, value in inputs.items() if name not in names}
    if needs_labels and labels is None:
        raise batch.no_labels(inputs)
    return inputs, labels, sample_weight
