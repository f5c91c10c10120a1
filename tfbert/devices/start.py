"""What every mode begins with: the process set up, the strategy built, and only the chief's messages shown."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator

import keras
import tensorflow as tf

from tfbert.config.run import Config
from tfbert.devices import runtime
from tfbert.devices.cluster import current_cluster
from tfbert.devices.same_run import check_same, versions_of
from tfbert.devices.strategy import build_strategy, describe, is_chief
from tfbert.errors import UsageError
from tfbert.private import check_not_forked, publish, published

log = logging.getLogger("tfbert")

_WARNING = "warning: "
_runs = itertools.count()
_OF_CHIEF = "is_of_the_chief"
"""Marks what every worker would say of the same run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """Where a mode computes.

    Attributes:
        strategy: The strategy.
        policy: The precision policy's name.
        chief: Whether this process writes files and shows progress.
    """

    strategy: tf.distribute.Strategy
    policy: str
    chief: bool

    def __str__(self) -> str:
        return f"{describe(self.strategy)}, {self.policy}"


def start_devices(config: Config) -> Devices:
    """Sets the process up, builds the strategy and compares its workers' options; all of these must call this.

    Raises:
        UsageError: for devices, or a cluster, that cannot be used; for workers of other options or versions; and in a
            process forked from one that had used TensorFlow.
        RunError: for workers that do not answer in time.
    """
    check_not_forked()
    check_backend()
    policy = runtime.set_up(config.runtime)
    strategy = build_strategy(config.runtime)
    chief = is_chief(strategy)
    if not chief:
        cluster = current_cluster()
        me, first = f"{cluster.job} {cluster.index}", "the chief" if "chief" in cluster.jobs else "worker 0"
        log.info(
            f"this is {me} of {cluster.size}: it computes with the others, but {first} alone shows progress and writes "
            "files, such as log.jsonl in the output directory; warnings and errors are shown here too"
        )
    inform_on_chief_alone(chief)
    check_same(lambda: config.shared() | {"precision": policy} | versions_of("keras"), strategy)
    return Devices(strategy=strategy, policy=policy, chief=chief)


@contextlib.contextmanager
def chief_ends_last(devices: Devices) -> Iterator[None]:
    """Keeps the other workers at the end of the block until the chief is there: of one that ends before it, TensorFlow
    says there that it has crashed."""
    name = f"tfbert/ended/{next(_runs)}"
    has_peers = isinstance(devices.strategy, tf.distribute.MultiWorkerMirroredStrategy)
    try:
        yield
    finally:
        if has_peers and devices.chief:
            with contextlib.suppress(tf.errors.OpError):
                publish(name, "")
    if has_peers and not devices.chief:
        with contextlib.suppress(tf.errors.OpError):  # The chief is gone.
            while published(name, seconds=1.0) is None:
                pass


def check_backend() -> None:
    """Refuses Keras 3 that does not compute with TensorFlow.

    Raises:
        UsageError: for another backend.
    """
    if keras.config.backend() != "tensorflow":
        raise UsageError(
            f"BERT is computed by TensorFlow. Received: Keras with the backend {keras.config.backend()!r}. "
            'Set os.environ["KERAS_BACKEND"] = "tensorflow" before keras is imported.'
        )


def tell(lines: Iterable[str]) -> None:
    """Logs what the user should know of a run, by the chief alone.

    Args:
        lines: One that begins with `warning: ` is a warning, any other information.
    """
    for line in lines:
        level = logging.WARNING if line.startswith(_WARNING) else logging.INFO
        log.log(level, "%s", line, extra={_OF_CHIEF: True})


def inform_on_chief_alone(chief: bool) -> None:
    """Makes the logger "tfbert" drop messages of level INFO, unless this process is the chief.

    Every worker shows warnings and errors, and with the logger at DEBUG also information. This holds until the next
    call: a process may be the chief of one run and not of the next.
    """
    log.removeFilter(_is_for_every_worker)
    if not chief:
        log.addFilter(_is_for_every_worker)


def _is_for_every_worker(record: logging.LogRecord) -> bool:
    is_for_all = record.levelno > logging.INFO and not hasattr(record, _OF_CHIEF)
    return is_for_all or log.isEnabledFor(logging.DEBUG)
