"""Google's original TensorFlow 1 checkpoints -> tensors under PyTorch's naming.

A directory holds `bert_config.json`, `vocab.txt` and `bert_model.ckpt.index` with its data files, as BERT, its
miniatures and SciBERT were published, or the `model.ckpt-STEP.*` that Google's `run_classifier.py` left; of several,
the one that the file `checkpoint` names as the newest.

| variable | tensor | |
| --- | --- | --- |
| `bert/embeddings/word_embeddings` | `bert.embeddings.word_embeddings.weight` | |
| `bert/encoder/layer_0/output/dense/kernel` | `bert.encoder.layer.0.output.dense.weight` | transposed |
| `bert/encoder/layer_0/output/LayerNorm/gamma` | `bert.encoder.layer.0.output.LayerNorm.weight` | |
| `output_weights`, `output_bias` | `classifier.weight`, `classifier.bias` | |
| `cls/seq_relationship/output_weights`, `.../output_bias` | `cls.seq_relationship.weight`, `....bias` | |
| `cls/predictions/output_bias` | `cls.predictions.bias` | |
"""

from __future__ import annotations

import functools
import logging
import pathlib
import re
from collections.abc import Callable, Sequence

import numpy as np

from tfbert.errors import UsageError

log = logging.getLogger("tfbert")

CONFIG = "bert_config.json"
_PUBLISHED, _STATE = "bert_model.ckpt.index", "checkpoint"
# The optimizer's state, which Google's training stored among the weights.
_NOT_WEIGHTS = re.compile(r"(^|/)(adam_m|adam_v|AdamWeightDecayOptimizer(_1)?|global_step)$")


def find_checkpoint(directory: pathlib.Path) -> pathlib.Path | None:
    """The index file of the directory's checkpoint; None without one.

    Raises:
        UsageError: for several checkpoints, none of them with the usual name or named by the file `checkpoint`.
    """
    return _choose(directory)[0]


def _choose(directory: pathlib.Path) -> tuple[pathlib.Path | None, str]:
    """The index file, and a line about the choice; empty where there was none."""
    found, newest = sorted(directory.glob("*.ckpt*.index")), _named_newest(directory)
    named = directory / f"{newest}.index"
    if newest and named.is_file():
        others = len(set(found) - {named})
        line = f"Of {others + 1} checkpoints, the weights are those of {newest}, which {directory / _STATE} names."
        return named, line if others else ""
    missing = f"the file {_STATE} names {newest}, which is not there" if newest else ""
    usual = directory / _PUBLISHED
    if len(found) > 1 and (missing or usual not in found):
        raise UsageError(
            "A directory must hold one checkpoint, or name the newest in its file checkpoint. "
            f"Received: {directory} with {', '.join(path.name for path in found[:3])}{missing and f'; {missing}'}. "
            "Keep only the one to use."
        )
    index = usual if usual in found else found[0] if found else None
    if index is None or not (missing or len(found) > 1):
        return index, ""
    return index, f"The weights are those of {index.with_suffix('')}{f'; {missing}' if missing else ', of several'}."


def _named_newest(directory: pathlib.Path) -> str:
    """The name of the checkpoint that the directory's file `checkpoint` calls the newest; empty without one.

    The file may give a path, of the machine that it was written on: the checkpoint has moved with it.
    """
    if not (directory / _STATE).is_file():
        return ""
    import tensorflow as tf

    try:
        state = tf.train.get_checkpoint_state(str(directory))
    except ValueError:  # It names none, or is not UTF-8.
        state = None
    return re.split(r"[/\\]", state.model_checkpoint_path)[-1] if state else ""


def open_checkpoint(index: pathlib.Path) -> dict[str, tuple[Sequence[int], bool, Callable[[], np.ndarray]]]:
    """Opens a checkpoint.

    Args:
        index: What `find_checkpoint` found.

    Returns:
        By PyTorch name: the shape in the checkpoint, whether that is PyTorch's transposed, and a function that reads
        the array.

    Raises:
        ValueError: for a checkpoint that is damaged or lacks a data file.
    """
    import tensorflow as tf

    if line := _choose(index.parent)[1]:
        log.info("%s", line)
    try:
        reader = tf.train.load_checkpoint(str(index.with_suffix("")))
        shapes = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, RuntimeError) as error:
        raise ValueError(str(error)) from None
    found = {}
    for variable, shape in shapes.items():
        if not _NOT_WEIGHTS.search(variable):
            name, is_transposed = tensor_name(variable)
            found[name] = (shape, is_transposed, functools.partial(reader.get_tensor, variable))
    return found


def tensor_name(variable: str) -> tuple[str, bool]:
    """PyTorch's name for a variable of TensorFlow 1, and whether the matrix has to be transposed."""
    if variable in ("output_weights", "output_bias"):  # Already [num_labels, hidden_size].
        return f"classifier.{variable.removeprefix('output_').replace('weights', 'weight')}", False
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", variable).replace("/", ".")
    stem, _, leaf = name.rpartition(".")
    if stem.startswith("cls.") and leaf in ("output_weights", "output_bias"):  # Not transposed, as above.
        return f"{stem}.{leaf.removeprefix('output_').replace('weights', 'weight')}", False
    leaf = {"kernel": "weight", "gamma": "weight", "beta": "bias"}.get(leaf, leaf)
    return f"{stem}.{leaf}.weight" if leaf.endswith("_embeddings") else f"{stem}.{leaf}", name.endswith(".kernel")
