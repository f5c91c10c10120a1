"""`--mode=export`: a saved model -> a SavedModel that takes raw text and needs tensorflow and tensorflow_text alone, or
a file of ONNX or TFLite."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.bert.models import with_float16_matrices
from tfbert.config.run import Config
from tfbert.devices.process import log_if_slow, stderr_held_back
from tfbert.devices.runtime import start_devices
from tfbert.errors import RunError, UsageError, first_line
from tfbert.model.weights import get_weights_dict
from tfbert.modes.load import check_can, load_trained_model
from tfbert.output import output_dir
from tfbert.tasks.prediction import TrainedModel
from tfbert.tasks.registry import entry_of

log = logging.getLogger("tfbert")

EXPORT_RESULTS = "export_results.json"
_LAST = ("saved_model.pb", "model.onnx", "model.tflite")
"""Without these nothing is loaded."""
_OWN = (*_LAST, "fingerprint.pb", "variables", "assets", "tokenizer.json", "vocab.txt", "tokenizer_config.json")
_OWN += ("special_tokens_map.json", EXPORT_RESULTS)
"""In the order in which an earlier export is removed: what is left of one is never loaded, and is known as such."""
_PARTIAL = ".export.partial"


def export(config: Config) -> dict[str, Any]:
    """Writes a SavedModel or a file for token ids as the configuration says.

    Args:
        config: With `mode="export"`.

    Returns:
        For ONNX and TFLite, see `write_token_model`. For a SavedModel, the content of `export_results.json` beside it:
        `num_texts`, `max_seq_length`, `label_names`, `weights`, `long_texts` where it is not `cut`, the task's options
        that it includes; and for float16 weights `largest_weight_error`, by how much one was rounded.

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
        RunError: if it cannot be written.
    """
    strategy, _ = start_devices(config)
    directory = pathlib.Path(os.path.realpath(config.output.output_dir))  # "." has no name; a link points elsewhere.
    check_directory(directory, overwrite=config.output.overwrite_output_dir)
    export_format = config.export.export_format
    packages = FORMATS.get(export_format, ())
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        rule = f"export_format={export_format} needs {' and '.join(packages)}"
        todo = f"Run in the clone: pip install -e '.[{export_format}]'."
        raise UsageError(f"{rule}. Received: a Python without {' and '.join(missing)}. {todo}")
    with strategy.scope():
        model = load_trained_model(config)
    entry = entry_of(model.task.name)
    check_can(model.task, entry.served, "export")
    served = entry.served.value
    takes_ids = export_format in FORMATS or not served.takes_text(model)
    if takes_ids and model.tokenizer.long_texts == "windows":
        log.warning(
            "The export takes rows of token ids, and gives logits for each. The model was trained on windows: of a "
            "text longer than %d tokens, pass a row for each window, and take the mean of their logits.",
            model.max_seq_length,
        )
    if export_format in FORMATS:
        with log_if_slow("converting the model"):
            return _write(functools.partial(write_token_model, model, export_format), directory)
    if takes_ids:
        log.info("The export takes token ids: its graph does not hold the tokenizer, whose files lie beside it.")
    if served.num_texts is not None:
        model = dataclasses.replace(model, num_texts=served.num_texts)
    model = dataclasses.replace(model, num_texts=_num_texts(model, config.data.text_column))
    results = _about(model, "float16" if config.export.export_float16 else "float32")
    if config.export.export_float16:
        with strategy.scope():
            halved = with_float16_matrices(model.classifier)
        whole, half = get_weights_dict(model.classifier), get_weights_dict(halved)
        if endless := [name for name, value in half.items() if not np.isfinite(value).all()]:
            rule = "float16 holds numbers up to 65504"
            raise UsageError(f"{rule}. Received: larger weights in {', '.join(endless[:3])}. Drop --export_float16.")
        results["largest_weight_error"] = max(float(np.abs(whole[name] - half[name]).max()) for name in whole)
        model = dataclasses.replace(model, classifier=halved)
    with log_if_slow("tracing and writing the SavedModel"):
        module = served(model)

        def save(partial: pathlib.Path) -> dict[str, Any]:
            tf.saved_model.save(module, str(partial), signatures=module.signature_functions())
            if takes_ids:
                model.tokenizer.save(partial, model_max_length=model.max_seq_length)
            return results

        return _write(save, directory)


def _about(model: TrainedModel, weights: str = "float32") -> dict[str, Any]:
    """What `export_results.json` says of a model."""
    return {
        "num_texts": model.num_texts,
        "max_seq_length": model.max_seq_length,
        "label_names": list(model.task.label_names),
        "weights": weights,
        **model.tokenizer.notes(),
        **entry_of(model.task.name).served.value.settings(model.task),
    }


def _num_texts(model: TrainedModel, columns: Sequence[str]) -> int:
    """1 for single texts, 2 for pairs: as the model says, else the columns asked for.

    Raises:
        UsageError: for columns that the model does not take.
    """
    if columns:
        model.check_texts(columns, "text_column")
    if model.num_texts is not None:
        return model.num_texts
    if columns:
        return len(columns)
    log.info(
        "The model does not say whether it takes single texts or pairs: exported for single texts. "
        "--text_column=FIRST,SECOND exports it for pairs."
    )
    return 1


def check_directory(directory: pathlib.Path, *, overwrite: bool) -> None:
    """Refuses a directory that an export cannot use.

    Raises:
        UsageError: for one that holds anything, but for an earlier export that may be replaced.
    """
    output_dir.check_writable(directory)
    present = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    present.discard(_PARTIAL)  # Left by an export that was killed.
    if present and not overwrite:
        todo = "Pass another, or --overwrite_output_dir to replace an earlier export."
        raise UsageError(f"output_dir must be new or empty. Received: output_dir={str(directory)!r}. {todo}")
    # Without our file, they are another program's assets or SavedModel.
    if others := present - {*_OWN} or (present if EXPORT_RESULTS not in present else ()):
        rule = "overwrite_output_dir replaces an earlier export, and nothing else"
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r}, which holds {min(others)!r}. Pass another.")


def _write(save: Callable[[pathlib.Path], dict[str, Any]], directory: pathlib.Path) -> dict[str, Any]:
    """Saves under another name first: whatever has the final name is whole.

    A new directory appears with all its files. An existing directory may be a mount point, or in a directory that
    cannot be written. It cannot be replaced then, so it gets new contents.
    """
    is_new = not directory.exists()
    partial = directory.with_name(f".{directory.name}.partial") if is_new else directory / _PARTIAL
    try:
        shutil.rmtree(partial, ignore_errors=True)
        output_dir.make(partial.parent)
        results = save(partial)
        output_dir.write_json(partial / EXPORT_RESULTS, results)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if not isinstance(error, (OSError, tf.errors.OpError)):
            raise
        rule, todo = "An export must be writable", "Check free space and permissions there."
        raise RunError(f"{rule}. Received: {str(directory)!r} ({first_line(error)}). {todo}") from error
    try:
        partial.rename(directory) if is_new else _replace_contents(directory, partial)
    except OSError as error:
        rule, todo = "A finished export must be movable", f"What is not there is in {partial}: move it."
        raise RunError(f"{rule}. Received: {str(directory)!r} ({error.strerror}). {todo}") from error
    for name, value in results.items():
        log.info("%s: %s", name, value)
    log.info("exported to %s", directory)
    return results


def _replace_contents(directory: pathlib.Path, partial: pathlib.Path) -> None:
    """Removes an earlier export, and moves the new one into its place; what nothing is loaded without comes last."""
    for name in _OWN:
        output_dir.remove(directory / name)
    for path in sorted(partial.iterdir(), key=lambda path: _OWN.index(path.name), reverse=True):
        path.rename(directory / path.name)
    partial.rmdir()


_OPSET = 18
"""The newest that tf2onnx 1.17 writes."""
_WIDTHS = (32, 5)
"""Of the rows that the file's logits are checked on: one file takes them all."""
_LARGEST_ERROR = 1e-3
_ROWS = 8
FORMATS = {"onnx": ("tf2onnx", "onnxruntime"), "tflite": ("ai_edge_litert",)}
"""The packages without which a file is neither written nor checked, by its format's name in `--export_format`."""


def write_token_model(model: TrainedModel, export_format: str, directory: pathlib.Path) -> dict[str, Any]:
    """Writes a model's file and its tokenizer's, and computes some rows with the file.

    Args:
        model: The model.
        export_format: A key of `FORMATS`, whose packages are there.
        directory: A new or empty one; made if needed.

    Returns:
        The content of `export_results.json`: `format`, `file`, `num_texts`, `max_seq_length`, `label_names`,
        `weights`, `long_texts` where it is not `cut`, the task's options, and `largest_logit_error`, over random
        pairs of several lengths.

    Raises:
        UsageError: for a model that the converter does not take.
        RunError: if the file computes other logits than the model.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path, failed = directory / f"model.{export_format}", None
    with stderr_held_back():
        try:
            path.write_bytes(content_of(model, export_format))
        except OSError:
            raise
        except Exception as error:  # Of several libraries, each with classes of its own.
            failed = error
    if failed is not None:
        rule = "The converter must know every operation of the model"
        raise UsageError(f"{rule}. Received: {first_line(failed)[:200]}. Export the model as a SavedModel.") from failed
    config, errors = model.classifier.config, []
    model.tokenizer.save(directory, model_max_length=config.num_positions)
    for width in (min(width, config.num_positions) for width in _WIDTHS):
        # Random pairs of several lengths.
        rng = np.random.default_rng(0)
        lengths = rng.integers(1, width + 1, [_ROWS, 1])
        mask, second = np.arange(width) < lengths, np.arange(width) >= lengths // 2
        ids = rng.integers(0, model.tokenizer.vocab_size, mask.shape)
        values = {"input_ids": ids, "attention_mask": 1, "token_type_ids": second & (config.type_vocab_size > 1)}
        inputs = {name: (values[name] * mask).astype(np.int32) for name in config.encoder.inputs}
        own = model.logits({name: tf.constant(value) for name, value in inputs.items()})
        with stderr_held_back():
            found = logits_of_file(path, inputs)
        # Of tokens alone: what padding has for an answer is -10,000, where float32 has steps of 1e-3.
        real = inputs["attention_mask"] > 0 if found.ndim == 3 else slice(None)
        errors.append(np.abs(found - own.numpy())[real].max())
    largest = float(np.max(errors))
    if not largest <= _LARGEST_ERROR:  # Also where it is NaN.
        todo = "Export the model as a SavedModel, and report this with the versions of the converter."
        raise RunError(f"The file must give the model's logits. Received: logits that differ by {largest:.2g}. {todo}")
    return {"format": export_format, "file": path.name, **_about(model), "largest_logit_error": largest}


def content_of(model: TrainedModel, export_format: str) -> bytes:
    """The content of a file that takes token ids and gives logits."""
    names = model.classifier.config.encoder.inputs
    specs = [tf.TensorSpec([None, None], tf.int32, name=name) for name in names]
    module = tf.Module()
    module.weights = [v.value for v in model.classifier.weights]  # A converter reads what the module holds.

    def logits(
        input_ids: tf.Tensor, attention_mask: tf.Tensor, token_type_ids: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        values = (input_ids, attention_mask, token_type_ids)
        return {"logits": model.logits(dict(zip(names, values, strict=False)))}

    function = tf.function(logits, autograph=False)
    if export_format == "tflite":
        concrete = function.get_concrete_function(*specs)
        return tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()
    import tf2onnx

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    proto, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=_OPSET)
    for value in (*proto.graph.input, *proto.graph.output):
        for size, name in zip(value.type.tensor_type.shape.dim, ("rows", "width"), strict=False):
            if not size.dim_value:
                size.dim_param = name  # Said once for all inputs; tf2onnx gives each a name of its own.
    return proto.SerializeToString()


def logits_of_file(path: pathlib.Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """What a file computes of some inputs."""
    if path.suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(model_path=str(path)).get_signature_runner()(**inputs)["logits"]
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["logits"], dict(inputs))[0]
