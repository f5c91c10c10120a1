"""`--mode=evaluate`: a saved model on labelled examples -> metrics, a table of the classes, a confusion matrix."""

from __future__ import annotations

import logging
import time
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.config.types import counted, rate_text
from tfbert.devices.runtime import start_devices, tell
from tfbert.devices.workers import peer_failures_as_run_errors
from tfbert.model.predictor import Predictor
from tfbert.modes.load import as_saved, load_trained_model
from tfbert.output import output_dir
from tfbert.tasks.base import Examples, check_same_examples, subset
from tfbert.tasks.items import TrainedModel
from tfbert.tasks.registry import check_files

log = logging.getLogger("tfbert")

_MAX_SHOWN_CLASSES = 20


@peer_failures_as_run_errors()
def evaluate_model(config: Config) -> dict[str, Any]:
    """Evaluates a saved model as the configuration says and writes `eval_results.json`.

    Args:
        config: With `mode="evaluate"`.

    Returns:
        The content of the file: for each set, under its prefix (`eval`, `eval_matched`, `test`), the metrics of the
        task over all predictions, `samples`, `runtime`, `samples_per_second`, and for classification `per_class` and
        `confusion_matrix` (rows: labels; columns: predictions).

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
    """
    devices = start_devices(config)
    strategy, chief = devices.strategy, devices.chief
    directory = output_dir.run_directory(config, output_dir.start_time())
    if chief:
        if config.output.overwrite_output_dir:
            output_dir.check_writable(directory)
        else:
            way_out = "Pass another --output_dir, or --overwrite_output_dir"
            output_dir.check_new_file(directory / output_dir.EVAL_RESULTS, way_out)
    config = as_saved(config)
    with strategy.scope():
        model = load_trained_model(config)
    sets = labelled_sets(config.data, model)
    check_same_examples(sets, strategy)
    log.info("evaluating %s on %s", model.name, devices)

    predictor = model.predictor(strategy, config.runtime.per_device_eval_batch_size)
    results: dict[str, Any] = {}
    for prefix, examples in sets.items():
        found, predictions = evaluate_set(model, predictor, examples, prefix)
        results |= found
        if chief:
            output_dir.make(directory)
            model.task.write_evaluation(directory, predictions, examples, prefix)
    if chief:
        output_dir.make(directory)
        output_dir.write_json(directory / output_dir.EVAL_RESULTS, results)
        log.info("written to %s", directory / output_dir.EVAL_RESULTS)
    return results


def labelled_sets(config: DataConfig, model: TrainedModel) -> dict[str, Examples]:
    """The examples to evaluate on, with the model's labels; logs what the user should know about them.

    Args:
        config: Names a data set, or files.
        model: Decides what the labels mean.

    Returns:
        Examples by the prefix of their metrics, as in training: `eval`, `eval_matched`, `test`, ...

    Raises:
        UsageError: for data that cannot be read, or is not of the kind the model was trained on.
    """
    notes: list[str] = []
    check_files(model.task, config, filter(None, (*config.validation_files, config.test_file)))
    found = model.task.labelled_sets(config, notes, model.check_texts)
    sets = {prefix: subset(examples, config.max_eval_examples, notes) for prefix, examples in found.items()}
    tell(notes)
    return sets


def evaluate_set(
    model: TrainedModel, predictor: Predictor, examples: Examples, prefix: str
) -> tuple[dict[str, Any], Any]:
    """Predicts a set of examples and compares the predictions with its labels.

    Returns:
        What `evaluate_model` returns for one set, and the predictions.
    """
    started = time.perf_counter()
    predictions = model.predict(predictor, examples)
    seconds = time.perf_counter() - started
    metrics = model.task.metrics(predictions, examples)
    shown = model.task.metrics_line(metrics)
    count = counted(len(examples), "example")
    log.info("%s: %s, %s, %s a second", prefix, examples.name, count, rate_text(len(examples), seconds))
    log.info("%s: %s", prefix, shown)
    for line in model.task.remarks(predictions, examples):
        log.warning("%s", line)
    results: dict[str, Any] = {f"{prefix}_{name}": value for name, value in metrics.items()}
    results[f"{prefix}_samples"] = len(examples)
    results[f"{prefix}_runtime"] = round(seconds, 3)
    results[f"{prefix}_samples_per_second"] = round(len(examples) / seconds, 2)
    details, lines = model.task.details(predictions, examples)
    results |= {f"{prefix}_{name}": value for name, value in details.items()}
    for line in lines if len(model.task.label_names) <= _MAX_SHOWN_CLASSES else ():
        log.info("%s", line)
    return results, predictions
