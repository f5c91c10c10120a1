"""`tf.function` for functions that are defined anew for each model, and without TensorFlow's graph optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def counted_alone(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`tf.function`, for a function that is defined anew for each model.

    TensorFlow warns of a function that is traced too often. It goes by the code, and so takes the first traces of five
    models for five traces of one function; here it counts those of this one.

    Args:
        function: What to trace; None for a decorator with options.
        options: Those of `tf.function`.
    """
    if function is None:
        return functools.partial(counted_alone, **options)
    own = functools.partial(function)  # Has no code, so that it is counted as an object.
    own.__name__, own.__doc__ = function.__name__, function.__doc__
    return tf.function(own, **options)


def as_traced(update: Callable[..., Any], compute_dtype: str) -> Callable[..., Any]:
    """A `tf.function` that leaves out TensorFlow's graph optimizer, where CPUs compute in 16 bits.

    For an update of a BERT of 6 layers the optimizer needs 0.7 s, 3 s where it has several micro-batches, and such
    updates are as fast without it: benchmarks/results/2026-11-27-graph-optimizer.md. In float32 they are 2% slower, as
    are predictions in any precision; GPUs were not measured.
    """
    if tf.config.list_logical_devices("GPU") or compute_dtype == "float32":
        return update

    def call(*args: Any) -> Any:
        before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        try:
            return update(*args)
        finally:
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})

    return call
