"""The built-in corpus of pre-training: always the same, without repeats, grammatical, with something to learn."""

import collections
import hashlib
import re

from tfbert.corpus.sources import BuiltInCorpus
from tfbert.data.demo_corpus import demo_corpus


def test_sizes_and_no_repeats():
    train, validation = demo_corpus(), demo_corpus("validation")
    assert (len(train), len(validation)) == (4000, 400)
    assert len({" ".join(tale) for tale in train + validation}) == 4400
    assert {len(tale) for tale in train} == set(range(5, 11))
    words = collections.Counter(re.findall(r"\w+", " ".join(sentence for tale in train for sentence in tale)))
    assert 400 < len(words) < 600
    assert sum(words.values()) > 250_000


def test_the_same_everywhere():
    """In every process, whatever the hash seed, and on Python 3.10 to 3.13: scores on it can be compared."""
    text = "\n".join(" ".join(tale) for split in ("train", "validation") for tale in demo_corpus(split))
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "6b76971b1b84186e8660ffb26cebafc408f46b340c5167ceb9e5b741bf455267"
    )


def test_what_there_is_to_learn():
    """A tale keeps to its trade, tense, number and people; a sentence of another tale does not fit."""
    places = {}
    for tale in demo_corpus():
        people, be, trade = re.match(r"(.+?) (is|are|was|were) (?:an? )?(\w+) in \w+\.$", tale[0]).groups()
        assert (" and " in people) == (be in ("are", "were"))
        past = be in ("was", "were")
        rest = " ".join(tale[1:])
        assert past == (" was " in tale[1]) == (" went home." in tale[-1])
        assert not re.search(r"\b(is|are|has|does|goes|go)\b" if past else r"\b(was|were|had|did|went)\b", rest)
        (pronoun,) = set(re.findall(r"\b(he|she|they)\b", rest.lower()))
        assert (pronoun == "they") == (" and " in people)
        assert f" {people} close" in tale[-1]
        places.setdefault(trade.removesuffix("s"), set()).add(re.search(r"in the (\w+)\.$", tale[1])[1])
    assert len(places) == 12
    assert all(len(where) == 1 for where in places.values())


def test_grammar():
    text = " ".join(sentence for split in ("train", "validation") for tale in demo_corpus(split) for sentence in tale)
    assert not re.search(
        r"\ba [aeiou]|\ban [^aeiou]|\{|\}|  |\b(they|The \w+s) \w+s the\b|\b(he|she) (are|were|have)\b", text
    )
    for phrase in (
        "catches the",
        "caught the",
        "carries the",
        "shelves",
        "He has",
        "They have",
        "does not",
        "an omelette",
    ):
        assert phrase in text


def test_as_a_source():
    source = BuiltInCorpus("validation")
    assert source.parts() == [f"validation-{i}" for i in range(4)]
    read = [list(source.read(part)) for part in source.parts()]
    assert [tale for four in zip(*read, strict=True) for tale in four] == demo_corpus("validation")
    assert len(set(source.fingerprints().values())) == 4
    assert source.sizes()["validation-0"] == sum(len(sentence) + 1 for tale in read[0] for sentence in tale)
