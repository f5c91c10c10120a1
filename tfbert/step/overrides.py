"""User code that plain Keras would call and `FineTuner`'s step does not: found by name, and refused in a line.

Whether a method is the user's own is decided by the module that its function was written in, not by the class that
holds it: so a method counts however it came there, by a subclass of any depth, a mixin, an assignment to the object or
a patched class. The libraries' own overrides, such as transformers' `train_step`, are no user code.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any


@dataclasses.dataclass(frozen=True)
class Overrides:
    """What is asked of a user's classes, for one Keras.

    Attributes:
        libraries: Packages whose own overrides are no user code.
        of_models: Methods and properties of a model that Keras uses in `compile`, `fit` or `evaluate`, and what to do
            instead.
        of_tuners: What Keras's `train_step` calls and FineTuner's does not; all else of a subclass of FineTuner is
            called by Keras.
        of_optimizers: What comes before `apply_gradients` in plain Keras, where there is no micro-batch and no other
            replica yet.
        of_losses: What plain Keras calls of a `Loss` besides its `call`.
    """

    libraries: frozenset[str]
    of_models: dict[str, str]
    of_tuners: tuple[str, ...]
    of_optimizers: tuple[str, ...]
    of_losses: tuple[str, ...]

    def is_own(self, holder: Any, name: str) -> bool:
        """Whether an object's method or property was written by the user, and not by a library.

        Args:
            holder: A Keras object.
            name: Of the attribute; where the object's classes have none of that name, it is nobody's.
        """
        # Python looks for `__call__` and its like in the class alone.
        if name in vars(holder) and not name.startswith("__"):
            return not self._is_by_library(vars(holder)[name])
        for each in type(holder).__mro__:
            if name in vars(each):
                return not self._is_by_library(vars(each)[name])
        return False

    def _is_by_library(self, attribute: Any) -> bool:
        if isinstance(attribute, property):
            attribute = attribute.fget
        if isinstance(attribute, (classmethod, staticmethod, types.MethodType)):
            attribute = attribute.__func__
        if isinstance(attribute, (functools.partial, functools.partialmethod, functools.cached_property)):
            attribute = getattr(attribute, "func", None)
        # Not `__module__`, which `functools.wraps` copies.
        module = getattr(attribute, "__globals__", {}).get("__name__", "")
        return module.split(".")[0] in self.libraries

    def check_model(self, model: Any) -> None:
        """Raises ValueError for a model with a step of its own."""
        for name, instead in self.of_models.items():
            if self.is_own(model, name):
                raise _error("model", model, name, instead)

    def check_called(self, model: Any, name: str) -> None:
        """Raises ValueError where FineTuner's `fit`, `evaluate` or `predict` is called and the model has an own one."""
        for each in (name, *(["make_predict_function"] if name == "predict" else [])):
            if self.is_own(model, each):
                raise _error("model", model, each, f"Call the model's own `model.{name}`, or remove it")

    def check_tuner(self, tuner: Any) -> None:
        """Raises ValueError for a subclass of FineTuner whose methods its step would not call."""
        for name in self.of_tuners:
            if self.is_own(tuner, name):
                instead = "Define compute_loss on the wrapped model, or pass metrics=[...]"
                raise _error("a FineTuner", tuner, name, instead)

    def check_loss(self, loss: Any) -> None:
        """Raises ValueError for a `Loss` that does more than its `call`."""
        for name in self.of_losses:
            if self.is_own(loss, name):
                instead = "Put it into `call(y_true, y_pred)`, with one value per row as its result"
                raise _error("loss", loss, name, instead)

    def check_optimizer(self, optimizer: Any) -> None:
        """Raises ValueError for an optimizer that changes gradients before they are those of the global batch."""
        for name in self.of_optimizers:
            if self.is_own(optimizer, name):
                instead = "Do it in `apply_gradients`, which gets the global batch's gradients"
                raise _error("optimizer", optimizer, name, instead)

    def check_wrapper(self, optimizer: Any, name: str) -> None:
        """Raises ValueError for an optimizer around another whose own method would not be called."""
        if self.is_own(optimizer, name):
            raise _error("optimizer", optimizer, name, "Define it on the inner optimizer")


def _error(what: str, holder: Any, name: str, instead: str) -> ValueError:
    return ValueError(
        "FineTuner's step has a fixed order and would never call it. "
        f"Received: {what} {type(holder).__name__} with a {name} of its own. {instead}."
    )
