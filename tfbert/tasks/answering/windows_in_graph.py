"""`make_windows` of `tasks/answering/windows.py` in the TensorFlow graph."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfbert.batches.inputs import TokenTensors
from tfbert.tokens.offsets import Pieces
from tfbert.tokens.tokenizer import BertTokenizer


class Windows(NamedTuple):
    """The windows of questions. See `windows.Windows`; values per token are 0 or False outside the context.

    Attributes:
        tokens: The rows; segment B is the context.
        row_splits: int64 `[windows + 1]`, where each window begins and ends in `tokens.flat`.
        example: int64 `[windows]`, the question each window belongs to, in order.
        in_context: bool `[tokens]`, whether a token is one of the context.
        max_context: bool `[tokens]`, whether the token has more context here than in any other window.
        char_start: int32 `[tokens]`, the token's first character in the whole context.
        char_end: int32 `[tokens]`, the character after its last.
    """

    tokens: TokenTensors
    row_splits: tf.Tensor
    example: tf.Tensor
    in_context: tf.Tensor
    max_context: tf.Tensor
    char_start: tf.Tensor
    char_end: tf.Tensor


def windows_in_graph(
    tokenizer: BertTokenizer,
    questions: tf.RaggedTensor,
    contexts: Pieces,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> Windows:
    """The windows that `windows.make_windows` makes. Where that raises a UsageError, this ends in an
    InvalidArgumentError.

    Args:
        tokenizer: The tokenizer.
        questions: int32 `[n, None]`, the token ids of the questions.
        contexts: n contexts, as the tokenizer splits them.
        max_seq_length: Longest row, special tokens counted.
        doc_stride: Most tokens from the start of a window to the start of the next one, at least 1.
        max_query_length: Most tokens of a question, at least 1.
    """
    query = tf.minimum(questions.row_lengths(), max_query_length)
    total = contexts.ids.row_lengths()
    room = max_seq_length - 3 - query
    with tf.control_dependencies([_check_room(query, room, max_seq_length)]):
        room = tf.identity(room)
    step = tf.minimum(tf.cast(doc_stride, tf.int64), room)
    numbers = tf.ragged.range(1 + tf.maximum(-(-(total - room) // step), 0))  # The windows of each question.
    example = numbers.value_rowids()
    first_token = tf.gather(step, example) * numbers.values
    length = tf.minimum(tf.gather(room, example), tf.gather(total, example) - first_token)
    first = tf.gather(contexts.ids.row_starts(), example) + first_token  # Among the tokens of all contexts.

    cls, sep = (tf.fill([tf.size(example), 1], id) for id in (tokenizer.cls_id, tokenizer.sep_id))
    context = tf.gather(contexts.ids.values, tf.ragged.range(first, first + length))
    ids = tf.concat([cls, tf.gather(questions[:, :max_query_length], example), sep, context, sep], axis=1)
    context_start = tf.gather(query, example) + 2
    tokens = TokenTensors.of_rows(ids, context_start, tokenizer.pad_id)

    row, token = ids.value_rowids(), tf.range(tf.size(ids.values, tf.int64))
    left = token - tf.gather(ids.row_starts() + context_start, row)  # Tokens of context before it in the window.
    in_context = (left >= 0) & (left < tf.gather(length, row))
    # The place of a token among those of all contexts; the place after them all for other tokens.
    source = tf.where(in_context, tf.gather(first, row) + left, tf.size(contexts.ids.values, tf.int64))
    char_start, char_end = (
        tf.gather(tf.concat([part.values, [0]], 0), source) for part in (contexts.starts, contexts.ends)
    )
    most = _has_most_context(left, tf.gather(length, row), source, tf.size(contexts.ids.values) + 1)
    return Windows(tokens, ids.row_splits, example, in_context, in_context & most, char_start, char_end)


def _check_room(query: tf.Tensor, room: tf.Tensor, max_seq_length: int) -> tf.Operation:
    """Refuses windows without context."""
    rule = (
        "A row must hold a question, 3 special tokens and some of the context. Received: "
        f"max_seq_length={max_seq_length} for a question with this many tokens: "
    )
    return tf.debugging.Assert(tf.reduce_all(room >= 1), [rule, tf.boolean_mask(query, room < 1)])


def _has_most_context(left: tf.Tensor, length: tf.Tensor, source: tf.Tensor, num_sources: tf.Tensor) -> tf.Tensor:
    """bool `[tokens]`: whether this window gives a token of context the most context; of equal windows the first does.

    Args:
        left: int64 `[tokens]`, the tokens of context before the token in its window.
        length: int64 `[tokens]`, the window's tokens of context.
        source: int64 `[tokens]`, a number that is the same for the same token of a context.
        num_sources: All numbers of `source` are below this.
    """
    nearer = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
    score = nearer + 0.01 * tf.cast(length, tf.float64)
    token, last = tf.range(tf.size(left)), tf.size(left)
    is_best = score == tf.gather(tf.math.unsorted_segment_max(score, source, num_sources), source)
    winner = tf.math.unsorted_segment_min(tf.where(is_best, token, last), source, num_sources)
    return token == tf.gather(winner, source)
