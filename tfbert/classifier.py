"""The public import path of `forward`, BERT's classifier written out, for `tfbert.FineTuner(forward=...)`.

Registers it with tf_keras, so that a saved FineTuner finds it.
"""

import tf_keras as keras

from tfbert.model import forward as _forwards
from tfbert.model.forward import forward

for _name in ("forward", "forward_tokens", "forward_spans", "forward_choices", "forward_pretraining"):
    keras.saving.register_keras_serializable("tfbert")(getattr(_forwards, _name))

__all__ = ["forward"]
