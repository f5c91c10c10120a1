"""Documents of tokens -> the stretches of text that become records. NumPy, and Python's random numbers.

With next sentence, the algorithm is that of google-research/bert, `create_instances_from_document`: sentences add up to
a target length, and the first part of them is A; B is the rest, or a stretch of another document. Without, it is
RoBERTa's "full sentences": a record is filled with sentences, across the ends of documents, with a `[SEP]` there.

Stretches are places in one array of tokens; `assemble` makes rows of them, many at once.
"""

from __future__ import annotations

import array
import bisect
import dataclasses
import random

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedDocuments:
    """The tokens of documents, flat.

    Attributes:
        tokens: int32 [tokens]: of all sentences, one after the other.
        sentence_ends: int64 [sentences]: sentence k is `tokens[sentence_ends[k - 1]:sentence_ends[k]]`; none is empty.
        document_ends: int64 [documents]: document d is the sentences `document_ends[d - 1]:document_ends[d]`; none is
            empty.
    """

    tokens: np.ndarray
    sentence_ends: np.ndarray
    document_ends: np.ndarray

    @classmethod
    def of_lengths(cls, tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray) -> TokenizedDocuments:
        """From the lengths of sentences and documents; empty sentences and empty documents are left out.

        Args:
            tokens: int32 [tokens].
            sentences: int [sentences]: the number of tokens of each.
            documents: int [documents]: the number of sentences of each.
        """
        kept = np.concatenate([[0], np.cumsum(sentences > 0)])
        ends = np.cumsum(documents)
        counts = kept[ends] - kept[ends - documents]
        return cls(
            tokens=tokens,
            sentence_ends=np.cumsum(sentences[sentences > 0], dtype=np.int64),
            document_ends=np.cumsum(counts[counts > 0], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.document_ends)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Instances:
    """Records as places in an array of tokens.

    Attributes:
        tokens: int32 [tokens].
        first: int64 [rows, 2]: start and end of the first stretch.
        second: int64 [rows, 2]: start and end of the second; an empty range where there is none.
        is_random: bool [rows]: whether the second stretch does not follow the first.
    """

    tokens: np.ndarray
    first: np.ndarray
    second: np.ndarray
    is_random: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> np.ndarray:
        """int32 [rows]: tokens of each record, `[CLS]` and each `[SEP]` counted."""
        first, second = np.diff(self.first)[:, 0], np.diff(self.second)[:, 0]
        return (first + second + np.where(second > 0, 3, 2)).astype(np.int32)


def pairs(
    documents: TokenizedDocuments, *, max_seq_length: int, short_seq_prob: float, rng: random.Random
) -> Instances:
    """Pairs of stretches of text; in half of them, the second is from another document.

    A document of one sentence always gives a random pair, as in Google's script.

    Args:
        documents: At least two.
        max_seq_length: Tokens of the longest record, three special ones counted; at least 5.
        short_seq_prob: Share of documents whose target length is drawn at random.
        rng: Random numbers.
    """
    room = max_seq_length - 3
    ends, bounds = _from_zero(documents.sentence_ends), _from_zero(documents.document_ends)
    num_others = len(documents) - 1
    assert num_others > 0
    rows = array.array("q")
    draw = rng.random
    for document in range(len(documents)):
        sentence, last = bounds[document], bounds[document + 1]
        target = room if draw() >= short_seq_prob else 2 + int(draw() * (room - 1))
        while sentence < last:
            # The fewest sentences that reach the target, or the rest of the document.
            stop = min(last, bisect.bisect_left(ends, ends[sentence] + target, sentence + 1, last))
            split = sentence + 1
            if stop - sentence > 1:
                split += int(draw() * (stop - sentence - 1))
            is_random = stop - sentence == 1 or draw() < 0.5
            if is_random:
                other = int(draw() * num_others)
                other += other >= document
                first_b, last_b = bounds[other], bounds[other + 1]
                first_b += int(draw() * (last_b - first_b))
                wanted = target - (ends[split] - ends[sentence])
                end_b = min(last_b, bisect.bisect_left(ends, ends[first_b] + wanted, first_b + 1, last_b))
                next_sentence = split  # What A does not use is used again.
            else:
                first_b, end_b, next_sentence = split, stop, stop
            a, b = _cut_pair(ends[sentence], ends[split], ends[first_b], ends[end_b], room, rng)
            rows.extend((*a, *b, is_random))
            sentence = next_sentence
    spans = np.frombuffer(rows, np.int64).reshape(-1, 5)
    return Instances(
        tokens=documents.tokens, first=spans[:, :2], second=spans[:, 2:4], is_random=spans[:, 4].astype(bool)
    )


def full_sentences(
    documents: TokenizedDocuments, *, max_seq_length: int, short_seq_prob: float, sep_id: int, rng: random.Random
) -> Instances:
    """Stretches of as many whole sentences as fit, from documents in random order, with `[SEP]` between two documents.

    A sentence that is too long for a record is cut into several pieces.

    Args:
        documents: At least one.
        max_seq_length: Tokens of the longest record, two special ones counted; at least 4.
        short_seq_prob: Share of records whose target length is drawn at random.
        sep_id: The id of `[SEP]`.
        rng: Random numbers.
    """
    room = max_seq_length - 2
    tokens, starts, ends = _in_random_order(documents, room, sep_id, rng)
    rows = array.array("q")
    sentence = 0
    while sentence < len(ends):
        target = room if rng.random() >= short_seq_prob else 2 + int(rng.random() * (room - 1))
        stop = max(sentence + 1, bisect.bisect_right(ends, starts[sentence] + target, sentence))
        rows.extend((starts[sentence], ends[stop - 1]))
        sentence = stop
    first = np.frombuffer(rows, np.int64).reshape(-1, 2)
    return Instances(tokens=tokens, first=first, second=np.zeros_like(first), is_random=np.zeros(len(first), bool))


def assemble(
    instances: Instances, rows: np.ndarray, *, max_seq_length: int, cls_id: int, sep_id: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of ids: `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]`, padded.

    Args:
        instances: The instances.
        rows: int [n]: which of them to assemble.
        max_seq_length: Width of a row.
        cls_id: The id of `[CLS]`.
        sep_id: The id of `[SEP]`.
        pad_id: The id of `[PAD]`.

    Returns:
        int32 [n, max_seq_length] ids, int32 [n] lengths, and int32 [n] positions where segment B starts (the length if
        there is none).
    """
    (start_a, end_a), (start_b, end_b) = instances.first[rows].T[..., None], instances.second[rows].T[..., None]
    places = np.arange(max_seq_length)
    first_sep = end_a - start_a + 1
    last = np.where(end_b > start_b, first_sep + end_b - start_b + 1, first_sep)
    source = np.where(places < first_sep, start_a - 1 + places, start_b - first_sep - 1 + places)
    ids = instances.tokens[source.clip(0, len(instances.tokens) - 1)]
    ids[:, 0] = cls_id
    ids[(places == first_sep) | (places == last)] = sep_id
    ids[places > last] = pad_id
    return ids, (last[:, 0] + 1).astype(np.int32), (first_sep[:, 0] + 1).astype(np.int32)


def _cut_pair(
    start_a: int, end_a: int, start_b: int, end_b: int, room: int, rng: random.Random
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Removes tokens from the longer stretch, each from a random end, until both fit."""
    length_a, length_b = end_a - start_a, end_b - start_b
    excess = length_a + length_b - room
    if excess <= 0:
        return (start_a, end_a), (start_b, end_b)
    # If both are equally long, B loses a token first.
    kept_a = min(length_a, max(room - length_b, -(-room // 2)))
    kept_b = room - kept_a
    return (_cut(start_a, end_a, length_a - kept_a, rng), _cut(start_b, end_b, length_b - kept_b, rng))


def _cut(start: int, end: int, excess: int, rng: random.Random) -> tuple[int, int]:
    """Removes `excess` tokens from a stretch, each from its front or its back."""
    at_front = rng.getrandbits(excess).bit_count() if excess else 0
    return start + at_front, end - (excess - at_front)


def _in_random_order(
    documents: TokenizedDocuments, room: int, sep_id: int, rng: random.Random
) -> tuple[np.ndarray, array.array, array.array]:
    """Tokens with a `[SEP]` after each document, and where sentences (or pieces of long ones) start and end in them."""
    lengths = np.diff(documents.sentence_ends, prepend=0)
    num_pieces = -(-lengths // room)
    last_pieces = np.cumsum(num_pieces)
    piece_lengths = np.full(last_pieces[-1], room)
    piece_lengths[last_pieces - 1] = lengths - (num_pieces - 1) * room

    order = sorted(range(len(documents)), key=lambda _: rng.random())
    token_ends = _from_zero(documents.sentence_ends[documents.document_ends - 1])
    piece_ends = _from_zero(last_pieces[documents.document_ends - 1])
    sep = np.array([sep_id], np.int32)
    tokens = [part for d in order for part in (documents.tokens[token_ends[d] : token_ends[d + 1]], sep)]
    ordered = np.concatenate([piece_lengths[piece_ends[d] : piece_ends[d + 1]] for d in order])
    seps_before = np.repeat(np.arange(len(order)), [piece_ends[d + 1] - piece_ends[d] for d in order])
    ends = np.cumsum(ordered) + seps_before
    return np.concatenate(tokens), _as_array(ends - ordered), _as_array(ends)


def _from_zero(ends: np.ndarray) -> array.array:
    return _as_array(np.concatenate([[0], ends]))


def _as_array(values: np.ndarray) -> array.array:
    """Integers as an `array`: reading single ones is faster than from NumPy, in less memory than a list."""
    return array.array("q", values.astype(np.int64).tobytes())
