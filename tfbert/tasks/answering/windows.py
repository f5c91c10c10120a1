"""Windows for question answering: rows `[CLS] question [SEP] part of the context [SEP]`.

A context that is too long for a row is read through several windows, each `doc_stride` tokens after the previous one,
or where that one ends, if its question leaves it less: `doc_stride` is a step, as in google-research/bert's
`run_squad.py` (Devlin et al. 2018). In Hugging Face's `run_qa.py`, `doc_stride` is the number of tokens that two
windows share. That overlap is the window's room for context, which depends on the question's length, minus our step.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Sequence

import numpy as np

from tfbert.errors import UsageError
from tfbert.tokens.ragged import ranges, splits_of
from tfbert.tokens.tokenizer import BertTokenizer, TokenIds


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The windows of questions, in the order of the questions. Each question is one example and has at least one."""

    tokens: TokenIds
    """The rows; segment B is the context."""
    example: np.ndarray
    """int32 [windows]: the question that each window belongs to."""
    context_start: np.ndarray
    """int32 [windows]: the position in its row of the first token of context."""
    context_end: np.ndarray
    """int32 [windows]: one past the position of the last token of context."""
    first_token: np.ndarray
    """int32 [windows]: the token of the whole context at which the window starts."""
    char_start: np.ndarray
    """int32 [tokens]: the character of the whole context at which a token of `tokens.flat` starts; 0 outside it."""
    char_end: np.ndarray
    """int32 [tokens]: one past its last character, including dropped marks that follow it; 0 outside the context."""
    max_context: np.ndarray
    """bool [tokens]: whether a token of context has most context in this window; False outside the context."""

    def __len__(self) -> int:
        return len(self.example)


def make_windows(
    tokenizer: BertTokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    context_of: np.ndarray,
    *,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> Windows:
    """Makes the windows of all questions. Each distinct question and context is tokenized once, on all cores.

    Args:
        tokenizer: The tokenizer.
        questions: n questions.
        contexts: The contexts, each once.
        context_of: int [n]: the context of each question.
        max_seq_length: Longest row, special tokens counted.
        doc_stride: Most tokens from the start of a window to the start of the next one.
        max_query_length: Most tokens of a question; the rest is left out.

    Returns:
        The windows.

    Raises:
        UsageError: if a question leaves no room for its context, or `doc_stride` never moves.
    """
    for name, value in (("doc_stride", doc_stride), ("max_query_length", max_query_length)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1. Received: {name}={value}. Pass a larger one.")
    context_of = np.asarray(context_of, np.int64)
    index: dict[str, int] = {}
    question_of = np.array([index.setdefault(question, len(index)) for question in questions], np.int64)
    asked = tokenizer.encode_with_offsets(list(index))
    read = tokenizer.encode_with_offsets(contexts, batch_size=128)

    query = np.minimum(np.diff(asked.row_splits), max_query_length)[question_of]
    total = np.diff(read.row_splits)[context_of]
    room = max_seq_length - 3 - query
    for i in np.flatnonzero(room < 1)[:1]:
        raise no_room_error(max_seq_length, query[i], reprlib.repr(questions[i]))
    step = np.minimum(doc_stride, room)
    count = 1 + np.maximum(-(-(total - room) // step), 0)

    example = np.repeat(np.arange(len(questions)), count)
    first_token = step[example] * ranges(np.zeros(len(count), np.int64), count)
    query, total = query[example], total[example]
    length = np.minimum(room[example], total - first_token)
    row_splits = splits_of(query + length + 3)
    context_start = query + 2

    flat = np.full(row_splits[-1], tokenizer.sep_id, np.int32)
    flat[row_splits[:-1]] = tokenizer.cls_id
    flat[ranges(row_splits[:-1] + 1, query)] = asked.ids[ranges(asked.row_splits[question_of][example], query)]
    places = ranges(row_splits[:-1] + context_start, length)
    sources = ranges(read.row_splits[context_of][example] + first_token, length)
    flat[places] = read.ids[sources]
    char_start, char_end = np.zeros((2, len(flat)), np.int32)
    char_start[places], char_end[places] = read.starts[sources], read.ends[sources]
    max_context = np.zeros(len(flat), bool)
    max_context[places] = _has_most_context(example, first_token, length)

    as_int32 = {"example": example, "context_start": context_start, "context_end": context_start + length}
    as_int32["first_token"] = first_token
    return Windows(
        tokens=TokenIds(
            flat=flat, row_splits=row_splits, second_start=context_start.astype(np.int32), pad_id=tokenizer.pad_id
        ),
        char_start=char_start,
        char_end=char_end,
        max_context=max_context,
        **{name: values.astype(np.int32) for name, values in as_int32.items()},
    )


def window_labels(windows: Windows, answers: np.ndarray) -> np.ndarray:
    """The positions of the answers' first and last tokens, for training.

    Args:
        windows: The windows.
        answers: int [n, 2]: for each example, the character of the context at which the answer starts, and one past its
            last character. An empty range, such as (0, 0), is no answer.

    Returns:
        int32 [windows, 2]: the positions in the row of the first and the last token that has a character of the answer;
        (0, 0), which is `[CLS]`, if these are not both in the window, or the answer has no token.
    """
    row_splits = windows.tokens.row_splits
    start, end = np.asarray(answers, np.int32).reshape(-1, 2).T
    lengths = windows.tokens.lengths
    inside = windows.char_start < np.repeat(end[windows.example], lengths)
    inside &= windows.char_end > np.repeat(start[windows.example], lengths)
    inside &= np.repeat((start < end)[windows.example], lengths)
    hits = np.flatnonzero(inside)
    window = np.searchsorted(row_splits, hits, side="right") - 1
    window, where, counts = np.unique(window, return_index=True, return_counts=True)
    first = hits[where] - row_splits[window]
    last = first + counts - 1  # The tokens of an answer are consecutive.

    # A window holds the whole answer if it has the first and the last of the answer's tokens in all windows.
    example = windows.example[window]
    shift = windows.first_token[window] - windows.context_start[window]
    earliest = np.full(len(start), np.iinfo(np.int64).max)
    latest = np.full(len(start), -1)
    np.minimum.at(earliest, example, first + shift)
    np.maximum.at(latest, example, last + shift)
    whole = (first + shift == earliest[example]) & (last + shift == latest[example])
    labels = np.zeros((len(windows), 2), np.int32)
    labels[window[whole], 0] = first[whole]
    labels[window[whole], 1] = last[whole]
    return labels


def no_room_error(max_seq_length: int, tokens: int, where: str) -> UsageError:
    """The error for a question of so many tokens that a row of that length has none left for its context."""
    return UsageError(
        "A row must hold a question, 3 special tokens and some of the context. "
        f"Received: max_seq_length={max_seq_length} for a question of {tokens} tokens, {where}. "
        "Pass a larger max_seq_length or a smaller max_query_length."
    )


def _has_most_context(example: np.ndarray, first_token: np.ndarray, length: np.ndarray) -> np.ndarray:
    """bool [tokens of context]: as `_check_is_max_context` of google-research/bert decides; the first window wins ties.

    Args:
        example: int64 [windows].
        first_token: int64 [windows]: the window's first token, counted in the whole context.
        length: int64 [windows]: the window's number of context tokens.
    """
    left = ranges(np.zeros(len(length), np.int64), length)
    right = np.repeat(length, length) - 1 - left
    score = np.minimum(left, right) + 0.01 * np.repeat(length, length)
    # One place for each token of each example's context, in whichever windows it is.
    wanted = np.zeros(example[-1] + 1 if len(example) else 0, np.int64)
    np.maximum.at(wanted, example, first_token + length)
    token = ranges((splits_of(wanted)[:-1])[example] + first_token, length)
    best = np.full(wanted.sum(), -1.0)
    np.maximum.at(best, token, score)
    candidates = np.flatnonzero(score == best[token])
    winner = np.empty(len(best), np.int64)
    winner[token[candidates][::-1]] = candidates[::-1]  # Of several assignments, the last one wins.
    most = np.zeros(len(token), bool)
    most[winner] = True
    return most
