"""`--mode=predict`: texts of a file or standard input -> labels and probabilities, in order, in constant memory."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import pathlib
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tfbert.config.data import STANDARD_STREAM
from tfbert.config.run import Config
from tfbert.data.rows import OpenFile, file_format, open_rows
from tfbert.data.streams import standard_input
from tfbert.devices.start import start_devices
from tfbert.devices.strategy import peer_failures_as_run_errors
from tfbert.errors import RunError
from tfbert.model.predictor import Predictor
from tfbert.modes.prediction_texts import BadRows, Texts, find_text_columns, read_texts
from tfbert.modes.trained_model import TrainedModel, load_trained_model
from tfbert.output import output_dir
from tfbert.output.logs import clock_text
from tfbert.tasks import glue
from tfbert.tasks.base import SAVED_MODEL_WAY_OUT
from tfbert.tasks.prediction_files import GlueFile, PredictionFile, open_predictions, output_format, standard_output
from tfbert.tokens.tokenizer import TokenIds

log = logging.getLogger("tfbert")

_SECONDS_BETWEEN_REPORTS = 10.0
_TOKENIZER_ROWS, _TOKENIZER_THREADS = 1024, 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A file to predict.

    Attributes:
        file: The file, just opened.
        texts: Its text column, or the two of pairs.
        id_column: The column that names its rows; empty: they are numbered.
        path: Where the predictions go; None: standard output.
        format: `tsv`, `jsonl` or `glue`.
        task: GLUE's task, or empty.
    """

    file: OpenFile
    texts: tuple[str, ...]
    id_column: str
    path: pathlib.Path | None
    format: str
    task: str


def predict(config: Config) -> dict[str, float]:
    """Labels texts as the configuration says.

    Args:
        config: With `mode="predict"`.

    Returns:
        `predict_samples`, `predict_skipped_rows`, `predict_runtime` and `predict_samples_per_second`.

    Raises:
        UsageError: for anything given that cannot be used, such as a row that cannot be read where none may be skipped;
            no output file is left then.
        RunError: for output that cannot be written, or predictions that are not finite.
    """
    devices = start_devices(config.runtime)
    strategy, chief = devices.strategy, devices.chief
    sources = open_sources(config)
    for path in (source.path for source in sources if source.path and chief):
        output_dir.check_new_file(path, "Pass another, or move it away")
    with strategy.scope():
        model = load_trained_model(config)
    for source in sources:
        model.check_texts(source.texts, source.file.name)
    writers = [open_writer(source, model, is_writer=chief) for source in sources]
    introduction = [f"predicting with {model.name} on {devices}"]
    predictor = model.predictor(strategy, config.runtime.per_device_eval_batch_size)

    progress = PredictionProgress(is_shown=chief)
    bad_rows = BadRows(config.data.skip_bad_rows)
    try:
        with peer_failures_as_run_errors():
            for source, writer in zip(sources, writers, strict=True):
                with writer:
                    chunks = read_texts(source.file, source.texts, source.id_column, bad_rows)
                    chunks = _introduced(chunks, introduction)
                    for chunk, logits in predict_texts(model, predictor, chunks, len(source.texts)):
                        _check_finite(chunk.ids, logits, source.file.name)
                        writer.write(chunk.ids, logits)
                        progress.advance(len(chunk.ids))
    finally:
        progress.close()
    results = {
        "predict_samples": progress.count,
        "predict_skipped_rows": bad_rows.count,
        "predict_runtime": round(progress.seconds, 3),
        "predict_samples_per_second": round(progress.count / progress.seconds, 2),
    }
    skipped = f"; {bad_rows.count:,} rows skipped" if bad_rows.count else ""
    count, speed = f"{progress.count:,}", progress.count / progress.seconds
    log.info("predicted %s examples in %s, %.0f a second%s", count, clock_text(progress.seconds), speed, skipped)
    for line in bad_rows.notes():
        log.info("%s", line)
    for source in sources:
        if source.path:
            log.info("written to %s", source.path)
    return results


def _introduced(chunks: Iterable[Texts], lines: list[str]) -> Iterator[Texts]:
    """The chunks; the lines are logged as soon as there is one, and not before an error in the first."""
    for chunk in chunks:
        while lines:
            log.info("%s", lines.pop(0))
        yield chunk


def open_sources(config: Config) -> list[Source]:
    """What to predict, and where the predictions go.

    Raises:
        UsageError: for input that cannot be opened, columns that are not there, output without a known ending, or
            standard input or output that is closed.
    """
    asked, directory = config.predict, pathlib.Path(config.output.output_dir)
    if config.data.dataset:
        from tfbert.data.tfds_source import open_tests  # imports TensorFlow Datasets

        files = open_tests(config.data.dataset, config.data.data_dir, config.data.text_column)
        tasks = [glue.task_of_split(config.data.dataset, split) for split in files]
    else:
        source = _input(asked.input_file, config.data.input_format)
        files = {"": open_rows(*source, header=config.data.header, delimiter=config.data.separator)}
        tasks = [asked.glue_task]
    sources = []
    for file, task in zip(files.values(), tasks, strict=True):
        texts, id_column = find_text_columns(file, config.data.text_column, asked.id_column)
        path = directory / glue.TASKS[task].file if task else pathlib.Path(asked.output_file)
        is_stream = not task and asked.output_file == STANDARD_STREAM
        if is_stream:
            standard_output()  # Found to be closed now, not after the model has been loaded.
        sources.append(
            Source(
                file=file,
                texts=texts,
                id_column=id_column,
                path=None if is_stream else path,
                format="glue" if task else output_format(asked),
                task=task,
            )
        )
    return sources


def open_writer(source: Source, model: TrainedModel, *, is_writer: bool) -> PredictionFile:
    """Where the predictions for one source go.

    Raises:
        UsageError: for a model whose labels are not those of the GLUE task.
    """
    if source.task:
        return GlueFile(source.path, glue.TASKS[source.task], model.task, is_writer=is_writer)
    return open_predictions(source.path, source.format, model.task, is_writer=is_writer)


def predict_texts(
    model: TrainedModel, predictor: Predictor, chunks: Iterable[Texts], num_texts: int
) -> Iterator[tuple[Texts, np.ndarray]]:
    """Each chunk with its logits, float32 `[rows, num_labels]`; reading and tokenising run ahead in a thread."""
    waiting: queue.SimpleQueue[Texts] = queue.SimpleQueue()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * num_texts)
    def tokenize(*columns):  # Traced once; BertTokenizer.encode, made for whole data sets, traces at each call.
        with tf.device("CPU:0"):
            ids, second_start = model.tokenizer(*columns, max_seq_length=model.max_seq_length)
        return ids.values, ids.row_lengths(), second_start

    def tokens() -> Iterator[TokenIds]:
        with concurrent.futures.ThreadPoolExecutor(_TOKENIZER_THREADS) as pool:
            for chunk in chunks:
                waiting.put(chunk)
                columns = [chunk.text] if chunk.text_pair is None else [chunk.text, chunk.text_pair]
                # A lone surrogate has no UTF-8 form; as invalid bytes it is dropped, as bytes that were invalid are.
                columns = [[text.encode("utf-8", "surrogatepass") for text in column] for column in columns]
                slices = [slice(start, start + _TOKENIZER_ROWS) for start in range(0, len(chunk.ids), _TOKENIZER_ROWS)]
                parts = list(pool.map(lambda rows: tokenize(*(tf.constant(c[rows]) for c in columns)), slices))  # noqa: B023
                flat, lengths, second_start = (np.concatenate(column) for column in zip(*parts, strict=True))
                yield TokenIds(
                    flat=flat,
                    row_splits=np.concatenate([[0], np.cumsum(lengths)]),
                    second_start=second_start,
                    pad_id=model.tokenizer.pad_id,
                )

    for logits in predictor.stream(ahead(tokens())):
        yield waiting.get(), logits


def ahead(items: Iterable[Any]) -> Iterator[Any]:
    """The same items, each made in a thread while the one before is worked on."""
    made: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    is_over = threading.Event()

    def make() -> None:
        try:
            for item in items:
                made.put(("item", item))
                if is_over.is_set():
                    return
            made.put(("end", None))
        except BaseException as error:  # To be raised where the items are asked for.
            made.put(("error", error))

    # A daemon: one that waits for standard input must not keep the process alive.
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
        while not made.empty():  # Lets a thread that waits to hand over its item see that it is over.
            made.get_nowait()


class PredictionProgress:
    """Examples so far and examples a second: a bar on a terminal, else a line now and then.

    Args:
        is_shown: Whether to show anything.
    """

    def __init__(self, *, is_shown: bool):
        self.count = 0
        self._start = self._reported = time.perf_counter()
        self._is_shown = is_shown
        self._bar = None
        if is_shown and sys.stderr.isatty():
            self._bar = tqdm.tqdm(unit=" examples", dynamic_ncols=True, unit_scale=True)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start

    def advance(self, count: int) -> None:
        """Counts examples that are done."""
        self.count += count
        now = time.perf_counter()
        if self._bar is not None:
            self._bar.update(count)
        elif self._is_shown and now - self._reported >= _SECONDS_BETWEEN_REPORTS:
            self._reported = now
            log.info("%s examples, %.0f a second", f"{self.count:,}", self.count / self.seconds)

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()


def _check_finite(ids: Sequence[Any], logits: np.ndarray, name: str) -> None:
    bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if len(bad):  # Their labels would look like any other.
        raise RunError(
            f"Predictions must be finite. Received: {str(logits[bad[0]]):.60} for id {ids[bad[0]]!r} of {name}. "
            f"{SAVED_MODEL_WAY_OUT}."
        )


def _input(name: str, format: str) -> tuple[Any, str]:
    """The file or stream to read, and its format."""
    if name == STANDARD_STREAM:
        return standard_input("input_file"), "text" if format == "auto" else format
    path = pathlib.Path(name)
    return path, file_format(path, allow_text=True) if format == "auto" else format
