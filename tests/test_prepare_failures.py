"""What failed starts leave: nothing of theirs that stands in the way of the next, and all that is others'."""

import pathlib

import pytest

from tests.corpora import CORPUS_VOCAB, ListedCorpus, config, content
from tfbert.corpus import manifest
from tfbert.errors import UsageError
from tfbert.modes.prepare import prepare_records
from tfbert.output.lock import locked
from tfbert.tokens.tokenizer import BertTokenizer

SHORT = ListedCorpus({"a": [["fan."]] * 40})


@pytest.fixture(scope="module")
def words():
    return BertTokenizer(CORPUS_VOCAB)


def refused(corpus, words, directory, **options):
    with pytest.raises(UsageError, match="40 documents of one sentence each"):
        prepare_records(corpus, words, config(**options), directory)


def test_a_task_of_an_array_job_takes_nothing_from_the_others(words, tmp_path):
    with locked(tmp_path, shared=True):  # Another task, which has begun and has made no shard yet.
        refused(SHORT, words, tmp_path, shards="1")
        begun = content(tmp_path)
        assert sorted(begun) == [".lock", ".preparing.json", "vocab.txt"]
        refused(SHORT, words, tmp_path, shards="2-3")
        assert content(tmp_path) == begun


def test_the_users_vocabulary_stays(words, tmp_path):
    (tmp_path / manifest.VOCAB).write_text("\n".join(CORPUS_VOCAB) + "\n")
    refused(SHORT, words, tmp_path)
    assert list(content(tmp_path)) == [manifest.VOCAB]


def interrupted(source, job, *_):
    """As a killed start leaves it, but for the locks."""
    pathlib.Path(job.work, "00000.documents").write_text("half of the text")
    raise KeyboardInterrupt


def test_what_a_killed_start_left_goes_too(words, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tfbert.modes.prepare.make_shards", interrupted)
        prepare_records(SHORT, words, config(), tmp_path)
    assert sorted(content(tmp_path)) == [".preparing.json", ".work-0-3/00000.documents", "vocab.txt"]
    refused(SHORT, words, tmp_path)
    assert not list(tmp_path.iterdir())
