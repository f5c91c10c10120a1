"""The files that a row's run left -> the numbers of its row; and the table's columns that compare rows."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

from tfbert.config.run import Config
from tfbert.modes.benchmark.grid import BenchmarkRow
from tfbert.modes.benchmark.prediction import predicted, smallest_like
from tfbert.report.run_files import RunFiles, read_run

COLUMNS = {
    "row": "number of the row",
    "pass": "training or inference",
    "workers": "processes",
    "replicas": "replicas of each process",
    "precision": "",
    "xla": "",
    "batch_size": "global batch",
    "micro_batches": "of each replica's share",
    "seq_length": "longest input in tokens",
    "batching": "",
    "status": "done or failed",
    "seconds": "of all updates, tracing and compilation included; or of the second evaluation",
    "examples_per_second_with_warmup": "of all updates, or of the first evaluation: tracing and compilation included",
    "examples_per_second": "after the warm-up",
    "tokens_per_second": "real tokens, after the warm-up",
    "step_ms_p50": "median of an update, or of a batch of inference",
    "step_ms_p95": "95th percentile",
    "compile_seconds": "what tracing and compiling added",
    "data_wait_share": "of the time after the warm-up",
    "user_seconds": "CPU time of the (first) process in all updates, or in the second evaluation",
    "kernel_seconds": "CPU time of the kernel, besides: above all for mapping and zeroing memory",
    "peak_memory_bytes": "of the device, or of the process on a CPU",
    "peak_share": "model FLOPs of real tokens over the measured peak of a matrix product",
    "speed_up": "examples_per_second over those of the first row of the pass in the same precision",
    "efficiency": "examples/s of a replica over those in the smallest row like it: see prediction.smallest_like",
    "gradient_bytes": "what each replica reduces in an update, in float32",
    "all_reduce_ms": "of the bytes of all gradients, measured after the run with nothing else to do",
    "predicted_examples_per_second": "from the row of one replica and all_reduce_ms: see prediction.py",
    "score": "evaluation, where asked for",
    "cost": "of the whole run at the given price",
    "devices": "what the row ran on",
    "reason": "of a failure",
}
"""Every column and what it means."""

_OUT_OF_MEMORY = re.compile(r"ResourceExhausted|OOM when|out of memory|bad_alloc|MemoryError|Cannot allocate", re.I)


def measured(row: BenchmarkRow, benchmark_config: Config, directory: pathlib.Path) -> dict[str, Any]:
    """The numbers of a row whose run is done.

    Args:
        row: The row.
        benchmark_config: The configuration of the whole benchmark.
        directory: The directory of the row's run.
    """
    run = read_run(directory)
    extra = json.loads((directory / "row.json").read_text(encoding="utf-8"))
    numbers = _training(run) if row.measured == "training" else _inference(run)
    gflops = numbers.pop("gflops", None)
    # GPUs add up; replicas and workers on CPUs share the machine's.
    devices = run.results.get("num_replicas", 1) if "GPU" in run.facts.get("devices", "") else 1
    if gflops:
        numbers["peak_share"] = round(gflops * 1e9 / (extra["peak_flops"] * devices), 4)
    benchmark = benchmark_config.benchmark
    if row.measured == "training" and benchmark.benchmark_accuracy and run.score:
        numbers["score"] = round(run.score[1], 4)
    if row.measured == "training" and benchmark.price_per_hour:
        hours = whole_run_seconds(run, numbers, benchmark_config) / 3600
        numbers["cost"] = round(hours * benchmark.price_per_hour, 4)
    if extra["all_reduce_seconds"]:
        numbers["all_reduce_ms"] = round(1000 * extra["all_reduce_seconds"], 3)
    settings = row.settings | _resolved(row, run, extra["num_workers"])
    return settings | {"row": row.number, "status": "done", "peak_flops": extra["peak_flops"]} | numbers


def _resolved(row: BenchmarkRow, run: RunFiles, num_workers: int) -> dict[str, Any]:
    """The settings that the run resolved for itself."""
    replicas = run.results.get("num_replicas", 1)
    settings = {
        "replicas": replicas // num_workers,
        "precision": run.precision.removeprefix("mixed_"),
        "micro_batches": run.option("training", "gradient_accumulation_steps"),
        "devices": run.facts.get("devices", ""),
    }
    if row.measured == "inference":
        settings["batch_size"] = run.option("runtime", "per_device_eval_batch_size") * replicas
    return settings


def whole_run_seconds(run: RunFiles, numbers: dict[str, Any], benchmark_config: Config) -> float:
    """How long the updates of the whole run that the benchmark's options describe take, compilation included."""
    training = benchmark_config.resolved().training
    limits = [training.max_steps * run.option("training", "global_batch_size")] if training.max_steps else []
    if training.num_train_epochs:
        limits.append(run.facts["train_examples"] * training.num_train_epochs)
    return min(limits) / numbers["examples_per_second"] + numbers["compile_seconds"]


def _training(run: RunFiles) -> dict[str, Any]:
    results = run.results
    return {
        "seconds": results["train_runtime"],
        "examples_per_second_with_warmup": results["train_examples_per_second_with_warmup"],
        "examples_per_second": results["train_examples_per_second_steady"],
        "tokens_per_second": results["train_tokens_per_second_steady"],
        "step_ms_p50": round(1000 * results["step_seconds_p50"], 3),
        "step_ms_p95": round(1000 * results["step_seconds_p95"], 3),
        "compile_seconds": results["compile_seconds"],
        "data_wait_share": results["data_wait_share"],
        "user_seconds": results["train_user_seconds"],
        "kernel_seconds": results["train_kernel_seconds"],
        "peak_memory_bytes": results["peak_memory_bytes"],
        "gradient_bytes": results["gradient_bytes"],
        "gflops": results["train_model_gflops_per_second"],
    }


def _inference(run: RunFiles) -> dict[str, Any]:
    first, second = [record for record in run.records if record["kind"] == "eval"][:2]
    return {
        "seconds": second["eval_runtime"],
        "examples_per_second_with_warmup": first["eval_samples_per_second"],
        "examples_per_second": second["eval_samples_per_second"],
        "tokens_per_second": second["eval_tokens_per_second"],
        "step_ms_p50": round(1000 * second["eval_batch_seconds_p50"], 3),
        "step_ms_p95": round(1000 * second["eval_batch_seconds_p95"], 3),
        "compile_seconds": round(max(0.0, first["eval_runtime"] - second["eval_runtime"]), 2),
        "data_wait_share": second["eval_data_wait_share"],
        "user_seconds": second["eval_user_seconds"],
        "kernel_seconds": second["eval_kernel_seconds"],
        "peak_memory_bytes": run.results["peak_memory_bytes"],
        "gflops": second["eval_model_gflops_per_second"],
    }


def failed(row: BenchmarkRow, reason: str) -> dict[str, Any]:
    """The row of a run that failed."""
    return row.settings | {"row": row.number, "status": "failed", "reason": reason}


def failure_reason(status: int, stderr: str) -> str:
    """A run's exit in a few words.

    Args:
        status: The exit status of the process; negative for a signal.
        stderr: What it wrote there.
    """
    if _OUT_OF_MEMORY.search(stderr):
        return "out of memory"
    if status == -9:
        return "killed by the system, most likely for lack of memory"
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error: " in line] or lines
    return f"exit status {status}: {errors[-1].strip() if errors else 'no message'}"


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with speed-up over the first done row of their pass and precision, efficiency, and predictions."""
    out = []
    for row in rows:
        if row["status"] == "done":
            group = ("pass", "precision", "status")
            first = next(r for r in rows if [r.get(name) for name in group] == [row[name] for name in group])
            speed_up = row["examples_per_second"] / first["examples_per_second"]
            own, least = (
                r["examples_per_second"] / (r["workers"] * r["replicas"]) for r in (row, smallest_like(row, rows))
            )
            row = row | {"speed_up": speed_up, "efficiency": own / least}
            row = row | predicted(row, rows)
        out.append(row)
    return out
