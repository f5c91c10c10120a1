"""The public import path of `forward`, BERT's classifier written out, for `tfbert.FineTuner(forward=...)`."""

from tfbert.model.forward import forward

__all__ = ["forward"]
