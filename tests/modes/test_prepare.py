"""Records of a corpus: the same bytes however they are made, read back by TensorFlow, and what is refused. What failed
starts leave: nothing of theirs that stands in the way of the next, and all that is others'. Records may lie below their
corpus: what prepare writes is never read as text. `--engine=beam`: the same bytes and the same refusals as by
processes; with Beam itself where it is installed. Directories of records as they are trained on: whole, and of the
model's vocabulary."""

import contextlib
import gzip
import itertools
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.support.beam import stand_in
from tests.support.corpora import CORPUS_VOCAB, WIDTH, ListedCorpus, config, content, made_up_corpus, prepare_files
from tests.support.records import some_records, write_records
from tfbert import CorpusConfig, ModelConfig, RunError, UsageError
from tfbert.corpus import manifest, shards
from tfbert.corpus.records import detect_schema, open_records, restore
from tfbert.corpus.shards import build_shard
from tfbert.model.files import load_tokenizer
from tfbert.modes.pretrain import default_num_shards, prepare_records, shards_asked_for
from tfbert.output import logs
from tfbert.output.output_dir import locked, seal
from tfbert.tokens.tokenizer import BertTokenizer


@pytest.fixture(scope="module")
def words():
    return BertTokenizer(CORPUS_VOCAB)


@pytest.fixture(scope="module")
def made(words, tmp_path_factory):
    """The records of the made-up corpus, by one process."""
    directory = tmp_path_factory.mktemp("records")
    prepare_records(made_up_corpus(), words, config(), directory)
    return directory


def parsed(directory):
    """All records of a directory."""
    values = manifest.read_manifest(directory)
    kind = "GZIP" if values["options"]["compress_records"] else ""
    records = []
    for entry in values["shards"]:
        found = list(tf.data.TFRecordDataset(str(directory / entry["file"]), kind).as_numpy_iterator())
        assert len(found) == entry["records"] == sum(entry["lengths"].values())
        records += found
    schema = detect_schema(records[0], "here")
    return schema, {name: value.numpy() for name, value in tf.io.parse_example(records, schema.feature_spec()).items()}


def restored(records):
    names = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    return restore(*(records[name] for name in names))


def test_a_directory_holds_records_and_what_they_are(made):
    names = [f"records-{shard:05}-of-00004.tfrecord" for shard in range(4)]
    entries = [f"entries/{shard:05}.json" for shard in range(4)]
    assert sorted(content(made)) == sorted([*names, *entries, "manifest.json", "tokenizer_config.json", "vocab.txt"])
    values = manifest.read_manifest(made)
    corpus = made_up_corpus()
    documents = [document for part in corpus.parts() for document in corpus.read(part)]
    assert values["totals"]["documents"] == len(documents)
    assert values["totals"]["sentences"] == sum(map(len, documents))
    assert values["inputs"] == corpus.fingerprints()
    assert values["options"]["max_seq_length"] == WIDTH and values["options"]["max_predictions_per_seq"] == 5
    assert (made / "vocab.txt").read_text().split() == CORPUS_VOCAB
    for entry in values["shards"]:
        assert entry["bytes"] == (made / entry["file"]).stat().st_size


def test_records_are_pairs_of_sentences_of_the_corpus(made, words):
    corpus = made_up_corpus()
    documents = [" ".join(document) for part in corpus.parts() for document in corpus.read(part)]
    documents = [" " + " ".join(map(str, ids)) + " " for ids in words.tokenize(tf.constant(documents)).to_list()]
    schema, records = parsed(made)
    assert schema.names == "v1" and schema.max_predictions_per_seq == 5
    ids = restored(records)
    lengths = records["input_mask"].sum(axis=1)
    assert (ids[records["input_mask"] == 0] == 0).all()
    second = lengths - records["segment_ids"].sum(axis=1)
    for row in range(len(ids)):
        a, b = ids[row, 1 : second[row] - 1].tolist(), ids[row, second[row] : lengths[row] - 1].tolist()
        assert [ids[row, i] for i in (0, second[row] - 1, lengths[row] - 1)] == [2, 3, 3]
        homes = [{d for d, text in enumerate(documents) if f" {' '.join(map(str, part))} " in text} for part in (a, b)]
        assert homes[0] and homes[1]
        if records["next_sentence_labels"][row, 0] == 0:
            both = f" {' '.join(map(str, a))} ", f" {' '.join(map(str, b))} "
            assert any(documents[d].find(both[0]) < documents[d].rfind(both[1]) for d in homes[0] & homes[1])
    totals = manifest.read_manifest(made)["totals"]
    assert totals["random_next_sentences"] == records["next_sentence_labels"].sum()
    assert totals["predictions"] == records["masked_lm_weights"].sum()


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(made, words, tmp_path):
    prepare_records(made_up_corpus(), words, config(num_processes=2), tmp_path)
    assert content(tmp_path) == content(made)


def test_pieces_of_any_size_change_no_byte(made, words, tmp_path, monkeypatch):
    monkeypatch.setattr("tfbert.corpus.manifest._ROWS", 7)
    monkeypatch.setattr("tfbert.corpus.shards._CHUNK_SIZE", 50)
    monkeypatch.setattr("tfbert.corpus.shards._BLOCK", 5)
    prepare_records(made_up_corpus(), words, config(), tmp_path)
    assert content(tmp_path) == content(made)


def test_what_is_whole_is_not_made_again(made, words, tmp_path, logged, monkeypatch):
    prepare_records(made_up_corpus(), words, config(), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("records*")}
    first, second, *_ = sorted(before)
    damaged = bytearray(first.read_bytes())
    damaged[100] ^= 1
    first.write_bytes(damaged)
    second.unlink()
    logged()
    prepare_records(made_up_corpus(), words, config(), tmp_path)
    assert logged()[0] == "2 of 4 shards are whole already."
    assert content(tmp_path) == content(made)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("records*")}
    assert {path for path in before if before[path] != after[path]} == {first, second}
    monkeypatch.setattr("tfbert.modes.pretrain.make_shards", None)
    prepare_records(made_up_corpus(), words, config(), tmp_path)
    assert logged() == ["4 of 4 shards are whole already."]
    monkeypatch.setattr(logs, "_SECONDS_BETWEEN_LINES", 0)
    prepare_records(made_up_corpus(), words, config(), tmp_path)
    sizes = np.cumsum([entry["bytes"] for entry in manifest.read_manifest(tmp_path)["shards"]])
    lines = [line.split(",")[0] for line in logged()]
    assert lines[:4] == [f"checking the shards that exist: {100 * size / sizes[-1]:.0f}%" for size in sizes]


def die_at(call, directory):
    """Prepares the records; this process is killed as it calls a function of `shards` for the nth time."""
    name, times = call
    original, calls = getattr(shards, name), itertools.count(1)

    def dying(*args):
        if next(calls) == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args)

    setattr(shards, name, dying)
    shards._BLOCK = 5 if name == "serialize" else shards._BLOCK
    prepare_records(made_up_corpus(), BertTokenizer(CORPUS_VOCAB), config(), directory)


KILLED_AT = {"records": ("serialize", 9), "rename": ("crc32_of", 2), "entry": ("write_entry", 3)}


@pytest.mark.slow
@pytest.mark.parametrize("at", KILLED_AT)
def test_after_a_kill_the_bytes_are_the_same(made, words, tmp_path, at, logged, monkeypatch):
    monkeypatch.setattr(logs, "SECONDS_WITHOUT_NEWS", 0)
    directory = tmp_path / "killed"
    process = multiprocessing.get_context("spawn").Process(target=die_at, args=(KILLED_AT[at], directory))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (directory / "manifest.json").exists()
    prepare_records(made_up_corpus(), words, config(), directory)
    assert any("shards are whole already" in line for line in logged()) == (at in ("rename", "entry"))
    assert content(directory) == content(made)


def test_other_options_and_another_corpus_are_refused(made, words):
    before = content(made)
    with pytest.raises(UsageError, match=r"made with seed=42, asked for 7\. Pass another"):
        prepare_records(made_up_corpus(), words, config(seed=7), made)
    with pytest.raises(UsageError, match="1 other parts of the corpus, such as part-9"):
        other = made_up_corpus()
        other.documents["part-9"] = [["fan bel.", "kir."]]
        prepare_records(other, words, config(), made)
    with pytest.raises(UsageError, match="vocab_size=69, asked for 70; vocab_sha256="):
        prepare_records(made_up_corpus(), BertTokenizer([*CORPUS_VOCAB, "more"]), config(), made)
    assert content(made) == before


def test_a_directory_of_other_files_is_refused_unless_asked_for(words, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="directory of their own. Received: .* holds thesis.txt"):
        prepare_records(made_up_corpus(), words, config(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    for num_shards in (4, 2):
        over = config(overwrite_output_dir=True, num_shards=num_shards)
        prepare_records(made_up_corpus(), words, over, tmp_path)
    assert len(list(tmp_path.glob("records*"))) == len(list(tmp_path.glob("entries/*"))) == 2
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_directory_that_another_run_writes_is_refused(words, tmp_path):
    with locked(tmp_path), pytest.raises(RunError, match="another process is writing"):
        prepare_records(made_up_corpus(), words, config(), tmp_path)
    with locked(tmp_path, shared=True):
        prepare_records(made_up_corpus(), words, config(shards="1"), tmp_path)
        with pytest.raises(RunError, match="another process is writing"):
            prepare_records(made_up_corpus(), words, config(), tmp_path)


def test_parts_without_documents_are_told_of(words, tmp_path, caplog):
    corpus = made_up_corpus()
    corpus.documents["nothing.txt"] = []
    prepare_records(corpus, words, config(), tmp_path)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["1 parts of the corpus hold no sentence, such as nothing.txt."]


def test_the_command_learns_a_vocabulary_once(tmp_path, monkeypatch, logged):
    text = "\n\n".join("\n".join(d) for part in ("part-0", "part-1") for d in made_up_corpus().read(part))
    (tmp_path / "corpus.txt").write_text(text + "\n")
    options = {"learn_vocab": 200, "num_shards": 4}
    totals = prepare_files(tmp_path / "corpus.txt", tmp_path / "out", **options)
    assert totals["documents"] == 40 and totals["records"] > 40
    share = totals["unused_tokens"] / totals["tokens"]
    assert 0 < share < 0.5 and f"; {share:.1%} of the tokens cut off by max_seq_length" in logged()[-1]
    before = content(tmp_path / "out")
    monkeypatch.setattr("tfbert.modes.pretrain.learn_vocab", None)
    next((tmp_path / "out").glob("records*")).unlink()
    assert prepare_files(tmp_path / "corpus.txt", tmp_path / "out", **options) == totals
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize("asked, num_shards", [("0-4", 4), ("3-2", 4), ("0", 0)])
def test_shards_that_there_are_not_are_refused(asked, num_shards):
    with pytest.raises(UsageError, match="shards must be among the num_shards"):
        shards_asked_for(CorpusConfig(shards=asked, num_shards=num_shards), num_shards or 4)


def test_a_task_of_an_array_job_empties_nothing(words, tmp_path):
    with pytest.raises(UsageError, match="none may empty it"):
        prepare_records(made_up_corpus(), words, config(overwrite_output_dir=True, shards="0"), tmp_path)


def test_a_full_disk_ends_the_run_and_leaves_no_half(made, words, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, limits[1]))  # Python ignores the signal.
    try:
        with pytest.raises(RunError, match="Records must be writable"):
            prepare_records(made_up_corpus(), words, config(), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.glob("records*")) and not (tmp_path / "manifest.json").exists()
    prepare_records(made_up_corpus(), words, config(), tmp_path)
    assert content(tmp_path) == content(made)


def test_gzip_and_the_names_of_model_garden(made, words, tmp_path):
    prepare_records(made_up_corpus(), words, config(compress_records=True, record_names="v2"), tmp_path)
    schema, records = parsed(tmp_path)
    assert schema.names == "v2"
    _, plain = parsed(made)
    np.testing.assert_array_equal(records["input_word_ids"], plain["input_ids"])
    np.testing.assert_array_equal(records["input_type_ids"], plain["segment_ids"])
    assert gzip.decompress(next(tmp_path.glob("records*.tfrecord.gz")).read_bytes())


def test_tokens_in_no_record_are_counted(words, tmp_path):
    """Each token of this corpus is another word, and no record holds two whole documents."""
    texts = [" ".join(CORPUS_VOCAB[i : i + 15]) for i in range(5, 65, 15)]
    corpus = ListedCorpus({"a": [texts[:2], texts[2:]]})
    totals = prepare_records(corpus, words, config(num_shards=1), tmp_path)["totals"]
    seen = {*restored(parsed(tmp_path)[1]).flat} - {*range(5)}
    assert totals["unused_tokens"] == totals["tokens"] - len(seen) == 60 - len(seen) > 0


def test_full_sentences_and_several_passes(words, tmp_path):
    prepare_records(made_up_corpus(), words, config(random_next_sentence=False, dupe_factor=3), tmp_path)
    _, records = parsed(tmp_path)
    assert not records["segment_ids"].any() and not records["next_sentence_labels"].any()
    totals, masked = manifest.read_manifest(tmp_path)["totals"], records["input_ids"]
    tokens = records["input_mask"].sum() - len(records["input_mask"]) - (restored(records) == 3).sum()
    assert tokens == 3 * totals["tokens"], "every token is there once a pass"
    assert totals["unused_tokens"] == 0
    assert len(np.unique(masked, axis=0)) > 0.9 * len(masked), "each pass has other records, or masks"


STRETCHES = [
    (1, {(0, 1, 2, 3, 4, 5): [400]}),
    (2, {(0, 1, 2, 3, 4, 5): [200] * 2}),
    (4, {(0, 1): [128], (2, 3, 4, 5): [90] * 3}),
    (7, {(0,): [64], (1,): [64], (2, 3): [35] * 2, (4, 5): [67] * 3}),
]


@pytest.mark.parametrize("num_shards, expected", STRETCHES)
def test_a_shard_is_a_stretch_of_a_large_corpus_or_a_part_of_one(num_shards, expected, monkeypatch):
    corpus = ListedCorpus(dict.fromkeys("abcdef", ()))
    object.__setattr__(corpus, "sizes", lambda: dict(zip("abcdef", (64, 64, 30, 40, 200, 2), strict=True)))
    monkeypatch.setattr(shards, "STRETCH_BYTES", 64)
    shares = shards.shares_of(corpus, num_shards)
    found = {}
    for share in shares:
        found.setdefault(share.parts, []).append(share.size)
        assert (share.place, share.count) == (len(found[share.parts]) - 1, len(expected[share.parts]))
    assert found == expected and list(found) == sorted(found)


def test_one_large_part_for_many_shards_is_told_of(monkeypatch, caplog):
    corpus = ListedCorpus({"a.gz": [["fan."] * 50], "b.gz": [["fan."]]})
    shards.shares_of(corpus, 40)
    assert not caplog.records
    monkeypatch.setattr(shards, "STRETCH_BYTES", 5)
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 200)
    shards.shares_of(corpus, 40)
    (record,) = caplog.records
    assert record.getMessage().startswith("a.gz is in one part, and 40 shards each read it:")


def test_a_corpus_of_several_stretches_is_whole_and_the_same_by_any_task(words, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "STRETCH_BYTES", 100)
    corpus = made_up_corpus(num_parts=7)
    whole = prepare_records(corpus, words, config(), tmp_path / "whole")
    for task in ("3", "0-1", "2"):  # Of which some share a stretch, and others have one.
        assert bool(prepare_records(corpus, words, config(shards=task), tmp_path / "tasks")) == (task == "2")
    assert content(tmp_path / "tasks") == content(tmp_path / "whole")
    documents = [document for part in corpus.parts() for document in corpus.read(part)]
    assert (whole["totals"]["documents"], whole["totals"]["sentences"]) == (60, sum(map(len, documents)))
    assert {share.parts for share in shards.shares_of(corpus, 4)} == {(0, 1), (2, 3), (4, 5, 6)}
    # What an earlier version made, all documents dealt to all shards, is not gone on with.
    monkeypatch.setattr(shards, "STRETCH_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="made with version=2. Pass another, or --overwrite_output_dir"):
        prepare_records(corpus, words, config(), tmp_path / "whole")


def test_few_documents_make_one_shard():
    assert default_num_shards(made_up_corpus(60)) == 1
    assert default_num_shards(made_up_corpus(400)) == 4
    large = made_up_corpus(2)
    object.__setattr__(large, "sizes", lambda: {"a": 5 << 28, "b": 1})
    assert default_num_shards(large) == 21


SHORT = ListedCorpus({"a": [["fan."]] * 40})


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
    (job.work / "records-00000").write_text("half of a shard")
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


@contextlib.contextmanager
def on_a_full_disk(monkeypatch):
    """A start that can write no record."""
    with monkeypatch.context() as patch, pytest.raises(RunError, match="A full disk"):
        patch.setattr("tfbert.corpus.shards.build_shard", full_disk)
        yield


def test_a_start_without_a_shard_binds_nobody_to_its_options_corpus_or_vocabulary(words, tmp_path, monkeypatch):
    with on_a_full_disk(monkeypatch):
        prepare_records(made_up_corpus(), words, config(), tmp_path / "full")
    assert ".preparing.json" in content(tmp_path / "full")
    (tmp_path / "full" / "records-00000-of-00004.tfrecord").write_text("A shard that was not entered.")
    more, options = BertTokenizer([*CORPUS_VOCAB, "more"]), config(dupe_factor=6, num_shards=3)
    for directory in ("full", "fresh"):
        prepare_records(made_up_corpus(seed=1), more, options, tmp_path / directory)
    assert content(tmp_path / "full") == content(tmp_path / "fresh")


def test_one_shard_binds(words, tmp_path):
    prepare_records(made_up_corpus(), words, config(shards="0"), tmp_path)
    before = content(tmp_path)
    for task, way_out in (("", "--overwrite_output_dir."), ("1", "empty it before the job.")):
        with pytest.raises(UsageError, match=f"made with dupe_factor=1, asked for 6. Pass another, or {way_out}"):
            prepare_records(made_up_corpus(), words, config(dupe_factor=6, shards=task), tmp_path)
    assert content(tmp_path) == before


def test_records_are_replaced_when_others_are_whole(words, tmp_path, monkeypatch):
    options, over = config(), config(overwrite_output_dir=True)
    prepare_records(made_up_corpus(), words, options, tmp_path)
    before = content(tmp_path)
    for most in (1000, 9):  # Found out before and after records are made.
        monkeypatch.setattr("tfbert.corpus.vocabulary._MOST_CHARACTERS", most)
        with pytest.raises(UsageError, match="40 documents of one sentence each"):
            prepare_records(SHORT, words, over, tmp_path)
        assert content(tmp_path) == before
    calls = []

    def build(*args):
        calls.append(args)
        return full_disk() if len(calls) == 3 else build_shard(*args)

    other = made_up_corpus(seed=1)
    monkeypatch.setattr("tfbert.corpus.shards.build_shard", build)
    with pytest.raises(RunError, match="A full disk"):
        prepare_records(other, words, over, tmp_path)
    assert {name: text for name, text in content(tmp_path).items() if not name.startswith(".work-new/")} == before
    prepare_records(other, words, over, tmp_path)
    assert len(calls) == 3 + 2, "two shards of the start before are kept"
    prepare_records(other, words, options, tmp_path.with_name("other"))
    assert content(tmp_path) == content(tmp_path.with_name("other")) != before


def test_a_task_of_an_array_job_changes_no_options(words, tmp_path, monkeypatch):
    """Another task may be at its first shard."""
    with on_a_full_disk(monkeypatch):
        prepare_records(made_up_corpus(), words, config(), tmp_path)
    left = content(tmp_path)
    with pytest.raises(UsageError, match="asked for 6. Pass another, or empty it before the job."):
        prepare_records(made_up_corpus(), words, config(dupe_factor=6, shards="1"), tmp_path)
    assert content(tmp_path) == left


def test_a_learned_vocabulary_is_that_of_the_corpus(tmp_path, monkeypatch):
    """That of a start without a shard is not used again: the corpus may be another one by now."""
    text = "{0} bel.\nkir {0}s.\n\nfan {0}.\nbel.\n"
    options = {"files": tmp_path / "a.txt", "out": tmp_path / "records", "num_shards": 1, "learn_vocab": 100}
    (tmp_path / "a.txt").write_text(text.format("dan"))
    with on_a_full_disk(monkeypatch):
        prepare_files(**options)
    (tmp_path / "a.txt").write_text(text.format("zum"))
    assert prepare_files(**options)["documents"] == 2
    learned = (tmp_path / "records" / "vocab.txt").read_text()
    assert "zum" in learned and "dan" not in learned


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
    """The totals of files of the corpus, with records in a directory below it."""
    options |= {"vocab_file": corpus.parent / "words.txt", "num_shards": 4}
    return prepare_files(corpus / pattern, corpus / name, **options)


@pytest.mark.parametrize("pattern", ["", "**"])
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
    for task in ("2", "0-1"):
        assert not prepared(corpus, shards=task)
    assert prepared(corpus, shards="3")["documents"] == 60


def test_records_are_no_corpus(corpus):
    prepared(corpus)
    assert prepared(corpus, name="more", corpus_format="sentences")["documents"] == 60
    with pytest.raises(UsageError, match="files of a corpus must exist. Received: .*a directory without text files"):
        prepared(corpus, "records", "other")


def test_files_with_such_names_elsewhere_are_text(corpus):
    (corpus / "entries").mkdir()
    (corpus / "entries" / "vocab.txt").write_text("Ban bel.\n\nBir.\n")
    (corpus / "entries" / "1.json").write_text('{"text": "Ban bel."}\n')
    assert prepared(corpus)["documents"] == 63


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


def test_what_was_prepared_is_read(made):
    records, values = open_records([str(made)]), manifest.read_manifest(made)
    assert len(records) == values["totals"]["records"] and records.schema.max_seq_length == WIDTH
    counts = np.zeros(WIDTH + 1, int)
    for entry in values["shards"]:
        counts[[*map(int, entry["lengths"])]] += [*entry["lengths"].values()]
    np.testing.assert_array_equal(records.lengths.counts, np.trim_zeros(counts, "b"))
    found = records.read(np.arange(len(records)))
    assert found.next_sentence.sum() == values["totals"]["random_next_sentences"]
    assert found.masked.weights.sum() == values["totals"]["predictions"]
    assert not np.isin(found.ids, CORPUS_VOCAB.index("[MASK]")).any()
    assert open_records([str(made / "*.tfrecord")]).crc32 == records.crc32


def test_another_vocabulary_or_casing_is_refused(made):
    records = open_records([str(made)], "validation_records")
    for casing in ({}, {"strip_accents": True}):  # As lower-casing does anyway.
        records.check_tokenizer(BertTokenizer(CORPUS_VOCAB, **casing))
    other = BertTokenizer([*CORPUS_VOCAB[:-2], *CORPUS_VOCAB[:-3:-1]])
    for given in (records, open_records([str(made / "*-00000-*"), str(made / "*-00003-*")])):
        with pytest.raises(UsageError, match=r"_records in '.*', made with another one, its vocab.txt"):
            given.check_tokenizer(other)
    for casing in ({"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}):
        (name,) = casing
        with pytest.raises(UsageError, match=rf"made with do_lower_case=True, .* model with .*{name}=False"):
            records.check_tokenizer(BertTokenizer(CORPUS_VOCAB, **casing))


def test_records_are_cased_as_the_model_whose_vocabulary_they_have(tmp_path):
    model, records = tmp_path / "model", tmp_path / "records"
    BertTokenizer(CORPUS_VOCAB, strip_accents=False).save(model)
    (tmp_path / "corpus.txt").write_text("\n\n".join(["ban bel .\nbir ."] * 4) + "\n")
    prepare_files(tmp_path / "corpus.txt", records, vocab_file=model / "vocab.txt")
    assert manifest.read_manifest(records)["options"]["casing"]["strip_accents"] is False
    # A model from scratch gets the same tokenizer.
    found = load_tokenizer(ModelConfig(vocab_file=str(records / "vocab.txt")), None, training_texts=())
    assert found.casing == BertTokenizer.from_pretrained(model).casing
    # Records that are made anew state their own casing; the file of a model, which states more, is not touched.
    made = manifest.read_manifest(records)
    made["options"]["casing"]["strip_accents"] = None
    for directory, strip_accents in ((records, None), (model, False)):
        manifest.clear(directory)
        manifest.finish(directory, made)
        assert json.loads((directory / manifest.CASING).read_text())["strip_accents"] is strip_accents


@pytest.fixture
def directory(made, tmp_path):
    """A copy of the records, to be spoiled."""
    return shutil.copytree(made, tmp_path / "copy")


def test_a_directory_that_is_not_whole_is_refused(directory):
    values = manifest.read_manifest(directory)
    (directory / manifest.PREPARING).write_text("{}")
    (directory / manifest.MANIFEST).unlink()
    with pytest.raises(UsageError, match="without one yet: shards are missing"):
        open_records([str(directory)])
    (directory / manifest.MANIFEST).write_text(seal({k: v for k, v in values.items() if k != "crc32"}))
    assert len(open_records([str(directory)])) == values["totals"]["records"]

    entry = values["shards"][1]
    file = directory / entry["file"]
    write_records(file, some_records(3, seq_length=WIDTH), seq_length=WIDTH, num_masked=5)
    with pytest.raises(UsageError, match=rf"{file.name}' with 3 records .*, and {entry['records']} records in"):
        open_records([str(directory)])
    file.unlink()
    with pytest.raises(UsageError, match=rf"without {file.name}"):
        open_records([str(directory)])
    (directory / manifest.MANIFEST).write_text(json.dumps(values))
    with pytest.raises(UsageError, match="manifest"):
        open_records([str(directory)])


@pytest.mark.parametrize("how", [pytest.param("other order", marks=pytest.mark.slow), "swapped", "other seed"])
def test_a_shard_that_is_not_the_one_of_the_manifest_is_refused(directory, words, tmp_path, how):
    first, second, *_ = (directory / entry["file"] for entry in manifest.read_manifest(directory)["shards"])
    if how == "other order":  # As many, as long, as large, all sound.
        size = first.stat().st_size
        write_records(first, list(tf.data.TFRecordDataset(str(first)).as_numpy_iterator())[::-1])
        assert first.stat().st_size == size
    elif how == "swapped":
        first_bytes = first.read_bytes()
        second.replace(first)
        second.write_bytes(first_bytes)
    else:
        prepare_records(made_up_corpus(), words, config(seed=7), tmp_path / "other")
        shutil.copy(tmp_path / "other" / first.name, first)
    for given in (directory, directory / "*.tfrecord", first):
        with pytest.raises(UsageError, match=rf"match their manifest. Received: .*{first.name}' .* in manifest.json"):
            open_records([str(given)])


def test_a_shard_that_the_manifest_does_not_name_is_refused(made, directory):
    shutil.copy(directory / "records-00000-of-00004.tfrecord", directory / "records-00000-of-00009.tfrecord")
    assert len(open_records([str(directory)])) == manifest.read_manifest(made)["totals"]["records"]
    with pytest.raises(UsageError, match=r"-of-00009.tfrecord' which is not in it"):
        open_records([str(directory / "*.tfrecord")])


def test_no_digit_of_a_manifest_is_trusted(made, tmp_path):
    text = (made / manifest.MANIFEST).read_text()
    values = manifest.read_manifest(made)
    places = [match.start() for match in re.finditer(r"\d", text)]
    assert len(places) > 300
    for at in places[::4]:
        (tmp_path / manifest.MANIFEST).write_text(f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}")
        try:
            assert manifest.read_manifest(tmp_path) == values
        except UsageError as error:
            assert "Make the records again" in str(error) and "\n" not in str(error)


def test_a_changed_vocabulary_or_casing_beside_the_records_is_noticed(directory):
    vocab, records = directory / manifest.VOCAB, open_records([str(directory)])
    sound = vocab.read_text()
    for text, casing, message in (
        (sound.replace(".\n,", ",\n."), "{}", "made with another one, its vocab.txt"),
        (sound, '{"do_lower_case": false}', "must be cased and split as"),
    ):
        vocab.write_text(text)
        (directory / manifest.CASING).write_text(casing)
        tokenizer = load_tokenizer(ModelConfig(vocab_file=str(vocab)), None, training_texts=())
        with pytest.raises(UsageError, match=message):
            records.check_tokenizer(tokenizer)
