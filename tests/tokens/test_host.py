"""The tokenizers of the host against transformers' fast ones, from the same files."""

import copy
import json
import pickle
import re

import numpy as np
import pytest
import transformers
from transformers import AutoTokenizer

from tests.support.cases import slow
from tests.support.host_tokenizers import KINDS, roberta
from tests.support.refusals import assert_refused
from tests.support.texts import TEXTS, random_texts
from tfbert.tokens.host import HostTokenizer, read_tokenizer

HOSTILE = [
    *TEXTS,
    *random_texts(1000),
    "Two  blanks,    four,        and eight; [unused0] |||IP_ADDRESS||| trail  ",
    " lead\n\n  lines\t\ttabs\r\n",
    "lone \ud800 surrogate",
]
T, C = "tokenizer.json", "tokenizer_config.json"
CONTROL = ["a </s> b", "<s>", "x<mask>", " <mask> y", "<pad><unk>", "[CLS] a [SEP] [MASK][PAD]", "</s></s>"]
UNIGRAM = {"xlm_roberta", "camembert"}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def directory(kind, tmp_path_factory):
    return KINDS[kind](tmp_path_factory.mktemp("host") / kind)


@pytest.fixture(scope="module")
def ours(directory):
    found = read_tokenizer(directory)
    assert isinstance(found, HostTokenizer) and not found.in_graph
    return found


@pytest.fixture(scope="module")
def theirs(kind, directory):
    """As a function: texts -> what transformers makes of them; half a surrogate pair as U+FFFD, which it refuses."""
    made = {}
    name = json.loads((directory / C).read_text())["tokenizer_class"].removesuffix("Fast") + "Fast"
    if kind in UNIGRAM and transformers.__version__ >= "5":
        # Its own classes read SentencePiece's table alone out of the file's normalizer; this one reads the file.
        name = "PreTrainedTokenizerFast"

    def call(*columns, add_prefix_space=None, **options):
        if add_prefix_space not in made:
            given = {} if add_prefix_space is None else {"add_prefix_space": add_prefix_space}
            made[add_prefix_space] = getattr(transformers, name).from_pretrained(directory, **given)
        return made[add_prefix_space](*columns, split_special_tokens=True, **options)

    return call


def whole(texts):
    return [text.replace("\ud800", "\ufffd") for text in texts]


def rows(tokens):
    return [part.tolist() for part in np.split(tokens.flat, tokens.row_splits[1:-1])]


def test_ids(ours, theirs):
    assert rows(ours.encode(HOSTILE, max_seq_length=1 << 20)) == theirs(whole(HOSTILE))["input_ids"]


SLOW = [slow(1 << 20, 500), slow(31, 500), slow(32, 500), slow(9, 150), slow(4, 150)]


@pytest.mark.parametrize("length, count", [(1 << 20, 200), (31, 100), (9, 20), (4, 20), *SLOW])
def test_pairs_and_truncation(ours, theirs, length, count):
    """Of few pairs in short rows: transformers makes all that it cuts off, of pairs each piece beside each."""
    texts, others = HOSTILE[:count], HOSTILE[count : 2 * count]
    want = theirs(whole(texts), whole(others), truncation=True, max_length=length)
    found = ours.encode(texts, others, max_seq_length=length)
    assert rows(found) == want["input_ids"]
    assert "token_type_ids" not in want or not any(map(any, want["token_type_ids"]))
    assert np.array_equal(found.second_start, found.lengths)  # No token is of a second type.
    if length > 4:
        want = theirs(whole(HOSTILE[:count]), truncation=True, max_length=length)["input_ids"]
        assert rows(ours.encode(HOSTILE[:count], max_seq_length=length)) == want


def test_offsets_are_theirs_without_blanks(ours, theirs):
    def trimmed(text, start, end):
        blanks = len(text[start:end]) - len(text[start:end].lstrip())
        start = min(start + blanks, end)
        return start, max(start, end - (len(text[start:end]) - len(text[start:end].rstrip())))

    found = ours.encode_with_offsets(HOSTILE)
    want = theirs(whole(HOSTILE), add_special_tokens=False, return_offsets_mapping=True)
    assert found.ids.tolist() == [id for row in want["input_ids"] for id in row]
    untrimmed = zip(whole(HOSTILE), want["offset_mapping"], strict=True)
    places = [trimmed(text, *place) for text, row in untrimmed for place in row]
    assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == places


def test_words(kind, ours, theirs):
    """As transformers splits them where it is told to put a blank before each."""
    sentences = [words for text in HOSTILE if (words := whole([text])[0].split())]
    words = [word for sentence in sentences for word in sentence]
    options = {"add_special_tokens": False, "is_split_into_words": True, "add_prefix_space": True}
    if kind != "modernbert" or transformers.__version__ < "5":  # 5 takes no notice of add_prefix_space there.
        want = theirs(sentences, **options)["input_ids"]
        assert ours.encode_words(words).ids.tolist() == [id for row in want for id in row]
    starts, ends, splits = ours.find_words(["Hello, wörld 中文!", "", "x"])
    assert starts.tolist() == [0, 5, 7, 13, 14, 15, 0] and ends.tolist() == [5, 6, 12, 14, 15, 16, 1]
    assert splits.tolist() == [0, 6, 6, 7]


def test_a_special_token_in_a_text_is_plain_text(kind, ours, theirs):
    texts = [*CONTROL, "e </s> <mask>"]
    flat = ours.encode_with_offsets(texts).ids
    assert not {ours.cls_id, ours.sep_id, ours.pad_id, ours.mask_id} & {*flat.tolist()}
    want = theirs(texts, add_special_tokens=False)["input_ids"]
    # transformers finds pieces of a unigram vocabulary also where they are called as special tokens are.
    assert (flat.tolist() == [id for row in want for id in row]) == (kind not in UNIGRAM)


def test_what_is_saved_gives_the_same_ids(kind, ours, tmp_path):
    texts = whole(HOSTILE[:200])
    want = rows(ours.encode(texts, max_seq_length=1 << 20))
    for fills_masks in (False, True):
        ours.save(tmp_path, model_max_length=128, fills_masks=fills_masks)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        assert loaded(texts)["input_ids"] == want
        assert loaded("a", "b").keys() == {"input_ids", "attention_mask"}
        names = loaded.pad_token_id, loaded.mask_token_id, loaded.cls_token_id, loaded.sep_token_id
        assert names == (ours.pad_id, ours.mask_id, ours.cls_id, ours.sep_id)
        assert loaded.model_max_length == 128 and len(loaded) == ours.vocab_size
        at = loaded(f"a {loaded.mask_token} b")["input_ids"].count(ours.mask_id)
        assert at == int(fills_masks or kind in UNIGRAM)
        again = read_tokenizer(tmp_path)
        assert rows(again.encode(texts, max_seq_length=1 << 20)) == want and again.crc32 == ours.crc32
    other = pickle.loads(pickle.dumps(ours))
    assert other == ours == copy.deepcopy(ours) and hash(other) == hash(ours)
    assert rows(other.encode(texts[:9], max_seq_length=9)) == rows(ours.encode(texts[:9], max_seq_length=9))


BYTES = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True, "add_prefix_space": True}
NO_SPECIAL = {"2": {"content": "</s>", "special": False}}
REFUSED = {
    "class": (C, {"tokenizer_class": "T5TokenizerFast"}, "Received: tokenizer_class='T5TokenizerFast' in"),
    "a dropped blank": (T, {"pre_tokenizer": BYTES}, "State add_prefix_space in tokenizer_config.json."),
    "no ends": (T, {"post_processor": None}, "Received: a a in"),
    "other tokens": (C, {"additional_special_tokens": ["<x>"]}, "Received: token '<x>', which tokenizer.json lacks"),
    "special elsewhere": (C, {"added_tokens_decoder": NO_SPECIAL}, "Received: token '</s>', which tokenizer.json"),
    "tokens added": ("added_tokens.json", {"<y>": 700}, "Received: token '<y>'"),
    "a name": (C, {"pad_token": "<nothing>"}, "Received: pad_token='<nothing>' in"),
    "no model": (T, {"model": {"type": "BPE", "vocab": {}}}, "Use another"),
}


@pytest.mark.parametrize("name, changed, line", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(tmp_path, name, changed, line):
    path = roberta(tmp_path) / name
    read_tokenizer(tmp_path)
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(found | changed))
    assert_refused(re.escape(line), read_tokenizer, tmp_path)


def test_an_added_token_that_transformers_finds_elsewhere_is_refused(tmp_path):
    path = KINDS["modernbert"](tmp_path) / C
    added, config = json.loads((tmp_path / T).read_text())["added_tokens"], json.loads(path.read_text())
    for single_word in (False, True):
        decoder = {str(t.pop("id")): t for t in map(dict, added) if t["content"] == " " * 4}
        (number,) = decoder
        decoder[number]["single_word"] = single_word
        path.write_text(json.dumps(config | {"added_tokens_decoder": decoder}))
        found = AutoTokenizer.from_pretrained(tmp_path)("four    blanks")["input_ids"]
        assert (int(number) in found) != single_word
        if not single_word:
            assert rows(read_tokenizer(tmp_path).encode(["four    blanks"], max_seq_length=99)) == [found]
    assert_refused(
        "Received: token '    ', which tokenizer.json lacks or describes otherwise, in", read_tokenizer, tmp_path
    )


@pytest.mark.parametrize("name", ["sentencepiece.bpe.model", "merges.txt"])
def test_files_of_other_forms_say_how_to_convert_them(tmp_path, name):
    (tmp_path / name).write_bytes(b"\n")
    line = f"Received: .*{name} alone. Run: pip install transformers sentencepiece; python -c"
    assert_refused(line, read_tokenizer, tmp_path)


def test_older_files_say_the_same(tmp_path):
    """The model's kind not named, merges as texts, and Metaspace with `add_prefix_space`."""
    for kind in ("roberta", "camembert"):
        want = read_tokenizer(KINDS[kind](tmp_path / kind))
        path = tmp_path / kind / "tokenizer.json"
        old = json.loads(path.read_text())
        del old["model"]["type"]
        if kind == "roberta":
            old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
        else:
            old["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True}
        path.write_text(json.dumps(old))
        found = read_tokenizer(tmp_path / kind)
        assert found.crc32 == want.crc32
        assert rows(found.encode(TEXTS, max_seq_length=32)) == rows(want.encode(TEXTS, max_seq_length=32))


def test_too_short_rows_and_no_texts(tmp_path):
    found = read_tokenizer(roberta(tmp_path))
    line = "must hold 4 special tokens. Received: max_seq_length=3"
    assert_refused(line, found.encode, ["a"], ["b"], max_seq_length=3)
    assert rows(found.encode([], max_seq_length=9)) == [[]] and not len(found.find_words([])[0])
