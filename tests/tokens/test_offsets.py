"""The characters of pieces and words against Hugging Face's `BertTokenizerFast`, built from the same vocabulary."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import quick
from tests.support.real_texts import SQUAD, VOCABULARIES, ncbi_sentences, needs_real_data, squad, tokenizers
from tests.support.texts import CASINGS, TEXTS, after_marks, all_texts, has_ordered_mark, hugging_face
from tfbert.tokens import tokenizer as parallel
from tfbert.tokens.tokenizer import BertTokenizer


def assert_equals_hugging_face(tokenizer, reference, texts):
    """Ids, characters and words of every piece; returns how many pieces there are."""
    got, words = tokenizer.encode_with_offsets(texts), tokenizer.tokenize_with_offsets(texts).words.to_list()
    want = reference(texts, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
    for i, (text, start, end) in enumerate(zip(texts, got.row_splits[:-1], got.row_splits[1:], strict=True)):
        assert got.ids[start:end].tolist() == want["input_ids"][i], ascii(text)
        offsets = list(zip(got.starts[start:end].tolist(), got.ends[start:end].tolist(), strict=True))
        wanted = [(first, after_marks(reference, text, last)) for first, last in want["offset_mapping"][i]]
        assert offsets == wanted, ascii(text)
        assert words[i] == want.word_ids(i), ascii(text)
    return len(got.ids)


def words_of(pieces, texts):
    bounds = zip(texts, pieces.word_starts.to_list(), pieces.word_ends.to_list(), strict=True)
    return [[text[start:end] for start, end in zip(starts, ends, strict=True)] for text, starts, ends in bounds]


# Ids of all casings are compared in test_tokenizer; what is found of characters depends on what is stripped.
@pytest.mark.parametrize("name", quick(CASINGS, "uncased", "cased_stripped"))
def test_ids_offsets_and_words_equal_hugging_face(vocab_file, name):
    texts = [text for text in all_texts(200) if not has_ordered_mark(text)]
    tokenizer = BertTokenizer.from_vocab_file(vocab_file, **CASINGS[name])
    assert_equals_hugging_face(tokenizer, hugging_face(vocab_file, **CASINGS[name]), texts)


@pytest.mark.parametrize("casing", CASINGS.values(), ids=CASINGS)
def test_ids_are_those_of_tokenize(vocab_file, casing):
    texts = all_texts(200)
    tokenizer = BertTokenizer.from_vocab_file(vocab_file, **casing)
    assert tokenizer.tokenize_with_offsets(texts).ids.to_list() == tokenizer.tokenize(texts).to_list()


def test_by_hand(tokenizer):
    """Spaces, case, two forms of an accent, an emoji, a CJK character, a word that is too long."""
    texts = ["  The\tFOXES,Zoe\u0308 é😀中a ", "", "x" * 101 + " 각"]
    pieces = tokenizer.tokenize_with_offsets(texts)
    tokens = [[tokenizer.vocab[id] for id in ids] for ids in pieces.ids.to_list()]
    first = ["the", "fox", "##e", "##s", ",", "z", "##o", "##e", "e", "##😀", "中", "a"]
    assert tokens == [first, [], ["[UNK]", "[UNK]"]]
    assert pieces.starts.to_list() == [[2, 6, 9, 10, 11, 12, 13, 14, 17, 18, 19, 20], [], [0, 102]]
    assert pieces.ends.to_list() == [[5, 9, 10, 11, 12, 13, 14, 16, 18, 19, 20, 21], [], [101, 103]]
    assert pieces.words.to_list() == [[0, 1, 1, 1, 2, 3, 3, 3, 4, 4, 5, 6], [], [0, 1]]
    assert pieces.word_starts.to_list() == [[2, 6, 11, 12, 17, 19, 20], [], [0, 102]]
    assert pieces.word_ends.to_list() == [[5, 11, 12, 16, 19, 20, 21], [], [101, 103]]
    assert {ragged.dtype for ragged in pieces} == {tf.int32}


def test_a_word_has_the_accents_after_it_and_nothing_else_that_is_dropped(tokenizer, vocab_file):
    texts = ["Zoe\u0308\u0301 fox", "❤\ufe0f, fox\xad the\u200b", "e\u0301", "\u0301fox", "fox \u0301", "fox", "\u0301"]
    want = [["Zoe\u0308\u0301", "fox"], ["❤\ufe0f", ",", "fox", "the"], ["e\u0301"], ["fox"], ["fox"], ["fox"], []]
    assert words_of(tokenizer.tokenize_with_offsets(texts), texts) == want
    # There an accent is a character like others.
    cased = BertTokenizer.from_vocab_file(vocab_file, do_lower_case=False)
    want[3:5], want[6] = [["\u0301fox"], ["fox", "\u0301"]], ["\u0301"]
    assert words_of(cased.tokenize_with_offsets(texts), texts) == want


ENDINGS = {
    "an accent in a word": ("Zoe\u0308s fox", ["Z", "o", "e\u0308", "s", "fox"]),
    "several, and a precomposed letter": ("ae\u0323\u0301 \xe9\u0301", ["a", "e\u0323\u0301", "\xe9\u0301"]),
    "after punctuation": ("fox.\u0301\u0301 a", ["fox", ".\u0301\u0301", "a"]),
    "an emoji": ("❤\ufe0f a", ["❤\ufe0f", "a"]),
    "a Chinese character and its variant": ("中\U000e0100文", ["中\U000e0100", "文"]),
    "Hebrew points": ("ש\u05c1\u05b8ל", ["ש\u05c1\u05b8", "ל"]),
    "Arabic tanween": ("ا\u064bب", ["ا\u064b", "ب"]),
    "Devanagari: the sign is kept, the virama not": ("क\u094d\u200d न\u092e\u0938", ["क\u094d\u200d", "न", "म", "स"]),
    "the flag of Scotland": ("😀\U000e0067\U000e0062\U000e007f a", ["😀\U000e0067\U000e0062\U000e007f", "a"]),
    "what is no part of a character": ("fox\u200b\u0301 fox\xad fox\u200f\u202c fox\x07", ["fox"] * 4),
    "before the first character": ("\u0301fox \u0301a", ["fox", "a"]),
    "Hangul": ("각\u0301", ["각\u0301"]),
}


@pytest.mark.parametrize(("text", "want"), ENDINGS.values(), ids=ENDINGS)
def test_a_piece_ends_after_the_marks_of_its_last_character(tokenizer, text, want):
    pieces = tokenizer.tokenize_with_offsets([text])
    places = zip(pieces.starts[0].numpy(), pieces.ends[0].numpy(), strict=True)
    assert [text[start:end] for start, end in places] == want


def test_a_mark_that_is_sorted_but_kept(tokenizer, vocab_file):
    """U+1D1BB is a note head and a stem, U+1D165; sorting puts the stem after the dropped U+0338. Hugging Face takes it
    to come from there. `offsets` says so; if this fails they have changed it."""
    text = "a\U0001d1bb\u0338."
    reference = hugging_face(vocab_file)(text, add_special_tokens=False, return_offsets_mapping=True)
    pieces = tokenizer.tokenize_with_offsets([text])
    assert pieces.ids.to_list() == [reference["input_ids"]]
    assert reference["offset_mapping"] == [(0, 3), (3, 4)]
    assert (pieces.starts.to_list(), pieces.ends.to_list()) == ([[0, 3]], [[3, 4]])


def test_bytes_that_are_no_utf8_count_as_python_decodes_them(tokenizer):
    rng = np.random.default_rng(0)
    alphabet = np.frombuffer("aé中😀 ".encode() + b"\xff\xc0\x80\xed\xa0\xf4\x90\xe0\x9f\xf5", np.uint8)
    raw = [rng.choice(alphabet, rng.integers(1, 12)).tobytes() for _ in range(500)]
    got = tokenizer.tokenize_with_offsets(raw)
    want = tokenizer.tokenize_with_offsets([text.decode("utf-8", "replace") for text in raw])
    for ragged, wanted in zip(got, want, strict=True):
        assert ragged.to_list() == wanted.to_list()


def test_a_lone_surrogate_is_one_character(tokenizer):
    pieces = tokenizer.encode_with_offsets(["the \ud83dfox \udc00the"])
    assert (pieces.starts.tolist(), pieces.ends.tolist()) == ([0, 5, 10], [3, 8, 13])


@pytest.mark.slow
def test_in_a_dataset_and_in_a_saved_model(tokenizer, tmp_path):

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, text):
            return tokenizer.tokenize_with_offsets(text)._asdict()

    tf.saved_model.save(Module(), tmp_path / "model")
    want = tokenizer.tokenize_with_offsets(TEXTS)
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(len(TEXTS)).map(tokenizer.tokenize_with_offsets)
    in_dataset, saved = next(iter(dataset)), tf.saved_model.load(tmp_path / "model")(tf.constant(TEXTS))
    for name, ragged in want._asdict().items():
        assert getattr(in_dataset, name).to_list() == saved[name].to_list() == ragged.to_list()


def test_many_texts_in_order(tokenizer, monkeypatch):
    monkeypatch.setattr(parallel, "_CHUNK_CHARACTERS", 300)
    texts = TEXTS * 5
    got, want = tokenizer.encode_with_offsets(texts, batch_size=7), tokenizer.tokenize_with_offsets(texts)
    words = want.word_starts.values, want.word_ends.values, want.word_starts.row_splits
    pieces = want.ids.values, want.starts.values, want.ends.values, want.ids.row_splits
    for found, wanted in zip([*got, *tokenizer.find_words(texts)], [*pieces, *words], strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


def test_no_texts(tokenizer):
    assert [array.tolist() for array in tokenizer.encode_with_offsets([])] == [[], [], [], [0]]
    assert [array.tolist() for array in tokenizer.find_words([])] == [[], [], [0]]


@pytest.mark.slow
@needs_real_data
@pytest.mark.parametrize("name", VOCABULARIES)
def test_real_texts(name):
    """Every context and question, and every sentence."""
    sets = [part for file in SQUAD for part in squad(file)[:2]]
    sets.append([" ".join(words) for words in ncbi_sentences()])
    pieces = [assert_equals_hugging_face(*tokenizers(name), texts) for texts in sets]
    assert sum(pieces) > 1_000_000
