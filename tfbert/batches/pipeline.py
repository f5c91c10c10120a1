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
from tfbert.private import distributed, without_autotune
from tfbert.tokens.tokenizer import TokenIds

Batch = tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]
"""`(inputs, labels, weights)`: int32 `[rows, width]` each of `input_ids`, `attention_mask` and `token_type_ids`; labels
`[rows]`; float32 weights `[rows]`, 0 for rows that only fill the batch. Inputs of examples of several sequences are
`[rows, sequences, width]`; a sequence that an example does not have attends to a single token.

Packed, rows hold several examples: int32 `[rows, width]` each of `input_ids`, `token_type_ids`, `position_ids` (from 0
in each example) and `example_ids` (1, 2, ... in each micro-batch; 0 where there is no token); int32 `cls_positions`
`[examples]`, counted through the rows of the example's micro-batch; labels and weights `[examples]`. Of examples of
several sequences each is as an example of its own, those of an example one after the other; their `cls_positions` are
`[examples, sequences]`, -1 where there is none.

Labels of tokens and their weights are `[rows, width]`, in the places of the ids, packed or not; 0 where there is none.

For `MaskedRecords`, labels and weights are dictionaries: see there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedExamples:
    """Examples ready to be batched, in memory.

    Attributes:
        tokens: Token ids, `[CLS]` and `[SEP]` included: a row for each example, or for each of its sequences.
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
        return len(self.tokens) if self.splits is None else len(self.splits) - 1

    @property
    def splits(self) -> np.ndarray | None:
        """int64 `[n + 1]`: example i has the sequences `splits[i]` to `splits[i + 1]`; None where each has one."""
        return self.tokens.splits

    def check_read(self) -> None:
        """As `MaskedRecords.check_read`: nothing in memory can fail to be read."""

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[n]`: tokens of each example, in all its windows; or `[n, sequences]`, 0 where there is none: then all
        examples of a batch are padded to the most sequences that any example has."""
        lengths = self.tokens.lengths
        return lengths if self.splits is None else np.add.reduceat(lengths, self.splits[:-1])

    @property
    def crc32(self) -> int:
        """Tells these examples from others."""
        value = 0
        splits = () if self.splits is None else (self.splits,)
        for array in (self.tokens.flat, self.labels, self.weights, *splits):
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
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Turns plans into a dataset over replicas for `fit`: each replica gets its columns of every global batch.

    The same plan runs on every worker. A replica's share keeps the global batch's width, so the arithmetic of a step
    does not depend on how the batch is split.

    Args:
        strategy: Where the batches go.
        examples: What the plans' indexes point to.
        plans: Called for a new iterator over the epochs' plans; it is walked once, in the background.
        shape: The shape of packed plans; None for plans that are not packed.

    Returns:
        A dataset of `Batch`es, one a step and replica, over all plans; distributed, but for a single replica.
    """

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local = strategy.num_replicas_in_sync // context.num_input_pipelines
        first = context.input_pipeline_id * local
        replicas = range(first, first + local)
        return make_dataset(examples, plans, replicas, strategy.num_replicas_in_sync, shape=shape)

    return distributed(strategy, dataset)


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
        sequences, width = held.of_width(rows, width)
        inputs, source, is_token = padded_inputs_in_graph(held.tokens, tf.reshape(sequences, [-1]), width)
        if held.labels_tokens:
            return inputs, *(tf.where(is_token, values, 0) for values in held.of_tokens(source))
        shape = tf.concat([tf.shape(sequences), [width]], axis=0)
        return {name: tf.reshape(value, shape) for name, value in inputs.items()}, *held.of_examples(rows)

    return gather


def _gather_packed(examples: EncodedExamples, shape: PackedShape) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    """A function of (example indexes, their places in their micro-batches) that makes a packed batch."""
    held = _Held(examples)
    tokens, most = held.tokens, held.most
    part_size = shape.num_rows * shape.width

    def gather(rows: tf.Tensor, starts: tf.Tensor, epoch: tf.Tensor) -> Batch:
        sequences = held.sequences(rows, most)
        is_there, sequence = sequences != FILL, tf.maximum(sequences, 0)
        length = tf.where(is_there, tf.gather(tokens.lengths, sequence), 0)
        # The sequences of an example stand one after the other, from where the example starts.
        firsts = starts[:, None] + tf.cumsum(length, axis=1, exclusive=True)
        part, in_part = (op(tf.range(tf.size(rows)), shape.num_examples) for op in (tf.math.floordiv, tf.math.floormod))
        number = in_part[:, None] * most + tf.range(most) + 1
        # From here on one element per token, sequence after sequence.
        flat_length = tf.reshape(length, [-1])
        of = tf.repeat(tf.range(tf.size(flat_length)), flat_length)
        position = tf.range(tf.size(of)) - tf.gather(tf.cumsum(flat_length, exclusive=True), of)
        own = tf.gather(tf.reshape(sequence, [-1]), of)
        source = tf.gather(tokens.starts, own) + tf.cast(position, tf.int64)
        target = (tf.gather(tf.reshape(part[:, None] * part_size + firsts, [-1]), of) + position)[:, None]
        num_rows = tf.size(rows) // shape.num_examples * shape.num_rows

        def spread(values: tf.Tensor, empty: int, dtype: tf.DType = tf.int32) -> tf.Tensor:
            blank = tf.fill([num_rows * shape.width], tf.constant(empty, dtype))
            filled = tf.tensor_scatter_nd_update(blank, target, tf.cast(values, dtype))
            return tf.reshape(filled, [num_rows, shape.width])

        inputs = {
            "input_ids": spread(tf.gather(tokens.flat, source), tokens.pad_id),
            "token_type_ids": spread(position >= tf.gather(tokens.second_start, own), 0),
            "position_ids": spread(position, 0),
            "example_ids": spread(tf.gather(tf.reshape(number, [-1]), of), 0),
            "cls_positions": starts if examples.splits is None else tf.where(is_there, firsts, -1),
        }
        if held.labels_tokens:
            labels, weights = held.of_tokens(source)
            return inputs, spread(labels, 0), spread(weights, 0, tf.float32)
        return inputs, *held.of_examples(rows)

    return gather


class _Held:
    """Examples as tensors of the pipeline.

    Attributes:
        most: The most sequences of an example.
    """

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
        self._splits = None if examples.splits is None else tf.constant(examples.splits)
        self.most = 1 if examples.splits is None else int(np.diff(examples.splits).max())
        self._longest = int(examples.tokens.lengths.max())
        self._are_windows = examples.lengths.ndim == 1

    def of_width(self, rows: tf.Tensor, width: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The sequences of some examples, `[rows]` or `[rows, sequences]`, in a batch whose examples are padded to a
        width; and the width of each sequence. Of an example of several windows each is as long as a row may be."""
        if self._splits is None:
            return rows, width
        if not self._are_windows:
            return self.sequences(rows, self.most), width
        return self.sequences(rows, tf.maximum(width // self._longest, 1)), tf.minimum(width, self._longest)

    def sequences(self, rows: tf.Tensor, count: tf.Tensor | int) -> tf.Tensor:
        """int64 `[rows, count]`: the sequences of some examples; `FILL` where there is none."""
        if self._splits is None:
            return rows[:, None]
        row = tf.maximum(rows, 0)
        first, end = tf.gather(self._splits, row), tf.gather(self._splits, row + 1)
        found = first[:, None] + tf.range(tf.cast(count, tf.int64))
        return tf.where((rows != FILL)[:, None] & (found < end[:, None]), found, FILL)

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
