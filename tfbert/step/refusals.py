"""What `FineTuner` does not accept of a Keras, each with a line that says what to do instead.

User code that plain Keras would call and the step does not is found by name. Whether a method is the user's own is
decided by the module that its function was written in, not by the class that holds it: so a method counts however it
came there, by a subclass of any depth, a mixin, an assignment to the object or a patched class. The libraries' own
overrides, such as transformers' `train_step`, are no user code.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfbert.private import layers_of, strategy_of


class KerasParts:
    """One Keras. The folder of each has a class of its own, which says what it is for; what both have alike, or only
    one of them, stands here.

    Attributes:
        keras: The library.
        libraries: Packages whose own overrides are no user code.
        of_steps: Those of them that may have a step, and a loss, of their own.
        of_optimizers: What comes before `apply_gradients` in plain Keras, where there is no micro-batch and no other
            replica yet.
        of_losses: What plain Keras calls of a `Loss` besides its `call`.
        other: The package of the other Keras.
        means: Reductions of a loss that FineTuner's mean stands for.
        converts: Whether a user's code in `fit` may branch on tensors in Python (AutoGraph); else, tracing takes less.
        compiled_loss: A model's attribute by which its `compute_loss` would ask for the compiled loss.
        normalization: The class of layers that take means over a batch, and may.
        averages: Their attributes that may follow the parts of a batch.
        refuses_draws: Whether layers that draw by themselves are refused where a batch is in several parts.
        Total: A metric, `tfbert.step.terms.Total` of this Keras.
        keyed: Of a built model and the number of micro-batches on all replicas: takes over the randomness of its
            layers; `keyed(key, rows)` of it is as `Noise.keyed`.
    """

    keras: types.ModuleType

    def wrap(self, tuner: Any) -> None:
        """Completes a `FineTuner` around its model."""

    def settled(self, model: Any, averages: list[tf.Variable]) -> list[tf.Variable]:
        """What a model's layers change in the forward pass, and is taken back where a step is skipped."""
        return averages

    def serialized(self, model: Any) -> dict[str, Any]:
        """A model's configuration."""
        return self.keras.saving.serialize_keras_object(model)

    def check_saved(self, forward: Any) -> None:
        """Raises NotImplementedError for a `forward` that no name leads to."""

    def deserialized(self, config: Any, custom_objects: dict[str, Any] | None) -> Any:
        """What a configuration was made of."""
        return self.keras.saving.deserialize_keras_object(config, custom_objects=custom_objects)

    def gives_axis(self, predictions: tf.Tensor) -> bool:
        """Whether Keras makes labels `[rows]` into `[rows, 1]` beside predictions of two dimensions."""
        return True

    def check_model(self, model: Any) -> None:
        """Raises ValueError for a model that this Keras cannot train here."""


_OF_MODELS = {
    "compile": "Pass its optimizer, loss and metrics to FineTuner.compile instead",
    "train_step": "Put what it computes into the model's call, a loss with one value per row, or an own "
    "compute_loss(x, y, y_pred, sample_weight) that returns one value per row",
    **dict.fromkeys(("make_train_function", "make_test_function"), "Use callbacks for what it changes"),
    **dict.fromkeys(
        ("test_step", "compute_metrics", "get_metrics_result", "reset_metrics", "metrics"),
        "Pass metrics=[...] to FineTuner.compile, a keras.metrics.Metric of your own; each epoch resets them",
    ),
    "losses": "Call add_loss in the model's call instead",
}
"""Methods and properties of a model that Keras uses in `compile`, `fit` or `evaluate`, and what to do instead."""

OF_TUNERS = ("compute_loss", "compute_metrics")
"""What Keras's `train_step` calls and FineTuner's does not; all else of a subclass of FineTuner is called by Keras."""

OWN_LOSS = (None, "auto", "auto_with_warning", "passthrough")
"""How `compile` of a library's model is told to take the model's own loss."""


def is_own(holder: Any, name: str, libraries: frozenset[str]) -> bool:
    """Whether an object's method or property was written by the user, and not by a library.

    Args:
        holder: A Keras object.
        name: Of the attribute; where the object's classes have none of that name, it is nobody's.
        libraries: Packages whose own overrides are no user code.
    """
    # Python looks for `__call__` and its like in the class alone.
    if name in vars(holder) and not name.startswith("__"):
        return _module_of(vars(holder)[name]) not in libraries
    for each in type(holder).__mro__:
        if name in vars(each):
            return _module_of(vars(each)[name]) not in libraries
    return False


def _module_of(attribute: Any) -> str:
    """The package in which a method, or what a property calls, was written."""
    if isinstance(attribute, property):
        attribute = attribute.fget
    if isinstance(attribute, (classmethod, staticmethod, types.MethodType)):
        attribute = attribute.__func__
    if isinstance(attribute, (functools.partial, functools.partialmethod, functools.cached_property)):
        attribute = getattr(attribute, "func", None)
    # Not `__module__`, which `functools.wraps` copies.
    return getattr(attribute, "__globals__", {}).get("__name__", "").split(".")[0]


def refuse_own(what: str, holder: Any, names: Iterable[str], instead: str, libraries: frozenset[str]) -> None:
    """Raises ValueError for an object with a method of the user's own that the step would not call.

    Args:
        what: The object in words.
        holder: The object.
        names: Of the methods.
        instead: What to do.
        libraries: As of `is_own`.
    """
    for name in names:
        if is_own(holder, name, libraries):
            rule = "FineTuner's step has a fixed order and would never call it"
            raise ValueError(f"{rule}. Received: {what} {type(holder).__name__} with a {name} of its own. {instead}.")


def check_methods(model: Any, parts: KerasParts) -> None:
    """Raises ValueError for a model with methods that the step would skip."""
    for name, instead in _OF_MODELS.items():
        refuse_own("model", model, [name], instead, parts.libraries if name == "compile" else parts.of_steps)


def check_executions(steps: int | None) -> None:
    """Raises ValueError for several updates in an execution: all but one of their batches would be left out."""
    if steps not in (None, 1):
        todo = "Leave it out; larger batches, or FineTuner(jit_compile=True), save the host's time too."
        raise ValueError(f"FineTuner makes one update in an execution. Received: steps_per_execution={steps!r}. {todo}")


def check_called(model: Any, name: str, callbacks: Any, parts: KerasParts) -> None:
    """Raises ValueError where a method such as `fit` is called with callbacks of the other Keras, or where the wrapped
    model has an own one, which would not be called."""
    names = [name, "make_predict_function"] if name == "predict" else [name]
    refuse_own("model", model, names, f"Call the model's own `model.{name}`, or remove it", parts.libraries)
    for each in tf.nest.flatten(callbacks):
        check_keras("callbacks", each, parts)


def check_model(model: Any, parts: KerasParts) -> None:
    """Raises ValueError for anything but a model of this Keras, of the strategy's scope in which this is called, with
    the step that Keras gives it."""
    if not isinstance(model, parts.keras.Model):
        check_keras("model", model, parts)
        rule = f"FineTuner wraps a {parts.keras.__name__}.Model"
        raise ValueError(f"{rule}. Received: model={model!r}. Build one of its layers.")
    if hasattr(model, "gradient_accumulation_steps"):
        rule = "FineTuner wraps the model itself"
        raise ValueError(f"{rule}. Received: model={type(model).__name__}, which is one already. Pass its `model`.")
    parts.check_model(model)
    here = tf.distribute.get_strategy()
    there = strategy_of(model) or here
    # A model that is not built has layers that are; and not every weight is a variable, such as a table.
    weights = [parts.value_of(weight) for each in layers_of(model) if each.built for weight in each.weights]
    made = [weight for weight in weights if isinstance(weight, tf.Variable)]
    is_outside = any(not here.extended.variable_created_in_scope(variable) for variable in made)
    if is_outside or needs_scope(there, here):
        rule = "A model's variables belong to the strategy in whose scope it was built"
        received = f"a model built outside it, or under another, and FineTuner under {type(here).__name__}"
        todo = "Write both lines, and compile, in the same `with strategy.scope():`."
        raise ValueError(f"{rule}. Received: {received}. {todo}")
    check_methods(model, parts)


def needs_scope(one: tf.distribute.Strategy, other: tf.distribute.Strategy) -> bool:
    """Whether what was made in the scope of one of two strategies is none of the other's."""
    return one is not other and max(one.num_replicas_in_sync, other.num_replicas_in_sync) > 1


def check_settled(model: Any, trained: Sequence[Any], arguments: dict[str, Any], traced: dict[str, Any]) -> None:
    """Raises ValueError where other variables are trainable, or other arguments of FineTuner set, than those for which
    the step was traced."""
    now = list(model.trainable_variables)
    changed = [f"{n}={v!r}, not the {traced[n]!r}" for n, v in arguments.items() if v != traced[n]]
    if [id(variable) for variable in now] != [id(variable) for variable in trained]:
        changed.append(f"{len(now)} trainable variables, not the {len(trained)}")
    if changed:
        rule = "What is trained, and how, is settled when training begins"
        raise ValueError(f"{rule}. Received: {', '.join(changed)} of before. Call compile again after such a change.")


def check_compile(given: dict[str, Any], model: Any, parts: KerasParts, strategy: tf.distribute.Strategy) -> None:
    """Raises ValueError for arguments of `compile` that would be ignored or mean something else.

    Args:
        given: All of them, by name.
        model: The wrapped model.
        parts: Its Keras.
        strategy: Its strategy.
    """
    for argument, value in given.items():
        for each in tf.nest.flatten(value):
            check_keras(argument, each, parts)
    if given.get("jit_compile") not in (None, False, "auto"):
        rule = "XLA compiles the local part of a step only"
        received = f"compile(jit_compile={given['jit_compile']!r})"
        raise ValueError(f"{rule}. Received: {received}. Pass FineTuner(jit_compile=True).")
    check_executions(given.get("steps_per_execution"))
    losses = [each for each in tf.nest.flatten(given["loss"]) if each is not None]
    is_named = any(isinstance(each, str) and each in OWN_LOSS for each in losses)
    if not has_own_loss(model, parts) and (not losses or is_named):
        todo = "Pass a Keras loss, such as keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        raise ValueError(f"FineTuner needs a loss for an output. Received: loss={given['loss']!r}. {todo}")
    for each in losses:
        if isinstance(each, parts.keras.losses.Loss):
            instead = "Put it into `call(y_true, y_pred)`, with one value per row as its result"
            refuse_own("loss", each, parts.of_losses, instead, parts.libraries)
            if each.reduction not in parts.means:
                rule = "FineTuner takes the mean over the global batch, of rows whose weight is not 0"
                todo = "Drop it, and scale the learning rate or the weights instead."
                raise ValueError(f"{rule}. Received: a loss with reduction={each.reduction!r}. {todo}")
    optimizer = given["optimizer"]
    parts.check_optimizer(optimizer, strategy)
    for each in (optimizer, getattr(optimizer, "inner_optimizer", None)):
        if isinstance(each, parts.keras.optimizers.Optimizer):  # Before gradients are those of the global batch.
            instead = "Do it in `apply_gradients`, which gets the global batch's gradients"
            refuse_own("optimizer", each, parts.of_optimizers, instead, parts.libraries)


def has_own_loss(model: Any, parts: KerasParts) -> bool:
    """Whether a model computes its loss itself."""
    return is_own(model, "compute_loss", parts.of_steps)


def check_layers(model: Any, num_micro_batches: int, recurrent: type) -> None:
    """Raises ValueError for layers that communicate with other replicas within a micro-batch, or carry state from row
    to row, where a batch is in several parts; and for variables that are set to their gradients."""
    for variable in model.trainable_variables:
        if getattr(variable, "overwrite_with_gradient", False):
            rule = "A gradient is a sum over micro-batches and replicas"
            received = f"variable {variable.path!r}, which takes its gradient as its value (float8 training)"
            raise ValueError(f"{rule}. Received: {received}. Train in float32, mixed_bfloat16 or mixed_float16.")
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    for layer in layers_of(model):
        # BatchNormalization, and the older SyncBatchNormalization.
        if num_replicas > 1 and getattr(layer, "synchronized", False):
            rule = "A replica computes its micro-batches alone"
            received = f"layer {layer.name!r} with synchronized=True on several replicas"
            raise ValueError(f"{rule}. Received: {received}. Set synchronized=False.")
        num_parts = num_micro_batches * num_replicas
        if num_parts > 1 and isinstance(layer, recurrent) and layer.stateful:
            rule = "A stateful layer carries each row's state on to the same row of the next batch"
            received = f"layer {layer.name!r} with stateful=True and a batch in {num_parts} parts"
            todo = "Set stateful=False, or train with gradient_accumulation_steps=1 on one replica."
            raise ValueError(f"{rule}. Received: {received}. {todo}")


def check_keras(argument: str, value: Any, parts: KerasParts) -> None:
    """Raises ValueError for an object of the other Keras: a user's own class is of the Keras that it derives from."""
    if is_of(parts.other, value):
        name = getattr(value, "__name__", type(value).__name__)
        here, there = ("Keras 3", "tf_keras") if parts.other == "tf_keras" else ("tf_keras", "Keras 3")
        raise ValueError(
            f"The model is one of {here}, and takes objects of {here}. Received: {argument}={name} of {there}. "
            f"Write `import {parts.keras.__name__}` and use its objects. (`tf.keras` is tf_keras where "
            "TF_USE_LEGACY_KERAS=1.)"
        )


def is_of(package: str, value: Any) -> bool:
    """Whether an object, or what its class derives from, is of a package."""
    classes = [value] if isinstance(value, types.FunctionType) else [value, *type(value).__mro__]
    modules = [getattr(each, "__module__", None) or "" for each in classes]
    return any(module.split(".")[0] == package for module in modules)
