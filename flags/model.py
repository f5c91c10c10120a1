"""Flags of the topic `model`."""

from absl import flags

from flags._topic import define_topic
from tfbert.config import ModelConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(ModelConfig, values, aliases={"model": "model_name_or_path"})
