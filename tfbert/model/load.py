"""A model's files -> the weights of a model with a task's head; and back to files."""

from __future__ import annotations

import json
import logging
import pathlib
import shutil
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfbert.errors import RunError, UsageError, first_line
from tfbert.model import weights
from tfbert.model.head import Head

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig
    from tfbert.tokens.tokenizer import Tokenizer

log = logging.getLogger("tfbert")


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
    encoder = bert_config.encoder
    with weights.open_weights(weights.find_weight_file(directory), encoder.PREFIX, encoder.PARTS) as stored:
        # Before anything is read or built: a few bytes can describe more than a machine holds.
        _check_shapes(directory, stored, bert_config, head)
        parts = encoder.shapes(bert_config, head.kind if head else "Model")
        tensors = {name: stored[name].read() for name in parts if name in stored}
        of_head, reason = head.read(stored, bert_config) if head else ({}, "")
        return Read(tensors | of_head, reason, list(stored))


def fill(model: Any, read: Read, head: Head | None, *, seed: int, scale: float) -> list[str]:
    """Assigns all weights of a built model; what no file gave is drawn.

    Args:
        model: One of our classes.
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
    seconds = head.second_names(model.config) if head else ()
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


def save_pretrained(model: Any, tokenizer: Tokenizer | None, directory: pathlib.Path) -> None:
    """Writes model and tokenizer so that transformers loads them in PyTorch.

    `config.json` comes last: a directory that has it is complete.

    Args:
        model: One of our classes.
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
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"A model is saved as a directory. Received: {directory}, a file. Pass another path.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()  # Files are moved here from a new directory: none is written through a link.
        if tokenizer is not None:
            fills_masks = values["architectures"][0].endswith(("ForPreTraining", "ForMaskedLM"))
            tokenizer.save(partial, model_max_length=model.config.num_positions, fills_masks=fills_masks)
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


def _check_shapes(
    directory: pathlib.Path, stored: Mapping[str, weights.Stored], config: BertConfig, head: Head | None
) -> None:
    """Refuses weights that are not those of `config`; pooler and head may be missing, and `head` None."""
    shapes, prefix = config.encoder.shapes(config), f"{config.encoder.PREFIX}."
    missing = [name for name in shapes if name not in stored and not name.startswith(f"{prefix}pooler.")]
    shapes |= head.shapes(stored, config) if head else {}
    misshapen = [name for name, shape in shapes.items() if name in stored and stored[name].shape != shape]
    if missing or misshapen:
        what = weights.describe_mismatch(missing, misshapen, stored, shapes)
        instead = weights.found_instead(missing, stored, prefix)
        todo = "Save them under transformers' names" if instead else "Check that both are of the same model"
        raise UsageError(
            "The weights must be those that config.json describes. "
            f"Received: {weights.find_weight_file(directory)} with {what}{instead and f', but with {instead}'}. {todo}."
        )


def _draw(name: str, shape: tuple[int, ...], seed: int, initializer_range: float) -> np.ndarray:
    """A new weight's values, float32: BERT's initialisation as a pure function of the seed and the name."""
    if name.endswith("orm.weight"):  # LayerNorm, layer_norm, attn_norm.
        return np.ones(shape, np.float32)
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return rng.standard_normal(shape, np.float32) * np.float32(initializer_range)
