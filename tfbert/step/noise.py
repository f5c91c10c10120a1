"""Random numbers as a pure function of (seed, step, row of the global batch, layer, number of its draw, place in it).

Keras draws dropout from generators with hidden state, so a resumed run draws other noise than the run it continues,
a recomputed forward pass (gradient checkpointing) other noise than the first one, and two replicas other noise than
one. Here each layer has a stateless Philox stream (Salmon et al. 2011) in each step, along which the rows of the global
batch have equal stretches, one after the other. A pass over some consecutive rows begins where their stretches begin,
and draws exactly the numbers that one big batch would. Nothing has to be saved or restored.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfbert.step.gradients import num_rows_of

_BITS = 16
_COUNTER_BYTES = 16
"""What a Philox stream gives for each counter value; a row's stretch begins at a counter value of its own."""

_WORD_BYTES = 4
"""The numbers that are drawn; smaller ones are parts of them."""

_DRAW_BITS = 24
_UNIFORM_BITS = 23
"""That many bits, plus one half, make a float32 strictly between 0 and 1 without rounding."""

_MIXES = 0x02461E293EC8F720
"""The key with which TensorFlow makes a key of a seed (`ScrambleSeed` of its stateless_random_ops.cc)."""

_BELOW_2_SIGMA = 0.022750131948179195
"""The normal distribution's share below -2: a truncated normal has nothing below -2 or above 2."""


class Rows(NamedTuple):
    """The rows that a forward pass computes.

    Attributes:
        first: `[]`: rows of the global batch before the first of these; the number 0 where that is known before.
        count: int32 `[]`: how many these are; a Python number where tensors' first dimensions are known too. A tensor
            to which dropout is applied has this, or a multiple of it, as its first dimension.
    """

    first: tf.Tensor | int
    count: tf.Tensor | int


ONE_ROW = Rows(0, 1)
"""For tensors without rows: they get the same noise in every part of a global batch as in the whole."""


def rows_of(inputs: Any, rows: Any, weights: Any, first_row: Any, micro_batch: tf.Tensor | int) -> Rows:
    """Which rows of the global batch a micro-batch holds, for its noise.

    Packed inputs have a different number of rows than labels: only the place of the micro-batch is known then.
    """
    num_rows = num_rows_of(weights)
    known = {tensor.shape[0] for tensor in tf.nest.flatten((inputs, rows))} - {None}
    count = num_rows if not known else known.pop() if len(known) == 1 else 1
    is_first = isinstance(micro_batch, int) and micro_batch == 0
    return Rows(first_row if is_first else first_row + tf.cast(micro_batch * num_rows, tf.int64), count)


class Stream(NamedTuple):
    """Where random numbers come from.

    Attributes:
        key: Philox's, uint64 `[1]`.
        counter: Of 128 bits, low half first, where the stream begins: uint64 `[2]`. The low half is 0.
    """

    key: tf.Tensor
    counter: tf.Tensor


class Source(NamedTuple):
    """What a forward pass draws from."""

    key: tf.Tensor
    stream: Stream
    rows: Rows


class Noise:
    """What the forward pass being traced draws from; its source is None outside `set_to`.

    A layer may draw several times in a pass, for example if it is called twice: each of its draws has a number.

    Args:
        around: Makes contexts that `set_to` is within.
    """

    def __init__(self, around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext):
        self._around = around
        self.source: Source | None = None
        self.draws: collections.Counter[int] = collections.Counter()

    @contextlib.contextmanager
    def set_to(self, source: Source | None, draws: collections.Counter[int]) -> Iterator[None]:
        """While active, layers draw from a source, counting on from `draws`."""
        before, outer = (self.source, self.draws), getattr(_tracing, "noise", None)
        self.source, self.draws, _tracing.noise = source, draws.copy(), self
        try:
            with self._around():
                yield
        finally:
            # After a recomputed part, counting continues where that part ended.
            self.source, self.draws, _tracing.noise = before[0], before[1] | self.draws, outer

    def keyed(self, key: tf.Tensor, rows: Rows = ONE_ROW) -> contextlib.AbstractContextManager[None]:
        """While active, operations being traced draw their noise from a step's key.

        Args:
            key: As `noise_key` returns it, a tensor of the graph being traced.
            rows: Those of the global batch that are computed. By default everything has the noise of the first row.
        """
        return self.set_to(Source(key, noise_stream(key), rows), collections.Counter())

    def next_draw(self, layer_index: int) -> int:
        """The number of this layer's next draw, counted from 0."""
        self.draws[layer_index] += 1
        return self.draws[layer_index] - 1

    def seed(self, layer_index: int) -> tf.Tensor:
        """A seed from the first row, for a layer that draws by itself, so that its rows are not known."""
        draw = self.next_draw(layer_index)
        key = _fold_in(_fold_in(self.source.key, layer_index), tf.cast(self.source.rows.first, tf.int64))
        return _fold_in(key, draw) if draw else key

    def stretch(self, layer_index: int, leading: tf.TensorShape) -> tuple[Stream, int, Rows]:
        """Arguments of `drop` for this layer's next draw, for a tensor whose first dimension, if any, is `leading`."""
        number = layer_index + (self.next_draw(layer_index) << _DRAW_BITS)
        return self.source.stream, number, _rows_in(leading, self.source.rows)

    def dropout(
        self, layer_index: int, inputs: tf.Tensor, rate: Any, leading: tf.TensorShape, noise_shape: Any
    ) -> tf.Tensor:
        """Dropout by this layer's next draw.

        Args:
            layer_index: The layer's.
            inputs: Floating `[...]`.
            rate: Share of elements dropped, between 0 and 1; a tensor or a variable takes `uniform`.
            leading: The first dimension, if any, of what is drawn.
            noise_shape: As of `drop`.
        """
        if isinstance(rate, (int, float)):
            stream, number, rows = self.stretch(layer_index, leading)
            return drop(inputs, float(rate), stream, number, rows=rows, noise_shape=noise_shape)
        shape = tf.shape(inputs) if noise_shape is None else noise_shape
        keep = self.uniform(layer_index, shape) >= tf.cast(rate, tf.float32)
        return tf.where(keep, inputs / tf.cast(1 - rate, inputs.dtype), tf.zeros([], inputs.dtype))

    def uniform(self, layer_index: int, shape: Any) -> tf.Tensor:
        """float32 of a shape, between 0 and 1."""
        shape = tf.cast(shape, tf.int32)
        words = _bits(shape, tf.TensorShape(None), *self.stretch(layer_index, known_leading(shape)), tf.uint32)
        whole = tf.bitwise.right_shift(words, tf.constant(32 - _UNIFORM_BITS, tf.uint32))
        return (tf.cast(whole, tf.float32) + 0.5) * 2.0**-_UNIFORM_BITS

    def normal(self, layer_index: int, shape: Any) -> tf.Tensor:
        """float32 of a shape, of mean 0 and deviation 1."""
        return tf.math.ndtri(self.uniform(layer_index, shape))

    def truncated_normal(self, layer_index: int, shape: Any) -> tf.Tensor:
        """The same between -2 and 2."""
        share = _BELOW_2_SIGMA + self.uniform(layer_index, shape) * (1 - 2 * _BELOW_2_SIGMA)
        return tf.math.ndtri(share)


_tracing = threading.local()
"""`noise`: what the pass that this thread traces draws from."""


def same_noise() -> Callable[[], contextlib.AbstractContextManager[None]] | None:
    """Makes contexts in which layers, of either Keras, draw again what they draw now; None if it is not keyed now."""
    noise = getattr(_tracing, "noise", None)
    return noise and functools.partial(noise.set_to, noise.source, noise.draws.copy())


def noise_key(seed: int, step: tf.Tensor) -> tf.Tensor:
    """The key of a step.

    Args:
        seed: The run's seed.
        step: int64 `[]`, optimizer updates made before this one.

    Returns:
        int64 `[2]`.
    """
    # Not `tf.stack` of int32, which TensorFlow does on the host: it would wait there for a GPU's last update.
    return tf.constant([seed, 0], tf.int64) + tf.cast(step, tf.int64) * tf.constant([0, 1], tf.int64)


def noise_stream(key: tf.Tensor) -> Stream:
    """Where a step's random numbers come from, given its key.

    The numbers are those of `tf.random.stateless_uniform([3], key)`, for which TensorFlow needs the key on the host.
    """
    mixed = _draw([2], tf.constant([_MIXES], tf.uint64), tf.cast(key, tf.uint64), tf.uint64)
    bits = _draw([3], mixed[:1], mixed * tf.constant([0, 1], tf.uint64), tf.uint64)
    return Stream(bits[:1], bits[1:] * tf.constant([0, 1], tf.uint64))


def _draw(shape: Any, key: tf.Tensor, counter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    # Not `tf.random.stateless_uniform`, which takes a dozen operations for every layer to make a stream from a seed.
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape, key=key, counter=counter, alg=tf.random.Algorithm.PHILOX.value, dtype=dtype
    )


def drop(
    inputs: tf.Tensor, rate: float, stream: Stream, number: int = 0, *, rows: Rows = ONE_ROW, noise_shape: Any = None
) -> tf.Tensor:
    """Dropout (Srivastava et al. 2014) from 16 random bits an element, half the random numbers of `tf.nn.dropout`.

    The rate is honoured to 1/65536, and the values kept are scaled by the exact inverse of the rate used, so the
    expectation is unbiased.

    Args:
        inputs: Floating `[...]`.
        rate: Share of elements dropped, between 0 and 1.
        stream: Where the bits come from.
        number: Which of the stream's parts, of 2^64 counter values each, the bits come from: each layer has its own.
        rows: Rows of the global batch; each has a stretch of the part.
        noise_shape: Int `[rank]`, 1 in dimensions along which whole slices are dropped; None for the inputs' shape.

    Returns:
        A tensor like `inputs`.
    """
    levels = 1 << _BITS
    dropped = min(max(round(rate * levels), 1), levels - 1)
    shape, known = tf.shape(inputs), inputs.shape
    if noise_shape is not None:
        shape, known = tf.cast(noise_shape, tf.int32), tf.TensorShape(None)
    keep = _bits(shape, known, stream, number, rows, tf.uint16) >= tf.constant(dropped, tf.uint16)
    scale, zero = tf.cast(levels / (levels - dropped), inputs.dtype), tf.zeros([], inputs.dtype)

    @tf.custom_gradient  # TensorFlow's own would reduce to the inputs' shape, which is the outputs' already.
    def kept(values: tf.Tensor) -> tf.Tensor:
        return tf.where(keep, values * scale, zero), lambda upstream: tf.where(keep, upstream * scale, zero)

    return kept(inputs)


def _bits(
    shape: tf.Tensor, known: tf.TensorShape, stream: Stream, number: int, rows: Rows, dtype: tf.DType
) -> tf.Tensor:
    """Random bits for the elements of a tensor, row after row.

    Every row takes whole counter values, so that the bits of a row are the same in any batch. The operations are few,
    since every layer has them: TensorFlow takes longer to start for each.

    Args:
        shape: int32 `[rank]`.
        known: What is known of it.
        stream: Where the bits come from.
        number: Which of the stream's parts.
        rows: Rows of the global batch that the elements belong to.
        dtype: Unsigned, of 16 or 32 bits.

    Returns:
        A tensor of this shape and type.
    """
    a_count = _COUNTER_BYTES // dtype.size
    size = tf.reduce_prod(shape)
    is_whole = (known.rank or 0) > 1 and known[-1] is not None and known[-1] % a_count == 0
    if is_whole:  # Nothing is left over at the end of a row of the batch.
        counts = _ceil_div(size // a_count, rows.count)
        of_words = [1] * (known.rank - 1) + [_WORD_BYTES // dtype.size]
        words_shape = shape // of_words
    else:
        a_row = _ceil_div(size, rows.count)
        counts = _ceil_div(a_row, a_count)
        words_shape = [rows.count, counts * (_COUNTER_BYTES // _WORD_BYTES)]
    # One addition to the counter: of two, TensorFlow's optimiser makes an operation that a GPU has not.
    if isinstance(rows.first, int) and rows.first == 0:
        start = tf.constant([0, number], tf.uint64)
    else:  # Each layer's place comes from the host: a GPU waits for it.
        start = tf.stack([tf.cast(rows.first, tf.uint64) * tf.cast(counts, tf.uint64), tf.constant(number, tf.uint64)])
    bits = _draw(words_shape, stream.key, stream.counter + start, tf.uint32)
    if dtype != tf.uint32:
        bits = tf.bitcast(bits, dtype)
    if not is_whole:
        # Not `tf.slice`: it has no kernel for these types on a GPU, so that each layer's bits made two trips to the
        # host, longer than the rest of the step.
        bits = tf.strided_slice(tf.reshape(bits, [rows.count, -1]), [0, 0], [rows.count, a_row])
        bits = tf.strided_slice(tf.reshape(bits, [-1]), [0], [size])
    return tf.reshape(bits, shape)


def _ceil_div(dividend: tf.Tensor, divisor: tf.Tensor | int) -> tf.Tensor:
    return dividend if isinstance(divisor, int) and divisor == 1 else -(-dividend // divisor)


def _fold_in(key: tf.Tensor, data: tf.Tensor | int) -> tf.Tensor:
    # By default TensorFlow takes another generator under XLA and on some devices.
    return tf.random.experimental.stateless_fold_in(key, data, alg="philox")


def known_leading(shape: Any) -> tf.TensorShape:
    """The first dimension, as far as it is known, of a shape that may be a tensor; empty for a scalar's shape."""
    known = tf.get_static_value(tf.convert_to_tensor(shape), partial=True)
    if known is not None:
        return tf.TensorShape([None if size is None else int(size) for size in known[:1]])
    return tf.TensorShape([None])


def _rows_in(leading: tf.TensorShape, rows: Rows) -> Rows:
    """The rows that a tensor has: `rows`, or `ONE_ROW` if its first dimension cannot be these rows."""
    if leading.rank == 0:
        return ONE_ROW
    if leading[0] is None:
        return rows
    count = tf.get_static_value(rows.count)
    # If the size is known and the number of rows is not, the size does not depend on the rows.
    return rows if count is not None and leading[0] % count == 0 else ONE_ROW
