"""A model directory's tokenizer: the ids of `AutoTokenizer` from the same directory, or a line about it."""

import json
import pickle
import re

import numpy as np
import pytest
from transformers import AutoTokenizer

from tests.support.bert_files import SPECIALS
from tests.support.real_texts import VOCABULARIES, needs_real_data, tokenizers
from tests.support.refusals import assert_refused
from tests.support.texts import hugging_face
from tfbert.tokens.tokenizer import BertTokenizer

UNCASED = [*SPECIALS, "the", "cat", "##s", "e", "中", "文", "[unused1]", "x", ".", *(f"word{i}" for i in range(60))]
CASED = [*UNCASED, "The", "Cat", "##S", "Dog", "É", "é"]
TEXT = "The Cats É é 中文 [unused1] x."


def write(directory, vocab, *, config=None, fast=None, names=None, model=None):
    """A directory: `config`, `names` and `model` are JSON files' contents; `fast` changes a sound tokenizer.json."""
    directory.mkdir(exist_ok=True)
    (directory / "vocab.txt").write_text("\n".join(vocab) + "\n")
    (directory / "config.json").write_text(json.dumps({"model_type": "bert"} | (model or {})))
    if fast is not None:
        whole = json.loads(hugging_face(directory / "vocab.txt").backend_tokenizer.to_str())
        fast(whole)
        (directory / "tokenizer.json").write_text(json.dumps(whole))
    for name, content in (("tokenizer_config", config), ("special_tokens_map", names)):
        if content is not None:
            (directory / f"{name}.json").write_text(json.dumps(content))
    return directory


def ours(directory):
    return BertTokenizer.from_pretrained(directory)([TEXT], max_seq_length=99)[0].to_list()[0]


def theirs(directory):
    return AutoTokenizer.from_pretrained(directory)(TEXT, split_special_tokens=True)["input_ids"]


def normalizer(**values):
    return lambda whole: whole["normalizer"].update(values)


def swap_two(whole):
    vocab = whole["model"]["vocab"]
    vocab["the"], vocab["cat"] = vocab["cat"], vocab["the"]


@pytest.mark.parametrize("config", [None, {"init_inputs": []}, {"strip_accents": False}])
def test_an_unstated_casing_is_lower_case_or_must_be_stated(tmp_path, logged, config):
    names = {"cls_token": "[CLS]", "unk_token": {"content": "[UNK]"}}
    directory = write(tmp_path / "uncased", UNCASED, config=config, names=names)
    assert ours(directory) == theirs(directory)
    assert logged() == ["Text is lower-cased, as the vocabulary suggests."]
    directory = write(tmp_path / "cased", CASED, config=config)
    line = "capitals in 7% of its words, and no do_lower_case in .*_config.json. Write {.do_lower_case.: false} "
    assert_refused(line, ours, directory)
    write(directory, CASED, config=(config or {}) | {"do_lower_case": False})  # As the line says.
    assert ours(directory) == theirs(directory) and not logged()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("vocab", [UNCASED, CASED])
def test_a_stated_casing_is_followed(tmp_path, logged, vocab, lower):
    directory = write(tmp_path, vocab, config={"do_lower_case": lower})
    assert ours(directory) == theirs(directory)
    lines = logged()
    assert len(lines) == (lower and vocab is CASED)
    assert all("says, but 7% of the vocabulary's words have capitals and are never found" in line for line in lines)


def repeated(words, times=1):
    return [*SPECIALS, "[unused0]", *words, *(f"word{i}" for i in range(100 * times))]


@pytest.mark.parametrize(
    "vocab, lower, strip",
    [
        (SPECIALS, True, None),
        (repeated(["Μ"]), True, None),  # A Greek capital by mistake, as in SciBERT's uncased vocabulary.
        (repeated(["ă", "é"]), True, None),
        (repeated(["中", "文", "字", "。", "1", "##2"]), True, None),
        ([*SPECIALS, *(chr(c) for c in range(0x4E00, 0x6000)), "a", "b", "A", "B"], False, None),  # Cased Chinese.
        (repeated(["Москва", "Дом", "Иван"]), False, None),
        ([*SPECIALS, "straße", "über", "##ö", "haus", "und"], True, False),
        ([*SPECIALS, *(chr(c) for c in range(0xAC00, 0xAD00))], True, False),  # Hangul, which NFD takes apart.
    ],
)
def test_what_a_vocabulary_does_without(vocab, lower, strip, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    if (lower, strip) == (True, None):
        assert BertTokenizer.from_pretrained(tmp_path).do_lower_case
        return
    state = {"do_lower_case": lower} | ({} if strip is None else {"strip_accents": strip})
    assert_refused(f"Write {json.dumps(state)} there", BertTokenizer.from_pretrained, tmp_path)


@needs_real_data
@pytest.mark.parametrize("name", VOCABULARIES)
def test_real_vocabularies(name, tmp_path):
    ours, _ = tokenizers(name)
    (tmp_path / "vocab.txt").write_text("\n".join(ours.vocab) + "\n")
    if ours.do_lower_case:
        assert BertTokenizer.from_pretrained(tmp_path) == ours
    else:
        assert_refused("Write {.do_lower_case.: false}", BertTokenizer.from_pretrained, tmp_path)


PAIR = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
OLDER = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
MORE = len(UNCASED)
SAME = {
    "sound": {"fast": normalizer()},
    "stated": {"fast": normalizer(), "config": {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}},
    "stated otherwise": {"fast": normalizer(lowercase=False), "config": {"do_lower_case": True}},
    "stated all": {
        "fast": normalizer(strip_accents=True, handle_chinese_chars=False),
        "config": {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": False},
    },
    "accents as the default": {"fast": normalizer(strip_accents=True)},
    "by tokenizer.json alone": {
        "fast": normalizer(lowercase=False, strip_accents=True),
        "config": {"do_lower_case": True, "tokenizer_class": "PreTrainedTokenizerFast"},
    },
    "the older post-processor": {"fast": lambda whole: whole.update(post_processor=OLDER)},
}
REFUSED = {
    "two tokens": (swap_two, "token 5 (counted from 0) is 'the' in vocab.txt and 'cat' in tokenizer.json"),
    "one more": (lambda whole: whole["model"]["vocab"].update(more=MORE), f"token {MORE} (counted from 0) is absent"),
    "one less": (lambda whole: whole["model"]["vocab"].pop("word59"), "is 'word59' in vocab.txt and absent in"),
    "casing": (normalizer(lowercase=False), "normalizer.lowercase=false"),
    "accents": (normalizer(strip_accents=False), "normalizer.strip_accents=false"),
    "chinese": (normalizer(handle_chinese_chars=False), "normalizer.handle_chinese_chars=false"),
    "short words": (lambda whole: whole["model"].update(max_input_chars_per_word=2), "max_input_chars_per_word=2"),
    "prefix": (lambda whole: whole["model"].update(continuing_subword_prefix="@@"), "continuing_subword_prefix='@@'"),
    "unknown": (lambda whole: whole["model"].update(unk_token="x"), "model.unk_token='x'"),
    "splitting": (lambda whole: whole.update(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer.type='Whitespace'"),
    "no ends": (lambda whole: whole.update(post_processor=None), "Received: [UNK] [UNK] in"),
    "other ends": (lambda whole: whole["post_processor"]["single"].pop(), "one special token before texts, one after"),
    "one text": (lambda whole: whole["post_processor"].update(pair=PAIR), "one special token before texts, one after"),
    "ids of ends": (lambda w: w["post_processor"]["special_tokens"]["[CLS]"].update(ids=[9]), "around texts as BERT"),
    "one segment": (lambda w: w["post_processor"]["pair"][3]["Sequence"].update(type_id=0), "a type of their own"),
}


@pytest.mark.parametrize("name", SAME)
def test_tokenizer_json_gives_the_same_ids(tmp_path, name):
    directory = write(tmp_path, UNCASED, **SAME[name])
    want = theirs(directory)
    assert ours(directory) == want
    (directory / "vocab.txt").unlink()
    assert ours(directory) == want


@pytest.mark.parametrize("change, message", REFUSED.values(), ids=REFUSED)
def test_a_contradicting_tokenizer_json_is_refused(tmp_path, change, message):
    assert str(tmp_path) in assert_refused(re.escape(message), ours, write(tmp_path, UNCASED, fast=change))


OTHERS = [("names", "cls_token", "the"), ("names", "unk_token", {"content": "x"}), ("names", "bos_token", "<s>")]
OTHERS += [("names", "additional_special_tokens", ["[unused1]"]), ("config", "pad_token", "x")]
OTHERS += [("config", "extra_special_tokens", {"entity_token": "[unused1]"})]
OTHERS += [("model", "tokenizer_class", "BertJapaneseTokenizer")]


@pytest.mark.parametrize("file, key, value", OTHERS)
def test_other_special_tokens_and_classes_are_refused(tmp_path, file, key, value):
    directory = write(tmp_path, UNCASED, **{file: {key: value}})
    assert_refused(f"must be BERT's WordPiece.*({key}|added_tokens)=", ours, directory)


@pytest.mark.parametrize("kind", ["BertTokenizer", "DistilBertTokenizer", "distilbert"])
@pytest.mark.parametrize("names", [{}, {"model_input_names": ["input_ids", "attention_mask"]}])
def test_second_texts_have_a_type_where_transformers_gives_them_one(tmp_path, kind, names):
    config = {"do_lower_case": True} | ({} if kind == "distilbert" else {"tokenizer_class": kind}) | names
    model = (
        {"model_type": kind} if kind == "distilbert" else {}
    )  # As distilbert-base-uncased, whose files name no class.
    directory = write(tmp_path / "a", UNCASED, fast=normalizer(), config=config, model=model)
    tokenizer = BertTokenizer.from_pretrained(directory)
    tokenizer.save(tmp_path / "saved")
    for place in (directory, tmp_path / "saved"):
        theirs = AutoTokenizer.from_pretrained(place)("the", "cat", return_tensors="np")
        found = BertTokenizer.from_pretrained(place)
        assert found == tokenizer == pickle.loads(pickle.dumps(found))
        types = np.arange(5) >= found.encode(["the"], ["cat"], max_seq_length=9).second_start[0]
        assert types.tolist() == np.array(theirs.get("token_type_ids", np.zeros([1, 5])), bool)[0].tolist()
    assert (tokenizer == BertTokenizer(tokenizer.vocab)) == tokenizer.has_token_types == types.any()


def test_cutting_on_the_left_is_said(tmp_path, logged):
    ours(write(tmp_path, UNCASED, config={"truncation_side": "left", "do_lower_case": True}))
    (line,) = logged()
    assert line.endswith("/tokenizer_config.json says truncation_side='left'; tfbert cuts texts at their end.")
