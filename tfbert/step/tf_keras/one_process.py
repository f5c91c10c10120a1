"""A Keras model and the processes around it: it says where it cannot compute, and can be pickled and copied."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tf_keras as keras

from tfbert.private import check_not_forked


class OneProcess(keras.Model):
    """Wraps a model, `self.model`, for `fit`, `evaluate` and `predict` in the process that made it."""

    def make_train_function(self, force: bool = False):
        """As Keras does; raises a UsageError in a forked process, where TensorFlow would hang."""
        check_not_forked()
        return super().make_train_function(force)

    def make_test_function(self, force: bool = False):
        """As `make_train_function`."""
        check_not_forked()
        return super().make_test_function(force)

    def make_predict_function(self, force: bool = False):
        """As `make_train_function`."""
        check_not_forked()
        return super().make_predict_function(force)

    def __reduce__(self) -> Any:
        with self._built_as_its_model():
            return super().__reduce__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        with self._built_as_its_model():
            return super().__deepcopy__(memo)

    @contextlib.contextmanager
    def _built_as_its_model(self) -> Iterator[None]:
        # Keras copies what it has not called yet attribute by attribute, which a Hugging Face model does not survive.
        before = self.built
        self.built = before or self.model.built
        try:
            yield
        finally:
            self.built = before
