"""`--mode=export`: a SavedModel in a process without this package answers as `--mode=predict` does.
`--export_format=onnx` and `tflite`: a file for token ids gives the logits of transformers' own model."""

import importlib.util
import itertools
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import transformers
from scipy.special import softmax

from tests.support.models import VOCAB
from tests.support.refusals import refused
from tests.support.runs import TOKENS
from tests.support.saved_models import (
    HOSTILE,
    label_names,
    predict_with,
    read_json,
    reference_logits,
    reference_logits_of,
)
from tests.support.served import export_of, random_model, save
from tests.support.texts import VOCAB as WORDS
from tfbert import ChoosingConfig, RunError, UsageError
from tfbert.modes import export
from tfbert.modes.export import _replace_contents, check_directory
from tfbert.tasks.classification.classification import Classification
from tfbert.tasks.multiple_choice import MultipleChoice
from tfbert.tasks.prediction import ServedModel
from tfbert.tasks.question_answering.question_answering import QuestionAnswering
from tfbert.tasks.token_classification.token_classification import TokenClassification

EXPORTED = ("saved_model.pb", "export_results.json", "fingerprint.pb", "variables")


@pytest.fixture(scope="module")
def single(runs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("exports") / "single"
    found = export_of(runs, "single", directory)
    assert found == {"num_texts": 1, "max_seq_length": 16, "label_names": ["0", "1"], "weights": "float32"}
    return directory


def test_text_in_a_clean_process_is_answered_as_by_transformers(runs, single, ask):
    lines = (runs / "dev.tsv").read_text().splitlines()[1:]
    _, logits = reference_logits(runs / "single", runs / "dev.tsv")  # While the other process starts.
    found = ask(single, text=[line.split("\t")[1].encode() for line in lines])
    assert found["signatures"] == ["serving_default", "text", "token_ids"]
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5)
    np.testing.assert_allclose(found["probabilities"], softmax(logits, axis=1), atol=1e-5)
    names = label_names(runs / "single")
    assert found["label"] == [names[i] for i in logits.argmax(axis=1)]


def test_hostile_text_is_answered_as_by_predict(runs, single, ask, tmp_path):
    texts = [*HOSTILE, b"\x00" * 100, b"\xff\xfe\xfd", "\u0000\ufffe\uffff".encode(), b"x " * 500_000]
    (tmp_path / "in.txt").write_bytes(b"".join(text + b"\n" for text in texts))
    predict_with(runs, input_file=tmp_path / "in.txt", output_file=tmp_path / "out.jsonl")
    found = ask(single, text=texts)
    rows = read_json(tmp_path / "out.jsonl")
    np.testing.assert_allclose(found["logits"], [row["logits"] for row in rows], atol=1e-5)
    assert found["label"] == [row["label"] for row in rows]
    # Line ends, which a file of lines cannot hold.
    found = ask(single, text=[b"good\r\nfilm\n", b"good film"])
    np.testing.assert_allclose(found["logits"][0], found["logits"][1], atol=1e-6)
    none = ask(single, text=[])
    assert none["logits"] == none["label"] == []


def test_token_ids_are_answered(runs, single, ask):
    texts = ["good film", "the plot was bad"]
    encoded = transformers.BertTokenizerFast.from_pretrained(runs / "single")(texts, padding=True)
    found = ask(single, "token_ids", **{name: encoded[name] for name in encoded})
    np.testing.assert_allclose(found["logits"], reference_logits_of(runs / "single", texts), atol=1e-5)


@pytest.fixture(scope="module")
def open_model(runs, tmp_path_factory):
    """`pairs` without its word on whether it takes single texts or pairs."""
    directory = shutil.copytree(runs / "pairs", tmp_path_factory.mktemp("models") / "open")
    config = json.loads((directory / "config.json").read_text())
    del config["tfbert"]
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def pairs(runs, open_model, tmp_path_factory):
    """An export for pairs, as only the columns say: 60 tokens, 160 positions, two token types."""
    directory = tmp_path_factory.mktemp("exports") / "pairs"
    assert export_of(runs, open_model, directory, text_column=("a", "b"))["num_texts"] == 2
    return directory


@pytest.fixture(scope="module")
def untrained(pairs):
    return tf.saved_model.load(str(pairs)).signatures


def ids(*shape, **changed):
    """Inputs of a shape for `token_ids`."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: tf.ones(shape, tf.int32) for name in names} | changed


@pytest.mark.parametrize("shape", [(0, 5), (0, 0), (0, 99)])
def test_no_rows_of_ids_give_no_answer(untrained, shape):
    found = {name: tuple(value.shape) for name, value in untrained["token_ids"](**ids(*shape)).items()}
    assert found == {"logits": (0, 2), "probabilities": (0, 2), "label": (0,), "error": (0,)}


COLUMNS = r"Rows must have 1 to 160 columns, as many as the model has positions. Received: \] \[2 "


IMPOSSIBLE = [
    (ids(2, 0), rf"{COLUMNS}0\]"),
    (ids(2, 161), rf"{COLUMNS}161\]"),
    (ids(2, 9, attention_mask=tf.ones([2, 8], tf.int32)), r"must be of one shape. Received: \] \[2 8\] \[2 9\]"),
    (ids(2, 9, token_type_ids=tf.ones([1, 9], tf.int32)), r"must be of one shape. Received: .*\[1 9\]"),
]


@pytest.mark.parametrize("inputs, message", IMPOSSIBLE)
def test_ids_that_the_model_cannot_take_are_told_the_rule(untrained, inputs, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        untrained["token_ids"](**inputs)
    assert np.isfinite(untrained["token_ids"](**ids(2, 160))["logits"]).all()
    assert untrained["token_ids"](**ids(1, 1))["logits"].shape == (1, 2)


def test_a_row_of_ids_that_do_not_exist_changes_no_other(untrained):
    rows = {"input_ids": tf.constant([[0, 60, 1], [5, 6, 7], [0, 1, 2], [5, -1, 7]])}
    rows["token_type_ids"] = tf.constant([[0, 0, 0], [0, 1, 1], [0, -1, 0], [2, 0, 0]])
    found = untrained["token_ids"](**ids(4, 3, **rows))
    alone = untrained["token_ids"](**ids(1, 3, **{name: values[1:2] for name, values in rows.items()}))
    errors = [b"input_ids must be from 0 to 59.", b"", b"token_type_ids must be from 0 to 1."]
    assert found["error"].numpy().tolist() == [*errors, b"input_ids must be from 0 to 59."]
    for name in ("logits", "probabilities"):
        assert np.isfinite(found[name]).all(axis=1).tolist() == [False, True, False, False]
        np.testing.assert_allclose(found[name][1:2], alone[name], atol=1e-6)
    assert found["label"].numpy().tolist() == [b"", alone["label"].numpy()[0], b"", b""]


def test_a_text_that_is_not_finite_has_no_label_and_changes_no_other(runs, single):
    model = tf.saved_model.load(str(single))  # Which must live on.
    classify = model.signatures["text"]
    (words,) = (variable for variable in classify.variables if variable.shape[0] == VOCAB)
    words.assign(tf.tensor_scatter_nd_update(words, [[TOKENS.index("dull")]], [[np.nan] * words.shape[1]]))
    found = {name: values.numpy() for name, values in classify(text=tf.constant(["good", "dull", "bad film"])).items()}
    assert [bool(error) for error in found["error"]] == [False, True, False] and found["label"][1] == b""
    assert found["error"][1].startswith(b"Predictions must be finite.")
    assert np.isnan(found["logits"]).all(axis=1).tolist() == [False, True, False]
    want = reference_logits_of(runs / "single", ["good", "bad film"])
    np.testing.assert_allclose(found["logits"][::2], want, atol=1e-5)


def test_pairs_without_rows_and_without_second_texts(untrained):
    none = tf.constant([], tf.string)
    assert untrained["text"](text=none, text_pair=none)["logits"].shape == (0, 2)
    assert untrained["text"](text=tf.constant(["good"]), text_pair=tf.constant(["bad"]))["logits"].shape == (1, 2)
    for texts in ([], ["good", "bad"]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="text and text_pair must be of one length"):
            untrained["text"](text=tf.constant(texts, tf.string), text_pair=tf.constant(["film"]))


@pytest.mark.slow
def test_pairs_and_float16(runs, pairs, ask, tmp_path):
    results = export_of(runs, "pairs", tmp_path / "half", export_float16=True)
    _, logits = reference_logits(runs / "pairs", runs / "pairs.tsv")
    rows = [line.split("\t") for line in (runs / "pairs.tsv").read_text().splitlines()[1:]]
    first, second = ([row[i].encode() for row in rows] for i in (0, 1))
    found = ask(tmp_path / "half", text=first, text_pair=second)
    assert 1e-6 < np.abs(np.array(found["logits"]) - logits).max() < 1e-2, "the weights were rounded"
    assert 0 < results["largest_weight_error"] < 1e-3
    assert json.loads((tmp_path / "half" / "export_results.json").read_text()) == results
    sizes = [(d / "variables" / "variables.data-00000-of-00001").stat().st_size for d in (tmp_path / "half", pairs)]
    assert sizes[0] < 0.6 * sizes[1]


@pytest.mark.slow
def test_scores(runs, ask, tmp_path):
    export_of(runs, "scores", tmp_path / "scores")
    found = ask(tmp_path / "scores", text=[b"good film", b"bad"])
    expected = reference_logits_of(runs / "scores", ["good film", "bad"])
    np.testing.assert_allclose(found["score"], expected[:, 0], atol=1e-5)
    assert set(found) == {"signatures", "logits", "score", "error"} and list(found["error"]) == ["", ""]


@pytest.fixture
def answering_nothing(monkeypatch):
    """Exports that hold the model's weights and no signature of it, whose tracing takes seconds."""
    nothing = tf.function(lambda: tf.constant(0), input_signature=[]).get_concrete_function()
    monkeypatch.setattr(ServedModel, "signature_functions", lambda module: {"text": nothing})


@pytest.mark.usefixtures("answering_nothing")
def test_an_earlier_export_is_replaced_only_when_asked_and_nothing_else_ever(runs, single, tmp_path):
    single = shutil.copytree(single, tmp_path / "earlier" / "single")
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
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["earlier", "mine"]
    export_of(runs, "single", single, overwrite=True)
    assert sorted(path.name for path in single.parent.iterdir()) == ["single"]


def refuse_moves(monkeypatch, is_refused):
    """Makes moves fail that are refused, of (path, target)."""
    original = pathlib.Path.rename

    def rename(path, target):
        if is_refused(path, pathlib.Path(target)):
            raise OSError(16, "Device or resource busy")
        return original(path, target)

    monkeypatch.setattr(pathlib.Path, "rename", rename)


@pytest.mark.usefixtures("answering_nothing")
def test_an_existing_directory_is_filled_and_no_other_programs_files_go(runs, tmp_path, monkeypatch):
    """A mount point cannot be renamed, nor a directory whose parent cannot be written."""
    mount = tmp_path / "mount"
    mount.mkdir()
    refuse_moves(monkeypatch, lambda path, target: mount in (path, target) or target.parent == tmp_path)
    (tmp_path / "link").symlink_to(mount)
    for name in ("mount", "link"):
        export_of(runs, "scores", tmp_path / name, overwrite=name == "link")
        assert sorted(path.name for path in mount.iterdir()) == sorted([*EXPORTED, "assets"])
        tf.saved_model.load(str(mount))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "mount"]
    assert (tmp_path / "link").is_symlink()
    for name in (*EXPORTED[1:], "assets"):  # What is left is nobody's export.
        path = mount / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UsageError, match="replaces an earlier export, and nothing else.*'saved_model.pb'"):
        export_of(runs, "scores", mount, overwrite=True)


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_move_that_fails_leaves_the_new_export_in_parts_that_are_known(tmp_path, monkeypatch, failing):
    """And nothing is loaded before all is there."""
    directory, partial = tmp_path / "export", tmp_path / "export" / ".export.partial"
    names = ("saved_model.pb", "fingerprint.pb", "variables/file", "assets/file", "export_results.json")
    for path, text in ((directory, "old"), (partial, "new")):
        for name in names:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
    moves = itertools.count(1)
    refuse_moves(monkeypatch, lambda path, target: next(moves) == failing)
    with pytest.raises(OSError, match="Device or resource busy"):
        _replace_contents(directory, partial)
    assert sorted(path.read_text() for path in tmp_path.rglob("*") if path.is_file()) == ["new"] * 5
    assert not (directory / "saved_model.pb").exists()
    monkeypatch.undo()
    check_directory(directory, overwrite=True)
    if failing == 1:
        _replace_contents(directory, partial)
        assert sorted(path.name for path in directory.iterdir()) == sorted([*EXPORTED, "assets"])


@pytest.mark.usefixtures("answering_nothing")
def test_a_finished_export_that_cannot_be_moved_is_kept(runs, tmp_path, monkeypatch):
    refuse_moves(monkeypatch, lambda path, target: True)
    with pytest.raises(RunError, match=r"Device or resource busy\). What is not there is in .*/.new.partial: move it"):
        export_of(runs, "scores", tmp_path / "new")
    tf.saved_model.load(str(tmp_path / ".new.partial"))


@pytest.mark.usefixtures("answering_nothing")
def test_the_current_directory_and_the_root(runs, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for overwrite in (False, True):
        export_of(runs, "scores", ".", overwrite=overwrite)
        assert sorted(path.name for path in tmp_path.rglob("*.pb")) == ["fingerprint.pb", "saved_model.pb"]
        with pytest.raises(UsageError, match="Received: output_dir='/'"):
            export_of(runs, "scores", "/", overwrite=overwrite)


@pytest.mark.slow
@pytest.mark.usefixtures("answering_nothing")
def test_the_columns_or_the_model_say_how_many_texts_there_are(runs, open_model, tmp_path):
    def num_texts(number, model=open_model, **options):
        return export_of(runs, model, tmp_path / str(number), **options)["num_texts"]

    assert num_texts(1) == 1
    assert num_texts(4, "pairs", text_column=("a", "b")) == 2
    with pytest.raises(UsageError, match="trained on pairs of texts. Received: text_column with a"):
        num_texts(5, "pairs", text_column=("a",))
    assert not (tmp_path / "5").exists()


TASKS = {"texts": Classification(("bad", "fine", "good")), "tags": TokenClassification(("O", "B-PER", "I-PER"))}
TASKS |= {"answers": QuestionAnswering(), "choices": MultipleChoice(ChoosingConfig())}


def random_ids(rows, width):
    rng = np.random.default_rng(rows)
    lengths = rng.integers(2, width + 1, rows)
    lengths[0] = width
    mask = (np.arange(width) < lengths[:, None]).astype(np.int32)
    ids = (rng.integers(5, len(WORDS), mask.shape) * mask).astype(np.int32)
    second = ((np.arange(width) >= lengths[:, None] // 2) * mask).astype(np.int32)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": second}


def transformers_logits(model, batch):
    if type(model).__name__.endswith("MultipleChoice"):
        return model({name: value[:, None] for name, value in batch.items()}).logits
    found = model({name: tf.constant(value) for name, value in batch.items()})
    return np.stack([found.start_logits, found.end_logits], -1) if "start_logits" in found else found.logits


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("export_format", export.FORMATS)
def test_the_file_gives_the_models_logits(export_format, kind, tmp_path):
    for package in export.FORMATS[export_format]:
        pytest.importorskip(package)
    model = random_model(TASKS[kind], num_texts=1 if kind == "tags" else 2, max_seq_length=24)
    save(model, tmp_path / "own")
    results = export_of(tmp_path, "own", tmp_path / "file", export_format=export_format)
    assert results["largest_logit_error"] < 1e-4 and results["max_seq_length"] == 24
    path = tmp_path / "file" / f"model.{export_format}"
    for rows, width in ((1, 2), (3, 24), (2, 64)):
        batch = random_ids(rows, width)
        found = export.logits_of_file(path, batch)
        want = np.asarray(transformers_logits(model.classifier, batch))
        real = batch["attention_mask"] > 0 if found.ndim == 3 else slice(None)
        np.testing.assert_allclose(found[real], want[real], atol=1e-4)
        assert np.ptp(want[real]) > 0.01 or rows == 1
    words = transformers.BertTokenizerFast.from_pretrained(tmp_path / "file")
    assert len(words) == len(WORDS) and words.model_max_length == 64
    assert json.loads((tmp_path / "file" / "export_results.json").read_text()) == results
    with pytest.raises(UsageError, match="must be new or empty"):
        export_of(tmp_path, "own", tmp_path / "file", export_format=export_format)
    export_of(tmp_path, "own", tmp_path / "file", overwrite=True)  # Another format in its place.
    assert not path.exists() and (tmp_path / "file" / "saved_model.pb").exists()


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else "there")
    return save(random_model(TASKS["texts"], num_texts=1, max_seq_length=24), tmp_path / "own")


def replaced(monkeypatch, **parts):
    monkeypatch.setitem(export.FORMATS, "tflite", ())
    for name, part in ({"content_of": lambda *_: b""} | parts).items():
        monkeypatch.setattr(export, name, part)


def test_a_package_that_is_missing_is_named(own, tmp_path):
    with refused(r"Received: a Python without onnxruntime. .*'\.\[onnx\]'"):
        export_of(tmp_path, "own", tmp_path / "file", export_format="onnx")
    assert not (tmp_path / "file").exists()


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
