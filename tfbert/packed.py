"""A BERT classifier over packed rows: several examples in one row that see nothing of each other."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras as keras

_MASKED = -10000.0
"""What transformers adds to the scores of positions that are not attended to; softmax makes an exact 0 of it."""


@tf.autograph.experimental.do_not_convert  # Nothing in BERT branches on a tensor, and converting it takes seconds.
def forward(model: keras.Model, inputs: dict[str, tf.Tensor], training: bool | None) -> Any:
    """The model's output for packed or plain inputs; to be given to `FineTuner`.

    Packed logits equal those of one example a row, to rounding: a token attends to the tokens of its own example, has
    the position it would have alone, and the pooler takes each example's own `[CLS]`.

    Args:
        model: A `TFBertForSequenceClassification`.
        inputs: `tfbert.data.pipeline.Batch`'s inputs, of one micro-batch where packed.
        training: Whether dropout is on.

    Returns:
        Logits `[examples, num_labels]` where packed, else what the model returns.
    """
    if "example_ids" not in inputs:
        return model(inputs, training=training)
    bert = model.bert
    hidden = bert.embeddings(
        input_ids=inputs["input_ids"],
        position_ids=inputs["position_ids"],
        token_type_ids=inputs["token_type_ids"],
        training=training,
    )
    # Places without a token attend to each other: with nothing to attend to, softmax is undefined.
    examples = inputs["example_ids"]
    is_same = examples[:, None, :, None] == examples[:, None, None, :]
    mask = tf.where(is_same, tf.zeros([], hidden.dtype), tf.constant(_MASKED, hidden.dtype))
    hidden = bert.encoder(
        hidden_states=hidden,
        attention_mask=mask,
        head_mask=[None] * len(bert.encoder.layer),
        encoder_hidden_states=None,
        encoder_attention_mask=None,
        past_key_values=None,
        use_cache=False,
        output_attentions=False,
        output_hidden_states=False,
        return_dict=False,
        training=training,
    )[0]
    first = tf.gather(tf.reshape(hidden, [-1, hidden.shape[-1]]), inputs["cls_positions"])
    pooled = bert.pooler(hidden_states=first[:, None])
    return model.classifier(inputs=model.dropout(inputs=pooled, training=training))
