"""`--mode=evaluate`: a saved model on labelled examples -> metrics, a table of the classes, a confusion matrix."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfbert import output, runtime
from tfbert.callbacks import eval_prefix
from tfbert.config import Config, DataConfig
from tfbert.data.files import RawTable
from tfbert.data.sources import Examples, label_examples, load_labelled, subset
from tfbert.errors import UsageError
from tfbert.evaluate import Predictor
from tfbert.fine_tuned import FineTuned, load_fine_tuned
from tfbert.metrics import compute_metrics, confusion_matrix, per_class
from tfbert.strategy import build_strategy, describe, is_chief, peer_failures_as_run_errors

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
    policy = runtime.set_up(config.runtime)
    strategy = build_strategy(config.runtime, cluster_timeout_seconds=config.runtime.cluster_timeout_seconds)
    chief = is_chief(strategy)
    say = log.info if chief else log.debug
    directory = output.choose(config)
    if chief:
        if config.output.overwrite_output_dir:
            output.check_writable(directory)
        else:
            way_out = "Pass another --output_dir, or --overwrite_output_dir"
            output.check_new_file(directory / output.EVAL_RESULTS, way_out)
    with strategy.scope():
        model = load_fine_tuned(config, log=say)
    sets = labelled_sets(config.data, model, say)
    say(f"evaluating {model.name} on {describe(strategy)}, {policy}")

    predictor = model.predictor(strategy, config.runtime.per_device_eval_batch_size)
    results: dict[str, Any] = {}
    with peer_failures_as_run_errors():
        for name, examples in sets.items():
            prefix = name if name == "test" else eval_prefix(name)
            results |= evaluate_set(model, predictor, examples, prefix, say)
    if chief:
        output.make(directory)
        output.write_json(directory / output.EVAL_RESULTS, results)
        say(f"written to {directory / output.EVAL_RESULTS}")
    return results


def labelled_sets(config: DataConfig, model: FineTuned, say: Callable) -> dict[str, Examples]:
    """What to evaluate on, its labels those of the model.

    Args:
        config: Names a data set, or files.
        model: Decides what the labels mean.
        say: Receives lines the user should know.

    Returns:
        Examples by name: `validation`, `validation_matched`, `test`, ...

    Raises:
        UsageError: for data that cannot be read, or is not of the kind the model was trained on.
    """
    raw = load_labelled(config, model.label_names)
    notes = list(raw.notes)
    sets = {}
    for name, table in (raw.validation | ({"test": raw.test} if raw.test else {})).items():
        notes += table.notes
        model.check_texts(table.text_columns, table.name)
        if model.task == "classification":
            table = _with_model_labels(table, raw.label_names, model, notes)
        elif raw.label_names:
            raise UsageError(
                "A regression model is evaluated on scores. "
                f"Received: {table.name} with the classes {', '.join(raw.label_names[:5])}. Pass other data."
            )
        sets[name] = subset(label_examples(table, model.task, model.label_names), config.max_eval_examples, notes)
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
    metrics = compute_metrics(model.task, logits, examples.labels)
    shown = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    say(f"{prefix}: {examples.name}, {len(examples):,} examples, {len(examples) / seconds:.0f} a second")
    say(f"{prefix}: {shown}")
    results: dict[str, Any] = {f"{prefix}_{name}": value for name, value in metrics.items()}
    results[f"{prefix}_samples"] = len(examples)
    results[f"{prefix}_runtime"] = round(seconds, 3)
    results[f"{prefix}_samples_per_second"] = round(len(examples) / seconds, 2)
    if model.task == "classification":
        confusion = confusion_matrix(logits, examples.labels, len(model.label_names))
        table = per_class(confusion, model.label_names)
        results[f"{prefix}_per_class"] = table
        results[f"{prefix}_confusion_matrix"] = {"labels": list(model.label_names), "rows": confusion.tolist()}
        for line in class_table(table, confusion) if len(table) <= _MAX_SHOWN_CLASSES else ():
            say(line)
    return results


def predict_examples(model: FineTuned, predictor: Predictor, examples: Examples) -> np.ndarray:
    """float32 `[n, num_labels]`, in the order of the examples."""
    return predictor.logits(
        model.tokenizer.encode(examples.text, examples.text_pair, max_seq_length=model.max_seq_length)
    )


def class_table(table: dict[str, dict[str, float]], confusion: np.ndarray) -> list[str]:
    """The per-class table and the confusion matrix as lines for the screen."""
    width = max(len("label"), *map(len, table))
    cells = max(8, len(f"{confusion.max():,}") + 1)
    lines = [f"{'label':{width}}  precision  recall      f1  examples | predicted as"]
    lines[0] += ", ".join(["", *table])[1:]
    for (name, row), counts in zip(table.items(), confusion, strict=True):
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['examples']:8,}"
        lines.append(f"{name:{width}}  {numbers} |" + "".join(f"{count:{cells},}" for count in counts))
    return lines


def _with_model_labels(table: RawTable, defined: Sequence[str] | None, model: FineTuned, notes: list[str]) -> RawTable:
    """The table with its labels written as the model writes them.

    Labels match by name, in any case. Where one side has names and the other only numbers (or LABEL_0, LABEL_1, ...),
    they match by position: a model trained from files knows `0` and `1`, the same data set elsewhere has words.
    """
    distinct = sorted(set(table.labels))
    names = list(model.label_names)
    folded = {name.casefold(): name for name in names}
    by_number = dict(zip(map(str, range(len(names))), names, strict=True))
    model_is_numbered = names in (list(by_number), [f"LABEL_{i}" for i in range(len(names))])
    numbers = {label: label.removesuffix(".0") for label in distinct}
    how = ""
    if set(numbers.values()) <= set(names):
        written = numbers
    elif len(folded) == len(names) and all(label.casefold() in folded for label in distinct):
        written = {label: folded[label.casefold()] for label in distinct}
    elif model_is_numbered and defined is not None and len(defined) == len(names):
        written, how = dict(zip(defined, names, strict=True)), ", ".join(defined)
    elif "0" in numbers.values() and set(numbers.values()) <= set(by_number):
        written, how = {label: by_number[numbers[label]] for label in distinct}, "0, 1, ..."
    else:
        row = next(i for i, label in enumerate(table.labels) if label not in names and label.casefold() not in folded)
        raise UsageError(
            f"Labels must be the model's {len(names)}: {', '.join(names[:20])}. "
            f"Received: {table.labels[row]!r} in {table.where(row)}. Pass data for this model, or --label_column."
        )
    if how:
        notes.append(f"{table.name}: its labels ({how}) are taken for the model's by position: {', '.join(names)}")
    return dataclasses.replace(table, labels=[written[label] for label in table.labels])
