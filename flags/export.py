"""Flags of the topic `export`."""

from absl import flags

from flags._topic import define_topic
from tfbert.mode_config import ExportConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(ExportConfig, values)
