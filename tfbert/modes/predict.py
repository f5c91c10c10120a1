"""`--mode=predict`: texts of a file or standard input -> labels and probabilities, in order, in constant memory."""

from __future__ import annotations

import collections
import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfbert.config.counted import counted, rate_text
from tfbert.config.parts import PredictConfig
from tfbert.config.run import Config
from tfbert.data.columns import about_columns
from tfbert.data.open_file import BadRows
from tfbert.devices.runtime import start_devices
from tfbert.devices.workers import peer_failures_as_run_errors
from tfbert.errors import UsageError
from tfbert.model.predictor import Predictor
from tfbert.modes.saved_model import as_saved, check_can, load_trained_model, saved_task
from tfbert.output import output_dir
from tfbert.output.logs import PassProgress, clock_text
from tfbert.tasks.base import Task
from tfbert.tasks.detect import check_files
from tfbert.tasks.prediction_job import Chunk
from tfbert.tasks.registry import Entry, entry_of
from tfbert.tasks.trained import TrainedModel
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
    devices = start_devices(config)
    strategy, chief = devices.strategy, devices.chief
    config = as_saved(config)
    task = saved_task(config)
    entry = entry_of(task.name)
    check_can(task, entry.job_opener, "predict")
    _check_typed(task, entry, config.predict)
    check_files(task, config.data, filter(None, (config.predict.input_file,)))
    jobs = entry.open_jobs(config)
    for path in (job.path for job in jobs if job.path and chief):
        output_dir.check_new_file(path, "Pass another, or move it away")
    with strategy.scope():
        model = load_trained_model(config)
    writers = [job.writer(model, is_writer=chief) for job in jobs]
    introduction = [f"predicting with {model.name} on {devices}"]
    asked = {"text_column": config.data.text_column, "choice_columns": config.choosing.choice_columns}
    introduction += [line for job in jobs for line in about_columns(job.name, job.columns, asked)]
    predictor = model.predictor(strategy, config.runtime.per_device_eval_batch_size)

    count = 0
    # What was typed is corrected where it was typed.
    skip = config.data.skip_bad_rows or (None if config.predict.text else False)
    bad_rows = BadRows(skip, is_logged=True)
    with PassProgress("predicting", 0, "examples", is_said_at_end=False, is_shown=chief) as progress:
        for job, writer in zip(jobs, writers, strict=True):
            with writer:
                chunks = _introduced(job.chunks(model, bad_rows), introduction)
                on_examples = functools.partial(progress.advance, 0)
                for chunk, predictions in predict_chunks(model, predictor, chunks, job.encoder(model), on_examples):
                    model.check_finite(predictions, chunk.ids, job.name)
                    writer.write(chunk.ids, predictions)
                    count += len(chunk.ids)
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
    for job in jobs:
        if job.path:
            log.info("written to %s", job.path)
    return results


def _check_typed(task: Task, entry: Entry, asked: PredictConfig) -> None:
    """Refuses texts of the command line for a task that has no use for them.

    Raises:
        UsageError: saying how to give its inputs.
    """
    if asked.text and not entry.typed:
        rule = f"A model of {task.kind} takes its inputs from a file"
        raise UsageError(f"{rule}. Received: --text. Pass --input_file instead.")
    if asked.text_pair and len(entry.typed) < 2:
        raise UsageError(f"A model of {task.kind} takes single texts. Received: --text_pair. Drop it.")


def _introduced(chunks: Iterable[Chunk], lines: list[str]) -> Iterator[Chunk]:
    """The chunks; the lines are logged with the first chunk, so not before an error in it."""
    for chunk in chunks:
        while lines:
            log.info("%s", lines.pop(0))
        yield chunk


def predict_chunks(
    model: TrainedModel,
    predictor: Predictor,
    chunks: Iterable[Chunk],
    encode: Callable[[Chunk], Any],
    on_examples: Callable[[float], None],
) -> Iterator[tuple[Chunk, Any]]:
    """Each chunk with the task's predictions for it; reading and tokenising run ahead in a thread.

    `on_examples` is called after each batch, with the examples in it: fractions of those that have several rows.
    """
    waiting: collections.deque[tuple[Chunk, Any]] = collections.deque()

    def tokens() -> Iterator[TokenIds]:
        for chunk in chunks:
            encoded = encode(chunk)
            waiting.append((chunk, encoded))
            yield encoded.tokens

    def on_rows(rows: int) -> None:
        chunk, encoded = waiting[0]
        on_examples(rows * len(chunk.ids) / len(encoded.tokens))

    for outputs in predictor.stream(ahead(tokens()), on_rows=on_rows):
        chunk, encoded = waiting.popleft()
        yield chunk, model.task.predictions(outputs, encoded)


def ahead(items: Iterable[Any]) -> Iterator[Any]:
    """The same items, each made in a thread while the previous one is processed."""
    made: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    is_over = threading.Event()

    def make() -> None:
        try:
            for item in items:
                made.put(("item", item))
                if is_over.is_set():
                    return
            made.put(("end", None))
        except BaseException as error:  # Raised again where the items are used.
            made.put(("error", error))

    # A daemon: a thread that waits for standard input must not keep the process alive.
    threading.Thread(target=make, daemon=True).start()
    try:
        while True:
            kind, value = made.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        is_over.set()
        while not made.empty():  # Lets a thread that waits to hand over an item see the end.
            made.get_nowait()
