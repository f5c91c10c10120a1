"""BERT's operations on tokens, with gradients written out where TensorFlow's own take more passes over memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from tfbert.errors import UsageError

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
    out it takes six, and all but the last need no upstream gradient. In float32 the share is (1 + erf) / 2, as in
    PyTorch and in `inference_gelu`, off by 1.5e-7 at most: erfc, which `tf.nn.gelu` takes, is off by 7e-8, but is not
    vectorised on a CPU and takes four times as long. In 16 bits the sum would lose what erfc keeps.

    Args:
        x: Floating `[...]`. In 16 bits, a CPU computes in float32, where its operations are faster, and rounds once.
    """
    is_16_bits_on_cpu = x.dtype.size == 2 and not tf.config.get_visible_devices("GPU")
    wide = tf.cast(x, tf.float32) if is_16_bits_on_cpu else x
    scaled = wide * tf.cast(math.sqrt(0.5), wide.dtype)
    # Not 0.5 * (1 + erf), which the graph optimiser joins: a recomputed layer would have other bits than at first.
    below = 0.5 + 0.5 * tf.math.erf(scaled) if wide.dtype == tf.float32 else 0.5 * tf.math.erfc(-scaled)
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
        raise UsageError(
            f"hidden_act is one of {', '.join(_ACTIVATIONS)}. Received: hidden_act={name!r}. Use another model."
        )
    return _ACTIVATIONS[name]


class Turns(NamedTuple):
    """Cosines and sines of angles, float32 `[tokens, 1, size of a head]`."""

    cosines: tf.Tensor
    sines: tf.Tensor


def turns_of(positions: tf.Tensor, theta: float, size: int) -> Turns:
    """Rotary positions (Su et al. 2021): pairs of numbers, half a head apart, turned by `position / theta^(i/size)`.

    Args:
        positions: int32 `[tokens]`.
        theta: The base.
        size: Of a head.
    """
    speeds = 1.0 / theta ** (tf.range(0, size, 2, tf.float32) / size)
    angles = tf.cast(positions, tf.float32)[:, None] * speeds
    angles = tf.concat([angles, angles], axis=1)[:, None]
    return Turns(tf.cos(angles), tf.sin(angles))


def turned(x: tf.Tensor, turns: Turns) -> tf.Tensor:
    """Queries or keys, turned in float32: `[tokens, heads x size]` -> the same."""
    heads = tf.reshape(tf.cast(x, tf.float32), [tf.shape(x)[0], -1, turns.cosines.shape[-1]])
    one, other = tf.split(heads, 2, axis=-1)
    heads = heads * turns.cosines + tf.concat([-other, one], axis=-1) * turns.sines
    return tf.cast(tf.reshape(heads, [-1, x.shape[-1]]), x.dtype)


def positions_after(
    pad: int, ids: tf.Tensor | None, embeddings: tf.Tensor | None, within: tf.Tensor | None
) -> tf.Tensor:
    """Positions that begin after the padding token's number, and at which padding tokens are not counted.

    Args:
        pad: The padding token, whose own position it is.
        ids: int32 `[rows, width]`; None where there are embeddings alone, of which all are counted.
        embeddings: `[rows, width, size]`.
        within: For packed rows, places within the examples, from 0.
    """
    if ids is None:
        return pad + 1 + tf.broadcast_to(tf.range(tf.shape(embeddings)[1]), tf.shape(embeddings)[:2])
    counts = tf.cast(tf.not_equal(ids, pad), tf.int32)
    so_far = tf.cumsum(counts, axis=1)
    if within is not None:
        starts = tf.range(tf.shape(ids)[1]) - within
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
