"""`--mode=export`: a saved model -> a SavedModel that takes raw text and needs tensorflow and tensorflow_text alone, or
a file of ONNX or TFLite."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.bert.build import with_float16_matrices
from tfbert.config.run import Config
from tfbert.devices.start import start_devices
from tfbert.devices.waiting import log_if_slow
from tfbert.errors import RunError, UsageError, first_line
from tfbert.model.weights import get_weights_dict
from tfbert.modes.evaluate import labelled_sets
from tfbert.modes.saved_model import as_saved, check_can, load_trained_model
from tfbert.modes.token_model import FORMATS, check_packages, write_token_model
from tfbert.output import output_dir
from tfbert.tasks.registry import entry_of
from tfbert.tasks.sets import Examples
from tfbert.tasks.trained import TrainedModel

log = logging.getLogger("tfbert")

EXPORT_RESULTS = "export_results.json"
_LAST = ("saved_model.pb", *(form.file for form in FORMATS.values()))
"""Without these nothing is loaded."""
_OWN = (*_LAST, "fingerprint.pb", "variables", "assets", EXPORT_RESULTS, "tokenizer.json")
_EXTRA, _WARM_UP = "assets.extra", "tf_serving_warmup_requests"
"""What docs/serving.md adds to an export for TensorFlow Serving: requests for the very model, which go with it."""
_OWN += (_EXTRA, "vocab.txt", "tokenizer_config.json", "special_tokens_map.json")
_PARTIAL, _EARLIER = ".export.partial", ".export.earlier"


def export(config: Config) -> dict[str, Any]:
    """Writes a SavedModel or a file for token ids as the configuration says.

    Args:
        config: With `mode="export"`.

    Returns:
        For ONNX and TFLite, see `write_token_model`. For a SavedModel, the content of `export_results.json` beside it:
        `num_texts`, `max_seq_length`, `label_names`, `weights`, the task's options that it includes; and for float16
        weights what they change: `largest_weight_error` and, with evaluation data, the metrics with the float32 and the
        float16 weights, `changed_labels`, `changed_tags` or `changed_answers`, and `largest_logit_error` (for
        questions, of the score of no answer).

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
        RunError: if it cannot be written.
    """
    strategy = start_devices(config).strategy
    directory = pathlib.Path(os.path.realpath(config.output.output_dir))  # "." has no name; a link points elsewhere.
    check_directory(directory, overwrite=config.output.overwrite_output_dir)
    has_data = bool(config.data.dataset or config.data.uses_files)
    rows = config.runtime.per_device_eval_batch_size
    export_format, config = config.export.export_format, as_saved(config)
    if export_format in FORMATS:
        check_packages(export_format)
    with strategy.scope():
        model = load_trained_model(config)
    entry = entry_of(model.task.name)
    check_can(model.task, entry.served_class, "export")
    if export_format in FORMATS:
        with log_if_slow("converting the model"):
            return _write(functools.partial(write_token_model, model, export_format), directory)
    if not model.tokenizer.in_graph:
        log.info("The export takes token ids: no graph holds this model's tokenizer, whose files lie beside it.")
    sets = labelled_sets(config.data, model) if has_data else {}
    served = entry.served
    if served.num_texts is not None:
        model = dataclasses.replace(model, num_texts=served.num_texts)
    num_texts = _num_texts(model, config.data.text_column, sets)
    model = dataclasses.replace(model, num_texts=num_texts)
    results = {
        "num_texts": num_texts,
        "max_seq_length": model.max_seq_length,
        "label_names": list(model.task.label_names),
        "weights": "float16" if config.export.export_float16 else "float32",
        **served.settings(model.task),
    }
    if config.export.export_float16:
        with strategy.scope():
            halved = dataclasses.replace(model, classifier=with_float16_matrices(model.classifier))
        results |= _loss_of(sets, strategy, rows, model, halved)
        model = halved
    with log_if_slow("tracing and writing the SavedModel"):
        module = served(model)

        def save(partial: pathlib.Path) -> dict[str, Any]:
            tf.saved_model.save(module, str(partial), signatures=module.signature_functions())
            if not model.tokenizer.in_graph:
                model.tokenizer.save(partial, model_max_length=model.max_seq_length)
            return results

        return _write(save, directory)


def _num_texts(model: TrainedModel, columns: Sequence[str], sets: Mapping[str, Examples]) -> int:
    """1 for single texts, 2 for pairs: as the model says, else the columns asked for, else the data.

    Raises:
        UsageError: for columns that the model does not take.
    """
    if columns:
        model.check_texts(columns, "text_column")
    if model.num_texts is not None:
        return model.num_texts
    if columns:
        return len(columns)
    if sets:
        return next(iter(sets.values())).num_texts
    log.info(
        "The model does not say whether it takes single texts or pairs: exported for single texts. "
        "--text_column=FIRST,SECOND exports it for pairs."
    )
    return 1


def _loss_of(
    sets: Mapping[str, Examples],
    strategy: tf.distribute.Strategy,
    rows_per_replica: int,
    model: TrainedModel,
    halved: TrainedModel,
) -> dict[str, Any]:
    """Measures what float16 weights change."""
    whole, half = get_weights_dict(model.classifier), get_weights_dict(halved.classifier)
    endless = [name for name, value in half.items() if not np.isfinite(value).all()]
    if endless:
        raise UsageError(
            "float16 holds numbers up to 65504. "
            f"Received: larger weights in {', '.join(endless[:3])}. Drop --export_float16."
        )
    results: dict[str, Any] = {
        "largest_weight_error": max(float(np.abs(whole[name] - half[name]).max()) for name in whole)
    }
    for prefix, examples in sets.items():
        pair = [each.predict(each.predictor(strategy, rows_per_replica), examples) for each in (model, halved)]
        for kind, found in zip(("float32", "float16"), pair, strict=True):
            metrics = model.task.metrics(found, examples)
            results |= {f"{prefix}_{kind}_{metric}": value for metric, value in metrics.items()}
        results[f"{prefix}_samples"] = len(examples)
        scores = [model.task.scores(found) for found in pair]
        results[f"{prefix}_largest_logit_error"] = float(np.abs(scores[0] - scores[1]).max())
        changes = model.task.changes(*pair)
        results |= {f"{prefix}_{name}": count for name, count in changes.items()}
    return results


def check_directory(directory: pathlib.Path, *, overwrite: bool) -> None:
    """Refuses a directory that an export cannot use.

    Raises:
        UsageError: for one that holds anything, but for an earlier export that may be replaced.
    """
    output_dir.check_writable(directory)
    present = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    present.discard(_PARTIAL)  # Left by an export that was killed.
    if present and not overwrite:
        raise UsageError(
            f"output_dir must be new or empty. Received: output_dir={str(directory)!r}. "
            "Pass another, or --overwrite_output_dir to replace an earlier export."
        )
    others = present - {*_OWN, _EARLIER}
    others |= {f"{_EXTRA}/{name}" for name in output_dir.contents(directory / _EXTRA) if name != _WARM_UP}
    if present and not present & {EXPORT_RESULTS, _EARLIER}:
        others = others or present  # Another program's assets or SavedModel.
    if others:
        raise UsageError(
            "overwrite_output_dir replaces an earlier export, and nothing else. "
            f"Received: output_dir={str(directory)!r}, which holds {min(others)!r}. Pass another."
        )


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
    except (UsageError, RunError):
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except (OSError, tf.errors.OpError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise RunError(
            f"The export could not be written to {directory}: {first_line(error)}. "
            "Check free space and permissions there."
        ) from error
    try:
        partial.rename(directory) if is_new else _replace_contents(directory, partial)
    except OSError as error:
        raise RunError(
            f"The export could not be moved to {directory}: {error.strerror}. It is whole in {partial}: move it."
        ) from error
    for name, value in results.items():
        log.info("%s: %s", name, value)
    log.info("exported to %s", directory)
    return results


def _replace_contents(directory: pathlib.Path, partial: pathlib.Path) -> None:
    """Moves an earlier export aside and the new one into its place; moves all back if a move fails.

    The file without which nothing is loaded is moved away first and put in place last.
    """
    earlier = directory / _EARLIER
    shutil.rmtree(earlier, ignore_errors=True)  # Left by an export that was killed. The new one is whole now.
    earlier.mkdir()
    moves = [(directory / name, earlier / name) for name in _OWN if (directory / name).exists()]
    new = sorted(partial.iterdir(), key=lambda path: path.name in _LAST)
    moves += [(path, directory / path.name) for path in new]
    done = []
    try:
        for source, target in moves:
            source.rename(target)
            done.append((source, target))
    except OSError:
        for source, target in reversed(done):
            target.rename(source)
        earlier.rmdir()
        raise
    if (earlier / _EXTRA).exists():
        log.info("The warm-up requests of the earlier export went with it: write them anew.")
    shutil.rmtree(earlier, ignore_errors=True)
    partial.rmdir()
