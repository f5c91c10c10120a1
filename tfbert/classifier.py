"""A door for user code: `forward`, BERT's classifier written out, to be given to `tfbert.FineTuner(forward=...)`."""

from tfbert.model.forward import forward

__all__ = ["forward"]
