"""Scores of where an answer starts and ends -> the best answers, over all windows of a question at once.

The rules are those of google-research/bert's run_squad. In each window, the best starts are paired with the best ends.
A pair counts if it lies in the context, does not end before it starts, is not too long, and starts at a token that has
its most context in this window. The pairs from all windows of a question then form one list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfbert.config.tasks import MAX_ANSWER_LENGTH, N_BEST_SIZE
from tfbert.tokens.ragged import splits_of

_ROWS_AT_ONCE = 512
"""Windows sorted at a time: as many as stay in a processor's cache."""
PAIRS_AT_ONCE = 1 << 20
"""The most pairs of starts and ends that are scored at a time, or those of one window: some 50 MB."""
_NO_LOGIT = np.float32(-np.inf)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WindowLogits:
    """A model's outputs for windows, and where the windows lie. `[tokens]` are the tokens of all windows in order.

    Attributes:
        start_logits: float32 `[tokens]`: of an answer that starts there. In each row, the first is that of no answer.
        end_logits: float32 `[tokens]`: of an answer whose last token is there.
        row_splits: int64 `[windows + 1]`: window i has the tokens from `row_splits[i]` up to `row_splits[i + 1]`.
        example: int32 `[windows]`: the question it belongs to, from 0.
        context_start: int32 `[windows]`: the position in the row at which the context starts.
        context_end: int32 `[windows]`: the position after the context's last token.
        max_context: bool `[tokens]`: whether a token has more context here than in any other window.
        char_start: int32 `[tokens]`: the token's first character in the whole context.
        char_end: int32 `[tokens]`: one past its last character.
    """

    start_logits: np.ndarray
    end_logits: np.ndarray
    row_splits: np.ndarray
    example: np.ndarray
    context_start: np.ndarray
    context_end: np.ndarray
    max_context: np.ndarray
    char_start: np.ndarray
    char_end: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """The best answers of questions, best first; of equal scores, the earlier in the text first, then the shorter.

    Attributes:
        row_splits: int64 `[questions + 1]`: question i has the candidates from `row_splits[i]` to `row_splits[i + 1]`.
        char_start: int32 `[candidates]`: the first character in the context.
        char_end: int32 `[candidates]`: one past the last character.
        start_logit: float32 `[candidates]`.
        end_logit: float32 `[candidates]`.
        score: float64 `[candidates]`: the sum of both logits.
        null_start_logit: float32 `[questions]`: of no answer, in the window where no answer scores lowest.
        null_end_logit: float32 `[questions]`.
        null_score: float64 `[questions]`: the sum of both logits.
    """

    row_splits: np.ndarray
    char_start: np.ndarray
    char_end: np.ndarray
    start_logit: np.ndarray
    end_logit: np.ndarray
    score: np.ndarray
    null_start_logit: np.ndarray
    null_end_logit: np.ndarray
    null_score: np.ndarray

    def __len__(self) -> int:
        return len(self.null_score)

    @property
    def null_odds(self) -> np.ndarray:
        """float64 `[questions]`: the score of no answer minus that of the best candidate (0 if there is none)."""
        has_any = np.diff(self.row_splits) > 0
        best = np.zeros(len(self))
        best[has_any] = self.score[self.row_splits[:-1][has_any]]
        return self.null_score - best


def decode(
    windows: WindowLogits,
    num_questions: int,
    *,
    n_best_size: int = N_BEST_SIZE,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> Candidates:
    """The best answers to each question. Questions are independent, and may be decoded in groups of any size.

    If no pair of a question counts, each of its windows gives its best pair of all starts and ends instead. So every
    question whose context has a token has a candidate.

    Args:
        windows: All windows of these questions, at least one per question, in any order.
        num_questions: The number of questions.
        n_best_size: The most starts and ends taken from each window, and the most candidates kept per question.
        max_answer_length: Longest answer, in tokens.
    """
    width = int(np.diff(windows.row_splits).max(initial=1))
    max_answer_length = min(max_answer_length, width)  # None is longer than a row.
    rows_at_once = max(min(_ROWS_AT_ONCE, PAIRS_AT_ONCE // min(n_best_size, width) ** 2), 1)
    found: list[np.ndarray] = [np.empty((0, 3), np.int64)]
    for first in range(0, len(windows.example), rows_at_once):
        rows = np.arange(first, min(first + rows_at_once, len(windows.example)))
        found.append(_pairs(windows, rows, n_best_size, max_answer_length))
    pairs = np.concatenate(found)
    without = np.ones(num_questions, bool)
    without[windows.example[pairs[:, 0]]] = False
    if without.any():
        rest = [_best_pair(windows, row, max_answer_length) for row in np.flatnonzero(without[windows.example])]
        pairs = np.concatenate([pairs, *rest])
    return _candidates(windows, num_questions, pairs, min(n_best_size, len(pairs)))


def join(parts: Sequence[Candidates]) -> Candidates:
    """Joins the candidates of consecutive groups of questions, as if all had been decoded together."""
    counts = np.concatenate([np.diff(part.row_splits) for part in parts])
    names = [field.name for field in dataclasses.fields(Candidates) if field.name != "row_splits"]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Candidates(row_splits=splits_of(counts), **joined)


def _pairs(windows: WindowLogits, rows: np.ndarray, n_best_size: int, max_answer_length: int) -> np.ndarray:
    """Pairs that count: int64 `[pairs, 3]` of window, start and end, both as positions in the row."""
    begin = windows.row_splits[rows]
    lengths = windows.row_splits[rows + 1] - begin
    columns = np.arange(lengths.max(initial=1))
    inside = columns < lengths[:, None]
    tokens = np.where(inside, begin[:, None] + columns, 0)
    starts, ends = (
        _best(np.where(inside, logits[tokens], _NO_LOGIT), n_best_size)
        for logits in (windows.start_logits, windows.end_logits)
    )
    can_start, can_end = (_within(positions, windows, rows) for positions in (starts, ends))
    first, last = (np.take_along_axis(tokens, positions, axis=1) for positions in (starts, ends))
    can_start &= windows.max_context[first]
    length = ends[:, None, :] - starts[:, :, None] + 1
    valid = (length >= 1) & (length <= max_answer_length) & can_start[:, :, None] & can_end[:, None, :]

    # Keep only as many as can be among the best of the question: sorting the rest would be a waste.
    scores = windows.start_logits[first].astype(np.float64)[:, :, None] + windows.end_logits[last][:, None, :]
    scores = np.where(valid, scores, -np.inf)
    ranked = np.sort(scores.reshape(len(rows), -1), axis=1)[:, ::-1]
    in_context = _within(np.broadcast_to(columns, tokens.shape), windows, rows)
    copies = _copies(windows.char_start[tokens], in_context) * _copies(windows.char_end[tokens], in_context)
    most = np.minimum(min(n_best_size, ranked.shape[1]) * copies, ranked.shape[1])
    worst = np.take_along_axis(ranked, most[:, None] - 1, axis=1)
    valid &= scores >= worst[:, :, None]
    row, start, end = np.nonzero(valid)
    return np.stack([rows[row], starts[row, start], ends[row, end]], axis=1)


def _copies(characters: np.ndarray, in_context: np.ndarray) -> np.ndarray:
    """An upper bound on how many tokens of a row begin (or end) at the same character: int64 `[rows]`."""
    same = (characters[:, 1:] == characters[:, :-1]) & in_context[:, 1:] & in_context[:, :-1]
    return 1 + same.sum(axis=1)


def _best(logits: np.ndarray, most: int) -> np.ndarray:
    """The positions of each row's largest values, best first, of equals the leftmost first: int64 `[rows, most]`."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :most]


def _within(positions: np.ndarray, windows: WindowLogits, rows: np.ndarray) -> np.ndarray:
    return (positions >= windows.context_start[rows, None]) & (positions < windows.context_end[rows, None])


def _best_pair(windows: WindowLogits, row: int, max_answer_length: int) -> np.ndarray:
    """The best pair of one window, of all starts and ends: int64 `[1, 3]`, or `[0, 3]` where there is none."""
    begin = windows.row_splits[row]
    context = np.arange(windows.context_start[row], windows.context_end[row])
    starts = context[windows.max_context[begin + context]]
    ends = starts[:, None] + np.arange(max_answer_length)
    inside = ends < windows.context_end[row]
    ends = np.minimum(ends, max(windows.context_end[row] - 1, 0))
    scores = windows.start_logits[begin + starts, None].astype(np.float64) + windows.end_logits[begin + ends]
    if not scores.size:
        return np.empty((0, 3), np.int64)
    start, length = np.unravel_index(np.argmax(np.where(inside, scores, -np.inf)), scores.shape)
    return np.array([[row, starts[start], ends[start, length]]], np.int64)


def _candidates(windows: WindowLogits, num_questions: int, pairs: np.ndarray, n_best_size: int) -> Candidates:
    begin = windows.row_splits[pairs[:, 0]]
    first, last = begin + pairs[:, 1], begin + pairs[:, 2]
    example = windows.example[pairs[:, 0]]
    start_logit, end_logit = windows.start_logits[first], windows.end_logits[last]
    score = start_logit.astype(np.float64) + end_logit
    char_start, char_end = windows.char_start[first], windows.char_end[last]

    # Of pairs with the same characters, the best, whichever window it is from.
    order = np.lexsort((-score, char_end, char_start, example))
    is_new = np.ones(len(order), bool)
    same = [values[order][1:] == values[order][:-1] for values in (example, char_start, char_end)]
    is_new[1:] = ~(same[0] & same[1] & same[2])
    order = order[is_new]
    # They are in the order of the text: a stable sort keeps this order for equal scores.
    order = order[np.lexsort((-score[order], example[order]))]
    counts = np.bincount(example[order], minlength=num_questions)
    rank = np.arange(len(order)) - np.repeat(splits_of(counts)[:-1], counts)
    order = order[rank < n_best_size]

    at = windows.row_splits[:-1]
    null_score = windows.start_logits[at].astype(np.float64) + windows.end_logits[at]
    by_null = np.lexsort((null_score, windows.example))
    _, least = np.unique(windows.example[by_null], return_index=True)
    assert len(least) == num_questions, "every question has a window"
    least = by_null[least]
    return Candidates(
        row_splits=splits_of(np.minimum(counts, n_best_size)),
        char_start=char_start[order].astype(np.int32),
        char_end=char_end[order].astype(np.int32),
        start_logit=start_logit[order],
        end_logit=end_logit[order],
        score=score[order],
        null_start_logit=windows.start_logits[at[least]],
        null_end_logit=windows.end_logits[at[least]],
        null_score=null_score[least],
    )
