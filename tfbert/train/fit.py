"""The training of a run: `FineTuner.fit` over its batches, with the callbacks that run beside the updates."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfbert.batches.pipeline import distribute_batches
from tfbert.batches.schedule import Schedule, planned_steps
from tfbert.config.run import Config
from tfbert.devices.runtime import tell
from tfbert.devices.waiting import log_if_slow
from tfbert.devices.workers import StopRequest
from tfbert.errors import RunError
from tfbert.measure.cpu_time import CpuTime
from tfbert.measure.data_clock import DataClock
from tfbert.measure.step_clock import StepClock
from tfbert.model.predictor import Predictor
from tfbert.output.callback import Record, Reports, RunInfo
from tfbert.output.logs import RunLog
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.train.build import Run
from tfbert.train.callbacks import Evaluate, Profile, Progress, Save, StepCallback, StopWhenDiverged
from tfbert.train.summary import banner

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
        planned_steps(run.batches.plans(), run.train.lengths),
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
