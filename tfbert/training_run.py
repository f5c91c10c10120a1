"""The whole story of a run: configuration in, fine-tuned model and results out."""

from __future__ import annotations

import dataclasses
import gc
import pathlib
import time
import weakref

import tensorflow as tf

from tfbert import __version__, hub, output, resume, runtime
from tfbert.callbacks import Evaluate, Progress, Save, StopWhenDiverged
from tfbert.checkpoint import tidy
from tfbert.config import Config
from tfbert.cpu_time import CpuTime
from tfbert.data.pipeline import distribute_batches
from tfbert.data_clock import DataClock
from tfbert.evaluate import Predictor, evaluate
from tfbert.finetuner import FineTuner
from tfbert.logs import RunLog
from tfbert.model import save_pretrained
from tfbert.model_card import model_card
from tfbert.preemption import Consensus, StopRequest
from tfbert.prepare import Run, prepare, say
from tfbert.profiling import Profile
from tfbert.report.at_end import report_at_end
from tfbert.schedule import planned_steps
from tfbert.step_clock import StepClock
from tfbert.strategy import build_strategy, describe, is_chief, peer_failures_as_run_errors
from tfbert.summary import banner, summary, train_results
from tfbert.weights import set_weights_dict

STEPS_BETWEEN_QUESTIONS = 5
"""Updates between two looks at whether another worker was asked to stop: each look waits for all of them."""
_earlier_models: weakref.WeakSet[FineTuner] = weakref.WeakSet()
"""Those of runs of this process that Python has not yet freed."""


def finetune(config: Config) -> dict[str, float]:
    """Trains, evaluates and saves a classifier as the configuration says; goes on where an earlier start stopped.

    Call it as often as you like: each run is as it would be in a process of its own. Only what TensorFlow settles at
    its first use of a device cannot change: GPUs or none, the number of CPU replicas (fewer may be used), the cluster.

    Args:
        config: The run.

    Returns:
        What `all_results.json` holds: `train_*`, `eval_*` of the weights that were kept, `test_*`.

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
        RunError: for a run that failed.
        Preempted: for a run that stopped because a signal asked it to, with a checkpoint.
    """
    with runtime.settings_kept():
        return _finetune(config.resolved())


def _finetune(config: Config) -> dict[str, float]:
    started = time.perf_counter()
    policy = runtime.set_up(config.runtime)
    strategy = build_strategy(config.runtime, cluster_timeout_seconds=config.runtime.cluster_timeout_seconds)
    consensus = Consensus(strategy)
    if _earlier_models:
        gc.collect()  # A model is full of circles, and a GPU has no room for two.
        runtime.reset_peak_memory()
    # Every stage waits for the other workers somewhere; one that fails at any of them must not look like a bug here.
    with peer_failures_as_run_errors(), resume.begin(config, strategy, consensus) as start:
        if start.finished is None:
            run = prepare(start, strategy, consensus)
            _earlier_models.add(run.model)
            return train(run, policy, started)
        say(is_chief(strategy))(f"{start.directory} holds this run, finished before the restart")
        if is_chief(strategy):
            tidy(start.directory, keep=config.output.save_total_limit)  # Perhaps it was killed there.
        upload(config, start.directory, is_chief(strategy))  # Perhaps it was the upload that failed.
        return start.finished


def train(run: Run, policy: str, started: float) -> dict[str, float]:
    """Trains what has been prepared; see `finetune`.

    Args:
        run: The run.
        policy: The precision policy's name.
        started: When its preparation began, on `time.perf_counter`.
    """
    config, schedule, model = run.config, run.schedule, run.model
    if run.chief:
        resume.write_start(run.directory, config, run.identity, is_resumed=run.resumed is not None)
    devices = describe(run.strategy)
    for line in banner(run, policy, devices):
        run.say(line)
    run_log = RunLog(
        run.directory if run.chief else None,
        total_steps=schedule.total_steps,
        first_step=schedule.first_step,
        tensorboard=config.output.tensorboard,
    )
    predictor = Predictor(
        model, run.strategy, pad_id=run.tokenizer.pad_id, rows_per_replica=config.runtime.per_device_eval_batch_size
    )
    with run.strategy.scope():
        data_clock = DataClock()
    model.marks_steps = bool(config.output.profile_steps) and not tf.config.list_logical_devices("GPU")
    data_clock.attach(model)
    steps = schedule.total_steps - schedule.first_step
    step_clock = StepClock(
        planned_steps(run.batches.plans(), run.train.tokens.lengths),
        warm_up=min(config.output.logging_steps, steps // 2),
        compiles_widths=config.runtime.xla,
    )
    progress = Progress(schedule, run_log, step_clock, data_clock)
    callbacks = [progress, StopWhenDiverged(schedule, limit=config.training.max_skipped_steps)]
    evaluation = None
    if run.data.validation:
        evaluation = Evaluate(
            schedule,
            run_log,
            progress,
            predictor=predictor,
            sets={name: run.encode(part) for name, part in run.data.validation.items()},
            task=run.data.task,
            metric=run.metric,
            patience=config.training.early_stopping_patience,
            checkpoints=run.checkpoints,
        )
        callbacks.append(evaluation)
        if run.resumed:
            evaluation.restore(run.resumed)
    stop = StopRequest()
    saving = Save(
        schedule,
        run.checkpoints,
        every=config.output.save_steps,
        evaluation=evaluation,
        identity=dataclasses.asdict(run.identity),
        progress=progress,
        is_stopping=lambda: run.consensus.any(stop.is_set),
        ask_every=STEPS_BETWEEN_QUESTIONS if run.consensus.has_peers else 1,
        way_on=resume.way_on(config, run.directory),
    )
    callbacks.append(saving)
    profile = None
    if config.output.profile_steps and run.chief:
        profile = Profile(schedule, config.output.profile_steps, run.directory / "profile", step_clock)
        callbacks.append(profile)

    dataset = distribute_batches(
        run.strategy, run.train, run.batches.plans, pad_id=run.tokenizer.pad_id, shape=run.batches.shape
    )
    run.say(f"ready after {time.perf_counter() - started:.1f} s")
    began, cpu = time.perf_counter(), CpuTime.now()
    with stop.listening():
        try:
            model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
        finally:
            run_log.close()
        seconds, cpu = time.perf_counter() - began, CpuTime.since(cpu)
        stop.consequence = "training is done, writing what is left"
        replicas = run.strategy.num_replicas_in_sync
        results = train_results(model, progress, schedule, seconds, run.classifier.config, replicas)
        results |= cpu.named("train")
        if evaluation is not None:
            set_weights_dict(run.classifier, evaluation.best_weights)
            results |= evaluation.best | {"best_step": evaluation.best_step}
        if run.chief:
            # Before anything else can fail: a worker lost in the evaluation below does not take the model along.
            save_pretrained(run.classifier, run.tokenizer, run.directory)

        logits = evaluation.kept_logits() if evaluation else None
        if run.data.test is not None:
            results |= evaluate(predictor, run.encode(run.data.test), run.data.task, "test")
        results |= saving.costs()
        if run.chief:
            output.write_text(run.directory / output.CARD, model_card(config, run.data, results, version=__version__))
            facts = {"devices": devices, "precision": policy, "parameters": run.classifier.num_parameters()}
            facts |= {"profile": profile.facts() if profile else None}
            facts |= {"decisive_metric": evaluation.decisive if evaluation else None}
            report_at_end(run.directory, facts, run.data, logits, results)
            # Last: a run with results is one that is finished.
            output.write_json(run.directory / output.RESULTS, results)
            tidied = tidy(run.directory, keep=config.output.save_total_limit)
    for line in [*summary(results, run.directory), *(tidied if run.chief else ())]:
        run.say(line)
    upload(config, run.directory, run.chief)
    return results


def upload(config: Config, directory: pathlib.Path, chief: bool) -> None:
    """Uploads a finished run where that was asked for; only the chief does.

    Raises:
        RunError: where it fails.
    """
    if chief and config.hub.push_to_hub:
        say(chief)(f"uploaded to {hub.push(directory, config.hub)}")
