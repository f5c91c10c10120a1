"""Plans and token ids -> tf.data -> the batches each replica computes."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfbert.batches.inputs import TokenTensors, padded_inputs_in_graph
from tfbert.batches.masked_records import MaskedRecords
from tfbert.batches.packing import PackedPlan, PackedShape
from tfbert.batches.plan import FILL, BatchPlan
from tfbert.private import device_iterators_without_autotune, without_autotune
from tfbert.tokens.tokenizer import TokenIds

Batch = tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]
"""`(inputs, labels, weights)`: int32 `[rows, width]` each of `input_ids`, `attention_mask` and `token_type_ids`; labels
`[rows]`; float32 weights `[rows]`, 0 for rows that only fill the batch.

Packed, rows hold several examples: int32 `[rows, width]` each of `input_ids`, `token_type_ids`, `position_ids` (from 0
in each example) and `example_ids` (1, 2, ... in each micro-batch; 0 where there is no token); int32 `cls_positions`
`[examples]`, counted through the rows of the example's micro-batch; labels and weights `[examples]`.

Labels of tokens and their weights are `[rows, width]`, in the places of the ids, packed or not; 0 where there is none.

For `MaskedRecords`, labels and weights are dictionaries: see there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedExamples:
    """Examples ready to be batched, in memory.

    Attributes:
        tokens: Token ids, `[CLS]` and `[SEP]` included.
        labels: One per example, int32 or float32 `[n, ...]`; or one per token, int32 `[tokens]` as in `tokens.flat`.
        weights: float32, each label's weight in the loss: `[n]`, or `[tokens]`, 0 for a token without a label.
        labels_tokens: Whether labels belong to tokens.
    """

    tokens: TokenIds
    labels: np.ndarray
    weights: np.ndarray
    labels_tokens: bool = False
    may_be_cut: ClassVar[bool] = True
    """Whether an example of the longest length may be the beginning of a longer one."""

    def __len__(self) -> int:
        return len(self.tokens)

    def check_read(self) -> None:
        """As `MaskedRecords.check_read`: nothing in memory can fail to be read."""

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[n]`: tokens of each example; `[n, sequences]` for examples of several sequences, 0 where there is
        none."""
        return self.tokens.lengths

    @property
    def crc32(self) -> int:
        """Tells these examples from others."""
        value = 0
        for array in (self.tokens.flat, self.labels, self.weights):
            value = zlib.crc32(np.ascontiguousarray(array).data.cast("B"), value)
        return value

    def gather(self, shape: PackedShape | None) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
        """A function of (example indexes, width or places, epoch) that makes a batch, in a graph.

        Args:
            shape: The shape of packed micro-batches; None for one example a row.
        """
        return _gather_rows(self) if shape is None else _gather_packed(self, shape)


def distribute_batches(
    strategy: tf.distribute.Strategy,
    examples: EncodedExamples | MaskedRecords,
    plans: Callable[[], Iterator[BatchPlan | PackedPlan]],
    *,
    shape: PackedShape | None = None,
) -> tf.distribute.DistributedDataset:
    """Turns plans into a distributed dataset for `fit`: each replica gets its columns of every global batch.

    The same plan runs on every worker. A replica's share keeps the global batch's width, so the arithmetic of a step
    does not depend on how the batch is split.

    Args:
        strategy: Where the batches go.
        examples: What the plans' indexes point to.
        plans: Called for a new iterator over the epochs' plans; it is walked once, in the background.
        shape: The shape of packed plans; None for plans that are not packed.

    Returns:
        A distributed dataset of `Batch`es, one a step and replica, over all plans.
    """

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local = strategy.num_replicas_in_sync // context.num_input_pipelines
        first = context.input_pipeline_id * local
        replicas = range(first, first + local)
        return make_dataset(examples, plans, replicas, strategy.num_replicas_in_sync, shape=shape)

    device_iterators_without_autotune()
    return strategy.distribute_datasets_from_function(dataset)


def make_dataset(
    examples: EncodedExamples | MaskedRecords,
    plans: Callable[[], Iterator[BatchPlan | PackedPlan]],
    replicas: range,
    num_replicas: int,
    *,
    shape: PackedShape | None = None,
) -> tf.data.Dataset:
    """The batches of the given replicas, step by step: step 0 of each, then step 1 of each, and so on."""

    def shares() -> Iterator[tuple[np.ndarray, np.ndarray | np.int32, int]]:
        for plan in plans():
            places = plan.widths if shape is None else plan.starts.reshape(len(plan), num_replicas, -1)
            for rows, place in zip(plan.rows, places, strict=True):
                parts = rows.reshape(num_replicas, -1)
                for replica in replicas:
                    yield parts[replica], place if shape is None else place[replica], plan.epoch

    place = tf.TensorSpec([] if shape is None else [None], tf.int32)
    # All pipelines read host memory; without the scope the constants could land on a GPU.
    with tf.device("CPU"):
        # Nothing in it branches on a tensor; leaving out AutoGraph saves 0.2 s.
        gather = tf.autograph.experimental.do_not_convert(examples.gather(shape))
        signature = (tf.TensorSpec([None], tf.int64), place, tf.TensorSpec([], tf.int32))
        dataset = tf.data.Dataset.from_generator(shares, output_signature=signature)
        dataset = dataset.map(gather, num_parallel_calls=2, deterministic=True)
    return without_autotune(dataset.prefetch(4 * len(replicas)))


def _gather_rows(examples: EncodedExamples) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    """A function of (example indexes, width) that makes a batch of one example a row."""
    held = _Held(examples)

    def gather(rows: tf.Tensor, width: tf.Tensor, epoch: tf.Tensor) -> Batch:
        inputs, source, is_token = padded_inputs_in_graph(held.tokens, rows, width)
        if held.labels_tokens:
            return inputs, *(tf.where(is_token, values, 0) for values in held.of_tokens(source))
        return inputs, *held.of_examples(rows)

    return gather


def _gather_packed(examples: EncodedExamples, shape: PackedShape) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    """A function of (example indexes, their places in their micro-batches) that makes a packed batch."""
    held = _Held(examples)
    tokens = held.tokens
    part_size = shape.num_rows * shape.width

    def gather(rows: tf.Tensor, starts: tf.Tensor, epoch: tf.Tensor) -> Batch:
        row = tf.maximum(rows, 0)
        index = tf.range(tf.size(rows))
        part, number = index // shape.num_examples, index % shape.num_examples + 1
        length = tf.where(rows != FILL, tf.gather(tokens.lengths, row), 0)
        # From here on one element per token, example after example.
        of = tf.repeat(index, length)
        position = tf.range(tf.size(of)) - tf.gather(tf.cumsum(length, exclusive=True), of)
        source = tf.gather(tf.gather(tokens.starts, row), of) + tf.cast(position, tf.int64)
        target = (tf.gather(part * part_size + starts, of) + position)[:, None]
        num_rows = tf.size(rows) // shape.num_examples * shape.num_rows

        def spread(values: tf.Tensor, empty: int, dtype: tf.DType = tf.int32) -> tf.Tensor:
            blank = tf.fill([num_rows * shape.width], tf.constant(empty, dtype))
            filled = tf.tensor_scatter_nd_update(blank, target, tf.cast(values, dtype))
            return tf.reshape(filled, [num_rows, shape.width])

        inputs = {
            "input_ids": spread(tf.gather(tokens.flat, source), tokens.pad_id),
            "token_type_ids": spread(position >= tf.gather(tf.gather(tokens.second_start, row), of), 0),
            "position_ids": spread(position, 0),
            "example_ids": spread(tf.gather(number, of), 0),
            "cls_positions": starts,
        }
        if held.labels_tokens:
            labels, weights = held.of_tokens(source)
            return inputs, spread(labels, 0), spread(weights, 0, tf.float32)
        return inputs, *held.of_examples(rows)

    return gather


class _Held:
    """Examples as tensors of the pipeline."""

    def __init__(self, examples: EncodedExamples):
        self.tokens = TokenTensors(
            flat=tf.constant(examples.tokens.flat),
            starts=tf.constant(examples.tokens.row_splits[:-1]),
            lengths=tf.constant(examples.tokens.lengths),
            second_start=tf.constant(examples.tokens.second_start),
            pad_id=examples.tokens.pad_id,
        )
        self.labels_tokens = examples.labels_tokens
        self.weights = tf.constant(examples.weights)
        self._labels = tf.constant(examples.labels)

    def of_examples(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Labels and weights of some examples; `FILL` has weight 0, and label 0, a place that every row has."""
        row, is_real = tf.maximum(rows, 0), rows != FILL
        labels = tf.gather(self._labels, row)
        is_labelled = tf.reshape(is_real, [-1, *[1] * (labels.shape.rank - 1)])
        return tf.where(is_labelled, labels, tf.zeros([], labels.dtype)), tf.where(
            is_real, tf.gather(self.weights, row), 0.0
        )

    def of_tokens(self, where: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Labels and weights of some tokens."""
        return tf.gather(self._labels, where), tf.gather(self.weights, where)
