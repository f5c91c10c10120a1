"""`fit`, `evaluate` and `predict` as users call them: what is refused while a step is traced ends in one line."""

from __future__ import annotations

from typing import Any

import tf_keras as keras

from tfbert.step import refusals
from tfbert.step.one_line import one_line


class Calls(keras.Model):
    """Wraps a model, `self.model`."""

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """As `tf_keras.Model.fit`."""
        refusals.check_call(self.model, "fit", args, kwargs)
        with one_line():
            return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.evaluate`."""
        refusals.check_call(self.model, "evaluate", args, kwargs)
        with one_line():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.predict`."""
        refusals.check_call(self.model, "predict", args, kwargs)
        with one_line():
            return super().predict(*args, **kwargs)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.train_on_batch`."""
        refusals.check_call(self.model, "train_on_batch", args, kwargs)
        with one_line():
            return super().train_on_batch(*args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.test_on_batch`."""
        refusals.check_call(self.model, "test_on_batch", args, kwargs)
        with one_line():
            return super().test_on_batch(*args, **kwargs)
