"""The whole story of a run on one page: configuration in, fine-tuned model and results out."""

from __future__ import annotations

import logging
import pathlib
import time
from collections.abc import Iterator

import numpy as np

from tfbert import output, runtime
from tfbert.callbacks import Evaluate, Progress, Schedule, StopWhenDiverged, eval_prefix
from tfbert.config import Config, UsageError
from tfbert.data.pipeline import EncodedExamples, distribute_batches
from tfbert.data.plan import BatchPlan, exact_widths, few_widths, micro_batch_size, plan_epoch, steps_per_epoch
from tfbert.data.sources import Examples, TaskData, load_data
from tfbert.data.tokenizer import BertTokenizer
from tfbert.evaluate import Predictor, evaluate
from tfbert.finetuner import FineTuner
from tfbert.logs import RunLog, duration
from tfbert.losses import build_loss
from tfbert.metrics import check_metric_name, default_metric
from tfbert.model import build_model, load_tokenizer, resolve_model, save_pretrained
from tfbert.optimizer import build_optimizer, warmup_steps
from tfbert.strategy import build_strategy, describe, is_chief
from tfbert.weights import set_weights_dict

log = logging.getLogger("tfbert")

MAX_XLA_WIDTHS = 6
"""Shapes that XLA compiles for, at most."""


def finetune(config: Config) -> dict[str, float]:
    """Trains, evaluates and saves a classifier as the configuration says.

    Args:
        config: The run.

    Returns:
        What `all_results.json` holds: `train_*`, `eval_*` of the weights that were kept, `test_*`.

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
        RunError: for a run that failed.
    """
    started = time.perf_counter()
    config = config.resolved()
    policy = runtime.set_up(config.runtime)
    strategy = build_strategy(config.runtime)
    directory = output.choose(config) if is_chief(strategy) else None
    if directory is not None:
        output.check(directory, overwrite=config.output.overwrite_output_dir)
    say = log.info if directory is not None else log.debug
    micro = micro_batch_size(
        config.training.global_batch_size, strategy.num_replicas_in_sync, config.training.gradient_accumulation_steps
    )

    model_files = resolve_model(config.model)
    data = load_data(config.data)
    metric = config.training.metric_for_best_model or default_metric(data.task)
    check_metric_name(metric, data.task, len(data.label_names))
    texts = data.train.text + (data.train.text_pair or [])
    tokenizer = load_tokenizer(config.model, model_files, training_texts=texts, log=say)
    with strategy.scope():
        classifier = build_model(
            config.model,
            model_files,
            tokenizer=tokenizer,
            label_names=data.label_names,
            task=data.task,
            max_seq_length=config.data.max_seq_length,
            seed=config.runtime.seed,
            log=say,
        )
    weights = example_weights(data.train.labels, len(data.label_names), config.training.class_weights)
    train = encode(tokenizer, data.train, config.data.max_seq_length, weights)
    schedule = plan_run(config, len(train))
    with strategy.scope():
        model = FineTuner(
            classifier,
            gradient_accumulation_steps=config.training.gradient_accumulation_steps,
            max_grad_norm=config.training.max_grad_norm,
            jit_compile=config.runtime.xla,
            seed=config.runtime.seed,
        )
        model.compile(
            optimizer=build_optimizer(config.training, schedule.total_steps),
            loss=build_loss(data.task, config.training.label_smoothing),
        )

    if directory is not None:
        output.prepare(directory, config)
    for line in banner(
        config, data, train, schedule, micro, policy, describe(strategy), classifier.num_parameters(), directory
    ):
        say(line)
    run_log = RunLog(directory, total_steps=schedule.total_steps, tensorboard=config.output.tensorboard)
    progress = Progress(schedule, run_log, global_batch_size=config.training.global_batch_size)
    callbacks = [progress, StopWhenDiverged(schedule, limit=config.training.max_skipped_steps)]
    predictor = Predictor(model, strategy, pad_id=tokenizer.pad_id)
    evaluation = None
    if data.validation:
        sets = {name: encode(tokenizer, part, config.data.max_seq_length) for name, part in data.validation.items()}
        evaluation = Evaluate(
            schedule,
            run_log,
            progress,
            predictor=predictor,
            sets=sets,
            task=data.task,
            metric=metric,
            patience=config.training.early_stopping_patience,
        )
        callbacks.append(evaluation)

    batches = distribute_batches(strategy, train, training_plans(config, train, schedule), pad_id=tokenizer.pad_id)
    say(f"ready after {time.perf_counter() - started:.1f} s")
    began = time.perf_counter()
    try:
        model.fit(batches, steps_per_epoch=schedule.total_steps, verbose=0, callbacks=callbacks)
    finally:
        run_log.close()
    results = train_results(model, progress, schedule, config, time.perf_counter() - began)

    if evaluation is not None:
        set_weights_dict(classifier, evaluation.best_weights)
        results |= evaluation.best | {"best_step": evaluation.best_step}
    if data.test is not None:
        results |= evaluate(predictor, encode(tokenizer, data.test, config.data.max_seq_length), data.task, "test")
    if directory is not None:
        save_pretrained(classifier, tokenizer, directory)
        output.write_json(directory / output.RESULTS, results)
        for line in summary(results, directory):
            say(line)
    return results


def encode(
    tokenizer: BertTokenizer, examples: Examples, max_seq_length: int, weights: np.ndarray | None = None
) -> EncodedExamples:
    """Tokenises examples once, for all epochs; each weighs 1 unless told otherwise."""
    tokens = tokenizer.encode(examples.text, examples.text_pair, max_seq_length=max_seq_length)
    weights = np.ones(len(examples), np.float32) if weights is None else weights
    return EncodedExamples(tokens=tokens, labels=examples.labels, weights=weights)


def example_weights(labels: np.ndarray, num_labels: int, class_weights: tuple[float, ...] | str) -> np.ndarray:
    """Each example's weight in the loss: float32 `[n]`.

    Raises:
        UsageError: for weights that are not one a class.
    """
    if not class_weights:
        return np.ones(len(labels), np.float32)
    if not num_labels:
        raise UsageError("Regression has no classes to weight. Received: class_weights. Drop --class_weights.")
    if class_weights == "balanced":
        counts = np.bincount(labels, minlength=num_labels)
        class_weights = len(labels) / (num_labels * np.maximum(counts, 1))
    if len(class_weights) != num_labels:
        raise UsageError(
            f"class_weights takes one weight for each of the {num_labels} classes. "
            f"Received: {len(class_weights)} weights. Pass {num_labels}, or --class_weights=balanced."
        )
    return np.asarray(class_weights, np.float32)[labels]


def plan_run(config: Config, num_examples: int) -> Schedule:
    """Every duration of the run in updates."""
    epoch = steps_per_epoch(num_examples, config.training.global_batch_size)
    total = max(1, round(epoch * config.training.num_train_epochs))
    if config.training.max_steps:
        total = min(total, config.training.max_steps)
    return Schedule(
        steps_per_epoch=epoch,
        total_steps=total,
        eval_steps=config.output.eval_steps or epoch,
        logging_steps=config.output.logging_steps,
    )


def training_plans(config: Config, train: EncodedExamples, schedule: Schedule):
    """A function that gives the plans of all epochs anew, from the first update that is still to be made."""
    lengths = train.tokens.lengths
    is_grouped = config.data.batching == "length_grouped"
    if not is_grouped:
        widths = np.array([config.data.max_seq_length])
    elif config.runtime.xla:
        widths = few_widths(lengths, MAX_XLA_WIDTHS)
    else:
        widths = exact_widths(lengths)

    def plans() -> Iterator[BatchPlan]:
        step = schedule.first_step
        while step < schedule.total_steps:
            epoch, done = divmod(step, schedule.steps_per_epoch)
            plan = plan_epoch(
                lengths,
                global_batch_size=config.training.global_batch_size,
                seed=config.runtime.seed,
                epoch=epoch,
                group_by_length=is_grouped,
                allowed_widths=widths,
            )
            yield BatchPlan(rows=plan.rows[done:], widths=plan.widths[done:])
            step += len(plan) - done

    return plans


def banner(
    config: Config,
    data: TaskData,
    train: EncodedExamples,
    schedule: Schedule,
    micro: int,
    policy: str,
    devices: str,
    num_parameters: int,
    directory: pathlib.Path | None,
) -> list[str]:
    """What is about to run, a line each."""
    training = config.training
    lengths = train.tokens.lengths
    replicas = training.global_batch_size // (micro * training.gradient_accumulation_steps)
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
        f"{config.data.max_seq_length} and may be cut; batches are {config.data.batching.replace('_', ' ')}",
        f"batch      {training.global_batch_size} = {replicas} replica{'s' * (replicas > 1)} x "
        f"{training.gradient_accumulation_steps} micro-batch{'es' * (training.gradient_accumulation_steps > 1)} x {micro}",
        f"updates    {schedule.total_steps:,} ({schedule.total_steps / schedule.steps_per_epoch:.4g} epochs of "
        f"{schedule.steps_per_epoch:,}), evaluation every {schedule.eval_steps:,}",
        f"rate       {training.learning_rate:g}, {training.lr_schedule}, "
        f"{warmup_steps(training, schedule.total_steps):,} updates of warm-up",
        f"precision  {policy}{', XLA' * config.runtime.xla}",
        f"devices    {devices}",
        f"output     {directory}",
    ]


def train_results(
    model: FineTuner, progress: Progress, schedule: Schedule, config: Config, seconds: float
) -> dict[str, float]:
    """The training part of `all_results.json`, under Hugging Face's names where it has one."""
    steps = int(model.optimizer.iterations.numpy())
    counters = model.progress
    finite = int(counters.finite_steps.numpy())
    examples = round(schedule.epoch_at(steps) * config.training.global_batch_size * schedule.steps_per_epoch)
    return {
        "epoch": schedule.epoch_at(steps),
        "global_step": steps,
        "train_loss": float(counters.loss_sum.numpy()) / finite if finite else float("nan"),
        "train_runtime": round(seconds, 2),
        "train_samples_per_second": round(examples / seconds, 2),
        "train_steps_per_second": round(steps / seconds, 3),
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
