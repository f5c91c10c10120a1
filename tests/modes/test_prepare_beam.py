"""`--engine=beam`: the same bytes and the same refusals as by processes; with Beam itself where it is installed."""

import sys

import pytest

from tests.support.beam import stand_in
from tests.support.corpora import CORPUS_VOCAB, ListedCorpus, config, content, made_up_corpus
from tfbert.corpus import shards
from tfbert.errors import RunError, UsageError
from tfbert.modes.pretrain import prepare_records
from tfbert.tokens.tokenizer import BertTokenizer


@pytest.fixture(scope="module")
def words():
    return BertTokenizer(CORPUS_VOCAB)


def use_stand_in(monkeypatch):
    for name, module in stand_in().items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(params=["processes", "stand-in", "apache_beam"])
def engine(request, monkeypatch):
    if request.param == "processes":
        return "local"
    if request.param == "apache_beam":
        pytest.importorskip("apache_beam")
    else:
        use_stand_in(monkeypatch)
    return "beam"


def test_the_bytes_are_those_of_processes(engine, words, tmp_path):
    for name in ("local", engine):
        prepare_records(made_up_corpus(), words, config(engine=name), tmp_path / name)
    assert content(tmp_path / engine) == content(tmp_path / "local")


REFUSED = [
    ([], "must have documents. Received: the list without a sentence"),
    ([["fan.", "bel."]] * 3, "needs at least 2 documents; .* Received: [01] in shard"),
    ([["fan."]] * 40, "40 documents of one sentence each"),
    ([["fan.", "bel."]] * 40 + [["gum." * 100, "bel."]], "text of a shard must be at most 0 MiB"),
]


@pytest.mark.parametrize("documents, message", REFUSED)
def test_what_one_engine_refuses_the_other_does(documents, message, engine, words, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 400)
    with pytest.raises(UsageError, match=message):
        prepare_records(ListedCorpus({"a": documents}), words, config(engine=engine), tmp_path / "records")
    assert not list(tmp_path.iterdir()), "nothing is left, not even the shards that were made"


def test_a_shard_without_documents_is_refused(engine, words, tmp_path):
    corpus, options = ListedCorpus({"a": [["fan.", "bel."]]}), config(engine=engine, random_next_sentence=False)
    with pytest.raises(UsageError, match="Every shard needs .* Pass a lower --num_shards"):
        prepare_records(corpus, words, options, tmp_path / "records")
    assert not list(tmp_path.iterdir())


def test_what_a_start_made_is_kept_unless_its_options_cannot_be_used(words, tmp_path, monkeypatch):
    use_stand_in(monkeypatch)
    errors = {3: RunError("A full disk."), 5: UsageError("A bad option.")}
    calls, original = [], shards.build_shard

    def build(job, shard):
        calls.append(shard)
        if error := errors.get(len(calls)):
            raise error
        return original(job, shard)

    monkeypatch.setattr("tfbert.corpus.shards.build_shard", build)
    for error in errors.values():  # The second start makes one shard and fails at the other.
        with pytest.raises(type(error), match=str(error)):
            prepare_records(made_up_corpus(), words, config(engine="beam"), tmp_path)
        found = {path.name for path in tmp_path.glob("records-*")}
        assert found == {f"records-{shard:05}-of-00004.tfrecord" for shard in calls[:2]}
        assert len(list(tmp_path.glob("entries/*"))) == 2
    assert prepare_records(made_up_corpus(), words, config(engine="beam"), tmp_path) and len(calls) == 7


def test_a_corpus_may_have_shards_of_short_documents_only(words, tmp_path, monkeypatch):
    """What Beam makes again may be such a shard; the other engine looks at the whole corpus."""
    use_stand_in(monkeypatch)
    corpus = ListedCorpus({"a": [["fan."]] * 40 + [["fan.", "bel."]]})
    whole = prepare_records(corpus, words, config(engine="beam"), tmp_path)
    before = content(tmp_path)
    short = next(entry["file"] for entry in whole["shards"] if not entry["longer_documents"])
    (tmp_path / short).unlink()
    prepare_records(corpus, words, config(engine="beam"), tmp_path)
    assert content(tmp_path) == before


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
    with pytest.raises(UsageError, match=r"engine=beam needs Apache Beam. .*pip install -e '\.\[beam\]'"):
        prepare_records(made_up_corpus(), words, config(engine="beam"), tmp_path / "records")
    assert not list(tmp_path.iterdir())
