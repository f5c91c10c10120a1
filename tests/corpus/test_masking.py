"""Masks against Google's algorithm written out plainly, and against its statistics."""

import collections
import json
import unicodedata

import numpy as np
import pytest
import transformers
from tokenizers import normalizers, pre_tokenizers

from tests.support.host_tokenizers import KINDS
from tests.support.texts import SPECIAL, TEXTS
from tfbert import PretrainingConfig, UsageError
from tfbert.corpus.masking import Masking, mask, most_predictions, record_keys
from tfbert.tokens.host import read_tokenizer
from tfbert.tokens.tokenizer import BertTokenizer

PAD, _, CLS, SEP, MASK = range(5)
VOCAB = SPECIAL + [f"w{i}" for i in range(40)] + [f"##p{i}" for i in range(25)]


def masking(prob=0.15, most=20, whole_words=False):
    options = PretrainingConfig(masked_lm_prob=prob, max_predictions_per_seq=most, whole_word_masking=whole_words)
    return Masking.of_tokenizer(BertTokenizer(VOCAB), options, 1)


def records(rows, width, seed=0, pair=True):
    """Random rows of pairs, [CLS] and [SEP] in place, padded."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, width + 1, rows).astype(np.int32)
    ids = rng.integers(5, len(VOCAB), (rows, width)).astype(np.int32)
    ids[:, 0] = CLS
    ids[np.arange(rows), lengths - 1] = SEP
    ids[np.arange(rows), lengths // 2] = SEP
    ids[np.arange(width) >= lengths[:, None]] = PAD
    return ids, lengths


# The same in plain Python, a record at a time.

BITS = 2**64 - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & BITS
    return x ^ (x >> 31)


def plain_mask(ids, key, prob, most, whole_words):
    """create_masked_lm_predictions of google-research/bert; shuffling is sorting by noise."""
    words = []
    for i, token in enumerate(ids):
        if token in (CLS, SEP):
            words.append(None)  # Google's script would add a piece after [SEP] to the word before it.
        elif whole_words and VOCAB[token].startswith("##") and words and words[-1]:
            words[-1].append(i)
        else:
            words.append([i])
    noise = [mix((key + i * 0x9E3779B97F4A7C15) & BITS) >> 16 << 16 | i for i in range(len(ids))]
    words = sorted((word for word in words if word), key=lambda word: noise[word[0]])
    budget = min(most, max(1, round(len(ids) * prob)))
    chosen = []
    for word in words:
        if len(chosen) + len(word) <= budget:
            chosen += word
    out = list(ids)
    for i in chosen:
        draw = mix(noise[i] ^ BITS ^ key)
        share = (draw >> 32) / 2**32
        if share < 0.8:
            out[i] = MASK
        elif share < 0.9:
            out[i] = (draw & (2**32 - 1)) * len(VOCAB) >> 32
    return out, sorted(chosen)


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("prob, most", [(0.15, 20), (0.4, 9), (0.02, 3)])
def test_masks_are_those_of_the_plain_algorithm(whole_words, prob, most):
    ids, lengths = records(200, 64)
    keys = record_keys(-3, 2, np.arange(1000, 1200))
    masked = mask(ids, lengths, masking(prob, most, whole_words), keys)
    assert masked.ids.dtype == masked.positions.dtype == masked.labels.dtype == np.int32
    assert masked.positions.shape == masked.labels.shape == masked.weights.shape == (200, most)
    for row, length in enumerate(lengths):
        assert int(keys[row]) == mix(mix(mix(-3 & BITS) ^ 2) ^ 1000 + row)
        out, chosen = plain_mask(ids[row, :length].tolist(), int(keys[row]), prob, most, whole_words)
        assert masked.ids[row].tolist() == out + [PAD] * (64 - length)
        fill = [0] * (most - len(chosen))
        assert masked.positions[row].tolist() == chosen + fill
        assert masked.labels[row].tolist() == [ids[row, i] for i in chosen] + fill
        assert masked.weights[row].tolist() == [1] * len(chosen) + fill


def test_shares_are_80_10_10_and_15_percent():
    ids = np.full((4000, 128), 7, np.int32)
    ids[:, 0], ids[:, 60], ids[:, 127] = CLS, SEP, SEP
    masked = mask(ids, np.full(4000, 128), masking(), record_keys(1, 0, np.arange(4000)))
    assert (masked.weights.sum(axis=1) == 19).all()  # round(19.2)
    at = np.take_along_axis(masked.ids, masked.positions, 1)[masked.weights > 0]
    n = len(at)

    def close(share, expected):
        assert abs(share - expected) < 4 * np.sqrt(expected / n), (share, expected)

    random = ~np.isin(at, [MASK, 7])
    close(np.mean(at == MASK), 0.8 + 0.1 / len(VOCAB))
    close(np.mean(at == 7), 0.1 + 0.1 / len(VOCAB))
    counts = np.bincount(at[random], minlength=len(VOCAB))
    counts = np.delete(counts, [MASK, 7])
    assert abs(counts / n - 0.1 / len(VOCAB)).max() < 5 * np.sqrt(0.1 / len(VOCAB) / n)
    places = np.bincount(masked.positions[masked.weights > 0], minlength=128)
    assert places[[0, 60, 127]].tolist() == [0, 0, 0]
    others = np.delete(places, [0, 60, 127]) / 4000
    assert abs(others - 19 / 125).max() < 5 * np.sqrt(19 / 125 / 4000)


def test_a_record_is_masked_alike_in_any_company_and_width():
    ids, lengths = records(50, 64)
    keys = record_keys(0, 0, np.arange(50))
    whole = mask(ids, lengths, masking(whole_words=True), keys)
    few = np.flatnonzero(lengths < 30)[::-1]
    part = mask(ids[few, :32], lengths[few], masking(whole_words=True), keys[few])
    np.testing.assert_array_equal(part.positions, whole.positions[few])
    np.testing.assert_array_equal(part.ids, whole.ids[few, :32])


def test_keys_are_all_different():
    keys = np.concatenate([record_keys(s, e, np.arange(2000)) for s in range(4) for e in range(4)])
    assert len(np.unique(keys)) == len(keys)


def test_a_record_of_special_tokens_alone_is_left_as_it_is():
    ids = np.array([[CLS, SEP, SEP, PAD]], np.int32)
    masked = mask(ids, np.array([3]), masking(), record_keys(0, 0, np.arange(1)))
    assert masked.ids.tolist() == ids.tolist() and not masked.weights.any()


@pytest.mark.parametrize("prob, width, most", [(0.15, 128, 20), (0.15, 512, 77), (0.15, 100, 15), (0.01, 16, 1)])
def test_most_predictions_follow_from_the_length(prob, width, most):
    assert most_predictions(0, masked_lm_prob=prob, max_seq_length=width) == most


def test_too_few_predictions_are_refused():
    assert most_predictions(76, masked_lm_prob=0.15, max_seq_length=512) == 76
    with pytest.raises(UsageError, match="= 76.8, .*Received: max_predictions_per_seq=20. Pass 77"):
        most_predictions(20, masked_lm_prob=0.15, max_seq_length=512)


# Tokenizers of the host: words are found in the texts themselves.

SENTENCES = [
    "A film, which (it's said) cost $3.50 -- or more; un-seen masterpieces: batch_size=32!",
    "Über naïve cafés; 北京是 a city，且 2 of 3 中文 words. ทดสอบ ภาษา emoji 😀😀x done",
    "the  two  blanks, tabs\tand </s> <mask> [MASK] [SEP] as they are",
    *(text for text in TEXTS if text.isprintable() and text.strip() and unicodedata.is_normalized("NFKC", text)),
]


def words_in(text, names, spans):
    """The tokens of each word by the characters that they are of. Words are BERT's: between blanks, each mark and each
    Chinese character by itself, with the blank before. Of a character of several tokens nothing is known, but where a
    Chinese one begins."""
    alone, found, blank, known = {i for i, char in enumerate(text) if is_alone(char)}, [], False, False
    counts = collections.Counter(span for name, span in zip(names, spans, strict=True) if name != "\u2581")
    for number, (name, (start, end)) in enumerate(zip(names, spans, strict=True)):
        before, was_blank, was_known = spans[number - 1], blank, known
        blank, known = name == "\u2581" or text[start:end].isspace(), name != "<unk>"
        by_itself = start in alone and (counts[start, end] == 1 or "\u4000" <= text[start] <= "\u9fff")
        if not number or blank or text[start].isspace() or not (known and was_known):
            begins = True
        elif was_blank:
            begins = by_itself
        elif start < before[1]:  # In the same character.
            begins = False
        else:  # Maybe after a blank that is in no token.
            begins = start > before[1] or by_itself or (start - 1 in alone and counts[before] == 1)
        if begins:
            found.append([])
        found[-1] += [number] * known
    return found


def is_alone(char):
    text = normalizers.BertNormalizer(strip_accents=False, lowercase=False).normalize_str(f"x{char}x")
    return not char.isspace() and len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_whole_words_of_other_tokenizers_are_those_of_the_text(kind, tmp_path):
    tokenizer = read_tokenizer(KINDS[kind](tmp_path / "source"))
    tokenizer.save(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    options = PretrainingConfig(masked_lm_prob=0.4, max_predictions_per_seq=100, whole_word_masking=True)
    masking, num_words, kept = Masking.of_tokenizer(tokenizer, options, 128), 0, 0
    special = {token["id"] for token in json.loads((tmp_path / "saved" / "tokenizer.json").read_text())["added_tokens"]}
    special = {*theirs.all_special_ids, *(() if kind == "modernbert" else special)}
    assert special == {*range(len(theirs))} - {*masking.drawn_ids.tolist()}
    for number, text in enumerate(SENTENCES):
        ids, _ = tokenizer.ids_of([text])
        want = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        assert kind in ("xlm_roberta", "camembert") or ids.tolist() == want["input_ids"]
        names = theirs.convert_ids_to_tokens(ids.tolist())
        row = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id]], np.int32)
        words = [{place + 1 for place in word} for word in words_in(text, names, places_of(tokenizer, text))]
        keys, drawn = record_keys(7, number, np.arange(100)), set()
        masked = mask(row.repeat(100, axis=0), np.full(100, row.shape[1]), masking, keys)
        for out, positions, weights in zip(masked.ids, masked.positions, masked.weights, strict=True):
            chosen = {*positions[weights > 0].tolist()}
            assert chosen == set().union(*(word for word in words if word & chosen))
            drawn |= {*out[[*chosen]].tolist()} - {tokenizer.mask_id}
            kept += len(chosen)
        num_words += len(words)
        assert not drawn & special and len(drawn) > 10
    assert num_words > 150 and kept > 5000


def places_of(tokenizer, text):
    """Where each token is, blanks before it included."""
    whole = json.loads(json.dumps(tokenizer._whole).replace('"trim_offsets": true', '"trim_offsets": false'))
    return type(tokenizer)(whole, tokenizer._config, "x")._texts.encode(text, add_special_tokens=False).offsets


def test_a_tokenizer_without_a_mask_or_blanks_is_refused(tmp_path):
    directory = KINDS["roberta"](tmp_path)
    options = PretrainingConfig(masked_lm_prob=0.15, max_predictions_per_seq=2)
    whole_words = PretrainingConfig(masked_lm_prob=0.15, max_predictions_per_seq=2, whole_word_masking=True)
    text = (directory / "tokenizer.json").read_text()
    (directory / "tokenizer.json").write_text(text.replace("\u0120", "\u0152"))
    tokenizer = read_tokenizer(directory)
    assert Masking.of_tokenizer(tokenizer, options, 1).word_marks is None
    with pytest.raises(UsageError, match="Received: whole_word_masking=True with a tokenizer that has no such piece"):
        Masking.of_tokenizer(tokenizer, whole_words, 1)
    tokenizer.mask_id = None
    with pytest.raises(UsageError, match="must have a mask. Received: one without. State mask_token"):
        Masking.of_tokenizer(tokenizer, options, 1)
