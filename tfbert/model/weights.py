"""Weight files of every format, as arrays under one naming; and assigning them to a model's variables.

A directory holds `bert_config.json`, `vocab.txt` and `bert_model.ckpt.index` with its data files, as BERT, its
miniatures and SciBERT were published, or one `model.ckpt-STEP.*` that Google's `run_classifier.py` left.

| variable | tensor | |
| --- | --- | --- |
| `bert/embeddings/word_embeddings` | `bert.embeddings.word_embeddings.weight` | |
| `bert/encoder/layer_0/output/dense/kernel` | `bert.encoder.layer.0.output.dense.weight` | transposed |
| `bert/encoder/layer_0/output/LayerNorm/gamma` | `bert.encoder.layer.0.output.LayerNorm.weight` | |
| `output_weights`, `output_bias` | `classifier.weight`, `classifier.bias` | |
| `cls/seq_relationship/output_weights`, `.../output_bias` | `cls.seq_relationship.weight`, `....bias` | |
| `cls/predictions/output_bias` | `cls.predictions.bias` | |

The naming is that of PyTorch's `BertForSequenceClassification` and the like, with PyTorch's shapes:

| variable of the TensorFlow model | tensor | |
| --- | --- | --- |
| `bert/embeddings/word_embeddings/weight:0` | `bert.embeddings.word_embeddings.weight` | |
| `bert/embeddings/position_embeddings/embeddings:0` | `bert.embeddings.position_embeddings.weight` | |
| `bert/encoder/layer_._0/output/dense/kernel:0` | `bert.encoder.layer.0.output.dense.weight` | transposed |
| `bert/encoder/layer_._0/output/LayerNorm/gamma:0` | `bert.encoder.layer.0.output.LayerNorm.weight` | |
| `bert/encoder/layer_._0/output/LayerNorm/beta:0` | `bert.encoder.layer.0.output.LayerNorm.bias` | |
| `classifier/kernel:0` | `classifier.weight` | transposed |
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.data.reading import file_beside, read_json_object
from tfbert.errors import RunError, UsageError, first_line
from tfbert.model import keras_hub
from tfbert.model.layout import pytorch_path

if TYPE_CHECKING:
    import keras


CONFIG = "bert_config.json"
# The optimizer's state, which Google's training stored among the weights.
_NOT_WEIGHTS = re.compile(r"(^|/)(adam_m|adam_v|AdamWeightDecayOptimizer(_1)?|global_step)$")


SAFETENSORS, SAFETENSORS_INDEX, H5, TORCH = WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "tf_model.h5",
    "pytorch_model.bin",
)
"""Names that a weight file can have; the first one present is used, else a checkpoint of TensorFlow 1."""

Named = tuple[str, Any, bool]
"""A weight's PyTorch name, its variable, and whether it is transposed there."""
_READABLE = "A weight file must be readable and whole"
# Buffers that older versions of transformers saved; they hold 0, 1, 2, ... and nothing learned.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_TF_LEAVES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
_TF_LEAVES |= {"output_weights": "weight", "output_bias": "bias"}


def find_weight_file(directory: pathlib.Path) -> pathlib.Path | None:
    """The directory's weight file (the index file of a TensorFlow 1 checkpoint), or None.

    Raises:
        UsageError: for several checkpoints, whatever their names.
    """
    directory = keras_hub.plain(directory)
    found = [directory / name for name in WEIGHT_FILES if (directory / name).is_file()]
    if not found and len(found := sorted(directory.glob("*.index"))) > 1:
        rule = "A directory must hold one checkpoint of TensorFlow 1"
        received = f"{directory} with {list_names(path.name for path in found)}"
        raise UsageError(f"{rule}. Received: {received}. Keep only the one to use.")
    return found[0] if found else None


@dataclasses.dataclass(frozen=True)
class Stored:
    """A weight in an open file, whose shape is known before any of it is read.

    Attributes:
        path: The file, for messages.
        shape: As in PyTorch.
        get: Reads the array as the file holds it.
        is_transposed: Whether that is the transpose of PyTorch's matrix.
    """

    path: pathlib.Path
    shape: tuple[int, ...]
    get: Callable[[], np.ndarray]
    is_transposed: bool

    def read(self) -> np.ndarray:
        """The array in PyTorch's shape, as float32 whatever its floating-point type in the file.

        Raises:
            UsageError: if it cannot be read, or holds anything but floating-point numbers.
        """
        try:
            array = self.get()
            if array.dtype.kind not in "fV":  # ml_dtypes' bfloat16 is of kind V.
                raise ValueError(f"it holds {array.dtype} in place of floating-point numbers")
            array = array.astype(np.float32, copy=False)
        except Exception as error:  # On a damaged or malicious file, any library can raise anything.
            raise _damaged(self.path, error) from None
        return array.T if self.is_transposed else array


@contextlib.contextmanager
def open_weights(path: pathlib.Path, prefix: str = "", parts: tuple[str, ...] = ()) -> Iterator[dict[str, Stored]]:
    """Opens a weight file of any format.

    Args:
        path: What `find_weight_file` found. A safetensors file may follow PyTorch's or TensorFlow's naming, with or
            without the encoder's prefix, and may be an index of several files.
        prefix: That of the encoder, for names without it: those that begin with `parts`.
        parts: As above.

    Yields:
        Weights by PyTorch name. Read them while the file is open: a few bytes of a file may describe terabytes.

    Raises:
        UsageError: for a damaged file, a missing shard, or a PyTorch file where PyTorch is not installed.
    """
    readers = {SAFETENSORS_INDEX: _of_shards, TORCH: _of_torch}
    endings = {".h5": _of_h5, ".hdf5": _of_h5, ".safetensors": _of_safetensors}
    found = {}
    with contextlib.ExitStack() as files:
        try:
            for file, own, shape, get in readers.get(path.name, endings.get(path.suffix, _of_tf1))(path, files):
                name, is_transposed = pytorch_name(own)
                if not name.endswith(_BUFFERS):
                    shape = tuple(map(int, shape))[:: -1 if is_transposed else 1]
                    name = f"{prefix}.{name}" if name.startswith(parts) else name
                    stored = Stored(file, shape, get, is_transposed)
                    # A .h5 has shared weights in each layer that uses them.
                    if name in found and not np.array_equal(found[name].read(), stored.read()):
                        raise ValueError(f"it has two weights that are {name}, which differ")
                    found[name] = stored
        except UsageError:
            raise
        except Exception as error:  # As above.
            raise _damaged(path, error) from None
        yield found


def read_weights(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads all weights of a file that `open_weights` finds."""
    with open_weights(path) as found:
        return {name: stored.read() for name, stored in found.items()}


def pytorch_name(name: str) -> tuple[str, bool]:
    """PyTorch's name for a weight.

    Args:
        name: From a PyTorch file (`encoder.layer.0.output.LayerNorm.gamma`), a variable of Google's checkpoints
            (`bert/encoder/layer_0/output/LayerNorm/gamma`), or a TensorFlow variable's name without the model's own
            (`bert/encoder/layer_._0/output/LayerNorm/gamma:0`).

    Returns:
        The name, and whether the matrix has to be transposed.
    """
    transposed = False
    if "/" in name or name in ("output_weights", "output_bias"):
        # `mlm___cls/predictions` is `cls.predictions`; a list of layers is `layer_._0`, or `layer_0`.
        path = re.sub(r"/layer_(\d+)/", r"/layer/\1/", pytorch_path(name.removesuffix(":0")).replace("_._", "/"))
        stem, _, leaf = path.replace("/", ".").rpartition(".")
        transposed = leaf == "kernel"  # Google's outputs are `[labels, hidden]` already.
        if leaf.endswith("_embeddings"):
            stem, leaf = f"{stem}.{leaf}", "weight"
        name = f"{stem or 'classifier'}.{_TF_LEAVES.get(leaf, leaf)}"
    # TensorFlow 1 used these names, and the first PyTorch releases kept them.
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)), transposed


def get_weights_dict(model: keras.Model) -> dict[str, np.ndarray]:
    """The model's weights by PyTorch name: float32, in PyTorch's shapes, in contiguous memory; kernels with updates."""
    tensors = {}
    merged = {id(layer.base_kernel): layer.merged_kernel for layer in low_rank_layers(model)}
    for name, variable, transposed in named_variables(model):
        value = merged.get(id(variable), variable.numpy)()
        tensors[name] = np.ascontiguousarray(value.T if transposed else value, dtype=np.float32)
    return tensors


def set_weights_dict(model: keras.Model, tensors: Mapping[str, np.ndarray]) -> None:
    """Assigns every weight of a built model, on all replicas; low-rank updates begin anew, at 0.

    Args:
        model: One of our classes, under any strategy and precision policy.
        tensors: Arrays as `get_weights_dict` returns them. Arrays that the model does not have are ignored.

    Raises:
        UsageError: if one is missing or has another shape; nothing is assigned then.
    """
    assign(named_variables(model), tensors)
    for layer in low_rank_layers(model):
        layer.lora_kernel_b.assign(np.zeros(layer.lora_kernel_b.shape))


def assign(named: Iterable[Named], tensors: Mapping[str, np.ndarray]) -> None:
    """Assigns variables their values; see `set_weights_dict`."""
    named = [*named]
    if what := describe_mismatch(tensors, get_shapes(named)):
        rule = "The weights must be those of this model"
        raise UsageError(f"{rule}. Received: {what}. Pass the weights of the same model.")
    for name, variable, transposed in named:
        value = tensors[name]
        variable.assign(np.asarray(value.T if transposed else value, np.float32))


def get_shapes(named: Iterable[Named]) -> dict[str, tuple[int, ...]]:
    """The shape that each weight has in PyTorch, by PyTorch name."""
    return {name: tuple(v.shape[::-1] if transposed else v.shape) for name, v, transposed in named}


def low_rank_layers(model: keras.Model) -> list[Any]:
    """The layers of BERT whose kernels have a low-rank update."""
    from tfbert.private import layers_of  # Whoever reads a file alone does not wait for Keras.

    return [layer for layer in layers_of(model) if hasattr(layer, "merged_kernel") and layer.lora_enabled]


def write_weights(tensors: Mapping[str, np.ndarray], path: pathlib.Path) -> None:
    """Writes a safetensors file, marked as PyTorch's naming; an older file stays until the new one is whole.

    Raises:
        RunError: if it cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    partial = path.with_name(path.name + ".partial")
    # safetensors writes memory as it is, ignoring strides.
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    try:
        partial.unlink(missing_ok=True)  # Left by a kill, or a link, which must not be written through.
        partial.touch()
        mode = partial.stat().st_mode  # As the umask says; safetensors makes its files private.
        save_file(contiguous, partial, metadata={"format": "pt"})
        partial.chmod(mode)
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        partial.unlink(missing_ok=True)
        todo = "Check free space and permissions there."
        raise RunError(f"The weights must be written whole. Received: {path} ({first_line(error)}). {todo}") from error


def describe_mismatch(tensors: Mapping[str, np.ndarray | Stored], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """One phrase: which weights are missing, and which have another shape than in the model; empty for none."""
    missing = [name for name in shapes if name not in tensors]
    wrong = [
        f"{name} {list(tensors[name].shape)} in place of {list(shape)}"
        for name, shape in shapes.items()
        if name in tensors and tensors[name].shape != shape
    ]
    parts = [f"no {list_names(missing)}"] if missing else []
    return "; ".join(parts + ([f"another shape of {list_names(wrong)}"] if wrong else []))


def list_names(names: Iterable[str]) -> str:
    """The first three names, and if there are more, how many in all."""
    names = list(names)
    return ", ".join(names[:3]) + (f", ... ({len(names)} in all)" if len(names) > 3 else "")


def group_names(names: Iterable[str]) -> str:
    """All names, those that share their first two parts as one: `cls.predictions.* (5)`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(".".join(name.split(".")[:2]), []).append(name)
    return ", ".join(group[0] if len(group) == 1 else f"{key}.* ({len(group)})" for key, group in groups.items())


def named_variables(model: keras.Model) -> list[Named]:
    """Every weight; low-rank updates are parts of their kernels."""
    low = {id(v) for layer in low_rank_layers(model) for v in (layer.lora_kernel_a, layer.lora_kernel_b)}
    own = [variable for variable in model.weights if id(variable) not in low]
    named = [pytorch_name(variable.path.removeprefix(f"{model.path}/")) for variable in own]
    return [(name, variable, is_transposed) for (name, is_transposed), variable in zip(named, own, strict=True)]


# What a file holds: for each weight the file, its name there, its shape there, and what reads it.

Entries = Iterator[tuple[pathlib.Path, str, Iterable[int], Callable[[], np.ndarray]]]


def _of_safetensors(path: pathlib.Path, files: contextlib.ExitStack) -> Entries:
    from safetensors import safe_open

    file = files.enter_context(safe_open(path, framework="np"))
    for name in file.keys():  # noqa: SIM118 (it is no dict)
        yield path, name, file.get_slice(name).get_shape(), functools.partial(file.get_tensor, name)


def _of_shards(path: pathlib.Path, files: contextlib.ExitStack) -> Entries:
    if _is_lfs_pointer(path):
        raise ValueError
    listed = read_json_object(path, _READABLE).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise ValueError("without a weight_map that names a file for each weight")
    for name in sorted(set(listed.values())):
        yield from _of_safetensors(file_beside(path, name), files)


def _of_h5(path: pathlib.Path, files: contextlib.ExitStack) -> Entries:
    import h5py

    file, names = files.enter_context(h5py.File(path, "r")), []
    file.visit(names.append)
    for name in names:
        item = file[name]
        if isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                raise ValueError(f"{name} is stored in another file")
            # LAYER/MODEL/LAYER/.../kernel:0, where MODEL differs from class to class.
            yield path, "/".join(name.split("/")[2:]), item.shape, functools.partial(item.__getitem__, ())


def _of_torch(path: pathlib.Path, files: contextlib.ExitStack) -> Entries:
    try:
        import torch
    except ImportError:
        todo = "Run pip install -e '.[torch]' in the clone, or convert the file to model.safetensors."
        raise UsageError(f"{path.name} can only be read with PyTorch. Received: {path}. {todo}") from None

    def get(tensor: torch.Tensor) -> np.ndarray:  # NumPy has no bfloat16.
        return (tensor.float() if tensor.is_floating_point() else tensor).detach().numpy()

    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        unsafe = "Weights only load failed" in str(error)
        raise ValueError("it holds more than tensors, or is damaged" if unsafe else str(error)) from None
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise ValueError(f"it holds {list_names(map(repr, tensors))} in place of weights by their names")
    for name, tensor in tensors.items():
        yield path, name, tensor.shape, functools.partial(get, tensor)


def _of_tf1(path: pathlib.Path, files: contextlib.ExitStack) -> Entries:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(path.with_suffix("")))
    for name, shape in reader.get_variable_to_shape_map().items():
        if not _NOT_WEIGHTS.search(name):
            yield path, name, shape, functools.partial(reader.get_tensor, name)


def _damaged(path: pathlib.Path, error: Exception) -> UsageError:
    is_pointer = _is_lfs_pointer(path)
    reason = "a Git LFS pointer, not the file itself" if is_pointer else first_line(error)
    todo = "Run git lfs pull" if is_pointer else "Copy or download it again"
    return UsageError(f"{_READABLE}. Received: {path}: {reason}. {todo}.")


def _is_lfs_pointer(path: pathlib.Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(20).startswith(b"version https://git")
    except OSError:
        return False
