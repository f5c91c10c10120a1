"""tf_keras's AdamW and LAMB with the updates of `updates`."""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras

from tfbert.step.updates import Now, adamw, lamb, update_replicas


class FusedAdamW(keras.optimizers.AdamW):
    """tf_keras's AdamW that decays and updates a variable in one XLA-compiled function. The numbers are AdamW's."""

    _update = staticmethod(adamw)

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
        step = tf.cast(self.iterations + 1, tf.float32)
        update_replicas(
            distribution,
            self._update,
            [variables, [self._momentums[i] for i in index], [self._velocities[i] for i in index]],
            grads,
            [float(self.weight_decay) * self._use_weight_decay(v) for v in variables],
            now=Now(step, tf.cast(tf.convert_to_tensor(self.learning_rate), tf.float32), factor, is_finite),
            betas=(self.beta_1, self.beta_2),
            epsilon=self.epsilon,
        )
        return self.iterations.assign_add(1)


class FusedLAMB(FusedAdamW):
    """LAMB; see `updates.lamb`."""

    _update = staticmethod(lamb)

    def __init__(self, *, epsilon: float = 1e-6, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)
