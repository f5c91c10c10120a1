"""Dropout noise as a pure function of (seed, step, replica, micro-batch, layer).

Keras draws dropout from generators with hidden state, so a resumed run draws other noise than the run it continues, and
a recomputed forward pass (gradient checkpointing) other noise than the first one. Here each layer's noise comes from
a stateless Philox stream (Salmon et al. 2011) keyed by what the noise belongs to; nothing has to be saved or restored.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import tensorflow as tf
import tf_keras as keras
from tf_keras.src.backend import RandomGenerator  # Keras exports no other base that its random layers accept.

_BITS = 16


class _Noise:
    """The key of the forward pass being traced; None outside `Dropout.keyed`."""

    def __init__(self):
        self.key: tf.Tensor | None = None

    @contextlib.contextmanager
    def set_to(self, key: tf.Tensor | None) -> Iterator[None]:
        before, self.key = self.key, key
        try:
            yield
        finally:
            self.key = before


class _KeyedGenerator(RandomGenerator):
    """What a random layer draws from: keyed while a key is set, else the generator the layer came with."""

    def __init__(self, noise: _Noise, layer_index: int, original: RandomGenerator):
        super().__init__(seed=layer_index, rng_type=RandomGenerator.RNG_STATELESS)
        self._noise = noise
        self._layer_index = layer_index
        self._original = original

    def make_seed_for_stateless_op(self) -> tf.Tensor:
        return _fold_in(self._noise.key, self._layer_index)

    def random_normal(self, *args, **kwargs):
        return self._delegate("random_normal", *args, **kwargs)

    def random_uniform(self, *args, **kwargs):
        return self._delegate("random_uniform", *args, **kwargs)

    def truncated_normal(self, *args, **kwargs):
        return self._delegate("truncated_normal", *args, **kwargs)

    def dropout(self, inputs: tf.Tensor, rate: float, noise_shape=None) -> tf.Tensor:
        if self._noise.key is None:
            return self._original.dropout(inputs, rate, noise_shape)
        if noise_shape is None and isinstance(rate, float) and 0 < rate < 1:
            return drop(inputs, rate, self.make_seed_for_stateless_op())
        return super().dropout(inputs, rate, noise_shape)

    def _delegate(self, method: str, *args, **kwargs):
        source = self._original if self._noise.key is None else super()
        return getattr(source, method)(*args, **kwargs)


class KeyedDropout:
    """Takes over the randomness of every random layer of a model (`Dropout`, `GaussianNoise`, ...).

    Args:
        model: A built or unbuilt Keras model; layers it creates later keep their own generators.
    """

    def __init__(self, model: keras.Model):
        self._noise = _Noise()
        for index, layer in enumerate(model._flatten_layers()):
            generator = getattr(layer, "_random_generator", None)
            if isinstance(generator, _KeyedGenerator):
                generator = generator._original
            if isinstance(generator, RandomGenerator):
                # Keras would track the assignment as a child of the layer and save it.
                object.__setattr__(layer, "_random_generator", _KeyedGenerator(self._noise, index, generator))

    def keyed(self, key: tf.Tensor) -> contextlib.AbstractContextManager[None]:
        """While active, what is traced draws its noise from `key`, an int32 `[2]` tensor of the graph being traced."""
        return self._noise.set_to(key)


def same_noise(layer: keras.layers.Layer) -> Callable[[], contextlib.AbstractContextManager[None]] | None:
    """For recomputing what a layer computes now: makes contexts in which it draws the noise that it draws now.

    Returns:
        None where its noise is not keyed now, so that it could not be drawn again.
    """
    for part in layer._flatten_layers():
        generator = getattr(part, "_random_generator", None)
        if isinstance(generator, _KeyedGenerator) and generator._noise.key is not None:
            return functools.partial(generator._noise.set_to, generator._noise.key)
    return None


def noise_key(seed: int, step: tf.Tensor, replica: tf.Tensor, micro_batch: tf.Tensor) -> tf.Tensor:
    """The key of one replica's forward pass over one micro-batch.

    Args:
        seed: The run's seed.
        step: int64 `[]`, optimizer updates made before.
        replica: int32 `[]`, counted over all workers.
        micro_batch: int32 `[]`.

    Returns:
        int32 `[2]`.
    """
    key = tf.stack([tf.cast(seed, tf.int32), tf.cast(step, tf.int32)])
    return _fold_in(_fold_in(key, tf.cast(replica, tf.int32)), micro_batch)


def _fold_in(key: tf.Tensor, data: tf.Tensor | int) -> tf.Tensor:
    # By default TensorFlow takes another generator under XLA and on some devices.
    return tf.random.experimental.stateless_fold_in(key, data, alg="philox")


def drop(inputs: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Dropout (Srivastava et al. 2014) from 16 random bits an element, half the random numbers of `tf.nn.dropout`.

    The rate is honoured to 1/65536, and the values kept are scaled by the exact inverse of the rate used, so the
    expectation is unbiased.

    Args:
        inputs: Floating `[...]`.
        rate: Share of elements dropped, between 0 and 1.
        seed: int32 `[2]`.

    Returns:
        A tensor like `inputs`.
    """
    levels = 1 << _BITS
    dropped = min(max(round(rate * levels), 1), levels - 1)
    size = tf.size(inputs)
    words = tf.random.stateless_uniform(
        [(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )
    halves = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:size]
    keep = tf.reshape(halves >= tf.constant(dropped, tf.uint16), tf.shape(inputs))
    scale = tf.cast(levels / (levels - dropped), inputs.dtype)
    return tf.where(keep, inputs * scale, tf.zeros([], inputs.dtype))
