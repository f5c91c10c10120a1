"""Models from every weight format, heads of pre-training too; new weights; saving; what does not fit together.

`test_like_transformers` has what a model computes of the weights that it was given.
"""

import collections
import json
import os
import pathlib
import re
import sys
from unittest import mock

import h5py
import huggingface_hub
import keras
import ml_dtypes
import numpy as np
import pytest
import requests
import tensorflow as tf
from huggingface_hub import errors
from safetensors.numpy import load_file, save_file

import tfbert
from tests.support import bert_files
from tests.support.bert_files import CONFIG, FINE_TUNED, assert_same_weights, build, pytorch_tensors, vocabulary, write
from tests.support.cases import slow
from tests.support.refusals import assert_refused
from tests.support.transformers_4 import transformers_4
from tfbert import Config, ModelConfig, RunError
from tfbert.commandline import parse
from tfbert.config.modes import SCRATCH_LAYOUTS
from tfbert.config.run import FINETUNE, PRETRAIN
from tfbert.model import weights
from tfbert.model.files import load_config, load_tokenizer, resolve_model
from tfbert.model.head import Head, save_pretrained

INPUTS = {
    "input_ids": tf.constant([[2, 11, 12, 13, 3], [2, 30, 3, 0, 0]]),
    "token_type_ids": tf.constant([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]),
    "attention_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
}


# Formats.


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, slow(np.float64)])
def test_older_names_and_other_float_types(tmp_path, dtype, logged):
    """Without prefix, with buffers that hold nothing, and TensorFlow's names in LayerNorm; all becomes float32."""
    tensors = {name: array.astype(dtype) for name, array in pytorch_tensors(num_labels=0, prefix="").items()}
    buffers = {"embeddings.position_ids": np.arange(64)[None], "embeddings.token_type_ids": np.zeros([1, 4])}
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    stored = {re.sub("|".join(old), lambda match: old[match[0]], name): array for name, array in tensors.items()}
    got = weights.get_weights_dict(build(write(tmp_path, stored | buffers, CONFIG)))
    encoder = {name: array for name, array in got.items() if not name.startswith("classifier.")}
    assert_same_weights(encoder, {f"bert.{name}": array.astype(np.float32) for name, array in tensors.items()})
    assert logged() == ["New weights, to be trained: classifier.weight, classifier.bias."]


def test_shards(tmp_path):
    tensors = pytorch_tensors()
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(tensors)}
    write(tmp_path)
    for file in set(files.values()):
        save_file({name: tensors[name] for name in tensors if files[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    assert_same_weights(build(tmp_path), tensors)

    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert_refused("without 'model-00002-of-00002.safetensors'", build, tmp_path)


@pytest.mark.parametrize("name", ["Model", slow("ForPreTraining")])
def test_safetensors_that_transformers_writes_in_tensorflow(tmp_path, name, logged):
    """`test_like_transformers` reads tf_model.h5."""
    source, saved = write(tmp_path / "source", pytorch_tensors()), tmp_path / "saved"
    transformers_4(f"TFBert{name}").from_pretrained(source).save_pretrained(saved, safe_serialization=True)
    logged()
    got = weights.get_weights_dict(build(saved))
    new, *unused = logged()
    assert new == "New weights, to be trained: classifier.weight, classifier.bias."
    are_said = ["cls.predictions.* (" in line and "cls.seq_relationship.* (2)" in line for line in unused]
    assert are_said == [True] * (name == "ForPreTraining")
    found = {name: array for name, array in got.items() if not name.startswith("classifier")}
    assert_same_weights(found, pytorch_tensors(num_labels=0))


def test_pytorch_bin(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = pytorch_tensors()
    state = {name: torch.from_numpy(array) for name, array in tensors.items()}
    state["classifier.bias"] = state["classifier.bias"].bfloat16()
    torch.save(state, write(tmp_path) / "pytorch_model.bin")
    tensors["classifier.bias"] = tensors["classifier.bias"].astype(ml_dtypes.bfloat16).astype(np.float32)
    assert_same_weights(build(tmp_path), tensors)
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "pytorch_model.bin")
    assert_refused("it holds 'epoch', 'state_dict' in place of weights by their names", build, tmp_path)


@pytest.mark.parametrize("prefix", ["module.", "encoder_q.", ""])
def test_weights_under_other_names_say_what_was_found(tmp_path, prefix):
    """Of PyTorch's DataParallel, of a module that holds a BERT, and of no BERT."""
    inner = pytorch_tensors(num_labels=0, prefix="bert." if prefix == "module." else "")
    tensors = {f"{prefix}{name}": array for name, array in inner.items() if prefix}
    directory = write(tmp_path, tensors or {"transformer.wte.weight": np.ones(2, np.float32)})
    found = f"but with {min(tensors, default='transformer.wte.weight')}"
    line = f"no bert.embeddings.word_embeddings.weight, .*{re.escape(found)}.* Save them under transformers' names"
    assert_refused(line, build, directory)


def test_pytorch_bin_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (write(tmp_path) / "pytorch_model.bin").write_bytes(b"")
    assert_refused(r"pip install -e '\.\[torch\]' in the clone", build, tmp_path)


@pytest.mark.parametrize("file", weights.WEIGHT_FILES)
def test_damaged_files(tmp_path, file):
    tensors = pytorch_tensors()
    path = write(tmp_path, tensors) / file
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").unlink()
    if file == "tf_model.h5":
        with h5py.File(path, "w") as h5:
            h5["bert/m/bert/x:0"] = np.ones([100, 100])
        whole = path.read_bytes()
    elif file == "pytorch_model.bin":
        pytest.importorskip("torch").save({"x": tensors}, path)
        whole = path.read_bytes()
    elif file.endswith("index.json"):
        whole = b'{"weight_map": '
    for content in (whole[: len(whole) // 2], b"", b"abc", b"version https://git-lfs.github.com/spec/v1\nsize 1"):
        path.write_bytes(content)
        said = assert_refused("A weight file must be readable and whole", build, tmp_path)
        assert ("git lfs pull" in said) == content.startswith(b"version")


# Weights that do not fit.


def test_unused_and_new_weights_take_two_lines(tmp_path, logged):
    tensors = pytorch_tensors(num_labels=0)
    unused = [f"cls.predictions.{name}" for name in ("transform.dense.weight", "transform.dense.bias", "bias")]
    tensors |= dict.fromkeys([*unused, "cls.alone"], np.ones([3], np.float32))
    del tensors["bert.pooler.dense.weight"], tensors["bert.pooler.dense.bias"]
    build(write(tmp_path, tensors, CONFIG))
    new = "bert.pooler.dense.weight, bert.pooler.dense.bias, classifier.weight, classifier.bias"
    assert logged() == [
        f"New weights, to be trained: {new}.",
        "Weights in the file that this model does not use: cls.alone, cls.predictions.* (3).",
    ]


def test_missing_encoder_weights(tmp_path):
    line = re.escape("no bert.encoder.layer.1.attention.self.query.weight, ") + r".*\.\.\. \(16 in all\)"
    assert_refused(line, build, write(tmp_path, pytorch_tensors(layers=1)))


# Heads.


NAMES, OF_TAGS = bert_files.NAMES, CONFIG | {"architectures": ["BertForTokenClassification"]}
NEW_HEAD = "New weights, to be trained: classifier.weight, classifier.bias"
ASSUMED = "The file does not name its head's labels; these are assumed, in order: bad, good."
OTHER_HEADS = {
    "of another size": (CONFIG, NAMES, f"{NEW_HEAD} (the file's head has 3 labels, this task 2)."),
    "for other labels": (FINE_TUNED, ("cat", "dog"), f"{NEW_HEAD} (the file's head is for other labels: bad, good)."),
    "for tokens": (OF_TAGS, NAMES, f"{NEW_HEAD} (the file's head is that of BertForTokenClassification)."),
    "without names": (CONFIG, NAMES, ASSUMED),
}


@pytest.mark.parametrize("what", OTHER_HEADS)
def test_a_head_that_does_not_say_or_fit_is_replaced_or_assumed(tmp_path, what, logged):
    config, labels, line = OTHER_HEADS[what]
    tensors = pytorch_tensors(num_labels=3 if what == "of another size" else 2)
    got = weights.get_weights_dict(build(write(tmp_path, tensors, config), labels=labels))
    assert logged() == [line]
    if what == "without names":
        assert_same_weights(got, tensors)
    else:
        assert got["classifier.weight"].shape == (2, bert_files.HIDDEN)
        assert not np.allclose(got["classifier.weight"], tensors["classifier.weight"][:2])
        np.testing.assert_array_equal(got["classifier.bias"], [0, 0])


def test_head_in_another_label_order_keeps_its_meaning(tmp_path, logged):
    """Labels may be numbered."""
    tensors = pytorch_tensors()
    numbered = FINE_TUNED | {"id2label": {"0": 0, "1": 1}, "label2id": {"0": 0, "1": 1}}
    for config, labels, line in (
        (FINE_TUNED, ("Good", "Bad"), "The head's labels (bad, good) are put in the data's order: Good, Bad."),
        (numbered, ("1", "0"), "The head's labels (0, 1) are put in the data's order: 1, 0."),
    ):
        model = build(write(tmp_path, tensors, config), labels=labels)
        for name in ("classifier.weight", "classifier.bias"):
            np.testing.assert_array_equal(weights.get_weights_dict(model)[name], tensors[name][::-1])
        assert logged() == [line] and model.config.id2label == dict(enumerate(labels))


def test_evaluation_refuses_a_new_head(tmp_path):
    headless = write(tmp_path / "headless", pytorch_tensors(num_labels=0))
    assert_refused("need a fine-tuned model.*without a trained classifier.weight", build, headless, require_head=True)
    build(write(tmp_path, pytorch_tensors()), require_head=True)
    assert_refused("need a fine-tuned model", build, require_head=True)


def test_regression(tmp_path):
    tensors = pytorch_tensors(num_labels=1)
    model = build(write(tmp_path, tensors, CONFIG), labels=())
    assert_same_weights(model, tensors)
    assert (model.config.num_labels, model.config.problem_type) == (1, "regression")
    model = build(tmp_path)
    assert (model.config.num_labels, model.config.problem_type) == (2, "single_label_classification")
    assert_refused("two classes or more", build, tmp_path, labels=("only",))


# BERT's own heads, of pre-training.


def build_pretraining(directory, *, next_sentence=True, **options):
    return build(directory, head=Head(kind="PreTraining" if next_sentence else "MaskedLM"), **options)


def head_tensors():
    """Random weights of the heads as PyTorch has them, without the decoder's."""
    rng = np.random.default_rng(5)
    hidden = bert_files.HIDDEN
    shapes = {"predictions.bias": [bert_files.VOCAB], "predictions.transform.dense.weight": [hidden, hidden]}
    vectors = ("dense.bias", "LayerNorm.weight", "LayerNorm.bias")
    shapes |= {f"predictions.transform.{name}": [hidden] for name in vectors}
    shapes |= {"seq_relationship.weight": [2, hidden], "seq_relationship.bias": [2]}
    return {f"cls.{name}": rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def test_weights_of_pytorch_with_their_decoder(tmp_path, logged):
    tensors = pytorch_tensors(num_labels=0) | head_tensors()
    table = tensors["bert.embeddings.word_embeddings.weight"]
    second = {"cls.predictions.decoder.weight": table, "cls.predictions.decoder.bias": tensors["cls.predictions.bias"]}
    write(tmp_path, tensors | second, CONFIG | {"architectures": ["BertForPreTraining"]})
    assert_same_weights(build_pretraining(tmp_path), tensors)
    assert logged() == []

    # The bias by its second name alone, as some versions of transformers left it.
    renamed = {name: value for name, value in (tensors | second).items() if name != "cls.predictions.bias"}
    assert_same_weights(build_pretraining(write(tmp_path / "renamed", renamed, CONFIG)), tensors)


def test_a_decoder_of_its_own_is_left_aside(tmp_path, logged):
    tensors = pytorch_tensors(num_labels=0) | head_tensors()
    own = {"cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"] + 1}
    model = build_pretraining(write(tmp_path, tensors | own, CONFIG))
    new, *_ = logged()
    assert new.startswith("New weights, to be trained: cls.predictions.") and "seq_relationship" not in new
    assert new.endswith("(the decoder of the file's masked-word head is not its table of embeddings).")
    kept = weights.get_weights_dict(model)["cls.seq_relationship.weight"]
    np.testing.assert_array_equal(kept, tensors["cls.seq_relationship.weight"])


@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_missing_heads_are_new_and_said(tmp_path, prefix, logged):
    write(tmp_path, pytorch_tensors(num_labels=2, prefix=prefix) if prefix else pytorch_tensors(0, prefix=""), CONFIG)
    model = build_pretraining(tmp_path)
    new, *unused = logged()
    assert new.startswith("New weights, to be trained: ") and new.count("cls.") == 7
    assert new.endswith("(the file has no masked-word head; the file has no next-sentence head).")
    assert len(unused) == bool(prefix)
    found = weights.get_weights_dict(model)
    assert not found["cls.predictions.bias"].any()
    np.testing.assert_array_equal(found["cls.predictions.transform.LayerNorm.weight"], 1)
    assert found["cls.predictions.transform.dense.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert_refused("without a trained", build_pretraining, tmp_path, require_head=True)


def test_a_head_of_another_vocabulary_is_refused(tmp_path):
    tensors = pytorch_tensors(num_labels=0) | head_tensors() | {"cls.predictions.bias": np.zeros(39, np.float32)}
    message = r"another shape of cls.predictions.bias \[39\] in place of \[40\]"
    assert_refused(message, build_pretraining, write(tmp_path, tensors, CONFIG))


def test_masked_words_alone_need_no_pooler(tmp_path, logged):
    tensors = pytorch_tensors(num_labels=0) | head_tensors()
    encoder = {name: value for name, value in tensors.items() if "pooler" not in name and "seq_rel" not in name}
    model = build_pretraining(write(tmp_path, tensors, CONFIG), next_sentence=False)
    assert_same_weights(model, encoder)
    (unused,) = logged()
    assert "bert.pooler.* (2)" in unused and "cls.seq_relationship.* (2)" in unused
    # And back: what such a model lacks is new.
    model.save_pretrained(tmp_path / "masked_lm")
    assert load_config(tmp_path / "masked_lm").architectures == ["BertForMaskedLM"]
    assert not any("decoder" in name for name in load_file(tmp_path / "masked_lm" / "model.safetensors"))
    build_pretraining(tmp_path / "masked_lm")
    (new,) = logged()
    assert "bert.pooler.dense.weight" in new and new.endswith("(the file has no next-sentence head).")


def test_labels_of_a_classifier_are_not_kept(tmp_path):
    names = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}
    values = CONFIG | names | {"tie_word_embeddings": False}
    config = build_pretraining(write(tmp_path, pytorch_tensors(num_labels=3), values)).config
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1"} and config.num_labels == 2 and config.tie_word_embeddings


def test_the_24_miniatures_have_layouts():
    assert len(SCRATCH_LAYOUTS) == 6 + 24
    # Of Turc et al. 2019, table 1: 64 to a head.
    for name, (layers, hidden) in {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512)}.items():
        expected = (layers, hidden, hidden // 64)
        assert SCRATCH_LAYOUTS[f"L-{layers}_H-{hidden}"][:3] == expected == SCRATCH_LAYOUTS[name][:3]
    assert SCRATCH_LAYOUTS["L-12_H-768"][:3] == SCRATCH_LAYOUTS["base"][:3]
    (problem,) = ModelConfig(model_name_or_path="scratch/L-3_H-128").problems()
    assert "L-2_H-128 to L-12_H-768" in problem


# New weights.


def test_new_weights_are_a_function_of_the_seed(tmp_path):
    directory = write(tmp_path, pytorch_tensors(num_labels=0))
    one, same, other = (weights.get_weights_dict(build(directory, seed=seed)) for seed in (1, 1, 2))
    assert_same_weights(one, same)
    assert not np.allclose(one["classifier.weight"], other["classifier.weight"])
    assert one["classifier.weight"].std() == pytest.approx(0.02, rel=0.3)


def test_new_weights_have_berts_distribution():
    model = build(length=600, labels=("a", "b", "c"))
    for name, array in weights.get_weights_dict(model).items():
        if name.endswith("LayerNorm.weight"):
            assert (array == 1).all()
        elif name.endswith(".bias"):
            assert (array == 0).all()
        else:
            error = 5 / np.sqrt(array.size)
            assert array.std() == pytest.approx(0.02, rel=error) and abs(array.mean()) < 0.02 * error, name
    sizes = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512}
    sizes |= {"max_position_embeddings": 600, "vocab_size": bert_files.VOCAB}
    assert vars(model.config).items() >= sizes.items() and model.config.num_labels == 3


OWN_RATES = {"hidden_dropout_prob": 0.2, "classifier_dropout": 0.5}


@pytest.mark.parametrize("own, dropout", [({}, None), ({}, 0.3), (OWN_RATES, None), (OWN_RATES, 0.0)])
def test_dropout_takes_the_place_of_all_the_models_own_rates(tmp_path, own, dropout):
    directory = write(tmp_path / "model", pytorch_tensors(num_labels=len(NAMES)), FINE_TUNED | own)
    config, rates = (model := build(directory, dropout=dropout)).config, collections.Counter()
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            rates[layer.rate] += 1
    own = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "classifier_dropout": None} | own
    if dropout is not None:
        own = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout, "classifier_dropout": None}
    hidden, attention, classifier = own.values()
    expected = collections.Counter({attention: config.num_hidden_layers})
    expected[hidden] += 1 + 2 * config.num_hidden_layers
    expected[hidden if classifier is None else classifier] += 1
    assert rates == expected and {name: getattr(config, name) for name in own} == own


def test_replicas_and_precisions_start_equal(tmp_path):
    directory = write(tmp_path, pytorch_tensors(num_labels=0))
    expected = build(directory, seed=3)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        mirrored = build(directory, seed=3)
    assert_same_weights(mirrored, expected)
    for variable in mirrored.trainable_variables:
        copies = strategy.experimental_local_results(variable.value)
        assert len(copies) == 2
        np.testing.assert_array_equal(copies[0].numpy(), copies[1].numpy())

    keras.config.set_dtype_policy("mixed_bfloat16")
    mixed = build(directory, seed=3)
    assert all(variable.dtype == "float32" for variable in mixed.trainable_variables)
    assert_same_weights(mixed, expected)
    assert mixed({"input_ids": INPUTS["input_ids"]}).logits.dtype == tf.bfloat16


def test_set_weights_is_all_or_nothing(tmp_path):
    model = build(write(tmp_path, pytorch_tensors()))
    before = weights.get_weights_dict(model)
    changed = {name: array + 1 for name, array in before.items()}
    less = {name: array for name, array in changed.items() if name != "classifier.bias"}
    other = changed | {"classifier.bias": np.zeros([1])}
    assert_refused("no classifier.bias", weights.set_weights_dict, model, less)
    assert_refused(r"classifier.bias \[1\] in place of \[2\]", weights.set_weights_dict, model, other)
    assert_same_weights(model, before)
    weights.set_weights_dict(model, changed)
    assert_same_weights(model, changed)


# What does not fit the model.


def test_vocabulary_and_length_must_fit(tmp_path):
    directory = write(tmp_path / "model", pytorch_tensors())
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text("x\n" * 30)
    config = ModelConfig(model_name_or_path=str(directory), vocab_file=str(vocab_file))

    assert_refused("has 40 embeddings.*with 41 tokens", build, directory, tokenizer=vocabulary(41))
    build(directory, tokenizer=vocabulary(30))
    options = {"config": config, "tokenizer": vocabulary(30)}
    assert_refused(r"has 40 embeddings.*vocab.txt with 30 tokens", build, directory, **options)
    (directory / "vocab.txt").write_text("y\n" * 30)
    build(directory, **options)

    build(directory, length=64)
    assert_refused("within the model's 64 positions.*max_seq_length=65", build, directory, length=65)


# Saving.


@pytest.mark.parametrize("labels", [("a", "b", "c"), slow(()), slow(("LABEL_0", "LABEL_1"))])
def test_saved_model_loads_in_transformers_and_here(tmp_path, labels, logged):
    model, out = build(labels=labels), tmp_path / "out"
    save_pretrained(model, vocabulary(), out)

    files = ["config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in out.iterdir()) == [*files, "vocab.txt"]
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 512
    saved = json.loads((out / "config.json").read_text())
    names = list(labels) or ["LABEL_0"]
    assert saved["architectures"] == ["BertForSequenceClassification"]
    assert saved["id2label"] == {str(i): name for i, name in enumerate(names)}
    assert saved["torch_dtype"] == "float32"
    assert (out / "model.safetensors").stat().st_mode == (out / "config.json").stat().st_mode
    assert_same_weights(load_file(out / "model.safetensors"), model)
    loaded, info = transformers_4("TFBertForSequenceClassification").from_pretrained(out, output_loading_info=True)
    assert info["missing_keys"] == info["unexpected_keys"] == []
    np.testing.assert_allclose(loaded(INPUTS).logits, model(INPUTS).logits, atol=1e-6)
    logged()
    assert_same_weights(build(out, labels=labels, seed=9, require_head=True), model)
    assert logged() == []
    assert list(load_config(out).id2label.values()) == names


def test_failed_save_leaves_the_older_file(tmp_path, monkeypatch):
    write(tmp_path, pytorch_tensors())
    before = (tmp_path / "model.safetensors").read_bytes()

    def fail(tensors, path, metadata):
        pathlib.Path(path).write_bytes(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    assert_refused("No space left", save_pretrained, build(), vocabulary(), tmp_path, kind=RunError)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))


def test_no_file_of_a_model_is_written_through_a_link(tmp_path):
    out, mine = tmp_path / "out", tmp_path / "mine"
    out.mkdir()
    mine.write_text("mine")
    names = ["config.json", "model.safetensors", "vocab.txt"]
    for name in names:
        (out / name).symlink_to(mine)
        (out / f"{name}.partial").symlink_to(mine)
    save_pretrained(build(), vocabulary(), out)
    weights.write_weights({"w": np.ones(2, np.float32)}, out / "model.safetensors")
    assert mine.read_text() == "mine" and not any((out / name).is_symlink() for name in names)
    assert (out / "vocab.txt").read_text() != "mine"


# Where files come from.


def resolve(name):
    return resolve_model(ModelConfig(model_name_or_path=str(name)))


def test_resolve_directory(tmp_path, monkeypatch):
    assert resolve("scratch/tiny") is None
    assert resolve(write(tmp_path / "whole", pytorch_tensors())) == tmp_path / "whole"
    os.utime(write(tmp_path / "config_only") / "config.json", times=(2e9, 2e9))
    assert_refused("must hold its weights", resolve, tmp_path / "config_only")
    (run := tmp_path / "empty").mkdir()
    assert_refused("must hold config.json", resolve, run)
    (run / "run_config.json").touch()
    assert_refused("empty', a run that has not. The command that began it resumes it, with", resolve, run)
    (run / "all_results.json").touch()
    assert_refused("must hold config.json", resolve, run)  # A run that has ended, whose model was moved.
    # As a directory of transformers' Trainer, which holds `checkpoint-500`.
    assert_refused(f"save_pretrained writes it, such as {tmp_path / 'config_only'}", resolve, tmp_path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **kwargs: pytest.fail("asked the hub"))
    for name in (tmp_path / "absent", "./absent", "whole/absent", "a/b/c", "absent/", tmp_path / "whole/config.json"):
        assert_refused("must lead to a model's directory", resolve, name)


def response(status):
    answer = requests.Response()
    answer.status_code = status
    return answer


@pytest.mark.parametrize(
    "error, message",
    [
        (errors.LocalEntryNotFoundError("x"), "cannot be reached"),
        (errors.OfflineModeIsEnabled("x"), "HF_HUB_OFFLINE"),
        (errors.RepositoryNotFoundError("401", response=response(404)), "no such public model"),
        (errors.GatedRepoError("403", response=response(403)), "terms must be accepted"),
        (errors.HfHubHTTPError("500 Server Error\nmore", response=response(500)), ": 500 Server Error"),
        (requests.exceptions.SSLError("bad certificate"), "bad certificate"),
        (OSError(28, "No space left on device"), "No space left"),
    ],
)
def test_hub_errors_take_one_line(monkeypatch, error, message):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", mock.Mock(side_effect=error))
    said = assert_refused(message, resolve, "owner/model")
    assert "Pass a local directory" in said and "model='owner/model'" in said


def test_hub_download_takes_one_weight_file(tmp_path, monkeypatch):
    asked = []

    def download(name, allow_patterns):
        asked.append(allow_patterns)
        write(tmp_path, config=CONFIG | {"model_type": name.removeprefix("owner/")})
        if "tf_model.h5" in allow_patterns:
            (tmp_path / "tf_model.h5").write_bytes(b"")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve("owner/bert") == tmp_path
    assert ["model.safetensors" in patterns for patterns in asked] == [False, True, False], "what it is comes first"
    assert all("config.json" in patterns and "vocab.txt" in patterns for patterns in asked)
    assert not any("pytorch_model.bin" in patterns for patterns in asked)
    asked.clear()
    assert_refused("^tfbert trains models of model_type bert.*'deberta-v2'", resolve, "owner/deberta-v2")
    assert len(asked) == 1 and not any("safetensors" in pattern for pattern in asked[0])


OTHER_ARCHITECTURES = [
    ({"model_type": "deberta-v2", "architectures": ["BertModel"]}, "model_type='deberta-v2'"),
    ({"model_type": "albert"}, "model_type='albert'"),
    ({"model_type": "modernbert-decoder", "hidden_size": 768}, "model_type='modernbert-decoder'"),
    ({"model_type": None}, "model_type=None"),
    ({"architectures": ["AlbertForMaskedLM"], "hidden_size": 8}, "architectures=['AlbertForMaskedLM']"),
    ({"architectures": ["BertweetModel"]}, "architectures=['BertweetModel']"),
    ({"class_name": "RobertaBackbone", "config": {}}, "its BertBackbone. Received: RobertaBackbone"),
]
WAYS_TO_NAME_A_MODEL = {
    "a configuration": lambda name: Config(model=ModelConfig(model_name_or_path=name)),
    "--mode=predict": lambda name: parse(FINETUNE, ["x", f"--model={name}", "--mode=predict", "--text=a"]),
    "training": lambda name: parse(FINETUNE, ["x", f"--model={name}"]),
    "pre-training": lambda name: parse(PRETRAIN, ["x", f"--model={name}"]),
    "a sweep": lambda name: parse(FINETUNE, ["x", f"--sweep=model={name},scratch/tiny", "--output_dir=s"]),
    "load": lambda name: tfbert.load(pathlib.Path(name)),
    "evaluate": lambda name: tfbert.evaluate(pathlib.Path(name), validation={"text": ["a"], "label": [1]}),
    "finetune": lambda name: tfbert.finetune(model=name, train={"text": ["a", "b"], "label": [0, 1]}),
    "pretrain": lambda name: tfbert.pretrain(model=name),
}


NAMED = [("a configuration", *other) for other in OTHER_ARCHITECTURES]
NAMED += [(way, *OTHER_ARCHITECTURES[0]) for way in WAYS_TO_NAME_A_MODEL]


@pytest.mark.parametrize("way, config, shown", NAMED)
def test_another_architecture_is_refused_before_anything_is_loaded(way, config, shown, tmp_path):
    """Wherever a model can be named, from its `config.json` alone: it has no other file."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    shown, place = re.escape(shown), re.escape(f"{tmp_path}/config.json")
    line = rf"{shown}.* in {place}. Pass (a BERT model|one of them)"
    assert_refused(line, WAYS_TO_NAME_A_MODEL[way], str(tmp_path))


MAYBE = [{"architectures": names} for names in (["TFBertForMaskedLM"], ["BertModel"], [])]
MAYBE += [{"model_type": "bert", "architectures": ["MyOwnHead"]}, {"hidden_size": 8}, {"class_name": "BertBackbone"}]


@pytest.mark.parametrize("config", [*MAYBE, [1], "no JSON"])
def test_what_may_be_a_bert_is_read_further(config, tmp_path):
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    Config(model=ModelConfig(model_name_or_path=str(tmp_path)))


# Tokenizers.


def test_tokenizer_of_the_model_and_of_a_file(tmp_path, logged):
    words = [*bert_files.SPECIALS, "hello", "world", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    config = ModelConfig(model_name_or_path=str(tmp_path))
    assert load_tokenizer(config, tmp_path, training_texts=[]).vocab_size == 8
    assert logged() == ["Text is lower-cased, as the vocabulary suggests."]

    cased = tmp_path / "cased.txt"
    cased.write_text("\n".join([*words, "Hello"]) + "\n")
    config = ModelConfig(model_name_or_path=str(tmp_path), vocab_file=str(cased))
    line = f"capitals in 25% of its words, and no do_lower_case in {tmp_path}/tokenizer_config.json. Write"
    assert_refused(line, load_tokenizer, config, tmp_path, training_texts=[])
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load_tokenizer(config, tmp_path, training_texts=[]).vocab_size == 9
    assert logged() == [f"Text is not lower-cased for the vocabulary {cased}."]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    load_tokenizer(config, tmp_path, training_texts=[])
    assert logged() == [
        f"Text is lower-cased, as {tmp_path}/tokenizer_config.json says, but 25% of the vocabulary's words have "
        "capitals and are never found then.",
        f"Text is lower-cased for the vocabulary {cased}.",
    ]


def test_tokenizer_is_learned_for_scratch(logged):
    texts = (f"the cat sat on mat number {i}" for i in range(20))
    tokenizer = load_tokenizer(ModelConfig(), None, training_texts=texts)
    assert len(bert_files.SPECIALS) < tokenizer.vocab_size <= 4000
    assert logged() == [f"Learned a vocabulary of {tokenizer.vocab_size} tokens from the training texts."]
    assert build(tokenizer=tokenizer).config.vocab_size == tokenizer.vocab_size
