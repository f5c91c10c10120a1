"""The public import path of `forward`, BERT's classifier written out, for `tfbert.FineTuner(forward=...)` over models
of transformers 4; ours compute it when they are called."""

import functools
import importlib
from types import ModuleType

from tfbert.model import forward as _forwards
from tfbert.model.forward import forward

__all__ = ["forward"]


@functools.cache
def register(keras: ModuleType) -> None:
    """Lets a Keras find these functions where it loads a saved FineTuner."""
    for name in ("forward", "forward_tokens", "forward_spans", "forward_choices", "forward_pretraining"):
        keras.saving.register_keras_serializable("tfbert")(getattr(_forwards, name))


register(importlib.import_module("keras"))
