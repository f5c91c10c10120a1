"""A vocabulary from a corpus: the same one whenever it is learned, from a sample that has a bound."""

import dataclasses

from tfbert.corpus.sources import built_in_corpus
from tfbert.corpus.vocabulary import learn_vocab, sample
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


def test_it_reads_its_own_corpus_and_is_always_the_same(monkeypatch):
    """The trainer's hash tables have other seeds each time."""
    monkeypatch.setattr("tfbert.corpus.vocabulary.SAMPLE_CHARACTERS", 1 << 17)
    vocab = learn_vocab(built_in_corpus(), 500, seed=0)
    assert vocab == learn_vocab(built_in_corpus(), 500, seed=0)
    assert len(vocab) == len(set(vocab)) == 500 and vocab[:5] == [*SPECIAL_TOKENS]
    texts = [" ".join(document) for document in built_in_corpus("validation").read("validation-0")]
    ids = BertTokenizer(vocab).encode(texts, max_seq_length=512)
    tokens = [vocab[token] for token in ids.flat]
    assert "[UNK]" not in tokens
    assert len(tokens) < 1.5 * sum(len(text.split()) for text in texts)


def test_a_small_corpus_is_taken_whole():
    source = Made({"a": 5, "b": 3})
    assert len(sample(source, 0, 1000)) == source.num_read == 8
    assert sample(source, 0, 1000) == sample(Made({"a": 5, "b": 3}), 0, 1000) != sample(source, 1, 1000)


def test_a_sample_of_a_large_one_is_bounded_and_from_all_parts():
    source = Made({"a": 5000, "b": 10, "c": 5000, "d": 5000})
    texts = sample(source, 0, 1000)
    assert len(texts) == 100
    assert 700 <= source.num_read <= 800 + len(source.counts)  # What `b` has not, the others give.
    parts = {part: sum(text.startswith(part) for text in texts) for part in "acd"}
    assert all(18 <= count <= 48 for count in parts.values()), parts


def test_of_very_many_parts_some(monkeypatch):
    monkeypatch.setattr("tfbert.corpus.vocabulary._MAX_PARTS", 4)
    source = Made({f"p{i}": 2 for i in range(50)})
    assert len(sample(source, 0, 1000)) == 8
