"""Windows for question answering: rows `[CLS] question [SEP] part of the context [SEP]`, or as the tokenizer has them.

A context that is too long for a row is read through several windows, each `doc_stride` tokens after the previous one,
or where that one ends, if its question leaves it less: `doc_stride` is a step, as in google-research/bert's
`run_squad.py` (Devlin et al. 2018). In Hugging Face's `run_qa.py`, `doc_stride` is the number of tokens that two
windows share. That overlap is the window's room for context, which depends on the question's length, minus our step.

They are made in TensorFlow: in the graph of an exported model, and eagerly by `make_windows`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.batches.inputs import TokenTensors
from tfbert.errors import UsageError
from tfbert.tokens.offsets import Pieces
from tfbert.tokens.tokenizer import Tokenizer


class Windows(NamedTuple):
    """The windows of questions, in the order of the questions: tensors, or arrays. Each question has at least one.

    Attributes:
        tokens: The rows, as `TokenTensors` or `TokenIds`; segment B is the context.
        first_token: int32 `[windows]`: the token of the whole context at which the window starts.
        row_splits: int64 `[windows + 1]`: where each window begins and ends in `tokens.flat`.
        example: int32 `[windows]`: the question that each window belongs to.
        context_start: int32 `[windows]`: the position in its row of the first token of context.
        context_end: int32 `[windows]`: one past the position of the last token of context.
        char_start: int32 `[tokens]`: the character of the whole context at which a token starts; 0 outside it.
        char_end: int32 `[tokens]`: one past its last character, including dropped marks that follow it; 0 outside it.
        max_context: bool `[tokens]`: whether a token of context has more context here than in any other window.
    """

    tokens: Any
    first_token: Any
    row_splits: Any
    example: Any
    context_start: Any
    context_end: Any
    char_start: Any
    char_end: Any
    max_context: Any


def make_windows(
    tokenizer: Tokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    context_of: np.ndarray,
    *,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> Windows:
    """Makes the windows of all questions. Each distinct question and context is tokenized once, on all cores.

    Args:
        tokenizer: The tokenizer.
        questions: n questions.
        contexts: The contexts, each once.
        context_of: int [n]: the context of each question.
        max_seq_length: Longest row, special tokens counted.
        doc_stride: Most tokens from the start of a window to the start of the next one.
        max_query_length: Most tokens of a question; the rest is left out.

    Returns:
        The windows, as arrays.

    Raises:
        UsageError: if a question leaves no room for its context, or `doc_stride` never moves.
    """
    for name, value in (("doc_stride", doc_stride), ("max_query_length", max_query_length)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1. Received: {name}={value}. Pass a larger one.")
    index: dict[str, int] = {}
    question_of = np.array([index.setdefault(question, len(index)) for question in questions], np.int64)
    asked = tokenizer.encode_with_offsets(list(index))
    read = tokenizer.encode_with_offsets(contexts, batch_size=128)
    lengths = np.minimum(np.diff(asked.row_splits), max_query_length)[question_of]
    num_special = tokenizer.num_special(2)
    for i in np.flatnonzero(lengths > max_seq_length - num_special - 1)[:1]:
        raise no_room_error(max_seq_length, lengths[i], reprlib.repr(questions[i]), num_special)
    with tf.device("CPU:0"):
        ids, starts, ends = (_ragged(values, read.row_splits) for values in (read.ids, read.starts, read.ends))
        found = windows_in_graph(
            tokenizer,
            tf.gather(_ragged(asked.ids, asked.row_splits), question_of),
            Pieces(ids, starts, ends, words=None, word_starts=None, word_ends=None),
            np.asarray(context_of, np.int64),
            max_seq_length=max_seq_length,
            doc_stride=doc_stride,
            max_query_length=max_query_length,
        )
    return Windows(found.tokens.in_memory(), *(part.numpy() for part in found[1:]))


def windows_in_graph(
    tokenizer: Tokenizer,
    questions: tf.RaggedTensor,
    contexts: Pieces,
    context_of: tf.Tensor,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> Windows:
    """The windows as tensors. Where `make_windows` raises a UsageError, this ends in an InvalidArgumentError.

    Args:
        tokenizer: The tokenizer.
        questions: int32 `[n, None]`, the token ids of the questions.
        contexts: The contexts, as the tokenizer splits them.
        context_of: int64 `[n]`, the context of each question.
        max_seq_length: Longest row, special tokens counted.
        doc_stride: Most tokens from the start of a window to the start of the next one, at least 1.
        max_query_length: Most tokens of a question, at least 1.
    """
    query = tf.minimum(questions.row_lengths(), max_query_length)
    total = tf.gather(contexts.ids.row_lengths(), context_of)
    num_special = tokenizer.num_special(2)
    room = max_seq_length - num_special - query
    with tf.control_dependencies([_check_room(query, room, max_seq_length, num_special)]):
        room = tf.identity(room)
    step = tf.minimum(tf.cast(min(doc_stride, tf.int64.max), tf.int64), room)
    numbers = tf.ragged.range(1 + tf.maximum(-(-(total - room) // step), 0))  # The windows of each question.
    example = numbers.value_rowids()
    first_token = tf.gather(step, example) * numbers.values
    length = tf.minimum(tf.gather(room, example), tf.gather(total, example) - first_token)
    first = tf.gather(tf.gather(contexts.ids.row_starts(), context_of), example) + first_token  # Of all contexts.

    context = tf.gather(contexts.ids.values, tf.ragged.range(first, first + length))
    ids, second_start = tokenizer.joined(tf.gather(questions[:, :max_query_length], example), context)
    context_start = tf.gather(query, example) + 1 + tokenizer.separators
    tokens = TokenTensors.of_rows(ids, second_start, tokenizer.pad_id)

    row, token = ids.value_rowids(), tf.range(tf.size(ids.values, tf.int64))
    left = token - tf.gather(ids.row_starts() + context_start, row)  # Tokens of context before it in the window.
    in_context = (left >= 0) & (left < tf.gather(length, row))
    # The place of a token among those of all contexts; the place after them all for other tokens.
    source = tf.where(in_context, tf.gather(first, row) + left, tf.size(contexts.ids.values, tf.int64))
    characters = (tf.gather(tf.concat([part.values, [0]], 0), source) for part in (contexts.starts, contexts.ends))
    # The same for each question by itself: others may have the same context.
    origin = tf.gather(tf.cumsum(total, exclusive=True), example) + first_token
    own = tf.where(in_context, tf.gather(origin, row) + left, tf.reduce_sum(total))
    most = in_context & _has_most_context(left, tf.gather(length, row), own, tf.reduce_sum(total) + 1)
    of_windows = (first_token, example, context_start, context_start + length)
    first_token, *of_windows = (tf.cast(part, tf.int32) for part in of_windows)
    return Windows(tokens, first_token, ids.row_splits, *of_windows, *characters, most)


def _ragged(values: np.ndarray, row_splits: np.ndarray) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def window_labels(windows: Windows, answers: np.ndarray) -> np.ndarray:
    """The positions of the answers' first and last tokens, for training.

    Args:
        windows: The windows.
        answers: int [n, 2]: for each example, the character of the context at which the answer starts, and one past its
            last character. An empty range, such as (0, 0), is no answer.

    Returns:
        int32 [windows, 2]: the positions in the row of the first and the last token that has a character of the answer;
        (0, 0), which is `[CLS]`, if these are not both in the window, or the answer has no token.
    """
    row_splits = windows.tokens.row_splits
    start, end = np.asarray(answers, np.int32).reshape(-1, 2).T
    lengths = windows.tokens.lengths
    inside = windows.char_start < np.repeat(end[windows.example], lengths)
    inside &= windows.char_end > np.repeat(start[windows.example], lengths)
    inside &= np.repeat((start < end)[windows.example], lengths)
    hits = np.flatnonzero(inside)
    window = np.searchsorted(row_splits, hits, side="right") - 1
    window, where, counts = np.unique(window, return_index=True, return_counts=True)
    first = hits[where] - row_splits[window]
    last = first + counts - 1  # The tokens of an answer are consecutive.

    # A window holds the whole answer if it has the first and the last of the answer's tokens in all windows.
    example = windows.example[window]
    shift = windows.first_token[window] - windows.context_start[window]
    earliest = np.full(len(start), np.iinfo(np.int64).max)
    latest = np.full(len(start), -1)
    np.minimum.at(earliest, example, first + shift)
    np.maximum.at(latest, example, last + shift)
    whole = (first + shift == earliest[example]) & (last + shift == latest[example])
    labels = np.zeros((len(windows.example), 2), np.int32)
    labels[window[whole], 0] = first[whole]
    labels[window[whole], 1] = last[whole]
    return labels


def no_room_error(max_seq_length: int, tokens: int, where: str, num_special: int = 3) -> UsageError:
    """The error for a question of so many tokens that a row of that length has none left for its context."""
    return UsageError(
        f"A row must hold a question, {num_special} special tokens and some of the context. "
        f"Received: max_seq_length={max_seq_length} for a question of {tokens} tokens, {where}. "
        "Pass a larger max_seq_length or a smaller max_query_length."
    )


def _check_room(query: tf.Tensor, room: tf.Tensor, max_seq_length: int, num_special: int) -> tf.Operation:
    """Refuses windows without context."""
    rule = (
        f"A row must hold a question, {num_special} special tokens and some of the context. Received: "
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
