"""The characters that each wordpiece and each word of a text stand for, in the TensorFlow graph.

Characters are Unicode code points of the text as it was given: the indexes of a Python `str`; ends are exclusive. The
offsets of pieces are those of Hugging Face's `BertTokenizerFast(return_offsets_mapping=True)`, but for marks that are
dropped after a piece's last character, such as an accent written as a combining mark. They are part of what is read as
one character, so the piece ends after them. Any other character that is dropped, such as a control character, is part
of a piece only between two characters of it. A piece of less than a character (Hangul is decomposed into its letters)
gets the whole character. A `[UNK]` gets all of its word. Bytes that are not UTF-8 count as
`bytes.decode(errors="replace")` counts them.

How: each distinct character is normalised by itself, which gives the number of bytes that each character of a text
becomes. So the place of a byte in the normalised text tells which character it comes from. Normalisation treats each
character on its own, with one exception: NFD sorts neighbouring combining marks, and keeps a few that are not accents
(Mc: Hangul tone marks, musical stems). If a text has these in another order, their places are swapped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.tokens.normalizer import is_mark, normalize


class Pieces(NamedTuple):
    """The wordpieces and the words of n texts. BERT first splits a text into words: at spaces, around each punctuation
    character and around each CJK character. Then it splits words into pieces."""

    ids: tf.RaggedTensor
    """int32 [n, pieces]: token ids, without special tokens."""
    starts: tf.RaggedTensor
    """int32 [n, pieces]: the character at which each piece starts."""
    ends: tf.RaggedTensor
    """int32 [n, pieces]: one past the last character of each piece, including dropped marks that follow it."""
    words: tf.RaggedTensor
    """int32 [n, pieces]: the index in its text of the word that each piece belongs to."""
    word_starts: tf.RaggedTensor
    """int32 [n, words]: the character at which each word starts."""
    word_ends: tf.RaggedTensor
    """int32 [n, words]: one past the last character of each word, likewise."""


class FlatPieces(NamedTuple):
    """`Pieces` in memory: the arrays of all texts, one after the other."""

    ids: np.ndarray
    """int32 [pieces]."""
    starts: np.ndarray
    """int32 [pieces]: characters, counted from the start of each text, as in `Pieces`; so are all others below."""
    ends: np.ndarray
    """int32 [pieces]."""
    words: np.ndarray
    """int32 [pieces]: the word in its text."""
    word_starts: np.ndarray
    """int32 [words]."""
    word_ends: np.ndarray
    """int32 [words]."""
    row_splits: np.ndarray
    """int64 [n + 1]: text i has the pieces `row_splits[i]` to `row_splits[i + 1]`."""
    word_splits: np.ndarray
    """int64 [n + 1]: text i has the words `word_splits[i]` to `word_splits[i + 1]`."""


@tf.autograph.experimental.do_not_convert  # It has no control flow, and conversion would take seconds.
def find_pieces(
    text: tf.Tensor, normalized: tf.Tensor, words: tf.RaggedTensor, wordpiece: Any, unk_id: int, casing: dict[str, Any]
) -> Pieces:
    """Splits words into pieces and finds the characters of both.

    Args:
        text: string [n], as given.
        normalized: string [n], the same texts after `normalize`.
        words: string [n, words], the words of each; a word that is too long is replaced by another that is `[UNK]`.
        wordpiece: The `FastWordpieceTokenizer`.
        unk_id: The id of `[UNK]`.
        casing: The arguments of `normalize`.

    Returns:
        The pieces of the texts.
    """
    ids, byte_starts, byte_ends = wordpiece.tokenize_with_offsets(words.values)  # [all words, pieces], in the word
    first, last = _byte_ranges(normalized, words)
    characters = _Characters(text, casing)

    # A piece -> its word among all texts' words; a word -> its text. (`value_rowids` of `ids` would take far longer.)
    word_of = tf.cumsum(tf.cast(byte_starts.values == 0, tf.int32)) - 1
    row_of = tf.cast(words.value_rowids(), tf.int32)
    whole = ids.values == unk_id  # The bytes of a word that is too long are not those that WordPiece saw.
    word_first = tf.gather(first, word_of)
    piece_first = word_first + tf.where(whole, 0, tf.cast(byte_starts.values, tf.int32))
    piece_last = tf.where(whole, tf.gather(last, word_of), word_first + tf.cast(byte_ends.values, tf.int32) - 1)
    starts = characters.at(piece_first)
    ends = characters.after_marks(characters.at(piece_last) + 1, tf.gather(row_of, word_of))
    word_starts, word_ends = tf.gather(starts, ids.row_splits[:-1]), tf.gather(ends, ids.row_splits[1:] - 1)

    # Converts places among all characters and words to places in a text.
    origin = tf.gather(tf.cast(characters.row_splits, tf.int32), row_of)
    piece_origin = tf.gather(origin, word_of)
    word_index = tf.range(tf.size(row_of)) - tf.gather(tf.cast(words.row_splits, tf.int32), row_of)
    pieces = (ids.values, starts - piece_origin, ends - piece_origin, tf.gather(word_index, word_of))
    return Pieces(
        *(words.with_values(ids.with_values(values)).merge_dims(-2, -1) for values in pieces),
        words.with_values(word_starts - origin),
        words.with_values(word_ends - origin),
    )


def _byte_ranges(normalized: tf.Tensor, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """int32 [all words] twice: first and last byte of each word, counted through all normalised texts."""
    joined = tf.strings.reduce_join([tf.strings.reduce_join(normalized, separator=" "), ""], separator=" ")
    is_space = tf.io.decode_raw(joined, tf.uint8) == 32
    before = tf.concat([[True], is_space[:-1]], 0)
    first = tf.cast(tf.where(before & ~is_space)[:, 0], tf.int32)
    last = tf.cast(tf.where(~before & is_space)[:, 0], tf.int32) - 1
    separators = tf.cast(words.value_rowids(), tf.int32)  # One after each text before this one.
    return first - separators, last - separators


class _Characters:
    """All characters of n texts, and the bytes that each becomes in the normalised texts."""

    def __init__(self, text: tf.Tensor, casing: dict[str, Any]):
        codes = tf.strings.unicode_decode(text, "UTF-8")
        distinct, self._which = tf.unique(codes.values)
        distinct = tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8")
        sizes = tf.strings.length(normalize(distinct, **casing))
        self._mark = is_mark(distinct) & (sizes == 0)
        self._bytes = tf.cumsum(tf.gather(sizes, self._which))
        self.row_splits = codes.row_splits  # int64 [n + 1]: each text's first character.

    def at(self, byte: tf.Tensor) -> tf.Tensor:
        """int32: the character, counted through all texts, that a byte of the normalised texts comes from."""
        return tf.searchsorted(self._bytes, byte, side="right")

    def after_marks(self, ends: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Ends, int32, moved past the dropped marks that follow in the same text (row)."""

        def move():
            others = tf.cast(tf.where(~tf.gather(self._mark, self._which))[:, 0], tf.int32)
            others = tf.concat([others, [tf.size(self._which)]], 0)
            moved = tf.gather(others, tf.searchsorted(others, ends))
            return tf.minimum(moved, tf.gather(tf.cast(self.row_splits, tf.int32), rows + 1))

        return tf.cond(tf.reduce_any(self._mark), move, lambda: ends)
