"""Rows of words against Hugging Face's `is_split_into_words=True`, and how long sentences are split."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.support.real_texts import VOCABULARIES, ncbi_sentences, needs_real_data, tokenizers
from tests.support.texts import TEXTS, hugging_face, random_texts
from tfbert.errors import UsageError
from tfbert.tasks.token_classification.token_classification import encode_words, text_rows_in_graph
from tfbert.tokens.tokenizer import BertTokenizer

LONG = 1 << 20


def words_of_rows(encoded):
    """The words of each row, as their places among all words."""
    rows = np.split(encoded.word, encoded.tokens.row_splits[1:-1])
    return [list(dict.fromkeys(row[row >= 0].tolist())) for row in rows]


def assert_sound(encoded, sentences, max_seq_length):
    """Every word is in one row, whole and in order; no row is longer than allowed; ids of rows and words agree."""
    counts = [len(words) for words in sentences]
    assert sum(words_of_rows(encoded), []) == list(range(sum(counts)))
    sentence_of_word = np.repeat(np.arange(len(counts)), counts)
    for sentence, words in zip(encoded.sentence, words_of_rows(encoded), strict=True):
        assert set(sentence_of_word[words]) == {sentence}
    assert (np.diff(encoded.sentence) >= 0).all()
    assert encoded.tokens.lengths.max() <= max_seq_length
    np.testing.assert_array_equal(encoded.first_piece, np.flatnonzero(np.diff(encoded.word, prepend=-1) > 0))
    np.testing.assert_array_equal(encoded.tokens.second_start, encoded.tokens.lengths)
    arrays = (encoded.first_piece, encoded.word, encoded.sentence, encoded.tokens.flat, encoded.tokens.row_splits)
    assert [array.dtype.name for array in arrays] == ["int64", "int32", "int32", "int32", "int64"]


def assert_equals_hugging_face(tokenizer, reference, sentences):
    """Where each row holds its sentence; a word without a piece, which theirs leaves out, is [UNK]."""
    encoded = encode_words(tokenizer, sentences, max_seq_length=LONG)
    assert_sound(encoded, sentences, LONG)
    want = reference(sentences, is_split_into_words=True, split_special_tokens=True)
    first = 0
    for i, words in enumerate(sentences):
        start, end = encoded.tokens.row_splits[i : i + 2]
        ids = iter(want["input_ids"][i])
        pieces = [[next(ids)]] + [[] for _ in words] + [[]]
        for place in want.word_ids(i)[1:-1]:
            pieces[place + 1].append(next(ids))
        pieces[-1].append(next(ids))
        wanted = [word or [tokenizer.unk_id] for word in pieces]
        assert encoded.tokens.flat[start:end].tolist() == sum(wanted, []), words
        of_words = [first + place for place, word in enumerate(wanted[1:-1]) for _ in word]
        assert encoded.word[start:end].tolist() == [-1, *of_words, -1]
        first += len(words)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_ids_equal_hugging_face(vocab_file, do_lower_case):
    texts = [*TEXTS[3:], *random_texts(200)]
    sentences = [words for words in (text.split(" ") for text in texts) if words]
    sentences += [texts[i : i + 3] for i in range(0, 60, 3)]  # Words with spaces, controls and punctuation in them.
    tokenizer = BertTokenizer.from_vocab_file(vocab_file, do_lower_case=do_lower_case)
    assert_equals_hugging_face(tokenizer, hugging_face(vocab_file, do_lower_case=do_lower_case), sentences)


@pytest.mark.parametrize("words, room, want", [(10, 4, [4, 3, 3]), (8, 4, [4, 4]), (9, 8, [5, 4]), (3, 1, [1] * 3)])
def test_a_long_sentence_is_split_into_equal_parts(tokenizer, words, room, want):
    encoded = encode_words(tokenizer, [["a"] * words], max_seq_length=room + 2)
    assert encoded.tokens.lengths.tolist() == [length + 2 for length in want]
    assert encoded.sentence.tolist() == [0] * len(want)


def test_words_are_never_split_but_for_one_longer_than_a_row(tokenizer):
    whole, cut = "abcde", "abcdefgh"  # 5 and 8 pieces.
    encoded = encode_words(tokenizer, [["a", whole, "b", cut, "c"], ["a"]], max_seq_length=7)
    assert words_of_rows(encoded) == [[0], [1], [2], [3], [4], [5]]
    assert encoded.tokens.lengths.tolist() == [3, 7, 3, 7, 3, 3]
    longest = encoded.tokens.flat[slice(*encoded.tokens.row_splits[3:5])]
    assert longest[1:-1].tolist() == tokenizer.tokenize([cut]).to_list()[0][:5]
    assert encoded.sentence.tolist() == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("max_seq_length", [3, 7, 33, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 12))])
def test_any_sentences_are_split_soundly(tokenizer, max_seq_length):
    rng = np.random.default_rng(max_seq_length)
    sentences = [["abcdefghij"[: rng.integers(1, 11)] for _ in range(rng.integers(1, 90))] for _ in range(200)]
    encoded = encode_words(tokenizer, sentences, max_seq_length=max_seq_length)
    assert_sound(encoded, sentences, max_seq_length)
    if max_seq_length == 33:  # About three times the longest word: parts of equal length, and few.
        room, lengths = max_seq_length - 2, encoded.tokens.lengths - 2
        rows, pieces = np.bincount(encoded.sentence), np.bincount(encoded.sentence, lengths)
        assert (np.abs(lengths - (pieces / rows)[encoded.sentence]) < 10).all()
        assert (rows <= np.ceil(pieces / (room - 10 + 1))).all()
        assert 1500 < rows.sum() < 1.25 * np.ceil(pieces / room).sum()


def test_many_words_in_one_sentence_and_one_that_fills_a_row(tokenizer):
    encoded = encode_words(tokenizer, [["a"] * 30_000 + ["abcdefgh" * 4]], max_seq_length=34)
    assert encoded.tokens.lengths.max() == 34 and len(encoded.first_piece) == 30_001


def test_rows_of_texts_in_the_graph_are_those_of_their_words(tokenizer):
    texts = [*TEXTS, *random_texts(100)]
    starts, ends, splits = tokenizer.find_words(texts)
    places = [list(zip(starts[a:b], ends[a:b], strict=True)) for a, b in itertools.pairwise(splits)]
    sentences = [[text[start:end] for start, end in own] for text, own in zip(texts, places, strict=True)]
    pieces = tokenizer.tokenize_with_offsets(tf.constant([text.encode() for text in texts]))
    for max_seq_length in (12, LONG):
        found = text_rows_in_graph(tokenizer, pieces, max_seq_length)
        want = encode_words(tokenizer, sentences, max_seq_length=max_seq_length)
        assert_sound(want, sentences, max_seq_length)
        assert found.tokens.in_memory().flat.tolist() == want.tokens.flat.tolist()
        for name in ("first_piece", "word", "sentence"):
            np.testing.assert_array_equal(getattr(found, name), getattr(want, name))


@pytest.mark.parametrize("sentences", [[], [[]], [[], ["a"], []]])
def test_a_sentence_of_no_words_has_no_row(tokenizer, sentences):
    encoded = encode_words(tokenizer, sentences, max_seq_length=8)
    assert encoded.sentence.tolist() == [i for i, words in enumerate(sentences) if words]
    assert len(encoded.tokens) == len(encoded.first_piece) == len(encoded.sentence)
    assert len(encoded.tokens.flat) == len(encoded.word) == 3 * len(encoded.sentence)


def test_no_room_for_a_word(tokenizer):
    with pytest.raises(UsageError, match="max_seq_length=2"):
        encode_words(tokenizer, [["a"]], max_seq_length=2)


@needs_real_data
@pytest.mark.slow
@pytest.mark.parametrize("name", VOCABULARIES)
def test_real_sentences(name):
    tokenizer, reference = tokenizers(name)
    sentences = ncbi_sentences()
    assert len(sentences) == 7287
    assert_equals_hugging_face(tokenizer, reference, sentences)
    assert_sound(encode_words(tokenizer, sentences, max_seq_length=32), sentences, 32)
