"""Several workers as one: they stop together when asked, are of the same run, and one line says who is lost.

SIGTERM and SIGINT end a run after a step, with a checkpoint. After the last step they change nothing: the rest of the
run is short, and writes the model first.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import logging
import os
import re
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.devices.cluster import current_cluster
from tfbert.devices.process import signals_handled, stderr_held_back
from tfbert.errors import RunError, UsageError, first_line, is_command
from tfbert.measure import counted_alone
from tfbert.private import fail_all_workers, has_workers, let_go_of_traced_gradients, publish, published

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
    def listening(self) -> Iterator[None]:
        """Handles SIGTERM and SIGINT while active; does nothing outside the main thread, where Python forbids it."""
        is_main = threading.current_thread() is threading.main_thread()
        with signals_handled(self._receive, *((signal.SIGTERM, signal.SIGINT) if is_main else ())):
            yield


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes files and shows progress."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not resolver.task_type:
        return True
    has_chief = "chief" in resolver.cluster_spec().jobs
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id == 0)


def num_workers_of(strategy: tf.distribute.Strategy) -> int:
    """Processes that a strategy spans."""
    resolver = strategy.cluster_resolver
    jobs = resolver.cluster_spec().as_dict() if resolver is not None else {}
    return max(1, sum(len(jobs.get(job, ())) for job in ("chief", "worker")))


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


_WAY_OUT = "Give all workers the same; only paths, and what is logged or written, may differ"
_SHOWN, _BEFORE, _MOST = 60, 20, 5
"""The most characters of a value in a message, those of them before a difference, and the most facts."""
_SECONDS = 60.0
_numbers = itertools.count()


def check_same(
    facts: Callable[[], Mapping[str, Any]],
    strategy: tf.distribute.Strategy | None = None,
    *,
    rule: str = "All workers must be of the same run",
    way_out: str = _WAY_OUT,
    error: type[UsageError] | type[RunError] = UsageError,
) -> None:
    """Refuses workers that are not the same, each with all that differs; without other workers it does nothing.

    Only a number is exchanged where they agree; else the facts are, apart from the collectives.

    Args:
        facts: Gives them, by name, as JSON can hold them: all that decides an update, or which collectives come when.
        strategy: Each of its workers must call this function at the same place; None for the present one.
        rule: What a message begins with.
        way_out: What it ends with.
        error: Its class.

    Raises:
        UsageError, or what `error` says: on all workers alike.
    """
    strategy = strategy or tf.distribute.get_strategy()
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    text = json.dumps(facts(), sort_keys=True)
    if not _consensus_of(strategy).is_same(zlib.crc32(text.encode())):
        found = {worker: json.loads(each) for worker, each in _of_all_workers(text, strategy).items()}
        refusal = error(f"{rule}. Received: {differences(found)}. {way_out}.")
        refusal.others_know = True
        raise refusal


def differences(found: Mapping[str, Mapping[str, Any]]) -> str:
    """What differs between workers, such as `seed=1 on worker 0 and 2 on worker 1; ...`.

    Args:
        found: The facts of each worker, by its name.
    """
    leaves = {worker: _leaves(facts) for worker, facts in found.items()}
    phrases = []
    for name in dict.fromkeys(itertools.chain.from_iterable(leaves.values())):
        workers: dict[str, list[str]] = {}
        for worker, facts in leaves.items():
            workers.setdefault(facts.get(name, "nothing"), []).append(worker)
        # Of long texts, from where they differ.
        first = max(0, len(os.path.commonprefix([*workers])) - _BEFORE) if max(map(len, workers)) > _SHOWN else 0
        values = []
        for value, names in workers.items():
            shown = f"{'...' if first else ''}{value[first:][:_SHOWN]}{'...' if len(value) > first + _SHOWN else ''}"
            who = ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others"
            values.append(f"{shown} on {who}")
        if len(values) > 1:
            phrases.append(f"{name}={' and '.join(values)}")
    more = [f"{len(phrases) - _MOST} more"] if len(phrases) > _MOST else []
    return "; ".join([*phrases[:_MOST], *more])


def checksum(*arrays: Any) -> str:
    """What tells arrays from others, whatever they hold."""
    value = 0
    for array in map(np.ascontiguousarray, arrays):
        value = zlib.crc32(f"{array.dtype}{array.shape}".encode(), value)
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.reshape(-1).view(np.uint8).data
        value = zlib.crc32(content, value)
    return f"{value:08x}"


def versions_of(*modules: str) -> dict[str, str]:
    """The versions of imported packages whose numbers workers must share."""
    return {name: importlib.import_module(name).__version__ for name in ("tfbert", "tensorflow", "numpy", *modules)}


def _of_all_workers(text: str, strategy: tf.distribute.Strategy) -> dict[str, str]:
    """The text of each worker, by its name; of those of which there is none in time, none."""
    resolver, name = strategy.cluster_resolver, f"tfbert/facts/{next(_numbers)}"
    spec = resolver.cluster_spec()
    workers = [f"{job} {i}" for job in ("chief", "worker") if job in spec.jobs for i in spec.task_indices(job)]
    own = f"{resolver.task_type} {resolver.task_id}"
    publish(f"{name}/{own}", text)
    found = {worker: published(f"{name}/{worker}", _SECONDS) for worker in workers}
    publish(f"{name}/{own}/seen", "")
    if own == workers[0]:  # It keeps the texts, and must not be gone before the others have them.
        for worker in workers:
            published(f"{name}/{worker}/seen", _SECONDS)
    return {worker: each for worker, each in found.items() if each is not None}


@functools.lru_cache(maxsize=1)  # Traced once: a process is of one cluster.
def _consensus_of(strategy: tf.distribute.Strategy) -> Consensus:
    return Consensus(strategy)


def _leaves(value: Any, name: str = "") -> dict[str, str]:
    """Facts within facts, as text by a name such as `optimizer.learning_rate`."""
    if not isinstance(value, dict):
        return {name: repr(value)}
    found = (_leaves(part, f"{name}.{key}" if name else str(key)) for key, part in value.items())
    return {key: leaf for leaves in found for key, leaf in leaves.items()}


_PEER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnknownError,
)
_PEER_MESSAGES = re.compile(r"Collective ops is aborted|CoordinationService|remote target /job:")
_MISMATCH = re.compile(r"ollective instance \d+\b.*?(expected [^\n]+?)(?:\. |\n|$)")
"""What TensorFlow says where workers do not come to the same collective operation."""
_TOLD = re.compile(r"\[tfbert\] (.*?) \[/tfbert\]", re.S)
"""What a worker told the others that ended with an error of its own."""
_PAUSE_SECONDS = 1.0
_AGAIN = "start all workers again: training resumes from its newest checkpoint, if there is one."

_HEARTBEAT = "/tensorflow.CoordinationService/Heartbeat"
"""The call by which each worker tells the first one that it lives."""
_UNKNOWN_WORKER = "must be registered before sending heartbeat"
"""The answer of a first worker that has been started again to a worker of before, an InvalidArgumentError."""


def is_peer_failure(error: BaseException) -> bool:
    """Whether an exception of a training step says that another worker was lost, not that this one failed.

    It is an UnavailableError for a worker that was killed, left or froze, and a DeadlineExceededError if the first
    worker froze. AbortedError and others may take their place, depending on which operation of a step notices first.
    """
    message = str(error)
    if _MISMATCH.search(message):
        return True
    if isinstance(error, tf.errors.InvalidArgumentError):  # Otherwise that of an operation of this worker's own.
        return _HEARTBEAT in message and _UNKNOWN_WORKER in message
    return isinstance(error, _PEER_ERRORS) and bool(_PEER_MESSAGES.search(message))


@contextlib.contextmanager
def peer_failures_as_run_errors() -> Iterator[None]:
    """Turns a lost worker into one clear line.

    Raises:
        RunError: for an exception that `is_peer_failure` knows; others pass unchanged.
    """
    try:
        yield
    except Exception as error:
        if not (isinstance(error, tf.errors.OpError) and is_peer_failure(error)):
            if is_command() and not getattr(error, "others_know", False):  # Here a command ends.
                what = f"{_own_name()}, which ended: {first_line(error, 1000)}"
                _tell_others(f"All workers must be able to go on. Received: {what}. Mend that, and {_AGAIN}")
                vars(error)["others_know"] = True
            raise
        message = str(error)
        if told := _TOLD.search(message):
            line = told[1]
        elif found := _MISMATCH.search(message):
            line = (
                "All workers must compute the same, in the same order. Received: collective operations that differ, "
                f"{found[1]}. Give all the same program, options and data."
            )
            _tell_others(line)
        else:
            lost = f"{type(error).__name__}, lost contact with {_lost(message)}"
            cause = f"See its output for the cause, then the network, and {_AGAIN}"
            line = f"All workers must stay up and reachable. Received: {lost}. {cause}"
        failure = RunError(line)
        failure.others_know = True
        raise failure from error


def _tell_others(line: str) -> None:
    """Has the other workers end with a line; one that is about to find the same fault does so first."""
    if has_workers():
        with stderr_held_back(), contextlib.suppress(tf.errors.OpError):  # TensorFlow logs it, here and there.
            time.sleep(_PAUSE_SECONDS)
            fail_all_workers(f"[tfbert] {line} [/tfbert]")
            time.sleep(_PAUSE_SECONDS / 4)


def _lost(message: str) -> str:
    """Which workers an error names as lost; a device's name is only where it was noticed.

    An error may name this very worker: so it does where one goes on that was frozen, and that the others have given up.
    """
    if _UNKNOWN_WORKER in message:
        return "the first worker, which has been started again"
    found = [f"{m[1]} {m[2]}" for m in re.finditer(r"/job:(\w+)/(?:replica:0/)?task:(\d+)(?![\d/])", message)]
    others = ", ".join(name for name in dict.fromkeys(found) if name != _own_name())
    if found and not others:
        return "the other workers, whose error names this one"
    return others or ("the first worker, which takes all heartbeats" if _HEARTBEAT in message else "another worker")


def _own_name() -> str:
    try:
        cluster = current_cluster()
    except UsageError:  # An own program may tell TensorFlow otherwise who it is.
        return ""
    return f"{cluster.job} {cluster.index}"
