"""`--export_format=onnx` and `tflite`: a saved model -> a file that takes token ids and gives logits, without its
tokenizer, whose files lie beside it."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfbert.batches.inputs import INPUTS
from tfbert.devices.quiet import stderr_held_back
from tfbert.errors import RunError, UsageError, first_line
from tfbert.tasks.registry import entry_of
from tfbert.tasks.trained import TrainedModel
from tfbert.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig

_OPSET = 18
"""The newest that tf2onnx 1.17 writes."""
_WIDTHS = (32, 5)
"""Of the rows that the file's logits are checked on: one file takes them all."""
_LARGEST_ERROR = 1e-3
_ROWS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Format:
    """A format of files.

    Attributes:
        file: What the file is called.
        packages: The packages without which it is neither written nor checked.
        convert: The model's function and its module -> the content of the file.
        run: A file, inputs -> logits.
    """

    file: str
    packages: tuple[str, ...]
    convert: Callable[[tf.types.experimental.PolymorphicFunction, tf.Module], bytes]
    run: Callable[[pathlib.Path, Mapping[str, np.ndarray]], np.ndarray]


def check_packages(export_format: str) -> None:
    """Refuses a format whose packages are not installed.

    Raises:
        UsageError: if one is missing.
    """
    missing = [name for name in FORMATS[export_format].packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"export_format={export_format} needs {' and '.join(FORMATS[export_format].packages)}. "
            f"Received: a Python without {' and '.join(missing)}. "
            f"Run in the clone: pip install -e '.[{export_format}]'."
        )


def write_token_model(model: TrainedModel, export_format: str, directory: pathlib.Path) -> dict[str, Any]:
    """Writes a model's file and its tokenizer's, and computes some rows with the file.

    Args:
        model: The model.
        export_format: A key of `FORMATS`, for which `check_packages` found everything.
        directory: A new or empty one; made if needed.

    Returns:
        The content of `export_results.json`: `format`, `file`, `num_texts`, `max_seq_length`, `label_names`,
        `weights`, the task's options, and `largest_logit_error`, over random pairs of several lengths.

    Raises:
        UsageError: for a model that the converter does not take.
        RunError: if the file computes other logits than the model.
    """
    form = FORMATS[export_format]
    module = tf.Module()
    module.weights = [v.value for v in model.classifier.weights]  # A converter reads what the module holds.

    def logits(input_ids: tf.Tensor, attention_mask: tf.Tensor, token_type_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        values = (input_ids, attention_mask, token_type_ids)
        return {"logits": model.logits(dict(zip(INPUTS, values, strict=True)))}

    directory.mkdir(parents=True, exist_ok=True)
    path, failed = directory / form.file, None
    with stderr_held_back():
        try:
            path.write_bytes(form.convert(tf.function(logits, autograph=False), module))
        except OSError:
            raise
        except Exception as error:  # Of several libraries, each with classes of its own.
            failed = error
    if failed is not None:
        raise UsageError(
            f"The converter must know every operation of the model. Received: {first_line(failed)[:200]}. "
            "Export the model as a SavedModel."
        ) from failed
    positions = model.classifier.config.max_position_embeddings
    model.tokenizer.save(directory, model_max_length=positions)
    errors = []
    for width in _WIDTHS:
        inputs = random_pairs(model.classifier.config, model.tokenizer, width=min(width, positions))
        own = model.logits({name: tf.constant(value) for name, value in inputs.items()})
        with stderr_held_back():
            found = form.run(path, inputs)
        # Of tokens alone: what padding has for an answer is -10,000, where float32 has steps of 1e-3.
        real = inputs["attention_mask"] > 0 if found.ndim == 3 else slice(None)
        errors.append(np.abs(found - own.numpy())[real].max())
    largest = float(np.max(errors))
    if not largest <= _LARGEST_ERROR:  # Also where it is NaN.
        raise RunError(
            f"The file must give the model's logits. Received: logits that differ by {largest:.2g}. "
            "Export the model as a SavedModel, and report this with the versions of the converter."
        )
    return {
        "format": export_format,
        "file": form.file,
        "num_texts": model.num_texts,
        "max_seq_length": model.max_seq_length,
        "label_names": list(model.task.label_names),
        "weights": "float32",
        **entry_of(model.task.name).served.settings(model.task),
        "largest_logit_error": largest,
    }


def _specs() -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None, None], tf.int32, name=name) for name in INPUTS]


def _to_onnx(function: tf.types.experimental.PolymorphicFunction, module: tf.Module) -> bytes:
    import tf2onnx

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    model, _ = tf2onnx.convert.from_function(function, input_signature=_specs(), opset=_OPSET)
    for value in (*model.graph.input, *model.graph.output):
        for size, name in zip(value.type.tensor_type.shape.dim, ("rows", "width"), strict=False):
            if not size.dim_value:
                size.dim_param = name  # Said once for all inputs; tf2onnx gives each a name of its own.
    return model.SerializeToString()


def _run_onnx(path: pathlib.Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["logits"], dict(inputs))[0]


def _to_tflite(function: tf.types.experimental.PolymorphicFunction, module: tf.Module) -> bytes:
    concrete = function.get_concrete_function(*_specs())
    return tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()


def _run_tflite(path: pathlib.Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(model_path=str(path)).get_signature_runner()(**inputs)["logits"]


FORMATS = {
    "onnx": _Format(file="model.onnx", packages=("tf2onnx", "onnxruntime"), convert=_to_onnx, run=_run_onnx),
    "tflite": _Format(file="model.tflite", packages=("ai_edge_litert",), convert=_to_tflite, run=_run_tflite),
}
"""By their names in `--export_format`."""


def random_pairs(config: BertConfig, tokenizer: Tokenizer, *, width: int) -> dict[str, np.ndarray]:
    """The inputs of random pairs of several lengths.

    Args:
        config: The model's configuration.
        tokenizer: Its tokenizer.
        width: The longest, in tokens; no more than the model has positions.

    Returns:
        `input_ids`, `attention_mask` and `token_type_ids`, int32 `[8, width]`, the same in each call.
    """
    rng, width = np.random.default_rng(0), min(width, config.max_position_embeddings)
    lengths = rng.integers(1, width + 1, _ROWS)
    mask = (np.arange(width) < lengths[:, None]).astype(np.int32)
    second = (np.arange(width) >= lengths[:, None] // 2) & (config.type_vocab_size > 1)
    return {
        "input_ids": (rng.integers(0, tokenizer.vocab_size, mask.shape) * mask).astype(np.int32),
        "attention_mask": mask,
        "token_type_ids": second.astype(np.int32) * mask,
    }
