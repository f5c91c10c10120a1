"""`--mode=export`: a SavedModel in a process without this package answers as `--mode=predict` does."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import softmax

from tests.saved_models import label_names, reference_logits, reference_logits_of
from tests.test_predict import HOSTILE, read_json
from tests.test_predict import run as predict_run
from tfbert.config import Config, DataConfig, ModelConfig, OutputConfig
from tfbert.errors import UsageError
from tfbert.export import export
from tfbert.mode_config import ExportConfig

CLEAN = """
import json, sys
import numpy as np, tensorflow as tf, tensorflow_text
loaded = tf.saved_model.load(sys.argv[1])
job = json.load(open(sys.argv[2]))
signature = loaded.signatures[job["signature"]]
kind = tf.int32 if job["signature"] == "token_ids" else tf.string
revive = (lambda v: v) if kind == tf.int32 else (lambda v: [text.encode("latin-1") for text in v])
inputs = {name: tf.constant(revive(value), kind, job["shape"]) for name, value in job["inputs"].items()}
outputs = {name: value.numpy() for name, value in signature(**inputs).items()}
for heavy in ("tfbert", "transformers", "keras_nlp", "torch"):
    assert heavy not in sys.modules, heavy
outputs = {k: np.vectorize(bytes.decode, otypes=[object])(v) if v.dtype == object else v for k, v in outputs.items()}
names = sorted(spec for spec in loaded.signatures)
print(json.dumps({"signatures": names} | {k: v.tolist() for k, v in outputs.items()}))
"""


def export_of(runs, model, directory, *, data=None, overwrite=False, **options):
    return export(
        Config(
            mode="export",
            model=ModelConfig(model_name_or_path=str(runs / model)),
            data=data or DataConfig(),
            output=OutputConfig(output_dir=str(directory), overwrite_output_dir=overwrite),
            export=ExportConfig(**options),
        )
    )


def ask(directory, signature="serving_default", **inputs):
    """The exported model's answers, from a process that knows TensorFlow and tensorflow_text alone."""
    if signature == "token_ids":
        shape = np.shape(next(iter(inputs.values())))
    else:
        shape = [len(next(iter(inputs.values())))]
        inputs = {name: [text.decode("latin-1") for text in texts] for name, texts in inputs.items()}
    job = directory.parent / "job.json"
    job.write_text(json.dumps({"signature": signature, "inputs": inputs, "shape": list(shape)}))
    command = [sys.executable, "-I", "-c", CLEAN, str(directory), str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=directory.parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def single(runs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("exports") / "single"
    assert export_of(runs, "single", directory) == {
        "num_texts": 1,
        "max_seq_length": 16,
        "label_names": ["0", "1"],
        "weights": "float32",
    }
    return directory


def test_text_in_a_clean_process_is_answered_as_by_transformers(runs, single):
    lines = (runs / "dev.tsv").read_text().splitlines()[1:]
    found = ask(single, text=[line.split("\t")[1].encode() for line in lines])
    assert found["signatures"] == ["serving_default", "text", "token_ids"]
    _, logits = reference_logits(runs / "single", runs / "dev.tsv")
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5)
    np.testing.assert_allclose(found["probabilities"], softmax(logits, axis=1), atol=1e-5)
    names = label_names(runs / "single")
    assert found["label"] == [names[i] for i in logits.argmax(axis=1)]


def test_hostile_text_is_answered_as_by_predict(runs, single, tmp_path):
    texts = [*HOSTILE, b"\x00" * 100, b"\xff\xfe\xfd", "\u0000\ufffe\uffff".encode(), b"x " * 500_000]
    (tmp_path / "in.txt").write_bytes(b"".join(text + b"\n" for text in texts))
    predict_run(runs, input_file=tmp_path / "in.txt", output_file=tmp_path / "out.jsonl")
    found = ask(single, text=texts)
    rows = read_json(tmp_path / "out.jsonl")
    np.testing.assert_allclose(found["logits"], [row["logits"] for row in rows], atol=1e-5)
    assert found["label"] == [row["label"] for row in rows]
    # Line ends, which a file of lines cannot hold.
    found = ask(single, text=[b"good\r\nfilm\n", b"good film"])
    np.testing.assert_allclose(found["logits"][0], found["logits"][1], atol=1e-6)


def test_no_text_gives_no_answer(single):
    found = ask(single, text=[])
    assert found["logits"] == found["label"] == []


def test_token_ids_are_answered(runs, single):
    from transformers import BertTokenizerFast

    texts = ["good film", "the plot was bad"]
    encoded = BertTokenizerFast.from_pretrained(runs / "single")(texts, padding=True)
    found = ask(single, "token_ids", **{name: encoded[name] for name in encoded})
    np.testing.assert_allclose(found["logits"], reference_logits_of(runs / "single", texts), atol=1e-5)


def test_pairs_and_float16_with_its_measured_loss(runs, tmp_path):
    data = DataConfig(validation_file=str(runs / "pairs.tsv"))
    results = export_of(runs, "pairs", tmp_path / "half", export_float16=True, data=data)
    labels, logits = reference_logits(runs / "pairs", runs / "pairs.tsv")
    rows = [line.split("\t") for line in (runs / "pairs.tsv").read_text().splitlines()[1:]]
    first, second = ([row[i].encode() for row in rows] for i in (0, 1))
    found = ask(tmp_path / "half", text=first, text_pair=second)
    error = float(np.abs(np.array(found["logits"]) - logits).max())
    assert 1e-6 < error < 1e-2, "the weights were rounded"
    assert results["eval_largest_logit_error"] == pytest.approx(error, rel=0.05)
    names = label_names(runs / "pairs")
    accuracy = np.mean([names[i] == label for i, label in zip(logits.argmax(axis=1), labels, strict=True)])
    assert results["eval_float32_accuracy"] == pytest.approx(accuracy)
    accuracy = np.mean([name == label for name, label in zip(found["label"], labels, strict=True)])
    assert results["eval_float16_accuracy"] == pytest.approx(accuracy)
    assert 0 < results["largest_weight_error"] < 1e-3
    assert json.loads((tmp_path / "half" / "export_results.json").read_text()) == results
    export_of(runs, "pairs", tmp_path / "whole")
    sizes = [(tmp_path / n / "variables" / "variables.data-00000-of-00001").stat().st_size for n in ("half", "whole")]
    assert sizes[0] < 0.6 * sizes[1]


def test_scores(runs, tmp_path):
    export_of(runs, "scores", tmp_path / "scores")
    found = ask(tmp_path / "scores", text=[b"good film", b"bad"])
    expected = reference_logits_of(runs / "scores", ["good film", "bad"])
    np.testing.assert_allclose(found["score"], expected[:, 0], atol=1e-5)
    assert set(found) == {"signatures", "logits", "score"}


def test_an_earlier_export_is_replaced_only_when_asked_and_nothing_else_ever(runs, single, tmp_path):
    before = (single / "fingerprint.pb").read_bytes()
    with pytest.raises(UsageError, match="must be new or empty.*--overwrite_output_dir"):
        export_of(runs, "single", single)
    assert (single / "fingerprint.pb").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="replaces an earlier export, and nothing else.*'thesis.txt'"):
        export_of(runs, "single", tmp_path / "mine", overwrite=True)
    with pytest.raises(UsageError, match="replaces an earlier export"):
        export_of(runs, "single", runs / "single", overwrite=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "thesis.txt"]
    export_of(runs, "single", single, overwrite=True)
    assert sorted(path.name for path in single.parent.iterdir() if path.name != "job.json") == ["single"]
