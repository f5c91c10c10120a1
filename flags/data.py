"""Flags of the topic `data`."""

from absl import flags

from flags._topic import define_topic
from tfbert.config import DataConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(DataConfig, values)
