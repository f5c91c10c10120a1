"""Flags of the topic `training`."""

from absl import flags

from flags._topic import define_topic
from tfbert.config import TrainingConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(TrainingConfig, values)
