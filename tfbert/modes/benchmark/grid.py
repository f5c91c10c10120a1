"""A benchmark's configuration -> its rows: each an ordinary training run's configuration."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from typing import Any

from tfbert.config.benchmark import BenchmarkConfig
from tfbert.config.parts import MAX_COMPILED_SHAPES, OutputConfig, RuntimeConfig
from tfbert.config.run import Config
from tfbert.errors import UsageError, first_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkRow:
    """One row of a benchmark.

    Attributes:
        number: From 1.
        measured: `training` or `inference`.
        settings: What distinguishes it from other rows, for the table.
        config: The run; None for a combination that cannot run.
        reason: Why it cannot run.
        num_workers: Processes to start.
        rows_at_a_time: Rows that all replicas of an inference row predict together; 0 means
            `per_device_eval_batch_size` for each. None for a training row.
    """

    number: int
    measured: str
    settings: dict[str, Any]
    config: Config | None
    reason: str = ""
    num_workers: int = 1
    rows_at_a_time: int | None = None

    @property
    def directory(self) -> str:
        """The directory of its run, inside that of the benchmark."""
        return f"rows/{self.number:03}"


def build_rows(config: Config, directory: pathlib.Path) -> list[BenchmarkRow]:
    """Every combination of the axes, the last axis running fastest; combinations of inference that differ only in
    options of training are one row."""
    benchmark = config.benchmark
    axes: dict[str, tuple] = {
        "measured": benchmark.benchmark_passes,
        "workers": benchmark.benchmark_workers or (1,),
        "replicas": benchmark.benchmark_replicas or (0,),
        "precision": benchmark.benchmark_precisions or (_precision(config),),
        "xla": tuple(v == "on" for v in benchmark.benchmark_xla) or (config.runtime.xla,),
        "batching": benchmark.benchmark_batching or (config.data.batching,),
        "seq_length": benchmark.benchmark_seq_lengths or (config.max_seq_length,),
        "batch_size": benchmark.benchmark_batch_sizes or (0,),
        "accumulation": benchmark.benchmark_accumulation or (0,),
    }
    rows, seen = [], set()
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        if point["measured"] == "inference":
            point |= {"xla": False, "batching": "", "accumulation": 0}
        if tuple(point.values()) in seen:
            continue
        seen.add(tuple(point.values()))
        rows.append(_row(config, directory, len(rows) + 1, point))
    return rows


def replicas_of(runtime: RuntimeConfig, num_gpus: int) -> int:
    """Replicas of a process that has `num_gpus` GPUs."""
    return 1 if runtime.strategy == "one_device" else runtime.num_replicas or num_gpus or 1


def resolve_inference(config: Config, rows_at_a_time: int, num_replicas: int) -> Config:
    """An inference row's run, once the number of its replicas is known: only the row's process can count the GPUs.

    Args:
        config: The row's configuration.
        rows_at_a_time: As in `BenchmarkRow`.
        num_replicas: Replicas of all workers together.

    Raises:
        UsageError: for rows that do not divide among the replicas.
    """
    if rows_at_a_time % num_replicas:
        raise UsageError(
            "The rows predicted at a time must divide among the replicas. Received: "
            f"benchmark_batch_sizes={rows_at_a_time} with {num_replicas} replicas. Pass multiples of {num_replicas}."
        )
    each = rows_at_a_time // num_replicas or config.runtime.per_device_eval_batch_size
    runtime = dataclasses.replace(config.runtime, per_device_eval_batch_size=each)
    # Updates are not measured, so they are as small as possible.
    training = dataclasses.replace(config.training, global_batch_size=num_replicas)
    return dataclasses.replace(config, runtime=runtime, training=training)


def _precision(config: Config) -> str:
    runtime = config.runtime
    return "float32" if not runtime.mixed_precision else runtime.mixed_precision_dtype


def _row(config: Config, directory: pathlib.Path, number: int, point: dict[str, Any]) -> BenchmarkRow:
    is_training, runtime = point["measured"] == "training", _runtime(config, point)
    is_known = runtime.strategy == "one_device" or runtime.num_replicas or runtime.device == "cpu"
    replicas = replicas_of(runtime, num_gpus=0) if is_known else "all"
    if is_training:
        batch = point["batch_size"] or config.training.global_batch_size
    elif point["batch_size"] or is_known:
        batch = point["batch_size"] or runtime.per_device_eval_batch_size * replicas * point["workers"]
    else:
        batch = f"{runtime.per_device_eval_batch_size} a replica"
    settings = {
        "pass": point["measured"],
        "workers": point["workers"],
        "replicas": replicas,
        "precision": point["precision"],
        "xla": point["xla"],
        "batch_size": batch,
        "micro_batches": point["accumulation"] or config.training.gradient_accumulation_steps if is_training else 1,
        "seq_length": point["seq_length"],
        "batching": point["batching"],
    }
    row = BenchmarkRow(
        number=number,
        measured=point["measured"],
        settings=settings,
        config=None,
        num_workers=point["workers"],
        rows_at_a_time=None if is_training else point["batch_size"],
    )
    try:
        run = _run_config(config, directory / row.directory, point, runtime, settings)
    except UsageError as error:
        return dataclasses.replace(row, reason=first_line(error, most=1000))
    return dataclasses.replace(row, config=run)


def _runtime(config: Config, point: dict[str, Any]) -> RuntimeConfig:
    strategy, num_replicas = config.runtime.strategy, config.runtime.num_replicas
    if point["workers"] > 1:
        strategy = "multi_worker"
    elif point["replicas"]:
        strategy, num_replicas = ("one_device", 0) if point["replicas"] == 1 else ("mirrored", point["replicas"])
    return dataclasses.replace(
        config.runtime,
        strategy=strategy,
        num_replicas=num_replicas,
        mixed_precision=point["precision"] != "float32",
        mixed_precision_dtype="auto" if point["precision"] == "float32" else point["precision"],
        xla=point["xla"],
        max_compiled_shapes=config.runtime.max_compiled_shapes if point["xla"] else MAX_COMPILED_SHAPES,
    )


def _run_config(
    config: Config, directory: pathlib.Path, point: dict[str, Any], runtime: RuntimeConfig, settings: dict[str, Any]
) -> Config:
    benchmark, is_training = config.benchmark, point["measured"] == "training"
    data = dataclasses.replace(config.data, max_seq_length=point["seq_length"])
    warmup_steps = benchmark.benchmark_warmup_steps
    if not benchmark.benchmark_accuracy:
        warmup_steps = min(warmup_steps, benchmark.benchmark_steps)
    steps = warmup_steps + benchmark.benchmark_steps
    output = OutputConfig(output_dir=str(directory), save_steps=0, resume="never", overwrite_output_dir=True)
    output = dataclasses.replace(output, logging_steps=warmup_steps)
    training = dataclasses.replace(config.training, gradient_accumulation_steps=settings["micro_batches"])
    if is_training:
        training = dataclasses.replace(training, global_batch_size=settings["batch_size"])
        data = dataclasses.replace(data, batching=point["batching"])
        if not benchmark.benchmark_accuracy:
            # Evaluation cannot be left out, so it is as small as possible.
            training = dataclasses.replace(training, max_steps=steps, num_train_epochs=None, metric_for_best_model="")
            data = dataclasses.replace(
                data, validation_file="", validation_split=None, test_file="", max_eval_examples=1
            )
    else:
        # The first evaluation traces, the second one is measured. `resolve_inference` does the rest.
        training = dataclasses.replace(training, max_steps=2, num_train_epochs=None)
        output = dataclasses.replace(output, eval_steps=1)
    return dataclasses.replace(
        config, mode="train", data=data, training=training, runtime=runtime, output=output, benchmark=BenchmarkConfig()
    )
