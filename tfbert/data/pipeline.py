"""Plans and token ids -> tf.data -> the batches each replica computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tfbert.data.autotune import device_iterators_without_autotune, without_autotune
from tfbert.data.plan import BatchPlan
from tfbert.data.tokenizer import TokenIds

Batch = tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]
"""`(inputs, labels, weights)`: int32 `[rows, width]` each of `input_ids`, `attention_mask` and `token_type_ids`; labels
`[rows]`; float32 weights `[rows]`, 0 for rows that only fill the batch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedExamples:
    """Examples ready to be batched, in memory.

    Attributes:
        tokens: Token ids, `[CLS]` and `[SEP]` included.
        labels: int32 `[n]` classes or float32 `[n]` targets.
        weights: float32 `[n]`, each example's weight in the loss.
    """

    tokens: TokenIds
    labels: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)


def distribute_batches(
    strategy: tf.distribute.Strategy,
    examples: EncodedExamples,
    plans: Callable[[], Iterator[BatchPlan]],
    *,
    pad_id: int,
) -> tf.distribute.DistributedDataset:
    """Turns plans into a distributed dataset for `fit`: each replica gets its columns of every global batch.

    The same plan runs on every worker. A replica's share keeps the global batch's width, so the arithmetic of a step
    does not depend on how the batch is split.

    Args:
        strategy: Where the batches go.
        examples: What the plans' indexes point to.
        plans: Called for a new iterator over the epochs' plans; it is walked once, in the background.
        pad_id: Token id of the padding.

    Returns:
        A distributed dataset of `Batch`es, one a step and replica, over all plans.
    """

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local = strategy.num_replicas_in_sync // context.num_input_pipelines
        first = context.input_pipeline_id * local
        replicas = range(first, first + local)
        return make_dataset(examples, plans, replicas, strategy.num_replicas_in_sync, pad_id=pad_id)

    device_iterators_without_autotune()
    return strategy.distribute_datasets_from_function(dataset)


def make_dataset(
    examples: EncodedExamples,
    plans: Callable[[], Iterator[BatchPlan]],
    replicas: range,
    num_replicas: int,
    *,
    pad_id: int,
) -> tf.data.Dataset:
    """The batches of the given replicas, step by step: step 0 of each, then step 1 of each, and so on."""

    def shares() -> Iterator[tuple[np.ndarray, int]]:
        for plan in plans():
            for rows, width in zip(plan.rows, plan.widths, strict=True):
                parts = rows.reshape(num_replicas, -1)
                for replica in replicas:
                    yield parts[replica], width

    flat = tf.constant(examples.tokens.flat)
    starts = tf.constant(examples.tokens.row_splits[:-1])
    lengths = tf.constant(examples.tokens.lengths.astype(np.int32))
    second_start = tf.constant(examples.tokens.second_start)
    labels = tf.constant(examples.labels)
    weights = tf.constant(examples.weights)

    def gather(rows: tf.Tensor, width: tf.Tensor) -> Batch:
        is_real = rows >= 0
        row = tf.maximum(rows, 0)
        # A row that only fills the batch attends to its first token: with nothing to attend to, softmax is undefined.
        length = tf.where(is_real, tf.gather(lengths, row), 1)
        position = tf.range(width)
        mask = position < length[:, None]
        where = tf.gather(starts, row)[:, None] + tf.cast(tf.where(mask, position, 0), tf.int64)
        ids = tf.where(mask & is_real[:, None], tf.gather(flat, where), pad_id)
        second = mask & (position >= tf.gather(second_start, row)[:, None])
        inputs = {
            "input_ids": ids,
            "attention_mask": tf.cast(mask, tf.int32),
            "token_type_ids": tf.cast(second, tf.int32),
        }
        return inputs, tf.gather(labels, row), tf.where(is_real, tf.gather(weights, row), 0.0)

    # All pipelines read host memory; without the scope the constants could land on a GPU.
    signature = (tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int32))
    with tf.device("CPU"):
        dataset = tf.data.Dataset.from_generator(shares, output_signature=signature)
        dataset = dataset.map(gather, num_parallel_calls=2, deterministic=True)
    return without_autotune(dataset.prefetch(4 * len(replicas)))
