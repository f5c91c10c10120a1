"""Dropout noise as a pure function of (seed, step, replica, micro-batch, layer, the layer's draws before).

Keras draws dropout from generators with hidden state, so a resumed run draws other noise than the run it continues, and
a recomputed forward pass (gradient checkpointing) other noise than the first one. Here each layer's noise comes from
a stateless Philox stream (Salmon et al. 2011) keyed by what the noise belongs to; nothing has to be saved or restored.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator

import tensorflow as tf
import tf_keras as keras
from tf_keras.src.backend import RandomGenerator  # Keras exports no other base that its random layers accept.

_BITS = 16
_DRAW_BITS = 32


class _Noise:
    """What the forward pass being traced draws from: a key and its stream; None outside `KeyedDropout.keyed`.

    A layer may draw several times in a pass, as one that is called twice: each of its draws has a number.
    """

    def __init__(self):
        self.source: tuple[tf.Tensor, tf.Tensor] | None = None
        self.draws: collections.Counter[int] = collections.Counter()

    @contextlib.contextmanager
    def set_to(self, source: tuple[tf.Tensor, tf.Tensor], draws: collections.Counter[int]) -> Iterator[None]:
        before = self.source, self.draws
        self.source, self.draws = source, draws.copy()
        try:
            yield
        finally:
            # What comes after a part that is recomputed goes on counting where that ended.
            self.source, self.draws = before[0], before[1] | self.draws

    def next_draw(self, layer_index: int) -> int:
        """How often this layer has drawn before."""
        self.draws[layer_index] += 1
        return self.draws[layer_index] - 1


class _KeyedGenerator(RandomGenerator):
    """What a random layer draws from: keyed while a key is set, else the generator the layer came with."""

    def __init__(self, noise: _Noise, layer_index: int, original: RandomGenerator):
        super().__init__(seed=layer_index, rng_type=RandomGenerator.RNG_STATELESS)
        self._noise = noise
        self._layer_index = layer_index
        self._original = original

    def make_seed_for_stateless_op(self) -> tf.Tensor:
        if self._noise.source is None:
            return self._original.make_seed_for_stateless_op()
        draw = self._noise.next_draw(self._layer_index)
        key = _fold_in(self._noise.source[0], self._layer_index)
        return _fold_in(key, draw) if draw else key

    def random_normal(self, *args, **kwargs):
        return self._delegate("random_normal", *args, **kwargs)

    def random_uniform(self, *args, **kwargs):
        return self._delegate("random_uniform", *args, **kwargs)

    def truncated_normal(self, *args, **kwargs):
        return self._delegate("truncated_normal", *args, **kwargs)

    def dropout(self, inputs: tf.Tensor, rate: float, noise_shape=None) -> tf.Tensor:
        if self._noise.source is None:
            return self._original.dropout(inputs, rate, noise_shape)
        if noise_shape is None and isinstance(rate, float) and 0 < rate < 1:
            draw = self._noise.next_draw(self._layer_index)
            return drop(inputs, rate, self._noise.source[1], self._layer_index + (draw << _DRAW_BITS))
        return super().dropout(inputs, rate, noise_shape)

    def _delegate(self, method: str, *args, **kwargs):
        source = self._original if self._noise.source is None else super()
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
        return self._noise.set_to((key, noise_stream(key)), collections.Counter())


def same_noise(layer: keras.layers.Layer) -> Callable[[], contextlib.AbstractContextManager[None]] | None:
    """For recomputing what a layer computes now: makes contexts in which it draws the noise that it draws now.

    Returns:
        None where its noise is not keyed now, so that it could not be drawn again.
    """
    for part in layer._flatten_layers():
        generator = getattr(part, "_random_generator", None)
        if isinstance(generator, _KeyedGenerator) and generator._noise.source is not None:
            return functools.partial(generator._noise.set_to, generator._noise.source, generator._noise.draws.copy())
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


def noise_stream(key: tf.Tensor) -> tf.Tensor:
    """Where a key's random numbers begin: a Philox key and a counter of 128 bits, uint64 `[3]`."""
    return tf.random.stateless_uniform([3], key, minval=None, maxval=None, dtype=tf.uint64, alg="philox")


def drop(inputs: tf.Tensor, rate: float, stream: tf.Tensor, number: int = 0) -> tf.Tensor:
    """Dropout (Srivastava et al. 2014) from 16 random bits an element, half the random numbers of `tf.nn.dropout`.

    The rate is honoured to 1/65536, and the values kept are scaled by the exact inverse of the rate used, so the
    expectation is unbiased.

    Args:
        inputs: Floating `[...]`.
        rate: Share of elements dropped, between 0 and 1.
        stream: As `noise_stream` returns it.
        number: Which of the stream's parts, of 2^66 words each, the bits come from: a layer's own.

    Returns:
        A tensor like `inputs`.
    """
    levels = 1 << _BITS
    dropped = min(max(round(rate * levels), 1), levels - 1)
    size = tf.size(inputs)
    # Not `tf.random.stateless_uniform`, which makes a stream of a seed by a dozen operations for every layer.
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[(size + 1) // 2],
        key=stream[:1],
        counter=stream[1:] + tf.constant([0, number], tf.uint64),
        alg=tf.random.Algorithm.PHILOX.value,
        dtype=tf.uint32,
    )
    halves = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:size]
    keep = tf.reshape(halves >= tf.constant(dropped, tf.uint16), tf.shape(inputs))
    scale = tf.cast(levels / (levels - dropped), inputs.dtype)
    return tf.where(keep, inputs * scale, tf.zeros([], inputs.dtype))
