"""Google's TensorFlow 1 checkpoints, built here under the names of Google's own code, give the same logits."""

import zlib

import numpy as np
import pytest

from tests.support.bert_files import SPECIALS, write_google
from tests.support.models import SIZES, VOCAB, random_batch, tiny_bert
from tfbert.bert.models import build_model
from tfbert.config.modes import ModelConfig
from tfbert.errors import UsageError
from tfbert.model.files import load_tokenizer, resolve_model
from tfbert.model.weights import find_weight_file, pytorch_name
from tfbert.tasks.classification.classification import Classification

LAYER = [
    *(f"attention/self/{part}/{leaf}" for part in ("query", "key", "value") for leaf in ("kernel", "bias")),
    *(f"{part}/dense/{leaf}" for part in ("attention/output", "intermediate", "output") for leaf in ("kernel", "bias")),
    *(f"{part}/LayerNorm/{leaf}" for part in ("attention/output", "output") for leaf in ("gamma", "beta")),
]
"""Names of a layer's variables in google-research/bert's modeling.py, which ours have too."""
TABLES = [f"bert/embeddings/{part}_embeddings" for part in ("word", "token_type", "position")]
OTHERS = [
    *("bert/embeddings/LayerNorm/gamma", "bert/embeddings/LayerNorm/beta"),
    *("bert/pooler/dense/kernel", "bert/pooler/dense/bias"),
]


def google_weights(model, *, with_head=True):
    """The model's weights as Google's checkpoints hold them, the optimizer's state and the pretraining heads too."""
    values = {variable.path.partition("/")[2]: variable.numpy() for variable in model.weights}
    out = {name: values[name] for name in OTHERS} | {name: values[f"{name}/embeddings"] for name in TABLES}
    for layer in range(2):
        out |= {f"bert/encoder/layer_{layer}/{name}": values[f"bert/encoder/layer_._{layer}/{name}"] for name in LAYER}
    if with_head:  # run_classifier.py multiplies with the transpose.
        out |= {"output_weights": values["classifier/kernel"].T, "output_bias": values["classifier/bias"]}
    for name in list(out):
        out |= {f"{name}/adam_m": out[name] * 0 + 7, f"{name}/adam_v": out[name] * 0 + 7}
    out["global_step"] = np.int64(343)
    out |= {"cls/seq_relationship/output_weights": np.ones((2, 32), np.float32)}
    out |= {"cls/predictions/output_bias": np.ones(VOCAB, np.float32)}
    return out


def write(directory, weights, prefix="bert_model.ckpt"):
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    words = [f"word{i}" for i in range(VOCAB - len(SPECIALS))]
    return write_google(directory, weights, SIZES | rates | {"type_vocab_size": 2}, SPECIALS + words, prefix)


def load(directory, **options):
    config = ModelConfig(model_name_or_path=str(directory))
    found = resolve_model(config)
    tokenizer = load_tokenizer(config, found, training_texts=())
    options = {"tokenizer": tokenizer, "head": Classification(("a", "b", "c")).head()} | options
    return build_model(config, found, max_seq_length=16, seed=0, **options)


def test_a_checkpoint_gives_the_same_logits(tmp_path):
    model = tiny_bert(num_labels=3)
    for variable in model.weights:  # Random everywhere, so that no two weights can be mixed up.
        variable.assign(np.random.default_rng(zlib.crc32(variable.name.encode())).normal(0, 0.2, variable.shape))
    directory = write(tmp_path / "google", google_weights(model))
    loaded = load(directory, require_head=True)
    inputs, _, _ = random_batch(8)
    inputs["token_type_ids"][:, 6:] = 1
    np.testing.assert_allclose(loaded(inputs).logits, model(inputs).logits, atol=1e-6)
    for ours, own in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), own.numpy(), err_msg=own.name)


def test_a_pretrained_one_has_no_head(tmp_path):
    directory = write(tmp_path / "google", google_weights(tiny_bert(num_labels=3), with_head=False))
    assert load(directory).config.num_labels == 3
    with pytest.raises(UsageError, match="need a fine-tuned model.*classifier.weight"):
        load(directory, require_head=True)


def test_names():
    assert pytorch_name("bert/encoder/layer_11/output/dense/kernel") == (
        "bert.encoder.layer.11.output.dense.weight",
        True,
    )
    assert pytorch_name("bert/embeddings/word_embeddings") == ("bert.embeddings.word_embeddings.weight", False)
    assert pytorch_name("output_bias") == ("classifier.bias", False)


def test_what_is_missing_is_named(tmp_path):
    weights = google_weights(tiny_bert(num_labels=3))
    holed = {name: value for name, value in weights.items() if "layer_1/output/dense/kernel" not in name}
    with pytest.raises(UsageError, match="bert_model.ckpt.index with no bert.encoder.layer.1.output.dense.weight"):
        load(write(tmp_path / "holed", holed))
    misshapen = weights | {"bert/pooler/dense/bias": np.zeros(3, np.float32)}
    with pytest.raises(UsageError, match=r"bert.pooler.dense.bias \[3\] in place of \[32\]"):
        load(write(tmp_path / "misshapen", misshapen))
    directory = write(tmp_path / "half", weights)
    (directory / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(UsageError, match="must be readable and whole.*bert_model.ckpt.index"):
        load(directory)
    directory = write(tmp_path / "two", weights, "model.ckpt-1")
    assert find_weight_file(directory).name == "model.ckpt-1.index"
    write(tmp_path / "two", weights, "model.ckpt-2")
    with pytest.raises(UsageError, match=r"must hold one checkpoint.*model.ckpt-1.index, model.ckpt-2.index\. Keep"):
        load(directory)
    directory = write(tmp_path / "wordless", weights)
    (directory / "vocab.txt").unlink()
    with pytest.raises(UsageError, match="must hold its vocabulary.*--vocab_file"):
        load(directory)
