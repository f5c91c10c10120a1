"""Which tokens of a record are predicted, and what replaces them: pure NumPy, many records at once.

The algorithm is that of google-research/bert, `create_masked_lm_predictions`. What it draws depends only on the
record's key and on the place in the record: not on other records, and not on their order.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.data.permutation import mixed
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.tokens.tokenizer import Tokenizer

MAX_WIDTH = 1 << 16
"""The longest record, in tokens: places are the low bits of the values that are sorted, so that there are no ties."""
_PLACE_BITS = np.uint64(MAX_WIDTH - 1)
_LAST = np.uint64(2**64 - 1)
_GAMMA = 0x9E3779B97F4A7C15
_TO_MASK, _TO_RANDOM = 0.8, 0.9


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Masking:
    """What is predicted.

    Attributes:
        mask_id: The id of `[MASK]`.
        is_special: bool [vocab_size]: tokens that are never predicted.
        drawn_ids: int [n]: a random token is one of these.
        word_marks: With `whole_words`, the tokens that begin a word, and those after which one begins, see `Tokenizer`.
        masked_lm_prob: Share of a record's tokens, special ones counted, that are predicted; at least one is.
        max_predictions_per_seq: Most tokens of a record that are predicted.
    """

    mask_id: int
    is_special: np.ndarray
    drawn_ids: np.ndarray
    word_marks: tuple[np.ndarray, np.ndarray] | None
    masked_lm_prob: float
    max_predictions_per_seq: int

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer, options: Any, max_seq_length: int) -> Masking:
        """The masking of a tokenizer's ids.

        Args:
            tokenizer: The model's.
            options: `masked_lm_prob`, `max_predictions_per_seq` and `whole_word_masking` as attributes, such as of a
                `PretrainingConfig`. Whole words: all pieces of a word together; one with too many pieces is skipped.
            max_seq_length: The records' length, in tokens.

        Raises:
            UsageError: for a tokenizer without a mask; for whole words, one whose pieces have no blanks; for fewer
                predictions than a record of full length needs.
        """
        if tokenizer.mask_id is None:
            todo = "State mask_token in its tokenizer_config.json, or use another model."
            raise UsageError(f"A tokenizer to pre-train with must have a mask. Received: one without. {todo}")
        prob, whole_words = options.masked_lm_prob, options.whole_word_masking
        if whole_words and not any(piece.startswith(" ") for piece in tokenizer.pieces):
            rule = "Whole words are found by the blanks that their first pieces begin with"
            received = "whole_word_masking=True with a tokenizer that has no such piece"
            raise UsageError(f"{rule}. Received: {received}. Drop --whole_word_masking.")
        most = options.max_predictions_per_seq
        return cls(
            mask_id=tokenizer.mask_id,
            is_special=np.isin(np.arange(tokenizer.vocab_size), tokenizer.special_ids),
            drawn_ids=tokenizer.drawn_ids,
            word_marks=tokenizer.word_marks if whole_words else None,
            masked_lm_prob=prob,
            max_predictions_per_seq=most_predictions(most, masked_lm_prob=prob, max_seq_length=max_seq_length),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Masked:
    """Masked records.

    Attributes:
        ids: int32 [rows, width]: what the model is given.
        positions: int32 [rows, max_predictions_per_seq]: places to predict, ascending; 0 after the last.
        labels: int32, same shape: the ids that were there; 0 after the last.
        weights: float32, same shape: 1; 0 after the last.
    """

    ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def most_predictions(asked: int, *, masked_lm_prob: float, max_seq_length: int) -> int:
    """The `max_predictions_per_seq` of a run.

    Args:
        asked: The user's value; 0 for `masked_lm_prob` of `max_seq_length`, rounded up.
        masked_lm_prob: Share of tokens that are predicted.
        max_seq_length: The records' length, in tokens.

    Raises:
        UsageError: for fewer predictions than a record of full length needs.
    """
    needed = masked_lm_prob * max_seq_length
    if asked == 0:
        return max(1, math.ceil(needed - 1e-9))
    if asked < math.floor(needed + 1e-9):  # Not rounded up: MLPerf's 76 for 0.15 of 512 is common.
        raise UsageError(
            "max_predictions_per_seq must be at least masked_lm_prob x max_seq_length = "
            f"{masked_lm_prob:g} x {max_seq_length} = {needed:g}, or long records are masked less than short ones. "
            f"Received: max_predictions_per_seq={asked}. Pass {math.ceil(needed - 1e-9)}, or a lower --masked_lm_prob."
        )
    return asked


def record_keys(seed: int, epoch: int, records: np.ndarray) -> np.ndarray:
    """A key for each record, different for each (seed, epoch, record).

    Args:
        seed: The run's seed.
        epoch: Counted from 0.
        records: int64 [rows]: numbers of records.

    Returns:
        uint64 [rows].
    """
    start = _hash(_hash(np.uint64(seed % 2**64)) ^ np.uint64(epoch % 2**64))
    return _hash(start ^ np.asarray(records).astype(np.uint64))


def mask(ids: np.ndarray, lengths: np.ndarray, masking: Masking, keys: np.ndarray) -> Masked:
    """Masks records. The result for a record depends only on its own tokens and key, not on the width.

    Args:
        ids: int32 [rows, width], each one of the vocabulary; at most `MAX_WIDTH` wide.
        lengths: int32 [rows]: tokens of each record; what follows them is ignored.
        masking: What is predicted.
        keys: uint64 [rows], from `record_keys`.
    """
    rows, width = ids.shape
    assert width <= MAX_WIDTH
    places = np.arange(width, dtype=np.uint64)
    lengths = np.asarray(lengths)[:, None]
    candidates = (places < lengths) & ~masking.is_special[ids]
    # rint rounds halves as Python's round() does, which Google's script calls.
    budget = np.rint(lengths * masking.masked_lm_prob).clip(1, masking.max_predictions_per_seq).astype(np.int64)
    noise = _hash(keys[:, None] + places * np.uint64(_GAMMA)) & ~_PLACE_BITS | places
    if masking.word_marks:
        begins, ends = (marks[ids] for marks in masking.word_marks)
        begins[:, 1:] |= ends[:, :-1]
        chosen = _choose_words(candidates, begins, noise, budget)
    else:
        # Those with the least noise.
        ordered = np.sort(np.where(candidates, noise, _LAST), axis=1)
        last = np.minimum(budget, width) - 1
        chosen = candidates & (noise <= np.take_along_axis(ordered, last, axis=1))

    row, column = np.nonzero(chosen)
    counts = chosen.sum(axis=1)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = rows, masking.max_predictions_per_seq
    positions, labels, weights = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    positions[row, rank], labels[row, rank], weights[row, rank] = column, ids[row, column], 1

    second = _hash(~noise[row, column] ^ keys[row])
    share = (second >> np.uint64(32)).astype(np.float64) / 2**32
    drawn = (second & np.uint64(2**32 - 1)) * np.uint64(len(masking.drawn_ids)) >> np.uint64(32)
    out = np.array(ids, np.int32)
    inner = np.where(share < _TO_RANDOM, masking.drawn_ids[drawn].astype(np.int32), labels[row, rank])
    out[row, column] = np.where(share < _TO_MASK, np.int32(masking.mask_id), inner)
    return Masked(ids=out, positions=positions, labels=labels, weights=weights)


def _choose_words(candidates: np.ndarray, begins: np.ndarray, noise: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """bool [rows, width]: whole words in the order of their first pieces' noise, skipping those that no longer fit."""
    rows, width = candidates.shape
    after_candidate = np.zeros_like(candidates)
    after_candidate[:, 1:] = candidates[:, :-1]
    starts = candidates & (begins | ~after_candidate)
    word = np.maximum(np.cumsum(starts, axis=1) - 1, 0)  # Which word of its row each token is.
    flat = word + np.arange(rows)[:, None] * width
    sizes = np.bincount(flat[candidates], minlength=rows * width).reshape(rows, width)

    ordered = np.sort(np.where(starts, noise, _LAST), axis=1)
    place = np.minimum(ordered & _PLACE_BITS, np.uint64(width - 1)).astype(np.int64)
    ranked = np.take_along_axis(word, place, axis=1)  # Words, in the order in which they are tried.
    ranked_sizes = np.take_along_axis(sizes, ranked, axis=1)
    num_words = starts.sum(axis=1)
    taken = np.zeros((rows, width), bool)
    left, every = budget[:, 0].copy(), np.arange(rows)
    for k in range(num_words.max(initial=0)):
        fits = (k < num_words) & (ranked_sizes[:, k] <= left)
        left -= ranked_sizes[:, k] * fits
        taken[every, ranked[:, k]] |= fits
        if not left.any():
            break
    return candidates & np.take_along_axis(taken, word, axis=1)


def _hash(x: np.ndarray) -> np.ndarray:
    """splitmix64 (Steele et al. 2014): a bijection of uint64 whose values pass for random."""
    with np.errstate(over="ignore"):  # Scalars warn of overflow, arrays do not.
        return mixed(x + np.uint64(_GAMMA))
