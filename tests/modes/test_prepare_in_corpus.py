"""Records may lie below their corpus: what prepare writes is never read as text."""

import dataclasses
import shutil

import pytest

from tests.support.corpora import CORPUS_VOCAB, config, content, made_up_corpus
from tfbert.config.modes import ModelConfig, OutputConfig
from tfbert.errors import UsageError
from tfbert.modes.pretrain import prepare


@pytest.fixture
def corpus(tmp_path):
    """A directory with the made-up corpus."""
    directory = tmp_path / "corpus"
    directory.mkdir()
    for part in made_up_corpus().parts():
        text = "\n\n".join("\n".join(document) for document in made_up_corpus().read(part))
        (directory / f"{part}.txt").write_text(text + "\n")
    (tmp_path / "words.txt").write_text("\n".join(CORPUS_VOCAB) + "\n")
    return directory


def prepared(corpus, pattern="", name="records", **options):
    """What `prepare` returns for files of the corpus, with records in a directory below it."""
    found = config()
    found = dataclasses.replace(
        found,
        model=ModelConfig(vocab_file=str(corpus.parent / "words.txt")),
        corpus=dataclasses.replace(found.corpus, input_files=(str(corpus / pattern),), learn_vocab=0, **options),
        output=OutputConfig(output_dir=str(corpus / name)),
    )
    return prepare(found)


@pytest.mark.parametrize("pattern", ["", "*", "**"])
def test_a_second_start_reads_the_same_corpus(pattern, corpus, logged):
    totals = prepared(corpus, pattern)
    assert totals["documents"] == 60
    before = content(corpus)
    logged()
    assert prepared(corpus, pattern) == totals
    assert any(line.startswith("files of records left out of the corpus: ") for line in logged())
    assert content(corpus) == before


def test_so_do_the_tasks_of_an_array_job(corpus):
    (corpus / "records").mkdir()
    shutil.copy(corpus.parent / "words.txt", corpus / "records" / "vocab.txt")
    for shards in ("2", "0-1"):
        assert not prepared(corpus, shards=shards)
    assert prepared(corpus, shards="3")["documents"] == 60


def test_other_records_are_left_out_too(corpus):
    prepared(corpus)
    assert prepared(corpus, name="more", corpus_format="sentences")["documents"] == 60


def test_records_are_no_corpus(corpus):
    prepared(corpus)
    with pytest.raises(UsageError, match="files of a corpus must exist. Received: .*a directory without text files"):
        prepared(corpus, "records", "more")


def test_files_with_such_names_elsewhere_are_text(corpus):
    (corpus / "entries").mkdir()
    (corpus / "entries" / "vocab.txt").write_text("Ban bel.\n\nBir.\n")
    (corpus / "entries" / "1.json").write_text('{"text": "Ban bel."}\n')
    assert prepared(corpus)["documents"] == 63
