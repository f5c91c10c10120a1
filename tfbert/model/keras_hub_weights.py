"""Weights of KerasHub's BERT -> tensors under PyTorch's naming.

Keras 3 names a weight after the class of its layer and its place among the layers of that class:

| dataset of the backbone | tensor | |
| --- | --- | --- |
| `layers/reversible_embedding/vars/0` | `bert.embeddings.word_embeddings.weight` | |
| `layers/transformer_encoder_1/_feedforward_output_dense/vars/0` | `bert.encoder.layer.1.output.dense.weight` | transposed |
| `layers/transformer_encoder/_self_attention_layer/query_dense/vars/0` | `bert.encoder.layer.0.attention.self.query.weight` | [hidden, heads, size], transposed |
| `layers/dense/vars/0` | `bert.pooler.dense.weight` | transposed |

and in `task.weights.h5` `layers/dense/vars/0` is `classifier.weight`, transposed. In a `.keras` file, those of the backbone
are below `layers/bert_backbone/`.
"""  # noqa: E501 (a table)

from __future__ import annotations

import contextlib
import functools
import io
import math
import pathlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.data.foreign_files import file_beside, read_json_object
from tfbert.model.keras_hub import (
    ARCHIVE,
    CLASSIFIERS,
    JSON,
    MASKED,
    SHARDED,
    TASK_WEIGHTS,
    WEIGHTS,
    is_archive,
    opened,
    read_preset,
)

if TYPE_CHECKING:
    import h5py

_LAYERS = {
    "reversible_embedding/vars/0": "bert.embeddings.word_embeddings.weight",
    "position_embedding/vars/0": "bert.embeddings.position_embeddings.weight",
    "embedding/vars/0": "bert.embeddings.token_type_embeddings.weight",
    "layer_normalization": "bert.embeddings.LayerNorm",
    "dense": "bert.pooler.dense",
    "_self_attention_layer/query_dense": "attention.self.query",
    "_self_attention_layer/key_dense": "attention.self.key",
    "_self_attention_layer/value_dense": "attention.self.value",
    "_self_attention_layer/output_dense": "attention.output.dense",
    "_self_attention_layer_norm": "attention.output.LayerNorm",
    "_feedforward_intermediate_dense": "intermediate.dense",
    "_feedforward_output_dense": "output.dense",
    "_feedforward_layer_norm": "output.LayerNorm",
}
_OF_CLASSIFIER = {"dense": "classifier"}
_OF_MASKED_LM = {
    "masked_lm_head/_intermediate_dense": "cls.predictions.transform.dense",
    "masked_lm_head/_intermediate_layer_norm": "cls.predictions.transform.LayerNorm",
    "masked_lm_head/vars/0": "cls.predictions.bias",
}

_MOST_UNPACKED = 20
"""How many times as large as the archive its weights may be."""

Opened = dict[str, tuple[tuple[int, ...], bool, Callable[[], np.ndarray]]]
"""By PyTorch name: the matrix's shape in the file, whether that is PyTorch's transposed, and what reads the array."""


def is_weights(path: pathlib.Path) -> bool:
    """Whether a weight file, by its name, is one of KerasHub's."""
    return path.name in (WEIGHTS, SHARDED) or path.suffix == ARCHIVE


def open_weights(path: pathlib.Path, files: contextlib.ExitStack) -> Opened:
    """Opens what `keras_hub.find_weights` found, and the task's weights with it.

    Args:
        path: The file.
        files: Closes what is opened.

    Raises:
        UsageError, ValueError, OSError: for files that are damaged, missing or of another model.
    """
    preset = read_preset(path if is_archive(path) else path.parent)
    assert preset is not None  # It had been found.
    tables: list[tuple[str, dict[str, str]]] = []
    found: Opened = {}
    of_task = {MASKED: _OF_MASKED_LM, **dict.fromkeys(CLASSIFIERS, _OF_CLASSIFIER)}.get(preset.task, {})
    heads = preset.backbone.get("num_heads")
    if is_archive(path):
        outer = r"layers/\w+/" if preset.is_wrapped else ""
        tables = [(rf"{outer}layers/\w+/", _LAYERS), (outer, of_task)] if preset.task else [(outer, _LAYERS)]
        root = files.enter_context(opened(path))
        size = root.root.getinfo(WEIGHTS).file_size
        if size > _MOST_UNPACKED * path.stat().st_size:  # Keras does not compress, and weights hardly can be.
            raise ValueError(f"its {WEIGHTS} unpacks to {size:,} bytes")
        content = files.enter_context((root / WEIGHTS).open("rb"))
        # Read whole: in an archive, each step back would read from its beginning.
        return _datasets(_h5(io.BytesIO(content.read()), files), tables, heads)
    for file in _shards(path) if path.name == SHARDED else [path]:
        found |= _datasets(_h5(file, files), [("", _LAYERS)], heads)
    if of_task and (path.parent / TASK_WEIGHTS).is_file():
        try:
            found |= _datasets(_h5(path.parent / TASK_WEIGHTS, files), [("", of_task)], heads)
        except (OSError, ValueError) as error:
            raise ValueError(f"{TASK_WEIGHTS} beside it: {error}") from None
    return found


def tensor_name(dataset: str, layers: dict[str, str]) -> tuple[str, bool]:
    """PyTorch's name for a dataset, and whether its matrix has to be transposed; the dataset's own where it has none.

    Args:
        dataset: `layers/CLASS_NUMBER/PART/vars/NUMBER`.
        layers: What layers and parts are called.
    """
    inner, stem = dataset.removeprefix("layers/"), ""
    if block := re.match(r"transformer_encoder(?:_(\d+))?/", inner):
        stem, inner = f"bert.encoder.layer.{int(block[1] or 0)}.", inner[block.end() :]
    if inner in layers:
        return stem + layers[inner], False
    layer, _, number = inner.rpartition("/vars/")
    if layer not in layers or number not in ("0", "1"):
        return dataset, False
    name = stem + layers[layer]
    return f"{name}.{('weight', 'bias')[int(number)]}", number == "0" and not name.endswith("LayerNorm")


def _datasets(file: h5py.File, tables: list[tuple[str, dict[str, str]]], heads: Any) -> Opened:
    """The weights of a file.

    Args:
        file: As Keras 3 writes it.
        tables: The expressions that names may begin with, and what is below each.
        heads: The attention heads that there must be.
    """
    import h5py

    found: Opened = {}

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if not isinstance(item, h5py.Dataset) or name.startswith("optimizer/"):
            return
        if item.external or item.is_virtual:
            raise ValueError(f"{name} is stored in another file")
        # As Keras names them now; early versions had other names for the same.
        plain = name.replace("_layer_checkpoint_dependencies/", "layers/")
        plain = plain.replace("_self_attention_layer/_", "_self_attention_layer/")
        own, is_transposed = name, False
        for begin, layers in tables:
            if own == name and (match := re.match(begin + "(?=layers/)", plain)):
                inner = plain[match.end() :]
                own, is_transposed = tensor_name(inner, layers)
                own = name if own == inner else own
        shape = tuple(item.shape)
        if "_self_attention_layer/" in name:
            split = shape[-3:-1] if "output_dense" in name and len(shape) == 3 else shape[-2:]
            if len(shape) > 1 and split[0] != heads:
                raise ValueError(f"{name} has {split[0]} attention heads, config.json {heads}")
            if len(shape) == 3:
                shape = (shape[0], shape[1] * shape[2]) if "output_dense" not in name else (math.prod(split), shape[2])
            elif len(shape) == 2:
                shape = (math.prod(shape),)
        found[own] = (shape, is_transposed, functools.partial(_read, item, shape))

    file.visititems(visit)
    return found


def _read(item: h5py.Dataset, shape: tuple[int, ...]) -> np.ndarray:
    array = item[()]
    if item.attrs.get("dtype") == "bfloat16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    return array.reshape(shape)


def _h5(file: pathlib.Path | io.BytesIO, files: contextlib.ExitStack) -> h5py.File:
    import h5py

    return files.enter_context(h5py.File(file, "r"))


def _shards(index: pathlib.Path) -> list[pathlib.Path]:
    listed = read_json_object(index, JSON).get("weight_map")
    values = listed.values() if isinstance(listed, dict) else ()
    names = {name for value in values for name in (value if isinstance(value, list) else [value])}
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("without a weight_map that names a file for each weight")
    return [file_beside(index, name) for name in sorted(names)]
