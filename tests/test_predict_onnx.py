"""examples/predict_onnx.py gives the table of `--mode=predict`. Without onnxruntime and tf2onnx, the model stands in
for its file."""

import csv
import importlib.util
import sys
import types

import numpy as np
import pytest

from tests.support.saved_models import predict_with
from tests.support.served import export_of, random_model, save
from tests.support.texts import VOCAB
from tfbert.config.data import DataConfig
from tfbert.model.files import record_inputs
from tfbert.modes import export
from tfbert.tasks.classification.classification import Classification, Regression
from tfbert.tasks.multi_label.multi_label_classification import MultiLabelClassification
from tfbert.tasks.token_classification.token_classification import TokenClassification

WORDS = np.random.default_rng(0).choice(VOCAB[5:], [145, 30])
LINES = [" ".join(row[: 2 + number % 28]) for number, row in enumerate(WORDS)]
LINES += ["", "the quick brown fox", "jumped over: unbelievably! " * 20, "[SEP] 中文字 ünï", " movie."]


@pytest.fixture
def label(tmp_path, monkeypatch):
    """A function: exports a random model, and runs the example over a file."""

    def label(task, num_texts, lines, **notes):
        model = random_model(task, num_texts=num_texts, max_seq_length=24)
        record_inputs(model.classifier.config, num_texts=num_texts, max_seq_length=24, **task.notes(), **notes)
        save(model, tmp_path / "own")
        if not all(map(importlib.util.find_spec, ("onnxruntime", "tf2onnx"))):
            stand_in(model, monkeypatch)
        export_of(tmp_path, "own", tmp_path / "file", export_format="onnx")
        (tmp_path / "in.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        from examples import predict_onnx

        monkeypatch.setattr(predict_onnx, "LINES", 40)
        paths = [str(tmp_path / name) for name in ("file", "in.txt", "out.tsv")]
        monkeypatch.setattr(sys, "argv", ["predict_onnx.py", *paths, "--batch_size=16"])
        predict_onnx.main()
        return rows_of(tmp_path / "out.tsv")

    yield label
    sys.modules.pop("examples.predict_onnx", None)  # It may hold the stand-in.


def stand_in(model, monkeypatch):
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = [types.SimpleNamespace(name=name) for name in names]
    is_of_tokens = isinstance(model.task, TokenClassification)
    made = [types.SimpleNamespace(shape=["rows", "width", 3] if is_of_tokens else ["rows", 3])]

    def run(wanted, inputs):
        assert wanted == ["logits"] and all(value.dtype == np.int32 for value in inputs.values())
        return [model.logits(inputs).numpy()]

    session = types.SimpleNamespace(get_inputs=lambda: given, get_outputs=lambda: made, run=run)
    stand_in = types.SimpleNamespace(InferenceSession=lambda path, providers: session)
    monkeypatch.setitem(sys.modules, "onnxruntime", stand_in)
    monkeypatch.setitem(export.FORMATS, "onnx", ())
    monkeypatch.setattr(export, "content_of", lambda *_: b"")


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines, dialect="excel-tab"))


@pytest.mark.parametrize("num_texts", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_table_is_that_of_predict(num_texts, label, tmp_path):
    pairs = [{"first": line, "second": other} for line, other in zip(LINES, LINES[3:] + LINES[:3], strict=True)]
    lines = ["\t".join(pair.values()) for pair in pairs] if num_texts == 2 else LINES
    found = label(Classification(("bad", "fine", "good")), num_texts, lines)
    given, columns = tmp_path / "in.txt", ()
    if num_texts == 2:
        given, columns = tmp_path / "in.tsv", ("first", "second")
        given.write_text("".join(line + "\n" for line in ["first\tsecond", *lines]), encoding="utf-8")
    data = DataConfig(text_column=columns)
    predict_with(tmp_path, "own", data=data, input_file=given, output_file=tmp_path / "own.tsv")
    want = rows_of(tmp_path / "own.tsv")
    assert [row[:2] for row in found] == [row[:2] for row in want] and found[0] == want[0]
    assert len({row[1] for row in want[1:]}) > 1 and len(want) == 151
    numbers = [np.array([row[2:] for row in rows[1:]], float) for rows in (found, want)]
    np.testing.assert_allclose(*numbers, atol=1e-5)


@pytest.mark.parametrize(
    "task, notes",
    [
        pytest.param(MultiLabelClassification(("a", "b", "c")), {}, marks=pytest.mark.slow),
        pytest.param(Regression(), {}, marks=pytest.mark.slow),
        (TokenClassification(("O", "B-PER", "I-PER")), {}),
        (Classification(("bad", "fine", "good")), {"long_texts": "windows"}),
    ],
)
def test_models_of_another_kind_are_refused(task, notes, label, tmp_path):
    with pytest.raises(SystemExit, match="several classes. Received: .* with .*Use --mode=predict"):
        label(task, 1, LINES, **notes)
    assert not (tmp_path / "out.tsv").exists()


def test_a_line_that_is_no_pair_is_refused(label):
    with pytest.raises(SystemExit, match="must have two texts with a tab between them"):
        label(Classification(("bad", "good")), 2, ["one\ttwo", "three"])


def test_paths_that_do_not_fit_are_one_line(label, tmp_path):
    label(Classification(("bad", "good")), 1, ["one"])
    from examples import predict_onnx

    # The first is there now, and should be new; each of the others is gone.
    for name, gone in (("out.tsv", ()), ("in.txt", ("out.tsv", "in.txt")), ("file/export_results.json", ())):
        for path in (tmp_path / each for each in (*gone, name) if name != "out.tsv"):
            path.unlink(missing_ok=True)
        with pytest.raises(SystemExit, match=rf"A file must be (new|there)\. Received: .*{name}\. Check the path"):
            predict_onnx.main()
