"""`run_pretraining.py` without records, and what records say of a run on them."""

import concurrent.futures
import json
import pathlib

import pytest

import tfbert
from tests.support.corpora import prepare_files
from tests.support.flag_values import configured
from tests.support.sweeps import FakeRuns
from tfbert import launch as launcher
from tfbert.config.run import Config
from tfbert.config.tasks import PRETRAINING, PretrainingConfig
from tfbert.corpus.manifest import read_manifest
from tfbert.corpus.sources import demo_corpus
from tfbert.errors import RunError, UsageError
from tfbert.model.files import BertConfig
from tfbert.modes.pretrain import pretrain, with_records
from tfbert.output.output_dir import locked
from tfbert.tasks.pretraining import Pretraining
from tfbert.tasks.registry import task_of_model


def pretraining(**options):
    return configured(task=PRETRAINING, **options)


class Here(concurrent.futures.ThreadPoolExecutor):
    """Does in this process what another would take seconds to start for."""

    def __init__(self, *arguments):
        super().__init__(1)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("undrawn")
def test_without_records_those_of_the_built_in_corpus_are_made_beside_the_run(tmp_path, monkeypatch, whole):
    """By default of a part of the corpus, and in this process, and nothing is trained: test_prepare_other_tokenizers.py
    has a run on records."""
    sizes = {"max_seq_length": 32, "max_train_examples": 64, "max_eval_examples": 32, "max_steps": 2}
    config = pretraining(model="scratch/L-2_H-128", output_dir=tmp_path / "run", **sizes)
    if whole:
        results = pretrain(config)
        assert results["eval_loss"] > 0 and 0 <= results["eval_next_sentence_accuracy"] <= 1
        said = json.loads((tmp_path / "run" / "run_config.json").read_text())["pretraining"]
        own = tmp_path / "run" / "vocab.txt"
    else:
        monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", Here)
        monkeypatch.setattr("tfbert.corpus.sources.demo_corpus", lambda split: demo_corpus(split)[::12])
        found = with_records(config)
        said = json.loads(found.to_json())["pretraining"]
        own = pathlib.Path(found.model.vocab_file)
    made = {split: read_manifest(tmp_path / "run-records" / split) for split in ("train", "validation")}
    assert {manifest["options"]["max_seq_length"] for manifest in made.values()} == {32}
    assert made["train"]["totals"]["records"] > 64 > 32 < made["validation"]["totals"]["records"]
    assert said["train_records"] == [str(tmp_path / "run-records" / "train")]
    assert said["validation_records"] == [str(tmp_path / "run-records" / "validation")]
    assert own.read_bytes() == (tmp_path / "run-records" / "validation" / "vocab.txt").read_bytes()
    if not whole:  # Another run in the same directory.
        other = config.changed({"max_seq_length": 24})
        with pytest.raises(UsageError, match="max_seq_length=32, asked for 24;.* or --overwrite_output_dir"):
            with_records(other)
        other = other.changed({"overwrite_output_dir": True})
        with locked(tmp_path / "run"), pytest.raises(RunError, match="another process is writing"):
            with_records(other)
        assert with_records(other).max_seq_length == 24


NOT_BUILT_IN = [
    ({"strategy": "multi_worker"}, r"Several workers need records that exist.*--mode=prepare first"),
    ({"model": "mine"}, "records of your own. Received: model='mine' without train_records"),
]


@pytest.mark.parametrize("options, message", NOT_BUILT_IN)
def test_several_workers_and_a_model_of_ones_own_are_not_given_the_built_in_corpus(options, message):
    with pytest.raises(UsageError, match=message):
        with_records(pretraining(**options))


def prepared(directory, **masks):
    """Records of a few sentences, in a directory."""
    (directory / "corpus.txt").write_text("one two three .\nfour five six .\n\nseven eight nine .\nten eleven .\n" * 3)
    prepare_files(directory / "corpus.txt", directory / "records", max_seq_length=24, learn_vocab=60, **masks)
    return directory / "records"


def test_words_are_masked_as_in_the_records_unless_asked_otherwise(tmp_path, monkeypatch):
    records = prepared(tmp_path, masked_lm_prob=0.3, whole_word_masking=True)

    def masks(name=records, **options):
        found = with_records(pretraining(model="scratch/tiny", train_records=name, **options)).pretraining
        return found.masked_lm_prob, found.whole_word_masking

    assert masks() == (0.3, True)
    for name in (f"{records}/*.tfrecord", f"~/{records.name}"):  # The shell expands no ~ after a `=`.
        monkeypatch.setenv("HOME", str(records.parent))
        assert masks(name) == (0.3, True)
    assert masks(masked_lm_prob=0.2) == (0.2, True)
    assert masks(whole_word_masking=False) == (0.3, False)
    assert masks(masking="static") == (0.3, True) == masks(masking="static", masked_lm_prob=0.3)
    for name, value in {"masked_lm_prob": 0.2, "whole_word_masking": False, "max_predictions_per_seq": 24}.items():
        with pytest.raises(UsageError, match=f"takes the masks that the records hold. Received: {name}={value}. Drop"):
            masks(masking="static", **{name: value})
    (records / "manifest.json").unlink()  # As of another script, to which these options were given.
    assert masks(masking="static", masked_lm_prob=0.2, max_predictions_per_seq=24) == (0.2, False)
    assert PretrainingConfig().with_masking().masked_lm_prob == 0.15
    for spoiled in (None, {"masked_lm_prob": "0.3", "whole_word_masking": 1}, {"masked_lm_prob": 3.0}):
        found = PretrainingConfig().with_masking(spoiled)
        assert (found.masked_lm_prob, found.whole_word_masking) == (0.15, False)


def test_built_in_records_lie_beside_the_directory_that_a_dot_means(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = []
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor.submit", lambda *args: made.append(args[-1]) or 1 / 0)
    for name in (".", "..", "x"):
        with pytest.raises(ZeroDivisionError):
            with_records(pretraining(output_dir=name))
    beside = tmp_path.with_name(f"{tmp_path.name}-records")
    assert made == [tmp_path / "here-records", beside, pathlib.Path("x-records")]


def test_no_records_are_made_for_a_directory_that_cannot_be(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UsageError, match="output_dir must be a directory"):
        with_records(pretraining(output_dir=tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_model_remembers_how_its_words_were_masked(tmp_path):
    trained = Pretraining(options=PretrainingConfig(masked_lm_prob=0.3, whole_word_masking=True))
    saved = BertConfig(architectures=["BertForPreTraining"], tfbert=trained.notes())
    assert task_of_model(saved, tmp_path, Config().task_options).notes() == trained.notes()
    asked = configured(masked_lm_prob=0.15).task_options
    assert task_of_model(saved, tmp_path, asked).notes() == {"masked_lm_prob": 0.15, "whole_word_masking": True}


def test_records_say_how_long_they_are_and_bring_a_vocabulary(tmp_path):
    records = prepared(tmp_path)
    config = pretraining(model="scratch/tiny", train_records=records, masked_lm_prob=0.2, whole_word_masking=False)
    found = with_records(config)
    assert found.data.max_seq_length == 24 and found.model.vocab_file == str(records / "vocab.txt")
    # What is asked for stays, and a model has a vocabulary of its own.
    asked = config.changed({"max_seq_length": 40, "model_name_or_path": "somewhere"})
    assert with_records(asked) == asked
    (records / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="Received: "):
        with_records(config)


SWEPT = [
    ({"learning_rate": [1e-4, 2e-4]}, False),
    ({"masked_lm_prob": [0.15, 0.3]}, True),  # One of them that of the records.
    pytest.param({"learning_rate": [1e-4, 2e-4]}, True, marks=pytest.mark.slow),
    pytest.param({"model": ["scratch/tiny", "scratch/mini"]}, True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("values, has_records", SWEPT)
def test_a_sweep_again_finds_its_runs_with_what_records_decide(tmp_path, monkeypatch, values, has_records):
    """Length, masks and vocabulary are in `run_config.json`, but nobody asked for them."""
    fake = FakeRuns()
    monkeypatch.setattr(launcher, "run_to_its_end", lambda command, variables, signals, **_: fake(command, {}, signals))
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", Here)
    monkeypatch.setattr("tfbert.corpus.sources.demo_corpus", lambda split: demo_corpus(split)[::20])
    options = {"model": "scratch/tiny", "max_steps": 2, "output_dir": tmp_path / "out", "quiet": True}
    if has_records:
        options["train_records"] = prepared(tmp_path, masked_lm_prob=0.3)
    options = {name: value for name, value in options.items() if name not in values}
    config = pretraining()
    first = tfbert.sweep(values, config, **options)
    assert len(fake.started) == 2 and tfbert.sweep(values, config, **options) == first and len(fake.started) == 2
    run = json.loads(next((tmp_path / "out").glob("*/run_config.json")).read_text())
    assert run["data"]["max_seq_length"] == (24 if has_records else 128) and run["model"]["vocab_file"]
    with pytest.raises(UsageError, match="a finished run with max_steps=2 before and 3 now"):
        tfbert.sweep(values, config, **options | {"max_steps": 3})
    if has_records:  # Others under the same name.
        manifest = options["train_records"] / "manifest.json"
        manifest.write_text(manifest.read_text() + "\n")
        with pytest.raises(UsageError, match="a finished run with other contents of train_records"):
            tfbert.sweep(values, config, **options)
    assert len(fake.started) == 2
