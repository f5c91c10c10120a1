"""Clocks, counts of arithmetic, profiles.

When each update of a run ended and what it held, from which every speed comes that a run reports; how long updates
waited for data; CPU seconds; marks of a step in a profile, see benchmarks/profile_split.py; how much arithmetic
examples need; and `tf.function` for functions that are defined anew for each model.

Only matrix products count, and only for real tokens: padding and recomputation are not needed work. In the last layer a
classifier needs each sequence's `[CLS]` alone: see `model.forward`. These are the "model FLOPs" of Chowdhery et al.
2022 (PaLM), appendix B.
"""

from __future__ import annotations

import dataclasses
import functools
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.private import is_op_determinism_enabled

TRAINING_PASSES = 3
"""A training step computes the forward pass once, and twice as much for the gradients of inputs and weights; with LoRA
the gradients of weights are next to nothing."""
ANY_LENGTH = 1 << 30
"""More tokens than a sequence has."""


def _sum(one: Any, other: Any) -> Any:
    """Two objects of a dataclass, added field by field."""
    return type(one)(**{name: value + getattr(other, name) for name, value in vars(one).items()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What some examples hold.

    Attributes:
        examples: How many; rows that only fill a batch do not count.
        tokens: Their real tokens, `[CLS]` and `[SEP]` included.
        squared_tokens: Sum of each sequence's tokens squared: what attention's cost grows with.
        further_sequences: Sequences of tokens beyond one an example: an example may have several.
    """

    examples: int = 0
    tokens: int = 0
    squared_tokens: int = 0
    further_sequences: int = 0

    @property
    def sequences(self) -> int:
        """All sequences."""
        return self.examples + self.further_sequences

    @classmethod
    def of(cls, lengths: np.ndarray, longest: int = ANY_LENGTH) -> Work:
        """The work of examples with these numbers of tokens: int `[n]`; `[n, sequences]` for examples of several
        sequences, 0 where there is none. More than `longest` are in windows of so many."""
        lengths = np.asarray(lengths, np.int64)
        return cls(
            examples=len(lengths),
            tokens=int(lengths.sum()),
            squared_tokens=int((lengths * np.minimum(lengths, longest)).sum()),
            further_sequences=int((-(-lengths // longest)).sum()) - len(lengths),
        )

    def __add__(self, other: Work) -> Work:
        return _sum(self, other)


def forward_flops(bert_config: Any, work: Work, *, reads_tokens: bool = False, masked_share: float = 0.0) -> float:
    """Floating-point operations of the forward pass, a multiplication and an addition counted as two.

    Args:
        bert_config: A `BertConfig`: its encoder, `hidden_size` and `num_labels` are read, and `vocab_size` for masked
            tokens.
        work: The examples.
        reads_tokens: Whether the head reads every token of the last layer, and has no pooler below it.
        masked_share: Share of the tokens that are also read to predict a word of the vocabulary each.
    """
    hidden, encoder = bert_config.hidden_size, bert_config.encoder
    size = encoder.embedding_size(bert_config)  # Shorter vectors of words are made as long by a dense layer.
    keys_and_values, per_pair = 2 * hidden * hidden, 2 * hidden  # Of a pair: scores, and the weighted sum of values.
    rest = 2 * hidden * hidden + encoder.WIDE * hidden * bert_config.intermediate_size  # Query and output; the MLP.
    *windows, last_window = encoder.windows(bert_config)
    # How many tokens all attend to: those of their sequences, or those near them.
    pairs = [
        work.squared_tokens if window is None else min(work.squared_tokens, (2 * window + 1) * work.tokens)
        for window in (*windows, last_window)
    ]
    per_token = len(windows) * (keys_and_values + rest) + size * hidden * (size != hidden)
    whole = per_token * work.tokens + per_pair * sum(pairs[:-1])
    if reads_tokens or encoder.means(bert_config):
        last = (keys_and_values + rest) * work.tokens + per_pair * pairs[-1]
    else:
        last = (keys_and_values + per_pair) * work.tokens + rest * work.sequences
    if reads_tokens:
        head = hidden * bert_config.num_labels * work.tokens
    else:
        head = (hidden * hidden + hidden * bert_config.num_labels) * work.sequences  # Pooler and classifier.
    if masked_share:
        head += masked_share * hidden * (hidden + bert_config.vocab_size) * work.tokens
        last += masked_share * (rest * work.tokens + per_pair * work.squared_tokens)
    return 2.0 * (whole + last + head)


def training_flops(bert_config: Any, work: Work, *, is_frozen: bool = False, **read: Any) -> float:
    """Floating-point operations of forward and backward pass.

    Args:
        bert_config: As for `forward_flops`, like all others.
        work: The examples.
        is_frozen: Whether the kernels are, as with LoRA.
        **read: What the head reads.
    """
    return (TRAINING_PASSES - is_frozen) * forward_flops(bert_config, work, **read)


OPERATIONS = ("Timestamp", "PyFunc")
"""The types of the operations that read the time, as a profile calls them."""


def read_clock(name: str | None = None) -> tf.Tensor:
    """Seconds since 1970 when the operation ran, float64 `[]`.

    Args:
        name: Name of the operation.
    """
    if is_op_determinism_enabled():  # TensorFlow's own operation fails then, although no result depends on the time.
        return tf.ensure_shape(tf.numpy_function(time.time, [], tf.float64, name=name), [])
    return tf.timestamp(name=name)


def cpu_seconds() -> np.ndarray:
    """CPU seconds of all threads together since the process began, float64 `[2]`: in the program itself; and in the
    kernel on its behalf: mapping and zeroing memory, files, scheduling."""
    return np.array(resource.getrusage(resource.RUSAGE_SELF)[:2])


def cpu_since(before: np.ndarray, prefix: str) -> dict[str, float]:
    """`{prefix}_user_seconds` and `{prefix}_kernel_seconds` since `cpu_seconds` gave `before`."""
    user, kernel = (cpu_seconds() - before).round(2).tolist()
    return {f"{prefix}_user_seconds": user, f"{prefix}_kernel_seconds": kernel}


ASKED, ARRIVED = "data_asked", "data_arrived"
"""Names of the two operations that read the time; a profile finds them by these."""


class DataClock:
    """Adds up the seconds from asking for a batch to having it.

    On a CPU nothing else of the step runs in that time. On a GPU the host waits, while the device may still be busy
    with the step before: an upper bound.

    Create it in the strategy's scope.
    """

    def __init__(self):
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False, aggregation=once, name="data_seconds")

    @property
    def seconds(self) -> float:
        """The seconds so far; reading them waits for the device."""
        return float(self._seconds.numpy())

    def timed(self, update: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function of an iterator that measures, and returns what `update` of its next batch does.

        Args:
            update: Traced; as TensorFlow's iterators know no shapes, once for all.
        """

        @counted_alone(reduce_retracing=True, autograph=False)
        def timed(batches: Any) -> Any:
            batch, seconds = timed_next(batches, asked=ASKED, arrived=ARRIVED)
            self._seconds.assign_add(seconds)
            return update(batch)

        return timed


def timed_next(batches: Any, *, asked: str | None = None, arrived: str | None = None) -> tuple[Any, tf.Tensor]:
    """The next batch of an iterator, and the seconds until it arrived: float64. Call it inside a `tf.function`.

    Args:
        batches: A strategy's iterator.
        asked: Name of the operation that reads the time before.
        arrived: Name of the one that reads the time after.
    """
    before = read_clock(asked)
    with tf.control_dependencies([before]):
        batch = next(batches)
    with tf.control_dependencies([t for t in tf.nest.flatten(batch, expand_composites=True) if tf.is_tensor(t)]):
        after = read_clock(arrived)
    if not tf.config.list_logical_devices("GPU"):  # There ids might be copied to the host and back.
        with tf.control_dependencies([after]):  # Else a machine with one core may read the clock after the whole step.
            batch = tf.nest.map_structure(_held, batch, expand_composites=True)
    return batch, after - before


def _held(value: Any) -> Any:
    """The same value on the same device, once the control dependencies around are met."""
    if not tf.is_tensor(value):
        return value
    with value.graph.colocate_with(value.op):  # Else all replicas' batches would pass through the first device.
        return tf.identity(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch:
    """Some updates.

    Attributes:
        seconds: Their time, without pauses.
        steps: How many.
        work: What they held.
    """

    seconds: float = 0.0
    steps: int = 0
    work: Work = Work()

    def __add__(self, other: Stretch) -> Stretch:
        return _sum(self, other)

    @property
    def examples_per_second(self) -> float:
        """Real examples; NaN for no steps."""
        return self.work.examples / self.seconds if self.seconds else float("nan")

    @property
    def tokens_per_second(self) -> float:
        """Real tokens; NaN for no steps."""
        return self.work.tokens / self.seconds if self.seconds else float("nan")


class StepClock:
    """Reads the clock after each update.

    On a CPU an update is done when its call returns. On a GPU, `fit.make_updates` waits for the previous update
    before each reading: a reading is early by one update, and the time between two readings is that of one update.

    Args:
        planned: What each update holds, over all replicas and micro-batches, and the padded length of its batch, in
            tokens; from the first one made here, and read as far as updates are made.
        warm_up: Updates at the beginning that say nothing about the later speed.
        compiles_widths: Whether a new width is compiled when it first occurs (XLA); else only the first update is.

    Attributes:
        paused: Seconds since the last update that were not training (evaluation, checkpoints); callers add to it.
        total: All updates so far.
        usual: Those that compiled nothing.
        steady: Those of them after the warm-up.
    """

    def __init__(self, planned: Iterator[tuple[Work, int]], *, warm_up: int, compiles_widths: bool = False):
        self._planned, self._warm_up, self._compiles_widths = planned, warm_up, compiles_widths
        self._clock: Callable[[], float] = time.perf_counter
        self._steady_seconds: list[float] = []
        self._compiling_seconds: list[float] = []
        self._widths: set[int] = set()
        self._since = 0.0
        self.paused = 0.0
        self.total = self.usual = self.steady = self._recent = Stretch()

    def start(self) -> None:
        """Call when the first update begins."""
        self._since = self._clock()

    def tick(self) -> None:
        """Call when an update is done."""
        now = self._clock()
        work, width = next(self._planned)
        compiles = not self._widths or (self._compiles_widths and width not in self._widths)
        self._widths.add(width)
        this = Stretch(seconds=now - self._since - self.paused, steps=1, work=work)
        self._since, self.paused = now, 0.0
        if compiles:
            self._compiling_seconds.append(this.seconds)
        else:
            self.usual += this
            if self.total.steps >= self._warm_up:
                self._steady_seconds.append(this.seconds)
                self.steady += this
        self.total += this
        self._recent += this

    def take_recent(self) -> Stretch:
        """The updates since the last call."""
        recent, self._recent = self._recent, Stretch()
        return recent

    def percentile(self, percent: float) -> float:
        """Seconds that this share of the steady updates stayed below; NaN for none."""
        return float(np.percentile(self._steady_seconds, percent)) if self._steady_seconds else float("nan")

    def compile_seconds(self) -> float:
        """How much longer the updates that traced and compiled took than a usual one; NaN if there is no usual one."""
        usual = self.percentile(50)
        return sum(seconds - usual for seconds in self._compiling_seconds)


ROWS, GRADIENTS, REDUCED, UPDATED = "mark_rows", "mark_gradients", "mark_reduced", "mark_updated"
"""Names of the operations, in their order."""
FORWARD_BACKWARD, ALL_REDUCE, UPDATE = "forward_backward", "all_reduce", "update"
"""Name scopes, which GPU kernels carry."""


def mark(name: str, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Adds an operation between these tensors and what is made of the ones that are returned.

    For CPUs only: on a GPU the host would wait for the tensors, where otherwise kernels follow each other without it.

    Args:
        name: What the profile calls it.
        tensors: Tensors of the graph that is being traced.

    Returns:
        The same values. Whatever takes the tensors themselves may run before the operation.
    """
    # When TensorFlow inlines a call, control dependencies on the call are lost: depend on the values themselves.
    held = tf.identity_n(tensors) if len(tensors) > 1 else tensors
    with tf.control_dependencies(held):
        clock = read_clock(name)
    with tf.control_dependencies([clock]):
        return [tf.identity(tensor) for tensor in held]


def counted_alone(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`tf.function`, for a function that is defined anew for each model.

    TensorFlow warns of a function that is traced too often. It goes by the code, and so takes the first traces of five
    models for five traces of one function; here it counts those of this one.

    Args:
        function: What to trace; None for a decorator with options.
        options: Those of `tf.function`.
    """
    if function is None:
        return functools.partial(counted_alone, **options)
    own = functools.partial(function)  # Has no code, so that it is counted as an object.
    own.__name__, own.__doc__ = function.__name__, function.__doc__
    return tf.function(own, **options)


def as_traced(update: Callable[..., Any], compute_dtype: str) -> Callable[..., Any]:
    """A `tf.function` that leaves out TensorFlow's graph optimizer, where CPUs compute in 16 bits.

    For an update of a BERT of 6 layers the optimizer needs 0.7 s, 3 s where it has several micro-batches, and such
    updates are as fast without it: benchmarks/results/2026-11-27-graph-optimizer.md. In float32 they are 2% slower, as
    are predictions in any precision; GPUs were not measured.
    """
    if tf.config.list_logical_devices("GPU") or compute_dtype == "float32":
        return update

    def call(*args: Any) -> Any:
        before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        try:
            return update(*args)
        finally:
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})

    return call
