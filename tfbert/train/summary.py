"""What a run reports: the banner at its start, its results, the lines at its end."""

from __future__ import annotations

import math
import pathlib

import keras
import numpy as np

from tfbert.batches.plan import micro_batch_size
from tfbert.config.counted import counted, rate_text
from tfbert.config.training import OPTIMIZERS
from tfbert.corpus.records import RecordLengths
from tfbert.devices.runtime import emulates_bfloat16, peak_memory_bytes
from tfbert.devices.strategy import describe
from tfbert.measure.flops import training_flops
from tfbert.output.logs import clock_text
from tfbert.tasks.base import Task
from tfbert.tasks.sets import eval_prefix
from tfbert.train.build import Run
from tfbert.train.callbacks import Progress

_SLOW = " (this CPU has no bfloat16 instructions: float32 is faster)"


def banner(run: Run) -> list[str]:
    """What is about to run, a line each.

    Args:
        run: The run.
    """
    config, data, schedule = run.config, run.data, run.schedule
    policy = keras.config.dtype_policy().name
    training, replicas = config.training, run.strategy.num_replicas_in_sync
    counts = _length_counts(run.train.lengths)
    steps, epochs = training.gradient_accumulation_steps, schedule.total_steps / schedule.steps_per_epoch
    micro = micro_batch_size(training.global_batch_size, replicas, steps)
    full = int(counts[config.data.max_seq_length :].sum()) if run.train.may_be_cut else 0
    about = f"; {full:,} text{'s fill' if full > 1 else ' fills'} all {config.data.max_seq_length} and may be cut"
    about = about if full else ""
    if data.task.reads_tokens:  # An example longer than a row takes several.
        about = f", in {len(run.train):,} rows" * (len(run.train) != len(data.train))
    sets = {eval_prefix(name): len(part) for name, part in data.validation.items()}
    if data.test is not None:
        sets["test"] = len(data.test)
    names = data.task.label_names
    weights = " with random weights" if config.model.is_scratch else ""
    kind = f"{len(names)} {data.task.label_word}: {', '.join(names[:8])}" if names else data.task.kind
    others = "".join(f", {name} {size:,}" for name, size in sets.items()) or ", nothing to evaluate on"
    return [
        *data.notes,
        *([run.head_start] if run.head_start and not run.resumed else []),
        f"model      {config.model.name}{weights}, {run.classifier.num_parameters():,} parameters",
        f"data       {config.source}: train {len(data.train):,}{others}; {kind}",
        f"tokens     median {_median(counts)}, longest {len(counts) - 1}{about}",
        f"batch      {training.global_batch_size} = {counted(replicas, 'replica')} x "
        f"{counted(steps, 'micro-batch', 'micro-batches')} x {micro}"
        f"{', above the number of examples: each update takes all' * (len(run.train) < training.global_batch_size)}",
        f"batches    {run.batches.description}",
        f"updates    {schedule.total_steps:,} ({epochs:.4g} epoch{'s' * (epochs != 1)} of "
        f"{schedule.steps_per_epoch:,}){f', evaluation every {schedule.eval_steps:,}' * bool(data.validation)}",
        f"rate       {OPTIMIZERS[training.optimizer].label}{training.learning_rate:g}, {training.lr_schedule}"
        f"{f' of power {training.lr_power:g}' * (training.lr_schedule == 'polynomial')}, "
        f"{counted(schedule.warmup_steps, 'update')} of warm-up",
        f"precision  {policy}{_SLOW * (policy == 'mixed_bfloat16' and emulates_bfloat16())}"
        f"{', XLA' * config.runtime.xla}"
        f"{', gradient checkpointing' * training.gradient_checkpointing}",
        f"devices    {describe(run.strategy)}",
        f"output     {run.directory}",
    ]


def _length_counts(lengths: np.ndarray | RecordLengths) -> np.ndarray:
    """How many examples, or sequences of examples that have several, have 0, 1, 2, ... tokens."""
    if isinstance(lengths, RecordLengths):
        return lengths.counts
    return np.bincount(lengths if lengths.ndim == 1 else lengths[lengths > 0])


def _median(counts: np.ndarray) -> int:
    """The median of the counted lengths, rounded down."""
    ends = np.cumsum(counts)
    middle = np.array([(ends[-1] - 1) // 2, ends[-1] // 2])
    return int(np.searchsorted(ends, middle, side="right").mean())


def train_results(run: Run, progress: Progress, seconds: float) -> dict[str, float]:
    """The training part of `all_results.json`, under Hugging Face's names where it has one.

    Speeds are those of the updates of this start. Hugging Face's `train_samples_per_second` is over the whole of `fit`;
    `train_examples_per_second_with_warmup` is over all updates, without evaluation and checkpoints; `steady` speeds
    also leave out the warm-up and updates that compiled. A number that does not exist is left out, such as a steady
    speed in a run of one update.

    Args:
        run: Trained.
        progress: Of the whole run.
        seconds: From the call of `fit` to its end.
    """
    counters, steps = run.model.counters, progress.steps
    step = int(run.model.optimizer.iterations.numpy())
    finite = int(counters.finite_steps.numpy())
    steady = steps.steady
    read = {"reads_tokens": run.data.task.reads_tokens, "masked_share": run.data.task.masked_share}
    flops = training_flops(run.classifier.config, steady.work, **read)
    numbers = {
        "train_loss": float(counters.loss_sum.numpy()) / finite if finite else math.nan,
        "train_runtime": round(seconds, 2),
        "train_samples_per_second": round(steps.total.work.examples / seconds, 2),
        "train_steps_per_second": round(steps.total.steps / seconds, 3),
        "train_examples_per_second_with_warmup": round(steps.total.examples_per_second, 2),
        "train_examples_per_second_steady": round(steady.examples_per_second, 2),
        "train_tokens_per_second_steady": round(steady.tokens_per_second, 1),
        "train_model_gflops_per_second": round(flops / steady.seconds / 1e9, 2) if steady.steps else math.nan,
        "step_seconds_p50": round(steps.percentile(50), 5),
        "step_seconds_p95": round(steps.percentile(95), 5),
        "compile_seconds": round(steps.compile_seconds(), 2),
        "data_wait_share": round(progress.data_wait_share, 5),
        "peak_memory_bytes": peak_memory_bytes(),
        "num_replicas": run.strategy.num_replicas_in_sync,
        "gradient_bytes": 4  # They are summed in float32 in every precision.
        * sum(math.prod(variable.shape) for variable in run.model.trainable_variables),
        "skipped_steps": int(counters.skipped_steps.numpy()),
    }
    known = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return {"epoch": run.schedule.epoch_at(step), "global_step": step} | known


def summary(results: dict[str, float], directory: pathlib.Path, task: Task, decisive: str) -> list[str]:
    """The end of a run on the screen."""
    found = {name: value for name, value in results.items() if name.startswith(("eval_", "test_"))}
    speed = rate_text(results["train_samples_per_second"])
    lines = ["", f"trained in {clock_text(results['train_runtime'])}, {speed} examples/s"]
    if found:
        at = f" (step {results['best_step']})" if "best_step" in results else ""
        lines.append(f"kept weights{at}: {task.metrics_line(found, decisive)}")
    if results.get("checkpoint_bytes"):
        number, each = results["checkpoints"], results["checkpoint_seconds"]
        share = number * each / results["train_runtime"]
        size = results["checkpoint_bytes"] / 1e6
        lines.append(
            f"checkpoints written: {number}, {each:.1f} s and {size:,.0f} MB each, {share:.1%} of the training time"
        )
    return [*lines, f"saved to {directory}"]
