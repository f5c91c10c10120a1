"""Flags of the topic `output`."""

from absl import flags

from flags._topic import define_topic
from tfbert.config import OutputConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(OutputConfig, values)
