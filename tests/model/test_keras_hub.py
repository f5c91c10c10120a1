"""KerasHub's BERT as a source: presets and `.keras` files that KerasHub itself writes give its own numbers."""

import fnmatch
import json
import pathlib
import shutil
import zipfile
from unittest import mock

import h5py
import keras
import keras_hub
import numpy as np
import pytest
import requests
import tensorflow as tf

import tfbert
from tests.support.bert_files import assert_same_weights, load
from tests.support.cases import slow
from tests.support.corpora import content
from tests.support.models import randomize, tiny_bert
from tests.support.processes import output_of
from tests.support.refusals import assert_refused
from tfbert import ModelConfig
from tfbert.model import keras_hub as keras_hub_files
from tfbert.model import weights
from tfbert.model.files import load_config, load_tokenizer, record_inputs, resolve_model
from tfbert.model.head import Head, save_pretrained
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.tasks.classification.classification import Classification
from tfbert.tokens.tokenizer import BertTokenizer

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "the", "##s", "é", "Film"]
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16, "max_sequence_length": 32}
models = keras_hub.models


def backbone(kind=models.BertBackbone, **options):
    made = kind(**{"vocabulary_size": len(VOCAB), **SIZES} | options)
    randomize(made.weights, seed=3, spread=0.5)
    return made


def classifier(num_classes=3, **options):
    tokenizer = models.BertTokenizer(vocabulary=VOCAB, lowercase=False)
    options = {"preprocessor": models.BertTextClassifierPreprocessor(tokenizer, sequence_length=16)} | options
    made = models.BertTextClassifier(backbone(), num_classes, **options)
    made.output_dense.bias.assign(np.random.default_rng(4).normal(0, 1, num_classes))
    return made


LENGTHS = np.array([[20], [3], [9], [14], [20], [5]])
MASK = (np.arange(20) < LENGTHS).astype(np.int32)
IDS = (np.random.default_rng(0).integers(5, len(VOCAB), MASK.shape) * MASK).astype(np.int32)
SECOND = ((np.arange(20) >= LENGTHS // 2) * MASK).astype(np.int32)
THEIRS = {"token_ids": IDS, "padding_mask": MASK, "segment_ids": SECOND}
OURS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SECOND}
"""Padded pairs as KerasHub and as transformers name them."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with what KerasHub writes, and the model that it is of."""
    directory = tmp_path_factory.mktemp("keras_hub")
    model = classifier()
    model.save_to_preset(str(directory / "preset"))
    model.save(directory / "model.keras")
    for name, options in (("backbone", {}), ("sharded", {"max_shard_size": 1e-6})):
        model.backbone.save_to_preset(str(directory / name), **options)
        model.preprocessor.tokenizer.save_to_preset(str(directory / name))
    FineTuner(model).save(directory / "tuner.keras")
    return directory, model


def encoder_of(directory):
    """The weights of a model's encoder and pooler by PyTorch name."""
    with weights.open_weights(weights.find_weight_file(directory)) as stored:
        config = load_config(directory)
        return {name: stored[name].read() for name in config.encoder.shapes(config)}


@pytest.mark.parametrize("name", ["preset", "tuner.keras"])
def test_a_classifier_gives_the_same_logits(made, name):
    directory, own = made
    model, tokenizer = load(directory / name, require_head=True)
    np.testing.assert_allclose(model(OURS).logits, own(THEIRS), atol=1e-5)
    assert np.abs(own(THEIRS)).max() > 1, "differences would not be seen"
    assert list(tokenizer.vocab) == VOCAB
    assert tokenizer.casing == {"do_lower_case": False, "strip_accents": False, "tokenize_chinese_chars": True}
    assert model.config.hidden_act == "gelu_new"


def assert_same_outputs(ours, theirs):
    """Of the encoders, where there is a token; returns the hidden states."""
    found, wanted = ours.bert(OURS), theirs(THEIRS)
    np.testing.assert_allclose(found.pooler_output, wanted["pooled_output"], atol=1e-5)
    hidden = [each * MASK[..., None] for each in (found.last_hidden_state, wanted["sequence_output"])]
    np.testing.assert_allclose(*hidden, atol=1e-5)
    return hidden[0]


@pytest.mark.parametrize("name", ["backbone", slow("sharded")])
def test_a_backbone_starts_a_new_head(made, name, logged):
    directory, own = made
    model, _ = load(directory / name)
    assert "New weights, to be trained: classifier.weight, classifier.bias." in logged()
    assert_same_outputs(model, own.backbone)
    assert_refused("need a fine-tuned model", load, directory / name, require_head=True)


@pytest.mark.slow
def test_bfloat16_is_read(made, tmp_path):
    directory, own = made
    half = models.BertBackbone.from_preset(str(directory / "backbone"), dtype="bfloat16")
    half.save_to_preset(str(tmp_path / "half"))
    whole = encoder_of(directory / "backbone")
    for name, value in encoder_of(tmp_path / "half").items():
        np.testing.assert_allclose(value, whole[name], rtol=2**-8)


def test_casing_is_taken_along(tmp_path, logged):
    tokenizer = models.BertTokenizer(vocabulary=VOCAB[:-2], lowercase=True)
    backbone(vocabulary_size=len(VOCAB) - 2).save_to_preset(str(tmp_path / "p"))
    tokenizer.save_to_preset(str(tmp_path / "p"))
    found = load_tokenizer(ModelConfig(model_name_or_path=str(tmp_path / "p")), tmp_path / "p", training_texts=())
    assert found.casing == {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": True}
    assert any("keeps its accents" in line for line in logged())
    (tmp_path / "v").write_text("\n".join(VOCAB[:-2]) + "\n")
    found = load_tokenizer(ModelConfig(vocab_file=str(tmp_path / "v")), tmp_path / "p", training_texts=())
    assert found.casing["do_lower_case"] and found.casing["strip_accents"] is False


def test_the_outputs_decide_whether_the_head_is_a_classifier(tmp_path, logged):
    classifier(activation="sigmoid").save_to_preset(str(tmp_path / "p"))
    assert load_config(tmp_path / "p").problem_type == "multi_label_classification"
    for activation, architecture in {"softmax": "BertForSequenceClass", "tanh": "BertTextClassifier with"}.items():
        change(tmp_path / "p" / "task.json", activation=activation)
        assert load_config(tmp_path / "p").architectures[0].startswith(architecture)
    load(tmp_path / "p")
    assert any("BertTextClassifier with activation='tanh'" in line for line in logged())
    classifier(1, activation="sigmoid").save_to_preset(str(tmp_path / "one"))
    assert load_config(tmp_path / "one").architectures == ["BertTextClassifier with activation='sigmoid'"]


def test_a_masked_language_model_continues(tmp_path):
    tokenizer = models.BertTokenizer(vocabulary=VOCAB, lowercase=False)
    preprocessor = models.BertMaskedLMPreprocessor(tokenizer, sequence_length=16)
    own = models.BertMaskedLM(backbone(), preprocessor=preprocessor)
    randomize(own.masked_lm_head.trainable_weights, seed=5, spread=0.5)
    own.save_to_preset(str(tmp_path / "masked"))
    assert load_config(tmp_path / "masked").architectures == ["BertForMaskedLM"]
    model, _ = load(tmp_path / "masked", head=Head(kind="MaskedLM"), require_head=True)
    places = np.tile(np.arange(3, dtype=np.int32), (6, 1))
    want = own({**THEIRS, "mask_positions": places})
    # KerasHub's head has another epsilon and the exact GELU.
    np.testing.assert_allclose(model(OURS).logits[:, :3], want, atol=5e-3)
    assert np.abs(want).max() > 1


def with_weights_elsewhere(path):
    with h5py.File(path / "model.weights.h5", "r+") as file:
        del file["layers/dense/vars/1"]
        file.create_dataset("layers/dense/vars/1", (8,), "f4", external=[("other.raw", 0, 32)])


def with_tokenizer_of_roberta(path):
    pieces = {name: number for number, name in enumerate(["<s>", "<pad>", "</s>", "<mask>", "a", "b", "ab"])}
    models.RobertaTokenizer(vocabulary=pieces, merges=["a b"]).save_to_preset(str(path))


def quantized(path):
    own = backbone()
    own.quantize("int8")
    own.save_to_preset(str(path))


def cut_short(path):
    (path / "model.weights.h5").write_bytes((path / "model.weights.h5").read_bytes()[:30_000])


def change(path, **values):
    config = json.loads(path.read_text())
    config["config"] |= values
    path.write_text(json.dumps(config))


def remove(name):
    return lambda path: (path / name).unlink()


DAMAGED = [
    ("", lambda path: backbone(models.RobertaBackbone).save_to_preset(str(path)), "BertBackbone. Received: Roberta"),
    ("preset", remove("assets/tokenizer/vocabulary.txt"), "vocabulary of its tokenizer. Received: .*/p without one"),
    ("preset", cut_short, "must be readable and whole. Received: .*/p: .*truncated file: eof = 30000"),
    ("preset", remove("model.weights.h5"), "must hold its weights"),
    ("sharded", remove("model_00003.weights.h5"), "and whole. Received: .*`model_00003.weights.h5` doesn't exist"),
    ("sharded", lambda path: change(path / "config.json", num_layers=1), "config.json describes. Received: .* with 1,"),
    ("preset", with_weights_elsewhere, "could not be loaded.* name=pooled_dense"),
    slow("", quantized, "must be floating-point numbers. Received: a quantized model"),
    ("backbone", with_tokenizer_of_roberta, "must be BERT's WordPiece. Received: RobertaTokenizer in "),
    slow("backbone", lambda path: change(path / "tokenizer.json", suffix_indicator="@@"), "suffix_indicator='@@'"),
]


@pytest.mark.parametrize("source, damage, message", DAMAGED)
def test_a_preset_of_another_model_or_damaged_is_refused_in_a_line(source, damage, message, tmp_path, made):
    if source:
        shutil.copytree(made[0] / source, tmp_path / "p")
    damage(tmp_path / "p")
    assert_refused(message, load, tmp_path / "p")


def test_a_keras_file_of_something_else_is_refused_in_a_line(made, tmp_path):
    keras.Sequential([keras.Input([2]), keras.layers.Dense(1)]).save(tmp_path / "dense.keras")
    (tmp_path / "text.keras").write_text("no archive")
    classifier(preprocessor=None).save(tmp_path / "bare.keras")
    with (
        zipfile.ZipFile(made[0] / "model.keras") as source,
        zipfile.ZipFile(tmp_path / "bomb.keras", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in source.namelist():
            archive.writestr(name, b"\0" * (1 << 24) if name.endswith(".h5") else source.read(name))
    with zipfile.ZipFile(tmp_path / "quantized.keras", "w") as archive:
        archive.writestr("config.json", '{"dtype": {"class_name": "QuantizedDTypePolicy"}}')
    for name, message in {
        "quantized.keras": "must be floating-point numbers. Received: a quantized model in .*quantized.keras",
        "dense.keras": "its BertBackbone. Received: Sequential in .*dense.keras",
        "text.keras": "must be readable and whole. Received: .*text.keras: .*File is not a zip file",
        "bare.keras": "must hold the vocabulary of its tokenizer",
        "bomb.keras": "must be readable and whole",
    }.items():
        assert_refused(message, load, tmp_path / name)


def test_names_of_kerashub_lead_to_kaggle(made, monkeypatch):
    def download(handle):
        assert handle == "keras/bert/keras/bert_base_en/3"
        return str(made[0] / "preset")

    monkeypatch.setattr("kagglehub.model_download", download)
    for name in ("bert_base_en", "kaggle://keras/bert/keras/bert_base_en/3"):
        assert resolve_model(ModelConfig(model_name_or_path=name)) == made[0] / "preset"

    monkeypatch.setattr("kagglehub.model_download", mock.Mock(side_effect=requests.ConnectionError("a\nlong story")))
    for name, message in {
        "bert_base_en": "'bert_base_en': Kaggle cannot be reached, and the preset is not in kagglehub's cache",
        "distil_bert_base_en": "tfbert trains those of its BertBackbone",
        "hf://keras/bert_base_en": "the hub cannot be reached",
        "some_model": "the hub cannot be reached",
        "no_such.keras": "A path must lead to a model's directory or .keras file",
    }.items():
        assert_refused(message, resolve_model, ModelConfig(model_name_or_path=name))
    monkeypatch.undo()
    assert_refused("'kaggle://a/b': ", resolve_model, ModelConfig(model_name_or_path="kaggle://a/b"))


def test_a_preset_on_the_hugging_face_hub_is_fetched_whole(made, monkeypatch):
    asked = []

    def download(name, allow_patterns):
        asked.append((name, allow_patterns))
        return str(made[0] / "preset") if "model.weights.h5" in allow_patterns else "nowhere"

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert resolve_model(ModelConfig(model_name_or_path="hf://keras/bert_base_en")) == made[0] / "preset"
    assert {name for name, _ in asked} == {"keras/bert_base_en"}
    needed = content(made[0] / "preset")
    missing = {name for name in needed if not any(fnmatch.fnmatch(name, pattern) for pattern in asked[-1][1])}
    assert missing == {"metadata.json", "preprocessor.json"}


def test_keras_hub_is_imported_for_a_preset_alone(made):
    code = f"""
import pathlib, sys
from tfbert.model import weights
path = weights.find_weight_file(pathlib.Path({str(keras_hub_files.plain(made[0] / "preset"))!r}))
assert len(weights.read_weights(path)) == 41
assert not {{"keras", "keras_hub", "tensorflow", "torch"}} & set(sys.modules)
"""
    output_of(code)


def test_neither_scope_nor_policy_nor_names_reach_the_reader(made, tmp_path):
    """A preset is read as it is wherever a user reads it, and layers of the user's are called as before."""
    shutil.copytree(made[0] / "preset", tmp_path / "preset")
    keras.utils.clear_session()
    keras.config.set_dtype_policy("bfloat16")
    try:
        with tf.distribute.MirroredStrategy(tf.config.list_logical_devices("CPU")).scope():
            tensors = encoder_of(tmp_path / "preset")
        assert keras.layers.Dense(2).name == "dense" and keras.config.dtype_policy().name == "bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")
    assert_same_weights(tensors, encoder_of(made[0] / "preset"))


def test_what_changed_on_disk_is_read_anew(made, tmp_path):
    other = classifier()
    for name in ("one", "two"):
        other.save_to_preset(str(tmp_path / "preset"))
        head = weights.read_weights(weights.find_weight_file(tmp_path / "preset"))["classifier.weight"]
        np.testing.assert_array_equal(head.T, other.output_dense.kernel.numpy(), err_msg=name)
        other.output_dense.kernel.assign_add(np.ones_like(head.T))


def test_keras_hub_reads_a_run(tmp_path):
    """A directory that our classes and tokenizer wrote, as it is: hidden states, pooler and ids."""
    own = tiny_bert(vocab_size=len(VOCAB), num_attention_heads=4, hidden_act="gelu_new")
    randomize(own.weights, seed=6, spread=0.5)
    tokenizer = BertTokenizer(VOCAB, do_lower_case=False)
    save_pretrained(own, tokenizer, tmp_path / "run")
    hidden = assert_same_outputs(own, models.BertBackbone.from_preset(str(tmp_path / "run")))
    assert np.abs(hidden).max() > 1
    ids = models.BertTokenizer.from_preset(str(tmp_path / "run"))("the Film abcé")
    assert ids.tolist() == tokenizer(tf.constant(["the Film abcé"]), max_seq_length=16)[0][0, 1:-1].numpy().tolist()


@pytest.mark.slow  # By default `test_keras_hub_reads_a_run` has its hidden states and ids.
def test_the_page_takes_a_run_to_keras_hub(tmp_path):
    """The lines of docs/after_training.md, of texts with accents: KerasHub does not read that they are dropped."""
    words = [*VOCAB[:-2], "cafe", "naive"]
    model = tiny_bert(vocab_size=len(words), num_attention_heads=4)
    Classification(("bad", "fine", "good")).head().describe_in(model.config)
    randomize(model.weights, seed=2, spread=0.5)
    record_inputs(model.config, num_texts=1, max_seq_length=24)
    save_pretrained(model, BertTokenizer(words), tmp_path / "run")
    page = (pathlib.Path(__file__).parents[2] / "docs" / "after_training.md").read_text(encoding="utf-8")
    block = page[page.index("### To KerasHub") :].partition("```python\n")[2].partition("```")[0]
    block = block.replace('"runs/mine", 2, 128', f"{str(tmp_path / 'run')!r}, 3, 24")
    found = {}
    exec(block.replace('"preset"', repr(str(tmp_path / "preset"))), found)
    texts = ["Café the naïve", "the cafes abc"]
    theirs = keras.ops.softmax(found["classifier"].predict(texts, verbose=0)).numpy()
    np.testing.assert_allclose(theirs, tfbert.load(tmp_path / "run").predict_proba(texts), atol=1e-5)
    assert found["tokenizer"](["Café the naïve"])[0] == [words.index(word) for word in ("cafe", "the", "naive")]
    assert models.BertTextClassifier.from_preset(str(tmp_path / "preset")).preprocessor.sequence_length == 24
