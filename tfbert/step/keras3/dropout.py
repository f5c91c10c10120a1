"""Keras 3's random layers, drawing what `noise` says belongs to each row of the global batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfbert.private import layers_of
from tfbert.step.keras3.private import OTHER_DRAWS, GivenSeed, drawn_by, generators_of
from tfbert.step.noise import ONE_ROW, Noise, Rows, known_leading, noise_key

_MAX_RANGE = 1 << 23
"""As many whole numbers as a float32 between 0 and 1 tells apart evenly."""


class KeyedRandom:
    """Takes over all random functions of Keras in a model's forward passes, whichever layer calls them.

    Each `SeedGenerator` has a part of the stream of its own: that of a layer's `noise_number`, or else in the order of
    the layers that hold them, after these; what no layer holds, in the order in which it is used.

    Args:
        model: A built or unbuilt Keras model.
        num_parts: Micro-batches of a global batch, on all replicas.
    """

    def __init__(self, model: keras.Model, num_parts: int):
        self._noise = Noise(around=lambda: drawn_by(self))
        self._num_parts = num_parts
        # The generators are kept alive: another object could get the number of one that is gone.
        held = [(layer, each) for layer in layers_of(model) for each in generators_of(layer)]
        numbers = {id(each): layer.noise_number for layer, each in held if hasattr(layer, "noise_number")}
        self._known: list[Any] = [each for _, each in held]
        self._numbers, self._next = numbers, 1 + max(numbers.values(), default=-1)
        for _, each in held:
            self._number_of(each)

    def keyed(self, key: tf.Tensor, rows: Rows = ONE_ROW) -> contextlib.AbstractContextManager[None]:
        """As `Noise.keyed`."""
        return self._noise.keyed(key, rows)

    def draw(self, name: str, function: Callable[..., tf.Tensor], given: dict[str, Any]) -> tf.Tensor:
        """What a random function returns.

        Args:
            name: The function's.
            function: Keras's own.
            given: All its arguments.

        Raises:
            ValueError: for one that cannot be drawn by row, where a batch is in several parts.
        """
        seed = given["seed"]
        if isinstance(seed, bool) or not isinstance(seed, (int, keras.random.SeedGenerator, type(None))):
            return function(**given)  # Keras says what it accepts.
        if isinstance(seed, int):  # The same numbers in every step.
            fixed = noise_key(seed % (1 << 31), tf.constant(0))
            with self._noise.keyed(fixed, self._noise.source.rows):
                return self._drawn(name, function, given, 0)
        return self._drawn(name, function, given, self._number_of(seed))

    def _number_of(self, generator: keras.random.SeedGenerator | None) -> int:
        if id(generator) not in self._numbers:
            self._known.append(generator)
            self._numbers[id(generator)] = self._next
            self._next += 1
        return self._numbers[id(generator)]

    def _drawn(self, name: str, function: Callable[..., tf.Tensor], given: dict[str, Any], number: int) -> tf.Tensor:
        dtype = given.get("dtype") or keras.config.floatx()
        if name == "dropout":
            return self._dropped(given["inputs"], given["rate"], given["noise_shape"], number)
        if name == "normal":
            return tf.cast(given["mean"] + given["stddev"] * self._noise.normal(number, given["shape"]), dtype)
        if name == "truncated_normal":
            drawn = self._noise.truncated_normal(number, given["shape"])
            return tf.cast(given["mean"] + given["stddev"] * drawn, dtype)
        if name == "uniform":
            low, high = (tf.cast(given[each], tf.float32) for each in ("minval", "maxval"))
            return tf.cast(low + self._noise.uniform(number, given["shape"]) * (high - low), dtype)
        if name == "randint":
            return self._whole(given, number, dtype)
        if self._num_parts > 1:
            raise ValueError(
                "Random numbers must belong to rows of the global batch, or they depend on the split. "
                f"Received: a layer that calls keras.random.{name}, and a batch in {self._num_parts} parts. "
                "Use dropout, normal, uniform, truncated_normal or randint there, or train with "
                "gradient_accumulation_steps=1 on one replica."
            )
        assert name in OTHER_DRAWS
        return function(**given | {"seed": GivenSeed(self._noise.seed(number))})

    def _dropped(self, inputs: tf.Tensor, rate: Any, noise_shape: Any, number: int) -> tf.Tensor:
        if isinstance(rate, (int, float)) and rate in (0, 1):
            return inputs if rate == 0 else tf.zeros_like(inputs)
        inputs, leading = tf.convert_to_tensor(inputs), inputs.shape[:1]
        if noise_shape is not None:
            if noise_shape[0] is not None:
                leading = known_leading(noise_shape[:1])
            sizes = tf.shape(inputs)
            noise_shape = tf.stack([sizes[i] if size is None else size for i, size in enumerate(noise_shape)])
        return self._noise.dropout(number, inputs, rate, leading, noise_shape)

    def _whole(self, given: dict[str, Any], number: int, dtype: Any) -> tf.Tensor:
        low, high = given["minval"], given["maxval"]
        span = tf.get_static_value(tf.convert_to_tensor(high)), tf.get_static_value(tf.convert_to_tensor(low))
        if None in span or span[0] - span[1] > _MAX_RANGE:
            raise ValueError(
                f"Whole numbers are drawn by row from a known range of at most {_MAX_RANGE}. "
                f"Received: a layer that calls keras.random.randint(minval={low}, maxval={high}). "
                "Use keras.random.uniform there, and round what it gives."
            )
        size = float(span[0] - span[1])
        drawn = tf.minimum(tf.floor(self._noise.uniform(number, given["shape"]) * size), size - 1)
        return tf.cast(tf.cast(drawn, tf.int64) + tf.cast(low, tf.int64), dtype)
