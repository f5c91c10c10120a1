"""User code that plain Keras would call and `FineTuner`'s step does not: found by name, and refused in a line.

Whether a method is the user's own is decided by the module that its function was written in, not by the class that
holds it: so a method counts however it came there, by a subclass of any depth, a mixin, an assignment to the object or
a patched class. The libraries' own overrides, such as transformers' `train_step`, are no user code.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import tf_keras as keras

_LIBRARIES = {"tf_keras", "tensorflow", "transformers", "tfbert"}

_OF_MODELS = {
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
}
"""Methods and properties of a model that Keras uses in `compile`, `fit` or `evaluate`, and what to do instead."""

_OF_TUNERS = ("compute_loss", "compute_metrics")
"""What Keras's `train_step` calls and FineTuner's does not; all else of a subclass of FineTuner is called by Keras."""

_OF_OPTIMIZERS = ("minimize", "compute_gradients", "aggregate_gradients")
"""What comes before `apply_gradients` in plain Keras, where there is no micro-batch and no other replica yet."""

_OF_LOSSES = ("__call__", "_get_reduction")


def is_own(holder: Any, name: str) -> bool:
    """Whether an object's method or property was written by the user, and not by a library.

    Args:
        holder: A Keras object.
        name: Of the attribute; where the object's classes have none of that name, it is nobody's.
    """
    # Python looks for `__call__` and its like in the class alone.
    if name in vars(holder) and not name.startswith("__"):
        return not _is_by_library(vars(holder)[name])
    for each in type(holder).__mro__:
        if name in vars(each):
            return not _is_by_library(vars(each)[name])
    return False


def _is_by_library(attribute: Any) -> bool:
    if isinstance(attribute, property):
        attribute = attribute.fget
    if isinstance(attribute, (classmethod, staticmethod, types.MethodType)):
        attribute = attribute.__func__
    if isinstance(attribute, (functools.partial, functools.partialmethod, functools.cached_property)):
        attribute = getattr(attribute, "func", None)
    # Not `__module__`, which `functools.wraps` copies.
    module = getattr(attribute, "__globals__", {}).get("__name__", "")
    return module.split(".")[0] in _LIBRARIES


def check_model(model: keras.Model) -> None:
    """Raises ValueError for a model with a step of its own."""
    for name, instead in _OF_MODELS.items():
        if is_own(model, name):
            raise _error("model", model, name, instead)


def check_called(model: keras.Model, name: str) -> None:
    """Raises ValueError where FineTuner's `fit`, `evaluate` or `predict` is called and the model has an own one."""
    for each in (name, *(["make_predict_function"] if name == "predict" else [])):
        if is_own(model, each):
            raise _error("model", model, each, f"Call the model's own `model.{name}`, or remove it")


def check_tuner(tuner: keras.Model) -> None:
    """Raises ValueError for a subclass of FineTuner whose methods its step would not call."""
    for name in _OF_TUNERS:
        if is_own(tuner, name):
            raise _error("a FineTuner", tuner, name, "Define compute_loss on the wrapped model, or pass metrics=[...]")


def check_loss(loss: Any) -> None:
    """Raises ValueError for a `Loss` that does more than its `call`."""
    if not isinstance(loss, keras.losses.Loss):
        return
    for name in _OF_LOSSES:
        if is_own(loss, name):
            raise _error("loss", loss, name, "Put it into `call(y_true, y_pred)`, with one value per row as its result")


def check_optimizer(optimizer: Any) -> None:
    """Raises ValueError for an optimizer that changes gradients before they are those of the global batch."""
    inner = getattr(optimizer, "inner_optimizer", None)
    for each in (optimizer, inner):
        for name in _OF_OPTIMIZERS if isinstance(each, keras.optimizers.Optimizer) else ():
            if is_own(each, name):
                raise _error(
                    "optimizer", each, name, "Do it in `apply_gradients`, which gets the global batch's gradients"
                )
    if inner is not None and not optimizer.dynamic and is_own(optimizer, "apply_gradients"):
        raise _error("optimizer", optimizer, "apply_gradients", "Define it on the inner optimizer")


def _error(what: str, holder: Any, name: str, instead: str) -> ValueError:
    return ValueError(
        "FineTuner's step has a fixed order and would never call it. "
        f"Received: {what} {type(holder).__name__} with a {name} of its own. {instead}."
    )
