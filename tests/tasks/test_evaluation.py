"""`--mode=evaluate`: a saved model's metrics against scikit-learn and training, and what cannot be evaluated."""

import dataclasses
import io
import json
import re
import shutil
import subprocess
import sys
import types
import uuid

import pytest

from tests.support.processes import ROOT
from tests.support.refusals import refused
from tests.support.saved_models import kept_models, model_with, reference_logits, save_with_nan
from tfbert import Config, DataConfig, ModelConfig, OutputConfig, PredictConfig, RunError, RuntimeConfig, UsageError
from tfbert.model.files import record_inputs
from tfbert.modes.load import load_trained_model
from tfbert.modes.predict import evaluate_model, labelled_sets


def evaluate_on(runs, model, *, runtime=None, output_dir="", **data):
    config = Config(
        mode="evaluate",
        model=ModelConfig(model_name_or_path=str(runs / model)),
        data=DataConfig(**{n: str(runs / v) if n.endswith("_file") and v != "-" else v for n, v in data.items()}),
        runtime=runtime or RuntimeConfig(),
        output=OutputConfig(output_dir=output_dir or str(runs / "evaluations" / uuid.uuid4().hex)),
    )
    with kept_models():
        return evaluate_model(config)


def test_an_evaluation_is_that_of_scikit_learn_over_all_predictions(runs):
    """The reference: transformers' model on each text alone, and scikit-learn."""
    from sklearn import metrics

    results = evaluate_on(runs, "single", validation_file="dev.tsv", output_dir=str(runs / "evaluated"))
    labels, logits = reference_logits(runs / "single", runs / "dev.tsv")
    predictions = logits.argmax(axis=1)
    assert results["eval_samples"] == len(labels) == 21
    assert results["eval_accuracy"] == pytest.approx(metrics.accuracy_score(labels, predictions))
    assert results["eval_f1"] == pytest.approx(metrics.f1_score(labels, predictions, zero_division=0))
    matrix = metrics.confusion_matrix(labels, predictions, labels=[0, 1]).tolist()
    assert results["eval_confusion_matrix"] == {"labels": ["0", "1"], "rows": matrix}
    report = metrics.classification_report(labels, predictions, output_dict=True, zero_division=0)
    theirs = {"precision": "precision", "recall": "recall", "f1": "f1-score", "examples": "support"}
    for name in ("0", "1"):
        expected = {own: report[name][their] for own, their in theirs.items()}
        assert results["eval_per_class"][name] == pytest.approx(expected)
    assert json.loads((runs / "evaluated" / "eval_results.json").read_text()) == results


def test_an_evaluation_is_that_of_training_and_the_same_on_two_replicas(runs):
    trained = json.loads((runs / "single" / "all_results.json").read_text())
    one = evaluate_on(runs, "single", validation_file="dev.tsv")
    runtime = RuntimeConfig(strategy="mirrored", num_replicas=2, per_device_eval_batch_size=4)
    two = evaluate_on(runs, "single", validation_file="dev.tsv", runtime=runtime)
    for name in ("eval_accuracy", "eval_f1", "eval_matthews_correlation", "eval_loss"):
        assert (one[name], two[name]) == pytest.approx((trained[name], trained[name]), abs=1e-5), name


def test_standard_input_is_evaluated_as_a_file_is(runs, monkeypatch, caplog):
    content = (runs / "dev.tsv").read_text() + "a row\twith\ttoo many\n"
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(content.replace("\t", ";").encode())))
    options = {"input_format": "csv", "delimiter": ";", "skip_bad_rows": True}
    with caplog.at_level("INFO", "tfbert"):
        found = evaluate_on(runs, "single", test_file="-", **options)
    expected = evaluate_on(runs, "single", test_file="dev.tsv")
    is_time = re.compile("runtime|per_second").search
    assert {n: v for n, v in found.items() if not is_time(n)} == {n: v for n, v in expected.items() if not is_time(n)}
    assert caplog.text.count("standard input: 1 of 22 rows skipped; the first: Every row must have 2 columns") == 1


@pytest.mark.slow
@pytest.mark.multi_worker
def test_two_workers_evaluate_and_predict_as_one_device_does(runs, tmp_path):
    def command(mode, *flags, workers):
        launch = ["-m", "tfbert.launch", f"--num_workers={workers}", "--"] if workers else []
        strategy = ["--strategy=multi_worker"] if workers else []
        run = ["run_finetune.py", f"--mode={mode}", f"--model={runs / 'single'}", "--per_device_eval_batch_size=4"]
        subprocess.run([sys.executable, *launch, *run, *flags, *strategy], check=True, cwd=ROOT, timeout=300)

    for workers in (0, 2):
        # 21 rows in batches of 2 x 4: the last batch leaves the second worker empty or short.
        out = tmp_path / str(workers)
        command("evaluate", f"--validation_file={runs / 'dev.tsv'}", f"--output_dir={out}", workers=workers)
        command("predict", f"--input_file={runs / 'dev.tsv'}", f"--output_file={out}.jsonl", workers=workers)
    one, two = (json.loads((tmp_path / n / "eval_results.json").read_text()) for n in ("0", "2"))
    exact = ("eval_samples", "eval_accuracy", "eval_confusion_matrix", "eval_per_class")
    assert [one[name] for name in exact] == [two[name] for name in exact]
    assert two["eval_loss"] == pytest.approx(one["eval_loss"], abs=1e-6)
    one, two = ([json.loads(row) for row in (tmp_path / f"{n}.jsonl").open()] for n in (0, 2))
    assert len(one) == 21
    assert [(row["id"], row["label"]) for row in one] == [(row["id"], row["label"]) for row in two]
    for first, second in zip(one, two, strict=True):
        assert second["probabilities"] == pytest.approx(first["probabilities"], abs=1e-6)


def test_pairs_need_a_model_with_two_token_types(runs):
    from tests.support.models import tiny_bert

    config = tiny_bert(num_labels=2).config
    config.type_vocab_size = 1
    record_inputs(config, num_texts=1, max_seq_length=16)
    record_inputs(config, num_texts=None, max_seq_length=16)
    with pytest.raises(UsageError, match="two token types. Received: pairs with type_vocab_size=1"):
        record_inputs(config, num_texts=2, max_seq_length=16)
    model = dataclasses.replace(model_with(["a", "b"], num_texts=None), classifier=types.SimpleNamespace(config=config))
    model.check_texts(["text"], "data")
    with pytest.raises(UsageError, match="two token types"):
        model.check_texts(["first", "second"], "data")


def test_pairs_scores_and_several_files(runs):
    results = evaluate_on(runs, "pairs", validation_file=f"pairs.tsv,{runs / 'more.tsv'}")
    assert set(results["eval_pairs_per_class"]) == {"same", "other"}
    assert (results["eval_pairs_samples"], results["eval_more_samples"]) == (24, 9)
    results = evaluate_on(runs, "scores", validation_file="scores.tsv")
    assert set(results) >= {"eval_pearson", "eval_spearmanr", "eval_mse"}
    assert "eval_confusion_matrix" not in results


def test_the_subset_of_an_evaluation_is_that_of_training(runs):
    from tfbert.tasks.tables import load_data

    files = {"train_file": str(runs / "train.tsv"), "validation_file": str(runs / "dev.tsv")}
    trained = load_data(DataConfig(**files, max_eval_examples=5)).validation["validation"]
    config = DataConfig(validation_file=files["validation_file"], max_eval_examples=5)
    found = labelled_sets(config, model_with(["0", "1"]))["eval"]
    assert found.text == trained.text and found.labels.tolist() == trained.labels.tolist()


DEV, PAIRS = {"validation_file": "dev.tsv"}, {"validation_file": "pairs.tsv"}
BAD = {
    "missing weight": ("holed", DEV, "bert.encoder.layer.0.output.dense.weight"),
    "misshapen weight": ("misshapen", DEV, r"pooler.dense.bias \[3\] in place of \[32\]"),
    "pairs for single": ("single", PAIRS, "trained on single texts.*sentence1 and sentence2"),
    "other labels": ("single", {"validation_file": "odd.tsv"}, r"model's 2: 0, 1. Received: '7' in .*odd.tsv, line 3"),
    "words for scores": ("scores", {"validation_file": "words.tsv"}, "must be a finite number"),
    "no labels": ("single", {"validation_file": "unlabelled.tsv"}, "looks like the label"),
    "positions": ("single", DEV | {"max_seq_length": 900}, "max_seq_length=900"),
}


@pytest.mark.parametrize(("model", "data", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_line_and_writes_nothing(runs, model, data, message):
    before = sorted(runs.rglob("*"))
    with refused(message):
        evaluate_on(runs, model, **data)
    assert sorted(runs.rglob("*")) == before


def test_a_model_that_diverged_is_no_matter_of_training_flags(runs, tmp_path):
    save_with_nan(runs / "single", tmp_path / "broken", word="dull")
    shutil.copy(runs / "dev.tsv", tmp_path)
    with pytest.raises(RunError, match=r"Received: .* \d+ of 21 are not. Pass another model") as caught:
        evaluate_on(tmp_path, "broken", validation_file="dev.tsv")
    assert "--" not in str(caught.value)


def test_results_that_exist_are_kept_unless_told_otherwise(runs):
    path = runs / "mine" / "eval_results.json"
    path.parent.mkdir()
    path.write_text("{}")
    with pytest.raises(UsageError, match="must not exist yet.*--overwrite_output_dir"):
        evaluate_on(runs, "single", validation_file="dev.tsv", output_dir=str(path.parent))
    assert path.read_text() == "{}"


def test_the_longest_input_is_that_of_training_unless_asked(runs, tmp_path, logged):
    def load(directory, asked=None):
        model = ModelConfig(model_name_or_path=str(directory))
        data = DataConfig(max_seq_length=asked)
        config = Config(mode="predict", model=model, data=data, predict=PredictConfig(input_file="-"))
        return load_trained_model(config), logged()

    model, said = load(runs / "single")
    assert (model.max_seq_length, model.num_texts) == (16, 1)
    assert said == ["Inputs are at most 16 tokens long, as in training."]
    model, said = load(runs / "single", 12)
    assert model.max_seq_length == 12
    assert said == ["Inputs are at most 12 tokens long, as asked; the model was trained with 16."]
    assert load(runs / "pairs")[0].num_texts == 2

    # A directory whose config.json does not say: 128.
    shutil.copytree(runs / "single", tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints"))
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    columns = {"text_column": ["sentence"], "label_column": ["label"]}
    assert config.pop("tfbert") == {"num_texts": 1, "max_seq_length": 16, "columns": columns}
    (tmp_path / "copy" / "config.json").write_text(json.dumps(config))
    model, said = load(tmp_path / "copy")
    assert (model.max_seq_length, model.num_texts) == (128, None)
    assert "does not say" in said[0]
