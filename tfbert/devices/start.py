"""What every mode begins with: the process set up, the strategy built, and who of the workers speaks."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import tensorflow as tf

from tfbert.config.run import RuntimeConfig
from tfbert.devices import runtime
from tfbert.devices.strategy import build_strategy, describe, is_chief

log = logging.getLogger("tfbert")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """Where a mode computes.

    Attributes:
        strategy: The strategy.
        policy: The precision policy's name.
        chief: Whether this process writes files and shows progress.
        say: Prints a line, on the chief.
    """

    strategy: tf.distribute.Strategy
    policy: str
    chief: bool
    say: Callable[[str], None]

    def __str__(self) -> str:
        return f"{describe(self.strategy)}, {self.policy}"


def start_devices(config: RuntimeConfig) -> Devices:
    """Sets the process up and builds the strategy; all workers must call.

    Raises:
        UsageError: for devices, or a cluster, that cannot be used.
        RunError: for workers that are not there in time.
    """
    policy = runtime.set_up(config)
    strategy = build_strategy(config, cluster_timeout_seconds=config.cluster_timeout_seconds)
    chief = is_chief(strategy)
    return Devices(strategy=strategy, policy=policy, chief=chief, say=speaker(chief))


def speaker(chief: bool) -> Callable[[str], None]:
    """Prints lines on the chief; elsewhere they are for debugging."""
    return log.info if chief else log.debug
