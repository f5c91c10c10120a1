"""Records of pre-training as examples: read from their files as batches need them, and masked on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from tfbert.batches.inputs import INPUTS
from tfbert.batches.packing import PackedShape
from tfbert.batches.plan import FILL
from tfbert.corpus.masking import Masked, Masking, mask, record_keys
from tfbert.corpus.records import RecordLengths, RecordRows, Records
from tfbert.errors import RunError
from tfbert.tokens.tokenizer import TokenIds

MASKED_LM, NEXT_SENTENCE = "masked_lm", "next_sentence"
POSITIONS = "masked_lm_positions"
CHUNK = 8192
"""Records in memory at a time while all are predicted."""
_PACKED_INPUTS = ("input_ids", "token_type_ids", "position_ids", "example_ids")
_MULTIPLE = 8
"""A row's predictions are rounded up to a multiple of it: matrix units like that, and fewer shapes are compiled."""
_EVALUATION_SEED = 2**32
"""No run has this seed, so that a record that is also trained on is not evaluated with masks from training."""


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

    @classmethod
    def to_evaluate(
        cls, records: Records, masking: Masking | None, *, has_next_sentence: bool, pad_id: int = 0, **others: Any
    ) -> MaskedRecords:
        """Records whose masks are the same in every evaluation of every run; `others` are what a subclass adds."""
        return cls(
            records=records,
            masking=masking,
            seed=_EVALUATION_SEED,
            has_next_sentence=has_next_sentence,
            pad_id=pad_id,
            **others,
        )

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
