"""Serialised records -> numbers, whichever of the two sets of names they have."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tfbert.corpus.schema import IDS, LABELS, MASK, NEXT_SENTENCE, POSITIONS, SEGMENTS, WEIGHTS, Schema


class Parsed(NamedTuple):
    """Records, int64 `[n, ...]` each but the weights, which are float32; tensors, or arrays.

    Attributes:
        ids: `[n, max_seq_length]`, masked.
        mask: Likewise: 1 for a token.
        segments: Likewise: 1 for one of segment B.
        positions: `[n, max_predictions_per_seq]`, what is masked.
        labels: Likewise: what was there.
        weights: Likewise: 0 where there is none.
        next_sentence: `[n, 1]`; None where records do not say.
    """

    ids: Any
    mask: Any
    segments: Any
    positions: Any
    labels: Any
    weights: Any
    next_sentence: Any


def parse(records: tf.Tensor, schema: Schema) -> Parsed:
    """Parses records, in the graph or at once.

    Args:
        records: string `[n]`.
        schema: Their form.
    """
    found = tf.io.parse_example(records, schema.feature_spec())
    keys = (IDS[schema.names], MASK, SEGMENTS[schema.names], POSITIONS, LABELS, WEIGHTS, NEXT_SENTENCE)
    return Parsed(*(found.get(key) for key in keys))
