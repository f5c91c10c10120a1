"""`KerasParts` of Keras 3; and any optimizer of it, given the gradients of the global batch: applied on all replicas
together, or on none.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfbert.private import layers_of, rate_of
from tfbert.step import refusals
from tfbert.step.keras3 import private
from tfbert.step.keras3.dropout import KeyedRandom
from tfbert.step.keras3.fused import LAMB, AdamW
from tfbert.step.keras3.private import summed_already
from tfbert.step.parts import KerasParts
from tfbert.step.terms import Total


def inner_of(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer that a `LossScaleOptimizer` is around; any other is its own."""
    return optimizer.inner_optimizer if _adapts(optimizer) else optimizer


def scale_of(optimizer: keras.optimizers.Optimizer) -> Any:
    """What `optimizer.scale_loss` multiplies by; None for nothing."""
    return optimizer.dynamic_scale.value if _adapts(optimizer) else optimizer.loss_scale_factor


def _adapts(optimizer: keras.optimizers.Optimizer) -> bool:
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def apply_if_finite(
    optimizer: keras.optimizers.Optimizer,
    grads: list[tf.Tensor],
    variables: list[keras.Variable],
    factor: tf.Tensor,
    is_finite: tf.Tensor,
) -> None:
    """One update with `gradient x factor`, or none if the gradients are not finite; `iterations` counts either.

    Call it in a replica context, with values that are equal on all replicas. A `LossScaleOptimizer` adapts its scale.

    Args:
        optimizer: Built for these variables, and perhaps others.
        grads: float32, summed over replicas.
        variables: What to update.
        factor: float32 `[]`, which takes the loss scale back and clips.
        is_finite: bool `[]`.
    """
    inner = inner_of(optimizer)

    def apply(grads: list[tf.Tensor], factor: tf.Tensor | None) -> None:
        clipped = grads if factor is None else [grad * factor for grad in grads]
        if inner is optimizer:
            optimizer.apply_gradients(list(zip(clipped, variables, strict=True)))
        else:  # As LossScaleOptimizer does.
            inner.apply(clipped, variables)

    def fused(strategy, grads, factor, is_finite):
        # Skipping and clipping are parts of the update: no branch, and no pass of their own.
        with summed_already(inner), inner.given(factor, is_finite):
            strategy.extended.call_for_each_replica(apply, args=(grads, None))

    # An update meets the other replicas. TensorFlow allows that in no branch of a replica: branch first, then fan out.
    def branched(strategy, grads, factor, is_finite):
        def step() -> tf.Tensor:
            with summed_already(inner):
                strategy.extended.call_for_each_replica(apply, args=(grads, factor))
            return tf.constant(0)

        def skip() -> tf.Tensor:
            inner.iterations.assign_add(1)
            return tf.constant(0)

        tf.cond(is_finite, step, skip)

    def meet(strategy, grads, factor, is_finite):
        factor, is_finite = (strategy.experimental_local_results(each)[0] for each in (factor, is_finite))
        # A class derived from these may look at the gradients: it gets them clipped.
        is_fused = type(inner) in (AdamW, LAMB) and not inner.changes_gradients
        (fused if is_fused else branched)(strategy, grads, factor, is_finite)
        if _adapts(optimizer):
            _adapt(optimizer, is_finite)

    tf.distribute.get_replica_context().merge_call(meet, args=(grads, factor, is_finite))


def _adapt(optimizer: keras.optimizers.LossScaleOptimizer, is_finite: tf.Tensor) -> None:
    """Doubles the scale after a number of finite updates in a row, and halves it after another."""
    count, scale = tf.identity(optimizer.step_counter.value), tf.identity(optimizer.dynamic_scale.value)
    is_due = tf.equal(count, optimizer.dynamic_growth_steps - 1)
    doubled = scale * 2.0  # Infinite at last where nothing overflows, from where no update would be finite.
    grown = tf.where(is_due & tf.math.is_finite(doubled), doubled, scale)
    # As tf_keras does, not below 1; Keras 3 goes on towards 0, from where it takes long to come back.
    halved = tf.minimum(scale, tf.maximum(scale * 0.5, 1.0))
    optimizer.dynamic_scale.assign(tf.where(is_finite, grown, halved))
    optimizer.step_counter.assign(tf.where(is_due | ~is_finite, tf.zeros_like(count), count + 1))


_OTHER_STRATEGIES = (
    tf.distribute.TPUStrategy,
    tf.distribute.experimental.ParameterServerStrategy,
    tf.distribute.ParameterServerStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
)


class _Total(Total, keras.metrics.Metric):
    """See `Total`."""

    keras = keras


class Keras3Parts(KerasParts):
    """See `KerasParts`."""

    keras = keras
    # What KerasHub's tasks make of `compile`, `fit`, `evaluate` and `predict` is done here too.
    libraries = frozenset({"keras", "keras_hub", "keras_nlp", "tensorflow", "tfbert"})
    of_steps = libraries - {"keras_hub", "keras_nlp"}
    of_optimizers = ("scale_loss", "stateless_apply")
    of_losses = ("__call__",)
    other = "tf_keras"
    foreign = (
        "The model is one of Keras 3, and takes objects of Keras 3. "
        "Received: {argument}={name} of tf_keras. Write `import keras` and use its objects. "
        "(`tf.keras` is tf_keras where TF_USE_LEGACY_KERAS=1.)"
    )
    no_model = "Build one of its layers"
    means = ("sum_over_batch_size", "mean", "none", None)
    without_xla = {"jit_compile": False}
    as_without_xla = (None, False, "auto")
    compiled_loss = "_compile_loss"
    normalization = keras.layers.BatchNormalization
    averages = ("moving_mean", "moving_variance", "moving_stddev", "renorm_mean", "renorm_stddev")
    refuses_draws = True
    Total = _Total
    keyed = KeyedRandom
    strategy_of = staticmethod(private.strategy_of)
    outputs_of = staticmethod(private.outputs_of)
    scale_of = staticmethod(scale_of)
    apply = staticmethod(apply_if_finite)

    def wrap(self, tuner: Any) -> None:
        private.take_as_they_are(tuner)
        tuner.built = tuner.model.built

    def created(self, model: keras.Model) -> list[tf.Variable]:
        return [variable.value for variable in model.variables]

    def value_of(self, variable: keras.Variable) -> tf.Variable:
        return variable.value

    def serialized(self, model: keras.Model) -> dict[str, Any]:
        config, kind = super().serialized(model), type(model)
        if kind.compile is not keras.Model.compile and kind.compile_from_config is keras.Model.compile_from_config:
            # Of such a model, as KerasHub's tasks are, Keras does not use it, and warns.
            config.pop("compile_config", None)
        return config

    def loss_of(self, identifier: Any) -> Any:
        # Which loss a name is may depend on the shapes of what it compares.
        return identifier

    def loss_values(self, loss: Any, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        made = private.loss_of(loss, labels, predictions)
        # As Loss.__call__ does.
        labels, predictions = (keras.ops.convert_to_tensor(each, dtype=made.dtype) for each in (labels, predictions))
        return made.call(labels, predictions)

    def gives_axis(self, predictions: tf.Tensor) -> bool:
        return predictions.shape[-1] == 1

    def loss_for(self, model: keras.Model) -> str:
        return "a Keras loss, such as keras.losses.SparseCategoricalCrossentropy(from_logits=True)"

    def num_updates(self, optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
        return tf.cast(inner_of(optimizer).iterations.value, tf.int64)

    def scaled(self, optimizer: keras.optimizers.Optimizer, loss: tf.Tensor) -> tf.Tensor:
        return optimizer.scale_loss(loss)

    def check_model(self, model: keras.Model) -> None:
        """Raises ValueError for another backend than TensorFlow, a strategy that is not tried, and layers of tf_keras
        within the model."""
        if keras.config.backend() != "tensorflow":
            raise ValueError(
                "FineTuner trains with TensorFlow. "
                f"Received: a model of Keras 3 with the backend {keras.config.backend()!r}. "
                'Set os.environ["KERAS_BACKEND"] = "tensorflow" before keras is imported.'
            )
        if isinstance(tf.distribute.get_strategy(), _OTHER_STRATEGIES):
            raise ValueError(
                "FineTuner trains on one device, with MirroredStrategy or MultiWorkerMirroredStrategy. "
                f"Received: {type(tf.distribute.get_strategy()).__name__}. Use one of these."
            )
        for layer in layers_of(model):
            for name, value in vars(layer).items():
                if name.startswith("_self_"):  # TensorFlow's own lists of what the others hold.
                    continue
                for each in _within(value):
                    if isinstance(each, tf.Module) and refusals.is_of("tf_keras", each):
                        raise ValueError(
                            "Keras 3 does not train layers of tf_keras within a model. "
                            f"Received: {type(each).__name__} of tf_keras as {type(layer).__name__}.{name}. Use a "
                            "layer of Keras 3, or build the whole model with tf_keras."
                        )

    def check_optimizer(self, optimizer: Any, strategy: tf.distribute.Strategy) -> None:
        if isinstance(optimizer, str) and optimizer == "auto":
            raise ValueError(
                'FineTuner needs an optimizer. Received: optimizer="auto". Pass keras.optimizers.AdamW(3e-5).'
            )
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            return  # Keras makes one of its name, or says what is wrong.
        inner = inner_of(optimizer)
        if optimizer is not inner:
            refusals.check_wrapper(optimizer, ("apply", "apply_gradients"), self)
        for each in (optimizer, inner):
            refusals.check_own_optimizer(each, self)
            refusals.check_keras("learning_rate", rate_of(each), self)
            if each.gradient_accumulation_steps:
                raise ValueError(
                    "FineTuner accumulates gradients within a step, which then is one update. "
                    f"Received: an optimizer with gradient_accumulation_steps={each.gradient_accumulation_steps}. "
                    f"Pass FineTuner(gradient_accumulation_steps={each.gradient_accumulation_steps}) and batches that "
                    "many times as large instead."
                )
            made_under = private.strategy_of(each)
            if made_under is not strategy and self.needs_scope(made_under, strategy):
                raise ValueError(
                    "An optimizer's variables belong to the strategy in whose scope it was created. "
                    f"Received: an optimizer created under {type(made_under).__name__}, and a model under "
                    f"{type(strategy).__name__}. Create it in the same `with strategy.scope():`."
                )


def _within(value: Any) -> list[Any]:
    """What is in a list, a tuple or a dictionary; anything else itself."""
    if isinstance(value, dict):  # Not Mapping: asking an abstract class of each layer's values takes half a second.
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else [value]


PARTS = Keras3Parts()
