"""`fit`, `evaluate` and `predict` as users call them: what is refused while a step is traced ends in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tf_keras as keras

from tfbert.step import refusals


class Calls(keras.Model):
    """Wraps a model, `self.model`."""

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """As `tf_keras.Model.fit`."""
        refusals.check_call(self.model, "fit", args, kwargs)
        with _one_line():
            return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.evaluate`."""
        refusals.check_call(self.model, "evaluate", args, kwargs)
        with _one_line():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.predict`."""
        refusals.check_call(self.model, "predict", args, kwargs)
        with _one_line():
            return super().predict(*args, **kwargs)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.train_on_batch`."""
        with _one_line():
            return super().train_on_batch(*args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf_keras.Model.test_on_batch`."""
        with _one_line():
            return super().test_on_batch(*args, **kwargs)


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Raises what this package refuses as it was said; Keras and AutoGraph put the whole stack into its message."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        refused = None
        each: BaseException | None = error
        while each is not None:  # AutoGraph raises an error of its own about each one; the first is at the end.
            if type(each) is ValueError and _raised_in(each).startswith("tfbert.step"):
                refused = each
            each = each.__cause__ or each.__context__
        if refused is None:
            raise
        raise ValueError(str(refused)) from None


def _raised_in(error: BaseException) -> str:
    """The module that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals.get("__name__", "") if trace else ""
