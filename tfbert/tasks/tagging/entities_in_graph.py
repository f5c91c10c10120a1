"""`find_entities` of `tasks/tagging/entities.py` in the TensorFlow graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.tasks.tagging.tags import BEGIN, END, OUT, SINGLE, TagMeanings


class Entities(NamedTuple):
    """The entities of tagged words, in their order. See `entities.Entities`.

    Attributes:
        start: int64 `[m]`, each entity's first word, counted over all texts.
        end: int64 `[m]`, the word after its last word.
        type: int32 `[m]`, an index of `TagMeanings.type_names`.
    """

    start: tf.Tensor
    end: tf.Tensor
    type: tf.Tensor


def find_entities_in_graph(tags: tf.Tensor, texts: tf.Tensor, meanings: TagMeanings, *, strict: bool) -> Entities:
    """The entities that `entities.find_entities` finds.

    Args:
        tags: int64 `[words]`.
        texts: int64 `[words]`, the text of each word.
        meanings: Meanings of the tags.
        strict: Leave out entities that are not written as they should be.
    """
    prefix = tf.gather(tf.constant(meanings.prefixes.astype(np.int32)), tags)
    kind = tf.gather(tf.constant(meanings.types), tags)
    follows = texts[1:] == texts[:-1]
    before = tf.concat([tf.fill([1], OUT), tf.where(follows, prefix[:-1], OUT)], 0)[: tf.size(tags)]
    kind_before = tf.concat([[-1], tf.where(follows, kind[:-1], -1)], 0)[: tf.size(tags)]
    is_start = (prefix == BEGIN) | (prefix == SINGLE) | (before <= OUT) | (before >= END) | (kind != kind_before)
    is_start &= prefix > OUT

    start = tf.where(is_start)[:, 0]
    stops = tf.concat([tf.where(is_start | (prefix <= OUT))[:, 0], [tf.size(tags, tf.int64)]], 0)
    end = tf.gather(stops, tf.searchsorted(stops, start, side="right"))
    if strict:
        first, last = tf.gather(prefix, start), tf.gather(prefix, end - 1)
        kept = (first == BEGIN) | (BEGIN not in meanings.prefixes)
        if (meanings.prefixes >= END).any():
            kept = (kept & (last == END)) | (first == SINGLE)
        start, end = tf.boolean_mask(start, kept), tf.boolean_mask(end, kept)
    return Entities(start, end, tf.gather(kind, start))
