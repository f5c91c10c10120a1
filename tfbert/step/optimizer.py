"""The optimizer a run uses: AdamW with decay groups, and its learning-rate schedule in optimizer steps."""

from __future__ import annotations

import functools
import math

import tensorflow as tf
import tf_keras as keras

NO_DECAY = ("bias", "LayerNorm", "layer_norm", "beta:0", "gamma:0")
"""Parts of variable names that weight decay leaves alone (Devlin et al. 2019's `optimization.py`)."""


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise from 0, then a linear or cosine fall to 0 at `total_steps`, or a constant rate.

    The first update has rate `peak / warmup_steps`, the last one the rate one step above 0: no update is wasted on a
    rate of 0.

    Args:
        peak: The highest rate.
        schedule: `linear`, `cosine` or `constant`.
        warmup_steps: Updates that rise.
        total_steps: Updates of the whole run.
    """

    def __init__(self, *, peak: float, schedule: str, warmup_steps: int, total_steps: int):
        self.peak, self.schedule, self.warmup_steps, self.total_steps = peak, schedule, warmup_steps, total_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The rate of the update after `step` updates: float32 `[]`."""
        step = tf.cast(step, tf.float32)
        rising = (step + 1) / max(1, self.warmup_steps + 1)
        done = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        done = tf.clip_by_value(done, 0.0, 1.0)
        if self.schedule == "linear":
            falling = 1 - done
        elif self.schedule == "cosine":
            falling = 0.5 * (1 + tf.cos(math.pi * done))
        else:
            falling = tf.ones([])
        return self.peak * tf.where(step < self.warmup_steps, rising, falling)

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {
            "peak": self.peak,
            "schedule": self.schedule,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }


def build_optimizer(rate: WarmupSchedule, *, weight_decay: float) -> keras.optimizers.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) as BERT is fine-tuned: no decay on biases and LayerNorm; create it in scope.

    Args:
        rate: The learning rate of each update.
        weight_decay: Decoupled, for all other variables.

    Returns:
        A tf_keras optimizer that neither clips nor scales losses: `FineTuner` does.
    """
    optimizer = FusedAdamW(learning_rate=rate, weight_decay=weight_decay, epsilon=1e-8)
    optimizer.exclude_from_weight_decay(var_names=list(NO_DECAY))
    return optimizer


class FusedAdamW(keras.optimizers.AdamW):
    """tf_keras's AdamW with decay and update of all variables in one XLA-compiled function.

    The numbers are AdamW's. An update is bound by memory traffic: the plain path makes many passes over weights,
    moments and gradients, this one a single pass, which also takes in the factor that clips the gradients.
    """

    def __init__(self, **kwargs):
        for option in ("amsgrad", "use_ema"):
            if kwargs.get(option):
                raise ValueError(
                    f"FusedAdamW computes plain AdamW. Received: {option}={kwargs[option]}. Use tf_keras's AdamW."
                )
        super().__init__(jit_compile=False, **kwargs)
        self._given = None
        self._compiled = {}

    def apply_scaled(
        self, grads: list[tf.Tensor], variables: list[tf.Variable], factor: tf.Tensor, is_finite: tf.Tensor
    ) -> None:
        """Applies `gradient x factor`, or only counts the update where it is not finite.

        Call it in a replica context, with values that are equal on all replicas.
        """
        # Kept aside because Keras passes on nothing but pairs; all replicas meet in one update, so one slot is enough.
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
        groups = [variables, [self._momentums[i] for i in index], [self._velocities[i] for i in index], grads]
        step = tf.cast(self.iterations + 1, tf.float32)
        rate = tf.cast(self.learning_rate, tf.float32)
        local = [[distribution.experimental_local_results(item) for item in group] for group in groups]
        for replica in range(len(local[0][0])):
            params, momentums, velocities, share = ([item[replica] for item in group] for group in local)
            with tf.device(params[0].device):
                update = self._compiled_update(params, momentums, velocities, decays)
                update(share, rate, factor, step, is_finite)
        return self.iterations.assign_add(1)

    def _compiled_update(self, params, momentums, velocities, decays):
        """The update of one replica's variables as an XLA function of (gradients, rate, factor, step, is_finite)."""
        key = tuple(id(p) for p in params)
        if key in self._compiled:
            return self._compiled[key]

        @tf.function(jit_compile=True, autograph=False)
        def update(grads, rate, factor, step, is_finite):
            # XLA makes one pass of a variable's operations; TensorFlow's own Adam keeps them few, and tracing short.
            # With rate 0, betas 1 and gradients 0 it changes no value; a branch would be slow to trace.
            rate = tf.where(is_finite, rate, 0.0)
            adam = functools.partial(
                tf.raw_ops.ResourceApplyAdam,
                beta1_power=tf.pow(self.beta_1, step),
                beta2_power=tf.pow(self.beta_2, step),
                lr=rate,
                beta1=tf.where(is_finite, self.beta_1, 1.0),
                beta2=tf.where(is_finite, self.beta_2, 1.0),
                epsilon=tf.constant(self.epsilon),
            )
            for p, m, v, decay, g in zip(params, momentums, velocities, decays, grads, strict=True):
                if decay:
                    p.assign(p - p * (decay * rate))
                adam(var=p.handle, m=m.handle, v=v.handle, grad=tf.where(is_finite, g * factor, 0.0))

        self._compiled[key] = update
        return update


def scaled(optimizer: keras.optimizers.Optimizer, loss: tf.Tensor) -> tf.Tensor:
    """The loss times the loss scale of a `LossScaleOptimizer`; unchanged for any other optimizer."""
    return optimizer.get_scaled_loss(loss) if _scales(optimizer) else loss


def unscaled(optimizer: keras.optimizers.Optimizer, grads: list[tf.Tensor]) -> list[tf.Tensor]:
    """Gradients of the loss from gradients of the scaled loss."""
    return optimizer.get_unscaled_gradients(grads) if _scales(optimizer) else grads


def _scales(optimizer: keras.optimizers.Optimizer) -> bool:
    return isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer)


def apply_if_finite(
    optimizer: keras.optimizers.Optimizer,
    grads: list[tf.Tensor],
    variables: list[tf.Variable],
    factor: tf.Tensor,
    is_finite: tf.Tensor,
) -> None:
    """One update with `gradient x factor`, or none where the gradients are not finite; `iterations` counts both.

    Call it in a replica context with values that are equal on all replicas.

    Args:
        optimizer: Any tf_keras optimizer; a dynamic `LossScaleOptimizer` also adapts its scale.
        grads: float32, summed over replicas, unscaled.
        variables: What to update.
        factor: float32 `[]`, for clipping.
        is_finite: bool `[]`.
    """
    if _scales(optimizer) and optimizer.dynamic:
        # It looks for non-finite gradients itself, skips on all replicas together and adapts its scale. A norm may
        # overflow where no gradient does: NaN makes it skip then as well.
        factor = tf.where(is_finite, factor, math.nan)
        clipped = [g * factor for g in grads]
        optimizer.apply_gradients(zip(clipped, variables, strict=True), skip_gradients_aggregation=True)
        return
    if _scales(optimizer):  # A fixed scale: it would look at nothing.
        optimizer = optimizer.inner_optimizer
    with tf.init_scope():
        optimizer.build(variables)
    if isinstance(optimizer, FusedAdamW):
        optimizer.apply_scaled(grads, variables, factor, is_finite)
        return

    def apply(grads, factor):
        clipped = [g * factor for g in grads]
        optimizer.apply_gradients(zip(clipped, variables, strict=True), skip_gradients_aggregation=True)

    def skip():
        optimizer.iterations.assign_add(1, read_value=False)

    # An update meets the other replicas, which TensorFlow allows in no branch of a replica: branch, then fan out.
    def meet(strategy, grads, factor, is_finite):
        def apply_everywhere():
            strategy.extended.call_for_each_replica(apply, args=(grads, factor))

        decision = strategy.experimental_local_results(is_finite)[0]
        tf.cond(decision, lambda: _nothing(apply_everywhere()), lambda: _nothing(skip()))

    tf.distribute.get_replica_context().merge_call(meet, args=(grads, factor, is_finite))


def _nothing(_) -> tf.Tensor:
    """Both branches of a `tf.cond` must return the same."""
    return tf.constant(0)
