"""The updates of AdamW and LAMB, whichever Keras the optimizer is of: a variable is decayed and updated in one
XLA-compiled function. And how the learning rate falls.

An update is bound by memory traffic: the plain path makes many passes over weights, moments and gradients; these make a
single pass (LAMB two), which also multiplies by the factor that clips the gradients.

Variables of one shape share what is traced and compiled: BERT-base has 201 variables of ten shapes, and compiling them
all in one function takes seconds. On a GPU all variables are in one function nevertheless, because each call of a
compiled function takes the host's time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

NO_DECAY = ("bias", "LayerNorm", "layer_norm", "beta:0", "gamma:0")
"""Parts of variable names that weight decay leaves alone (Devlin et al. 2019's `optimization.py`)."""


class Now(NamedTuple):
    """What all variables share in an update: float32 `[]`, except `is_finite`, which is bool `[]`.

    Attributes:
        step: Counted from 1.
        rate: The learning rate.
        factor: What gradients are multiplied by.
        is_finite: Whether the gradients are finite; if not, the update is only counted.
    """

    step: tf.Tensor
    rate: tf.Tensor
    factor: tf.Tensor
    is_finite: tf.Tensor


@functools.partial(tf.function, jit_compile=True, autograph=False)
def adamw(params, momentums, velocities, grads, decays, *, betas, epsilon, now):
    """AdamW's update (Loshchilov & Hutter 2019)."""
    # XLA fuses a variable's operations into one pass; TensorFlow's own Adam keeps them few, and tracing short.
    # With rate 0, betas 1 and gradients 0 nothing changes; a branch would be slow to trace.
    rate = tf.where(now.is_finite, now.rate, 0.0)
    adam = functools.partial(
        tf.raw_ops.ResourceApplyAdam,
        beta1_power=tf.pow(betas[0], now.step),
        beta2_power=tf.pow(betas[1], now.step),
        lr=rate,
        beta1=tf.where(now.is_finite, betas[0], 1.0),
        beta2=tf.where(now.is_finite, betas[1], 1.0),
        epsilon=tf.constant(epsilon),
    )
    for p, m, v, g, decay in zip(params, momentums, velocities, grads, decays, strict=True):
        if decay:
            w = _read(p, g.shape)
            _assign(p, w - w * (decay * rate))
        adam(var=p, m=m, v=v, grad=tf.where(now.is_finite, g * now.factor, 0.0))


@functools.partial(tf.function, jit_compile=True, autograph=False)
def lamb(params, momentums, velocities, grads, decays, *, betas, epsilon, now):
    """LAMB's update (You et al. 2020, Algorithm 2): Adam's direction, scaled in each variable to its own length.

    With `u = m / (sqrt(v) + epsilon) + weight_decay x w`, the moments bias-corrected, a variable becomes
    `w - rate x |w| / |u| x u`; the ratio is 1 where either norm is 0. So the rate says what share of its own size a
    variable moves in an update, and batches of tens of thousands train with rates of a few thousandths. A norm needs
    the whole variable first, hence two passes.
    """
    rate = tf.where(now.is_finite, now.rate, 0.0)
    beta_1, beta_2 = (tf.where(now.is_finite, beta, 1.0) for beta in betas)
    correct_1, correct_2 = (1 / (1 - tf.pow(beta, now.step)) for beta in betas)
    for p, m, v, g, decay in zip(params, momentums, velocities, grads, decays, strict=True):
        w, g = _read(p, g.shape), tf.where(now.is_finite, g * now.factor, 0.0)
        first = _read(m, g.shape) * beta_1 + g * (1 - beta_1)
        second = _read(v, g.shape) * beta_2 + g * g * (1 - beta_2)
        _assign(m, first)
        _assign(v, second)
        u = first * correct_1 / (tf.sqrt(second * correct_2) + epsilon)
        if decay:
            u += decay * w
        length, of_update = norm(w), norm(u)
        has_both = tf.logical_and(length > 0, of_update > 0)
        _assign(p, w - rate * tf.where(has_both, length / of_update, 1.0) * u)


def _read(handle: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    return tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32), shape)


def _assign(handle: tf.Tensor, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def takes_all_at_once(device: str) -> bool:
    """Whether a compiled function there should have all variables: on a GPU, where each call takes the host's time."""
    return tf.DeviceSpec.from_string(device).device_type == "GPU"


def global_norm(grads: list[tf.Tensor], scale: tf.Tensor | None, device: str) -> tf.Tensor:
    """The Euclidean norm of gradients of which each is `scale` times too large, float32 `[]`.

    On a GPU in one compiled function: BERT-base's were 276 kernels, half a millisecond of work, for each of which the
    device waited.
    """
    if takes_all_at_once(device):
        return _compiled_norm(grads, scale)
    return tf.linalg.global_norm(grads if scale is None else [grad / scale for grad in grads])


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _compiled_norm(grads: list[tf.Tensor], scale: tf.Tensor | None) -> tf.Tensor:
    return norm(tf.stack([norm(grad if scale is None else grad / scale) for grad in grads]))


def norm(x: tf.Tensor) -> tf.Tensor:
    """The Euclidean norm of all elements, float32 `[]`.

    XLA may add up elements one after the other, and a float32 sum of tens of millions of squares stops growing. So
    only each row is summed in float32; the rows' sums are added in float64.
    """
    squares = tf.square(x)
    rows = tf.reduce_sum(squares, axis=-1) if x.shape.rank > 1 else squares
    return tf.cast(tf.sqrt(tf.reduce_sum(tf.cast(rows, tf.float64))), tf.float32)


AFTER_WARM_UP: dict[str, Callable[[tf.Tensor, float], tf.Tensor]] = {
    "linear": lambda done, power: 1 - done,
    "cosine": lambda done, power: 0.5 * (1 + tf.cos(math.pi * done)),
    "polynomial": lambda done, power: tf.pow(1 - done, power),
    "constant": lambda done, power: tf.ones([]),
}
"""The share of the peak rate, from the share of the updates after the warm-up that are done and the power."""


def share_at_end(schedule: str, power: float) -> float:
    """The share of the peak rate that a schedule falls to."""
    return float(AFTER_WARM_UP[schedule](tf.ones([]), power))
