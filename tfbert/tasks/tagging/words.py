"""Rows of words: sentences that are already split into words, and texts whose words are to be found.

A sentence that is longer than a row becomes several rows, so that every word keeps its first piece. It is cut between
words into equal parts: a word goes to part `start x parts // pieces`, where `start` counts the pieces before it. The
number of parts is the smallest that works, so none is very short, except next to words nearly as long as a row. Only a
word of more pieces than a row holds loses its last pieces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfbert.errors import UsageError
from tfbert.tokens.ragged import ranges, splits_of
from tfbert.tokens.tokenizer import BertTokenizer, TokenIds


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WordRows:
    """Model inputs of sentences, and the words in them. Words are numbered through all sentences; rows are in order."""

    tokens: TokenIds
    """The rows, `[CLS] words [SEP]` each."""
    first_piece: np.ndarray
    """int64 [words]: where in `tokens.flat` each word's first piece is."""
    word: np.ndarray
    """int32 [tokens]: the word that each token of `tokens.flat` belongs to; -1 for special tokens."""
    sentence: np.ndarray
    """int32 [rows]: the sentence that each row holds, or holds a part of. A sentence without words has no row."""


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


def encode_words(tokenizer: BertTokenizer, sentences: Sequence[Sequence[str]], *, max_seq_length: int) -> WordRows:
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
    pieces = tokenizer.encode_with_offsets(list(index), batch_size=8192)
    first, last = pieces.row_splits[which], pieces.row_splits[np.array(which, np.int64) + 1]
    sentence_splits = splits_of(np.array([len(words) for words in sentences], np.int64))
    return _make_rows(tokenizer, pieces.ids, first, last - first, sentence_splits, max_seq_length)


def encode_text_words(tokenizer: BertTokenizer, texts: Sequence[str], *, max_seq_length: int) -> TextWords:
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
    pieces = tokenizer.encode_with_offsets(texts)
    word = pieces.words + np.repeat(pieces.word_splits[:-1], np.diff(pieces.row_splits))  # Counted through all texts.
    first_of_word = np.flatnonzero(np.diff(word, prepend=-1))
    sizes = np.diff(first_of_word, append=len(pieces.ids))
    rows = _make_rows(tokenizer, pieces.ids, first_of_word, sizes, pieces.word_splits, max_seq_length)
    return TextWords(rows=rows, starts=pieces.word_starts, ends=pieces.word_ends, splits=pieces.word_splits)


def _make_rows(
    tokenizer: BertTokenizer,
    ids: np.ndarray,
    first: np.ndarray,
    sizes: np.ndarray,
    sentence_splits: np.ndarray,
    max_seq_length: int,
) -> WordRows:
    """Rows of words. Each word is `sizes` ids from `ids[first]` on, int64 [words] both; a word of 0 ids is `[UNK]`."""
    room = max_seq_length - 2
    if room < 1:
        raise UsageError(
            "max_seq_length must hold 2 special tokens and a word. "
            f"Received: max_seq_length={max_seq_length}. Pass a larger one."
        )
    ids = np.append(ids, np.int32(tokenizer.unk_id))
    first = np.where(sizes == 0, len(ids) - 1, first)
    sizes = np.clip(sizes, 1, room)
    sentence = np.repeat(np.arange(len(sentence_splits) - 1), np.diff(sentence_splits))
    row_first_word = _first_words(sizes, sentence, sentence_splits, room)

    words_in_row = np.diff(row_first_word, append=len(sizes))
    ends = splits_of(sizes)
    row_splits = np.append(ends[row_first_word], ends[-1]) + 2 * np.arange(len(row_first_word) + 1)
    first_piece = ends[:-1] + 2 * np.repeat(np.arange(len(row_first_word)), words_in_row) + 1
    flat = np.full(row_splits[-1], tokenizer.sep_id, np.int32)
    flat[row_splits[:-1]] = tokenizer.cls_id
    word = np.full(row_splits[-1], -1, np.int32)
    places = ranges(first_piece, sizes)
    flat[places] = ids[ranges(first, sizes)]
    word[places] = np.repeat(np.arange(len(sizes)), sizes)
    tokens = TokenIds(
        flat=flat, row_splits=row_splits, second_start=np.diff(row_splits).astype(np.int32), pad_id=tokenizer.pad_id
    )
    return WordRows(
        tokens=tokens, first_piece=first_piece, word=word, sentence=sentence[row_first_word].astype(np.int32)
    )


def _first_words(sizes: np.ndarray, sentence: np.ndarray, sentence_splits: np.ndarray, room: int) -> np.ndarray:
    """int64 [rows]: the first word of each row.

    Args:
        sizes: int64 [words], 1 to `room` pieces each.
        sentence: int64 [words]: the sentence of each.
        sentence_splits: int64 [sentences + 1], in words.
        room: Most pieces in a row.
    """
    if not len(sizes):
        return np.zeros(0, np.int64)
    before = splits_of(sizes)
    totals = np.diff(before[sentence_splits])
    start = before[:-1] - before[sentence_splits[:-1]][sentence]
    longest = np.zeros(len(totals), np.int64)
    np.maximum.at(longest, sentence, sizes)
    # A part of `total / parts` pieces may end almost a word later; with this many parts it fits in any case.
    most_parts = -(-totals // (room - np.maximum(longest, 1) + 1))
    parts = -(-totals // room)
    while True:
        part = start * parts[sentence] // totals[sentence]
        first = np.flatnonzero((np.diff(sentence, prepend=-1) != 0) | (np.diff(part, prepend=-1) != 0))
        too_long = sentence[first[np.add.reduceat(sizes, first) > room]]
        if not len(too_long):
            return first
        too_long = np.unique(too_long)
        parts[too_long] = np.minimum(parts[too_long] + 1 + parts[too_long] // 8, most_parts[too_long])
