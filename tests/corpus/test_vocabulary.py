"""Words that a vocabulary does not know: counted, warned of, refused; and corpora that hold few documents or words."""

import logging

import numpy as np
import pytest
from transformers import BertTokenizerFast

from tests.support.corpora import CORPUS_VOCAB, WORDS, ListedCorpus, config, content, made_up_corpus, prepare_files
from tests.support.texts import write_vocab
from tfbert.corpus.manifest import read_manifest
from tfbert.errors import UsageError
from tfbert.modes.pretrain import prepare_records
from tfbert.tokens.tokenizer import BertTokenizer

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
