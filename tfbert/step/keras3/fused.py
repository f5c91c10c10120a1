"""AdamW, LAMB and their schedule as objects of Keras 3, with the updates of `updates`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from tfbert.errors import replaced
from tfbert.step import updates
from tfbert.step.updates import AFTER_WARM_UP, NO_DECAY, Now, adamw, lamb


@keras.saving.register_keras_serializable("tfbert")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise from 0, then a linear, cosine or polynomial fall to 0 at `total_steps`, or a constant rate.

    The first update has rate `peak / (warmup_steps + 1)` and the last one the rate one step above 0: no update is
    wasted on a rate of 0.

    Args:
        peak: The highest rate.
        schedule: `linear`, `cosine`, `polynomial` or `constant`.
        warmup_steps: Updates during which the rate rises.
        total_steps: Updates of the whole run.
        power: For a polynomial fall: the rate is the peak times (share of the fall still to come) to this power.
        from_zero: Whether a warm-up begins with an update of rate 0, as transformers' `create_optimizer` has it.

    Raises:
        ValueError: for a schedule of another name, or numbers that are none of updates.

    Example:
        >>> rate = WarmupSchedule(peak=3e-5, schedule="linear", warmup_steps=100, total_steps=1_000)
        >>> model.compile(optimizer=AdamW(rate), loss=...)
    """

    def __init__(
        self,
        *,
        peak: float,
        schedule: str,
        warmup_steps: int,
        total_steps: int,
        power: float = 1.0,
        from_zero: bool = False,
    ):
        if schedule not in AFTER_WARM_UP or warmup_steps < 0 or total_steps < 1:
            rule = f"A schedule is {' or '.join(AFTER_WARM_UP)}, has an update or more, and a warm-up of none or more"
            received = f"schedule={schedule!r}, warmup_steps={warmup_steps}, total_steps={total_steps}"
            raise ValueError(f"{rule}. Received: {received}. Pass such.")
        self.peak, self.schedule, self.warmup_steps, self.total_steps = peak, schedule, warmup_steps, total_steps
        self.power, self.from_zero = power, from_zero

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The rate of the update after `step` updates: float32 `[]`."""
        step = tf.cast(step, tf.float32)
        first = 0 if self.from_zero else 1
        rising = (step + first) / max(1, self.warmup_steps + first)
        done = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        done = tf.clip_by_value(done, 0.0, 1.0)
        falling = AFTER_WARM_UP[self.schedule](done, self.power)
        return self.peak * tf.where(step < self.warmup_steps, rising, falling)

    def get_config(self) -> dict:
        """The constructor's arguments."""
        names = ("peak", "schedule", "warmup_steps", "total_steps", "power", "from_zero")
        return {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable("tfbert")
class AdamW(keras.optimizers.AdamW):
    """Keras's AdamW, whose arguments it takes; each variable is decayed and updated in one XLA-compiled function.

    Repeated rows of a table, such as words that occur twice in a batch, are added up before the gradient is squared.
    (Keras 3's own optimizers square each occurrence by itself, which makes steps for frequent words too large.)

    What `exclude_from_weight_decay(var_names=...)` names is saved with the optimizer. (Keras's own forgets it.)

    Its moments are float32, as the variables must be: "mixed_bfloat16" has such variables, "bfloat16" has not.

    Args:
        no_decay: Patterns of variables' names that weight decay leaves alone, as of `exclude_from_weight_decay`.

    Raises:
        ValueError: for `amsgrad`, and for variables of another type.
    """

    _update = staticmethod(adamw)

    def __init__(
        self, learning_rate=0.001, weight_decay=0.004, *args: Any, no_decay: Sequence[str] = (), **options: Any
    ):
        super().__init__(learning_rate, weight_decay, *args, **options)
        self.exclude_from_weight_decay(var_names=no_decay)
        if self.amsgrad:
            rule = f"{type(self).__name__} computes plain {type(self).__name__}"
            raise ValueError(f"{rule}. Received: amsgrad=True. Use keras.optimizers.AdamW.")
        self._given = None

    def build(self, var_list: list[keras.Variable]) -> None:
        """Creates the moments."""
        for variable in var_list:
            if keras.backend.standardize_dtype(variable.dtype) != "float32":
                raise ValueError(
                    f"{type(self).__name__} updates float32 variables. Received: {variable.name!r} of {variable.dtype}."
                    ' Train under the policy "mixed_bfloat16" or "mixed_float16", or use keras.optimizers.AdamW.'
                )
        super().build(var_list)

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Sequence[str] | None = None) -> None:
        """As Keras's."""
        super().exclude_from_weight_decay(var_list, var_names)
        self._no_decay = tuple(var_names or ())

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {"no_decay": list(self._no_decay)}

    def given(self, factor: tf.Tensor, is_finite: tf.Tensor) -> AbstractContextManager[None]:
        """While active, updates are with `gradient x factor`, or only counted if the gradients are not finite."""
        return replaced(vars(self), _given=(factor, is_finite))

    def apply(self, grads: list[Any], trainable_variables: list[keras.Variable] | None = None) -> None:
        """As Keras's, with dense gradients, in which what several tokens give to one row is added up."""
        dense = [grad if grad is None else tf.convert_to_tensor(grad) for grad in grads]
        super().apply(dense, trainable_variables)

    def _apply_weight_decay(self, variables: list[keras.Variable]) -> None:
        """Nothing: decay is part of the update."""

    def _distributed_tf_update_step(
        self, distribution: tf.distribute.Strategy, grads_and_vars: list, learning_rate: Any
    ) -> None:
        factor, is_finite = self._given or (tf.ones([]), tf.constant(True))
        learning_rate, *_ = distribution.experimental_local_results(learning_rate)  # Of a schedule, one each replica.
        grads, variables = zip(*grads_and_vars, strict=True)
        index = [self._get_variable_index(variable) for variable in variables]
        moments = [[kept[i].value for i in index] for kept in (self._momentums, self._velocities)]
        step = tf.cast(tf.convert_to_tensor(self.iterations) + 1, tf.float32)  # A tensor where Keras accumulates.
        rate = tf.cast(tf.convert_to_tensor(learning_rate), tf.float32)
        decays = [float(self.weight_decay) * self._use_weight_decay(variable) for variable in variables]
        update = functools.partial(
            self._update, betas=(self.beta_1, self.beta_2), epsilon=self.epsilon, now=Now(step, rate, factor, is_finite)
        )
        each = distribution.experimental_local_results
        *local, grads = [[each(item) for item in group] for group in (variables, *moments, grads)]
        for replica in range(len(grads[0])):
            # A variable that Keras wraps, as under mixed precision, or that is created while its step is traced, is
            # an unknown object to tf.function: the function would be traced for it alone and capture it, and a later
            # model's call would fail once it is gone. A handle is a tensor, whatever the variable.
            handles = [[item[replica].handle for item in group] for group in local]
            groups = [*handles, [grad[replica] for grad in grads], decays]
            with tf.device(local[0][0][replica].device):
                if updates.takes_all_at_once(groups[0][0].device):
                    update(*groups)
                    continue
                for one in zip(*groups, strict=True):
                    update(*([part] for part in one))


@keras.saving.register_keras_serializable("tfbert")
class LAMB(AdamW):
    """LAMB; see `updates.lamb`. It takes AdamW's arguments."""

    _update = staticmethod(lamb)

    def __init__(self, learning_rate=0.001, weight_decay=0.004, *args: Any, epsilon: float = 1e-6, **options: Any):
        super().__init__(learning_rate, weight_decay, *args, epsilon=epsilon, **options)


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int,
    *,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-8,
    adam_clipnorm: float | None = None,
    adam_global_clipnorm: float | None = None,
    weight_decay_rate: float = 0.0,
    power: float = 1.0,
) -> tuple[AdamW, WarmupSchedule]:
    """transformers 4's function: AdamW without decay of biases and LayerNorm, and its schedule.

    Args:
        init_lr: The highest rate.
        num_train_steps: Updates of the whole run.
        num_warmup_steps: Updates during which the rate rises from 0.
        adam_beta1: How slowly the mean of the gradients changes.
        adam_beta2: How slowly the mean of their squares changes.
        adam_epsilon: What is added to the divisor.
        adam_clipnorm: Largest norm of a variable's gradient; None for no clipping.
        adam_global_clipnorm: Largest norm of all gradients together; None for no clipping.
        weight_decay_rate: Decoupled.
        power: Of the fall: 1 is linear.
    """
    schedule = WarmupSchedule(
        peak=init_lr,
        schedule="polynomial",
        warmup_steps=num_warmup_steps,
        total_steps=num_train_steps,
        power=power,
        from_zero=True,
    )
    optimizer = AdamW(
        schedule,
        weight_decay_rate,
        beta_1=adam_beta1,
        beta_2=adam_beta2,
        epsilon=adam_epsilon,
        clipnorm=adam_clipnorm,
        global_clipnorm=adam_global_clipnorm,
        no_decay=NO_DECAY,
    )
    return optimizer, schedule
