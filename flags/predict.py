"""Flags of the topic `predict`."""

from absl import flags

from flags._topic import define_topic
from tfbert.mode_config import PredictConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(PredictConfig, values)
