"""Rows that are given to `fit` and its like as arrays, lists or tables, where Keras 3 would take them for others, or
answer in many lines. Data sets and generators are not looked into."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from tfbert.step.keras3.labelled import Labelled

_LOSS, _FUNCTION = keras.losses.SparseCategoricalCrossentropy, keras.losses.sparse_categorical_crossentropy


def check_rows(given: dict[str, Any], model: keras.Model | None, loss: Any) -> None:
    """Raises ValueError for rows that cannot be what they are given as.

    Args:
        given: Arguments of a method such as `fit`, by name.
        model: The model that takes them; None where that is not known.
        loss: What `compile` was given.
    """
    tokenizes = getattr(getattr(model, "preprocessor", None), "tokenizer", None) is not None
    for name, inputs, labels in _rows(given):
        if tokenizes:
            _check_texts(name, inputs)
        elif isinstance(model, Labelled):
            _check_ids(name, inputs, model)
        if not _is_column(labels):
            continue
        several = list(inputs.values()) if isinstance(inputs, dict) else inputs
        is_several = isinstance(several, (list, tuple)) and not _is_column(several)
        for column in filter(_is_column, several if is_several else (inputs,)):
            if len(column) != len(labels):
                raise ValueError(
                    f"Each row has its label. Received: {len(column):,} rows and {len(labels):,} labels in {name}. "
                    "Pass as many of one as of the other."
                )
        if _is_sparse(loss):
            _check_classes(
                name,
                labels,
                getattr(model, "num_classes", None),
                getattr(loss, "ignore_class", None),
                isinstance(model, Labelled) and model.IGNORES,
            )


def _rows(given: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Inputs and labels, each time with the arguments that have them."""
    yield "x, y", given.get("x"), given.get("y")
    validation = given.get("validation_data")
    if isinstance(validation, (tuple, list)) and len(validation) > 1:
        yield "validation_data", validation[0], validation[1]


def _is_column(values: Any) -> bool:
    """A list, an array, a tensor or a column of a table. A list of such is several inputs or outputs."""
    if isinstance(values, list):
        return bool(values) and (isinstance(values[0], (str, bytes)) or not hasattr(values[0], "__len__"))
    return hasattr(values, "__array__") and len(np.shape(values)) > 0 and not hasattr(values, "columns")


def _is_sparse(loss: Any) -> bool:
    """Whether the one loss takes the numbers of classes."""
    names = (_LOSS.__name__, _FUNCTION.__name__)
    return isinstance(loss, _LOSS) or loss is _FUNCTION or (isinstance(loss, str) and loss in names)


def _check_texts(name: str, inputs: Any) -> None:
    if isinstance(inputs, (str, bytes)):
        raise ValueError(f"Texts are rows. Received: {inputs!r:.60} as {name}, a single text. Pass a list of it.")
    for column in inputs if isinstance(inputs, tuple) else (inputs,):
        if hasattr(column, "columns"):
            columns = ", ".join(map(str, column.columns))
            raise ValueError(
                "Texts are a column, pairs a tuple of two. "
                f"Received: a table with the columns {columns} in {name}. Pass one of its columns."
            )
        if not _is_column(column) or (isinstance(column, np.ndarray) and column.dtype.kind in "US"):
            continue
        for row, value in enumerate(column):
            if value is None or isinstance(value, float):
                raise ValueError(
                    f"Every row needs a text. Received: {value} in {name}, row {row + 1} of {len(column):,}. "
                    "Drop it, or put a text in its place."
                )


def _check_ids(name: str, inputs: Any, model: Any) -> None:
    for column in inputs.values() if isinstance(inputs, dict) else [inputs]:
        if isinstance(column, (str, bytes)) or (_is_column(column) and np.asarray(column).dtype.kind in "USO"):
            raise ValueError(
                f"The model takes ids of tokens. Received: texts, or other things that are no numbers, in {name}. "
                'Tokenize them first: dict(tokenizer(texts, padding=True, return_tensors="np")).'
            )
    ids = inputs.get("input_ids") if isinstance(inputs, dict) else inputs
    if not isinstance(ids, np.ndarray) or not ids.size:
        return
    size, most = model.config.vocab_size, model.config.num_positions
    if not 0 <= ids.min() <= ids.max() < size:
        raise ValueError(
            f"Ids of tokens are 0 to {size - 1}, the vocabulary of the model. Received: {ids.min()} to {ids.max()} in "
            f"{name}. Tokenize with the model's own tokenizer."
        )
    if ids.ndim > 1 and ids.shape[-1] > most and not (isinstance(inputs, dict) and "position_ids" in inputs):
        raise ValueError(
            f"A row has at most {most:,} tokens, the positions of the model. Received: {ids.shape[-1]:,} in {name}. "
            f"Cut them: tokenizer(..., truncation=True, max_length={most})."
        )


def _check_classes(name: str, labels: Any, num_classes: int | None, ignored: int | None, ignores: bool) -> None:
    values = np.asarray(labels).ravel()
    is_bad = np.zeros(len(values), bool)
    if values.dtype.kind in "USO":
        is_bad = np.array([not isinstance(value, numbers.Real) for value in values])
    if not is_bad.any():
        classes = values.astype(np.float64)
        is_bad = ~(classes >= 0) | (classes != np.floor(classes))
        if num_classes is not None:
            is_bad |= classes >= num_classes
        if ignored is not None:
            is_bad &= classes != ignored
        if ignores:
            is_bad &= classes >= 0
    if not is_bad.any():
        return
    most = f" to {num_classes - 1}" if num_classes is not None else " on"
    wrong = values[np.argmax(is_bad)]
    raise ValueError(
        f"This loss takes the numbers of classes, from 0{most}. Received: {wrong!r} among the labels in {name}. "
        "Number them, or pass another loss."
    )
