"""BERT's text clean-up in the TensorFlow graph: from a text to its words, with spaces between them; and the characters
that each wordpiece and each word of a text stand for.

The character tables are Hugging Face's, which are older than TensorFlow's: Unicode 8 (2015) for control characters,
punctuation and accents. The tests compare every code point. Two kinds of very new characters remain different:

- When lower-casing, 67 letters that Unicode gained in version 14 or later keep their upper case: U+1C89, U+2C2F,
  U+A7C0, U+A7CB to U+A7DC, U+10570 to U+10595 (Vithkuqi), U+10D50 to U+10D65 (Garay). Beside `tokenizers` 0.22 and
  later 28 more of version 17: U+A7CE, U+A7D2, U+A7D4, U+16EA0 to U+16EB8 (Beria Erfe).
- When stripping accents, 21 characters of Unicode 13 or later are decomposed (Todhri U+105C9 and 105E4, Tulu U+11383 to
  U+113C8, Dives Akuru U+11938, Gurung Khema U+16121 to U+16128, Kirat Rai U+16D68 to U+16D6A), and neighbouring
  combining marks that are not accents in Unicode 8 can change their order.

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


def _regex_class(ranges: str) -> str:
    """Ranges of hexadecimal code points in RE2's syntax."""
    return "".join("-".join(rf"\x{{{end}}}" for end in part.split("-")) for part in ranges.split())


# Classes as in Unicode 8: RE2's `\p{X}` is newer, and `[^\P{X}...]` is class X without what follows.
_CONTROL = r"[^\P{C}\t\n\r" + _regex_class("890-891 8E2 110CD 13430-1343F") + r"]|\x{FFFD}"
_SPACE = r"[^\P{Z} ]|[\t\n\r]"
_PUNCTUATION = (
    r"[!-/:-@\[-`{-~\x{166D}\x{111C9}]|[^\P{P}"
    + _regex_class(
        "61D 9FD A76 C77 C84 1B7D-1B7E 2E43-2E4F 2E52-2E5D 10EAD 10F55-10F59 10F86-10F89 1144B-1144F 1145A-1145B 1145D "
        "11660-1166C 116B9 1183B 11944-11946 119E2 11A3F-11A46 11A9A-11A9C 11A9E-11AA2 11B00-11B09 11C41-11C45 "
        "11C70-11C71 11EF7-11EF8 11F43-11F4F 11FFF 12FF1-12FF2 16E97-16E9A 16FE2 1E95E-1E95F"
    )
    + "]"
)
_ACCENT = (
    r"[\x{1734}]|[^\P{Mn}"
    + _regex_class(
        "7FD 898-89F 8CA-8E1 9FE AFA-AFF B55 C04 C3C D00 D3B-D3C D81 EBA ECE 180F 1885-1886 1ABF-1ACE 1DF6-1DFB A82C "
        "A8C5 A8FF A9BD 10D24-10D27 10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 11073-11074 110C2 111C9 "
        "111CF 1123E 11241 1133B 11438-1143F 11442-11444 11446 1145E 1182F-11837 11839-1183A 1193B-1193C 1193E 11943 "
        "119D4-119D7 119DA-119DB 119E0 11A01-11A0A 11A33-11A38 11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B 11A8A-11A96 "
        "11A98-11A99 11C30-11C36 11C38-11C3D 11C3F 11C92-11CA7 11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 11D31-11D36 11D3A "
        "11D3C-11D3D 11D3F-11D45 11D47 11D90-11D91 11D95 11D97 11EF3-11EF4 11F00-11F01 11F36-11F3A 11F40 11F42 13440 "
        "13447-13455 16F4F 16FE4 1CF00-1CF2D 1CF30-1CF46 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A "
        "1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E944-1E94A"
    )
    + "]"
)
_JOINER = "[" + _regex_class("200C-200D E0020-E007F") + "]"
# 2B820-2B91F are missing in Hugging Face's Rust code (a digit mistyped in 2B820), so they are missing here.
_CHINESE = "[" + _regex_class("3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B81F 2B920-2CEAF 2F800-2FA1F") + "]"
# tf.strings.lower depends on the locale of the process (`I` in Turkish, `J` in Lithuanian) and on what follows (a final
# sigma); Hugging Face only on the letter. So these letters are lower-cased beforehand.
_LOWER = {"I": "i", "İ": "i̇", "J": "j", "Į": "į", "Ì": "ì", "Í": "í", "Ĩ": "ĩ", "Σ": "σ"}


def effective_casing(
    *, do_lower_case: bool = True, strip_accents: bool | None = None, tokenize_chinese_chars: bool = True
) -> dict[str, bool]:
    """What `normalize` does for these options, with `strip_accents` resolved as transformers resolves it."""
    strips = do_lower_case if strip_accents is None else strip_accents
    return {"do_lower_case": do_lower_case, "strip_accents": strips, "tokenize_chinese_chars": tokenize_chinese_chars}


def normalize(
    text: tf.Tensor, *, do_lower_case: bool, strip_accents: bool | None = None, tokenize_chinese_chars: bool = True
) -> tf.Tensor:
    """Cleans texts as BERT does and puts spaces between their words.

    Args:
        text: string [n], UTF-8. Bytes that are not UTF-8 are dropped.
        do_lower_case: Lower-case all letters.
        strip_accents: Drop nonspacing marks after canonical decomposition (NFD). None: as `do_lower_case`.
        tokenize_chinese_chars: Make every CJK character a word of its own.

    Returns:
        string [n]. The words are what lies between spaces; each punctuation character is a word.
    """
    import tensorflow_text as tf_text  # Half a second, which other tokenizers need not wait for.

    replace = tf.strings.regex_replace
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")  # Invalid bytes become U+FFFD, dropped next.
    text = replace(text, _CONTROL, "")
    text = replace(text, _SPACE, " ")
    if do_lower_case if strip_accents is None else strip_accents:
        # Accents decompose to accents only, so they can be dropped before decomposition as well as after. They must be
        # dropped before: ICU sorts a run of marks in quadratic time, minutes for a megabyte of them.
        text = replace(text, _ACCENT, "")
        text = replace(tf_text.normalize_utf8(text, "NFD"), _ACCENT, "")
    if do_lower_case:
        for upper, lower in _LOWER.items():
            text = replace(text, upper, lower)
        text = tf.strings.lower(text, encoding="utf-8")
    return replace(text, f"{_PUNCTUATION}|{_CHINESE}" if tokenize_chinese_chars else _PUNCTUATION, r" \0 ")


class Pieces(NamedTuple):
    """The wordpieces and the words of n texts. BERT first splits a text into words: at spaces, around each punctuation
    character and around each CJK character. Then it splits words into pieces.

    Attributes:
        ids: int32 [n, pieces]: token ids, without special tokens.
        starts: int32 [n, pieces]: the character at which each piece starts.
        ends: int32 [n, pieces]: one past the last character of each piece, including dropped marks that follow it.
        words: int32 [n, pieces]: the index in its text of the word that each piece belongs to.
        word_starts: int32 [n, words]: the character at which each word starts.
        word_ends: int32 [n, words]: one past the last character of each word, likewise.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    words: tf.RaggedTensor
    word_starts: tf.RaggedTensor
    word_ends: tf.RaggedTensor


class FlatPieces(NamedTuple):
    """The pieces of n texts in memory, one text after the other.

    Attributes:
        ids: int32 [pieces].
        starts: int32 [pieces]: characters, counted from the start of each text, as in `Pieces`.
        ends: int32 [pieces], likewise.
        row_splits: int64 [n + 1]: text i has the pieces `row_splits[i]` to `row_splits[i + 1]`.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    row_splits: np.ndarray


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

    # A word -> its first and last byte, counted through all normalised texts.
    joined = tf.strings.reduce_join([tf.strings.reduce_join(normalized, separator=" "), ""], separator=" ")
    is_space = tf.io.decode_raw(joined, tf.uint8) == 32
    before = tf.concat([[True], is_space[:-1]], 0)
    row_of = tf.cast(words.value_rowids(), tf.int32)
    # One separator is after each text before this one.
    first = tf.cast(tf.where(before & ~is_space)[:, 0], tf.int32) - row_of
    last = tf.cast(tf.where(~before & is_space)[:, 0], tf.int32) - 1 - row_of

    # A byte -> the character, counted through all texts, that it comes from.
    codes = tf.strings.unicode_decode(text, "UTF-8")
    text_splits = tf.cast(codes.row_splits, tf.int32)
    distinct, which = tf.unique(codes.values)
    distinct = tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8")
    sizes = tf.strings.length(normalize(distinct, **casing))
    bytes_until = tf.cumsum(tf.gather(sizes, which))
    # What Unicode counts to the character before it (UAX 29) and is dropped: a nonspacing mark, a joiner, or a tag, as
    # at the end of the flag of Scotland.
    is_mark = tf.strings.regex_full_match(distinct, f"{_ACCENT}|{_JOINER}") & (sizes == 0)

    def after_marks(ends: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Ends, moved past the dropped marks that follow in the same text."""
        others = tf.cast(tf.where(~tf.gather(is_mark, which))[:, 0], tf.int32)
        others = tf.concat([others, [tf.size(which)]], 0)
        return tf.minimum(tf.gather(others, tf.searchsorted(others, ends)), tf.gather(text_splits, rows + 1))

    # A piece -> its word among all texts' words; a word -> its text. (`value_rowids` of `ids` would take far longer.)
    word_of = tf.cumsum(tf.cast(byte_starts.values == 0, tf.int32)) - 1
    whole = ids.values == unk_id  # The bytes of a word that is too long are not those that WordPiece saw.
    word_first = tf.gather(first, word_of)
    piece_first = word_first + tf.where(whole, 0, tf.cast(byte_starts.values, tf.int32))
    piece_last = tf.where(whole, tf.gather(last, word_of), word_first + tf.cast(byte_ends.values, tf.int32) - 1)
    starts, ends = (tf.searchsorted(bytes_until, byte, side="right") for byte in (piece_first, piece_last))
    ends, rows = ends + 1, tf.gather(row_of, word_of)
    ends = tf.cond(tf.reduce_any(is_mark), lambda: after_marks(ends, rows), lambda: ends)
    word_starts, word_ends = tf.gather(starts, ids.row_splits[:-1]), tf.gather(ends, ids.row_splits[1:] - 1)

    # Converts places among all characters and words to places in a text.
    origin = tf.gather(text_splits, row_of)
    piece_origin = tf.gather(origin, word_of)
    word_index = tf.range(tf.size(row_of)) - tf.gather(tf.cast(words.row_splits, tf.int32), row_of)
    pieces = (ids.values, starts - piece_origin, ends - piece_origin, tf.gather(word_index, word_of))
    return Pieces(
        *(words.with_values(ids.with_values(values)).merge_dims(-2, -1) for values in pieces),
        words.with_values(word_starts - origin),
        words.with_values(word_ends - origin),
    )
