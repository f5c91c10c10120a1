"""Entities in tagged words, and how well predicted ones match: precision, recall and F1 as conlleval and seqeval
compute them.

Everything works on flat arrays over the words of all sentences: a million words take a fraction of a second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfbert.tasks.tagging.tags import BEGIN, END, OUT, SINGLE, TagMeanings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entities:
    """The entities of one tagging, in the order of the words.

    Attributes:
        start: int64 `[n]`, each entity's first word, counted over all sentences.
        end: int64 `[n]`, the word after its last word.
        type: int32 `[n]`, an index of `TagMeanings.type_names`.
    """

    start: np.ndarray
    end: np.ndarray
    type: np.ndarray

    def __len__(self) -> int:
        return len(self.start)

    def by_word(self, num_words: int) -> np.ndarray:
        """The entity of each word: int64 `[num_words]`, -1 for none."""
        lengths = self.end - self.start
        firsts = np.cumsum(lengths) - lengths
        words = np.arange(lengths.sum()) + np.repeat(self.start - firsts, lengths)
        out = np.full(num_words, -1, np.int64)
        out[words] = np.repeat(np.arange(len(self)), lengths)
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confusion:
    """What became of the entities of each type.

    Attributes:
        counts: int64 `[num_types + 1, num_types + 1]`. Rows are the types of right entities. Columns are the types of
            the predicted entities in their place: for each right entity, the predicted one that shares most words with
            it; of equals, the one of the same type, then the first. The last column counts right entities that no
            predicted one touches, the last row predicted entities that touch no right one. So each row but the last
            sums to the number of entities of its type.
        shifted: int64 `[num_types]`. How many of those on the diagonal have other boundaries, and so are wrong.
    """

    counts: np.ndarray
    shifted: np.ndarray


def find_entities(ids: np.ndarray, sentences: np.ndarray, meanings: TagMeanings, *, strict: bool = False) -> Entities:
    """The entities of tagged words.

    As in conlleval, each word with a prefix is in an entity, and an `I-` that cannot continue the previous entity
    starts a new one. Strict entities are those that the scheme allows: they start with a `B-` if tags have one, and
    where tags have `E-` or `S-`, they end with an `E-` or are a single `S-`. With `strict`, the others are left out.

    Args:
        ids: Integers `[num_words]`, the ids of the tags.
        sentences: Integers `[num_words]`, equal for the words of one sentence, which are consecutive.
        meanings: The meanings of the tags.
        strict: Leave out entities that the scheme does not allow.
    """
    with tf.device("CPU:0"):
        tags, sentences = tf.constant(ids, tf.int64), tf.constant(sentences, tf.int64)
        found = entities_in_graph(tags, sentences, meanings, strict=strict)
    return Entities(start=found.start.numpy(), end=found.end.numpy(), type=found.type.numpy())


def entities_in_graph(tags: tf.Tensor, texts: tf.Tensor, meanings: TagMeanings, *, strict: bool) -> Entities:
    """The entities that `find_entities` finds, as tensors; arguments as there, int64."""
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
    return Entities(start=start, end=end, type=tf.gather(kind, start))


def entities_at(is_start: np.ndarray, ids: np.ndarray, meanings: TagMeanings) -> Entities:
    """The entities that start at the given words; each ends before the next one, or before a word in none.

    Args:
        is_start: bool `[num_words]`.
        ids: Integers `[num_words]`, the ids of the tags.
        meanings: The meanings of the tags.
    """
    start = np.flatnonzero(is_start)
    stops = np.append(np.flatnonzero(is_start | (meanings.prefixes[ids] <= OUT)), len(ids))
    end = stops[np.searchsorted(stops, start, side="right")]
    return Entities(start=start, end=end, type=meanings.types[ids[start]])


def are_correct(gold: Entities, predicted: Entities) -> np.ndarray:
    """Whether each predicted entity is right, in boundaries and type: bool `[len(predicted)]`."""
    if not len(gold):
        return np.zeros(len(predicted), bool)
    # An entity is the only one of its tagging with its start.
    place = np.minimum(np.searchsorted(gold.start, predicted.start), len(gold) - 1)
    return (
        (gold.start[place] == predicted.start)
        & (gold.end[place] == predicted.end)
        & (gold.type[place] == predicted.type)
    )


def entity_metrics(gold: Entities, predicted: Entities) -> dict[str, float]:
    """`precision`, `recall` and `f1` over all entities of all types, 0 where they are undefined."""
    return _scores(int(are_correct(gold, predicted).sum()), len(predicted), len(gold))


def per_type(gold: Entities, predicted: Entities, type_names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and the number of entities of each type.

    Args:
        gold: The right entities.
        predicted: The predicted entities of the same words.
        type_names: In the order of `Entities.type`.

    Returns:
        By type: `precision`, `recall` and `f1`, 0 where they are undefined, and `entities`, how many are right ones.
    """
    size = len(type_names)
    hits = np.bincount(predicted.type[are_correct(gold, predicted)], minlength=size)
    found, actual = np.bincount(predicted.type, minlength=size), np.bincount(gold.type, minlength=size)
    return {
        name: {**_scores(int(hits[i]), int(found[i]), int(actual[i])), "entities": int(actual[i])}
        for i, name in enumerate(type_names)
    }


def word_accuracy(gold_ids: np.ndarray, predicted_ids: np.ndarray) -> float:
    """The share of words with the right tag, prefix included, as conlleval prints it; 0 if there are no words."""
    return float(np.mean(gold_ids == predicted_ids)) if len(gold_ids) else 0.0


def type_confusion(gold: Entities, predicted: Entities, num_types: int) -> Confusion:
    """Which types are taken for which, which entities are missed, and which are made up.

    Args:
        gold: The right entities.
        predicted: The predicted entities of the same words.
        num_types: The number of all types, also those that do not occur.
    """
    num_words = int(max([0, *gold.end[-1:], *predicted.end[-1:]]))
    of_gold, of_predicted = gold.by_word(num_words), predicted.by_word(num_words)
    shared = (of_gold >= 0) & (of_predicted >= 0)
    width = max(len(predicted), 1)
    pairs, num_shared = np.unique(of_gold[shared] * width + of_predicted[shared], return_counts=True)
    right, other = pairs // width, pairs % width
    is_same = gold.type[right] == predicted.type[other]
    best_first = np.lexsort((other, ~is_same, -num_shared, right))
    right, other = right[best_first], other[best_first]
    touched, first = np.unique(right, return_index=True)

    columns = np.full(len(gold), num_types)
    columns[touched] = predicted.type[other[first]]
    counts = np.zeros((num_types + 1, num_types + 1), np.int64)
    np.add.at(counts, (gold.type, columns), 1)
    made_up = np.ones(len(predicted), bool)
    made_up[other] = False
    counts[num_types, :num_types] = np.bincount(predicted.type[made_up], minlength=num_types)
    hits = np.bincount(predicted.type[are_correct(gold, predicted)], minlength=num_types)
    return Confusion(counts=counts, shifted=np.diag(counts)[:num_types] - hits)


def type_table(table: dict[str, dict[str, float]], confusion: Confusion) -> list[str]:
    """The results of `per_type` and `type_confusion` as lines for the screen."""
    width = max(len("nothing"), *map(len, table))
    cells = max(8, len(f"{confusion.counts.max():,}") + 1)
    lines = [f"{'type':{width}}  precision  recall      f1  entities   shifted | predicted as"]
    lines[0] += ", ".join(["", *table, "nothing"])[1:]
    for (name, row), shifted, counts in zip(table.items(), confusion.shifted, confusion.counts, strict=False):
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['entities']:8,}  {shifted:8,}"
        lines.append(f"{name:{width}}  {numbers} |" + "".join(f"{count:{cells},}" for count in counts))
    made_up = "".join(f"{count:{cells},}" for count in confusion.counts[-1, :-1])
    lines.append(f"{'nothing':{width}}  {'':45} |{made_up}")
    return lines


def _scores(hits: int, found: int, actual: int) -> dict[str, float]:
    return {
        "precision": hits / max(found, 1),
        "recall": hits / max(actual, 1),
        "f1": 2 * hits / max(found + actual, 1),
    }
