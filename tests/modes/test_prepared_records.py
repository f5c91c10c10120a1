"""Directories of `--mode=prepare` as they are trained on: whole, and of the model's vocabulary."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.support.corpora import CORPUS_VOCAB, WIDTH, WORDS, config, made_up_corpus, prepare_files
from tests.support.records import some_records, write_records
from tfbert import ModelConfig, RuntimeConfig, UsageError
from tfbert.corpus import manifest
from tfbert.corpus.records import open_records
from tfbert.model.files import load_tokenizer
from tfbert.modes.pretrain import prepare_records
from tfbert.output.output_dir import seal
from tfbert.tokens.tokenizer import BertTokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("records")
    prepare_records(made_up_corpus(), BertTokenizer(CORPUS_VOCAB), config(), directory)
    return directory


def test_what_was_prepared_is_read(made):
    records, values = open_records([str(made)]), manifest.read_manifest(made)
    assert len(records) == values["totals"]["records"] and records.schema.max_seq_length == WIDTH
    counts = sum(
        (np.bincount([int(k) for k, v in entry["lengths"].items() for _ in range(v)], minlength=WIDTH + 1))
        for entry in values["shards"]
    )
    np.testing.assert_array_equal(records.lengths.counts, np.trim_zeros(counts, "b"))
    found = records.read(np.arange(len(records)))
    assert found.next_sentence.sum() == values["totals"]["random_next_sentences"]
    assert found.masked.weights.sum() == values["totals"]["predictions"]
    assert not np.isin(found.ids, CORPUS_VOCAB.index("[MASK]")).any()
    again = open_records([str(made / "*.tfrecord")])
    assert again.crc32 == records.crc32


def test_another_vocabulary_or_casing_is_refused(made):
    records = open_records([str(made)], "validation_records")
    for casing in ({}, {"strip_accents": True}):  # As lower-casing does anyway.
        records.check_tokenizer(BertTokenizer(CORPUS_VOCAB, **casing))
    other = BertTokenizer([*CORPUS_VOCAB[:-2], *CORPUS_VOCAB[:-3:-1]])
    for given in (records, open_records([str(made / "*-00000-*"), str(made / "*-00003-*")])):
        with pytest.raises(UsageError, match=r"_records in '.*', made with another one, its vocab.txt"):
            given.check_tokenizer(other)
    for casing in ({"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}):
        with pytest.raises(
            UsageError, match=rf"made with do_lower_case=True, .* model with .*{next(iter(casing))}=False"
        ):
            records.check_tokenizer(BertTokenizer(CORPUS_VOCAB, **casing))


def test_records_are_cased_as_the_model_whose_vocabulary_they_have(tmp_path):
    model, records = tmp_path / "model", tmp_path / "records"
    BertTokenizer(CORPUS_VOCAB, strip_accents=False).save(model)
    (tmp_path / "corpus.txt").write_text("\n\n".join([f"{WORDS[0]} {WORDS[1]} .\n{WORDS[2]} ."] * 4) + "\n")
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


def test_a_directory_that_is_not_whole_is_refused(made, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(made, directory)
    values = manifest.read_manifest(directory)
    (directory / manifest.PREPARING).write_text("{}")
    (directory / manifest.MANIFEST).unlink()
    with pytest.raises(UsageError, match="without one yet: shards are missing"):
        open_records([str(directory)])
    (directory / manifest.MANIFEST).write_text(seal({k: v for k, v in values.items() if k != "crc32"}))
    assert len(open_records([str(directory)])) == values["totals"]["records"]

    file = directory / values["shards"][1]["file"]
    write_records(file, some_records(3, seq_length=WIDTH), seq_length=WIDTH, num_masked=5)
    with pytest.raises(
        UsageError, match=rf"{file.name}' with 3 records .*, and {values['shards'][1]['records']} records in"
    ):
        open_records([str(directory)])
    file.unlink()
    with pytest.raises(UsageError, match=rf"without {file.name}"):
        open_records([str(directory)])
    (directory / manifest.MANIFEST).write_text(json.dumps(values))
    with pytest.raises(UsageError, match="manifest"):
        open_records([str(directory)])


def reordered(path):
    """Writes a shard's own records in another order: as many, as long, as large, all sound."""
    size = path.stat().st_size
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    write_records(path, records[::-1])
    assert path.stat().st_size == size


def swapped(directory, names):
    first, second = (directory / name for name in names[:2])
    (directory / "aside").write_bytes(first.read_bytes())
    second.replace(first)
    (directory / "aside").replace(second)


@pytest.mark.parametrize("how", [pytest.param("other order", marks=pytest.mark.slow), "swapped", "other seed"])
def test_a_shard_that_is_not_the_one_of_the_manifest_is_refused(made, tmp_path, how):
    directory = tmp_path / "copy"
    shutil.copytree(made, directory, ignore=shutil.ignore_patterns(".*"))
    names = [entry["file"] for entry in manifest.read_manifest(directory)["shards"]]
    if how == "other order":
        reordered(directory / names[0])
    elif how == "swapped":
        swapped(directory, names)
    else:
        options = dataclasses.replace(config(), runtime=RuntimeConfig(seed=7))
        prepare_records(made_up_corpus(), BertTokenizer(CORPUS_VOCAB), options, tmp_path / "other")
        shutil.copy(tmp_path / "other" / names[0], directory / names[0])
    for given in (directory, directory / "*.tfrecord", directory / names[0]):
        with pytest.raises(UsageError, match=rf"match their manifest. Received: .*{names[0]}' .* in manifest.json"):
            open_records([str(given)])


def test_a_shard_that_the_manifest_does_not_name_is_refused(made, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(made, directory)
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
        changed = f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}"
        (tmp_path / manifest.MANIFEST).write_text(changed)
        try:
            assert manifest.read_manifest(tmp_path) == values
        except UsageError as error:
            assert "Make the records again" in str(error) and "\n" not in str(error)


def test_a_changed_vocabulary_or_casing_beside_the_records_is_noticed(made, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(made, directory)
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
