"""The options of `--mode=benchmark`: the axes of a grid of runs. Imports nothing but the standard library."""

from __future__ import annotations

import dataclasses

from tfbert.config.rules import one_of, option
from tfbert.config.types import Options

PASSES = ("training", "inference")
PRECISIONS = ("float32", "float16", "bfloat16")

AXES = {
    "benchmark_workers": ("strategy",),
    "benchmark_replicas": ("strategy", "num_replicas"),
    "benchmark_precisions": ("mixed_precision", "mixed_precision_dtype"),
    "benchmark_xla": ("xla",),
    "benchmark_accumulation": ("gradient_accumulation_steps",),
    "benchmark_batch_sizes": ("global_batch_size",),
    "benchmark_seq_lengths": ("max_seq_length",),
    "benchmark_batching": ("batching",),
}
"""Each axis and the options it takes the place of, which have no effect beside it."""
_CHOICES = {
    "benchmark_passes": PASSES,
    "benchmark_precisions": PRECISIONS,
    "benchmark_xla": ("off", "on"),
    "benchmark_batching": ("length_grouped", "padded", "packed"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig(Options):
    """What `--mode=benchmark` measures: every combination of the axes, a row each. An axis that is left empty keeps the
    run's own option."""

    benchmark_passes: tuple[str, ...] = option(("training",), modes=("benchmark",))
    """What to measure: training, inference, or both."""
    benchmark_workers: tuple[int, ...] = option((), modes=("benchmark",), least=1)
    """Axis: workers on this machine, started as tfbert.launch does; above 1 with strategy multi_worker."""
    benchmark_replicas: tuple[int, ...] = option((), modes=("benchmark",), least=1)
    """Axis: replicas of one process; above 1 with strategy mirrored."""
    benchmark_precisions: tuple[str, ...] = option((), modes=("benchmark",))
    """Axis: float32, float16, bfloat16."""
    benchmark_xla: tuple[str, ...] = option((), modes=("benchmark",))
    """Axis: off, on. Inference is measured without XLA."""
    benchmark_accumulation: tuple[int, ...] = option((), modes=("benchmark",), least=1)
    """Axis: micro-batches of each replica's share of a global batch."""
    benchmark_batch_sizes: tuple[int, ...] = option((), modes=("benchmark",), least=1)
    """Axis: global batch sizes; for inference, rows predicted at a time by all replicas together."""
    benchmark_seq_lengths: tuple[int, ...] = option((), modes=("benchmark",), least=1)
    """Axis: longest input in tokens."""
    benchmark_batching: tuple[str, ...] = option((), modes=("benchmark",))
    """Axis: length_grouped, padded, packed."""
    benchmark_steps: int = option(50, modes=("benchmark",), least=2)
    """Updates that are measured in each training row."""
    benchmark_warmup_steps: int = option(10, modes=("benchmark",), least=1)
    """Updates before the measured ones, as warm-up; at most as many as are measured."""
    benchmark_accuracy: bool = option(False, modes=("benchmark",))
    """Train each training row for the whole run (`max_steps`, `num_train_epochs`), and report its evaluation."""
    price_per_hour: float = option(0.0, modes=("benchmark",), least=0)
    """Price of one machine for an hour, in any currency: adds the cost of the whole run to each training row. 0: no
    cost."""

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = []
        for name, choices in _CHOICES.items():
            out += [one_of(name, value, choices) for value in getattr(self, name) if value not in choices]
        for field in dataclasses.fields(self):
            values = getattr(self, field.name)
            if isinstance(values, tuple):
                if len(set(values)) < len(values):
                    out.append(
                        f"Each value of {field.name} makes its own rows. "
                        f"Received: {field.name}={','.join(map(str, values))}. List each once."
                    )
        if not self.benchmark_passes:
            out.append("Something must be measured. Received: benchmark_passes=''. Pass training, inference or both.")
        return out
