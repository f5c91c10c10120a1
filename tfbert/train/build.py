"""Everything a training run needs before its first update, from a configuration; nothing is written yet.

`--gradient_accumulation_steps=auto`: the largest micro-batch that memory has room for, found before training.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import pathlib

import keras
import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import make_dataset
from tfbert.batches.plan import micro_batch_size
from tfbert.batches.schedule import Schedule, TrainingBatches, plan_run, training_batches
from tfbert.bert.lora import write_adapter
from tfbert.bert.models import build_model
from tfbert.bert.pretrained import PreTrainedModel
from tfbert.config.modes import evaluation_options
from tfbert.config.run import Config
from tfbert.config.training import TrainingConfig
from tfbert.devices.process import log_if_slow
from tfbert.devices.runtime import is_out_of_memory, reset_peak_memory, tell
from tfbert.devices.workers import Consensus, checksum, is_chief
from tfbert.errors import RunError, UsageError
from tfbert.measure import counted_alone
from tfbert.model.files import load_config, load_tokenizer, record_inputs, resolve_model
from tfbert.model.forward import output_layer
from tfbert.model.head import save_pretrained
from tfbert.model.predictor import Predictor
from tfbert.output.output_dir import check_login
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.step.keras3.fused import LAMB, AdamW, WarmupSchedule
from tfbert.step.updates import NO_DECAY
from tfbert.tasks.base import Examples, Task, TaskData, check_same_examples
from tfbert.tasks.classification.glue import decisive_metric
from tfbert.tasks.tables import load_data
from tfbert.tokens.tokenizer import Tokenizer
from tfbert.train import resume
from tfbert.train.checkpoint import ADAPTER, MODEL, Checkpoints, RunState
from tfbert.train.resume import Encoded, Identity, Start, contents_of, facts_of

log = logging.getLogger("tfbert")

MAX_TOKENS = 2**18
"""The most tokens of a micro-batch that is tried. Kernels count elements in 32 bits, and tensors of a batch of tens of
thousands have more: that would abort the process, while a lack of memory is only an error. The widest of BERT-large,
the attention scores of 512 tokens, have 2^13 elements a token. Far fewer tokens fill any device."""


def find_accumulation(
    model: FineTuner, consensus: Consensus, config: Config, examples: Encoded, schedule: Schedule
) -> int:
    """Finds the fewest micro-batches with which the run's largest batch fits into memory; leaves `model` split so.

    Each try computes the gradients of the run's largest batch (its widest, or any where all are alike), forward and
    backward, on every replica, and forgets them: weights, optimizer and counters stay as they are. The update comes
    after a step has freed its micro-batches, so its memory does not depend on their size. All workers take part; a
    size that does not fit on one of them is given up on all. Logs a line for each try that did not fit.

    Args:
        model: Its variables and the optimizer's must exist already, as they need memory too.
        consensus: Between the workers of its strategy.
        config: The run; its global batch size is kept.
        examples: To train on.
        schedule: The run in updates.

    Returns:
        `gradient_accumulation_steps`.

    Raises:
        UsageError: if the global batch does not split evenly over the replicas.
        RunError: if not even one example at a time fits.
    """
    size, replicas = config.training.global_batch_size, model.distribute_strategy.num_replicas_in_sync
    share = micro_batch_size(size, replicas, 1)
    for steps in (number for number in range(1, share + 1) if share % number == 0):
        lengths, split = examples.lengths, config.accumulating(steps)
        batches = training_batches(split, lengths, schedule, num_replicas=replicas)
        micro = batches.rows // (replicas * steps)
        if batches.shape:
            width = -(-batches.shape.num_tokens // batches.rows)
        else:
            sequences = lengths.shape[1] if isinstance(lengths, np.ndarray) and lengths.ndim == 2 else 1
            width = int(batches.largest.widths.max()) * sequences
        if micro > 1 and micro * width > MAX_TOKENS:
            continue
        model.split_into(steps)
        with log_if_slow(f"trying a micro-batch of {micro}"):
            fits = _fits(model, examples, batches)
        if not consensus.any(not fits):
            return steps
        gc.collect()  # Until now the error's frames keep what was computed.
        log.info("a micro-batch of %d does not fit into memory", micro)
        if micro == 1:  # If the data is less than a global batch, more steps would only add empty rows.
            break
    received = f"global_batch_size={size} on {replicas} replicas; a micro-batch of 1 ran out of memory"
    todo = "Lower --max_seq_length, or add --gradient_checkpointing or --mixed_precision."
    raise RunError(f"One example per replica must fit into memory. Received: {received}. {todo}")


def _fits(model: FineTuner, examples: Encoded, batches: TrainingBatches) -> bool:
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync
    largest = make_dataset(examples, lambda: iter([batches.largest]), range(replicas), replicas, shape=batches.shape)
    shares = list(largest)  # Each worker takes its own shares from those of all.
    data = strategy.experimental_distribute_values_from_function(
        lambda context: shares[context.replica_id_in_sync_group]
    )
    attempt = counted_alone(lambda data: strategy.run(model.try_step, args=(data,)))
    try:
        for norm in strategy.experimental_local_results(attempt(data)):
            norm.numpy()
    except tf.errors.OpError as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


_OPTIMIZERS = {"adamw": functools.partial(AdamW, epsilon=1e-8), "lamb": LAMB}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run that is ready to start.

    Attributes:
        config: Complete: nothing is left to be decided.
        strategy: Where it computes.
        consensus: Between its workers.
        chief: Whether this process writes and shows progress.
        directory: The output directory.
        checkpoints: Those in that directory.
        resumed: The state that the run resumes from, already restored; None for a run that starts at its beginning.
        identity: What makes it this run; its checkpoints record it.
        data: The examples, as text.
        metric: Decides which weights are kept.
        head_start: A sentence on where a new head started; empty if it started at 0 or comes from a file.
        tokenizer: The model's.
        train: The training examples as token ids, or the records that these are read from.
        schedule: The run in updates.
        batches: The batches of these updates.
        classifier: The model that is saved.
        model: What trains the classifier: compiled, its variables created.
        predictor: Runs the model.
    """

    config: Config
    strategy: tf.distribute.Strategy
    consensus: Consensus
    chief: bool
    directory: pathlib.Path
    checkpoints: Checkpoints
    resumed: RunState | None
    identity: Identity
    data: TaskData
    metric: str
    head_start: str
    tokenizer: Tokenizer
    train: Encoded
    schedule: Schedule
    batches: TrainingBatches
    classifier: PreTrainedModel
    model: FineTuner
    predictor: Predictor

    def encode(self, examples: Examples) -> Encoded:
        """Examples to predict, encoded as the training examples are."""
        with log_if_slow(f"encoding {len(examples):,} examples to evaluate"):
            return self.data.task.encode(examples, self.tokenizer, self.config.data.max_seq_length)


def build_run(start: Start, strategy: tf.distribute.Strategy, consensus: Consensus) -> Run:
    """Finds out whether the run can start, and builds all it needs.

    Args:
        start: What `resume.open_directory` found; its directory is locked.
        strategy: Where to compute. Each of its workers must call this function.
        consensus: Between these workers.

    Raises:
        UsageError: for anything given that cannot be used.
    """
    chief = is_chief(strategy)
    replicas = strategy.num_replicas_in_sync
    config, training = start.config, start.config.training
    tell(start.notes)

    # What is given: the split, the login, the model's files, the data.
    accumulation = 1 if training.is_auto else training.gradient_accumulation_steps
    micro_batch_size(training.global_batch_size, replicas, accumulation)
    if chief and config.hub.push_to_hub:
        check_login()
    model_files = resolve_model(config.model)
    with log_if_slow("reading the data"):
        contents = contents_of(config)  # Before they are read: what changes meanwhile must not pass for what was read.
        options = config.task_options
        if model_files:
            options = dataclasses.replace(options, model_type=load_config(model_files).model_type)
        data = load_data(config.data, options)
    check_same_examples({"train": data.train} | data.sets, strategy)
    task = data.task
    metric = training.metric_for_best_model or decisive_metric(config.data.dataset) or task.default_metric
    task.check_metric(metric)
    task.check_options(config)
    if not data.validation and (given := evaluation_options(config)):
        name, value = next(iter(given.items()))
        rule = f"{name} needs examples to evaluate on during training"
        raise UsageError(f"{rule}. Received: {name}={value!r} with {config.source}, which has none. Drop --{name}.")

    # The model and its inputs.
    with log_if_slow("loading the vocabulary, or learning one from the training texts"):
        tokenizer = load_tokenizer(config.model, model_files, training_texts=data.train.texts())
        tokenizer = tokenizer.cutting(config.data.long_texts or "cut")
    with strategy.scope(), log_if_slow("loading the weights"):
        classifier = build_model(
            config.model,
            model_files,
            tokenizer=tokenizer,
            head=task.head(),
            max_seq_length=config.data.max_seq_length,
            seed=config.runtime.seed,
            dropout=training.dropout,
        )
        if training.lora_rank:
            classifier.enable_lora(
                training.lora_rank, alpha=training.lora_alpha, targets=training.lora_targets, seed=config.runtime.seed
            )
    note_inputs(classifier, tokenizer, data, config)
    with log_if_slow(f"encoding {len(data.train):,} training examples"):
        train = task.encode(data.train, tokenizer, config.data.max_seq_length, training)
    head_start = start_head(task, classifier, train, training)
    schedule = plan_run(config, len(train))
    facts = facts_of(config, data, train, tokenizer, classifier.config)
    if training.lora_rank:  # Checkpoints do not hold them.
        facts["base_weights"] = checksum(*(variable.numpy() for variable in classifier.non_trainable_weights))
    resumed, lines = None, []
    if start.resumed:
        resumed, schedule, lines = resume.check_same_run(start, facts, schedule)
    with strategy.scope():
        model = FineTuner(
            classifier,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=training.max_grad_norm,
            all_reduce_dtype=config.runtime.all_reduce_dtype,
            jit_compile=config.runtime.xla,
            seed=config.runtime.seed,
            forward=functools.partial(task.head().forward, recompute=training.gradient_checkpointing),
        )
        model.is_foreign = False
        optimizer = optimizer_of(training, schedule.total_steps, schedule.warmup_steps)
        model.compile(optimizer=optimizer, loss=task.loss(training))
        model.create_variables()

    # Where the run resumes, and its micro-batches.
    checkpoints = Checkpoints(
        directory=start.checkpoints,
        is_writer=chief,
        keep=config.output.save_total_limit,
        save_model=functools.partial(write_adapter, classifier)
        if training.lora_rank
        else lambda path: save_pretrained(classifier, tokenizer, path),
        weights_file=ADAPTER if training.lora_rank else MODEL,
    )
    if resumed:
        checkpoints.restore(model, resumed)
    for line in lines:
        log.info("%s", line)
    if training.is_auto:
        config = config.accumulating(find_accumulation(model, consensus, config, train, schedule))
        reset_peak_memory()  # The peak so far is that of a failed try.
    return Run(
        config=config,
        strategy=strategy,
        consensus=consensus,
        chief=chief,
        directory=start.directory,
        checkpoints=checkpoints,
        resumed=resumed,
        identity=dataclasses.replace(resume.identify(start, config, facts, schedule, replicas), contents=contents),
        data=data,
        metric=metric,
        head_start=head_start,
        tokenizer=tokenizer,
        train=train,
        schedule=schedule,
        batches=training_batches(config, train.lengths, schedule, num_replicas=replicas),
        classifier=classifier,
        model=model,
        predictor=Predictor(
            lambda inputs, training: task.select_outputs(model(inputs, training=training), inputs),
            strategy,
            rows_per_replica=config.runtime.per_device_eval_batch_size,
            of_tokens=task.reads_tokens,
        ),
    )


def note_inputs(classifier: PreTrainedModel, tokenizer: Tokenizer, data: TaskData, config: Config) -> None:
    """Has the model's configuration say what its inputs are, and what else its task has found out."""
    notes = {"num_texts": data.train.num_texts, "columns": data.columns, **data.task.notes(), **tokenizer.notes()}
    record_inputs(classifier.config, max_seq_length=config.data.max_seq_length, **notes)


def optimizer_of(training: TrainingConfig, total_steps: int, warm_up: int) -> keras.optimizers.Optimizer:
    """The optimizer of `total_steps` updates, `warm_up` of them with a rising rate; call in the strategy's scope."""
    rate = WarmupSchedule(
        peak=training.learning_rate,
        schedule=training.lr_schedule,
        warmup_steps=warm_up,
        total_steps=total_steps,
        power=training.lr_power,
    )
    # AdamW (Loshchilov & Hutter 2019) as BERT is fine-tuned, or LAMB (You et al. 2020) as it is pre-trained in large
    # batches. FineTuner clips.
    return _OPTIMIZERS[training.optimizer](rate, training.weight_decay, no_decay=(*NO_DECAY, "norm/"))


def start_head(task: Task, classifier: PreTrainedModel, train: Encoded, training: TrainingConfig) -> str:
    """Gives a new head the bias of the training labels' frequencies, and says so; empty if there is nothing to do."""
    head, new = task.head(), classifier.new_weights
    if training.head_bias == "zero" or head.names(classifier.config)[1] not in new:
        return ""
    start = task.head_start(train, training)
    if start is None:
        return ""
    layer = output_layer(classifier, head.kind)
    # A table may have rows that no token uses: they begin as the words that do not occur.
    unused = layer.bias.shape[0] - len(start.bias)
    layer.bias.assign(np.pad(start.bias, (0, unused), constant_values=start.bias.min()))
    if start.scale != 1:
        layer.kernel.assign(layer.kernel.value * start.scale)
    return f"The new head starts at {start.words}"
