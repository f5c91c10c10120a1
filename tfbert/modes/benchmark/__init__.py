"""`--mode=benchmark`: a grid of runs, each a process of its own, and the table of what they measured. No TensorFlow."""

from tfbert.modes.benchmark.runner import run_benchmark

__all__ = ["run_benchmark"]
