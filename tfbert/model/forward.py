"""An encoder's forward pass over plain or packed rows: what transformers computes, with less work; and gradient
checkpointing (Chen et al. 2016): the backward pass recomputes each encoder layer from its input.

In the last layer only what a head reads is computed, each example's `[CLS]` or some positions: queries, MLP and
normalisation of the other tokens are left out, 14% of the products of a 6-layer encoder. The rest is the model's own
arithmetic on its own weights, with all tokens in one dimension and few operations. Dropout and embeddings are the
model's layers.

Between the passes only the layers' inputs are kept, not what their parts computed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tfbert.model.encoders import encoder_of
from tfbert.model.ops import (
    MASKED,
    Arithmetic,
    Last,
    Pass,
    Reads,
    activation,
    add_bias,
    dense_layer,
    masked_unless,
    norm_layer,
    positions_of,
)
from tfbert.step.noise import same_noise

if TYPE_CHECKING:
    import keras


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
            only `input_ids` is needed. Of an example of several sequences, which are windows of its text, the logits
            are the mean of theirs.
        training: Whether dropout is on.
        recompute: Whether the backward pass recomputes each layer but the last from its input: see `recomputed`.
        seen: Gets what is kept of the pass; of plain inputs only.

    Returns:
        `[examples, num_labels]` in the precision that the model computes in; means in float32.
    """
    inputs, is_there = _by_sequence(inputs)
    if is_there is not None:
        logits = tf.cast(forward(model, inputs, training, recompute=recompute), tf.float32)
        logits = tf.reshape(logits, tf.concat([tf.shape(is_there), [logits.shape[1]]], axis=0))
        counts = tf.reduce_sum(tf.cast(is_there, tf.float32), axis=1, keepdims=True)
        total = tf.reduce_sum(tf.where(is_there[:, :, None], logits, 0.0), axis=1)
        return total / tf.maximum(counts, 1.0)  # A row that only fills the batch has none.
    encoder, run = encoder_of(model.config.model_type), Arithmetic(model.config, training)
    reads = "mean" if encoder.means(model.config) else "first"
    read = encode(model.bert, inputs, training, reads=reads, recompute=recompute, seen=seen)
    kind = getattr(model, "KIND", "SequenceClassification")  # Of transformers' models, BERT's, in which all are alike.
    return dense_layer(encoder.of_text(model, read, run), output_layer(model, kind))


@tf.autograph.experimental.do_not_convert
def forward_tokens(model: keras.Model, inputs: dict[str, tf.Tensor], training: bool | None, **how: Any) -> tf.Tensor:
    """A tagger's logits for each token, `[rows, width, num_labels]`; otherwise as `forward`.

    Args:
        model: A `TFBertForTokenClassification`.
        inputs: As for `forward`.
        training: As for `forward`.
        **how: `recompute` and `seen`, as for `forward`.
    """
    return _of_tokens(model, "TokenClassification", inputs, training, **how)


@tf.autograph.experimental.do_not_convert
def forward_spans(
    model: keras.Model, inputs: dict[str, tf.Tensor], training: bool | None, *, masks_padding: bool = True, **how: Any
) -> tf.Tensor:
    """Logits of a span's start and end at each token, `[rows, width, 2]`; otherwise as `forward`.

    Padding gets logits so low that a softmax over the row turns them into 0: the loss of a row does not depend on how
    wide it is padded. (transformers lets a span start in the padding.)

    Args:
        model: A `TFBertForQuestionAnswering`.
        inputs: As for `forward`, not packed: a row is one window.
        training: As for `forward`.
        masks_padding: Whether a span may neither start nor end in the padding.
        **how: `recompute` and `seen`, as for `forward`.
    """
    logits, mask = _of_tokens(model, "QuestionAnswering", inputs, training, **how), inputs.get("attention_mask")
    if mask is None or not masks_padding:
        return logits
    return logits + masked_unless(tf.expand_dims(mask > 0, 2), logits.dtype)


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
    inputs, is_there = _by_sequence(inputs)
    logits = forward(model, inputs, training, recompute=recompute)
    if is_there is None:
        return logits
    return tf.where(is_there, tf.cast(tf.reshape(logits, tf.shape(is_there)), tf.float32), MASKED)


def _by_sequence(inputs: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
    """The inputs with each sequence as an example of its own, and which sequences there are, bool `[examples,
    sequences]`; None where the examples have one each."""
    places, ids = inputs.get("cls_positions"), inputs.get("input_ids")
    if places is not None and places.shape.rank == 2:
        return inputs | {"cls_positions": tf.reshape(tf.maximum(places, 0), [-1])}, places >= 0
    if ids is None or tf.TensorShape(ids.shape).rank != 3:
        return inputs, None
    is_there = tf.reduce_sum(inputs["attention_mask"], axis=2) > 1
    return {name: tf.reshape(value, [-1, tf.shape(value)[2]]) for name, value in inputs.items()}, is_there


@tf.autograph.experimental.do_not_convert
def forward_pretraining(
    model: keras.Model, inputs: dict[str, tf.Tensor], training: bool | None, **how: Any
) -> dict[str, tf.Tensor]:
    """Logits of the words at masked positions, and of whether segment B is of another document.

    For other positions, the end of the last layer and the vocabulary logits are not computed.

    Args:
        model: A `TFBertForPreTraining`, or a `TFBertForMaskedLM`, which has no next-sentence head.
        inputs: As for `forward`, perhaps with `masked_lm_positions`, int32 `[rows, predictions]`, the places within
            each row that are read; packed `[examples, predictions]`, counted through the rows as `cls_positions` are.
            Fill up with any place: the output there has no meaning. Without them, every position is read.
        training: As for `forward`.
        **how: `recompute`, and where every position is read `seen`, as for `forward`.

    Returns:
        `masked_lm`: `[rows, predictions, vocabulary]`; and `next_sentence`: `[rows, 2]`. Packed: examples, not rows.
    """
    positions = inputs.get("masked_lm_positions")
    if positions is None:
        words = encode(model.bert, inputs, training, reads="every", **how)
        first = words[:, 0]
    else:
        firsts = inputs["cls_positions"] if "cls_positions" in inputs else tf.zeros(tf.shape(positions)[:1], tf.int32)
        reads = tf.concat([firsts[:, None], positions], axis=1)
        read = encode(model.bert, inputs, training, reads=reads, **how | {"seen": None})
        first, words = read[:, 0], read[:, 1:]
    outputs = {"masked_lm": _vocabulary_logits(model, words)}
    if hasattr(model, "nsp"):
        head = model.nsp.seq_relationship
        outputs["next_sentence"] = dense_layer(pooler_output(model.bert.pooler, first), head)
    return outputs


def pooler_output(pooler: keras.layers.Layer, firsts: tf.Tensor) -> tf.Tensor:
    """A `TFBertPooler`: the last layer's `[CLS]`, `[examples, hidden]` -> the same."""
    return tf.tanh(dense_layer(firsts, pooler.dense))


def output_layer(model: keras.Model, kind: str) -> keras.layers.Layer:
    """The layer that gives each label's logit in a model of this kind, or holds the bias of each word's."""
    if kind in ("PreTraining", "MaskedLM"):
        return encoder_of(model.config.model_type).words(model)[-1]
    return operator.attrgetter(encoder_of(model.config.model_type).OUTPUTS[kind])(model)


def _of_tokens(model: Any, kind: str, inputs: dict[str, tf.Tensor], training: bool | None, **how: Any) -> tf.Tensor:
    """What a head of every token gives: `[rows, width, outputs]`."""
    tokens = encode(model.bert, inputs, training, reads="every", **how)
    flat, run = tf.reshape(tokens, [-1, tokens.shape[-1]]), Arithmetic(model.config, training)
    read = encoder_of(model.config.model_type).of_tokens(model, flat, run)
    logits = dense_layer(read, output_layer(model, kind))
    return tf.reshape(logits, [tf.shape(tokens)[0], -1, logits.shape[-1]])


def _vocabulary_logits(model: keras.Model, read: tf.Tensor) -> tf.Tensor:
    """A head of words: `[rows, places, hidden]` -> `[rows, places, vocabulary]`."""
    dense, function, norm, head = encoder_of(model.config.model_type).words(model)
    table = tf.cast(head.input_embeddings.weight, read.dtype)
    tokens = activation(function)(dense_layer(tf.reshape(read, [-1, read.shape[-1]]), dense))
    logits = add_bias(tf.matmul(norm_layer(tokens, norm), table, transpose_b=True), head.bias)
    return tf.reshape(logits, [tf.shape(read)[0], -1, table.shape[0]])


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
    """The output of an encoder for the tokens that a head reads.

    Args:
        bert: A `TFBertMainLayer`.
        inputs: As for `forward`.
        training: Whether dropout is on.
        reads: The tokens whose last layer is computed. Positions count within a row, or for packed inputs through all
            rows, and may repeat.
        recompute: As for `forward`.
        seen: As for `forward`.

    Returns:
        `[examples, hidden]` for `first` and `mean`, `[rows, width, hidden]` for `every`, `[rows, places, hidden]` for
        positions; for packed rows `[examples, places, hidden]`, without meaning at places of other examples.
    """
    config, encoder = bert.config, encoder_of(bert.config.model_type)
    hidden = bert.embeddings(
        input_ids=inputs.get("input_ids"),
        inputs_embeds=inputs.get("inputs_embeds"),
        position_ids=positions_of(config, inputs),
        token_type_ids=inputs.get("token_type_ids") if encoder.TOKEN_TYPES else None,
        training=bool(training),
    )
    windows = encoder.windows(config)
    run = Pass(config, inputs, hidden, training, windows, seen and seen.attentions)
    run.shared = encoder.shared(config, run)
    tokens = encoder.start(bert, tf.reshape(hidden, [-1, hidden.shape[-1]]), run)
    shape = [run.rows, run.width, tokens.shape[-1]]
    *layers, last = enumerate(operator.attrgetter(encoder.LAYERS)(bert))
    if seen is not None:
        seen.hidden.append(tf.reshape(tokens, shape))
    for number, layer in layers:
        compute = functools.partial(encoder.layer, layer, run=run, number=number)
        tokens = (recomputed(compute) if recompute and run.training and seen is None else compute)(tokens)
        if seen is not None:
            seen.hidden.append(tf.reshape(tokens, shape))
    reads_all = isinstance(reads, str) and (reads != "first" or seen is not None)
    if not reads_all:
        run = Last(run, reads, windows[-1])
        shape = run.shape + shape[-1:]
    number, layer = last
    tokens = tf.reshape(encoder.end(bert, encoder.layer(layer, tokens, run=run, number=number), run), shape)
    if seen is not None:
        seen.hidden.append(tokens)
    if isinstance(reads, str) and reads == "mean":
        return _mean(tokens, inputs)
    return tokens[:, 0] if reads_all and reads == "first" else tokens


def _mean(tokens: tf.Tensor, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    """The mean of each example's tokens: `[rows, width, hidden]` -> `[examples, hidden]`."""
    counts = inputs.get("attention_mask")
    if "example_ids" in inputs:
        examples, places = inputs["example_ids"], inputs["cls_positions"]
        row = places // tf.shape(examples)[1]
        counts = tf.gather(examples, row) == tf.gather(tf.reshape(examples, [-1]), places)[:, None]
        tokens = tf.gather(tokens, row)
    elif counts is None:
        counts = tf.ones(tf.shape(tokens)[:2])
    counts = tf.cast(counts, tf.float32)
    shares = counts / tf.reduce_sum(counts, axis=1, keepdims=True)
    return tf.matmul(tf.cast(shares, tokens.dtype)[:, None], tokens)[:, 0]


def recomputed(compute: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """The same function of tensors, computed again when its gradient is needed.

    The gradients are those of the plain pass: recomputation draws the same dropout noise. Where noise is not keyed, as
    outside `FineTuner`, that is impossible, and the function is returned unchanged.

    Args:
        compute: Computes an encoder layer's output.
    """
    noise = same_noise()
    if noise is None:
        return compute

    @tf.recompute_grad
    def again(*tensors: tf.Tensor) -> tf.Tensor:
        with noise():
            return compute(*tensors)

    return again
