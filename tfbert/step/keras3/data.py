"""What `fit`, `evaluate` and `predict` are given, where Keras 3 would not read it as it must be read.

A KerasHub task's preprocessor is mapped over it, as the task's own `fit` does. With several workers, arrays become a
data set here: Keras draws their order on each worker by itself, so that rows would be seen twice, and others never.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbert.private import device_iterators_without_autotune, without_autotune

_BATCH_SIZE = 32
"""Keras's."""
_AT_A_TIME = min(16, os.cpu_count() or 1)
"""Batches that are preprocessed at once, as many as TensorFlow begins with where it may choose."""
_AHEAD = 4
"""Batches that wait for the step."""


def preprocessing_of(model: keras.Model) -> Callable[..., Any] | None:
    """What a KerasHub task does to (inputs, labels, sample_weight); None for any other model, or no preprocessor."""
    is_task = any(each.__module__.split(".")[0] == "keras_hub" for each in type(model).__mro__)
    if is_task and getattr(model, "preprocessor", None) is not None:
        return model.preprocess_samples
    return None


def for_fit(given: dict[str, Any], model: keras.Model, *, seed: int, num_workers: int) -> dict[str, Any]:
    """Arguments of `keras.Model.fit`.

    Args:
        given: Those of the call.
        model: The wrapped model.
        seed: Decides the order of rows that are given as arrays.
        num_workers: Processes that train together.
    """
    preprocess = preprocessing_of(model)
    if preprocess is None and (num_workers == 1 or not _is_arrays(given.get("x"))):
        return given
    given = _split(given)
    batch_size = given.pop("batch_size", None)
    shuffle_seed = seed if given.pop("shuffle", True) else None
    columns = [given.pop(name, None) for name in ("x", "y", "sample_weight")]
    made = {"x": _data_set(columns, batch_size, preprocess, shuffle_seed), "shuffle": False}
    if given.get("validation_data") is not None:
        size = given.pop("validation_batch_size", None) or batch_size
        validation = given["validation_data"]
        columns = [validation, None, None]
        if not isinstance(validation, tf.data.Dataset):
            columns = keras.utils.unpack_x_y_sample_weight(validation)
        made["validation_data"] = _data_set(columns, size, preprocess)
    return given | made


def for_reading(given: dict[str, Any], model: keras.Model) -> dict[str, Any]:
    """Arguments of `keras.Model.evaluate` or `predict`."""
    preprocess = preprocessing_of(model)
    if preprocess is None or given.get("_use_cached_eval_dataset"):  # `fit` has done it.
        return given
    columns = [given.get(name) for name in ("x", "y", "sample_weight")]
    rest = {name: value for name, value in given.items() if name not in ("x", "y", "sample_weight", "batch_size")}
    return rest | {"x": _data_set(columns, given.get("batch_size"), preprocess)}


def for_batch(given: dict[str, Any], model: keras.Model) -> dict[str, Any]:
    """Arguments of `keras.Model.train_on_batch` and its like."""
    preprocess = preprocessing_of(model)
    if preprocess is None:
        return given
    names = ("x", "y", "sample_weight")
    made = keras.utils.unpack_x_y_sample_weight(preprocess(*(given.get(name) for name in names)))
    found = {name: value for name, value in zip(names, made, strict=True) if name in given}
    return given | keras.tree.map_structure(lambda each: None if each is None else tf.convert_to_tensor(each), found)


def _is_arrays(x: Any) -> bool:
    return all(isinstance(each, (np.ndarray, tf.Tensor)) for each in keras.tree.flatten(x))


def _split(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with `validation_split` carried out, as Keras does: the last rows are held out."""
    share = given.pop("validation_split", 0.0)
    if not share or given.get("validation_data") is not None:
        return given
    columns = (given["x"], given.get("y"), given.get("sample_weight"))
    if isinstance(columns[0], tf.data.Dataset):
        raise ValueError(
            "validation_split takes rows of arrays. Received: a tf.data.Dataset. Pass validation_data=data_set."
        )
    first = math.floor(_num_rows(columns[0]) * (1 - share))

    def rows(part: slice) -> list[Any]:
        return [None if each is None else _map_columns(lambda column: column[part], each) for each in columns]

    if not 0 < first < _num_rows(columns[0]):
        raise ValueError(
            "validation_split must leave rows on either side. "
            f"Received: validation_split={share} of {_num_rows(columns[0])} rows. Change it, or pass validation_data."
        )
    kept = dict(zip(("x", "y", "sample_weight"), rows(slice(None, first)), strict=True))
    return given | kept | {"validation_data": tuple(rows(slice(first, None)))}


def _map_columns(function: Callable[[Any], Any], columns: Any) -> Any:
    """As `tf.data.Dataset.from_tensor_slices`, a list is one column."""
    if isinstance(columns, dict):
        return {name: _map_columns(function, each) for name, each in columns.items()}
    if isinstance(columns, tuple):
        return tuple(_map_columns(function, each) for each in columns)
    return function(columns)


def _num_rows(columns: Any) -> int:
    while isinstance(columns, (dict, tuple)):
        columns = next(iter(columns.values() if isinstance(columns, dict) else columns))
    return len(columns)


def _data_set(
    columns: list[Any], batch_size: int | None, preprocess: Callable[..., Any] | None, shuffle_seed: int | None = None
) -> tf.data.Dataset:
    """Batches of columns, or a data set of batches as it is, preprocessed."""
    x, y, sample_weight = columns
    if isinstance(x, tf.data.Dataset):
        given = [
            name
            for name, each in (("y", y), ("sample_weight", sample_weight), ("batch_size", batch_size))
            if each is not None
        ]
        if given:
            raise ValueError(
                "A data set has its labels, weights and batches. "
                f"Received: x=a tf.data.Dataset and {', '.join(given)}. Leave them out."
            )
        batches = x
    elif isinstance(x, (list, tuple, dict, str, np.ndarray, tf.Tensor, tf.RaggedTensor)) or hasattr(x, "__array__"):
        rows = tf.data.Dataset.from_tensor_slices(keras.utils.pack_x_y_sample_weight(x, y, sample_weight))
        if shuffle_seed is not None:
            rows = rows.shuffle(len(rows), seed=shuffle_seed, reshuffle_each_iteration=True)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        batches = rows.batch(batch_size or _BATCH_SIZE).with_options(options)
    else:
        raise ValueError(
            "FineTuner maps a KerasHub task's preprocessor over arrays, lists or a tf.data.Dataset. "
            f"Received: x={type(x).__name__}. Make a data set of it, or set `task.preprocessor = None`."
        )
    if preprocess is not None:
        batches = batches.map(preprocess, num_parallel_calls=_AT_A_TIME)
    device_iterators_without_autotune()
    return without_autotune(batches.prefetch(_AHEAD))
