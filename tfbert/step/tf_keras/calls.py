"""`fit`, `evaluate` and `predict` as users call them: what is refused while a step is traced ends in one line."""

from __future__ import annotations

import inspect
from typing import Any

import tf_keras as keras

from tfbert.step.one_line import one_line
from tfbert.step.tf_keras import refusals


class Calls(keras.Model):
    """Wraps a model, `self.model`."""

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """As `tf_keras.Model.fit`."""
        return self._as_keras("fit", args, kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.evaluate`."""
        return self._as_keras("evaluate", args, kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.predict`."""
        return self._as_keras("predict", args, kwargs)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.train_on_batch`."""
        return self._as_keras("train_on_batch", args, kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.test_on_batch`."""
        return self._as_keras("test_on_batch", args, kwargs)

    def _as_keras(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        refusals.check_call(self.model, name, args, kwargs)
        method = getattr(super(), name)
        with one_line():
            if not name.endswith("_on_batch"):
                given = inspect.signature(method).bind(*args, **kwargs).arguments
                self._check_same_call(keras, name, given)
                if name == "fit" and self.model.built:
                    self.check_same_start()
            return method(*args, **kwargs)
