"""The training of a run: `FineTuner.fit` over its batches, with the callbacks that run beside the updates; and what the
run reports: the banner at its start, its results, the lines at its end."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import pathlib
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import distribute_batches
from tfbert.batches.plan import micro_batch_size
from tfbert.batches.schedule import Schedule, planned_steps
from tfbert.config.counted import counted, rate_text
from tfbert.config.run import Config
from tfbert.config.task_table import listed
from tfbert.config.training import OPTIMIZERS
from tfbert.corpus.records import RecordLengths
from tfbert.devices.runtime import emulates_bfloat16, peak_memory_bytes, tell
from tfbert.devices.strategy import describe
from tfbert.devices.waiting import log_if_slow
from tfbert.devices.workers import StopRequest
from tfbert.errors import RunError
from tfbert.measure.cpu_time import CpuTime
from tfbert.measure.data_clock import DataClock
from tfbert.measure.flops import training_flops
from tfbert.measure.step_clock import StepClock
from tfbert.model.predictor import Predictor
from tfbert.output.callback import Record, Reports, RunInfo
from tfbert.output.logs import RunLog, clock_text
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.tasks.base import Task
from tfbert.tasks.sets import eval_prefix
from tfbert.train.build import Run
from tfbert.train.callbacks import Evaluate, Profile, Progress, Save, StepCallback, StopWhenDiverged

log = logging.getLogger("tfbert")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """What is known after the last update.

    Attributes:
        predictor: Runs the model in training.
        progress: Of the whole run.
        evaluation: With the best weights; None without evaluation.
        saving: With the costs of checkpoints.
        seconds: From the call of `fit` to its end.
        cpu: What this process used in that time.
    """

    predictor: Predictor
    progress: Progress
    evaluation: Evaluate | None
    saving: Save
    seconds: float
    cpu: CpuTime


def fit(run: Run, stop: StopRequest, started: float, reports: Reports) -> Trained:
    """Trains a run to its end.

    Args:
        run: As `build_run` returns it.
        stop: Whether the run was asked to stop; already listening for signals.
        started: When preparation began, on `time.perf_counter`.
        reports: Told of the run.

    Raises:
        Preempted: if it was asked to stop; it has saved a checkpoint.
        RunError: for training that diverged, or records that can no longer be read.
    """
    config, schedule, model = run.config, run.schedule, run.model
    tell(banner(run))
    run_log = RunLog(
        run.directory if run.chief else None,
        total_steps=schedule.total_steps,
        first_step=schedule.first_step,
        reports=reports,
    )
    task = run.data.task
    predictor = Predictor(
        lambda inputs, training: task.select_outputs(model(inputs, training=training), inputs),
        run.strategy,
        rows_per_replica=config.runtime.per_device_eval_batch_size,
        of_tokens=task.reads_tokens,
    )
    with run.strategy.scope():
        data_clock = DataClock()
    model.marks_steps = bool(config.output.profile_steps) and not tf.config.list_logical_devices("GPU")
    steps = schedule.total_steps - schedule.first_step
    step_clock = StepClock(
        planned_steps(run.batches.plans(), run.train.lengths, config.data.max_seq_length),
        warm_up=min(config.output.logging_steps, steps // 2),
        compiles_widths=config.runtime.xla,
    )
    progress = Progress(schedule, run_log, step_clock, data_clock)
    if run.resumed:
        progress.restore(run.resumed)
    evaluation = Evaluate(run, run_log, progress, predictor) if run.data.validation else None
    if evaluation and run.resumed:
        evaluation.restore(run.resumed)
    saving = Save(run, progress, evaluation, lambda: stop.is_set, reports)
    profile = None
    if config.output.profile_steps and run.chief:
        profile = Profile(schedule, config.output.profile_steps, run.directory / "profile", step_clock)
    diverged = StopWhenDiverged(schedule, limit=config.training.max_skipped_steps)
    callbacks = [part for part in (progress, diverged, evaluation, saving, profile) if part is not None]

    batches = iter(distribute_batches(run.strategy, run.train, run.batches.plans, shape=run.batches.shape))
    update = data_clock.timed(model.update)
    log.info("ready after %.1f s", time.perf_counter() - started)
    began, cpu = time.perf_counter(), CpuTime.now()
    try:
        _start_reports(run, reports, run_log.logged)
        with contextlib.ExitStack() as first_update:
            first_update.enter_context(log_if_slow("tracing and compiling the first update"))
            progress.on_first_update = first_update.close
            _updates(model, functools.partial(update, batches), schedule, callbacks)
    except (tf.errors.OpError, RunError):  # The first as it is, or as that of a lost worker.
        run.train.check_read()
        raise
    finally:
        run_log.close()
        if profile:
            profile.close()
    return Trained(
        predictor=predictor,
        progress=progress,
        evaluation=evaluation,
        saving=saving,
        seconds=time.perf_counter() - began,
        cpu=CpuTime.since(cpu),
    )


def _updates(
    model: FineTuner, update: Callable[[], tf.Tensor], schedule: Schedule, callbacks: Sequence[StepCallback]
) -> None:
    """Makes all updates, or fewer where a callback ends the run.

    Not by `model.fit`: Keras would wait for each update before it calls back.

    Args:
        model: What is trained.
        update: Makes the next one; what it returns is there once the update is made.
        schedule: The run in updates.
        callbacks: Told of each.
    """
    model.check_same_start()
    model.stop_training = False
    for callback in callbacks:
        callback.begin(model)
    before = tf.constant(0)
    for step in range(schedule.first_step + 1, schedule.total_steps + 1):
        for callback in callbacks:
            callback.before(step)
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            done = update()
            # A GPU computes while Python runs ahead. Waiting for the previous update here makes each clock reading
            # follow the device's updates, and never leaves the device without work.
            before.numpy()
            before = done
            for callback in callbacks:
                callback.on_step(step)
        if model.stop_training:
            break
    for callback in callbacks:
        callback.end()


def _start_reports(run: Run, reports: Reports, logged: Sequence[Record]) -> None:
    """Tells callbacks that the run starts; every worker must call.

    Raises:
        RunError: on all workers, where one of them fails.
    """
    schedule, data = run.schedule, run.data
    numbers = {
        "total_steps": schedule.total_steps,
        "steps_per_epoch": schedule.steps_per_epoch,
        "warmup_steps": schedule.warmup_steps,
        "global_batch_size": run.config.training.global_batch_size,
        "num_replicas": run.strategy.num_replicas_in_sync,
        "train_examples": len(data.train),
        "eval_examples": sum(len(part) for part in data.validation.values()),
        "parameters": run.classifier.num_parameters(),
        "trained_parameters": run.classifier.num_parameters(only_trainable=True),
    }
    info = RunInfo(
        directory=run.directory,
        options=_options(run.config),
        first_step=schedule.first_step,
        total_steps=schedule.total_steps,
    )
    reports.start(info, {name: float(value) for name, value in numbers.items()}, logged)
    if run.consensus.any(reports.failed is not None):
        raise reports.error("Nothing was trained. Repair it, and start again.")


def _options(config: Config) -> dict[str, object]:
    """The options of a training run, by name, with values as JSON has them."""
    fields = [(part, field) for part in config.parts() for field in dataclasses.fields(part)]
    values = {f.name: getattr(part, f.name) for part, f in fields if "train" in f.metadata["modes"]}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


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
    length, is_whole = config.data.max_seq_length, config.data.long_texts == "windows"
    full = int(counts[length + is_whole :].sum()) if run.train.may_be_cut else 0
    about = f"; {full:,} text{'s fill' if full > 1 else ' fills'} all {length} and may be cut"
    if is_whole:
        most = -(-(len(counts) - 1) // length)
        widest = f", up to {most * micro:,} in a micro-batch" if run.batches.shape is None else ""
        about = f"; {counted(full, 'text')} in up to {most} windows{widest}"
    about = about if full else ""
    if data.task.reads_tokens:  # An example longer than a row takes several.
        about = f", in {len(run.train):,} rows" * (len(run.train) != len(data.train))
    sets = {eval_prefix(name): len(part) for name, part in data.validation.items()}
    if data.test is not None:
        sets["test"] = len(data.test)
    names = data.task.label_names
    weights = " with random weights" if config.model.is_scratch else ""
    trained = ""
    if training.lora_rank:
        count = run.classifier.num_parameters(only_trainable=True)
        targets = listed(run.classifier.lora.targets)
        trained = f", {count:,} of them trained: LoRA of rank {training.lora_rank} of {targets}, and the head"
    summed = ""
    if (dtype := config.runtime.all_reduce_dtype) != "float32":
        summed = f", gradients summed in {dtype}" if replicas > 1 else f", no gradients to sum in {dtype}: one replica"
    kind = f"{len(names)} {data.task.label_word}: {', '.join(names[:8])}" if names else data.task.kind
    others = "".join(f", {name} {size:,}" for name, size in sets.items()) or ", nothing to evaluate on"
    return [
        *data.notes,
        *([run.head_start] if run.head_start and not run.resumed else []),
        f"model      {config.model.name}{weights}, {run.classifier.num_parameters():,} parameters{trained}",
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
        f"devices    {describe(run.strategy)}{summed}",
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
    flops = training_flops(run.classifier.config, steady.work, is_frozen=run.classifier.lora is not None, **read)
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
        "gradient_bytes": tf.as_dtype(run.model.all_reduce_dtype).size
        * sum(math.prod(variable.shape) for variable in run.model.trainable_variables),
        "parameters": run.classifier.num_parameters(),
        "trained_parameters": run.classifier.num_parameters(only_trainable=True),
        "skipped_steps": int(counters.skipped_steps.numpy()),
    }
    known = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return {"epoch": run.schedule.epoch_at(step), "global_step": step} | known


def summary(results: dict[str, float], directory: pathlib.Path, task: Task, decisive: str) -> list[str]:
    """The end of a run on the screen."""
    found = {name: value for name, value in results.items() if name.startswith(("eval_", "test_"))}
    speed = rate_text(results["train_samples_per_second"])
    trained, all_weights = results["trained_parameters"], results["parameters"]
    of = f" ({trained:,} of {all_weights:,} parameters)" if trained < all_weights else ""
    lines = ["", f"trained{of} in {clock_text(results['train_runtime'])}, {speed} examples/s"]
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
