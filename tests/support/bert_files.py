"""A BERT's files as others write them: configuration, weights in PyTorch's names, vocabulary."""

import dataclasses
import json
import pathlib

import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file

from tfbert.bert.models import build_model
from tfbert.config.modes import ModelConfig
from tfbert.tasks.classification.classification import Classification, Regression

VOCAB, HIDDEN, LAYERS, HEADS, POSITIONS = 40, 32, 2, 2, 64

NAMES = ("bad", "good")

CONFIG = {"model_type": "bert", "vocab_size": VOCAB, "max_position_embeddings": POSITIONS, "hidden_size": HIDDEN}
CONFIG |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 2 * HIDDEN}
FINE_TUNED = CONFIG | {"architectures": ["BertForSequenceClassification"]}
FINE_TUNED |= {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}


@dataclasses.dataclass
class Vocabulary:
    """As much of a tokenizer as building and saving need."""

    vocab_size: int = VOCAB
    pad_id: int = 0

    def save(self, directory, *, model_max_length, fills_masks):
        assert model_max_length == 512
        (pathlib.Path(directory) / "vocab.txt").write_text("".join(f"t{i}\n" for i in range(self.vocab_size)))


def pytorch_tensors(num_labels=2, prefix="bert.", layers=LAYERS):
    """Random tensors under the names and in the shapes of PyTorch's BERT, pooler included."""
    rng = np.random.default_rng(7)
    tensors = {}

    def linear(name, rows, columns):
        tensors[f"{name}.weight"] = rng.normal(0, 0.3, [rows, columns]).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(0, 0.3, [rows]).astype(np.float32)

    def norm(name):
        tensors[f"{name}.LayerNorm.weight"] = rng.normal(1, 0.3, [HIDDEN]).astype(np.float32)
        tensors[f"{name}.LayerNorm.bias"] = rng.normal(0, 0.3, [HIDDEN]).astype(np.float32)

    for name, rows in (("word", VOCAB), ("position", POSITIONS), ("token_type", 2)):
        table = rng.normal(0, 0.5, [rows, HIDDEN]).astype(np.float32)
        tensors[f"{prefix}embeddings.{name}_embeddings.weight"] = table
    norm(f"{prefix}embeddings")
    for i in range(layers):
        layer = f"{prefix}encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", HIDDEN, HIDDEN)
        linear(f"{layer}.attention.output.dense", HIDDEN, HIDDEN)
        norm(f"{layer}.attention.output")
        linear(f"{layer}.intermediate.dense", 2 * HIDDEN, HIDDEN)
        linear(f"{layer}.output.dense", HIDDEN, 2 * HIDDEN)
        norm(f"{layer}.output")
    linear(f"{prefix}pooler.dense", HIDDEN, HIDDEN)
    if num_labels:
        linear("classifier", num_labels, HIDDEN)
    return tensors


def write(directory, tensors=None, config=FINE_TUNED):
    directory.mkdir(exist_ok=True, parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    if tensors is not None:
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def head_of(task, labels):
    return Classification(tuple(labels)).head() if task == "classification" else Regression().head()


def build(directory=None, *, config=None, labels=NAMES, task="classification", length=16, seed=0, **kwargs):
    config = config or ModelConfig(model_name_or_path=str(directory or "scratch/tiny"))
    kwargs = {"tokenizer": Vocabulary()} | kwargs
    return build_model(config, directory, head=head_of(task, labels), max_seq_length=length, seed=seed, **kwargs)


SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_google(directory, weights, config, words, prefix="bert_model.ckpt"):
    """A checkpoint of TensorFlow 1 with its configuration and vocabulary."""
    directory.mkdir(exist_ok=True)
    names, tensors = list(weights), list(weights.values())
    slices = [""] * len(names)
    tf.raw_ops.SaveV2(prefix=str(directory / prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors)
    (directory / "bert_config.json").write_text(json.dumps(config))
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    return directory
