"""The whole story of a run: configuration in, fine-tuned model and results out."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from typing import Any

import numpy as np

from tfbert import output, packed, runtime
from tfbert.callbacks import Evaluate, Progress, Save, StopWhenDiverged
from tfbert.checkpoint import Checkpoints, RunState, check_identity, crc
from tfbert.config import Config
from tfbert.data.pipeline import EncodedExamples, distribute_batches
from tfbert.data.plan import micro_batch_size
from tfbert.data.sources import Examples, TaskData, load_data
from tfbert.data.tokenizer import BertTokenizer
from tfbert.errors import RunError, UsageError
from tfbert.evaluate import Predictor, evaluate
from tfbert.finetuner import FineTuner
from tfbert.gelu import use_own_gelu
from tfbert.logs import RunLog
from tfbert.losses import build_loss
from tfbert.metrics import check_metric_name, default_metric
from tfbert.micro_batches import find_accumulation
from tfbert.model import build_model, load_tokenizer, resolve_model, save_pretrained
from tfbert.optimizer import build_optimizer
from tfbert.preemption import Consensus, StopRequest
from tfbert.recompute import recompute_layers
from tfbert.schedule import plan_run, training_batches
from tfbert.strategy import build_strategy, describe, is_chief, peer_failures_as_run_errors
from tfbert.summary import banner, summary, train_results
from tfbert.weights import set_weights_dict

log = logging.getLogger("tfbert")

STEPS_BETWEEN_QUESTIONS = 5
"""Updates between two looks at whether another worker was asked to stop: each look waits for all of them."""


def finetune(config: Config) -> dict[str, float]:
    """Trains, evaluates and saves a classifier as the configuration says; goes on where an earlier start stopped.

    Args:
        config: The run.

    Returns:
        What `all_results.json` holds: `train_*`, `eval_*` of the weights that were kept, `test_*`.

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
        RunError: for a run that failed.
        Preempted: for a run that stopped because a signal asked it to, with a checkpoint.
    """
    started = time.perf_counter()
    config = config.resolved()
    policy = runtime.set_up(config.runtime)
    strategy = build_strategy(config.runtime, cluster_timeout_seconds=config.runtime.cluster_timeout_seconds)
    chief = is_chief(strategy)
    say = log.info if chief else log.debug
    replicas = strategy.num_replicas_in_sync
    consensus = Consensus(strategy)

    # What is there: an earlier start's choices and checkpoint, the model's files, the data.
    directory = output.choose(config)
    config = output.as_begun(config, directory)
    training = config.training
    accumulation = 1 if training.is_auto else training.gradient_accumulation_steps
    micro_batch_size(training.global_batch_size, replicas, accumulation)
    checkpoints = Checkpoints(
        directory / "checkpoints",
        is_writer=chief,
        keep=config.output.save_total_limit,
        save_model=lambda path: save_pretrained(classifier, tokenizer, path),
    )
    resumed = find_checkpoint(config, checkpoints, consensus)
    if chief:
        output.check(directory, config, can_resume=resumed is not None)
    model_files = resolve_model(config.model)
    data = load_data(config.data)
    metric = training.metric_for_best_model or default_metric(data.task)
    check_metric_name(metric, data.task, len(data.label_names))

    # The model and its inputs.
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
    use_own_gelu(classifier)
    if training.gradient_checkpointing:
        recompute_layers(classifier)
    weights = example_weights(data.train.labels, len(data.label_names), training.class_weights)
    train = encode(tokenizer, data.train, config.data.max_seq_length, weights)
    schedule = dataclasses.replace(plan_run(config, len(train)), first_step=resumed.step if resumed else 0)
    batches_of = functools.partial(
        training_batches, lengths=train.tokens.lengths, schedule=schedule, num_replicas=replicas
    )
    identity = identify(config, data, train, classifier.config)
    with strategy.scope():
        model = FineTuner(
            classifier,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=training.max_grad_norm,
            jit_compile=config.runtime.xla,
            seed=config.runtime.seed,
            forward=packed.forward,
        )
        optimizer = build_optimizer(training, schedule.total_steps)
        model.compile(optimizer=optimizer, loss=build_loss(data.task, training.label_smoothing))
        model.create_variables()
    if resumed:
        check_identity(resumed.identity, identity, checkpoints.directory)
        if resumed.step >= schedule.total_steps:
            raise UsageError(
                f"A run goes on towards its last update. Received: {checkpoints.directory} at step {resumed.step} of "
                f"{schedule.total_steps}. Pass more --num_train_epochs or --max_steps, or --overwrite_output_dir."
            )
        checkpoints.restore(model, resumed)
    if training.is_auto:
        found = find_accumulation(
            model, strategy, consensus, config, train, batches_of, pad_id=tokenizer.pad_id, log=say
        )
        config = config.accumulating(found)
    batches = batches_of(config)

    # Everything given has been found usable: from here on files are written.
    if chief:
        output.prepare(directory, config, is_resumed=resumed is not None)
    devices = describe(strategy)
    size = classifier.num_parameters()
    for line in banner(config, data, train, schedule, batches, replicas, policy, devices, size, directory):
        say(line)
    run_log = RunLog(
        directory if chief else None,
        total_steps=schedule.total_steps,
        first_step=schedule.first_step,
        tensorboard=config.output.tensorboard,
    )
    predictor = Predictor(model, strategy, pad_id=tokenizer.pad_id)
    progress = Progress(schedule, run_log, global_batch_size=training.global_batch_size)
    callbacks = [progress, StopWhenDiverged(schedule, limit=training.max_skipped_steps)]
    evaluation = None
    if data.validation:
        evaluation = Evaluate(
            schedule,
            run_log,
            progress,
            predictor=predictor,
            sets={n: encode(tokenizer, part, config.data.max_seq_length) for n, part in data.validation.items()},
            task=data.task,
            metric=metric,
            patience=training.early_stopping_patience,
            checkpoints=checkpoints,
        )
        callbacks.append(evaluation)
        if resumed:
            evaluation.restore(resumed)
    stop = StopRequest()
    saving = Save(
        schedule,
        checkpoints,
        every=config.output.save_steps,
        evaluation=evaluation,
        identity=identity,
        progress=progress,
        is_stopping=lambda: consensus.any(stop.is_set),
        ask_every=STEPS_BETWEEN_QUESTIONS if consensus.has_peers else 1,
    )
    callbacks.append(saving)

    dataset = distribute_batches(strategy, train, batches.plans, pad_id=tokenizer.pad_id, shape=batches.shape)
    say(f"ready after {time.perf_counter() - started:.1f} s")
    began = time.perf_counter()
    steps = schedule.total_steps - schedule.first_step
    try:
        with stop.listening(), peer_failures_as_run_errors():
            model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
    finally:
        run_log.close()
    results = train_results(model, progress, schedule, len(train), time.perf_counter() - began)

    if evaluation is not None:
        set_weights_dict(classifier, evaluation.best_weights)
        results |= evaluation.best | {"best_step": evaluation.best_step}
    if data.test is not None:
        results |= evaluate(predictor, encode(tokenizer, data.test, config.data.max_seq_length), data.task, "test")
    if saving.seconds:
        results["checkpoint_seconds"] = round(float(np.mean(saving.seconds)), 3)
    if chief:
        save_pretrained(classifier, tokenizer, directory)
        output.write_json(directory / output.RESULTS, results)
    for line in summary(results, directory):
        say(line)
    return results


def find_checkpoint(config: Config, checkpoints: Checkpoints, consensus: Consensus) -> RunState | None:
    """The state to go on from; None to start at the beginning.

    Raises:
        RunError: where workers see different checkpoints: they must share the output directory.
    """
    is_wanted = config.output.resume == "auto" and not config.output.overwrite_output_dir
    is_finished = (checkpoints.directory.parent / output.RESULTS).exists()
    found = checkpoints.newest_sound() if is_wanted and not is_finished else None
    steps = config.training.gradient_accumulation_steps
    seen = (found.step if found else 0, 0 if config.training.is_auto else steps)
    if not all([consensus.is_same(number) for number in seen]):  # A list: every worker answers every question.
        raise RunError(
            "All workers must see the same checkpoints and run_config.json. "
            f"Received: {checkpoints.directory} with {f'step {found.step}' if found else 'none'} and "
            f"gradient_accumulation_steps={steps} on this worker. "
            "Put --output_dir on a file system that all workers share."
        )
    return found


def identify(config: Config, data: TaskData, train: EncodedExamples, bert_config: Any) -> dict[str, Any]:
    """What a checkpoint's run and this one must have in common."""
    return {
        "task": data.task,
        "label_names": list(data.label_names),
        "layers": bert_config.num_hidden_layers,
        "hidden_size": bert_config.hidden_size,
        "vocab_size": bert_config.vocab_size,
        "train_examples": len(train),
        "train_crc32": crc(train.tokens.flat, train.labels, train.weights),
        "global_batch_size": config.training.global_batch_size,
        "batching": config.data.batching,
        "seed": config.runtime.seed,
    }


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
