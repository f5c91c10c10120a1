"""A vocabulary from a corpus, from a sample that has a bound; words that one does not know: counted, warned of,
refused; and corpora that hold few documents or words."""

import dataclasses
import logging

import numpy as np
import pytest
from transformers import BertTokenizerFast

from tests.support.corpora import CORPUS_VOCAB, WORDS, ListedCorpus, config, content, made_up_corpus, prepare_files
from tests.support.texts import write_vocab
from tfbert.corpus.manifest import read_manifest
from tfbert.corpus.sources import built_in_corpus
from tfbert.corpus.vocabulary import learn_vocab, sample
from tfbert.errors import UsageError
from tfbert.modes.pretrain import prepare_records
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.tokens.vocabulary import SPECIAL_TOKENS

TOKENIZER = BertTokenizer(CORPUS_VOCAB)
CYRILLIC, CHINESE = ["кино", "музыка", "город"], ["电影很好", "天气"]


@pytest.fixture
def make(tmp_path):
    """Makes records of a corpus, with a tokenizer that knows its words; their totals."""

    def make(corpus, tokenizer=TOKENIZER, name="out", **options):
        prepare_records(corpus, tokenizer, config(**options), tmp_path / name)
        return read_manifest(tmp_path / name)["totals"]

    return make


def mixed(unknown, share, documents=40, seed=0):
    """Documents of two sentences of ten words, some of them others."""
    rng = np.random.default_rng(seed)

    def sentence():
        return " ".join(str(rng.choice(unknown if rng.random() < share else WORDS)) for _ in range(10)) + " ."

    return ListedCorpus({"a": [[sentence(), sentence()] for _ in range(documents)]})


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "tfbert" and r.levelno == logging.WARNING]


@pytest.mark.parametrize(("unknown", "share"), [(CYRILLIC, 0.1), (CHINESE, 0.5), (["🎬"], 0.3), (["Zq9"], 0.2)])
def test_they_are_counted_as_hugging_faces_tokenizer_finds_them(make, tmp_path, caplog, unknown, share):
    corpus = mixed(unknown, share)
    totals = make(corpus)
    theirs = BertTokenizerFast(str(write_vocab(tmp_path / "vocab.txt", CORPUS_VOCAB)))
    tokens = [t for document in corpus.documents["a"] for sentence in document for t in theirs.tokenize(sentence)]
    assert totals["unknown_words"] == tokens.count("[UNK]") > 0
    assert totals["words"] == sum(token == "[UNK]" or token in WORDS for token in tokens)
    (line,) = warnings(caplog)
    assert f"{100 * totals['unknown_words'] / totals['words']:.1f}% of the {totals['words']:,} words" in line
    assert "are unknown and become [UNK]. It is of another language" in line


def test_a_vocabulary_that_fits_is_not_warned_of(make, caplog):
    totals = make(made_up_corpus())
    make(mixed(CYRILLIC, 0.01), name="few")
    assert not warnings(caplog)
    assert totals["unknown_words"] == 0 < totals["words"]


@pytest.mark.parametrize("unknown", [CYRILLIC, CHINESE, ["кот1", "x86_64"], ["🎬"]])
def test_where_nearly_nothing_else_is_left_nothing_is_made(make, tmp_path, unknown):
    with pytest.raises(UsageError, match=r"must know the words of the corpus. Received: \d+\.\d% of the [\d,]+ words"):
        make(mixed(unknown, 0.98))
    assert not (tmp_path / "out").exists() or not content(tmp_path / "out")


def test_capitals_for_a_vocabulary_without_any(make, caplog):
    make(mixed([word.capitalize() for word in WORDS], 0.5), BertTokenizer(CORPUS_VOCAB, do_lower_case=False))
    (line,) = warnings(caplog)
    assert "set do_lower_case to true" in line


def prepared(directory, text, **corpus):
    """`--mode=prepare` of one file."""
    directory.mkdir(exist_ok=True)
    (directory / "corpus.txt").write_text(text, newline="")
    options = {"num_shards": 1, "learn_vocab": 100} | corpus
    return prepare_files(directory / "corpus.txt", directory / "out", **options)


LINES = "".join(f"This is document {i}. It has two sentences.\n" for i in range(20))


def test_a_document_a_line(tmp_path):
    with pytest.raises(UsageError, match="Pass --corpus_format=lines if each line is a document"):
        prepared(tmp_path / "auto", LINES)
    totals = prepared(tmp_path / "lines", LINES, corpus_format="lines")
    assert (totals["documents"], totals["sentences"]) == (20, 40)
    with pytest.raises(UsageError, match=r"say by --corpus_format .* each line \(lines\)"):
        prepared(tmp_path / "one", LINES, corpus_format="sentences")


def test_a_vocabulary_that_comes_out_smaller_says_so(tmp_path, caplog):
    prepared(tmp_path, LINES, corpus_format="lines", learn_vocab=100_000)
    (line,) = warnings(caplog)
    assert line.startswith("The vocabulary has ") and "fewer than the 100,000 asked for" in line


OLD_MAC = "A film.\rIt was good.\r\rAnother film.\rIt was bad.\r"


@pytest.mark.parametrize("format", ["auto", "sentences", "document"])
def test_carriage_returns_alone_end_no_lines(tmp_path, format):
    with pytest.raises(UsageError, match="whose lines end in carriage returns"):
        prepared(tmp_path, OLD_MAC, corpus_format=format)


def test_a_carriage_return_within_a_line_is_a_blank(tmp_path):
    text = LINES.replace("It has", "\rIt has").replace("\n", "\r\n")
    one, other = (prepared(tmp_path / name, each, corpus_format="lines") for name, each in (("a", text), ("b", LINES)))
    assert one == other


def test_documents_without_words_are_the_reason(make):
    with pytest.raises(UsageError, match="20 whose text has no token"):
        make(ListedCorpus({"a": [["\u0301\u0301", "\u0001"]] * 20}), num_shards=1)


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
