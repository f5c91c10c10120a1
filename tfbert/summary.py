"""What a run says of itself: the banner at its start, its results, the lines at its end."""

from __future__ import annotations

import pathlib

import numpy as np

from tfbert.callbacks import Progress, eval_prefix
from tfbert.config import Config
from tfbert.data.pipeline import EncodedExamples
from tfbert.data.plan import micro_batch_size
from tfbert.data.sources import TaskData
from tfbert.finetuner import FineTuner
from tfbert.logs import duration
from tfbert.optimizer import warmup_steps
from tfbert.schedule import Schedule, TrainingBatches


def banner(
    config: Config,
    data: TaskData,
    train: EncodedExamples,
    schedule: Schedule,
    batches: TrainingBatches,
    replicas: int,
    policy: str,
    devices: str,
    num_parameters: int,
    directory: pathlib.Path | None,
) -> list[str]:
    """What is about to run, a line each."""
    training = config.training
    lengths = train.tokens.lengths
    steps = training.gradient_accumulation_steps
    micro = micro_batch_size(training.global_batch_size, replicas, steps)
    cut = int((lengths == config.data.max_seq_length).sum())
    sets = {eval_prefix(name): len(part) for name, part in data.validation.items()}
    if data.test is not None:
        sets["test"] = len(data.test)
    kind = f"{len(data.label_names)} classes: {', '.join(data.label_names[:8])}" if data.label_names else "regression"
    others = "".join(f", {name} {size:,}" for name, size in sets.items()) or ", nothing to evaluate on"
    return [
        *data.notes,
        f"model      {config.model.model_name_or_path}, {num_parameters:,} parameters",
        f"data       {config.data.source}: train {len(train):,}{others}; {kind}",
        f"tokens     median {int(np.median(lengths))}, longest {lengths.max()}; {cut:,} texts fill all "
        f"{config.data.max_seq_length} and may be cut",
        f"batch      {training.global_batch_size} = {replicas} replica{'s' * (replicas > 1)} x "
        f"{steps} micro-batch{'es' * (steps > 1)} x {micro}",
        f"batches    {batches.description}",
        f"updates    {schedule.total_steps:,} ({schedule.total_steps / schedule.steps_per_epoch:.4g} epochs of "
        f"{schedule.steps_per_epoch:,}), evaluation every {schedule.eval_steps:,}",
        f"rate       {training.learning_rate:g}, {training.lr_schedule}, "
        f"{warmup_steps(training, schedule.total_steps):,} updates of warm-up",
        f"precision  {policy}{', XLA' * config.runtime.xla}"
        f"{', gradient checkpointing' * training.gradient_checkpointing}",
        f"devices    {devices}",
        f"output     {directory}",
    ]


def train_results(
    model: FineTuner, progress: Progress, schedule: Schedule, num_examples: int, seconds: float
) -> dict[str, float]:
    """The training part of `all_results.json`, under Hugging Face's names where it has one."""
    steps = int(model.optimizer.iterations.numpy())
    counters = model.progress
    finite = int(counters.finite_steps.numpy())
    made = steps - schedule.first_step
    examples = made * num_examples / schedule.steps_per_epoch
    return {
        "epoch": schedule.epoch_at(steps),
        "global_step": steps,
        "train_loss": float(counters.loss_sum.numpy()) / finite if finite else float("nan"),
        "train_runtime": round(seconds, 2),
        "train_samples_per_second": round(examples / seconds, 2),
        "train_steps_per_second": round(made / seconds, 3),
        "train_examples_per_second_steady": round(progress.examples_per_second, 2),
        "skipped_steps": int(counters.skipped_steps.numpy()),
    }


def summary(results: dict[str, float], directory: pathlib.Path) -> list[str]:
    """The end of a run on the screen."""
    scores = [f"{k} {v:.4f}" for k, v in results.items() if k.startswith(("eval_", "test_"))]
    lines = [
        "",
        f"trained in {duration(results['train_runtime'])}, {results['train_samples_per_second']:.0f} examples/s",
    ]
    if scores:
        at = f" (step {results['best_step']})" if "best_step" in results else ""
        lines.append(f"kept weights{at}: {', '.join(scores)}")
    return [*lines, f"saved to {directory}"]
