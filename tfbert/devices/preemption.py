"""Stopping when asked: SIGTERM and SIGINT end a run after a step, on all workers together, with a checkpoint.

After the last step they change nothing: the rest of the run is short, and writes the model first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator

import tensorflow as tf

from tfbert.errors import is_command
from tfbert.measure.tracing import counted_alone
from tfbert.private import let_go_of_traced_gradients

log = logging.getLogger("tfbert")


class StopRequest:
    """Whether this process has been asked to stop.

    Attributes:
        is_set: Whether it has.
        consequence: What the process does then, for the log.
    """

    def __init__(self):
        self.is_set = False
        self.consequence = "stopping after this step"

    def _receive(self, number: int, frame) -> None:
        name = signal.Signals(number).name
        if self.is_set and number == signal.SIGINT:
            log.warning("second SIGINT: stopping at once, without a checkpoint")
            if is_command():
                os._exit(128 + number)
            raise KeyboardInterrupt  # A notebook's kernel lives on.
        self.is_set = True
        log.warning("%s received: %s (a second SIGINT stops at once)", name, self.consequence)

    @contextlib.contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Handles SIGTERM and SIGINT while active; does nothing outside the main thread, where Python forbids it."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Consensus:
    """Makes the workers of a strategy agree; every worker must call at the same points.

    Args:
        strategy: Any strategy; without other workers nothing is exchanged.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.has_peers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self._replicas = strategy.num_replicas_in_sync

        @counted_alone
        def total(value):
            def add(value):
                value = tf.identity(value)  # A function's argument is on no device, which the reduction needs.
                return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)

            total = strategy.experimental_local_results(strategy.run(add, args=(value,)))[0]
            let_go_of_traced_gradients()
            return total

        self._total = total

    def any(self, opinion: bool) -> bool:
        """Whether any worker says yes."""
        return bool(self._total(tf.constant(float(opinion))) > 0) if self.has_peers else opinion

    def is_same(self, number: int) -> bool:
        """Whether all workers give the same number."""
        if not self.has_peers:
            return True
        total = self._total(tf.constant(number, tf.int64))
        # A worker whose number differs from the mean sees that; any() tells the others.
        return not self.any(int(total) != number * self._replicas)
