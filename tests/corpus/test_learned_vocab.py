"""A vocabulary from a corpus: the same one whenever it is learned, from a sample that has a bound."""

import dataclasses

import pytest

from tfbert.corpus.built_in import BuiltInCorpus
from tfbert.corpus.learned_vocab import learn_from, learn_vocab, sample
from tfbert.errors import UsageError
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.tokens.vocabulary import SPECIAL_TOKENS


@dataclasses.dataclass
class Made:
    """A corpus of so many documents in each part, that counts what is read."""

    counts: dict[str, int]
    size: int = 10
    num_read: int = 0

    def parts(self):
        return sorted(self.counts)

    def sizes(self):
        return {part: count * self.size for part, count in self.counts.items()}

    def read(self, part):
        for i in range(self.counts[part]):
            self.num_read += 1
            yield [f"{part}{i:08d}".ljust(self.size, "x")[: self.size]]


def test_by_hand():
    """a ##b 5 times, then a ##a and ##a ##b 3 times each, of which the one given first wins; cd once is none."""
    vocab = learn_from(["ab ab ab ab ab", "aab aab aab", "cd"], 100)
    assert vocab[:5] == list(SPECIAL_TOKENS)
    assert vocab[5:12] == ["a", "b", "c", "d", "##a", "##b", "##d"]
    assert vocab[12:] == ["ab", "aa", "aab"]


def test_it_reads_its_own_corpus():
    vocab = learn_vocab(BuiltInCorpus(), 500, seed=0)
    assert len(vocab) == len(set(vocab)) == 500
    assert vocab[:5] == list(SPECIAL_TOKENS)
    texts = [" ".join(document) for document in BuiltInCorpus("validation").read("validation-0")]
    ids = BertTokenizer(vocab).encode(texts, max_seq_length=512)
    tokens = [vocab[token] for token in ids.flat]
    assert "[UNK]" not in tokens
    assert len(tokens) < 1.5 * sum(len(text.split()) for text in texts)


def test_it_is_always_the_same():
    """The trainer's hash tables have other seeds each time."""
    found = {tuple(learn_vocab(BuiltInCorpus(), 800, seed=1)) for _ in range(3)}
    assert len(found) == 1


def test_casing_and_long_words():
    assert "é" in learn_from(["É é É é"], 50, lower_case=False)
    assert "e" in learn_from(["É é É é"], 50)
    # Base64 and the like: nobody would ever find it, and merging it takes for ever.
    assert learn_from(["ab ab " + "xyz" * 100_000], 50) == [*SPECIAL_TOKENS, "a", "b", "##b", "ab"]


def test_rare_characters_are_left_out(monkeypatch):
    monkeypatch.setattr("tfbert.corpus.learned_vocab._MIN_CHARACTERS", 2)
    vocab = learn_from(["ab " * 10_000 + "z"], 50)
    assert vocab == [*SPECIAL_TOKENS, "a", "b", "##b", "ab"]


def test_refused():
    with pytest.raises(UsageError, match="learned from words. Received: 2 documents without one"):
        learn_from([" ", ""], 100)
    with pytest.raises(UsageError, match="room for the corpus's 13 characters. Received: learn_vocab=11"):
        learn_from(["abcd", "dab"], 11)


def test_a_small_corpus_is_taken_whole():
    source = Made({"a": 5, "b": 3})
    assert len(sample(source, 0, 1000)) == source.num_read == 8
    assert sample(source, 0, 1000) == sample(Made({"a": 5, "b": 3}), 0, 1000) != sample(source, 1, 1000)


def test_a_sample_of_a_large_one_is_bounded_and_from_all_parts():
    source = Made({"a": 5000, "b": 10, "c": 5000, "d": 5000})
    texts = sample(source, 0, 1000)
    assert len(texts) == 100
    assert source.num_read <= 800 + len(source.counts)
    assert source.num_read >= 700  # What `b` has not, the others give.
    parts = {part: sum(text.startswith(part) for text in texts) for part in "acd"}
    assert all(18 <= count <= 48 for count in parts.values()), parts


def test_of_very_many_parts_some(monkeypatch):
    monkeypatch.setattr("tfbert.corpus.learned_vocab._MAX_PARTS", 4)
    source = Made({f"p{i}": 2 for i in range(50)})
    assert len(sample(source, 0, 1000)) == 8


@pytest.mark.parametrize("lower_case", [True, False])
def test_plain_text_takes_the_short_way_to_the_same(lower_case):
    text = "".join(map(chr, range(32, 127))) * 2 + " Ab aB  ab"
    by_normalizer = learn_from([text + "\n"] * 3, 300, lower_case=lower_case)  # A line feed is not printable.
    assert learn_from([text] * 3, 300, lower_case=lower_case) == by_normalizer
