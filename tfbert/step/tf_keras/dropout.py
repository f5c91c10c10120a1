"""tf_keras's random layers, drawing what `noise` says belongs to each row of the global batch."""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.private import layers_of
from tfbert.step.noise import ONE_ROW, Noise, Rows, known_leading
from tfbert.step.tf_keras.private import RandomGenerator, generator_of, set_generator


class _KeyedGenerator(RandomGenerator):
    """What a random layer draws from: keyed while a key is set, else the generator the layer came with."""

    def __init__(self, noise: Noise, layer_index: int, original: RandomGenerator):
        super().__init__(seed=layer_index, rng_type=RandomGenerator.RNG_STATELESS)
        self._noise = noise
        self._layer_index = layer_index
        self._original = original

    def make_seed_for_stateless_op(self) -> tf.Tensor:
        """A seed from the first row, for a layer that draws by itself, so that its rows are not known."""
        if self._noise.source is None:
            return self._original.make_seed_for_stateless_op()
        return self._noise.seed(self._layer_index)

    def random_normal(self, shape, mean=0.0, stddev=1.0, dtype=None, nonce=None):
        if self._noise.source is None:
            return self._original.random_normal(shape, mean, stddev, dtype, nonce)
        return _as(mean + stddev * self._noise.normal(self._layer_index, shape), dtype)

    def truncated_normal(self, shape, mean=0.0, stddev=1.0, dtype=None, nonce=None):
        if self._noise.source is None:
            return self._original.truncated_normal(shape, mean, stddev, dtype, nonce)
        return _as(mean + stddev * self._noise.truncated_normal(self._layer_index, shape), dtype)

    def random_uniform(self, shape, minval=0.0, maxval=None, dtype=None, nonce=None):
        if self._noise.source is None:
            return self._original.random_uniform(shape, minval, maxval, dtype, nonce)
        if tf.as_dtype(dtype or keras.backend.floatx()).is_integer:
            return super().random_uniform(shape, minval, maxval, dtype, nonce)
        maxval = 1.0 if maxval is None else maxval
        return _as(minval + self._noise.uniform(self._layer_index, shape) * (maxval - minval), dtype)

    def dropout(self, inputs: tf.Tensor, rate: Any, noise_shape=None) -> tf.Tensor:
        if self._noise.source is None:
            return self._original.dropout(inputs, rate, noise_shape)
        if isinstance(rate, (int, float)) and not 0 < rate < 1:  # Nothing or everything.
            return super().dropout(inputs, rate, noise_shape)
        leading = inputs.shape[:1] if noise_shape is None else known_leading(noise_shape)
        return self._noise.dropout(self._layer_index, inputs, rate, leading, noise_shape)


class KeyedDropout:
    """Takes over the randomness of every random layer of a model (`Dropout`, `GaussianNoise`, ...).

    Args:
        model: A built or unbuilt Keras model; layers it creates later keep their own generators.
    """

    def __init__(self, model: keras.Model):
        self._noise = Noise()
        for index, layer in enumerate(layers_of(model)):
            generator = generator_of(layer)
            if isinstance(generator, _KeyedGenerator):
                generator = generator._original
            if generator is not None:
                set_generator(layer, _KeyedGenerator(self._noise, index, generator))

    def keyed(self, key: tf.Tensor, rows: Rows = ONE_ROW) -> contextlib.AbstractContextManager[None]:
        """As `Noise.keyed`."""
        return self._noise.keyed(key, rows)


def _as(values: tf.Tensor, dtype: Any) -> tf.Tensor:
    return tf.cast(values, dtype or keras.backend.floatx())
