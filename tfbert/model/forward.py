"""BERT's forward pass over plain or packed rows: what transformers computes, with less work.

In the last layer only what a head reads is computed, each example's `[CLS]` or some positions: queries, MLP and
normalisation of the other tokens are left out, 14% of the products of a 6-layer encoder. The rest is the model's own
arithmetic on its own weights, with all tokens in one dimension and few operations. Dropout and embeddings are the
model's layers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal, NamedTuple

import tensorflow as tf

from tfbert.model.ops import add_bias, dense_layer, gelu, inference_gelu, layer_norm
from tfbert.model.recompute import recomputed

if TYPE_CHECKING:  # The layers may be of either Keras.
    import keras

_MASKED = -10000.0
"""What transformers adds to the scores of positions that are not attended to; softmax turns them into exact 0."""

Reads = Literal["first", "every"] | tf.Tensor
"""What a head reads of the last layer: the first token of each example, every token, or int32 `[rows, places]`; for
packed rows `[examples, places]`, counted through the rows, where all places of an example are in the row of the
first."""


class Seen(NamedTuple):
    """What is kept of a pass besides its output; then every token's last layer is computed.

    Attributes:
        hidden: The embeddings and each layer's output, `[rows, width, hidden]`.
        attentions: Each layer's shares of attention, dropout included, `[rows, heads, width, width]`.
    """

    hidden: list[tf.Tensor]
    attentions: list[tf.Tensor]


@tf.autograph.experimental.do_not_convert  # Nothing in BERT branches on a tensor, and converting it takes seconds.
def forward(
    model: keras.Model,
    inputs: dict[str, tf.Tensor],
    training: bool | None,
    *,
    recompute: bool = False,
    seen: Seen | None = None,
) -> tf.Tensor:
    """A classifier's logits for packed or plain inputs; pass it to `FineTuner`.

    Equal to the model's own logits, to rounding; with dropout on, in distribution. Packed logits equal those of one
    example a row: a token attends to the tokens of its own example and has the position it would have alone, and the
    pooler takes each example's own `[CLS]`.

    Args:
        model: A `TFBertForSequenceClassification`.
        inputs: A `Batch`'s inputs, int32 `[rows, width]`; packed inputs are those of one micro-batch. Of plain inputs
            only `input_ids` is needed.
        training: Whether dropout is on.
        recompute: Whether the backward pass recomputes each layer but the last from its input: see `recomputed`.
        seen: Gets what is kept of the pass; of plain inputs only.

    Returns:
        `[examples, num_labels]` in the precision that the model computes in.
    """
    firsts = encode(model.bert, inputs, training, reads="first", recompute=recompute, seen=seen)
    pooled = model.dropout(inputs=pooler_output(model.bert.pooler, firsts), training=bool(training))
    return dense_layer(pooled, model.classifier)


@tf.autograph.experimental.do_not_convert
def forward_tokens(
    model: keras.Model,
    inputs: dict[str, tf.Tensor],
    training: bool | None,
    *,
    recompute: bool = False,
    seen: Seen | None = None,
) -> tf.Tensor:
    """A tagger's logits for each token, `[rows, width, num_labels]`; otherwise as `forward`.

    Args:
        model: A `TFBertForTokenClassification`.
        inputs: As for `forward`.
        training: As for `forward`.
        recompute: As for `forward`.
        seen: As for `forward`.
    """
    tokens = encode(model.bert, inputs, training, reads="every", recompute=recompute, seen=seen)
    return _of_tokens(model.classifier, model.dropout(inputs=tokens, training=bool(training)))


@tf.autograph.experimental.do_not_convert
def forward_spans(
    model: keras.Model,
    inputs: dict[str, tf.Tensor],
    training: bool | None,
    *,
    recompute: bool = False,
    seen: Seen | None = None,
    masks_padding: bool = True,
) -> tf.Tensor:
    """Logits of a span's start and end at each token, `[rows, width, 2]`; otherwise as `forward`.

    Padding gets logits so low that a softmax over the row turns them into 0: the loss of a row does not depend on how
    wide it is padded. (transformers lets a span start in the padding.)

    Args:
        model: A `TFBertForQuestionAnswering`.
        inputs: As for `forward`, not packed: a row is one window.
        training: As for `forward`.
        recompute: As for `forward`.
        seen: As for `forward`.
        masks_padding: Whether a span may neither start nor end in the padding.
    """
    tokens = encode(model.bert, inputs, training, reads="every", recompute=recompute, seen=seen)
    logits, mask = _of_tokens(model.qa_outputs, tokens), inputs.get("attention_mask")
    return (
        logits
        if mask is None or not masks_padding
        else logits + _masked_unless(tf.expand_dims(mask > 0, 2), logits.dtype)
    )


@tf.autograph.experimental.do_not_convert
def forward_choices(
    model: keras.Model, inputs: dict[str, tf.Tensor], training: bool | None, *, recompute: bool = False
) -> tf.Tensor:
    """A logit for each choice of each example; otherwise as `forward`.

    Args:
        model: A `TFBertForMultipleChoice`.
        inputs: int32 `[examples, choices, width]` each; a choice that an example does not have attends to less than the
            two tokens that any has, `[CLS]` and `[SEP]`. Or a choice a row, `[rows, width]`, as they are predicted.
            Packed as for `forward`, each choice a sequence of its own, with `cls_positions` `[examples, choices]`, -1
            for one that an example does not have.
        training: As for `forward`.
        recompute: As for `forward`.

    Returns:
        float32 `[examples, choices]`, for choices that are not there so low that a softmax turns it into 0; or
        `[rows, 1]`.
    """
    if "cls_positions" in inputs:
        places = inputs["cls_positions"]
        shape, is_there = tf.shape(places), places >= 0
        inputs = inputs | {"cls_positions": tf.reshape(tf.maximum(places, 0), [-1])}
    elif inputs["input_ids"].shape.rank == 3:
        shape, is_there = tf.shape(inputs["input_ids"])[:2], tf.reduce_sum(inputs["attention_mask"], axis=2) > 1
        inputs = {name: tf.reshape(value, [-1, tf.shape(value)[2]]) for name, value in inputs.items()}
    else:
        return forward(model, inputs, training, recompute=recompute)
    logits = tf.reshape(forward(model, inputs, training, recompute=recompute), shape)
    return tf.where(is_there, tf.cast(logits, tf.float32), _MASKED)


@tf.autograph.experimental.do_not_convert
def forward_pretraining(
    model: keras.Model,
    inputs: dict[str, tf.Tensor],
    training: bool | None,
    *,
    recompute: bool = False,
    seen: Seen | None = None,
) -> dict[str, tf.Tensor]:
    """Logits of the words at masked positions, and of whether segment B is of another document.

    For other positions, the end of the last layer and the vocabulary logits are not computed.

    Args:
        model: A `TFBertForPreTraining`, or a `TFBertForMaskedLM`, which has no next-sentence head.
        inputs: As for `forward`, perhaps with `masked_lm_positions`, int32 `[rows, predictions]`, the places within
            each row that are read; packed `[examples, predictions]`, counted through the rows as `cls_positions` are.
            Fill up with any place: the output there has no meaning. Without them, every position is read.
        training: As for `forward`.
        recompute: As for `forward`.
        seen: As for `forward`.

    Returns:
        `masked_lm`: `[rows, predictions, vocabulary]`; and `next_sentence`: `[rows, 2]`. Packed: examples, not rows.
    """
    positions = inputs.get("masked_lm_positions")
    if positions is None:
        words = encode(model.bert, inputs, training, reads="every", recompute=recompute, seen=seen)
        first = words[:, 0]
    else:
        firsts = inputs["cls_positions"] if "cls_positions" in inputs else tf.zeros(tf.shape(positions)[:1], tf.int32)
        reads = tf.concat([firsts[:, None], positions], axis=1)
        read = encode(model.bert, inputs, training, reads=reads, recompute=recompute)
        first, words = read[:, 0], read[:, 1:]
    outputs = {"masked_lm": _vocabulary_logits(model.mlm.predictions, words)}
    if hasattr(model, "nsp"):
        head = model.nsp.seq_relationship
        outputs["next_sentence"] = dense_layer(pooler_output(model.bert.pooler, first), head)
    return outputs


def pooler_output(pooler: keras.layers.Layer, firsts: tf.Tensor) -> tf.Tensor:
    """A `TFBertPooler`: the last layer's `[CLS]`, `[examples, hidden]` -> the same."""
    return tf.tanh(dense_layer(firsts, pooler.dense))


def _of_tokens(head: keras.layers.Layer, tokens: tf.Tensor) -> tf.Tensor:
    """A dense head of every token: `[rows, width, hidden]` -> `[rows, width, outputs]`."""
    logits = dense_layer(tf.reshape(tokens, [-1, tokens.shape[-1]]), head)
    return tf.reshape(logits, [tf.shape(tokens)[0], -1, logits.shape[-1]])


def _vocabulary_logits(head: keras.layers.Layer, read: tf.Tensor) -> tf.Tensor:
    """A `TFBertLMPredictionHead`: `[rows, places, hidden]` -> `[rows, places, vocabulary]`."""
    transform, table = head.transform, tf.cast(head.input_embeddings.weight, read.dtype)
    size, vocabulary = table.shape[1], table.shape[0]
    activation = gelu if transform.config.hidden_act == "gelu" else transform.transform_act_fn
    tokens = activation(dense_layer(tf.reshape(read, [-1, size]), transform.dense))
    norm = transform.LayerNorm
    tokens = layer_norm(tokens, norm.gamma, norm.beta, norm.epsilon)
    logits = add_bias(tf.matmul(tokens, table, transpose_b=True), head.bias)
    return tf.reshape(logits, [tf.shape(read)[0], -1, vocabulary])


@tf.autograph.experimental.do_not_convert
def encode(
    bert: keras.layers.Layer,
    inputs: dict[str, tf.Tensor],
    training: bool | None = None,
    *,
    reads: Reads = "every",
    recompute: bool = False,
    seen: Seen | None = None,
) -> tf.Tensor:
    """The output of BERT's encoder for the tokens that a head reads.

    Args:
        bert: A `TFBertMainLayer`.
        inputs: As for `forward`.
        training: Whether dropout is on.
        reads: The tokens whose last layer is computed. Positions count within a row, or for packed inputs through all
            rows, and may repeat.
        recompute: As for `forward`.
        seen: As for `forward`.

    Returns:
        `[examples, hidden]` for `first`, `[rows, width, hidden]` for `every`, `[rows, places, hidden]` for positions;
        for packed rows `[examples, places, hidden]`, without meaning at places of other examples.
    """
    training = bool(training)
    hidden = bert.embeddings(
        input_ids=inputs.get("input_ids"),
        inputs_embeds=inputs.get("inputs_embeds"),
        position_ids=inputs.get("position_ids"),
        token_type_ids=inputs.get("token_type_ids"),
        training=training,
    )
    rows, width, size = tf.shape(hidden)[0], tf.shape(hidden)[1], hidden.shape[-1]
    tokens, mask = tf.reshape(hidden, [-1, size]), _mask(inputs, hidden.dtype)
    if seen is not None:
        seen.hidden.append(hidden)
        for layer in bert.encoder.layer:
            tokens = _encode(layer, tokens, rows=rows, mask=mask, training=training, attentions=seen.attentions)
            seen.hidden.append(tf.reshape(tokens, [rows, width, size]))
        return seen.hidden[-1][:, 0] if isinstance(reads, str) and reads == "first" else seen.hidden[-1]
    *layers, last = bert.encoder.layer
    for layer in layers:
        compute = functools.partial(_encode, layer, rows=rows, mask=mask, training=training)
        tokens = (recomputed(compute) if recompute and training else compute)(tokens)
    if isinstance(reads, str) and reads == "every":
        return tf.reshape(_encode(last, tokens, rows=rows, mask=mask, training=training), [rows, width, size])

    # From here on only the tokens that are read.
    own = last.attention.self_attention
    keys, values = (_heads(part, tokens, rows, own.num_attention_heads) for part in (own.key, own.value))
    examples, tokens_by_row = inputs.get("example_ids"), tf.reshape(tokens, [rows, width, size])
    is_first = isinstance(reads, str)
    shape, query_rows = [-1, size], rows
    if examples is None and is_first:
        read = tokens_by_row[:, 0]
    elif examples is None:
        read = tf.reshape(tf.gather(tokens_by_row, reads, batch_dims=1), [-1, size])
        shape = [rows, -1, size]
    else:
        places = inputs["cls_positions"] if is_first else reads[:, 0]
        row = places // width
        keys, values = tf.gather(keys, row), tf.gather(values, row)
        example = tf.gather(tf.reshape(examples, [-1]), places)
        mask = _masked_unless(tf.gather(examples, row) == example[:, None], hidden.dtype)[:, None, None, :]
        read = tf.gather(tokens, places if is_first else tf.reshape(reads, [-1]))
        query_rows = tf.shape(places)[0]
        if not is_first:
            shape = [query_rows, -1, size]
    queries = _heads(own.query, read, query_rows, own.num_attention_heads)
    read = _after_attention(last, read, _attend(last, queries, keys, values, mask, training), training)
    return tf.reshape(read, shape)


def _mask(inputs: dict[str, tf.Tensor], dtype: tf.DType) -> tf.Tensor | None:
    """What is added to attention's scores: `[rows, 1, 1 or width, width]`; None for nothing."""
    if "example_ids" in inputs:
        # Places without a token attend to each other: with nothing to attend to, softmax is undefined.
        examples = inputs["example_ids"]
        return _masked_unless(examples[:, None, :, None] == examples[:, None, None, :], dtype)
    if inputs.get("attention_mask") is None:
        return None
    return _masked_unless(tf.expand_dims(tf.expand_dims(inputs["attention_mask"] > 0, 1), 1), dtype)


def _masked_unless(attends: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.where(attends, tf.zeros([], dtype), tf.constant(_MASKED, dtype))


def _encode(
    layer: keras.layers.Layer,
    tokens: tf.Tensor,
    *,
    rows: tf.Tensor,
    mask: tf.Tensor | None,
    training: bool,
    attentions: list[tf.Tensor] | None = None,
) -> tf.Tensor:
    """One encoder layer: `[rows x width, hidden]` -> the same."""
    own = layer.attention.self_attention
    parts = (_heads(part, tokens, rows, own.num_attention_heads) for part in (own.query, own.key, own.value))
    attended = _attend(layer, *parts, mask, training, attentions)
    return _after_attention(layer, tokens, attended, training)


def _heads(part: keras.layers.Layer, tokens: tf.Tensor, rows: tf.Tensor, heads: int) -> tf.Tensor:
    """A projection for attention: `[rows x width, hidden]` -> `[rows, heads, width, hidden / heads]`."""
    projected = dense_layer(tokens, part)
    return tf.transpose(tf.reshape(projected, [rows, -1, heads, projected.shape[-1] // heads]), [0, 2, 1, 3])


def _attend(
    layer: keras.layers.Layer,
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    mask: tf.Tensor | None,
    training: bool,
    attentions: list[tf.Tensor] | None = None,
) -> tf.Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017): `[rows, heads, width, size]` -> `[rows x width, hidden]`."""
    heads, size = query.shape[1], query.shape[3]
    scores = tf.matmul(query * tf.constant(size**-0.5, query.dtype), key, transpose_b=True)
    if mask is not None:
        scores += mask
    probabilities = layer.attention.self_attention.dropout(inputs=tf.nn.softmax(scores), training=training)
    if attentions is not None:
        attentions.append(probabilities)
    mixed = tf.matmul(probabilities, value)
    return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, heads * size])


def _after_attention(layer: keras.layers.Layer, tokens: tf.Tensor, attended: tf.Tensor, training: bool) -> tf.Tensor:
    """A layer after its attention, over `[tokens, hidden]`."""
    output, middle, end = layer.attention.dense_output, layer.intermediate, layer.bert_output
    own_gelu = gelu if training else inference_gelu
    activation = own_gelu if middle.config.hidden_act == "gelu" else middle.intermediate_act_fn

    def add(part: keras.layers.Layer, tokens: tf.Tensor, to: tf.Tensor) -> tf.Tensor:
        tokens = part.dropout(inputs=dense_layer(tokens, part.dense), training=training)
        return layer_norm(tokens + to, part.LayerNorm.gamma, part.LayerNorm.beta, part.LayerNorm.epsilon)

    attended = add(output, attended, tokens)
    return add(end, activation(dense_layer(attended, middle.dense)), attended)
