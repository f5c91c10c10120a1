"""`--mode=evaluate`: a saved model on labelled examples -> metrics, a table of the classes, a confusion matrix."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfbert.config.run import Config, DataConfig
from tfbert.data.sources import read_labelled
from tfbert.devices.start import start_devices
from tfbert.devices.strategy import peer_failures_as_run_errors
from tfbert.model.predictor import Predictor
from tfbert.modes.fine_tuned import FineTuned, load_fine_tuned
from tfbert.output import output_dir
from tfbert.tasks.examples import Examples, eval_prefix, label_examples, subset

log = logging.getLogger("tfbert")

_MAX_SHOWN_CLASSES = 20


def evaluate_model(config: Config) -> dict[str, Any]:
    """Evaluates a saved model as the configuration says and writes `eval_results.json`.

    Args:
        config: With `mode="evaluate"`.

    Returns:
        What the file holds: for each set, under its prefix (`eval`, `eval_matched`, `test`), the metrics of the task
        over all predictions, `samples`, `runtime`, `samples_per_second`, and for classification `per_class` and
        `confusion_matrix` (rows: labels; columns: predictions).

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
    """
    devices = start_devices(config.runtime)
    strategy, chief, say = devices.strategy, devices.chief, devices.say
    directory = output_dir.choose(config)
    if chief:
        if config.output.overwrite_output_dir:
            output_dir.check_writable(directory)
        else:
            way_out = "Pass another --output_dir, or --overwrite_output_dir"
            output_dir.check_new_file(directory / output_dir.EVAL_RESULTS, way_out)
    with strategy.scope():
        model = load_fine_tuned(config, log=say)
    sets = labelled_sets(config.data, model, say)
    say(f"evaluating {model.name} on {devices}")

    predictor = model.predictor(strategy, config.runtime.per_device_eval_batch_size)
    results: dict[str, Any] = {}
    with peer_failures_as_run_errors():
        for prefix, examples in sets.items():
            results |= evaluate_set(model, predictor, examples, prefix, say)
    if chief:
        output_dir.make(directory)
        output_dir.write_json(directory / output_dir.EVAL_RESULTS, results)
        say(f"written to {directory / output_dir.EVAL_RESULTS}")
    return results


def labelled_sets(config: DataConfig, model: FineTuned, say: Callable) -> dict[str, Examples]:
    """What to evaluate on, its labels those of the model.

    Args:
        config: Names a data set, or files.
        model: Decides what the labels mean.
        say: Receives lines the user should know.

    Returns:
        Examples by what their metrics are called, as in training: `eval`, `eval_matched`, `test`, ...

    Raises:
        UsageError: for data that cannot be read, or is not of the kind the model was trained on.
    """
    raw = read_labelled(config, model.task.label_names)
    notes = list(raw.notes)
    sets = {}
    tables = {eval_prefix(name): table for name, table in raw.validation.items()}
    for prefix, table in (tables | ({"test": raw.test} if raw.test else {})).items():
        notes += table.notes
        model.check_texts(table.text_columns, table.name)
        table = model.task.in_own_words(table, raw.label_names, notes)
        sets[prefix] = subset(label_examples(table, model.task), config.max_eval_examples, notes)
    for note in notes:
        say(note)
    return sets


def evaluate_set(
    model: FineTuned, predictor: Predictor, examples: Examples, prefix: str, say: Callable
) -> dict[str, Any]:
    """Predicts a set of examples and compares with its labels; see `evaluate_model`."""
    started = time.perf_counter()
    logits = predict_examples(model, predictor, examples)
    seconds = time.perf_counter() - started
    metrics = model.task.metrics(logits, examples.labels)
    shown = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    say(f"{prefix}: {examples.name}, {len(examples):,} examples, {len(examples) / seconds:.0f} a second")
    say(f"{prefix}: {shown}")
    results: dict[str, Any] = {f"{prefix}_{name}": value for name, value in metrics.items()}
    results[f"{prefix}_samples"] = len(examples)
    results[f"{prefix}_runtime"] = round(seconds, 3)
    results[f"{prefix}_samples_per_second"] = round(len(examples) / seconds, 2)
    details, lines = model.task.details(logits, examples.labels)
    results |= {f"{prefix}_{name}": value for name, value in details.items()}
    for line in lines if len(model.task.label_names) <= _MAX_SHOWN_CLASSES else ():
        say(line)
    return results


def predict_examples(model: FineTuned, predictor: Predictor, examples: Examples) -> np.ndarray:
    """float32 `[n, num_labels]`, in the order of the examples."""
    return predictor.outputs(
        model.tokenizer.encode(examples.text, examples.text_pair, max_seq_length=model.max_seq_length)
    )
