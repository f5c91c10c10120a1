"""A BERT's files as others write them: configuration, weights in PyTorch's names, vocabulary."""

import json

import numpy as np
from safetensors.numpy import save_file

from tfbert.bert.models import build_model
from tfbert.config.modes import ModelConfig
from tfbert.model.files import load_tokenizer, resolve_model
from tfbert.model.weights import get_weights_dict
from tfbert.tasks.classification.classification import Classification, Regression
from tfbert.tokens.tokenizer import BertTokenizer

VOCAB, HIDDEN, LAYERS, HEADS, POSITIONS = 40, 32, 2, 2, 64

NAMES = ("bad", "good")

CONFIG = {"model_type": "bert", "vocab_size": VOCAB, "max_position_embeddings": POSITIONS, "hidden_size": HIDDEN}
CONFIG |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 2 * HIDDEN}
FINE_TUNED = CONFIG | {"architectures": ["BertForSequenceClassification"]}
FINE_TUNED |= {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def vocabulary(size=VOCAB):
    """A tokenizer of so many tokens."""
    return BertTokenizer([*SPECIALS, *(f"t{i}" for i in range(size - len(SPECIALS)))])


def pytorch_tensors(num_labels=2, prefix="bert.", layers=LAYERS):
    """Random tensors under the names and in the shapes of PyTorch's BERT, pooler included."""
    rng = np.random.default_rng(7)
    tensors = {}

    def linear(name, rows, columns):
        tensors[f"{name}.weight"] = rng.normal(0, 0.3, [rows, columns])
        tensors[f"{name}.bias"] = rng.normal(0, 0.3, [rows])

    def norm(name):
        tensors[f"{name}.LayerNorm.weight"] = rng.normal(1, 0.3, [HIDDEN])
        tensors[f"{name}.LayerNorm.bias"] = rng.normal(0, 0.3, [HIDDEN])

    for name, rows in (("word", VOCAB), ("position", POSITIONS), ("token_type", 2)):
        tensors[f"{prefix}embeddings.{name}_embeddings.weight"] = rng.normal(0, 0.5, [rows, HIDDEN])
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
    return {name: value.astype(np.float32) for name, value in tensors.items()}


def write(directory, tensors=None, config=FINE_TUNED):
    directory.mkdir(exist_ok=True, parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    if tensors is not None:
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def build(directory=None, *, config=None, labels=NAMES, length=16, **options):
    """A model of a directory, or a new one; without labels, for regression."""
    config = config or ModelConfig(model_name_or_path=str(directory or "scratch/tiny"))
    task = Classification(tuple(labels)) if labels else Regression()
    options = {"tokenizer": vocabulary(), "head": task.head(), "seed": 0} | options
    return build_model(config, directory, max_seq_length=length, **options)


def load(source, **options):
    """A model as a run loads it, with three labels where it is to have another head, and its tokenizer."""
    config = ModelConfig(model_name_or_path=str(source))
    directory = resolve_model(config)
    tokenizer = load_tokenizer(config, directory, training_texts=())
    options = {"labels": ("LABEL_0", "LABEL_1", "LABEL_2"), "tokenizer": tokenizer} | options
    return build(directory, config=config, **options), tokenizer


def assert_same_weights(one, other):
    """Of models, or of their weights by name."""
    one, other = (each if isinstance(each, dict) else get_weights_dict(each) for each in (one, other))
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)
