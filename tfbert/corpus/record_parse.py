"""Serialised records -> numbers, with either of the two sets of feature names."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tfbert.corpus.schema import IDS, LABELS, MASK, NEXT_SENTENCE, POSITIONS, SEGMENTS, WEIGHTS, Schema


class Parsed(NamedTuple):
    """Records as tensors or arrays: int64 `[n, ...]`, except the weights, which are float32.

    Attributes:
        ids: `[n, max_seq_length]`, masked.
        mask: `[n, max_seq_length]`: 1 for a token.
        segments: `[n, max_seq_length]`: 1 for a token of segment B.
        positions: `[n, max_predictions_per_seq]`: the masked places.
        labels: `[n, max_predictions_per_seq]`: the ids that were there.
        weights: `[n, max_predictions_per_seq]`: 0 where there is no masked place.
        next_sentence: `[n, 1]`; None if records do not say.
    """

    ids: Any
    mask: Any
    segments: Any
    positions: Any
    labels: Any
    weights: Any
    next_sentence: Any


def parse(records: tf.Tensor, schema: Schema) -> Parsed:
    """Parses records, in a graph or eagerly.

    Args:
        records: string `[n]`.
        schema: Their form.
    """
    found = tf.io.parse_example(records, schema.feature_spec())
    keys = (IDS[schema.names], MASK, SEGMENTS[schema.names], POSITIONS, LABELS, WEIGHTS, NEXT_SENTENCE)
    return Parsed(*(found.get(key) for key in keys))
