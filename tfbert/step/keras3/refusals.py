"""What `FineTuner` does not accept from Keras 3, each with a line that says what to do instead."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import keras
import tensorflow as tf

from tfbert.private import rate_of
from tfbert.step.keras3.optimizer import inner_of
from tfbert.step.keras3.private import layers_of, strategy_of
from tfbert.step.overrides import Overrides

OVERRIDES = Overrides(
    # What KerasHub's tasks make of `compile`, `fit`, `evaluate` and `predict` is done here too.
    libraries=frozenset({"keras", "keras_hub", "keras_nlp", "tensorflow", "tfbert"}),
    of_models={"compile": "Pass its optimizer, loss and metrics to FineTuner.compile instead"},
    of_tuners=("compute_loss", "compute_metrics"),
    of_optimizers=("scale_loss", "stateless_apply"),
    of_losses=("__call__",),
)
"""What of a user's classes for Keras 3 FineTuner does not call."""

STEP_OVERRIDES = dataclasses.replace(
    OVERRIDES,
    libraries=OVERRIDES.libraries - {"keras_hub", "keras_nlp"},
    of_models={
        "train_step": "Put what it computes into the model's call, a loss with one value per row, or an own "
        "compute_loss(x, y, y_pred, sample_weight) that returns one value per row",
        "test_step": "Pass metrics=[...] to FineTuner.compile for what it reports",
        "make_train_function": "Use callbacks, or FineTuner's arguments, for what it changes",
        "make_test_function": "Use callbacks for what it changes",
        "compute_metrics": "Pass metrics=[...] to FineTuner.compile, with a keras.metrics.Metric of your own",
        "get_metrics_result": "Pass metrics=[...] to FineTuner.compile, with a keras.metrics.Metric of your own",
        "reset_metrics": "Pass metrics=[...] to FineTuner.compile: they are reset at the start of each epoch",
        "metrics": "Pass metrics=[...] to FineTuner.compile",
        "losses": "Call add_loss in the model's call instead",
    },
)
"""The same for the step, which no other library's model may have of its own either."""

_OTHER_STRATEGIES = (
    tf.distribute.TPUStrategy,
    tf.distribute.experimental.ParameterServerStrategy,
    tf.distribute.ParameterServerStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
)
_MEANS = ("sum_over_batch_size", "mean", "none", None)


def check_model(model: Any) -> None:
    """Raises ValueError for anything but a model of Keras 3 that runs on TensorFlow, of the strategy's scope in which
    this is called, with the step that Keras gives it."""
    if keras.config.backend() != "tensorflow":
        raise ValueError(
            "FineTuner trains with TensorFlow. "
            f"Received: a model of Keras 3 with the backend {keras.config.backend()!r}. "
            'Set os.environ["KERAS_BACKEND"] = "tensorflow" before keras is imported.'
        )
    if not isinstance(model, keras.Model):
        raise ValueError(f"FineTuner wraps a keras.Model. Received: model={model!r}. Build one of its layers.")
    if hasattr(model, "gradient_accumulation_steps"):
        raise ValueError(
            f"FineTuner wraps the model itself. Received: model={type(model).__name__}, which is one already. "
            "Pass its `model`."
        )
    if isinstance(tf.distribute.get_strategy(), _OTHER_STRATEGIES):
        raise ValueError(
            "FineTuner trains on one device, with MirroredStrategy or MultiWorkerMirroredStrategy. "
            f"Received: {type(tf.distribute.get_strategy()).__name__}. Use one of these."
        )
    here, there = tf.distribute.get_strategy(), strategy_of(model) or tf.distribute.get_strategy()
    is_outside = any(not here.extended.variable_created_in_scope(v.value) for v in model.variables)
    if is_outside or (there is not here and max(here.num_replicas_in_sync, there.num_replicas_in_sync) > 1):
        raise ValueError(
            "A model's variables belong to the strategy in whose scope it was built. "
            f"Received: a model built under {type(there).__name__}, and FineTuner under {type(here).__name__}. "
            "Write both lines, and compile, in the same `with strategy.scope():`."
        )
    check_overrides(model)
    for layer in layers_of(model):
        for name, value in vars(layer).items():
            if name.startswith("_self_"):  # TensorFlow's own lists of what the others hold.
                continue
            for each in _within(value):
                if isinstance(each, tf.Module) and _is_of_tf_keras(each):
                    raise ValueError(
                        "Keras 3 does not train layers of tf_keras within a model. "
                        f"Received: {type(each).__name__} of tf_keras as {type(layer).__name__}.{name}. Use a layer of "
                        "Keras 3, or build the whole model with tf_keras."
                    )


def _within(value: Any) -> list[Any]:
    """What is in a list, a tuple or a dictionary; anything else itself."""
    if isinstance(value, dict):  # Not Mapping: asking an abstract class of each layer's values takes half a second.
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else [value]


def check_overrides(model: keras.Model) -> None:
    """Raises ValueError for a model with methods that the step would skip."""
    OVERRIDES.check_model(model)
    STEP_OVERRIDES.check_model(model)


def has_own_loss(model: keras.Model) -> bool:
    """Whether a model computes its loss itself."""
    return STEP_OVERRIDES.is_own(model, "compute_loss")


def check_compile(given: dict[str, Any], strategy: tf.distribute.Strategy, *, needs_loss: bool = True) -> None:
    """Raises ValueError for arguments of `compile` that would be ignored or mean something else.

    Args:
        given: All of them, by name.
        strategy: The model's.
        needs_loss: Whether the model has none of its own.
    """
    for argument, value in given.items():
        for each in keras.tree.flatten(value):
            check_keras(argument, each)
    if given["jit_compile"] not in (None, False, "auto"):
        raise ValueError(
            "XLA compiles the local part of a step only. "
            f"Received: compile(jit_compile={given['jit_compile']!r}). Pass FineTuner(jit_compile=True)."
        )
    losses = [each for each in keras.tree.flatten(given["loss"]) if each is not None]
    if needs_loss and (not losses or "auto" in losses):
        raise ValueError(
            f"FineTuner needs a loss for an output. Received: loss={given['loss']!r}. Pass a Keras loss, such as "
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        )
    for each in losses:
        if isinstance(each, keras.losses.Loss):
            OVERRIDES.check_loss(each)
            if each.reduction not in _MEANS:
                raise ValueError(
                    "FineTuner takes the mean over the global batch, of rows whose weight is not 0. "
                    f"Received: a loss with reduction={each.reduction!r}. "
                    "Drop it, and scale the learning rate or the weights instead."
                )
    _check_optimizer(given["optimizer"], strategy)


def _check_optimizer(optimizer: Any, strategy: tf.distribute.Strategy) -> None:
    if isinstance(optimizer, str) and optimizer == "auto":
        raise ValueError('FineTuner needs an optimizer. Received: optimizer="auto". Pass keras.optimizers.AdamW(3e-5).')
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return  # Keras makes one of its name, or says what is wrong.
    inner = inner_of(optimizer)
    if optimizer is not inner:
        for name in ("apply", "apply_gradients"):
            OVERRIDES.check_wrapper(optimizer, name)
    for each in (optimizer, inner):
        OVERRIDES.check_optimizer(each)
        check_keras("learning_rate", rate_of(each))
        if each.gradient_accumulation_steps:
            raise ValueError(
                "FineTuner accumulates gradients within a step, which then is one update. "
                f"Received: an optimizer with gradient_accumulation_steps={each.gradient_accumulation_steps}. "
                f"Pass FineTuner(gradient_accumulation_steps={each.gradient_accumulation_steps}) and batches that "
                "many times as large instead."
            )
        made_under = strategy_of(each)
        if made_under is not strategy and max(made_under.num_replicas_in_sync, strategy.num_replicas_in_sync) > 1:
            raise ValueError(
                "An optimizer's variables belong to the strategy in whose scope it was created. "
                f"Received: an optimizer created under {type(made_under).__name__}, and a model under "
                f"{type(strategy).__name__}. Create it in the same `with strategy.scope():`."
            )


def check_call(model: keras.Model, name: str, arguments: dict[str, Any]) -> None:
    """Raises ValueError where a method such as `fit` is called with callbacks of tf_keras, or where the wrapped model
    has an own one, which would not be called."""
    OVERRIDES.check_called(model, name)
    for each in keras.tree.flatten(arguments.get("callbacks")):
        check_keras("callbacks", each)


def check_layers(model: keras.Model) -> None:
    """Raises ValueError for layers that communicate with other replicas within a micro-batch, and for variables that
    are set to their gradients."""
    for variable in model.trainable_variables:
        if getattr(variable, "overwrite_with_gradient", False):
            raise ValueError(
                "A gradient is a sum over micro-batches and replicas. "
                f"Received: variable {variable.path!r}, which takes its gradient as its value (float8 training). "
                "Train in float32, mixed_bfloat16 or mixed_float16."
            )
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return
    for layer in layers_of(model):
        if getattr(layer, "synchronized", False):
            raise ValueError(
                "A replica computes its micro-batches alone. "
                f"Received: layer {layer.name!r} with synchronized=True on several replicas. "
                "Set synchronized=False."
            )


def check_keras(argument: str, value: Any) -> None:
    """Raises ValueError for an object of tf_keras: a user's own class is of the Keras that it derives from."""
    if _is_of_tf_keras(value):
        name = getattr(value, "__name__", type(value).__name__)
        raise ValueError(
            "The model is one of Keras 3, and takes objects of Keras 3. "
            f"Received: {argument}={name} of tf_keras. Write `import keras` and use its objects. "
            "(`tf.keras` is tf_keras where TF_USE_LEGACY_KERAS=1.)"
        )


def _is_of_tf_keras(value: Any) -> bool:
    classes = [value] if isinstance(value, types.FunctionType) else [value, *type(value).__mro__]
    modules = [getattr(each, "__module__", None) or "" for each in classes]
    return any(module.split(".")[0] == "tf_keras" for module in modules)
