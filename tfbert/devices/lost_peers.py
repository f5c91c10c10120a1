"""What TensorFlow raises where another worker is lost, and the one line that is made of it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator

import tensorflow as tf

from tfbert.devices.cluster import current_cluster
from tfbert.devices.quiet import stderr_held_back
from tfbert.errors import RunError, UsageError, first_line, is_command
from tfbert.private import fail_all_workers, has_workers

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
_SECONDS = 1.0
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
            time.sleep(_SECONDS)
            fail_all_workers(f"[tfbert] {line} [/tfbert]")
            time.sleep(_SECONDS / 4)


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
