"""The arithmetic that encoders are written in, over plain or packed rows; in the last layer, of what is read alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import tensorflow as tf

from tfbert.model import ops
from tfbert.model.ops import activation, dense_layer, inference_gelu, norm_layer

if TYPE_CHECKING:  # The layers may be of either Keras.
    import keras

MASKED = -10000.0
"""What transformers adds to the scores of positions that are not attended to; softmax turns them into exact 0."""

Reads = Literal["first", "every", "mean"] | tf.Tensor
"""What a head reads of the last layer: the first token of each example, every token, the mean of an example's tokens,
or int32 `[rows, places]`; for packed rows `[examples, places]`, counted through the rows, where all places of an
example are in the row of the first."""


def masked_unless(attends: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """What is added to scores: nothing where a query attends."""
    return tf.where(attends, tf.zeros([], dtype), tf.constant(MASKED, dtype))


class Arithmetic:
    """What encoders are written in, over `[..., size]` each.

    Args:
        config: The model's.
        training: Whether dropout is on.
    """

    dense, norm = staticmethod(dense_layer), staticmethod(norm_layer)
    tanh, relu, turned = staticmethod(tf.tanh), staticmethod(tf.nn.relu), staticmethod(ops.turned)

    def __init__(self, config: Any, training: bool | None):
        self.config, self.training = config, bool(training)

    def act(self, x: tf.Tensor, name: str = "") -> tf.Tensor:
        """The function within the layers, or another by its name."""
        name = name or self.config.hidden_act
        return inference_gelu(x) if name == "gelu" and not self.training else activation(name)(x)

    def drop(self, x: tf.Tensor, layer: keras.layers.Layer) -> tf.Tensor:
        """Dropout."""
        return layer(inputs=x, training=self.training)

    def split(self, x: tf.Tensor, count: int) -> list[tf.Tensor]:
        """Parts of the last dimension, of one size."""
        return tf.split(x, count, axis=-1)


class Pass(Arithmetic):
    """A pass over the rows of a batch. Tokens are `[rows x width, hidden]`.

    Attributes:
        shared: What the encoder's layers have in common.
    """

    def __init__(self, config: Any, inputs: dict[str, tf.Tensor], hidden: tf.Tensor, training: bool | None):
        super().__init__(config, training)
        self.inputs, self.dtype, self.rows, self.width = inputs, hidden.dtype, *tf.unstack(tf.shape(hidden)[:2])
        self._queries, self._row = self.rows, None
        self._masks: dict[int | None, tf.Tensor | None] = {}
        self._known_width = hidden.shape[1] or 0
        self._blocks: dict[int, tuple[tf.Tensor, tf.Tensor, bool]] = {}
        self.attentions: list[tf.Tensor] | None = None
        self.shared: Any = None

    def add_masks(self, windows: Iterable[int | None]) -> None:
        """Computes what is added to attention's scores in layers of these windows: before them, as all share it."""
        examples, mask = self.inputs.get("example_ids"), self.inputs.get("attention_mask")
        for window in {*windows}:
            keys = queries = mask if examples is None else examples
            near = None if window is None else self._add_blocks(window)
            if near is not None:
                marks = tf.ones([self.rows * self.width], tf.int32) if keys is None else tf.reshape(keys, [-1])
                queries, keys = (tf.gather(marks, block) for block in self._blocks[window][:2])
            attends = None if keys is None else tf.expand_dims(tf.expand_dims(keys > 0, 1), 1)
            if examples is not None:
                # Places without a token attend to each other: with nothing to attend to, softmax is undefined.
                attends = queries[:, None, :, None] == keys[:, None, None, :]
            if near is not None:
                attends &= near
            self._masks[window] = None if attends is None else masked_unless(attends, self.dtype)

    def _add_blocks(self, window: int) -> tf.Tensor:
        """Cuts rows into blocks of neighbouring tokens, which attend to their block and to some on either side of it: a
        row is one block where it is short, or where all shares of attention are kept, or where the graph does not know
        its width: copying short rows costs more than it saves, and XLA takes no `tf.cond` of two shapes.

        Keeps the tokens of each block and those that it attends to, int32 `[rows x blocks, size or reach + size +
        reach]`, in place of those beyond a row's ends its last ones; returns which of both are near each other.
        """
        size = max(2 * window, 1)
        is_long = self.attentions is None and self._known_width > 2 * size
        size, reach = (size, window) if is_long else (self.width, 0)
        within, around = tf.range(size), tf.range(-reach, size + reach)
        count = -(-self.width // size)
        places = tf.tile(tf.range(count) * size, [self.rows])[:, None]
        first = tf.repeat(tf.range(self.rows) * self.width, count)[:, None]
        last = self.width - 1
        own, near = (first + tf.clip_by_value(places + each, 0, last) for each in (within, around))
        self._blocks[window] = own, near, is_long
        is_there = (places + around >= 0) & (places + around <= last)
        return is_there[:, None, None] & (tf.abs(within[:, None] - around) <= window)

    def turns(self, theta: float) -> ops.Turns:
        """How far the positions of tokens turn their queries and keys: see `ops.turns_of`."""
        positions = self.inputs.get("position_ids")
        positions = tf.range(self.width)[None] if positions is None else positions
        positions = tf.reshape(tf.broadcast_to(positions, [self.rows, self.width]), [-1])
        return ops.turns_of(positions, theta, self.config.hidden_size // self.config.num_attention_heads)

    def read(self, tokens: tf.Tensor) -> tf.Tensor:
        """The tokens whose output is computed: all, but for the last layer's."""
        return tokens

    def project(self, tokens: tf.Tensor, *parts: keras.layers.Layer) -> tuple[tf.Tensor, ...]:
        """The tokens that are read; their queries; all keys and values."""
        return tokens, *(dense_layer(tokens, part) for part in parts)

    def attend(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, dropout: keras.layers.Layer, window: int | None = None
    ) -> tf.Tensor:
        """Scaled dot-product attention (Vaswani et al. 2017): `[queries, hidden]`, `[rows x width, hidden]` twice ->
        `[queries, hidden]`."""
        if window in self._blocks:
            own, near, is_long = self._blocks[window]
            query = self._in_blocks(query, own, is_long)
            key, value = (self._in_blocks(part, near, is_long) for part in (key, value))
        else:
            query = self._heads(query, self._queries)
            key, value = self._heads(key, self.rows), self._heads(value, self.rows)
        if self._row is not None:
            key, value = tf.gather(key, self._row), tf.gather(value, self._row)
        heads, size = query.shape[1], query.shape[3]
        scores = tf.matmul(query * tf.constant(size**-0.5, query.dtype), key, transpose_b=True)
        if self._masks[window] is not None:
            scores += self._masks[window]
        probabilities = self.drop(tf.nn.softmax(scores), dropout)
        if self.attentions is not None:
            self.attentions.append(probabilities)
        mixed = tf.transpose(tf.matmul(probabilities, value), [0, 2, 1, 3])
        if window in self._blocks:
            mixed = tf.reshape(mixed, [self.rows, -1, heads * size])[:, : self.width]
        return tf.reshape(mixed, [-1, heads * size])

    def _heads(self, tokens: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """`[rows x width, hidden]` -> `[rows, heads, width, hidden / heads]`."""
        heads = self.config.num_attention_heads
        return tf.transpose(tf.reshape(tokens, [rows, -1, heads, tokens.shape[-1] // heads]), [0, 2, 1, 3])

    def _in_blocks(self, tokens: tf.Tensor, blocks: tf.Tensor, is_long: bool) -> tf.Tensor:
        """`[rows x width, hidden]` -> `[blocks, heads, size, hidden / heads]`."""
        return self._heads(tf.gather(tokens, tf.reshape(blocks, [-1])) if is_long else tokens, tf.shape(blocks)[0])


class Last(Pass):
    """The pass through the last layer, of which only the tokens that are read are computed.

    Attributes:
        shape: Of these, without the last dimension.
    """

    def __init__(self, run: Pass, reads: Reads, window: int | None):
        vars(self).update(vars(run))
        self._masks, self._blocks, self._is_first = {}, {}, isinstance(reads, str)
        places, self._reads = tf.zeros([1, 1], tf.int32) if self._is_first else reads, reads
        mask = self.inputs.get("attention_mask")
        attends = None if mask is None else tf.expand_dims(tf.expand_dims(mask > 0, 1), 1)
        if "example_ids" in self.inputs:
            examples, self._reads = (
                self.inputs["example_ids"],
                self.inputs["cls_positions"] if self._is_first else reads,
            )
            first = self._reads if self._is_first else reads[:, 0]
            self._row, self._queries = first // self.width, tf.shape(first)[0]
            example = tf.gather(tf.reshape(examples, [-1]), first)
            attends = (tf.gather(examples, self._row) == example[:, None])[:, None, None, :]
            places = (self._reads[:, None] if self._is_first else reads) % self.width
        if window is not None:
            near = tf.abs(places[:, None, :, None] - tf.range(self.width)) <= window
            attends = near if attends is None else attends & near
        self.shape = [-1] if self._is_first else [self._queries, -1]
        self._masks[window] = None if attends is None else masked_unless(attends, self.dtype)

    def read(self, tokens: tf.Tensor) -> tf.Tensor:
        """`[rows x width, hidden]` -> `[queries, hidden]`."""
        if self._row is not None:
            return tf.gather(tokens, self._reads if self._is_first else tf.reshape(self._reads, [-1]))
        by_row = tf.reshape(tokens, [self.rows, self.width, tokens.shape[-1]])
        if self._is_first:
            return by_row[:, 0]
        return tf.reshape(tf.gather(by_row, self._reads, batch_dims=1), [-1, tokens.shape[-1]])

    def project(self, tokens: tf.Tensor, *parts: keras.layers.Layer) -> tuple[tf.Tensor, ...]:
        """As for any layer."""
        query, *others = parts
        others = [dense_layer(tokens, part) for part in others]
        read = self.read(tokens)
        return read, dense_layer(read, query), *others
