"""Private parts of TensorFlow by which workers know of each other, beside the collectives; see `tfbert.private`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context


def _process() -> Any:
    return context.context()


def configure_coordination(**options: Any) -> None:
    """Sets how workers find one another, and notice that one is lost. MultiWorkerMirroredStrategy has no option for
    this: it sets its own values unless some are set already.

    Args:
        options: As TensorFlow's `configure_coordination_service`.
    """
    _process().configure_coordination_service(**options)
    # Without the barrier the first worker returns from registration at once, and then waits for the others for ever.
    _process().coordination_service.cluster_register_with_barrier = True


def has_workers() -> bool:
    """Whether this process was set up as one of several workers."""
    return _process().coordination_service is not None


def publish(name: str, text: str) -> None:
    """Lets all workers read a text: of any size, and whatever else differs between them. A name serves once."""
    _process().set_config_key_value(name, text)


def published(name: str, seconds: float) -> str | None:
    """A text that a worker has published, or publishes within some seconds; None where there is none.

    Raises:
        tf.errors.OpError: where the first worker, which keeps the texts, is gone.
    """
    try:
        return _process().get_config_key_value(name, int(1000 * seconds))
    except tf.errors.DeadlineExceededError:
        return None


def fail_all_workers(line: str) -> None:
    """Ends every collective operation, of all workers, in an error with this line; there can be none after it."""
    _process().report_error_to_cluster(tf.errors.ABORTED, line)
