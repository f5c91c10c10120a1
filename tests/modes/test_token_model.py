"""`--export_format=onnx` and `tflite`: a file for token ids gives the logits of transformers' own model."""

import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.support.served import export_of, random_model, save
from tests.support.texts import VOCAB
from tfbert import ChoosingConfig, RunError, UsageError
from tfbert.modes import export
from tfbert.tasks.classification.classification import Classification
from tfbert.tasks.multiple_choice import MultipleChoice
from tfbert.tasks.question_answering.question_answering import QuestionAnswering
from tfbert.tasks.token_classification.token_classification import TokenClassification

TASKS = {
    "texts": lambda: Classification(("bad", "fine", "good")),
    "tags": lambda: TokenClassification(("O", "B-PER", "I-PER")),
    "answers": QuestionAnswering,
    "choices": lambda: MultipleChoice(ChoosingConfig()),
}


def inputs(rows, width):
    rng = np.random.default_rng(rows)
    lengths = rng.integers(2, width + 1, rows)
    lengths[0] = width
    mask = (np.arange(width) < lengths[:, None]).astype(np.int32)
    ids = (rng.integers(5, len(VOCAB), mask.shape) * mask).astype(np.int32)
    second = ((np.arange(width) >= lengths[:, None] // 2) * mask).astype(np.int32)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": second}


def needs(export_format):
    for package in export.FORMATS[export_format]:
        pytest.importorskip(package)


def transformers_logits(model, batch):
    if type(model).__name__.endswith("MultipleChoice"):
        return model({name: value[:, None] for name, value in batch.items()}).logits
    found = model({name: tf.constant(value) for name, value in batch.items()})
    return np.stack([found.start_logits, found.end_logits], -1) if "start_logits" in found else found.logits


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("export_format", export.FORMATS)
def test_the_file_gives_the_models_logits(export_format, kind, tmp_path):
    needs(export_format)
    model = random_model(TASKS[kind](), num_texts=1 if kind == "tags" else 2, max_seq_length=24)
    save(model, tmp_path / "own")
    results = export_of(tmp_path, "own", tmp_path / "file", export_format=export_format)
    assert results["largest_logit_error"] < 1e-4 and results["max_seq_length"] == 24
    path = tmp_path / "file" / f"model.{export_format}"
    for rows, width in ((1, 2), (3, 24), (2, 64)):
        batch = inputs(rows, width)
        found = export.logits_of_file(path, batch)
        want = np.asarray(transformers_logits(model.classifier, batch))
        real = batch["attention_mask"] > 0 if found.ndim == 3 else slice(None)
        np.testing.assert_allclose(found[real], want[real], atol=1e-4)
        assert np.ptp(want[real]) > 0.01 or rows == 1
    words = transformers.BertTokenizerFast.from_pretrained(tmp_path / "file")
    assert len(words) == len(VOCAB) and words.model_max_length == 64
    assert json.loads((tmp_path / "file" / "export_results.json").read_text()) == results
    with pytest.raises(UsageError, match="must be new or empty"):
        export_of(tmp_path, "own", tmp_path / "file", export_format=export_format)
    export_of(tmp_path, "own", tmp_path / "file", overwrite=True)  # Another format in its place.
    assert not path.exists() and (tmp_path / "file" / "saved_model.pb").exists()


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else "there")
    return save(random_model(TASKS["texts"](), num_texts=1, max_seq_length=24), tmp_path / "own")


def replaced(monkeypatch, **parts):
    monkeypatch.setitem(export.FORMATS, "tflite", ())
    for name, part in ({"content_of": lambda *_: b""} | parts).items():
        monkeypatch.setattr(export, name, part)


def test_a_package_that_is_missing_is_named(own, tmp_path):
    with pytest.raises(UsageError, match=r"Received: a Python without onnxruntime. .*'\.\[onnx\]'") as caught:
        export_of(tmp_path, "own", tmp_path / "file", export_format="onnx")
    assert "\n" not in str(caught.value) and not (tmp_path / "file").exists()


def test_an_operation_that_the_converter_does_not_know_is_told_in_one_line(own, tmp_path, monkeypatch):
    def convert(model, export_format):
        raise ValueError("no such operation\nand a page of its graph")

    replaced(monkeypatch, content_of=convert)
    with pytest.raises(UsageError, match="Received: no such operation. Export the model as a SavedModel.$"):
        export_of(tmp_path, "own", tmp_path / "file", export_format="tflite")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize("error", [0.01, float("nan")])
def test_a_file_with_other_logits_is_not_left(own, error, tmp_path, monkeypatch):
    replaced(monkeypatch, logits_of_file=lambda path, inputs: np.full([8, 3], error, np.float32))
    with pytest.raises(RunError, match="must give the model's logits. Received: logits that differ by"):
        export_of(tmp_path, "own", tmp_path / "file", export_format="tflite")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
