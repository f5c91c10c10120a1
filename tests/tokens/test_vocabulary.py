"""A vocabulary learned from texts."""

import pytest

from tests.support.refusals import assert_refused
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.tokens.vocabulary import SPECIAL_TOKENS, learn_vocabulary

TEXTS = ["The unbelievable movie was moving, Zoë!", "movies move the movers' unbelievers. [SEP]"] * 20


def learn(texts, size, **options):
    return learn_vocabulary(texts, vocab_size=size, **options)


def test_by_hand():
    """a ##b 5 times, then a ##a and ##a ##b 3 times each, of which the one given first wins; cd once is none."""
    vocab = learn(["ab ab ab ab ab", "aab aab aab", "cd"], 100)
    assert vocab == [*SPECIAL_TOKENS, "a", "b", "c", "d", "##a", "##b", "##d", "ab", "aa", "aab"]


def test_casing_and_long_words():
    assert "é" in learn(["É é É é"], 50, do_lower_case=False)
    assert "e" in learn(["É é É é"], 50)
    # Base64 and the like: nobody would ever find it, and merging it takes for ever.
    assert learn(["ab ab " + "xyz" * 100_000], 50) == [*SPECIAL_TOKENS, "a", "b", "##b", "ab"]


def test_rare_characters_are_left_out(monkeypatch):
    monkeypatch.setattr("tfbert.tokens.vocabulary._MIN_CHARACTERS", 2)
    assert learn(["ab " * 10_000 + "z"], 50) == [*SPECIAL_TOKENS, "a", "b", "##b", "ab"]


def test_refused():
    for texts in ([], ["", " \n"]):
        assert_refused(f"{len(texts)} texts without one", learn, texts, 100)
    assert_refused("learned from words. Received: 2 documents without one", learn, [" ", ""], 100, is_sample=True)
    line = "room for the corpus's 13 characters. Received: learn_vocab=11"
    assert_refused(line, learn, ["abcd", "dab"], 11, is_sample=True)


@pytest.mark.parametrize("lower_case", [True, False])
def test_plain_text_takes_the_short_way_to_the_same(lower_case):
    text = "".join(map(chr, range(32, 127))) * 2 + " Ab aB  ab"
    by_normalizer = learn([text + "\n"] * 3, 300, do_lower_case=lower_case)  # A line feed is not printable.
    assert learn([text] * 3, 300, do_lower_case=lower_case) == by_normalizer


def test_it_covers_its_text_and_is_deterministic():
    vocab = learn(iter(TEXTS), 120)
    assert vocab == learn(TEXTS, 120) and vocab[:5] == [*SPECIAL_TOKENS]
    assert len(vocab) == len(set(vocab)) <= 120
    assert {"the", "movie", "z", "##e", "!", "["} <= set(vocab)
    assert not any(token != token.lower() or "ë" in token for token in vocab[5:])
    tokenizer = BertTokenizer(vocab)
    assert not (tokenizer.tokenize(TEXTS).values.numpy() == tokenizer.unk_id).any()


def test_without_room_the_rarest_characters_are_left_out():
    texts = ["aa aa aa bb bb", "cc", "d"]
    assert learn(texts, 11)[5:] == ["a", "b", "c", "##a", "##b", "##c"]
    assert learn(texts, 10)[5:] == ["a", "b", "##a", "##b", "aa"]
    assert len(learn([chr(0x4E00 + number) for number in range(5000)], 4000)) == 4000


def test_lone_surrogates_are_dropped():
    """JSON can hold them."""
    assert learn(["ab\ud83d é ab"], 20) == learn(["ab é ab"], 20)
