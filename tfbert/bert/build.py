"""A model's files, or a size -> a model with a task's head."""

from __future__ import annotations

import copy
import logging
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tfbert.bert import models
from tfbert.config.parts import SCRATCH_PREFIX, ModelConfig
from tfbert.devices.workers import check_same, checksum
from tfbert.errors import UsageError
from tfbert.model import load, weights
from tfbert.model.configuration import BertConfig, load_config
from tfbert.model.files import SCRATCH_LAYOUTS, own_vocab_size
from tfbert.model.head import Head
from tfbert.step.keras3.private import store_as_float16

if TYPE_CHECKING:
    from tfbert.bert.pretrained import PreTrainedModel
    from tfbert.tokens.tokenizer import Tokenizer

log = logging.getLogger("tfbert")

_MIN_POSITIONS = 512
_OF_ITS_FILE = {"_name_or_path", "_commit_hash", "transformers_version", "architectures", "torch_dtype", "dtype"}
"""What `config.json` says of how it was written."""


def build_model(
    config: ModelConfig,
    directory: pathlib.Path | None,
    *,
    tokenizer: Tokenizer,
    head: Head,
    max_seq_length: int,
    seed: int,
    dropout: float | None = None,
    require_head: bool = False,
) -> PreTrainedModel:
    """Builds the model with all its weights; call it in the strategy's scope.

    Logs at most three lines: new weights, unused weights, how the head's labels were matched.

    New weights, which no file gives, are drawn from N(0, `initializer_range`); biases are 0 and LayerNorm weights 1.
    Each is a pure function of (seed, the weight's name): the same on every replica and worker, and in every precision.

    Args:
        config: Names the model.
        directory: What `resolve_model` returned; with None all weights are new.
        tokenizer: The model's tokenizer.
        head: What the task needs above the encoder.
        max_seq_length: Longest input in tokens.
        seed: Decides the new weights.
        dropout: Takes the place of all of the model's own rates; None keeps them.
        require_head: Whether to refuse to draw new weights, as evaluation and prediction must.

    Returns:
        The built model, its variables float32. A head from the file keeps its meaning: its rows are put in the order of
        the task's labels.

    Raises:
        UsageError: for files that do not fit each other, the tokenizer or `max_seq_length`; and on all workers alike
            where theirs differ.
    """
    if directory is None:
        bert_config = _scratch_config(config, tokenizer, max_seq_length)
        read = load.Read({}, "", [])
    else:
        bert_config = load_config(directory)
        models.class_of(bert_config.model_type, head.kind)
        _check_fit(config, directory, bert_config, tokenizer, max_seq_length)
        read = load.read_weights(directory, bert_config, head)
    if dropout is not None:
        bert_config.classifier_dropout = None  # As the hidden one, unless it is among the rates.
        vars(bert_config).update(dict.fromkeys(bert_config.encoder.RATES, dropout))
    head.describe_in(bert_config)
    _check_same(bert_config, tokenizer, read.tensors)
    # Its variables are all 0 at first.
    model = models.class_of(bert_config.model_type, head.kind)(bert_config, initializer="zeros")
    names = [name for name in weights.get_weight_shapes(model) if name not in read.tensors]
    model.new_weights, model.name_or_path = tuple(names), config.name
    if require_head and names:
        raise UsageError(
            "Evaluation and prediction need a fine-tuned model. Received: "
            f"model_name_or_path={config.model_name_or_path!r} without a trained {weights.list_names(names)}"
            f"{read.because}. Train it first, or pass a run's output directory."
        )
    lines = load.fill(model, read, head, seed=seed, scale=bert_config.initializer_range)
    for line in lines if directory is not None else ():
        log.info("%s", line)
    return model


def with_float16_matrices(model: PreTrainedModel) -> PreTrainedModel:
    """Another model with the same weights that keeps its matrices in float16, and computes in float32, casting where
    they are read. Vectors (biases, LayerNorm) stay float32: they are few. Call it in the strategy's scope."""
    other = type(model)(copy.deepcopy(model.config), initializer="zeros")
    weights.set_weights_dict(other, weights.get_weights_dict(model))
    for variable in other.weights:
        if len(variable.shape) > 1:
            store_as_float16(variable)
    return other


def _scratch_config(config: ModelConfig, tokenizer: Tokenizer, max_seq_length: int) -> BertConfig:
    layers, hidden, heads, _ = SCRATCH_LAYOUTS[config.name.removeprefix(SCRATCH_PREFIX)]
    return BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=max(_MIN_POSITIONS, max_seq_length),
        pad_token_id=tokenizer.pad_id,
    )


def _check_fit(
    config: ModelConfig,
    directory: pathlib.Path,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> None:
    rows, tokens = bert_config.vocab_size, tokenizer.vocab_size
    # Some models pad their embeddings with rows that no token of their own vocabulary uses.
    sizes = {rows, own_vocab_size(directory)}
    if tokens > rows or (config.vocab_file and tokens not in sizes):
        instead = ", or no --vocab_file" if config.vocab_file else ""
        raise UsageError(
            f"The vocabulary must be that of the model, which has {rows} embeddings. "
            f"Received: {config.vocab_file or directory} with {tokens} tokens. "
            f"Pass the vocabulary the model was trained with{instead}."
        )
    if max_seq_length > bert_config.num_positions:
        raise UsageError(
            f"max_seq_length must be within the model's {bert_config.num_positions} positions "
            f"(max_position_embeddings). Received: max_seq_length={max_seq_length}. Pass a smaller one."
        )


def _check_same(config: BertConfig, tokenizer: Tokenizer, tensors: Mapping[str, np.ndarray]) -> None:
    """Refuses workers with other models, before variables are made, whose values they share."""
    check_same(
        lambda: {
            "config.json": {name: value for name, value in config.to_dict().items() if name not in _OF_ITS_FILE},
            "vocabulary": f"{tokenizer.vocab_size} tokens, {checksum(tokenizer.vocab)}",
            "tokenizer": tokenizer.casing,
            "weights": f"{len(tensors)} of the file, {checksum(*(tensors[name] for name in sorted(tensors)))}",
        },
        rule="All workers must have the same model",
        way_out="Give each a copy of the same directory",
    )
