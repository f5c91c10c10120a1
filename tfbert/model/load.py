"""A model's files, or a size -> transformers' TensorFlow BERT with a task's head; and back to files."""

from __future__ import annotations

import copy
import json
import logging
import pathlib
import shutil
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfbert.config.parts import SCRATCH_PREFIX, ModelConfig
from tfbert.devices.imports import without_collections
from tfbert.devices.same_run import check_same, checksum
from tfbert.errors import RunError, UsageError, first_line
from tfbert.model import weights
from tfbert.model.files import SCRATCH_LAYOUTS, load_config, load_tokenizer, own_vocab_size, resolve_model
from tfbert.model.head import Head

if TYPE_CHECKING:  # transformers takes a second to import, which a bad flag need not wait for.
    from transformers import BertConfig, TFBertPreTrainedModel

    from tfbert.tokens.tokenizer import BertTokenizer

__all__ = [
    "build_model",
    "copy_model",
    "fill",
    "load_config",
    "load_tokenizer",
    "read_weights",
    "resolve_model",
    "save_pretrained",
    "set_resized",
]

log = logging.getLogger("tfbert")

_MIN_POSITIONS = 512
_OF_ITS_FILE = {"_name_or_path", "_commit_hash", "transformers_version", "architectures", "torch_dtype", "dtype"}
"""What `config.json` says of how it was written."""
_POOLER = ("bert.pooler.dense.weight", "bert.pooler.dense.bias")


def build_model(
    config: ModelConfig,
    directory: pathlib.Path | None,
    *,
    tokenizer: BertTokenizer,
    head: Head,
    max_seq_length: int,
    seed: int,
    dropout: float | None = None,
    require_head: bool = False,
    new: list[str] | None = None,
) -> TFBertPreTrainedModel:
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
        new: Receives the names of the new weights.

    Returns:
        The built model, its variables float32. A head from the file keeps its meaning: its rows are put in the order of
        the task's labels.

    Raises:
        UsageError: for files that do not fit each other, the tokenizer or `max_seq_length`; and on all workers alike
            where theirs differ.
    """
    if directory is None:
        bert_config = _scratch_config(config, tokenizer, max_seq_length)
        read = Read({}, "", [])
    else:
        bert_config = load_config(directory)
        _check_fit(config, directory, bert_config, tokenizer, max_seq_length)
        read = read_weights(directory, bert_config, head)
    if dropout is not None:
        bert_config.hidden_dropout_prob = bert_config.attention_probs_dropout_prob = dropout
        bert_config.classifier_dropout = None  # As the hidden one.
    head.describe_in(bert_config)
    _check_same(bert_config, tokenizer, read.tensors)
    model = _create(bert_config, head)
    names = [name for name in weights.get_weight_shapes(model) if name not in read.tensors]
    if new is not None:
        new += names
    if require_head and names:
        raise UsageError(
            "Evaluation and prediction need a fine-tuned model. Received: "
            f"model_name_or_path={config.model_name_or_path!r} without a trained {weights.list_names(names)}"
            f"{read.because}. Train it first, or pass a run's output directory."
        )
    lines = fill(model, read, head, seed=seed, scale=bert_config.initializer_range)
    for line in lines if directory is not None else ():
        log.info("%s", line)
    return model


class Read(NamedTuple):
    """What a model's file gave.

    Attributes:
        tensors: The weights that the model can use, by PyTorch name.
        reason: Why the head was left out; empty if it was not, or the file has none.
        names: All weights in the file.
    """

    tensors: dict[str, np.ndarray]
    reason: str
    names: list[str]

    @property
    def because(self) -> str:
        """The reason after a list of weights."""
        return self.reason and f" ({self.reason})"


def read_weights(directory: pathlib.Path, bert_config: BertConfig, head: Head | None) -> Read:
    """The weights in a model's file that a model with this head can use; a head that means something else is left out.

    Args:
        directory: What `resolve_model` returned.
        bert_config: The file's own configuration.
        head: What stands above the encoder; None for nothing.

    Raises:
        UsageError: for files that do not fit each other.
    """
    with weights.open_weights(weights.find_weight_file(directory)) as stored:
        # Before anything is read or built: a few bytes can describe more than a machine holds.
        _check_shapes(directory, stored, bert_config, head)
        parts = [name for name in encoder_shapes(bert_config) if not head or head.has_pooler or name not in _POOLER]
        tensors = {name: stored[name].read() for name in parts if name in stored}
        of_head, reason = head.read(stored, bert_config) if head else ({}, "")
        return Read(tensors | of_head, reason, list(stored))


def fill(model: Any, read: Read, head: Head | None, *, seed: int, scale: float) -> list[str]:
    """Assigns all weights of a built model; what no file gave is drawn.

    Args:
        model: transformers' TensorFlow BERT, or ours.
        read: What the file gave.
        head: What stands above the encoder.
        seed: Decides the new weights.
        scale: Their deviation.

    Returns:
        Lines for users: which weights are new, and which of the file are unused.
    """
    shapes, lines = weights.get_weight_shapes(model), []
    new = [name for name in shapes if name not in read.tensors]
    if new:
        lines.append(f"New weights, to be trained: {', '.join(new)}{read.because}.")
    seconds = head.second_names if head else ()
    if unused := [name for name in read.names if name not in shapes and name not in seconds]:
        lines.append(f"Weights in the file that this model does not use: {weights.group_names(unused)}.")
    drawn = {name: _draw(name, shapes[name], seed, scale) for name in new}
    weights.set_weights_dict(model, read.tensors | drawn)
    return lines


def set_resized(model: Any, values: Mapping[str, np.ndarray], *, seed: int, scale: float) -> None:
    """Assigns weights to a model of which some have another number of rows now; rows that are new are drawn.

    Args:
        model: As of `fill`.
        values: Its weights before.
        seed: Decides the new rows.
        scale: Their deviation.
    """
    resized = dict(values)
    for name, shape in weights.get_weight_shapes(model).items():
        if shape != values[name].shape:
            resized[name] = _draw(name, shape, seed, scale)
            kept = min(shape[0], len(values[name]))
            resized[name][:kept] = values[name][:kept]
    weights.set_weights_dict(model, resized)


def copy_model(model: TFBertPreTrainedModel, head: Head) -> TFBertPreTrainedModel:
    """Another model with the same weights, whose variables are created under the present policy and scope."""
    other = _create(copy.deepcopy(model.config), head)
    weights.set_weights_dict(other, weights.get_weights_dict(model))
    return other


def save_pretrained(model: Any, tokenizer: BertTokenizer | None, directory: pathlib.Path) -> None:
    """Writes model and tokenizer so that transformers loads them in TensorFlow and in PyTorch.

    `config.json` comes last: a directory that has it is complete.

    Args:
        model: As `build_model` returned it, or one of our own classes.
        tokenizer: Its tokenizer; None writes the model alone.
        directory: Where `config.json`, `model.safetensors` and the tokenizer's files go; made if needed.

    Raises:
        RunError: if they cannot be written.
    """
    directory = pathlib.Path(directory)
    values = model.config.to_diff_dict()
    values.pop("_name_or_path", None)
    values |= {"architectures": [type(model).__name__.removeprefix("TF")], "torch_dtype": "float32"}
    # Two classes called LABEL_0 and LABEL_1 are transformers' default and would be left out.
    values |= {"id2label": model.config.id2label, "label2id": model.config.label2id}
    partial = directory / ".model.partial"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()  # Files are moved here from a new directory: none is written through a link.
        if tokenizer is not None:
            fills_masks = values["architectures"][0] in ("BertForPreTraining", "BertForMaskedLM")
            tokenizer.save(partial, model_max_length=model.config.max_position_embeddings, fills_masks=fills_masks)
        weights.write_weights(weights.get_weights_dict(model), partial / weights.SAFETENSORS)
        (partial / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        for path in sorted(partial.iterdir(), key=lambda path: path.name == "config.json"):
            path.replace(directory / path.name)
    except OSError as error:
        raise RunError(
            f"The model must be written whole. Received: {directory} ({first_line(error)}). "
            "Check free space and permissions there."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _scratch_config(config: ModelConfig, tokenizer: BertTokenizer, max_seq_length: int) -> BertConfig:
    from transformers.models.bert.configuration_bert import BertConfig

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
    tokenizer: BertTokenizer,
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
    if max_seq_length > bert_config.max_position_embeddings:
        raise UsageError(
            f"max_seq_length must be within the model's {bert_config.max_position_embeddings} positions "
            f"(max_position_embeddings). Received: max_seq_length={max_seq_length}. Pass a smaller one."
        )


def encoder_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of a BERT without its head, by PyTorch name; the model need not exist."""
    hidden, wide = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, rows: int, columns: int) -> None:
        shapes.update({f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)})

    def norm(name: str) -> None:
        shapes.update({f"{name}.LayerNorm.{part}": (hidden,) for part in ("weight", "bias")})

    tables = {"word": config.vocab_size, "position": config.max_position_embeddings}
    for name, rows in (tables | {"token_type": config.type_vocab_size}).items():
        shapes[f"bert.embeddings.{name}_embeddings.weight"] = (rows, hidden)
    norm("bert.embeddings")
    for i in range(config.num_hidden_layers):
        layer = f"bert.encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{layer}.attention.{part}", hidden, hidden)
        norm(f"{layer}.attention.output")
        linear(f"{layer}.intermediate.dense", wide, hidden)
        linear(f"{layer}.output.dense", hidden, wide)
        norm(f"{layer}.output")
    linear("bert.pooler.dense", hidden, hidden)
    return shapes


def _check_same(config: BertConfig, tokenizer: BertTokenizer, tensors: Mapping[str, np.ndarray]) -> None:
    """Refuses workers with other models, before variables are made, whose values they share."""
    values = json.loads(config.to_json_string(use_diff=False))
    check_same(
        lambda: {
            "config.json": {name: value for name, value in values.items() if name not in _OF_ITS_FILE},
            "vocabulary": f"{tokenizer.vocab_size} tokens, {checksum(tokenizer.vocab)}",
            "tokenizer": tokenizer.casing,
            "weights": f"{len(tensors)} of the file, {checksum(*(tensors[name] for name in sorted(tensors)))}",
        },
        rule="All workers must have the same model",
        way_out="Give each a copy of the same directory",
    )


def _check_shapes(
    directory: pathlib.Path, stored: Mapping[str, weights.Stored], config: BertConfig, head: Head | None
) -> None:
    """Refuses weights that are not those of `config`; pooler and head may be missing, and `head` None."""
    shapes = encoder_shapes(config)
    missing = [name for name in shapes if name not in stored and name not in _POOLER]
    shapes |= head.shapes(stored, config) if head else {}
    misshapen = [name for name, shape in shapes.items() if name in stored and stored[name].shape != shape]
    if missing or misshapen:
        what = weights.describe_mismatch(missing, misshapen, stored, shapes)
        instead = weights.found_instead(missing, stored)
        todo = "Save them under the names of transformers' BERT" if instead else "Check that both are of the same model"
        raise UsageError(
            "The weights must be those that config.json describes. "
            f"Received: {weights.find_weight_file(directory)} with {what}{instead and f', but with {instead}'}. {todo}."
        )


def _create(config: BertConfig, head: Head) -> TFBertPreTrainedModel:
    """A model whose variables exist, all 0; their values are assigned later."""
    from tfbert.private import import_modeling_tf_bert  # TensorFlow with it, which a bad flag need not wait for.

    with without_collections():
        modeling_tf_bert = import_modeling_tf_bert()
    get_initializer, logger = modeling_tf_bert.get_initializer, logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)  # It warns that version 5 ends TensorFlow support; tfbert pins the version.
    modeling_tf_bert.get_initializer = lambda initializer_range: "zeros"  # Random values would be wasted.
    try:
        try:
            model = getattr(modeling_tf_bert, f"TF{head.architecture}")(config)
        except (ValueError, KeyError) as error:  # Heads that do not divide the hidden size, an unknown activation.
            what = first_line(error)
            raise UsageError(f"config.json must describe a BERT model. Received: {what}. Repair it.") from None
        model.build_in_name_scope()
    finally:
        modeling_tf_bert.get_initializer = get_initializer
        logger.setLevel(level)
    return model


def _draw(name: str, shape: tuple[int, ...], seed: int, initializer_range: float) -> np.ndarray:
    """A new weight's values, float32: BERT's initialisation as a pure function of the seed and the name."""
    if name.endswith("LayerNorm.weight"):
        return np.ones(shape, np.float32)
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return rng.standard_normal(shape, np.float32) * np.float32(initializer_range)
