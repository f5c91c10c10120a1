"""A training run: open, build, train, finish."""

from __future__ import annotations

import dataclasses
import gc
import logging
import time
import weakref
from collections.abc import Sequence

import keras

from tfbert import __version__, private
from tfbert.bert.lora import set_trained
from tfbert.config.run import Config
from tfbert.devices import runtime
from tfbert.devices.runtime import chief_ends_last, describe, start_devices
from tfbert.devices.workers import Consensus, StopRequest, peer_failures_as_run_errors
from tfbert.errors import Preempted
from tfbert.model.files import BertConfig
from tfbert.model.head import save_pretrained
from tfbert.output import output_dir
from tfbert.output.logs import Callback, Reports, all_callbacks
from tfbert.report.pages import model_card, report_at_end
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.tasks.base import TRAINING_WAY_OUT
from tfbert.tasks.registry import detect_task
from tfbert.train import resume
from tfbert.train.build import Run, build_run, note_inputs
from tfbert.train.checkpoint import tidy
from tfbert.train.fit import Save, fit, summary
from tfbert.train.resume import EXAMPLES

log = logging.getLogger("tfbert")

_earlier_models: weakref.WeakSet[FineTuner] = weakref.WeakSet()
"""Models of earlier runs in this process that Python has not yet freed."""


def finetune(config: Config, *, callbacks: Sequence[Callback] = ()) -> dict[str, float]:
    """Trains, evaluates and saves a classifier as the configuration says; resumes where an earlier start stopped.

    Call it as often as you like: each run is as it would be in a process of its own. Only what TensorFlow fixes at
    its first use of a device cannot change: GPUs or none, the number of CPU replicas (fewer may be used), the cluster.

    Args:
        config: The run.
        callbacks: Told of the run, on the chief.

    Returns:
        What `all_results.json` holds: `train_*`, `eval_*` of the weights that were kept, `test_*`.

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
        RunError: for a run that failed.
        Preempted: for a run that stopped because a signal or a callback asked it to, with a checkpoint.
    """
    assert not (config.runtime.seeds or config.runtime.sweep), "see `modes.many.train`"
    told = all_callbacks(config.output.report_to, callbacks)
    try:
        with runtime.settings_kept():
            return _finetune(detect_task(config).resolved(), told)
    finally:
        private.let_go_of_traced_gradients()


def _finetune(config: Config, callbacks: Sequence[Callback]) -> dict[str, float]:
    started = time.perf_counter()
    strategy, chief = start_devices(config)
    consensus = Consensus(strategy)
    if _earlier_models:
        gc.collect()  # A model is full of reference cycles, and a GPU has no room for two models.
        runtime.reset_peak_memory()
    directory = output_dir.run_directory(config)
    # Every stage waits for the other workers somewhere: if one of them fails, this must not look like a bug here.
    failures = peer_failures_as_run_errors()
    with chief_ends_last(strategy), failures, resume.open_directory(directory, config, strategy, consensus) as start:
        if start.finished is None:
            run = build_run(start, strategy, consensus)
            _earlier_models.add(run.model)
            results = _train(run, started, callbacks)
        else:
            results = start.finished
            log.info("%s holds this run, finished before the restart", start.directory)
            if chief:
                # In case it was killed there.
                keep = {"keep": config.output.save_total_limit, "keep_state": config.output.keep_optimizer}
                tidy(start.directory, **keep)
        if chief and config.hub.push_to_hub:  # Before a restart, this may have failed.
            log.info("uploaded to %s", output_dir.upload(start.directory, config.hub))
        return results


def _train(run: Run, started: float, callbacks: Sequence[Callback]) -> dict[str, float]:
    """Trains and finishes; a signal does not end the run at once here."""
    reports = Reports(callbacks if run.chief else ())
    if run.chief:
        resume.write_start(run.directory, run.config, run.identity, is_resumed=run.resumed is not None)
    stop = StopRequest()
    with stop.listening():
        try:
            saving, results = fit(run, stop, started, reports)
            stop.consequence = "training is done, writing what is left"
            results = finish(run, saving, results, reports)
        except BaseException as error:
            reports.end("stopped" if isinstance(error, Preempted) else "failed")
            raise
        reports.end("finished", int(results["global_step"]), results)
        if reports.failed is not None:
            raise reports.error(f"The run is done, and all its files are in {run.directory}.")
    return results


def finish(run: Run, saving: Save, results: dict[str, float], reports: Reports) -> dict[str, float]:
    """Writes model, card, report and results; every worker must call.

    Args:
        run: The run.
        saving: As `fit` returns it.
        results: Of training.
        reports: Told of the results, on the chief.

    Returns:
        What `all_results.json` holds.

    Raises:
        RunError: where something cannot be written, or the kept weights' predictions are not finite.
    """
    config, data, evaluation = run.config, run.data, saving.evaluation
    if config.output.keep_optimizer:
        saving.save_last()
    if evaluation is not None:
        set_trained(run.classifier, evaluation.best_weights)
        results |= evaluation.best | {"best_step": evaluation.best_step}
    if run.chief:
        # Before anything else can fail: a worker lost in the evaluation below must not cost the model.
        save_pretrained(run.classifier, run.tokenizer, run.directory)
        if config.output.keep_adapter:
            run.classifier.save_adapter(run.directory / output_dir.ADAPTER)

    kept = None
    if evaluation is not None:
        task, kept = evaluation.kept()
        data = dataclasses.replace(data, task=task)
    if data.task.notes() != run.data.task.notes():
        note_inputs(run.classifier, run.tokenizer, data, config)
        if run.chief:
            save_pretrained(run.classifier, run.tokenizer, run.directory)
    if data.test is not None:
        found = data.task.predict(run.predictor, run.encode(data.test), data.test.name)
        results |= data.task.metrics(found, data.test, prefix="test", way_out=TRAINING_WAY_OUT)
    results |= saving.costs
    lines = summary(results, run.directory, data.task, evaluation.decisive if evaluation else "")
    if run.chief:
        card = model_card(
            config,
            data,
            results,
            version=__version__,
            model_type=run.classifier.config.model_type,
            directory=run.directory,
            head_start=run.head_start,
        )
        output_dir.write_text(run.directory / output_dir.CARD, card)
        facts = {
            "devices": describe(run.strategy),
            "precision": keras.config.dtype_policy().name,
            "parameters": results["parameters"],
            "trained_parameters": results["trained_parameters"],
            "dropout": _dropout(run.classifier.config),
            "decisive_metric": evaluation.decisive if evaluation else None,
            "data": {name: run.identity.facts[name] for name in EXAMPLES},
        }
        report_at_end(run.directory, facts, data, kept, results)
        reports.finishing(results)
        # Last: a run with results is one that is finished.
        output_dir.write_json(run.directory / output_dir.RESULTS, results)
        lines += tidy(run.directory, keep=config.output.save_total_limit, keep_state=config.output.keep_optimizer)
    for line in lines:
        log.info("%s", line)
    return results


def _dropout(bert_config: BertConfig) -> float:
    """The model's largest rate of dropout."""
    rates = (getattr(bert_config, name) for name in (*bert_config.encoder.RATES, "classifier_dropout"))
    return max(rate for rate in rates if rate is not None)
