"""The training of a run: `FineTuner.fit` over its batches, with the callbacks that run beside the updates."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time

import tensorflow as tf

from tfbert.batches.pipeline import distribute_batches
from tfbert.batches.schedule import planned_steps
from tfbert.devices.preemption import StopRequest
from tfbert.devices.start import tell
from tfbert.devices.waiting import log_if_slow
from tfbert.errors import RunError
from tfbert.measure.cpu_time import CpuTime
from tfbert.measure.data_clock import DataClock
from tfbert.measure.step_clock import StepClock
from tfbert.model.predictor import Predictor
from tfbert.output.logs import RunLog
from tfbert.output.reports import Reports
from tfbert.train.build import Run
from tfbert.train.callbacks import Evaluate, Progress, StopWhenDiverged
from tfbert.train.profiling import Profile
from tfbert.train.saving import Save
from tfbert.train.summary import banner
from tfbert.train.told import start_reports

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
    data_clock.attach(model)
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

    dataset = distribute_batches(run.strategy, run.train, run.batches.plans, shape=run.batches.shape)
    log.info("ready after %.1f s", time.perf_counter() - started)
    began, cpu = time.perf_counter(), CpuTime.now()
    try:
        start_reports(run, reports, run_log.logged)
        with contextlib.ExitStack() as first_update:
            first_update.enter_context(log_if_slow("tracing and compiling the first update"))
            progress.on_first_update = first_update.close
            model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
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
