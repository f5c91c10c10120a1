"""Plans and token ids, or records of pre-training -> NumPy -> tf.data -> the batches each replica computes.

An exported model makes its inputs in its graph; training and predictions in NumPy, from arrays in this process.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.batches.plan import FILL, BatchPlan, PackedShape
from tfbert.corpus.masking import Masking, mask, record_keys
from tfbert.corpus.records import RecordLengths, Records
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
    """Rows of a batch, in a graph.

    Attributes:
        inputs: int32 `[rows, width]` each of `INPUTS`.
        is_token: bool `[rows, width]`, where there is a token.
    """

    inputs: dict[str, tf.Tensor]
    is_token: tf.Tensor


def padded_inputs_in_graph(tokens: TokenTensors, rows: tf.Tensor, width: tf.Tensor) -> PaddedRows:
    """A model's inputs for some examples, as tensors; width is int32 `[]`, at least that of the longest."""
    position = tf.range(width)
    is_token = position < tf.gather(tokens.lengths, rows)[:, None]
    source = tf.gather(tokens.starts, rows)[:, None] + tf.cast(tf.where(is_token, position, 0), tf.int64)
    second = is_token & (position >= tf.gather(tokens.second_start, rows)[:, None])
    values = (tf.where(is_token, tf.gather(tokens.flat, source), tokens.pad_id), is_token, second)
    return PaddedRows({name: tf.cast(value, tf.int32) for name, value in zip(INPUTS, values, strict=True)}, is_token)


def padded_inputs(tokens: TokenIds, rows: np.ndarray, width: int) -> dict[str, np.ndarray]:
    """A model's inputs for some examples, as arrays.

    Args:
        tokens: All examples.
        rows: int64 `[n]`, which ones; `FILL` for a row that only fills the batch.
        width: Tokens that each row is padded to.

    Returns:
        int32 `[n, width]` each of `INPUTS`.
    """
    return _padded(tokens, rows, width)[0]


_Rows = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]
"""Inputs of a batch; where in `TokenIds.flat` each of its tokens is; its place in the rows, counted through them."""


def _padded(tokens: TokenIds, rows: np.ndarray, width: int) -> _Rows:
    is_real = rows != FILL
    row = rows[is_real]
    start = tokens.row_splits[row]
    source = start[:, None] + np.arange(width)
    is_token, second = np.zeros((2, len(rows), width), bool)
    is_token[is_real] = source < tokens.row_splits[row + 1][:, None]
    second[is_real] = source >= (start + tokens.second_start[row])[:, None]
    source = source[is_token[is_real]]
    ids = np.full(is_token.shape, tokens.pad_id, np.int32)
    ids[is_token] = tokens.flat[source]
    mask = is_token.astype(np.int32)
    mask[~is_real, 0] = 1  # With nothing to attend to, softmax is undefined.
    values = (ids, mask, (second & is_token).astype(np.int32))
    return dict(zip(INPUTS, values, strict=True)), source, np.flatnonzero(is_token)


def _packed(tokens: TokenIds, sequences: np.ndarray, starts: np.ndarray, shape: PackedShape) -> _Rows:
    """Packs examples that start at these places of their micro-batches; `sequences` is int64 `[examples, sequences]`,
    rows of `tokens` or `FILL`, those of an example one after the other. `cls_positions` are of the same shape."""
    is_there, most = sequences != FILL, sequences.shape[1]
    row = sequences[is_there]
    length = tokens.row_splits[row + 1] - tokens.row_splits[row]
    lengths = np.zeros(sequences.shape, np.int64)
    lengths[is_there] = length
    firsts = starts[:, None] + np.cumsum(lengths, axis=1) - lengths
    part, in_part = np.divmod(np.arange(len(sequences))[:, None], shape.num_examples)
    number = in_part * most + np.arange(most) + 1
    # From here on one element per token, sequence after sequence.
    of = np.repeat(np.arange(len(row)), length)
    position = np.arange(len(of)) - (np.cumsum(length) - length)[of]
    source = tokens.row_splits[row][of] + position
    target = (part * shape.num_rows * shape.width + firsts)[is_there][of] + position
    num_rows = len(sequences) // shape.num_examples * shape.num_rows

    def spread(values: np.ndarray, empty: int = 0) -> np.ndarray:
        out = np.full(num_rows * shape.width, empty, np.int32)
        out[target] = values
        return out.reshape(num_rows, shape.width)

    inputs = {
        "input_ids": spread(tokens.flat[source], tokens.pad_id),
        "token_type_ids": spread(position >= tokens.second_start[row][of]),
        "position_ids": spread(position),
        "example_ids": spread(number[is_there][of]),
        "cls_positions": np.where(is_there, firsts, -1).astype(np.int32),
    }
    return inputs, source, target


MASKED_LM, NEXT_SENTENCE = "masked_lm", "next_sentence"
POSITIONS, LABELS = "masked_lm_positions", "masked_lm_ids"
"""Inputs: the masked places, and the words at them, which a model gets only for evaluation."""
CHUNK = 8192
"""Records in memory at a time while all are predicted."""
_MULTIPLE = 8
"""A row's predictions are rounded up to a multiple of it: matrix units like that, and fewer shapes are compiled."""
EVALUATION_SEED = 2**32
"""Masks are the same in every evaluation of every run. No run has this seed, so that a record that is also trained on
is not evaluated with masks from training."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MaskedChunk:
    """Some masked records in memory, or texts with words to fill in, see `predictor.Chunk`.

    Attributes:
        tokens: What the model is given.
        positions: int32 `[n, predictions]`: masked places in the row, ascending; 0 after the last.
        labels: int32 `[n, predictions]`: the ids that were there; 0 after the last. None if they are not known.
        weights: float32 `[n, predictions]`: 1; 0 after the last. None likewise.
        next_sentence: int32 `[n]`: 1 where segment B is of another document; None if that is not predicted.
    """

    tokens: TokenIds
    positions: np.ndarray
    labels: Any = None
    weights: Any = None
    next_sentence: np.ndarray | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of what `inputs` returns."""
        names = (*INPUTS, POSITIONS)
        return names if self.labels is None else (*names, LABELS)

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[n]`: tokens of each row."""
        return self.tokens.lengths

    def __len__(self) -> int:
        return len(self.tokens)

    def inputs(self, rows: np.ndarray, width: int) -> dict[str, np.ndarray]:
        """A batch's inputs."""
        others = {POSITIONS: self.positions} | ({} if self.labels is None else {LABELS: self.labels})
        is_real = (rows != FILL)[:, None]  # Places of other rows may lie beyond the width.
        given = {name: np.where(is_real, array[rows], 0) for name, array in others.items()}
        return padded_inputs(self.tokens, rows, width) | given


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
    labels_tokens: ClassVar[bool] = True
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

    def masked(self, indices: np.ndarray, epoch: int = 0) -> MaskedChunk:
        """Reads records and masks them.

        Args:
            indices: int64 `[n]`.
            epoch: Counted from 0; always 0 in an evaluation.

        Raises:
            RunError: for files that have changed, or cannot be read.
        """
        found = self.records.read(indices)
        masked = found.masked
        if self.masking is not None:
            keys = record_keys(self.seed, epoch, self.records.numbers(indices))
            masked = mask(found.ids, found.lengths, self.masking, keys)
        flat = masked.ids[np.arange(masked.ids.shape[1]) < found.lengths[:, None]]
        splits, is_masked = splits_of(found.lengths), masked.weights > 0
        return MaskedChunk(
            tokens=TokenIds(flat=flat, row_splits=splits, second_start=found.second_start, pad_id=self.pad_id),
            positions=np.where(is_masked, masked.positions, 0),
            labels=np.where(is_masked, masked.labels, 0),
            weights=is_masked.astype(np.float32),
            next_sentence=found.next_sentence if self.has_next_sentence else None,
        )

    def batch(self, rows: np.ndarray, place: np.ndarray, epoch: int, shape: PackedShape | None) -> Batch:
        """Inputs, labels and weights, as described at the class; arguments as for `EncodedExamples.batch`."""
        where = np.flatnonzero(rows != FILL)
        try:
            found = self.masked(rows[where], epoch)
        except RunError as error:
            self._failures.append(error)
            raise
        numbers = np.full(len(rows), FILL, np.int64)
        numbers[where] = np.arange(len(where))
        if shape is None:
            inputs, width = padded_inputs(found.tokens, numbers, int(place)), int(place)
        else:
            inputs = _packed(found.tokens, numbers[:, None], place, shape)[0] | {"cls_positions": place}
            width = self.records.schema.max_seq_length
        # Room for those of a record as long as the row is wide: it depends on the width alone, so all replicas have
        # the same.
        if self.masking is None:
            most = self.records.schema.max_predictions_per_seq
        else:
            asked = round(width * self.masking.masked_lm_prob)
            most = min(max(asked, 1), self.masking.max_predictions_per_seq)
        count = -(-most // _MULTIPLE) * _MULTIPLE
        assert not found.weights[:, count:].any(), "a width has room for the predictions of its longest record"

        def spread(values: np.ndarray) -> np.ndarray:
            out = np.zeros((len(rows), count), values.dtype)
            out[where, : values.shape[1]] = values[:, :count]
            return out

        positions, labels, weights = map(spread, (found.positions, found.labels, found.weights))
        if shape is not None:
            positions += np.where(weights > 0, place[:, None], 0).astype(np.int32)
        inputs |= {POSITIONS: positions}
        if found.next_sentence is None:
            return inputs, {MASKED_LM: labels}, {MASKED_LM: weights}
        next_sentence = np.zeros(len(rows), np.int32)
        next_sentence[where] = found.next_sentence
        both = {MASKED_LM: labels, NEXT_SENTENCE: next_sentence}
        return inputs, both, {MASKED_LM: weights, NEXT_SENTENCE: (rows != FILL).astype(np.float32)}

    def chunks(self, size: int = CHUNK) -> Iterator[MaskedChunk]:
        """All records in their order, to predict; only a chunk of them is in memory at a time.

        Args:
            size: Most records of a chunk.
        """
        for start in range(0, len(self), size):
            yield self.masked(np.arange(start, min(start + size, len(self))))

    def check_read(self) -> None:
        """Raises the error of a record that a pipeline could not read; TensorFlow turns it into one of its own.

        Raises:
            RunError: if there was such an error.
        """
        if self._failures:
            raise self._failures[0] from None


Batch = tuple[dict[str, np.ndarray], Any, Any]
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

    @functools.cached_property
    def _most(self) -> int:
        """The most sequences of an example."""
        return 1 if self.splits is None else int(np.diff(self.splits).max())

    @functools.cached_property
    def _window(self) -> int:
        """The tokens of the longest window; 0 where examples are no windows of a text."""
        is_of_windows = self.splits is not None and self.lengths.ndim == 1
        return int(self.tokens.lengths.max()) if is_of_windows else 0

    def batch(self, rows: np.ndarray, place: np.ndarray, epoch: int, shape: PackedShape | None) -> Batch:
        """Inputs, labels and weights: a `Batch` as arrays.

        Args:
            rows: int64 `[rows]`: which examples, or `FILL`.
            place: The width of the rows, int32 `[]`; packed, where each example begins in its micro-batch, `[rows]`.
            epoch: Counted from 0.
            shape: That of packed micro-batches; None for one example a row.
        """
        sequences = self._sequences(rows, self._most)
        if shape is not None:
            inputs, source, target = _packed(self.tokens, sequences, place, shape)
            if self.splits is None:
                inputs["cls_positions"] = place
        else:
            width = int(place)
            if self._window:  # Of an example of several windows each is as long as a row may be.
                sequences = self._sequences(rows, max(width // self._window, 1))
                width = min(width, self._window)
            inputs, source, target = _padded(self.tokens, sequences.reshape(-1), width)
            if self.splits is not None and not self.labels_tokens:
                inputs = {name: value.reshape(*sequences.shape, width) for name, value in inputs.items()}
        if self.labels_tokens:
            labels, weights = (np.zeros(inputs["input_ids"].shape, part.dtype) for part in (self.labels, self.weights))
            labels.reshape(-1)[target], weights.reshape(-1)[target] = self.labels[source], self.weights[source]
            return inputs, labels, weights
        # `FILL` has weight 0, and label 0, a place that every row has.
        labels, weights = self.labels[np.maximum(rows, 0)], np.where(rows != FILL, self.weights[rows], 0)
        labels[rows == FILL] = 0
        return inputs, labels, weights

    def _sequences(self, rows: np.ndarray, count: int) -> np.ndarray:
        """int64 `[rows, count]`: the sequences of some examples; `FILL` where there is none."""
        if self.splits is None:
            return rows[:, None]
        found = self.splits[rows][:, None] + np.arange(count)
        return np.where((rows != FILL)[:, None] & (found < self.splits[rows + 1][:, None]), found, FILL)


def distribute_batches(
    strategy: tf.distribute.Strategy,
    examples: EncodedExamples | MaskedRecords,
    plans: Callable[[], Iterator[BatchPlan]],
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
    plans: Callable[[], Iterator[BatchPlan]],
    replicas: range,
    num_replicas: int,
    *,
    shape: PackedShape | None = None,
) -> tf.data.Dataset:
    """The batches of the given replicas, step by step: step 0 of each, then step 1 of each, and so on."""

    def shares() -> Iterator[Batch]:
        for plan in plans():
            places = plan.widths if shape is None else plan.starts.reshape(len(plan), num_replicas, -1)
            for rows, place in zip(plan.rows, places, strict=True):
                parts = rows.reshape(num_replicas, -1)
                for replica in replicas:
                    yield examples.batch(parts[replica], place if shape is None else place[replica], plan.epoch, shape)

    with tf.device("CPU"):  # All pipelines read host memory.
        dataset = tf.data.Dataset.from_generator(shares, output_signature=_spec(examples, shape))
    return without_autotune(dataset.prefetch(4 * len(replicas)))


def _spec(examples: EncodedExamples | MaskedRecords, shape: PackedShape | None) -> Any:
    """What batches are, as specs of tensors, by a batch without an example; what depends on its width is left open."""
    count = 1 if shape is None else shape.num_examples
    places = np.int32(1) if shape is None else np.zeros(count, np.int32)
    inputs, labels, weights = examples.batch(np.full(count, FILL), places, 0, shape)

    def specs(arrays: Any, *, is_known: bool) -> Any:
        def spec(array: np.ndarray) -> tf.TensorSpec:
            return tf.TensorSpec([None, *array.shape[1:]] if is_known else [None] * array.ndim, array.dtype)

        return tf.nest.map_structure(spec, arrays)

    of_labels = specs((labels, weights), is_known=shape is not None or not examples.labels_tokens)
    return specs(inputs, is_known=shape is not None), *of_labels
