"""What `FineTuner` does not accept from Keras, or warns of, each with a line that says what to do instead."""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.step.overrides import Overrides
from tfbert.step.tf_keras.private import decayed_names, layers_of

OVERRIDES = Overrides(
    libraries=frozenset({"tf_keras", "tensorflow", "transformers", "tfbert"}),
    of_models={
        "train_step": "Put what it computes into the model's call, a loss with one value per row, or an own "
        "compute_loss(x, y, y_pred, sample_weight) that returns one value per row",
        "test_step": "Pass metrics=[...] to FineTuner.compile for what it reports",
        "make_train_function": "Use callbacks, or FineTuner's arguments, for what it changes",
        "make_test_function": "Use callbacks for what it changes",
        "compile": "Pass its optimizer, loss and metrics to FineTuner.compile instead",
        "compute_metrics": "Pass metrics=[...] to FineTuner.compile, with a keras.metrics.Metric of your own",
        "get_metrics_result": "Pass metrics=[...] to FineTuner.compile, with a keras.metrics.Metric of your own",
        "reset_metrics": "Pass metrics=[...] to FineTuner.compile: they are reset at the start of each epoch",
        "metrics": "Pass metrics=[...] to FineTuner.compile",
        "losses": "Call add_loss in the model's call instead",
    },
    of_tuners=("compute_loss", "compute_metrics"),
    of_optimizers=("minimize", "compute_gradients", "aggregate_gradients"),
    of_losses=("__call__", "_get_reduction"),
)
"""What of a user's classes for tf_keras FineTuner does not call."""

_MEANS = (keras.losses.Reduction.AUTO, keras.losses.Reduction.SUM_OVER_BATCH_SIZE, keras.losses.Reduction.NONE)


def check_model(model: Any) -> None:
    """Raises ValueError for anything but a tf_keras model of the strategy's scope in which this is called."""
    if not isinstance(model, keras.Model):
        raise _keras3_error("model", model) or ValueError(
            f"FineTuner wraps a tf_keras.Model. Received: model={model!r}. Build it with `import tf_keras`."
        )
    if hasattr(model, "gradient_accumulation_steps"):
        raise ValueError(
            f"FineTuner wraps the model itself. Received: model={type(model).__name__}, which is one already. "
            "Pass its `model`."
        )
    here, there = tf.distribute.get_strategy(), model.distribute_strategy
    # A model that is not built has layers that are; and not every weight is a variable, such as a table.
    found = [v for each in layers_of(model) if each.built for v in each.weights if isinstance(v, tf.Variable)]
    is_outside = any(not here.extended.variable_created_in_scope(v) for v in found)
    if is_outside or (there is not here and there.num_replicas_in_sync > 1):
        raise ValueError(
            "A model's variables belong to the strategy in whose scope it was built. "
            f"Received: a model built under {type(there).__name__}, and FineTuner under {type(here).__name__}. "
            "Write both lines, and compile, in the same `with strategy.scope():`."
        )


def check_compile(given: dict[str, Any], model: keras.Model, *, needs_loss: bool = True) -> None:
    """Raises ValueError for arguments of `compile` that would be ignored or mean something else.

    Args:
        given: All of them, by name.
        model: The wrapped model.
        needs_loss: Whether it has none of its own.
    """
    for argument, value in given.items():
        for item in tf.nest.flatten(value):
            if error := _keras3_error(argument, item):
                raise error
    optimizer, loss = given["optimizer"], given["loss"]
    if given["jit_compile"]:
        raise ValueError(
            "XLA compiles the local part of a step only. Received: compile(jit_compile=True). "
            "Pass FineTuner(jit_compile=True)."
        )
    losses = [each for each in tf.nest.flatten(loss) if each is not None]
    if needs_loss and (not losses or loss in ("auto", "auto_with_warning", "passthrough")):
        raise ValueError(f"FineTuner needs a loss for an output. Received: loss={loss!r}. Pass {_loss_of(model)}.")
    for each in losses:
        if isinstance(each, keras.losses.Loss):
            OVERRIDES.check_loss(each)
        if isinstance(each, keras.losses.Loss) and each.reduction not in _MEANS:
            raise ValueError(
                "FineTuner takes the mean over the global batch. "
                f"Received: a loss with reduction={each.reduction!r}. Drop it, and scale the learning rate instead."
            )
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
    _check_optimizer(optimizer)


def _check_optimizer(optimizer: Any) -> None:
    inner = getattr(optimizer, "inner_optimizer", None)
    for each in (optimizer, inner):
        if isinstance(each, keras.optimizers.Optimizer):
            OVERRIDES.check_optimizer(each)
    if inner is not None and not optimizer.dynamic:
        OVERRIDES.check_wrapper(optimizer, "apply_gradients")


def check_call(model: keras.Model, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raises ValueError where `fit`, `evaluate` or `predict` is called with callbacks of Keras 3, or where the wrapped
    model has an own one, which would not be called."""
    OVERRIDES.check_called(model, name)
    callbacks = inspect.signature(getattr(keras.Model, name)).bind(model, *args, **kwargs).arguments.get("callbacks")
    for each in tf.nest.flatten(callbacks):
        if error := _keras3_error("callbacks", each):
            raise error


def check_layers(model: keras.Model) -> None:
    """Raises ValueError for layers that communicate with other replicas within a micro-batch."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return
    for layer in layers_of(model):
        if getattr(layer, "synchronized", False):  # BatchNormalization, and the older SyncBatchNormalization.
            raise ValueError(
                "A replica computes its micro-batches alone. "
                f"Received: layer {layer.name!r} with synchronized=True on several replicas. "
                "Set synchronized=False."
            )


def warn_of_bfloat16_biases(model: keras.Model) -> None:
    """Warns of layers whose biases get wrong gradients from TensorFlow: in bfloat16 on a CPU, without XLA."""
    if tf.config.get_visible_devices("GPU"):
        return
    for layer in layers_of(model):
        if getattr(layer, "compute_dtype", None) == "bfloat16" and getattr(layer, "use_bias", False):
            warnings.warn(
                "On a CPU, TensorFlow sums the gradient of a bias in bfloat16: the more rows, the more it is off. "
                f"Received: layer {layer.name!r} with bfloat16 and use_bias=True. Train in float32, or with "
                "FineTuner(jit_compile=True); for BERT, pass forward=tfbert.classifier.forward.",
                RuntimeWarning,
                stacklevel=2,
            )
            return


def check_saved_forward(forward: Callable[..., Any] | None) -> None:
    """Raises NotImplementedError, Keras's sign for "no configuration", for a function that no name leads to."""
    if forward is None or (isinstance(forward, types.FunctionType) and "<" not in forward.__qualname__):
        return
    raise NotImplementedError(
        "A function is saved by its name; a lambda, a partial and a method have none. "
        f"Received: forward={forward!r}. Write a function in a module, or save weights: model.save_weights, or "
        "model.model.save_pretrained of a Hugging Face model."
    )


def _loss_of(model: keras.Model) -> str:
    """What to pass as the loss, where Hugging Face's models would compute one of their own."""
    if not hasattr(model, "hf_compute_loss"):
        return "a Keras loss"
    if OVERRIDES.is_own(model, "hf_compute_loss"):
        return "what its hf_compute_loss computes as a function of (labels, logits) with one value per row"
    if getattr(model.config, "num_labels", 2) == 1:
        return 'loss="mse"'
    return "loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), which classification computes inside"


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


def _keras3_error(argument: str, value: Any) -> ValueError | None:
    # A user's own class is Keras 3's by what it derives from.
    classes = [value] if isinstance(value, types.FunctionType) else [value, *type(value).__mro__]
    modules = [getattr(each, "__module__", None) or "" for each in classes]
    if all(module.split(".")[0] != "keras" for module in modules):
        return None
    name = getattr(value, "__name__", type(value).__name__)
    return ValueError(
        f"FineTuner works with tf_keras (Keras 2) objects. Received: {argument}={name} of Keras 3. "
        "Write `import tf_keras as keras` and use its objects."
    )
