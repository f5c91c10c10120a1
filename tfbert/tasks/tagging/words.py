"""Rows of words: sentences that are already split into words, and texts whose words are to be found.

A sentence that is longer than a row becomes several rows, so that every word keeps its first piece. It is cut between
words into equal parts: a word goes to part `start x parts // pieces`, where `start` counts the pieces before it. The
number of parts is the smallest that works, so none is very short, except next to words nearly as long as a row. Only a
word of more pieces than a row holds loses its last pieces.

Rows are made in TensorFlow: in the graph of an exported model, and eagerly for what is in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.batches.inputs import TokenTensors
from tfbert.errors import UsageError
from tfbert.tokens.offsets import Pieces
from tfbert.tokens.ragged import splits_of
from tfbert.tokens.tokenizer import Tokenizer


class WordRows(NamedTuple):
    """Model inputs of sentences, and the words in them, as tensors or arrays. Words are numbered through all sentences;
    rows are in order.

    Attributes:
        tokens: The rows, `[CLS] words [SEP]` each, as `TokenTensors` or `TokenIds`.
        first_piece: int64 `[words]`: where in `tokens.flat` each word's first piece is.
        word: int32 `[tokens]`: the word that each token of `tokens.flat` belongs to; -1 for special tokens.
        sentence: int32 `[rows]`: the sentence that each row holds, or holds a part of. A sentence without words has no
            row.
    """

    tokens: Any
    first_piece: Any
    word: Any
    sentence: Any


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TextWords:
    """The words of texts, which BERT splits at spaces, around punctuation and around CJK characters."""

    rows: WordRows
    """The rows of the texts; each text counts as a sentence."""
    starts: np.ndarray
    """int32 [words]: the character of its text at which each word starts."""
    ends: np.ndarray
    """int32 [words]: one past the last character of each word, its accents counted."""
    splits: np.ndarray
    """int64 [n + 1]: text i has the words `splits[i]` to `splits[i + 1]`."""


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], *, max_seq_length: int) -> WordRows:
    """Makes rows of sentences that are already split into words.

    The ids are those of Hugging Face's `BertTokenizerFast(words, is_split_into_words=True)`, except that a word without
    a piece, such as a lone accent, becomes `[UNK]`. Each distinct word is tokenized once, on all cores.

    Args:
        tokenizer: The tokenizer.
        sentences: The words of each sentence.
        max_seq_length: Longest row, special tokens counted.

    Returns:
        The rows; longer sentences take several.

    Raises:
        UsageError: if `max_seq_length` has no room for a word.
    """
    index: dict[str, int] = {}
    which = [index.setdefault(word, len(index)) for words in sentences for word in words]
    pieces = tokenizer.encode_words(list(index))
    first, last = pieces.row_splits[which], pieces.row_splits[np.array(which, np.int64) + 1]
    sentence_splits = splits_of(np.array([len(words) for words in sentences], np.int64))
    return _in_memory(tokenizer, pieces.ids, first, last - first, sentence_splits, max_seq_length)


def encode_text_words(tokenizer: Tokenizer, texts: Sequence[str], *, max_seq_length: int) -> TextWords:
    """Makes rows of texts and finds the characters of each word, on all cores.

    Args:
        tokenizer: The tokenizer.
        texts: The texts.
        max_seq_length: Longest row, special tokens counted.

    Returns:
        The words of all texts; the rows are those of `encode_words` for these words.

    Raises:
        UsageError: if `max_seq_length` has no room for a word.
    """
    pieces = tokenizer.encode_text_words(texts)
    word = pieces.words + np.repeat(pieces.word_splits[:-1], np.diff(pieces.row_splits))  # Counted through all texts.
    first_of_word = np.flatnonzero(np.diff(word, prepend=-1))
    sizes = np.diff(first_of_word, append=len(pieces.ids))
    rows = _in_memory(tokenizer, pieces.ids, first_of_word, sizes, pieces.word_splits, max_seq_length)
    return TextWords(rows=rows, starts=pieces.word_starts, ends=pieces.word_ends, splits=pieces.word_splits)


def text_rows_in_graph(tokenizer: Tokenizer, pieces: Pieces, max_seq_length: int) -> WordRows:
    """The rows that `encode_text_words` makes, as tensors.

    Args:
        tokenizer: The tokenizer.
        pieces: The texts, as the tokenizer splits them.
        max_seq_length: Longest row, special tokens counted: 3 or more.
    """
    word_splits = pieces.word_starts.row_splits
    word = tf.cast(pieces.words.values, tf.int64) + tf.gather(word_splits, pieces.words.value_rowids())
    sizes = tf.math.unsorted_segment_sum(tf.ones_like(word), word, tf.size(pieces.word_starts.values))
    first = tf.cumsum(sizes, exclusive=True)
    return _word_rows(tokenizer, pieces.ids.values, first, sizes, word_splits, max_seq_length)


def _in_memory(
    tokenizer: Tokenizer,
    ids: np.ndarray,
    first: np.ndarray,
    sizes: np.ndarray,
    sentence_splits: np.ndarray,
    max_seq_length: int,
) -> WordRows:
    """`_word_rows` as arrays."""
    if max_seq_length < 3:
        raise UsageError(
            "max_seq_length must hold 2 special tokens and a word. "
            f"Received: max_seq_length={max_seq_length}. Pass a larger one."
        )
    with tf.device("CPU:0"):
        arrays = (tf.constant(part, tf.int64) for part in (first, sizes, sentence_splits))
        tokens, *parts = _word_rows(tokenizer, tf.constant(ids), *arrays, max_seq_length)
    return WordRows(tokens.in_memory(), *(part.numpy() for part in parts))


def _word_rows(
    tokenizer: Tokenizer,
    ids: tf.Tensor,
    first: tf.Tensor,
    sizes: tf.Tensor,
    sentence_splits: tf.Tensor,
    max_seq_length: int,
) -> WordRows:
    """Rows of words. Each word is `sizes` ids from `ids[first]` on, int64 [words] both; a word of 0 ids is `[UNK]`."""
    room = max_seq_length - 2
    first = tf.where(sizes == 0, tf.size(ids, tf.int64), first)
    ids = tf.concat([ids, [tokenizer.unk_id]], 0)
    sizes = tf.clip_by_value(sizes, 1, room)  # If a word has more pieces than a row holds, its last ones are lost.
    sentence = tf.ragged.row_splits_to_segment_ids(sentence_splits)
    row = _rows_of_words(sizes, sentence, sentence_splits, room)

    lengths = tf.math.segment_sum(sizes, row)

    def rows(values: tf.Tensor, first: int, last: int) -> tf.RaggedTensor:
        ragged = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
        return tf.concat([tf.fill([ragged.nrows(), 1], first), ragged, tf.fill([ragged.nrows(), 1], last)], axis=1)

    pieces = tf.gather(ids, tf.ragged.range(first, first + sizes)).values
    words = tf.repeat(tf.range(tf.size(sizes)), sizes)
    return WordRows(
        tokens=TokenTensors.of_rows(rows(pieces, tokenizer.cls_id, tokenizer.sep_id), None, tokenizer.pad_id),
        first_piece=tf.cumsum(sizes, exclusive=True) + 2 * row + 1,
        word=rows(words, -1, -1).values,
        sentence=tf.cast(tf.math.segment_max(sentence, row), tf.int32),
    )


def _rows_of_words(sizes: tf.Tensor, text: tf.Tensor, word_splits: tf.Tensor, room: int) -> tf.Tensor:
    """int64 `[words]`: the row of each word.

    Args:
        sizes: int64 `[words]`, 1 to `room` pieces each.
        text: int64 `[words]`, the text of each word.
        word_splits: int64 `[n + 1]`, where each text begins and ends, in words.
        room: Most pieces in a row.
    """
    before = tf.concat([[0], tf.cumsum(sizes)], 0)
    of_texts = tf.gather(before, word_splits)
    totals = of_texts[1:] - of_texts[:-1]
    start = before[:-1] - tf.gather(of_texts, text)
    longest = tf.maximum(tf.math.unsorted_segment_max(sizes, text, tf.size(totals)), 1)  # A text may have no words.
    most_parts = _ceil(totals, room - longest + 1)

    def rows(parts: tf.Tensor) -> tf.Tensor:
        part = start * tf.gather(parts, text) // tf.gather(totals, text)
        is_first = (text[1:] != text[:-1]) | (part[1:] != part[:-1])
        return tf.concat([tf.zeros_like(text[:1]), tf.cumsum(tf.cast(is_first, tf.int64))], 0)

    def too_long(parts: tf.Tensor) -> tf.Tensor:
        row = rows(parts)
        is_long = tf.gather(tf.math.segment_sum(sizes, row) > room, row)
        return tf.math.unsorted_segment_max(tf.cast(is_long, tf.int32), text, tf.size(totals)) > 0

    def split_more(parts: tf.Tensor, long: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = tf.where(long, tf.minimum(parts + 1 + parts // 8, most_parts), parts)
        return parts, too_long(parts)

    parts = _ceil(totals, tf.constant(room, tf.int64))
    parts, _ = tf.while_loop(lambda _, long: tf.reduce_any(long), split_more, (parts, too_long(parts)))
    return rows(parts)


def _ceil(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return -(-a // b)
