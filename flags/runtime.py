"""Flags of the topic `runtime`."""

from absl import flags

from flags._topic import define_topic
from tfbert.config import RuntimeConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(RuntimeConfig, values)
