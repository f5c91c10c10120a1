"""`--engine=beam`: the same bytes and the same refusals as by processes; with Beam itself where it is installed."""

import sys

import pytest

from tests.beam import stand_in
from tests.corpora import CORPUS_VOCAB, ListedCorpus, config, content, made_up_corpus
from tfbert.corpus import shards
from tfbert.errors import UsageError
from tfbert.modes.prepare import prepare_records
from tfbert.tokens.tokenizer import BertTokenizer


@pytest.fixture(scope="module")
def words():
    return BertTokenizer(CORPUS_VOCAB)


@pytest.fixture(params=["processes", "stand-in", "apache_beam"])
def engine(request, monkeypatch):
    if request.param == "processes":
        return "local"
    if request.param == "apache_beam":
        pytest.importorskip("apache_beam")
    else:
        for name, module in stand_in().items():
            monkeypatch.setitem(sys.modules, name, module)
    return "beam"


def test_the_bytes_are_those_of_processes(engine, words, tmp_path):
    for name in ("local", engine):
        prepare_records(made_up_corpus(), words, config(engine=name), tmp_path / name)
    assert content(tmp_path / engine) == content(tmp_path / "local")


REFUSED = [
    ([["fan.", "bel."]] * 3, "needs at least 2 documents"),
    ([["fan."]] * 40, "40 documents of one sentence each"),
    ([["fan.", "bel."]] * 40 + [["gum." * 100, "bel."]], "text of a shard must be at most 0 MiB"),
]


@pytest.mark.parametrize("documents, message", REFUSED)
def test_what_one_engine_refuses_the_other_does(documents, message, engine, words, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 400)
    with pytest.raises(UsageError, match=message):
        prepare_records(ListedCorpus({"a": documents}), words, config(engine=engine), tmp_path / "records")


def test_the_limit_of_a_shard_is_the_same(engine, words, tmp_path, monkeypatch):
    corpus, size = ListedCorpus({"a": [["fan bel.", "kir."]] * 40}), 40 * len("fan bel.\nkir.")
    options = config(engine=engine, num_shards=1)
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", size)
    assert prepare_records(corpus, words, options, tmp_path / "as_large")
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", size - 1)
    with pytest.raises(UsageError, match="in shard 0 of 1. Pass a higher --num_shards"):
        prepare_records(corpus, words, options, tmp_path / "too_large")


def test_beam_is_asked_for_where_it_is_not(words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UsageError, match=r"engine=beam needs Apache Beam. .*pip install 'tfbert\[beam\]'"):
        prepare_records(made_up_corpus(), words, config(engine="beam"), tmp_path / "records")
    assert not list(tmp_path.iterdir())
