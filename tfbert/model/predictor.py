"""Predictions for examples in their order, under any strategy, at once or in a stream: one or several arrays, with one
entry per example or per token."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import queue
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import INPUTS, EncodedExamples, padded_inputs
from tfbert.batches.plan import FILL, BatchPlan, plan_longest_first
from tfbert.devices.workers import check_same, checksum
from tfbert.measure import counted_alone, read_clock, timed_next
from tfbert.private import distributed, let_go_of_traced_gradients, without_autotune
from tfbert.tokens.tokenizer import TokenIds

_BATCHES_TIMED = 10_000
_ROWS, _TOKENS, _TOKENS_ON_GPU = 32, 2048, 2**14
"""Of a replica's batch, where nothing is asked for; tokens on one CPU or on GPUs, which small batches leave idle."""
_AT_ONCE, _AHEAD = 2, 4
"""Batches that one CPU computes at a time, as parts of each keep one core busy; and these with those that wait."""


Chunk = Any
"""Rows that are predicted together: `TokenIds`; or others, whose inputs are more than tokens, with `len()`, `lengths`
(int `[n]`, tokens of each row), `input_names`, and `inputs(rows, width)`, arguments as for `padded_inputs`: a batch's
inputs by these names, int32 of two dimensions, rows first."""

OnRows = Callable[[int], None]
Outputs = Any
"""A tensor, or a dictionary of tensors."""
_Work = queue.SimpleQueue[Any]
"""Chunks with their plans; None at the end."""


class Predictor:
    """Runs a model's forward pass over whole data sets.

    Args:
        model: For a batch's inputs, returns `[rows, ...]`, or for tokens `[rows, width, ...]`, or a dictionary of
            these; created under `strategy`.
        strategy: Where it runs. Every worker must take part, and every worker gets all predictions.
        rows_per_replica: Rows that a replica predicts at a time. None: as many as have 16,384 tokens together on a GPU,
            2,048 where one CPU predicts alone, and else 32.
        of_tokens: The names of outputs with one entry per token; True if the only output is one.

    Attributes:
        is_one_cpu: Whether one CPU predicts alone; it needs no pipeline, and computes several batches at a time.
        seconds: How long all batches took since `reset_clock`, waiting for their data included.
        waiting_seconds: The part of `seconds` that was waiting for data, measured as `DataClock` does.
        batch_seconds: How long each of the latest batches took.
    """

    def __init__(
        self,
        model: Callable[..., Outputs],
        strategy: tf.distribute.Strategy,
        *,
        rows_per_replica: int | None = None,
        of_tokens: Collection[str] | bool = False,
    ):
        self._strategy = strategy
        self._has_gpu = bool(tf.config.list_logical_devices("GPU"))
        self.is_one_cpu = strategy.num_replicas_in_sync == 1 and not self._has_gpu
        self._of_tokens = of_tokens
        self.batch_seconds: collections.deque[float] = collections.deque(maxlen=_BATCHES_TIMED)
        self.reset_clock()
        if not (self._has_gpu or self.is_one_cpu):
            rows_per_replica = rows_per_replica or _ROWS
        tokens = _TOKENS_ON_GPU if self._has_gpu else _TOKENS
        self._rows_of = lambda width: rows_per_replica or tokens // width

        def predict_batch(inputs):
            outputs = strategy.run(lambda inputs: model(inputs, training=False), args=(inputs,))
            let_go_of_traced_gradients()
            return tf.nest.map_structure(lambda output: strategy.gather(output, axis=0), outputs)

        # Takes the iterator, whose shapes are unknown, and not a batch: else each width would be traced anew.
        @counted_alone
        def predict(batches):
            inputs, waited = timed_next(batches)
            return predict_batch(inputs), waited

        self._predict = predict
        self._predict_batch = functools.cache(
            lambda names: counted_alone(predict_batch, input_signature=[_signature(names)], autograph=False)
        )

    def reset_clock(self) -> None:
        """Forgets how long batches took."""
        self.seconds = self.waiting_seconds = 0.0
        self.batch_seconds.clear()

    def outputs(
        self, examples: EncodedExamples | Chunk, *, on_rows: OnRows | None = None
    ) -> np.ndarray | dict[str, np.ndarray]:
        """What `stream` yields for all examples as one chunk."""
        chunk = examples.tokens if isinstance(examples, EncodedExamples) else examples
        (out,) = self.stream([chunk], on_rows=on_rows)
        return out

    def stream(
        self, chunks: Iterable[Chunk], *, on_rows: OnRows | None = None
    ) -> Iterator[np.ndarray | dict[str, np.ndarray]]:
        """Predicts one chunk of examples after the other, in memory that does not grow with their number.

        Args:
            chunks: Each is sorted by length on its own. The next chunk is fetched before the present one is
                computed. Several workers must all pass the same chunks. All chunks have the same inputs.
            on_rows: Called after each batch, with the number of its rows.

        Yields:
            For each chunk, `[its examples, ...]` in its order, whatever order they ran in; for an output of tokens
            `[its tokens, ...]`, example after example as in `TokenIds.flat`. A dictionary if the model returns one.
        """
        # tf.data's thread takes work from this queue and never waits for the model, so neither can block the other.
        work: _Work = queue.SimpleQueue()
        plans: collections.deque[tuple[Chunk, BatchPlan]] = collections.deque()
        chunks = iter(chunks)

        def hand_over() -> None:
            for chunk in chunks:
                plan = plan_longest_first(_lengths(chunk), self._rows_of, self._strategy.num_replicas_in_sync)
                plans.append((chunk, plan))
                work.put((_computed(chunk), plan))
                return

        try:
            hand_over()
            names = tuple(getattr(plans[0][0], "input_names", INPUTS) if plans else INPUTS)
            if self.is_one_cpu:
                batches = self._several_at_once(work, names)
            else:
                shares = distributed(self._strategy, self._dataset(work, names))
                batches = map(self._predict, itertools.repeat(iter(shares)))
            while plans:
                hand_over()
                chunk, plan = plans.popleft()
                _check_same(chunk, self._strategy)
                found, started = [], collections.deque()
                for number, rows in enumerate(plan.rows):
                    start, left = time.perf_counter(), len(plan.rows) - number
                    while len(started) < min(left, 1 + self._has_gpu):  # A GPU computes the next, while this is read.
                        started.append(next(batches))
                    predicted, waited = tf.nest.map_structure(lambda tensor: tensor.numpy(), started.popleft())
                    found.append(predicted)
                    self.batch_seconds.append(time.perf_counter() - start)
                    self.seconds += self.batch_seconds[-1]
                    self.waiting_seconds += float(waited)
                    if on_rows is not None:
                        on_rows(np.count_nonzero(rows != FILL))
                yield _joined(found, chunk, plan, self._of_tokens)
            _check_same(None, self._strategy)
        finally:
            work.put(None)  # Else tf.data's thread, and with it the process, would wait for work for ever.

    def _several_at_once(self, work: _Work, names: tuple[str, ...]) -> Iterator[tuple[Outputs, tf.Tensor]]:
        """As `predict` gives them: the outputs of each batch, and the seconds that it was waited for."""
        predict = self._predict_batch(names)
        predict.get_concrete_function()  # Traces it in this thread.
        waiting: collections.deque[tuple[concurrent.futures.Future, tf.Tensor]] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            shares = iter(())
            while True:
                while len(waiting) < _AHEAD:
                    before = read_clock()
                    if (inputs := next(shares, None)) is not None:
                        waiting.append((pool.submit(predict, inputs), read_clock() - before))
                    elif work.empty():  # So far.
                        break
                    else:
                        shares = _shares(*work.get(), replicas=1, own=slice(1))
                outputs, waited = waiting.popleft()
                yield outputs.result(), waited

    def _dataset(self, work: _Work, names: Collection[str]):
        """For `distribute_datasets_from_function`: each replica's share of each batch, as work comes in."""
        # TensorFlow keeps a data set's generator function until the process ends: it must not hold the model.
        replicas = self._strategy.num_replicas_in_sync

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            local = replicas // context.num_input_pipelines
            first = context.input_pipeline_id * local

            def shares() -> Iterator[dict[str, np.ndarray]]:
                for chunk, plan in iter(work.get, None):
                    yield from _shares(chunk, plan, replicas=replicas, own=slice(first, first + local))

            with tf.device("CPU"):
                batches = tf.data.Dataset.from_generator(shares, output_signature=_signature(names))
                return without_autotune(batches.prefetch(4 * local))

        return dataset


def direct_predictor(
    model: Callable[..., Outputs], *, of_tokens: Collection[str] | bool = False, input_names: Collection[str] = INPUTS
) -> Callable[..., np.ndarray | dict[str, np.ndarray]]:
    """`Predictor.outputs` on one device, without a pipeline: a single text takes no longer than the model.

    A `Predictor` builds a tf.data pipeline in each call, which takes 0.15 s and leaves a function in the process.

    Args:
        model: As for `Predictor`, but created under no strategy.
        of_tokens: As for `Predictor`.
        input_names: The names of the model's inputs.

    Returns:
        A function of any number of examples, and of the most rows to predict at a time.
    """

    @counted_alone(input_signature=[_signature(input_names)], autograph=False)
    def predict(inputs):
        outputs = model(inputs, training=False)
        let_go_of_traced_gradients()
        return outputs

    def outputs(examples: EncodedExamples | Chunk, *, rows: int = 32) -> np.ndarray | dict[str, np.ndarray]:
        chunk = examples.tokens if isinstance(examples, EncodedExamples) else examples
        plan = plan_longest_first(_lengths(chunk), lambda width: rows)
        batches = zip(plan.rows, plan.widths, strict=True)
        found = [predict(_inputs(_computed(chunk), *batch)) for batch in batches]
        return _joined(tf.nest.map_structure(lambda tensor: tensor.numpy(), found), chunk, plan, of_tokens)

    return outputs


_ANYTHING = TokenIds(flat=np.zeros(2, np.int32), row_splits=np.array([0, 2]), second_start=np.array([2], np.int32))
"""A row without meaning, as short as a row can be."""


def _shares(chunk: Chunk, plan: BatchPlan, *, replicas: int, own: slice) -> Iterator[dict[str, np.ndarray]]:
    """The inputs of some replicas for each batch."""
    for rows, width in zip(plan.rows, plan.widths, strict=True):
        for share in rows.reshape(replicas, -1)[own]:
            yield _inputs(chunk, share, int(width))


def _signature(names: Collection[str]) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec([None, None], tf.int32) for name in names}


def _inputs(chunk: Chunk, rows: np.ndarray, width: int) -> dict[str, np.ndarray]:
    return padded_inputs(chunk, rows, width) if isinstance(chunk, TokenIds) else chunk.inputs(rows, width)


def _computed(chunk: Chunk) -> Chunk:
    """The rows; if there are none, as for texts without a word, one row from which the outputs' shape is known."""
    return chunk if len(chunk) or not isinstance(chunk, TokenIds) else _ANYTHING


def _lengths(chunk: Chunk) -> np.ndarray:
    return np.asarray(_computed(chunk).lengths)


def _check_same(chunk: Chunk | None, strategy: tf.distribute.Strategy) -> None:
    """Refuses workers with other rows to predict, or with more of them; None for no more."""
    check_same(
        lambda: {"rows": "no more" if chunk is None else f"{len(chunk)}, {checksum(*_arrays_in(chunk))}"},
        strategy,
        rule="All workers must predict the same rows, in the same order",
        way_out="Give each the same input",
    )


def _arrays_in(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _arrays_in(getattr(value, field.name))


def _joined(found: list[Any], chunk: Chunk, plan: BatchPlan, of_tokens: Collection[str] | bool) -> Any:
    """The outputs of all batches in the order of the examples, without rows and padding that only fill."""
    if isinstance(found[0], dict):
        return {
            name: _joined([outputs[name] for outputs in found], chunk, plan, name in (of_tokens or ()))
            for name in found[0]
        }
    first, batches = found[0], zip(plan.rows, found, strict=True) if len(chunk) else ()
    if of_tokens:
        out = np.empty((len(chunk.flat), *first.shape[2:]), first.dtype)
        for rows, values in batches:
            for row, own in zip(rows, values, strict=True):
                if row != FILL:
                    start, end = chunk.row_splits[row], chunk.row_splits[row + 1]
                    out[start:end] = own[: end - start]
        return out
    out = np.empty((len(chunk), *first.shape[1:]), first.dtype)
    for rows, values in batches:  # Not all joined first: a million rows are gigabytes.
        out[rows[rows != FILL]] = values[rows != FILL]
    return out
