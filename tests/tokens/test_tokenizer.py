"""The tokenizer against Hugging Face's `BertTokenizerFast`, built from the same vocabulary."""

import pathlib
import random
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
import transformers
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from transformers import AutoTokenizer, BertTokenizerFast

from tests.support.cases import slow
from tests.support.real_texts import needs_real_data
from tests.support.refusals import assert_refused
from tests.support.texts import CASINGS, NEW_COMPOSED, NEW_LETTERS, TEXTS, all_texts, hugging_face, write_vocab
from tfbert.tokens import tokenizer as tokenizer_module
from tfbert.tokens.normalizer import normalize
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.tokens.vocabulary import SPECIAL_TOKENS


@pytest.fixture(scope="module")
def reference(vocab_file):
    return hugging_face(vocab_file)


def hf_ids(reference, texts, **kwargs):
    kwargs = {"add_special_tokens": False} | kwargs
    return reference(texts, split_special_tokens=True, **kwargs)["input_ids"]


@pytest.mark.parametrize("casing", CASINGS.values(), ids=CASINGS)
def test_ids_equal_hugging_face(vocab_file, casing):
    """Of chosen texts, of random ones, and of words of 100 and 101 characters."""
    tokenizer, reference = BertTokenizer.from_vocab_file(vocab_file, **casing), hugging_face(vocab_file, **casing)
    texts = all_texts(1000)
    for text, got, want in zip(texts, tokenizer.tokenize(texts).to_list(), hf_ids(reference, texts), strict=True):
        assert got == want, ascii(text)


# The planes that hold letters, marks and signs, and of each other one what a stride finds; and all, which takes longer.
PLANES = sorted({*range(0x20000), *range(0xE0000, 0xE0200), *range(0x20000, 0x110000, 61)})


@pytest.mark.parametrize("codes", [PLANES, slow(range(0x110000))], ids=["some", "all"])
@pytest.mark.parametrize("do_lower_case, may_differ", [(True, NEW_LETTERS | NEW_COMPOSED), (False, set())])
def test_every_code_point_is_cleaned_and_split_as_by_hugging_face(do_lower_case, may_differ, codes):
    clean = normalizers.BertNormalizer(lowercase=do_lower_case)
    split = pre_tokenizers.BertPreTokenizer()
    codes = [code for code in codes if not 0xD800 <= code < 0xE000 and code not in may_differ]
    texts = ["\n".join(f"b{chr(code)}d" for code in codes[i : i + 512]) for i in range(0, len(codes), 512)]
    got = normalize(tf.constant(texts), do_lower_case=do_lower_case).numpy()
    for text, words in zip(texts, got, strict=True):
        want = [word for word, _ in split.pre_tokenize_str(clean.normalize_str(text))]
        assert words.decode().split() == want, ascii(text)


@pytest.mark.parametrize("code", sorted(NEW_LETTERS)[:3] + sorted(NEW_COMPOSED)[:3])
def test_documented_differences_are_still_there(code):
    """If this fails TensorFlow's Unicode tables have moved: shorten the list in the docstring of `normalizer`."""
    want = normalizers.BertNormalizer(lowercase=True).normalize_str(chr(code))
    assert normalize([chr(code)], do_lower_case=True).numpy()[0].decode() != want


def test_special_tokens_in_a_text_are_plain_text(tokenizer, reference):
    text = "the [SEP] fox [CLS][MASK] [PAD]ing [UNK] [sep]"
    ids = tokenizer.tokenize([text]).to_list()
    assert ids == hf_ids(reference, [text])
    control = {tokenizer.sep_id, tokenizer.cls_id, tokenizer.mask_id, tokenizer.pad_id, tokenizer.unk_id}
    assert not control & set(ids[0])


def test_the_call_of_hugging_face_that_gives_the_same(vocab_file):
    """As README and the tokenizer's docstring name it; and that a call without it, or the other way, does not."""
    text, pair = "the [SEP] fox [CLS]", "a [MASK] [PAD]"
    ids, _ = BertTokenizer.from_vocab_file(vocab_file)([text], [pair], max_seq_length=40)
    reference = hugging_face(vocab_file)
    assert ids.to_list() == [reference(text, pair, split_special_tokens=True)["input_ids"]]
    assert ids.to_list() == [hugging_face(vocab_file, split_special_tokens=True)(text, pair)["input_ids"]]
    reference.backend_tokenizer.encode_special_tokens = True
    assert ids.to_list() != [reference(text, pair)["input_ids"]]


SAVED = [(False, casing) for casing in CASINGS.values()] + [(True, CASINGS["uncased"])]


@pytest.mark.parametrize("fills_masks, casing", SAVED)
def test_what_is_saved_finds_no_special_tokens_in_texts_either(vocab_file, tmp_path, casing, fills_masks):
    """For transformers and for `tokenizers` alone; models that fill in words find the places for these."""
    tokenizer = BertTokenizer.from_vocab_file(vocab_file, **casing)
    tokenizer.save(tmp_path, model_max_length=40, fills_masks=fills_masks)
    texts = [f"the {token} fox{token}, a" for token in ("[SEP]", "[CLS]", "[PAD]", "[UNK]")]
    texts += ["[SEP]", "the", "[sep] [Cls]", "a[SEP][SEP]\n[CLS] [PAD]\u00e9", "[[SEP]]", *TEXTS]
    texts = [text for text in texts if "[MASK]" not in text]
    ours = tokenizer.tokenize(texts).to_list()
    alone = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [row.ids for row in alone.encode_batch(texts, add_special_tokens=False)] == ours
    for cls in (AutoTokenizer, BertTokenizerFast):
        loaded = cls.from_pretrained(tmp_path)
        loaded.save_pretrained(tmp_path / "again")
        for theirs in (loaded, cls.from_pretrained(tmp_path / "again")):
            assert (theirs(texts, add_special_tokens=False)["input_ids"] == ours) != fills_masks
        assert (theirs("[MASK]", add_special_tokens=False)["input_ids"] == [theirs.mask_token_id]) == fills_masks
        assert loaded.model_max_length == 40
    assert (alone.encode("[MASK]", add_special_tokens=False).ids == [tokenizer.mask_id]) == fills_masks
    assert BertTokenizer.from_pretrained(tmp_path) == tokenizer

    # What is no text: the ends of rows, padding, masks, and their absence from decoded rows.
    row = [tokenizer.cls_id, *ours[5], tokenizer.sep_id, *ours[5], tokenizer.sep_id]
    found = loaded(["the", "the fox"], ["the", "the fox"], padding=True, return_special_tokens_mask=True)
    assert found["input_ids"][0][: len(row)] == row and set(found["input_ids"][0][len(row) :]) == {tokenizer.pad_id}
    assert sum(found["attention_mask"][0]) == len(row) and found["token_type_ids"][0][: len(row)] == [0, 0, 0, 1, 1]
    assert found["special_tokens_mask"][0][: len(row)] == [1, 0, 1, 0, 1]
    assert loaded.decode(found["input_ids"][0], skip_special_tokens=True) == "the the"
    alone.enable_padding(pad_id=tokenizer.pad_id)
    assert alone.encode_batch([("the", "the"), ("the fox", "the fox")])[0].ids == found["input_ids"][0]


def test_invalid_utf8_is_dropped(tokenizer, reference):
    raw = [b"the\xff fox", b"\xc3(", b"\xed\xa0\x80a\xed\xb0\x80", b"fox\xe2\x82", b"\xf4\x90\x80\x80", b"\xc0\x80the"]
    texts = [text.decode("utf-8", "replace") for text in raw]
    assert tokenizer.tokenize(tf.constant(raw)).to_list() == hf_ids(reference, texts)


def test_a_lone_surrogate_is_dropped(tokenizer):
    encoded = tokenizer.encode(["the \ud83dfox", "the fox"], max_seq_length=16)
    np.testing.assert_array_equal(encoded.flat[: encoded.lengths[0]], encoded.flat[encoded.lengths[0] :])


def test_vocabulary_in_any_order_gives_its_own_special_ids(tmp_path):
    vocab = ["[PAD]", "[unused0]", "the", "fox", "[MASK]", "[UNK]", "##es", "[SEP]", "[CLS]"]
    tokenizer = BertTokenizer(vocab)
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert ids == (0, 5, 8, 7, 4)
    texts = ["the foxes", "the dog", ""]
    want = hf_ids(hugging_face(write_vocab(tmp_path / "v", vocab)), texts, add_special_tokens=True)
    assert tokenizer(texts, max_seq_length=8)[0].to_list() == want == [[8, 2, 3, 6, 7], [8, 2, 5, 7], [8, 7]]
    assert (tokenizer.vocab, tokenizer.vocab_size, tokenizer.do_lower_case) == (tuple(vocab), 9, True)


@pytest.mark.parametrize("max_seq_length", range(3, 14))
def test_pairs_are_truncated_as_by_hugging_face(tokenizer, reference, max_seq_length):
    lengths = [(first, second) for first in range(10) for second in range(10)]
    first = [" ".join("abcdefghi"[:n]) for n, _ in lengths]
    second = [" ".join("rstuvwxyz"[:n]) for _, n in lengths]
    ids, second_start = tokenizer(first, second, max_seq_length=max_seq_length)
    want = reference(first, second, truncation=True, max_length=max_seq_length)
    assert ids.to_list() == want["input_ids"]
    assert second_start.numpy().tolist() == [types.index(1) for types in want["token_type_ids"]]
    assert (ids.dtype, second_start.dtype) == (tf.int32, tf.int32)


@pytest.mark.parametrize("max_seq_length", [2, 3, 5, 64])
def test_single_texts_are_truncated_as_by_hugging_face(tokenizer, reference, max_seq_length):
    ids, second_start = tokenizer(TEXTS, max_seq_length=max_seq_length)
    want = hf_ids(reference, TEXTS, add_special_tokens=True, truncation=True, max_length=max_seq_length)
    assert ids.to_list() == want
    assert second_start.numpy().tolist() == [len(row) for row in want]


def test_too_small_max_seq_length_and_missing_second_texts(tokenizer):
    assert_refused("max_seq_length=1", tokenizer, ["a"], max_seq_length=1)
    assert_refused("max_seq_length=2", tokenizer.encode, ["a"], ["b"], max_seq_length=2)
    assert_refused("Received: 2 texts, 1 second texts", tokenizer.encode, ["a", "b"], ["c"], max_seq_length=8)


def test_encoded_in_order_it_equals_hugging_face(tokenizer, reference, monkeypatch):
    # Some texts are longer, so are chunks of their own.
    monkeypatch.setattr(tokenizer_module, "_CHUNK_CHARACTERS", 300)
    rng = random.Random(1)
    texts, pairs = rng.choices(TEXTS, k=200), rng.choices(TEXTS, k=200)
    for columns in ((texts,), (texts, pairs)):
        encoded = tokenizer.encode(*columns, max_seq_length=16)
        want = reference(*columns, truncation=True, max_length=16)
        rows = [row.tolist() for row in np.split(encoded.flat, encoded.row_splits[1:-1])]
        assert rows == want["input_ids"] and len(encoded) == 200
        np.testing.assert_array_equal(encoded.lengths, [len(row) for row in rows])
        starts = [types.index(1) if 1 in types else len(types) for types in want["token_type_ids"]]
        np.testing.assert_array_equal(encoded.second_start, starts)
        assert encoded.flat.dtype == encoded.second_start.dtype == encoded.lengths.dtype == np.int32
        assert encoded.row_splits.dtype == np.int64


def test_what_is_alike_is_traced_once(monkeypatch):
    traced = []
    noted = lambda text, **casing: traced.append(casing) or normalize(text, **casing)  # noqa: E731
    monkeypatch.setattr(tokenizer_module, "normalize", noted)
    vocab = [*SPECIAL_TOKENS, "Deep", "deep", "##er", "never", "elsewhere"]
    alike, one, other = (BertTokenizer(vocab, do_lower_case=lower) for lower in (True, True, False))
    assert alike == one != other and hash(alike) == hash(one) and one != vocab
    for tokenizer, ids in ((alike, [6, 7]), (one, [6, 7]), (other, [5, 7])):
        assert tokenizer.encode(["Deeper"], max_seq_length=9).flat[1:-1].tolist() == ids
    assert [casing["do_lower_case"] for casing in traced] == [True, False]


def test_no_texts(tokenizer):
    encoded = tokenizer.encode([], max_seq_length=16)
    assert (len(encoded), encoded.flat.size, encoded.row_splits.tolist()) == (0, 0, [0])
    assert encoded.lengths.size == encoded.second_start.size == 0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 2**19, id="one_word"),
        slow("the fox. " * 2**17, id="words"),
        pytest.param("a" + "\u0301\u0323" * 2**17, id="accents"),
        slow("中" * 2**19, id="chinese"),
        pytest.param(" " * 2**19, id="spaces"),
    ],
)
def test_megabytes_take_seconds(tokenizer, reference, text):
    """A pair of alternating accents took ICU minutes."""
    start = time.monotonic()
    ids, _ = tokenizer([text], max_seq_length=16)
    assert time.monotonic() - start < 20
    assert ids.to_list() == hf_ids(reference, [text], add_special_tokens=True, truncation=True, max_length=16)


def test_saved_model_in_another_process_and_a_turkish_locale(tokenizer, reference, ask, tmp_path):
    """It needs nothing but tensorflow and tensorflow_text, and the locale of the process does not count."""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def answer(self, text):
            return {"ids": tokenizer(text, max_seq_length=64)[0].to_tensor(tokenizer.pad_id, shape=[None, 64])}

    module = Module()
    tf.saved_model.save(module, tmp_path / "model", signatures=module.answer)
    got = ask(tmp_path / "model", text=[text.encode() for text in TEXTS])["ids"]
    want = hf_ids(reference, TEXTS, add_special_tokens=True, truncation=True, max_length=64, padding="max_length")
    assert got == want


def test_built_inside_a_dataset_function(vocab_file, reference):
    """The vocabulary is a constant of no particular graph, so it can be used in others."""
    kept = []

    def build(text):
        kept.append(BertTokenizer.from_vocab_file(vocab_file))
        return kept[-1].tokenize(text)

    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(4)
    want = hf_ids(reference, TEXTS)
    assert [row for batch in dataset.map(build) for row in batch.to_list()] == want
    assert kept[0].tokenize(TEXTS).to_list() == want


def test_lines_of_a_vocabulary_end_at_newlines_only(tmp_path):
    """Windows line ends do not count; U+2028, U+0085 and the no-break space are characters of a token."""
    vocab = [*SPECIAL_TOKENS, "a\u2028b", "\x85", "\xa0", " ", "the"]
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join(vocab).encode())
    assert BertTokenizer.from_vocab_file(path).vocab == tuple(vocab)
    if int(transformers.__version__.partition(".")[0]) < 5:  # 5 takes blanks off a token.
        assert hugging_face(path).get_vocab() == {token: i for i, token in enumerate(vocab)}


@pytest.mark.slow
@needs_real_data
def test_real_data():
    """Every text of every set, with every vocabulary."""
    script = pathlib.Path(__file__).parents[2] / "benchmarks" / "tokenizer_exactness.py"
    subprocess.run([sys.executable, script, "--no-timing"], check=True)
