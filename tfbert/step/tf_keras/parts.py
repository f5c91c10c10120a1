"""`KerasParts` of tf_keras."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.private import layers_of
from tfbert.step import refusals
from tfbert.step.parts import KerasParts
from tfbert.step.terms import Total
from tfbert.step.tf_keras.dropout import KeyedDropout
from tfbert.step.tf_keras.optimizer import apply_if_finite, scaled, unscaled
from tfbert.step.tf_keras.private import decayed_names


@keras.saving.register_keras_serializable("tfbert")  # So that a saved FineTuner finds it.
class _Total(Total, keras.metrics.Metric):
    """See `Total`."""

    keras = keras


class TFKerasParts(KerasParts):
    """See `KerasParts`."""

    keras = keras
    libraries = of_steps = frozenset({"tf_keras", "tensorflow", "transformers", "tfbert"})
    of_optimizers = ("minimize", "compute_gradients", "aggregate_gradients")
    of_losses = ("__call__", "_get_reduction")
    other = "keras"
    foreign = (
        "FineTuner works with tf_keras (Keras 2) objects. Received: {argument}={name} of Keras 3. "
        "Write `import tf_keras as keras` and use its objects."
    )
    no_model = "Build it with `import tf_keras`"
    means = (keras.losses.Reduction.AUTO, keras.losses.Reduction.SUM_OVER_BATCH_SIZE, keras.losses.Reduction.NONE)
    without_xla = {}
    as_without_xla = (None, False)
    compiled_loss = "compiled_loss"
    normalization = keras.layers.BatchNormalization.__base__  # The older classes', too.
    averages = ("moving_mean", "moving_variance")
    refuses_draws = False
    Total = _Total
    loss_of = staticmethod(keras.losses.get)
    scaled = staticmethod(scaled)
    unscaled = staticmethod(unscaled)
    apply = staticmethod(apply_if_finite)

    def strategy_of(self, model: keras.Model) -> tf.distribute.Strategy | None:
        return model.distribute_strategy

    def needs_scope(self, here: tf.distribute.Strategy, there: tf.distribute.Strategy) -> bool:
        return there.num_replicas_in_sync > 1

    def created(self, model: keras.Model) -> list[tf.Variable]:
        # A model that is not built has layers that are; and not every weight is a variable, such as a table.
        return [v for each in layers_of(model) if each.built for v in each.weights if isinstance(v, tf.Variable)]

    def outputs_of(self, model: keras.Model) -> Any:
        return getattr(model, "output", None)

    def value_of(self, variable: tf.Variable) -> tf.Variable:
        return variable

    def settled(self, model: keras.Model, averages: list[tf.Variable]) -> list[tf.Variable]:
        # All that layers change in the forward pass, each replica its own. Not every weight is a variable: those of
        # lookup tables are not.
        own = tf.VariableSynchronization.ON_READ
        return [v for v in model.non_trainable_variables if getattr(v, "synchronization", None) == own]

    def keyed(self, model: keras.Model, num_parts: int) -> KeyedDropout:
        return KeyedDropout(model)

    def check_saved(self, forward: Callable[..., Any]) -> None:
        importlib.import_module("tfbert.classifier").register(keras)
        if isinstance(forward, types.FunctionType) and "<" not in forward.__qualname__:
            return
        # Keras's sign for "no configuration".
        raise NotImplementedError(
            "A function is saved by its name; a lambda, a partial and a method have none. "
            f"Received: forward={forward!r}. Write a function in a module, or save weights: model.save_weights, or "
            "model.model.save_pretrained of a Hugging Face model."
        )

    def deserialized(self, config: Any, custom_objects: dict[str, Any] | None) -> Any:
        importlib.import_module("tfbert.classifier").register(keras)
        made = super().deserialized(config, custom_objects)
        if hasattr(made, "build_in_name_scope"):  # Hugging Face's: its configuration holds no shapes to build from.
            made.build_in_name_scope()
        return made

    def loss_values(self, loss: Any, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        if labels.dtype.is_floating and predictions.dtype.is_floating:
            labels = tf.cast(labels, predictions.dtype)
        return loss.call(labels, predictions) if isinstance(loss, keras.losses.Loss) else loss(labels, predictions)

    def loss_for(self, model: keras.Model) -> str:
        # Hugging Face's models would compute one of their own.
        if not hasattr(model, "hf_compute_loss"):
            return "a Keras loss"
        if refusals.is_own(model, "hf_compute_loss", self.libraries):
            return "what its hf_compute_loss computes as a function of (labels, logits) with one value per row"
        if getattr(model.config, "num_labels", 2) == 1:
            return 'loss="mse"'
        return "loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), which classification computes inside"

    def num_updates(self, optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
        return optimizer.iterations

    def check_optimizer(self, optimizer: Any, strategy: tf.distribute.Strategy) -> None:
        if isinstance(optimizer, (list, tuple, dict)):
            raise ValueError(
                f"FineTuner takes one optimizer. Received: a {type(optimizer).__name__} of {len(optimizer)}. "
                "Of what transformers' create_optimizer returns, pass the first."
            )
        if isinstance(optimizer, keras.optimizers.legacy.Optimizer):
            raise ValueError(
                "FineTuner works with tf_keras's current optimizers. "
                f"Received: optimizer={type(optimizer).__name__} (legacy). {_successor(optimizer)}"
            )
        inner = getattr(optimizer, "inner_optimizer", None)
        for each in (optimizer, inner):
            if isinstance(each, keras.optimizers.Optimizer):
                refusals.check_own_optimizer(each, self)
        if inner is not None and not optimizer.dynamic:
            refusals.check_wrapper(optimizer, ["apply_gradients"], self)


def _successor(optimizer: keras.optimizers.legacy.Optimizer) -> str:
    """What to write instead of a legacy optimizer."""
    names = [each.__name__ for each in type(optimizer).__mro__]
    if "AdamWeightDecay" in names:  # transformers', from its create_optimizer.
        given = optimizer.get_config()
        included, excluded = decayed_names(optimizer)
        names = f"[v for v in model.variables if ...] of what {included} leaves out" if included else f"{excluded}"
        options = ["weight_decay_rate", "beta_1", "beta_2", "epsilon", "clipnorm", "global_clipnorm"]
        set_ = {name: given.get(name, getattr(optimizer, name, None)) for name in options}
        set_ = {name.removesuffix("_rate"): float(value) for name, value in set_.items() if value is not None}
        return (
            "Write `optimizer = keras.optimizers.AdamW(learning_rate, "
            f"{', '.join(f'{name}={value:g}' for name, value in set_.items())})` and "
            f"`optimizer.exclude_from_weight_decay(var_names={names})`: it makes the same updates."
        )
    known = next((name for name in names if name != "Optimizer" and hasattr(keras.optimizers, name)), None)
    if known == names[0]:
        return f"Use keras.optimizers.{known}."
    return f"Derive it from keras.optimizers.{known or 'Optimizer'}, whose method for one variable is `update_step`."


PARTS = TFKerasParts()
