"""The arithmetic that encoders are written in, over plain or packed rows (in the last layer, of what is read alone),
with gradients written out where TensorFlow's own take more passes over memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import tensorflow as tf

from tfbert.errors import UsageError
from tfbert.model.encoders import encoder_of

if TYPE_CHECKING:
    import keras


def dense(x: tf.Tensor, kernel: tf.Variable, bias: tf.Variable | None) -> tf.Tensor:
    """A dense layer in the precision of its input: `[rows, in]` -> `[rows, out]`."""
    return add_bias(tf.matmul(x, tf.cast(kernel, x.dtype)), bias)


def dense_layer(x: tf.Tensor, layer: keras.layers.Dense) -> tf.Tensor:
    """`dense` of a layer. The product of a low-rank update with a frozen kernel, or its gradient, is never made."""
    if (fixed := getattr(layer, "fixed_kernel", None)) is not None:  # For predictions in bfloat16: see `fix_kernels`.
        product = tf.matmul(x, tf.cast(fixed, x.dtype))
        return product if layer.bias is None else tf.nn.bias_add(product, tf.cast(layer.bias, x.dtype))
    if not getattr(layer, "lora_enabled", False):  # tf_keras has none.
        return dense(x, layer.kernel, layer.bias)
    low = tf.matmul(x, tf.cast(layer.lora_kernel_a, x.dtype)) * tf.cast(layer.lora_alpha / layer.lora_rank, x.dtype)
    update = tf.matmul(low, tf.cast(layer.lora_kernel_b, x.dtype))
    return dense(x, layer.base_kernel, layer.bias) + update


def add_bias(x: tf.Tensor, bias: tf.Variable | None) -> tf.Tensor:
    """Adds a bias, if there is one, to every row: `[rows, size]` and `[size]` -> `[rows, size]`.

    The gradient of a bias of 16 bits is a product with ones, which every device sums in float32: TensorFlow itself sums
    it in bfloat16 on a CPU, where 256 + 1 is 256, so that 4,096 rows of ones make 256, and in float16 on a GPU, for
    more than half of an update's time (`benchmarks/results/2026-11-27-gpu.md`).
    """
    if bias is None:
        return x
    bias = tf.cast(bias, x.dtype)
    return _add_bias_of_16_bits(x, bias) if x.dtype.size == 2 else tf.nn.bias_add(x, bias)


@tf.custom_gradient
def _add_bias_of_16_bits(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # In few operations, as TensorFlow takes longer to start for each.
        ones = tf.fill([1, tf.size(upstream) // upstream.shape[-1]], tf.ones([], upstream.dtype))
        return upstream, tf.reshape(tf.matmul(ones, upstream), [-1])

    # In another shape, so that the graph optimiser does not join product and bias: what oneDNN has for both together
    # in bfloat16 does not use a CPU's matrix unit (AMX) well, and takes up to 1.5 times as long there.
    size = x.shape[-1]
    return tf.reshape(tf.nn.bias_add(tf.reshape(x, [-1, 1, size]), bias), [-1, size]), gradient


@tf.custom_gradient
def gelu(x: tf.Tensor) -> tf.Tensor:
    """x times the normal distribution's share below x (Hendrycks & Gimpel 2016), exact rather than by tanh.

    TensorFlow's own backward pass takes eleven element-wise operations over the widest activation of a layer; written
    out it takes six, and all but the last need no upstream gradient. The share is (1 + erf) / 2, as in PyTorch and in
    `inference_gelu`, in float32 off by 1.5e-7 at most: erfc, which `tf.nn.gelu` takes, is off by 7e-8, but is not
    vectorised on a CPU and takes four times as long.

    Args:
        x: Floating `[...]`. Of 16 bits, computed in float32 and rounded once: as PyTorch does, and faster on a CPU.
    """
    wide = tf.cast(x, tf.float32) if x.dtype.size == 2 else x
    scaled = wide * tf.cast(math.sqrt(0.5), wide.dtype)
    # Not 0.5 * (1 + erf), which the graph optimiser joins: a recomputed layer would have other bits than at first.
    below = 0.5 + 0.5 * tf.math.erf(scaled)
    density = tf.exp(tf.cast(-0.5 * math.log(2 * math.pi), wide.dtype) - tf.square(scaled))
    slope = tf.cast(below + wide * density, x.dtype)
    return tf.cast(wide * below, x.dtype), lambda upstream: upstream * slope


def inference_gelu(x: tf.Tensor) -> tf.Tensor:
    """`gelu` in the form that others know: TensorFlow's graph optimiser, which on a CPU makes one oneDNN operation of
    it with the product and the bias before it, and TFLite's converter, which knows no other way to compute erf.

    In bfloat16 only where the optimiser does that: else 1 + erf(x) would lose what erfc(-x) keeps.

    Args:
        x: Floating `[...]`.
    """
    is_product = x.dtype == tf.bfloat16 and tf.is_symbolic_tensor(x) and x.op.type == "BiasAdd"
    return _erf_gelu(x) if x.dtype == tf.float32 or (is_product and _joins_gelu()) else gelu(x)


def _erf_gelu(x: tf.Tensor) -> tf.Tensor:
    return (0.5 * x) * (1.0 + tf.math.erf(x * tf.cast(math.sqrt(0.5), x.dtype)))


@functools.cache
def _joins_gelu() -> bool:
    """Whether product, bias and GELU are one operation in bfloat16 here: by the value at -2.5, 6% off where they are
    not."""
    with tf.init_scope():
        kernel, bias = tf.eye(16, dtype=tf.bfloat16), tf.zeros([16], tf.bfloat16)
        joined = tf.function(lambda x: _erf_gelu(tf.nn.bias_add(tf.matmul(x, kernel), bias)), autograph=False)
        return abs(float(joined(kernel * -2.5)[0, 0]) + 0.015524) < 1e-4


_ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": gelu,
    "gelu_10": lambda x: tf.clip_by_value(gelu(x), -10.0, 10.0),
    "quick_gelu": lambda x: x * tf.sigmoid(1.702 * x),
    "mish": lambda x: x * tf.tanh(tf.math.softplus(x)),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
}
_ACTIVATIONS |= dict.fromkeys(("silu", "swish"), tf.nn.silu)
_ACTIVATIONS |= dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), lambda x: tf.nn.gelu(x, approximate=True))


def activation(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function by the name that `config.json` gives it.

    Raises:
        UsageError: for one that is not here.
    """
    if name not in _ACTIVATIONS:
        rule = f"hidden_act is one of {', '.join(_ACTIVATIONS)}"
        raise UsageError(f"{rule}. Received: hidden_act={name!r}. Use another model.")
    return _ACTIVATIONS[name]


def positions_of(config: Any, inputs: dict[str, Any]) -> tf.Tensor | None:
    """The positions of the tokens; None for 0, 1, ... in each row.

    Those of a RoBERTa begin after the padding token's number, which is the position of padding tokens: these are not
    counted, but where there are embeddings alone.

    Args:
        config: The model's.
        inputs: A batch's; `position_ids` of packed rows are places within the examples, from 0.
    """
    given, ids, pad = inputs.get("position_ids"), inputs.get("input_ids"), config.pad_token_id
    if not encoder_of(config.model_type).COUNTS_FROM_PAD or (given is not None and "example_ids" not in inputs):
        return given
    if ids is None:
        shape = tf.shape(inputs["inputs_embeds"])[:2]
        return pad + 1 + tf.broadcast_to(tf.range(shape[1]), shape)
    counts = tf.cast(tf.not_equal(ids, pad), tf.int32)
    so_far = tf.cumsum(counts, axis=1)
    if given is not None:
        starts = tf.range(tf.shape(ids)[1]) - given
        so_far -= tf.gather(so_far - counts, starts, batch_dims=1)
    return so_far * counts + pad


def norm_layer(x: tf.Tensor, layer: keras.layers.LayerNormalization) -> tf.Tensor:
    """`layer_norm` of a layer: `[rows, size]` -> the same."""
    beta = tf.zeros_like(layer.gamma) if layer.beta is None else layer.beta
    return layer_norm(x, layer.gamma, beta, layer.epsilon)


def layer_norm(x: tf.Tensor, gamma: tf.Variable, beta: tf.Variable, epsilon: float) -> tf.Tensor:
    """Layer normalisation (Ba et al. 2016) over the last dimension, in float32 whatever the input's precision.

    Args:
        x: Floating `[rows, size]`.
        gamma: `[size]`.
        beta: `[size]`.
        epsilon: Added to the variance.

    Returns:
        A tensor like `x`.
    """

    @tf.custom_gradient
    def normalise(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True) + epsilon)
        normal = centred * inverse

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scaled = upstream * gamma
            along = tf.reduce_mean(scaled * normal, axis=-1, keepdims=True)
            to_x = inverse * (scaled - tf.reduce_mean(scaled, axis=-1, keepdims=True) - normal * along)
            return to_x, tf.reduce_sum(upstream * normal, axis=0), tf.reduce_sum(upstream, axis=0)

        return normal * gamma + beta, gradient

    parts = (tf.cast(tensor, tf.float32) for tensor in (x, gamma, beta))
    return tf.cast(normalise(*parts), x.dtype)


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

    What is added to attention's scores is computed here, before the layers, as they share it.

    Args:
        config: The model's.
        inputs: The batch.
        hidden: Its embeddings.
        training: Whether dropout is on.
        windows: How far away a token may be that another attends to, in each layer.
        attentions: Gets each layer's shares of attention.

    Attributes:
        shared: What the encoder's layers have in common.
    """

    def __init__(
        self,
        config: Any,
        inputs: dict[str, tf.Tensor],
        hidden: tf.Tensor,
        training: bool | None,
        windows: Iterable[int | None] = (None,),
        attentions: list[tf.Tensor] | None = None,
    ):
        super().__init__(config, training)
        self.inputs, self.dtype, self.rows, self.width = inputs, hidden.dtype, *tf.unstack(tf.shape(hidden)[:2])
        self._queries, self._row, self._known_width = self.rows, None, hidden.shape[1] or 0
        self._masks: dict[int | None, tf.Tensor | None] = {}
        self._blocks: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}
        self.attentions = attentions
        self.shared: Any = None
        examples, mask = inputs.get("example_ids"), inputs.get("attention_mask")
        for window in {*windows}:
            keys = queries = mask if examples is None else examples
            near = None if window is None else self._add_blocks(window)
            if window in self._blocks:
                marks = tf.ones([self.rows * self.width], tf.int32) if keys is None else tf.reshape(keys, [-1])
                queries, keys = (tf.gather(marks, block) for block in self._blocks[window])
            attends = None if keys is None else tf.expand_dims(tf.expand_dims(keys > 0, 1), 1)
            if examples is not None:
                # Places without a token attend to each other: with nothing to attend to, softmax is undefined.
                attends = queries[:, None, :, None] == keys[:, None, None, :]
            if near is not None:
                attends = near if attends is None else attends & near
            self._masks[window] = None if attends is None else masked_unless(attends, self.dtype)

    def _add_blocks(self, window: int) -> tf.Tensor:
        """Cuts rows into blocks of neighbouring tokens, which attend to their block and to some on either side of it;
        not where they are short, or where all shares of attention are kept, or where the graph does not know their
        width: copying short rows costs more than it saves, and XLA takes no `tf.cond` of two shapes.

        Keeps the tokens of each block and those that it attends to, int32 `[rows x blocks, size or window + size +
        window]`, in place of those beyond a row's ends its last ones; returns which of both are near each other.
        """
        size = max(2 * window, 1)
        if self.attentions is not None or self._known_width <= 2 * size:
            places = tf.range(self.width)
            return tf.abs(places[:, None] - places) <= window
        within, around = tf.range(size), tf.range(-window, size + window)
        count = -(-self.width // size)
        places = tf.tile(tf.range(count) * size, [self.rows])[:, None]
        first = tf.repeat(tf.range(self.rows) * self.width, count)[:, None]
        last = self.width - 1
        own, near = (first + tf.clip_by_value(places + each, 0, last) for each in (within, around))
        self._blocks[window] = own, near
        is_there = (places + around >= 0) & (places + around <= last)
        return is_there[:, None, None] & (tf.abs(within[:, None] - around) <= window)

    def turns(self, theta: float) -> tuple[tf.Tensor, tf.Tensor]:
        """Rotary positions (Su et al. 2021): pairs of numbers of a query or key, half a head apart, are turned by
        `position / theta^(i/size)`. Cosines and sines of these angles, float32 `[rows x width, 1, size]`."""
        size, positions = self.config.hidden_size // self.config.num_attention_heads, self.inputs.get("position_ids")
        positions = tf.range(self.width)[None] if positions is None else positions
        positions = tf.reshape(tf.broadcast_to(positions, [self.rows, self.width]), [-1])
        speeds = 1.0 / theta ** (tf.range(0, size, 2, tf.float32) / size)
        angles = tf.cast(positions, tf.float32)[:, None] * speeds
        angles = tf.concat([angles, angles], axis=1)[:, None]
        return tf.cos(angles), tf.sin(angles)

    def turned(self, x: tf.Tensor, turns: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Queries or keys, turned in float32: `[rows x width, hidden]` -> the same."""
        cosines, sines = turns
        heads = tf.reshape(tf.cast(x, tf.float32), [tf.shape(x)[0], -1, cosines.shape[-1]])
        one, other = tf.split(heads, 2, axis=-1)
        heads = heads * cosines + tf.concat([-other, one], axis=-1) * sines
        return tf.cast(tf.reshape(heads, [-1, x.shape[-1]]), x.dtype)

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
            own, near = self._blocks[window]
            query, key, value = self._in_blocks(query, own), self._in_blocks(key, near), self._in_blocks(value, near)
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

    def _in_blocks(self, tokens: tf.Tensor, blocks: tf.Tensor) -> tf.Tensor:
        """`[rows x width, hidden]` -> `[blocks, heads, size, hidden / heads]`."""
        return self._heads(tf.gather(tokens, tf.reshape(blocks, [-1])), tf.shape(blocks)[0])


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
