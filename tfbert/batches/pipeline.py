"""Plans and token ids, or records of pre-training -> tf.data -> the batches each replica computes.

Training and an exported model make their inputs in a graph. A `Predictor` makes them in NumPy: its examples come chunk
by chunk, so they are not constants of a graph.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.batches.plan import FILL, BatchPlan, PackedPlan, PackedShape
from tfbert.corpus.masking import Masked, Masking, mask, record_keys
from tfbert.corpus.records import RecordLengths, RecordRows, Records
from tfbert.errors import RunError
from tfbert.private import distributed, without_autotune
from tfbert.tokens.tokenizer import TokenIds, splits_of

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class TokenTensors(NamedTuple):
    """Token ids of many examples, as `TokenIds` has them, in a graph.

    Attributes:
        flat: int32 `[tokens]`, the ids of all examples, one after the other.
        starts: int64 `[n]`, where each example begins.
        lengths: int32 `[n]`, tokens of each example.
        second_start: int32 `[n]`, the position in the example at which segment B starts; its length for single texts.
        pad_id: The id that fills rows up.
    """

    flat: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor
    second_start: tf.Tensor
    pad_id: int

    @classmethod
    def of_rows(cls, ids: tf.RaggedTensor, second_start: tf.Tensor | None, pad_id: int) -> TokenTensors:
        """From ids, int32 `[n, None]`; `second_start` is None for single texts."""
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        second_start = lengths if second_start is None else tf.cast(second_start, tf.int32)
        return cls(ids.values, ids.row_starts(), lengths, second_start, pad_id)

    def in_memory(self) -> TokenIds:
        """The same as arrays, of tensors that are computed."""
        splits = splits_of(self.lengths.numpy())
        second_start = self.second_start.numpy()
        return TokenIds(flat=self.flat.numpy(), row_splits=splits, second_start=second_start, pad_id=self.pad_id)


class PaddedRows(NamedTuple):
    """Rows of a batch.

    Attributes:
        inputs: int32 `[rows, width]` each of `INPUTS`.
        source: int64 `[rows, width]`, where in `TokenTensors.flat` each token is; without meaning elsewhere.
        is_token: bool `[rows, width]`, where there is a token of an example.
    """

    inputs: dict[str, tf.Tensor]
    source: tf.Tensor
    is_token: tf.Tensor


def padded_inputs_in_graph(tokens: TokenTensors, rows: tf.Tensor, width: tf.Tensor) -> PaddedRows:
    """A model's inputs for some examples, as tensors. Arguments are those of `padded_inputs`; width is int32 `[]`."""
    is_real = rows != FILL
    row = tf.maximum(rows, 0)
    # A row that only fills the batch attends to its first token: with nothing to attend to, softmax is undefined.
    length = tf.where(is_real, tf.gather(tokens.lengths, row), 1)
    position = tf.range(width)
    mask = position < length[:, None]
    is_token = mask & is_real[:, None]
    source = tf.gather(tokens.starts, row)[:, None] + tf.cast(tf.where(mask, position, 0), tf.int64)
    second = mask & (position >= tf.gather(tokens.second_start, row)[:, None])
    values = (tf.where(is_token, tf.gather(tokens.flat, source), tokens.pad_id), mask, second)
    inputs = {name: tf.cast(value, tf.int32) for name, value in zip(INPUTS, values, strict=True)}
    return PaddedRows(inputs, source, is_token)


def padded_inputs(tokens: TokenIds, rows: np.ndarray, width: int) -> dict[str, np.ndarray]:
    """A model's inputs for some examples, as arrays.

    Args:
        tokens: All examples.
        rows: int64 `[n]`, which ones; `FILL` for a row that only fills the batch.
        width: Tokens that each row is padded to.

    Returns:
        int32 `[n, width]` each of `INPUTS`.
    """
    is_real = rows != FILL
    row = np.maximum(rows, 0)
    start = tokens.row_splits[row]
    length = np.where(is_real, tokens.row_splits[row + 1] - start, 1)  # As above: one token to attend to.
    position = np.arange(width)
    mask = position < length[:, None]
    is_token = mask & is_real[:, None]
    source = start[:, None] + np.where(mask, position, 0)
    second = mask & (position >= tokens.second_start[row][:, None])
    values = (np.where(is_token, tokens.flat[source], tokens.pad_id), mask, second)
    return {name: value.astype(np.int32) for name, value in zip(INPUTS, values, strict=True)}


MASKED_LM, NEXT_SENTENCE = "masked_lm", "next_sentence"
POSITIONS = "masked_lm_positions"
CHUNK = 8192
"""Records in memory at a time while all are predicted."""
_PACKED_INPUTS = ("input_ids", "token_type_ids", "position_ids", "example_ids")
_MULTIPLE = 8
"""A row's predictions are rounded up to a multiple of it: matrix units like that, and fewer shapes are compiled."""
EVALUATION_SEED = 2**32
"""Masks are the same in every evaluation of every run. No run has this seed, so that a record that is also trained on
is not evaluated with masks from training."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MaskedChunk:
    """Some masked records in memory.

    Attributes:
        tokens: What the model is given.
        positions: int32 `[n, predictions]`: masked places in the row, ascending; 0 after the last.
        labels: int32 `[n, predictions]`: the ids that were there; 0 after the last.
        weights: float32 `[n, predictions]`: 1; 0 after the last.
        next_sentence: int32 `[n]`: 1 where segment B is of another document; None if that is not predicted.
    """

    tokens: TokenIds
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    next_sentence: np.ndarray | None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MaskedRecords:
    """Records ready to be batched.

    A batch has what one of `EncodedExamples` has, and among its inputs also int32 `masked_lm_positions`
    `[rows, predictions]`: places in the row; in packed batches `[examples, predictions]`, counted through the rows of
    the example's micro-batch as `cls_positions` are. Labels are int32 `masked_lm` `[rows, predictions]`, the ids that
    were there, and `next_sentence` `[rows]`, 1 where segment B is of another document. Weights are float32, with the
    same names and shapes, 0 where there is nothing to predict.

    Attributes:
        records: The records, in their files.
        masking: How to mask anew; None for the masks that are in the records.
        seed: Masks are a function of (seed, epoch, number of the record).
        has_next_sentence: Whether batches have next-sentence labels.
        pad_id: The id that fills rows up.
    """

    may_be_cut: ClassVar[bool] = False
    records: Records
    masking: Masking | None
    seed: int
    has_next_sentence: bool
    pad_id: int = 0
    _failures: list[RunError] = dataclasses.field(default_factory=list, init=False)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def lengths(self) -> RecordLengths:
        """Tokens of each record."""
        return self.records.lengths

    @property
    def crc32(self) -> int:
        """Tells these examples from others."""
        return self.records.crc32

    @property
    def most_predictions(self) -> int:
        """Room for predictions in the widest row of a batch."""
        return self.num_predictions(self.records.schema.max_seq_length)

    def num_predictions(self, width: int) -> int:
        """Predictions that a row of a batch has room for: those of a record as long as the row is wide, rounded up.

        It depends on the batch's width alone, so all replicas have the same.
        """
        if self.masking is None:
            most = self.records.schema.max_predictions_per_seq
        else:
            asked = round(width * self.masking.masked_lm_prob)
            most = min(max(asked, 1), self.masking.max_predictions_per_seq)
        return -(-most // _MULTIPLE) * _MULTIPLE

    def masked(self, indices: np.ndarray, epoch: int = 0) -> tuple[RecordRows, Masked]:
        """Reads records and masks them.

        Args:
            indices: int64 `[n]`.
            epoch: Counted from 0; always 0 in an evaluation.

        Raises:
            RunError: for files that have changed, or cannot be read.
        """
        found = self.records.read(indices)
        if self.masking is None:
            return found, found.masked
        keys = record_keys(self.seed, epoch, self.records.numbers(indices))
        return found, mask(found.ids, found.lengths, self.masking, keys)

    def rows(self, rows: np.ndarray, width: int, epoch: int) -> tuple[dict, dict, dict]:
        """A batch of one record a row.

        Args:
            rows: int64 `[rows]`: which records, or `FILL`.
            width: Tokens that each row is padded to, at least as many as the longest record has.
            epoch: Counted from 0.

        Returns:
            Inputs, labels and weights, as described at the class.
        """
        found, masked = self.masked(rows[rows != FILL], epoch)
        place = np.flatnonzero(rows != FILL)
        # A row that only fills the batch attends to its first token: with nothing to attend to, softmax is undefined.
        length, second = np.ones(len(rows), np.int32), np.ones(len(rows), np.int32)
        length[place], second[place] = found.lengths, found.second_start
        at = np.arange(width, dtype=np.int32)
        is_token = at < length[:, None]
        ids = np.full((len(rows), width), self.pad_id, np.int32)
        known = masked.ids[:, :width]
        ids[place, : known.shape[1]] = np.where(is_token[place, : known.shape[1]], known, self.pad_id)
        values = (ids, is_token.astype(np.int32), (is_token & (at >= second[:, None])).astype(np.int32))
        positions, labels, weights = self._of_examples(place, len(rows), self.num_predictions(width), found, masked)
        return dict(zip(INPUTS, values, strict=True)) | {POSITIONS: positions}, labels, weights

    def packed(self, rows: np.ndarray, starts: np.ndarray, shape: PackedShape, epoch: int) -> tuple[dict, dict, dict]:
        """A packed batch.

        Args:
            rows: int64 `[examples]`: which records, or `FILL`, of some micro-batches.
            starts: int32 `[examples]`: where each begins among its micro-batch's positions.
            shape: The shape of micro-batches.
            epoch: Counted from 0.

        Returns:
            Inputs, labels and weights, as described at the class.
        """
        found, masked = self.masked(rows[rows != FILL], epoch)
        place = np.flatnonzero(rows != FILL)
        of = np.repeat(np.arange(len(place)), found.lengths)  # From here on one element per token.
        position = np.arange(len(of)) - np.repeat(np.cumsum(found.lengths) - found.lengths, found.lengths)
        part_size = shape.num_rows * shape.width
        first = place // shape.num_examples * part_size + starts[place]
        total = len(rows) // shape.num_examples * part_size

        def spread(values: np.ndarray, empty: int = 0) -> np.ndarray:
            out = np.full(total, empty, np.int32)
            out[first[of] + position] = values
            return out.reshape(-1, shape.width)

        values = (
            spread(masked.ids[of, position], self.pad_id),
            spread(position >= found.second_start[of]),
            spread(position),
            spread(place[of] % shape.num_examples + 1),
        )
        positions, labels, weights = self._of_examples(place, len(rows), self.most_predictions, found, masked)
        positions += np.where(weights[MASKED_LM] > 0, starts[:, None], 0).astype(np.int32)
        inputs = dict(zip(_PACKED_INPUTS, values, strict=True)) | {"cls_positions": starts, POSITIONS: positions}
        return inputs, labels, weights

    def chunks(self, size: int = CHUNK) -> Iterator[MaskedChunk]:
        """All records in their order, to predict; only a chunk of them is in memory at a time.

        Args:
            size: Most records of a chunk.
        """
        for start in range(0, len(self), size):
            indices = np.arange(start, min(start + size, len(self)))
            found, masked = self.masked(indices)
            is_token = np.arange(masked.ids.shape[1]) < found.lengths[:, None]
            is_masked = masked.weights > 0
            yield MaskedChunk(
                tokens=TokenIds(
                    flat=masked.ids[is_token],
                    row_splits=np.concatenate([[0], np.cumsum(found.lengths, dtype=np.int64)]),
                    second_start=found.second_start,
                    pad_id=self.pad_id,
                ),
                positions=np.where(is_masked, masked.positions, 0),
                labels=np.where(is_masked, masked.labels, 0),
                weights=is_masked.astype(np.float32),
                next_sentence=found.next_sentence if self.has_next_sentence else None,
            )

    def gather(self, shape: PackedShape | None) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Any]:
        """A function of (record indexes, width or places, epoch) that makes a batch, in a graph.

        Args:
            shape: The shape of packed micro-batches; None for one record a row.
        """
        inputs = (*INPUTS, POSITIONS) if shape is None else (*_PACKED_INPUTS, "cls_positions", POSITIONS)
        labels = (MASKED_LM, NEXT_SENTENCE) if self.has_next_sentence else (MASKED_LM,)
        ranks = [1 if name in ("cls_positions", NEXT_SENTENCE) else 2 for name in (*inputs, *labels, *labels)]
        dtypes = [tf.int32] * (len(inputs) + len(labels)) + [tf.float32] * len(labels)

        def read(rows: np.ndarray, place: np.ndarray, epoch: np.ndarray) -> list[np.ndarray]:
            try:
                if shape is None:
                    batch = self.rows(rows, int(place), int(epoch))
                else:
                    batch = self.packed(rows, place, shape, int(epoch))
            except RunError as error:
                self._failures.append(error)
                raise
            return [part[name] for part, names in zip(batch, (inputs, labels, labels), strict=True) for name in names]

        def gather(rows: tf.Tensor, place: tf.Tensor, epoch: tf.Tensor) -> Any:
            found = tf.numpy_function(read, [rows, place, epoch], dtypes)
            for tensor, rank in zip(found, ranks, strict=True):
                tensor.set_shape([None] * rank)
            values = iter(found)
            return tuple({name: next(values) for name in names} for names in (inputs, labels, labels))

        return gather

    def check_read(self) -> None:
        """Raises the error of a record that a pipeline could not read; TensorFlow turns it into one of its own.

        Raises:
            RunError: if there was such an error.
        """
        if self._failures:
            raise self._failures[0] from None

    def _of_examples(
        self, place: np.ndarray, size: int, count: int, found: RecordRows, masked: Masked
    ) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Positions, labels and weights of a batch's examples, of which those at `place` are records."""
        positions, labels = np.zeros((size, count), np.int32), np.zeros((size, count), np.int32)
        weights = np.zeros((size, count), np.float32)
        known = min(count, masked.positions.shape[1])
        is_masked = masked.weights[:, :known] > 0
        assert not masked.weights[:, known:].any(), "a width has room for the predictions of its longest record"
        positions[place, :known] = np.where(is_masked, masked.positions[:, :known], 0)
        labels[place, :known] = np.where(is_masked, masked.labels[:, :known], 0)
        weights[place, :known] = is_masked
        if not self.has_next_sentence:
            return positions, {MASKED_LM: labels}, {MASKED_LM: weights}
        next_sentence, counts = np.zeros(size, np.int32), np.zeros(size, np.float32)
        next_sentence[place], counts[place] = found.next_sentence, 1
        both = {MASKED_LM: labels, NEXT_SENTENCE: next_sentence}
        return positions, both, {MASKED_LM: weights, NEXT_SENTENCE: counts}


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
