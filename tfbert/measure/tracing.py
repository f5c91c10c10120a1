"""`tf.function` for functions that are defined anew for each model, as TensorFlow counts how often they are traced."""

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
