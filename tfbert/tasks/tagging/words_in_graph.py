"""`tasks/tagging/words.py` in the TensorFlow graph: the rows of texts whose words are tagged, long texts split."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfbert.batches.inputs import TokenTensors
from tfbert.tokens.offsets import Pieces
from tfbert.tokens.tokenizer import BertTokenizer


class WordRows(NamedTuple):
    """Rows of texts, and the words in them, counted through all texts. See `words.WordRows`.

    Attributes:
        tokens: The rows.
        first_piece: int64 `[words]`, where in `tokens.flat` each word's first piece is.
        text: int64 `[rows]`, the text that each row holds, or holds a part of.
    """

    tokens: TokenTensors
    first_piece: tf.Tensor
    text: tf.Tensor


def word_rows_in_graph(tokenizer: BertTokenizer, pieces: Pieces, max_seq_length: int) -> WordRows:
    """The rows that `words.encode_text_words` makes.

    Args:
        tokenizer: The tokenizer.
        pieces: The texts, as the tokenizer splits them.
        max_seq_length: Longest row, special tokens counted: 3 or more.
    """
    room = max_seq_length - 2
    word_splits, text = pieces.word_starts.row_splits, pieces.word_starts.value_rowids()
    word = tf.cast(pieces.words.values, tf.int64) + tf.gather(word_splits, pieces.words.value_rowids())
    sizes = tf.math.unsorted_segment_sum(tf.ones_like(word), word, tf.size(text))
    place = tf.range(tf.size(word, tf.int64)) - tf.gather(tf.cumsum(sizes, exclusive=True), word)
    sizes = tf.minimum(sizes, room)  # If a word has more pieces than a row holds, its last ones are lost.
    row = _rows_of_words(sizes, text, word_splits, room)

    kept = tf.boolean_mask(pieces.ids.values, place < room)
    ids = tf.RaggedTensor.from_row_lengths(kept, tf.math.segment_sum(sizes, row), validate=False)
    cls, sep = (tf.fill([ids.nrows(), 1], id) for id in (tokenizer.cls_id, tokenizer.sep_id))
    tokens = TokenTensors.of_rows(tf.concat([cls, ids, sep], axis=1), None, tokenizer.pad_id)
    first_piece = tf.cumsum(sizes, exclusive=True) + 2 * row + 1
    return WordRows(tokens, first_piece, tf.math.segment_max(text, row))


def _rows_of_words(sizes: tf.Tensor, text: tf.Tensor, word_splits: tf.Tensor, room: int) -> tf.Tensor:
    """int64 `[words]`: the row of each word, as `words._first_words` cuts texts.

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
