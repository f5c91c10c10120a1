"""Directories of `--mode=prepare` as they are trained on: whole, and of the model's vocabulary."""

import json
import shutil

import numpy as np
import pytest

from tests.corpora import CORPUS_VOCAB, WIDTH, config, made_up_corpus
from tests.records import some_records, write_records
from tfbert.config.pretraining import CorpusConfig
from tfbert.config.run import Config, DataConfig, ModelConfig, OutputConfig
from tfbert.corpus import manifest
from tfbert.corpus.record_files import open_records
from tfbert.errors import UsageError
from tfbert.model.files import load_tokenizer
from tfbert.modes.prepare import prepare, prepare_records
from tfbert.output.sealed import seal
from tfbert.tasks.pretraining import Pretraining
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


def test_another_vocabulary_is_refused(made):
    records = open_records([str(made)], "validation_records")
    records.check_vocabulary(CORPUS_VOCAB)
    other = [*CORPUS_VOCAB[:-2], *CORPUS_VOCAB[:-3:-1]]
    for given in (records, open_records([str(made / "*-00000-*"), str(made / "*-00003-*")])):
        with pytest.raises(UsageError, match=r"_records in '.*', made with another one, its vocab.txt"):
            given.check_vocabulary(other)


def test_another_casing_is_refused(made):
    records, lower = open_records([str(made)]), BertTokenizer(CORPUS_VOCAB)
    records.check_casing(lower.casing)
    records.check_casing(BertTokenizer(CORPUS_VOCAB, strip_accents=True).casing)  # As lower-casing does anyway.
    for other in ({"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}):
        with pytest.raises(
            UsageError, match=rf"made with do_lower_case=True, .* model with .*{next(iter(other))}=False"
        ):
            records.check_casing(BertTokenizer(CORPUS_VOCAB, **other).casing)
    Pretraining().encode(records, lower, WIDTH)
    with pytest.raises(UsageError, match="must be cased as"):
        Pretraining().encode(records, BertTokenizer(CORPUS_VOCAB, do_lower_case=False), WIDTH)


def test_records_are_cased_as_the_model_whose_vocabulary_they_have(tmp_path):
    model, records = tmp_path / "model", tmp_path / "records"
    BertTokenizer(CORPUS_VOCAB, strip_accents=False).save(model)
    (tmp_path / "corpus.txt").write_text("\n\n".join("one two .\nthree four ." for _ in range(4)) + "\n")
    prepare(
        Config(
            mode="prepare",
            data=DataConfig(max_seq_length=WIDTH),
            model=ModelConfig(vocab_file=str(model / "vocab.txt")),
            corpus=CorpusConfig(input_files=(str(tmp_path / "corpus.txt"),), num_processes=1),
            output=OutputConfig(output_dir=str(records)),
        )
    )
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
    with pytest.raises(UsageError, match=rf"{file.name}' with 3 records, and {values['shards'][1]['records']} in"):
        open_records([str(directory)])
    file.write_bytes(file.read_bytes()[:-1])
    notes = []
    kept = values["totals"]["records"] - values["shards"][1]["records"] + 2
    assert len(open_records([str(directory)], skip_bad_records=True, notes=notes)) == kept
    lost = values["shards"][1]["records"] - 2
    assert len(notes) == 1 and f"; {lost:,} records left out, 2 records kept: the record at that byte" in notes[0]
    file.unlink()
    with pytest.raises(UsageError, match=rf"without {file.name}"):
        open_records([str(directory)])
    (directory / manifest.MANIFEST).write_text(json.dumps(values))
    with pytest.raises(UsageError, match="manifest"):
        open_records([str(directory)])
