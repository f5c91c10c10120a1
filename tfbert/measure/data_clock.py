"""How long updates wait for data, measured inside the training function: nothing waits for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfbert.measure.host_clock import read_clock
from tfbert.measure.tracing import counted_alone

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
