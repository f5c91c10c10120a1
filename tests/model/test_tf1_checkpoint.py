"""Google's TensorFlow 1 checkpoints, built here under the names of Google's own code, give the same logits."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert_files import SPECIALS, load
from tests.support.models import SIZES, VOCAB, random_batch, randomize, tiny_bert
from tests.support.refusals import assert_refused
from tfbert.bert.models import TFBertForPreTraining, TFBertForSequenceClassification, TFBertModel
from tfbert.model.head import Head
from tfbert.model.weights import find_weight_file, pytorch_name

NAMES = {"layer_._": "layer_", "mlm___": "", "nsp___": "", "_embeddings/embeddings": "_embeddings"}
NAMES |= {"classifier/kernel": "output_weights", "classifier/bias": "output_bias"}
NAMES |= {"relationship/kernel": "relationship/output_weights", "relationship/bias": "relationship/output_bias"}
NAMES |= {"predictions/bias": "predictions/output_bias"}
"""What of our names is otherwise in google-research/bert's modeling.py and run_classifier.py."""
OTHERS = {"cls/seq_relationship/output_weights": np.ones((2, 32), np.float32)}
OTHERS |= {"cls/predictions/output_bias": np.ones(VOCAB, np.float32), "global_step": np.int64(343)}


def google_weights(model):
    """The model's weights as Google's checkpoints hold them, the optimizer's state and the pretraining heads too."""
    out = {}
    for variable in model.weights:
        name, value = variable.path.partition("/")[2], variable.numpy()
        for ours, own in NAMES.items():
            name = name.replace(ours, own)
        out[name] = value.T if name.endswith("output_weights") else value  # Theirs multiply with the transpose.
        out |= {f"{name}/adam_m": out[name] * 0 + 7, f"{name}/adam_v": out[name] * 0 + 7}
    return OTHERS | out


def write(directory, weights, prefix="bert_model.ckpt"):
    """A checkpoint of TensorFlow 1 with its configuration and vocabulary."""
    directory.mkdir(exist_ok=True)
    names, tensors = list(weights), list(weights.values())
    slices = [""] * len(names)
    tf.raw_ops.SaveV2(prefix=str(directory / prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors)
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    (directory / "bert_config.json").write_text(json.dumps(SIZES | rates | {"type_vocab_size": 2}))
    words = [*SPECIALS, *(f"word{i}" for i in range(VOCAB - len(SPECIALS)))]
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    return directory


@pytest.mark.parametrize("kind", [TFBertForSequenceClassification, TFBertForPreTraining])
def test_a_checkpoint_gives_the_same_outputs(kind, tmp_path, logged):
    model = tiny_bert(kind=kind)
    randomize(model.weights, seed=2)
    directory = write(tmp_path / "google", google_weights(model))
    head = {"head": Head(kind=kind.KIND)} if kind is TFBertForPreTraining else {}
    loaded, _ = load(directory, require_head=True, **head)
    assert head == {} or not any("eights" in line for line in logged())
    inputs, _, _ = random_batch(8)
    inputs["token_type_ids"][:, 6:] = 1
    for found, expected in zip(loaded(inputs), model(inputs), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    for ours, own in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), own.numpy(), err_msg=own.path)


def test_a_pretrained_one_has_no_head(tmp_path):
    directory = write(tmp_path / "google", google_weights(tiny_bert(kind=TFBertModel)))
    assert load(directory)[0].config.num_labels == 3
    assert_refused("need a fine-tuned model.*classifier.weight", load, directory, require_head=True)


def test_names():
    name = "bert.encoder.layer.11.output.dense.weight"
    assert pytorch_name("bert/encoder/layer_11/output/dense/kernel") == (name, True)
    assert pytorch_name("bert/embeddings/word_embeddings") == ("bert.embeddings.word_embeddings.weight", False)
    assert pytorch_name("output_bias") == ("classifier.bias", False)


def test_what_is_missing_is_named(tmp_path):
    weights = google_weights(tiny_bert())
    holed = {name: value for name, value in weights.items() if "layer_1/output/dense/kernel" not in name}
    line = "bert_model.ckpt.index with no bert.encoder.layer.1.output.dense.weight"
    assert_refused(line, load, write(tmp_path / "holed", holed))
    misshapen = weights | {"bert/pooler/dense/bias": np.zeros(3, np.float32)}
    assert_refused(r"bert.pooler.dense.bias \[3\] in place of \[32\]", load, write(tmp_path / "shapes", misshapen))
    directory = write(tmp_path / "half", weights)
    (directory / "bert_model.ckpt.data-00000-of-00001").unlink()
    assert_refused("must be readable and whole.*bert_model.ckpt.index", load, directory)
    directory = write(tmp_path / "two", weights, "model.ckpt-1")
    assert find_weight_file(directory).name == "model.ckpt-1.index"
    write(tmp_path / "two", weights, "model.ckpt-2")
    assert_refused(r"must hold one checkpoint.*model.ckpt-1.index, model.ckpt-2.index\. Keep", load, directory)
    write(directory := write(tmp_path / "trained", weights), weights, "model-1000")
    (directory / "checkpoint").write_text('model_checkpoint_path: "model-1000"')
    assert_refused(r"must hold one checkpoint.*bert_model.ckpt.index, model-1000.index\. Keep", load, directory)
    directory = write(tmp_path / "wordless", weights)
    (directory / "vocab.txt").unlink()
    assert_refused("must hold its vocabulary.*--vocab_file", load, directory)
