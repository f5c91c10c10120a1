"""Records of a corpus: the same bytes however they are made, read back by TensorFlow, and what is refused. What failed
starts leave: nothing of theirs that stands in the way of the next, and all that is others'. Records may lie below their
corpus: what prepare writes is never read as text."""

import dataclasses
import gzip
import pathlib
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.support.corpora import (
    CORPUS_VOCAB,
    WIDTH,
    WORDS,
    ListedCorpus,
    config,
    content,
    made_up_corpus,
    prepare_files,
)
from tfbert import CorpusConfig, RunError, RuntimeConfig, UsageError
from tfbert.corpus import manifest, shards
from tfbert.corpus.records import detect_schema, restore
from tfbert.corpus.shards import build_shard
from tfbert.modes.pretrain import default_num_shards, prepare_records, shards_asked_for
from tfbert.output import logs
from tfbert.output.output_dir import locked
from tfbert.tokens.tokenizer import BertTokenizer

ROOT = pathlib.Path(__file__).parents[2]


def overwriting(options):
    return dataclasses.replace(options, output=dataclasses.replace(options.output, overwrite_output_dir=True))


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
    return restore(
        *(records[name] for name in ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"))
    )


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


PROGRAM = """\
import os, pathlib, signal, sys
sys.path.insert(0, {root!r})
from tests.support.corpora import CORPUS_VOCAB, config, made_up_corpus
from tfbert.corpus import shards
at = sys.argv[1]

def dying(module, name, times):
    original, calls = getattr(module, name), []
    def call(*args):
        calls.append(1)
        if len(calls) == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args)
    setattr(module, name, call)

if at == "records":
    shards._BLOCK = 5
    dying(shards, "serialize", 9)
elif at == "rename":
    dying(shards, "crc32_of", 2)
else:
    dying(shards, "write_entry", 3)
from tfbert.modes.pretrain import prepare_records
from tfbert.tokens.tokenizer import BertTokenizer
prepare_records(made_up_corpus(), BertTokenizer(CORPUS_VOCAB), config(), pathlib.Path({directory!r}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", ["records", "rename", "entry"])
def test_after_a_kill_the_bytes_are_the_same(made, words, tmp_path, at, logged, monkeypatch):
    monkeypatch.setattr(logs, "SECONDS_WITHOUT_NEWS", 0)
    directory = tmp_path / "killed"
    program = PROGRAM.format(root=str(ROOT), directory=str(directory))
    done = subprocess.run([sys.executable, "-c", program, at], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    assert not (directory / "manifest.json").exists()
    logged()
    prepare_records(made_up_corpus(), words, config(), directory)
    lines = logged()
    assert any("shards are whole already" in line for line in lines) == (at in ("rename", "entry"))
    assert content(directory) == content(made)


def test_other_options_and_another_corpus_are_refused(made, words):
    before = content(made)
    with pytest.raises(UsageError, match=r"made with seed=42, asked for 7\. Pass another"):
        prepare_records(
            made_up_corpus(), words, dataclasses.replace(config(), runtime=RuntimeConfig(**{"seed": 7})), made
        )
    with pytest.raises(UsageError, match="1 other parts of the corpus, such as part-9"):
        other = dataclasses.replace(made_up_corpus())
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
    over = overwriting(config())
    prepare_records(made_up_corpus(), words, over, tmp_path)
    prepare_records(made_up_corpus(), words, overwriting(config(num_shards=2)), tmp_path)
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
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "1 parts of the corpus hold no sentence, such as nothing.txt."
    ]


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
    over = overwriting(config(shards="0"))
    with pytest.raises(UsageError, match="none may empty it"):
        prepare_records(made_up_corpus(), words, over, tmp_path)


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
    options = config(compress_records=True, record_names="v2")
    prepare_records(made_up_corpus(), words, options, tmp_path)
    schema, records = parsed(tmp_path)
    assert schema.names == "v2"
    _, plain = parsed(made)
    np.testing.assert_array_equal(records["input_word_ids"], plain["input_ids"])
    np.testing.assert_array_equal(records["input_type_ids"], plain["segment_ids"])
    file = next(tmp_path.glob("records*.tfrecord.gz"))
    assert gzip.decompress(file.read_bytes())


def test_tokens_in_no_record_are_counted(words, tmp_path):
    """Each token of this corpus is another word, and no record holds two whole documents."""
    texts = [f"{' '.join(WORDS[i : i + 15])}" for i in range(0, 60, 15)]
    totals = prepare_records(ListedCorpus({"a": [texts[:2], texts[2:]]}), words, config(num_shards=1), tmp_path)[
        "totals"
    ]
    seen = {*restored(parsed(tmp_path)[1]).flat} - {*range(5)}
    assert totals["unused_tokens"] == totals["tokens"] - len(seen) == 60 - len(seen) > 0


def test_full_sentences_and_several_passes(words, tmp_path):
    prepare_records(made_up_corpus(), words, config(random_next_sentence=False, dupe_factor=3), tmp_path)
    schema, records = parsed(tmp_path)
    assert not records["segment_ids"].any() and not records["next_sentence_labels"].any()
    values = manifest.read_manifest(tmp_path)["totals"]
    ids = restored(records)
    seps = (ids == 3).sum()
    tokens = records["input_mask"].sum() - len(records["input_mask"]) - seps
    assert tokens == 3 * values["tokens"], "every token is there once a pass"
    assert values["unused_tokens"] == 0
    masked = records["input_ids"]
    assert len(np.unique(masked, axis=0)) > 0.9 * len(masked), "each pass has other records, or masks"


@pytest.mark.parametrize(
    "num_shards, expected",
    [
        (1, {(0, 1, 2, 3, 4, 5): [400]}),
        (2, {(0, 1, 2, 3, 4, 5): [200] * 2}),
        (4, {(0, 1): [128], (2, 3, 4, 5): [90] * 3}),
        (7, {(0,): [64], (1,): [64], (2, 3): [35] * 2, (4, 5): [67] * 3}),
    ],
)
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
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "a.gz is in one part, and 40 shards each read it"
    ]


def test_a_corpus_of_several_stretches_is_whole_and_the_same_by_any_task(words, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "STRETCH_BYTES", 100)
    corpus = made_up_corpus(num_parts=7)
    whole = prepare_records(corpus, words, config(), tmp_path / "whole")
    for task in ("3", "0-1", "2"):  # Of which some share a stretch, and others have one.
        done = prepare_records(corpus, words, config(shards=task), tmp_path / "tasks")
        assert (done is None) == (task != "2")
    assert content(tmp_path / "tasks") == content(tmp_path / "whole")
    assert whole["totals"]["documents"] == 60
    sentences = sum(len(document) for part in corpus.parts() for document in corpus.read(part))
    assert whole["totals"]["sentences"] == sentences
    assert {share.parts for share in shards.shares_of(corpus, 4)} == {(0, 1), (2, 3), (4, 5, 6)}
    # What an earlier version made, all documents dealt to all shards, is not gone on with.
    monkeypatch.setattr(shards, "STRETCH_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="made with version=2. Pass another, or --overwrite_output_dir"):
        prepare_records(corpus, words, config(), tmp_path / "whole")


def test_few_documents_make_one_shard():
    assert default_num_shards(made_up_corpus(60)) == 1
    assert default_num_shards(made_up_corpus(400)) == 4
    large = dataclasses.replace(made_up_corpus(2))
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
    for task, way_out in (("", "--overwrite_output_dir."), ("1", "empty it before the job.")):
        with pytest.raises(UsageError, match=f"made with dupe_factor=1, asked for 6. Pass another, or {way_out}"):
            prepare_records(made_up_corpus(), words, config(dupe_factor=6, shards=task), tmp_path)
    assert content(tmp_path) == before


def test_records_are_replaced_when_others_are_whole(words, tmp_path, monkeypatch):
    options, over = config(), overwriting(config())
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
    left = started_on_a_full_disk(words, tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="asked for 6. Pass another, or empty it before the job."):
        prepare_records(made_up_corpus(), words, config(dupe_factor=6, shards="1"), tmp_path)
    assert content(tmp_path) == left


def test_a_learned_vocabulary_is_that_of_the_corpus(tmp_path, monkeypatch):
    """That of a start without a shard is not used again: the corpus may be another one by now."""
    text = "{0} bel.\nkir {0}s.\n\nfan {0}.\nbel.\n"
    options = {"files": tmp_path / "a.txt", "out": tmp_path / "records", "num_shards": 1, "learn_vocab": 100}
    (tmp_path / "a.txt").write_text(text.format("dan"))
    with monkeypatch.context() as patch, pytest.raises(RunError, match="A full disk"):
        patch.setattr("tfbert.corpus.shards.build_shard", full_disk)
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
