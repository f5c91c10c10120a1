"""AdamW and LAMB that decay and update a variable in one XLA-compiled function."""

from __future__ import annotations

import functools
from typing import NamedTuple

import tensorflow as tf
import tf_keras as keras


class _Now(NamedTuple):
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


class FusedAdamW(keras.optimizers.AdamW):
    """tf_keras's AdamW that decays and updates a variable in one XLA-compiled function.

    The numbers are AdamW's. An update is bound by memory traffic: the plain path makes many passes over weights,
    moments and gradients; this one makes a single pass, which also multiplies by the factor that clips the gradients.

    Variables of one shape share what is traced and compiled: BERT-base has 201 variables of ten shapes, and compiling
    them all in one function takes seconds. On a GPU all variables are in one function nevertheless, because each call
    of a compiled function takes the host's time.
    """

    def __init__(self, **kwargs):
        for option in ("amsgrad", "use_ema"):
            if kwargs.get(option):
                name = type(self).__name__
                raise ValueError(
                    f"{name} computes plain {name.removeprefix('Fused')}. Received: {option}={kwargs[option]}. "
                    "Use tf_keras's AdamW."
                )
        super().__init__(jit_compile=False, **kwargs)
        self._given = None

    def apply_scaled(
        self, grads: list[tf.Tensor], variables: list[tf.Variable], factor: tf.Tensor, is_finite: tf.Tensor
    ) -> None:
        """Applies `gradient x factor`, or only counts the update if the gradients are not finite.

        Call it in a replica context, with values that are equal on all replicas.
        """
        # Kept here because Keras passes on only pairs; all replicas meet in one update, so one slot is enough.
        self._given = factor, is_finite
        try:
            self.apply_gradients(zip(grads, variables, strict=True), skip_gradients_aggregation=True)
        finally:
            self._given = None

    def _apply_weight_decay(self, variables) -> None:
        """Nothing: decay is part of the update."""

    def _distributed_apply_gradients_fn(self, distribution, grads_and_vars, **kwargs):
        factor, is_finite = self._given or (tf.ones([]), tf.constant(True))
        grads, variables = zip(*grads_and_vars, strict=True)
        index = [self._index_dict[self._var_key(v)] for v in variables]
        decays = [float(self.weight_decay) * self._use_weight_decay(v) for v in variables]
        state = [variables, [self._momentums[i] for i in index], [self._velocities[i] for i in index]]
        step = tf.cast(self.iterations + 1, tf.float32)
        now = _Now(step, tf.cast(tf.convert_to_tensor(self.learning_rate), tf.float32), factor, is_finite)
        *local, grads = [[distribution.experimental_local_results(item) for item in group] for group in [*state, grads]]
        for replica in range(len(grads[0])):
            # A variable that Keras wraps, as under mixed precision, or that is created while its step is traced, is
            # an unknown object to tf.function: the function would be traced for it alone and capture it, and a later
            # model's call would fail once it is gone. A handle is a tensor, whatever the variable.
            handles = [[item[replica].handle for item in group] for group in local]
            with tf.device(local[0][0][replica].device):
                self._update_all([*handles, [grad[replica] for grad in grads], decays], now)
        return self.iterations.assign_add(1)

    def _update_all(self, groups: list[list], now: _Now) -> None:
        """Updates one replica's variables.

        Args:
            groups: Handles of the variables and of both moments; gradients, with their variables' shapes; decays.
            now: What they share.
        """
        update = functools.partial(self._update, betas=(self.beta_1, self.beta_2), epsilon=self.epsilon, now=now)
        if _takes_all_at_once(groups[0][0].device):
            update(*groups)
            return
        for one in zip(*groups, strict=True):
            update(*([part] for part in one))

    @staticmethod
    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def _update(params, momentums, velocities, grads, decays, *, betas, epsilon, now):
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


class FusedLAMB(FusedAdamW):
    """LAMB (You et al. 2020, Algorithm 2): Adam's direction, scaled in each variable to the variable's own length.

    With `u = m / (sqrt(v) + epsilon) + weight_decay x w`, the moments bias-corrected, a variable becomes
    `w - rate x |w| / |u| x u`; the ratio is 1 where either norm is 0. So the rate says what share of its own size a
    variable moves in an update, and batches of tens of thousands train with rates of a few thousandths.

    A variable is updated in one compiled function, as with AdamW. A norm needs the whole variable first, hence two
    passes.
    """

    def __init__(self, *, epsilon: float = 1e-6, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)

    @staticmethod
    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def _update(params, momentums, velocities, grads, decays, *, betas, epsilon, now):
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


def _takes_all_at_once(device: str) -> bool:
    return tf.DeviceSpec.from_string(device).device_type == "GPU"


def norm(x: tf.Tensor) -> tf.Tensor:
    """The Euclidean norm of all elements, float32 `[]`.

    XLA may add up elements one after the other, and a float32 sum of tens of millions of squares stops growing. So
    only each row is summed in float32; the rows' sums are added in float64.
    """
    squares = tf.square(x)
    rows = tf.reduce_sum(squares, axis=-1) if x.shape.rank > 1 else squares
    return tf.cast(tf.sqrt(tf.reduce_sum(tf.cast(rows, tf.float64))), tf.float32)
