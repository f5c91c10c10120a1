"""What a model is given: rows of one example each, padded to one width. One rule, in graphs and in NumPy.

Training and an exported model make their inputs in a graph. A `Predictor` makes them in NumPy: its examples come chunk
by chunk, so they are not constants of a graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.batches.plan import FILL
from tfbert.tokens.ragged import splits_of
from tfbert.tokens.tokenizer import TokenIds

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
