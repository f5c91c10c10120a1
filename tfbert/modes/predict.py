"""`--mode=predict`: texts of a file or standard input -> labels and probabilities, in order, in constant memory; and
`--mode=evaluate`: labelled examples -> metrics, a table of the classes, a confusion matrix."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.config.types import counted, problem, rate_text
from tfbert.data.files import about_columns
from tfbert.data.reading import BadRows
from tfbert.devices.runtime import describe, start_devices, tell
from tfbert.devices.workers import peer_failures_as_run_errors
from tfbert.errors import UsageError
from tfbert.modes.load import as_saved, check_can, load_trained_model, saved_task
from tfbert.output import output_dir
from tfbert.output.logs import PassProgress, clock_text
from tfbert.tasks.base import Examples, check_finite, check_same_examples, subset
from tfbert.tasks.prediction import Items, Job, TrainedModel, write_predictions
from tfbert.tasks.registry import check_files, entry_of
from tfbert.tokens.tokenizer import TokenIds

log = logging.getLogger("tfbert")


@peer_failures_as_run_errors()
def predict(config: Config) -> dict[str, float]:
    """Labels texts as the configuration says.

    Args:
        config: With `mode="predict"`.

    Returns:
        `predict_samples`, `predict_skipped_rows`, `predict_runtime` and `predict_samples_per_second`.

    Raises:
        UsageError: for anything given that cannot be used, such as a row that cannot be read and may not be skipped; no
            output file is left then.
        RunError: for output that cannot be written, or predictions that are not finite.
    """
    strategy, chief = start_devices(config)
    config = as_saved(config)
    task = saved_task(config)
    entry = entry_of(task.name)
    check_can(task, entry.open_jobs, "predict")
    takes = {"dataset": entry.predicts_sets, "glue_task": entry.predicts_sets}
    takes |= {"text": bool(entry.typed), "text_pair": len(entry.typed) > 1}
    if given := {name: value for name, value in config.given(*takes).items() if not takes[name]}:
        rule = f"A model of {task.kind} takes none of these options"
        raise UsageError(problem(rule, "Pass --input_file and --output_file instead.", **given))
    check_files(task, config.data, filter(None, (config.predict.input_file,)))
    jobs = entry.open_jobs(config)
    for path in (job.path for job in jobs if job.path and chief):
        output_dir.check_new_file(path, "Pass another, or move it away")
    with strategy.scope():
        model = load_trained_model(config)
    jobs = [(job, entry.items(model)) for job in jobs]
    writers = [job.writer(items) for job, items in jobs]
    introduction = [f"predicting with {model.name} on {describe(strategy, precision=True)}"]
    asked = {"text_column": config.data.text_column, "choice_columns": config.choosing.choice_columns}
    introduction += [line for job, _ in jobs for line in about_columns(job.name, job.columns, asked)]
    predictor = model.predictor(strategy, config.runtime.per_device_eval_batch_size)

    count = 0
    # What was typed is corrected where it was typed.
    skip = config.data.skip_bad_rows or (None if config.predict.text else False)
    bad_rows = BadRows(skip, is_logged=True)

    def answered(job: Job, items: Items) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Each item with its record; reading and tokenising run ahead in a thread."""
        nonlocal count
        waiting: collections.deque[tuple[list[Any], Any]] = collections.deque()

        def tokens() -> Iterator[TokenIds]:
            for number, chunk in enumerate(items.chunks(job.items(items, bad_rows))):
                if not number:  # Not before an error in it.
                    tell([*introduction, *job.doubts(chunk)])
                    introduction.clear()
                encoded = items.encode(chunk)
                waiting.append((chunk, encoded))
                yield encoded.tokens
            tell([*job.notes(), *items.notes(job.name)])

        def on_rows(rows: int) -> None:
            chunk, encoded = waiting[0]
            progress.advance(0, rows * len(chunk) / len(encoded.tokens))  # Of a text with several rows, a fraction.

        for outputs in predictor.stream(ahead(tokens()), on_rows=on_rows):
            chunk, encoded = waiting.popleft()
            predictions = items.predictions(outputs, encoded)
            check_finite(items.scores(predictions), chunk, job.name)
            yield from zip(chunk, items.records(chunk, predictions), strict=True)
            count += len(chunk)

    with PassProgress("predicting", 0, "examples", is_said_at_end=False, is_shown=chief) as progress:
        for (job, items), lines_of in zip(jobs, writers, strict=True):
            write_predictions(job.path, lines_of(answered(job, items)), is_writer=chief)
    seconds = progress.seconds
    results = {
        "predict_samples": count,
        "predict_skipped_rows": bad_rows.count,
        "predict_runtime": round(seconds, 3),
        "predict_samples_per_second": round(count / seconds, 2),
    }
    skipped = f"; {counted(bad_rows.count, 'row')} skipped" if bad_rows.count else ""
    said = counted(count, "example"), clock_text(seconds), rate_text(count, seconds), skipped
    log.info("predicted %s in %s, %s a second%s", *said)
    for line in bad_rows.notes():
        log.info("%s", line)
    for job, _ in jobs:
        if job.path:
            log.info("written to %s", job.path)
    return results


def ahead(items: Iterable[Any]) -> Iterator[Any]:
    """The same items, none of which is None, each made in a thread while the previous one is processed."""
    items = iter(items)

    def make(made: Future[Any]) -> None:
        try:
            made.set_result(next(items, None))
        except BaseException as error:  # Raised again where the items are used.
            made.set_exception(error)

    def begun() -> Future[Any]:
        made: Future[Any] = Future()
        # A daemon, unlike those of a pool: a thread that waits for standard input must not keep the process alive.
        threading.Thread(target=make, args=(made,), daemon=True).start()
        return made

    following = begun()
    while (item := following.result()) is not None:
        following = begun()
        yield item


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
    strategy, chief = start_devices(config)
    directory = output_dir.run_directory(config)
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
    log.info("evaluating %s on %s", model.name, describe(strategy, precision=True))

    predictor = model.predictor(strategy, config.runtime.per_device_eval_batch_size)
    results, task = {}, model.task
    for prefix, examples in sets.items():
        started, count = time.perf_counter(), len(examples)
        predictions = task.predict(predictor, model.encode(examples), examples.name)
        seconds = time.perf_counter() - started
        metrics = task.metrics(predictions, examples)
        said = counted(count, "example"), rate_text(count, seconds)
        log.info("%s: %s, %s, %s a second", prefix, examples.name, *said)
        log.info("%s: %s", prefix, task.metrics_line(metrics))
        for line in task.remarks(predictions, examples):
            log.warning("%s", line)
        speed = {"samples": count, "runtime": round(seconds, 3), "samples_per_second": round(count / seconds, 2)}
        details, lines = task.details(predictions, examples)
        results |= {f"{prefix}_{name}": value for name, value in (metrics | speed | details).items()}
        if len(task.label_names) <= _MAX_SHOWN_CLASSES:
            for line in lines:
                log.info("%s", line)
        if chief:
            output_dir.make(directory)
            task.write_evaluation(directory, predictions, examples, prefix)
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
