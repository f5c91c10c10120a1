"""`--gradient_accumulation_steps=auto`: the largest micro-batch that memory has room for, found before training."""

from __future__ import annotations

import gc
import logging

import numpy as np
import tensorflow as tf

from tfbert.batches.masked_records import MaskedRecords
from tfbert.batches.pipeline import EncodedExamples, make_dataset
from tfbert.batches.plan import micro_batch_size
from tfbert.batches.schedule import Schedule, TrainingBatches, training_batches
from tfbert.config.run import Config
from tfbert.corpus.records import RecordLengths
from tfbert.devices.runtime import is_out_of_memory
from tfbert.devices.waiting import log_if_slow
from tfbert.devices.workers import Consensus
from tfbert.errors import RunError
from tfbert.measure.tracing import counted_alone
from tfbert.step.keras3.finetuner import FineTuner

log = logging.getLogger("tfbert")

MAX_TOKENS = 2**18
"""The most tokens of a micro-batch that is tried. Kernels count elements in 32 bits, and tensors of a batch of tens of
thousands have more: that would abort the process, while a lack of memory is only an error. The widest of BERT-large,
the attention scores of 512 tokens, have 2^13 elements a token. Far fewer tokens fill any device."""


def find_accumulation(
    model: FineTuner,
    consensus: Consensus,
    config: Config,
    examples: EncodedExamples | MaskedRecords,
    schedule: Schedule,
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
        if micro > 1 and micro * _width(batches, lengths) > MAX_TOKENS:
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
    raise RunError(
        f"One example per replica must fit into memory. Received: global_batch_size={size} on {replicas} replicas; a "
        "micro-batch of 1 ran out of memory. Lower --max_seq_length, or add --gradient_checkpointing or "
        "--mixed_precision."
    )


def _width(batches: TrainingBatches, lengths: np.ndarray | RecordLengths) -> int:
    """The most tokens of an example in the batches, padding included."""
    if batches.shape:
        return -(-batches.shape.num_tokens // batches.rows)
    sequences = lengths.shape[1] if isinstance(lengths, np.ndarray) and lengths.ndim == 2 else 1
    return int(batches.largest.widths.max()) * sequences


def _fits(model: FineTuner, examples: EncodedExamples | MaskedRecords, batches: TrainingBatches) -> bool:
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
