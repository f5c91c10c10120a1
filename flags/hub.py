"""Flags of the topic `hub`."""

from absl import flags

from flags._topic import define_topic
from tfbert.mode_config import HubConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(HubConfig, values)
