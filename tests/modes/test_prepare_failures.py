"""What failed starts leave: nothing of theirs that stands in the way of the next, and all that is others'."""

import dataclasses
import pathlib

import pytest

from tests.support.corpora import CORPUS_VOCAB, ListedCorpus, config, content, made_up_corpus
from tfbert.config.modes import OutputConfig
from tfbert.corpus import manifest
from tfbert.corpus.shards import build_shard
from tfbert.errors import RunError, UsageError
from tfbert.modes.pretrain import prepare, prepare_records
from tfbert.output.output_dir import locked
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
        assert sorted(begun) == [".preparing.json", "vocab.txt"]
        refused(SHORT, words, tmp_path, shards="2-3")
        assert content(tmp_path) == begun


def test_the_users_vocabulary_stays(words, tmp_path):
    (tmp_path / manifest.VOCAB).write_text("\n".join(CORPUS_VOCAB) + "\n")
    refused(SHORT, words, tmp_path)
    assert list(content(tmp_path)) == [manifest.VOCAB]


def interrupted(job, *_):
    """As a killed start leaves it, but for the locks."""
    pathlib.Path(job.work, "records-00000").write_text("half of a shard")
    raise KeyboardInterrupt


def test_what_a_killed_start_left_goes_too(words, tmp_path, monkeypatch):
    monkeypatch.setattr("tfbert.corpus.vocabulary._MOST_CHARACTERS", 9)  # Found out only when records are made.
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tfbert.modes.pretrain.make_shards", interrupted)
        prepare_records(SHORT, words, config(), tmp_path)
    assert sorted(content(tmp_path)) == [".preparing.json", ".work-0-3/records-00000", "vocab.txt"]
    refused(SHORT, words, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def full_disk(*_):
    raise RunError("A full disk.")


def started_on_a_full_disk(words, directory, monkeypatch, **options):
    """As a start leaves it that could write no record; its files."""
    with monkeypatch.context() as patch, pytest.raises(RunError, match="A full disk"):
        patch.setattr("tfbert.corpus.shards.build_shard", full_disk)
        prepare_records(made_up_corpus(), words, config(**options), directory)
    return content(directory)


def test_a_start_without_a_shard_binds_nobody_to_its_options_corpus_or_vocabulary(words, tmp_path, monkeypatch):
    left = started_on_a_full_disk(words, tmp_path / "full", monkeypatch)
    assert ".preparing.json" in left
    (tmp_path / "full" / "records-00000-of-00004.tfrecord").write_text("A shard that was not entered.")
    more, options = BertTokenizer([*CORPUS_VOCAB, "more"]), config(dupe_factor=6, num_shards=3)
    for directory in ("full", "fresh"):
        prepare_records(made_up_corpus(seed=1), more, options, tmp_path / directory)
    assert content(tmp_path / "full") == content(tmp_path / "fresh")


def test_one_shard_binds(words, tmp_path):
    prepare_records(made_up_corpus(), words, config(shards="0"), tmp_path)
    before = content(tmp_path)
    for shards, way_out in (("", "--overwrite_output_dir."), ("1", "empty it before the job.")):
        with pytest.raises(UsageError, match=f"made with dupe_factor=1, asked for 6. Pass another, or {way_out}"):
            prepare_records(made_up_corpus(), words, config(dupe_factor=6, shards=shards), tmp_path)
    assert content(tmp_path) == before


def test_records_are_replaced_when_others_are_whole(words, tmp_path, monkeypatch):
    options = config()
    overwriting = dataclasses.replace(options, output=dataclasses.replace(options.output, overwrite_output_dir=True))
    prepare_records(made_up_corpus(), words, options, tmp_path)
    before = content(tmp_path)
    for most in (1000, 9):  # Found out before and after records are made.
        monkeypatch.setattr("tfbert.corpus.vocabulary._MOST_CHARACTERS", most)
        with pytest.raises(UsageError, match="40 documents of one sentence each"):
            prepare_records(SHORT, words, overwriting, tmp_path)
        assert content(tmp_path) == before
    calls = []

    def build(*args):
        calls.append(args)
        return full_disk() if len(calls) == 3 else build_shard(*args)

    other = made_up_corpus(seed=1)
    monkeypatch.setattr("tfbert.corpus.shards.build_shard", build)
    with pytest.raises(RunError, match="A full disk"):
        prepare_records(other, words, overwriting, tmp_path)
    assert {name: text for name, text in content(tmp_path).items() if not name.startswith(".work-new/")} == before
    prepare_records(other, words, overwriting, tmp_path)
    assert len(calls) == 3 + 2, "two shards of the start before are kept"
    prepare_records(other, words, options, tmp_path.with_name("other"))
    assert content(tmp_path) == content(tmp_path.with_name("other")) != before


def test_a_task_of_an_array_job_changes_no_options(words, tmp_path, monkeypatch):
    """Another task may be at its first shard."""
    left = started_on_a_full_disk(words, tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="asked for 6. Pass another, or empty it before the job."):
        prepare_records(made_up_corpus(), words, config(dupe_factor=6, shards="1"), tmp_path)
    assert content(tmp_path) == left


def test_a_learned_vocabulary_is_that_of_the_corpus(tmp_path, monkeypatch):
    """That of a start without a shard is not used again: the corpus may be another one by now."""
    text = "{0} bel.\nkir {0}s.\n\nfan {0}.\nbel.\n"
    options = config(input_files=(str(tmp_path / "a.txt"),), num_shards=1)
    options = dataclasses.replace(options, output=OutputConfig(output_dir=str(tmp_path / "records")))
    (tmp_path / "a.txt").write_text(text.format("dan"))
    with monkeypatch.context() as patch, pytest.raises(RunError, match="A full disk"):
        patch.setattr("tfbert.corpus.shards.build_shard", full_disk)
        prepare(options)
    (tmp_path / "a.txt").write_text(text.format("zum"))
    assert prepare(options)["documents"] == 2
    learned = (tmp_path / "records" / "vocab.txt").read_text()
    assert "zum" in learned and "dan" not in learned
