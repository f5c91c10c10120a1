"""Tensors under PyTorch's naming -> a preset of KerasHub's BERT, written by KerasHub itself."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.errors import UsageError, first_line
from tfbert.model.keras_hub import ACTIVATION, EPSILON, NOTE, TASK_WEIGHTS, WEIGHTS
from tfbert.model.keras_hub_weights import of_backbone, of_classifier

if TYPE_CHECKING:
    from transformers import BertConfig

    from tfbert.tokens.tokenizer import BertTokenizer

BY_TANH = (ACTIVATION, "gelu_pytorch_tanh", "gelu_fast")
"""transformers' names for what KerasHub computes."""
_EXACT = "gelu"


def check_arithmetic(config: BertConfig) -> str:
    """What KerasHub's BERT computes otherwise than a model; empty where nothing is.

    Raises:
        UsageError: for a model that it cannot come near to.
    """
    if config.hidden_act not in (*BY_TANH, _EXACT):
        raise UsageError(
            "KerasHub's BERT has GELU as its activation. "
            f"Received: a model with hidden_act={config.hidden_act!r}. Export it as a SavedModel."
        )
    other = []
    if config.hidden_act == _EXACT:
        other.append("GELU by tanh, where the model has the exact one")
    if config.layer_norm_eps != EPSILON:
        other.append(f"LayerNorm with {EPSILON:g}, where the model has layer_norm_eps={config.layer_norm_eps:g}")
    return " and ".join(other)


def write_preset(
    directory: pathlib.Path,
    tensors: Mapping[str, np.ndarray],
    config: BertConfig,
    tokenizer: BertTokenizer,
    *,
    max_seq_length: int,
    has_head: bool,
) -> None:
    """Writes a preset that `keras_hub.models.BertBackbone.from_preset` loads, and `BertTextClassifier` with its head.

    Args:
        directory: A new or empty one.
        tensors: The encoder's weights with its pooler, and the classifier's if there is a head.
        config: The model's; it goes into `config.json` as well, where KerasHub ignores it.
        tokenizer: Its tokenizer.
        max_seq_length: Longest input of the preprocessor in tokens.
        has_head: Whether to write a `BertTextClassifier`.

    Raises:
        UsageError: for a model or a vocabulary that KerasHub cannot hold, and where KerasHub cannot be imported.
    """
    check_arithmetic(config)
    _check_vocabulary(tokenizer)
    with _keras_hub() as models:
        backbone = models.BertBackbone(
            vocabulary_size=config.vocab_size,
            num_layers=config.num_hidden_layers,
            num_heads=config.num_attention_heads,
            hidden_dim=config.hidden_size,
            intermediate_dim=config.intermediate_size,
            dropout=config.hidden_dropout_prob,
            max_sequence_length=config.max_position_embeddings,
            num_segments=config.type_vocab_size,
            dtype="float32",
        )
        casing = tokenizer.casing
        strips = casing["do_lower_case"] if casing["strip_accents"] is None else casing["strip_accents"]
        options = {"lowercase": casing["do_lower_case"], "strip_accents": strips}
        words = models.BertTokenizer(vocabulary=list(tokenizer.vocab), **options)
        if has_head:
            rate = config.classifier_dropout
            task = models.BertTextClassifier(
                backbone,
                num_classes=tensors["classifier.bias"].shape[0],
                preprocessor=models.BertTextClassifierPreprocessor(words, sequence_length=max_seq_length),
                dropout=config.hidden_dropout_prob if rate is None else rate,
            )
            task.save_to_preset(str(directory), max_shard_size=None)
        else:
            backbone.save_to_preset(str(directory), max_shard_size=None)
            words.save_to_preset(str(directory))
    _fill(directory / WEIGHTS, tensors, of_backbone)
    if has_head:
        _fill(directory / TASK_WEIGHTS, tensors, of_classifier)
    _add(directory / "config.json", [], NOTE, _note(config, has_head=has_head))
    if not casing["tokenize_chinese_chars"]:  # KerasHub reads this option, and forgets to write it.
        for name, way in (
            ("tokenizer.json", ["config"]),
            ("preprocessor.json", ["config", "tokenizer", "config"]),
            ("task.json", ["config", "preprocessor", "config", "tokenizer", "config"]),
        ):
            if (directory / name).is_file():
                _add(directory / name, way, "split_on_cjk", False)


def preset_logits(directory: pathlib.Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """What KerasHub computes from a preset with a head.

    Args:
        directory: The preset.
        inputs: `input_ids`, `attention_mask` and `token_type_ids`, [rows, width].

    Returns:
        float32 [rows, num_classes].
    """
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    with _keras_hub() as models:
        task = models.BertTextClassifier.from_preset(str(directory), preprocessor=None, dtype="float32")
        task.run_eagerly = True  # For a few rows, tracing would take longer.
        return np.asarray(task.predict({name: inputs[own] for name, own in names.items()}, verbose=0), np.float32)


def text_logits(directory: pathlib.Path, columns: Sequence[Sequence[str]], *, batch_size: int) -> np.ndarray:
    """What KerasHub computes from texts, with the tokenizer of a preset with a head.

    Args:
        directory: The preset.
        columns: The texts; with the second texts of pairs beside them.
        batch_size: Rows that are computed at a time.

    Returns:
        float32 [rows, num_classes].
    """
    import tensorflow as tf

    with _keras_hub() as models:
        task = models.BertTextClassifier.from_preset(str(directory), dtype="float32")
        texts = tuple([text.encode("utf-8", "ignore") for text in column] for column in columns)
        # Of several columns, Keras would take the second for labels: they are one input.
        rows = tf.data.Dataset.from_tensor_slices((texts,) if len(texts) > 1 else texts)
        return np.asarray(task.predict(rows.batch(batch_size), verbose=0), np.float32)


@contextlib.contextmanager
def _keras_hub() -> Iterator[Any]:
    """KerasHub's models, on the CPU; Python's random numbers, from which Keras 3 takes its seeds, stay as they are."""
    import tensorflow as tf

    try:
        import keras_hub
    except Exception as error:  # Keras 3 whose backend, as its own file or KERAS_BACKEND names it, is not installed.
        raise UsageError(
            f"A preset is written by KerasHub, which must be there. Received: {first_line(error)}. "
            "Run pip install keras-hub, or set KERAS_BACKEND=tensorflow."
        ) from None
    state = random.getstate()
    try:
        with tf.device("CPU:0"):
            yield keras_hub.models
    finally:
        random.setstate(state)


def _check_vocabulary(tokenizer: BertTokenizer) -> None:
    """Refuses a vocabulary that KerasHub would read otherwise than it was written."""
    for i, token in enumerate(tokenizer.vocab):
        if token != token.rstrip() or not token:
            raise UsageError(
                "KerasHub reads a vocabulary without the blanks at the ends of its lines, and without empty tokens. "
                f"Received: {token!r} as token {i} (counted from 0). Export the model as a SavedModel."
            )


def _note(config: BertConfig, *, has_head: bool) -> dict[str, Any]:
    values = config.to_diff_dict()
    values.pop("_name_or_path", None)
    names = ("hidden_act", "layer_norm_eps", "attention_probs_dropout_prob", "initializer_range")
    names += ("id2label", "label2id", "problem_type") if has_head else ()
    return values | {name: getattr(config, name) for name in names}


def _fill(path: pathlib.Path, tensors: Mapping[str, np.ndarray], named: Callable[[str], tuple[str, bool]]) -> None:
    """Puts weights into a file in place of those that KerasHub drew."""
    import h5py

    def fill(dataset: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset) and not dataset.startswith("optimizer/"):
            name, is_transposed = named(dataset)
            value = tensors[name].T if is_transposed else tensors[name]
            item[...] = np.ascontiguousarray(value, np.float32).reshape(item.shape)

    with h5py.File(path, "r+") as file:
        file.visititems(fill)


def _add(path: pathlib.Path, way: list[str], key: str, value: Any) -> None:
    values = inner = json.loads(path.read_text(encoding="utf-8"))
    for step in way:
        inner = inner[step]
    inner[key] = value
    path.write_text(json.dumps(values, indent=4), encoding="utf-8")
