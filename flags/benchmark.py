"""Flags of the topic `benchmark`."""

from absl import flags

from flags._topic import define_topic
from tfbert.benchmark_config import BenchmarkConfig


def define(values: flags.FlagValues) -> None:
    """Declares them."""
    define_topic(BenchmarkConfig, values)
