"""What workers must share that call `fit`, `evaluate` or `predict` of a FineTuner: all but what is named here."""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.devices.workers import check_same, checksum, versions_of

_MAY_DIFFER = {"callbacks", "verbose", "workers", "use_multiprocessing", "max_queue_size", "return_dict"}
"""Arguments of these methods that change nothing that is computed with other workers."""
_OF_THE_PROCESS = {"seed", "code", "function", "_name_or_path", "transformers_version"}
"""What configurations hold that differs though a layer is the same: FineTuner's seed decides the noise, the first
weights are the chief's, and compiled code has the name of its file."""
_WAY_OUT = "Give all workers the same program, options and data; only callbacks and verbose may differ"
_MOST_BYTES = 2**28
_SHORT = 50


def check_same_call(tuner: Any, keras: ModuleType, name: str, given: Mapping[str, Any]) -> None:
    """Refuses workers that call a method with another model, other options or other data.

    Args:
        tuner: A `FineTuner`.
        keras: The Keras of its model.
        name: The method.
        given: Its arguments, with those of `compile` and of the tuner's constructor.

    Raises:
        UsageError: on all workers alike.
    """
    if given.get("_use_cached_eval_dataset"):  # `fit` evaluates, whose workers have been compared.
        return
    check_same(
        lambda: {
            "method": name,
            **versions_of(keras.__name__),
            "precision": described(tuner.dtype_policy),
            "model": described(tuner.model),
            "variables": _variables(tuner.model),
            **{argument: described(value) for argument, value in given.items() if argument not in _MAY_DIFFER},
        },
        tuner.distribute_strategy,
        way_out=_WAY_OUT,
    )


def check_same_start(state: Callable[[], tuple[list[Any], Any]], strategy: tf.distribute.Strategy) -> None:
    """Refuses workers that have restored different states, or only some of them one.

    Args:
        state: Gives the trained variables, and the number of steps made, `[]`.
        strategy: Each of its workers must call this function.

    Raises:
        UsageError: on all workers alike.
    """

    def facts() -> dict[str, str]:
        values, steps = state()
        arrays = [tf.convert_to_tensor(value).numpy() for value in values]
        # Rounded: once trained, the last bits are those of each worker's processor.
        total = sum(float(np.abs(array).sum(dtype=np.float64)) for array in arrays)
        return {"steps": str(tf.convert_to_tensor(steps).numpy()), "sum of the weights": f"{total:.8g}"}

    check_same(
        facts,
        strategy,
        rule="Workers must begin with the same weights after the same number of steps",
        way_out="Restore from a directory that all of them can read, or from none",
    )


def _variables(model: Any) -> list[str]:
    variables = model.trainable_variables if model.built else []
    return [f"{tf.as_dtype(variable.dtype).name}{list(variable.shape)}" for variable in variables]


def described(value: Any) -> Any:
    """What tells an object of Keras, an array or a data set from another, as JSON holds it; alike on all machines."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):  # Names are numbered in each process by itself.
        is_path = os.sep in value and pathlib.Path(value).exists()
        return "a path" if is_path else re.sub(r"_\d+\b| at 0x[0-9a-f]+", "", value)
    if isinstance(value, Mapping):
        return {str(key): described(each) for key, each in value.items() if key not in _OF_THE_PROCESS}
    if isinstance(value, (list, tuple)):
        is_long = len(value) > _SHORT and isinstance(value[0], (str, bool, int, float))
        return f"{len(value)}, {checksum(json.dumps(value, default=str))}" if is_long else [*map(described, value)]
    if isinstance(value, (np.ndarray, tf.Tensor)) or hasattr(value, "to_numpy"):
        array = np.asarray(value)
        return f"{array.dtype}{list(array.shape)}, {checksum(array[:: 1 + array.nbytes // _MOST_BYTES])}"
    if isinstance(value, tf.data.Dataset):
        if value.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF:
            return "a data set of each worker's own"
        return {"rows": str(value.element_spec), "batches": int(value.cardinality())}
    if hasattr(value, "get_config") and not isinstance(value, type):
        return {"class": type(value).__name__, "config": _configuration(value)}
    return getattr(value, "__qualname__", type(value).__qualname__)


def _configuration(value: Any) -> Any:
    try:
        return described(value.get_config())
    except Exception:  # A user's own class may have none, which only saving would need.
        return None
