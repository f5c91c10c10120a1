"""Gradient checkpointing (Chen et al. 2016): the backward pass recomputes each encoder layer from its input.

Between the passes only the layers' inputs are kept, not what their parts computed.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras

from tfbert.dropout import same_noise


def recompute_layers(model: keras.Model) -> None:
    """Makes every encoder layer of a BERT classifier be recomputed when `FineTuner` trains it; once is enough.

    The gradients are those of the plain pass: recomputation draws the same dropout noise. Where noise is not keyed, as
    outside `FineTuner`, and where nothing is trained, layers compute as before.

    Args:
        model: A `TFBertForSequenceClassification`.
    """
    for layer in model.bert.encoder.layer:
        _recompute(layer)


def _recompute(layer: keras.layers.Layer) -> None:
    plain = layer.call

    def call(hidden_states: tf.Tensor, attention_mask: tf.Tensor, training: bool = False, **others):
        noise = same_noise(layer)
        if not training or noise is None:
            return plain(hidden_states=hidden_states, attention_mask=attention_mask, training=training, **others)

        @tf.recompute_grad
        def compute(hidden_states: tf.Tensor, attention_mask: tf.Tensor) -> tf.Tensor:
            with noise():
                outputs = plain(hidden_states=hidden_states, attention_mask=attention_mask, training=True, **others)
            assert len(outputs) == 1, "attention probabilities are not recomputed"
            return outputs[0]

        return (compute(hidden_states, attention_mask),)

    # Keras would track the assignment; a layer's `call` may stand in its own namespace.
    object.__setattr__(layer, "call", call)
