"""Extractive question answering: finds the part of a context that answers a question, or says that there is none. Exact
match and F1 are as SQuAD's own scripts compute them, to every digit: evaluate-v1.1.py and evaluate-v2.0.py.

The scripts differ in more than their names. If an answer holds nothing but articles and punctuation, version 1.1 gives
it an F1 of 0; version 2.0 drops such a gold answer, and treats such a prediction as no answer.

Prediction of answers: questions and contexts in Python, in tables, or in SQuAD's JSON -> an answer for each. As a
SavedModel: questions and contexts -> answers, with their characters.

Windows over contexts: rows `[CLS] question [SEP] part of the context [SEP]`, or as the tokenizer has them; and scores
of where an answer starts and ends -> the best answers, over all windows of a question at once.

A context that is too long for a row is read through several windows, each `doc_stride` tokens after the previous one,
or where that one ends, if its question leaves it less: `doc_stride` is a step, as in google-research/bert's
`run_squad.py` (Devlin et al. 2018). In Hugging Face's `run_qa.py`, `doc_stride` is the number of tokens that two
windows share. That overlap is the window's room for context, which depends on the question's length, minus our step.

They are made in TensorFlow: in the graph of an exported model, and eagerly by `make_windows`.

The rules are those of google-research/bert's run_squad. In each window, the best starts are paired with the best ends.
A pair counts if it lies in the context, does not end before it starts, is not too long, and starts at a token that has
its most context in this window. The pairs from all windows of a question then form one list.

All of it is TensorFlow: an exported model has it in its graph, and `decode` calls it eagerly.

Candidates -> the answer to each question, and SQuAD's files of answers: predictions, n-best lists, null odds.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import pathlib
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import EncodedExamples, TokenTensors
from tfbert.config import tasks
from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.config.training import TrainingConfig
from tfbert.data.reading import PREDICTED_ANSWERS
from tfbert.data.rows import Source, input_source
from tfbert.errors import UsageError
from tfbert.measure import counted_alone
from tfbert.model.files import OWN_FIELD, BertConfig
from tfbert.model.head import Head
from tfbert.output.output_dir import write_text
from tfbert.tasks import prediction
from tfbert.tasks.base import CheckTexts, ErrorAnalysis, Task, TaskData, Training, rounded
from tfbert.tasks.losses import SpanCrossEntropy
from tfbert.tasks.question_answering import squad
from tfbert.tasks.tables import data_of, equal, hold_out, read_labelled_tables, read_training_tables
from tfbert.tokens.normalizer import Pieces
from tfbert.tokens.tokenizer import Tokenizer


class Windows(NamedTuple):
    """The windows of questions, in the order of the questions: tensors, or arrays. Each question has at least one.

    Attributes:
        tokens: The rows, as `TokenTensors` or `TokenIds`; segment B is the context.
        first_token: int32 `[windows]`: the token of the whole context at which the window starts.
        row_splits: int64 `[windows + 1]`: where each window begins and ends in `tokens.flat`.
        example: int32 `[windows]`: the question that each window belongs to.
        context_start: int32 `[windows]`: the position in its row of the first token of context.
        context_end: int32 `[windows]`: one past the position of the last token of context.
        char_start: int32 `[tokens]`: the character of the whole context at which a token starts; 0 outside it.
        char_end: int32 `[tokens]`: one past its last character, including dropped marks that follow it; 0 outside it.
        max_context: bool `[tokens]`: whether a token of context has more context here than in any other window.
    """

    tokens: Any
    first_token: Any
    row_splits: Any
    example: Any
    context_start: Any
    context_end: Any
    char_start: Any
    char_end: Any
    max_context: Any


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncodedQuestions(EncodedExamples):
    """Windows over the contexts of questions, one row per window.

    Attributes:
        windows: The windows.
    """

    windows: Windows


def make_windows(
    tokenizer: Tokenizer, questions: Sequence[str], contexts: Sequence[str], context_of: np.ndarray, **sizes: int
) -> Windows:
    """Makes the windows of all questions. Each distinct question and context is tokenized once, on all cores.

    Args:
        tokenizer: The tokenizer.
        questions: n questions.
        contexts: The contexts, each once.
        context_of: int [n]: the context of each question.
        sizes: As for `windows_in_graph`.

    Returns:
        The windows, as arrays.
    """
    index: dict[str, int] = {}
    question_of = np.array([index.setdefault(question, len(index)) for question in questions], np.int64)
    asked = tokenizer.encode_with_offsets(list(index))
    read = tokenizer.encode_with_offsets(contexts, batch_size=128)
    with tf.device("CPU:0"):
        ids, starts, ends = (_ragged(values, read.row_splits) for values in (read.ids, read.starts, read.ends))
        found = windows_in_graph(
            tokenizer,
            tf.gather(_ragged(asked.ids, asked.row_splits), question_of),
            Pieces(ids, starts, ends, words=None, word_starts=None, word_ends=None),
            np.asarray(context_of, np.int64),
            **sizes,
        )
    return Windows(found.tokens.in_memory(), *(part.numpy() for part in found[1:]))


def windows_in_graph(
    tokenizer: Tokenizer,
    questions: tf.RaggedTensor,
    contexts: Pieces,
    context_of: tf.Tensor,
    *,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> Windows:
    """The windows as tensors.

    Args:
        tokenizer: The tokenizer.
        questions: int32 `[n, None]`, the token ids of the questions.
        contexts: The contexts, as the tokenizer splits them.
        context_of: int64 `[n]`, the context of each question.
        max_seq_length: Longest row, special tokens counted.
        doc_stride: Most tokens from the start of a window to the start of the next one, at least 1.
        max_query_length: Most tokens of a question, at least 1.
    """
    num_special = tokenizer.num_special(2)
    questions = questions[:, : min(max_query_length, max_seq_length - num_special - 1)]  # A token of context has room.
    query, total = questions.row_lengths(), tf.gather(contexts.ids.row_lengths(), context_of)
    room = max_seq_length - num_special - query
    step = tf.minimum(tf.cast(min(doc_stride, tf.int64.max), tf.int64), room)
    numbers = tf.ragged.range(1 + tf.maximum(-(-(total - room) // step), 0))  # The windows of each question.
    example = numbers.value_rowids()
    first_token = tf.gather(step, example) * numbers.values
    length = tf.minimum(tf.gather(room, example), tf.gather(total, example) - first_token)
    first = tf.gather(tf.gather(contexts.ids.row_starts(), context_of), example) + first_token  # Of all contexts.

    context = tf.gather(contexts.ids.values, tf.ragged.range(first, first + length))
    ids, second_start = tokenizer.joined(tf.gather(questions, example), context)
    context_start = tf.gather(query, example) + 1 + tokenizer.separators
    tokens = TokenTensors.of_rows(ids, second_start, tokenizer.pad_id)

    row, last = ids.value_rowids(), tf.size(ids.values, tf.int64)
    token = tf.range(last)
    left = token - tf.gather(ids.row_starts() + context_start, row)  # Tokens of context before it in the window.
    in_context = (left >= 0) & (left < tf.gather(length, row))
    # The place of a token among those of all contexts; the place after them all for other tokens.
    source = tf.where(in_context, tf.gather(first, row) + left, tf.size(contexts.ids.values, tf.int64))
    characters = (tf.gather(tf.concat([part.values, [0]], 0), source) for part in (contexts.starts, contexts.ends))
    # The same for each question by itself: others may have the same context.
    origin = tf.gather(tf.cumsum(total, exclusive=True), example) + first_token
    own = tf.where(in_context, tf.gather(origin, row) + left, tf.reduce_sum(total))
    # A token of context has the most context in one of its windows; of equal ones in the first.
    of_window = tf.gather(length, row)
    score = tf.cast(tf.minimum(left, of_window - 1 - left), tf.float64) + 0.01 * tf.cast(of_window, tf.float64)
    num_own = tf.reduce_sum(total) + 1
    is_best = score == tf.gather(tf.math.unsorted_segment_max(score, own, num_own), own)
    winner = tf.math.unsorted_segment_min(tf.where(is_best, token, last), own, num_own)
    most = in_context & (token == tf.gather(winner, own))
    of_windows = (first_token, example, context_start, context_start + length)
    first_token, *of_windows = (tf.cast(part, tf.int32) for part in of_windows)
    return Windows(tokens, first_token, ids.row_splits, *of_windows, *characters, most)


def _ragged(values: np.ndarray, row_splits: np.ndarray) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


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
    start, end = np.asarray(answers, np.int32).reshape(-1, 2).T
    starts, ends = (np.repeat(bound[windows.example], windows.tokens.lengths) for bound in (start, end))
    hits = np.flatnonzero((windows.char_start < ends) & (windows.char_end > starts) & (starts < ends))
    window = np.searchsorted(windows.tokens.row_splits, hits, side="right") - 1
    example, position = windows.example[window], hits - windows.tokens.row_splits[window]
    place = position + (windows.first_token - windows.context_start)[window]  # Among the tokens of the context.
    first, last = np.full(len(start), np.iinfo(np.int64).max), np.full(len(start), -1)
    np.minimum.at(first, example, place)
    np.maximum.at(last, example, place)
    labels = np.zeros((len(windows.example), 2), np.int32)
    for column, ends in enumerate((first, last)):
        is_end = place == ends[example]
        labels[window[is_end], column] = position[is_end]
    return labels * labels.all(axis=1, keepdims=True)  # Of a whole answer both ends are in the window.


PAIRS_AT_ONCE = 1 << 20
"""The most pairs of starts and ends that are scored at a time, or those of one window: some 50 MB."""
_NONE = float("-inf")


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """The best answers of questions, best first; of equal scores, the earlier in the text first, then the shorter:
    arrays, or tensors.

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

    row_splits: Any
    char_start: Any
    char_end: Any
    start_logit: Any
    end_logit: Any
    score: Any
    null_start_logit: Any
    null_end_logit: Any
    null_score: Any


class Answers(NamedTuple):
    """The answer to each question, as arrays or tensors; characters 0 to 0 where there is none.

    Attributes:
        char_start: int32 `[questions]`: the answer's first character in the context.
        char_end: int32 `[questions]`: one past its last character.
        probability: float64 `[questions]`: the probability of the given answer (or of no answer) among all candidates.
        null_odds: float64 `[questions]`: the score of no answer minus that of the best candidate (0 if there is none).
    """

    char_start: Any
    char_end: Any
    probability: Any
    null_odds: Any

    def texts(self, contexts: Sequence[str], context_of: np.ndarray) -> list[str]:
        """The answers' texts, cut from the original contexts.

        Args:
            contexts: The distinct contexts.
            context_of: int `[questions]`: which of them each question is about.
        """
        spans = zip(context_of.tolist(), self.char_start.tolist(), self.char_end.tolist(), strict=True)
        return [contexts[context][start:end] for context, start, end in spans]


def decode(
    windows: Windows,
    logits: np.ndarray,
    *,
    n_best_size: int = tasks.N_BEST_SIZE,
    max_answer_length: int = tasks.MAX_ANSWER_LENGTH,
) -> Candidates:
    """The best answers to each question. Questions are independent.

    If no pair of a question counts, each of its windows gives its best pair of all starts and ends instead. So every
    question whose context has a token of more than blanks has a candidate.

    Args:
        windows: All windows of these questions, at least one per question, in any order.
        logits: float32 `[tokens, 2]`: of an answer that starts at each token, and of one whose last token it is. In
            each row, the first is that of no answer.
        n_best_size: The most starts and ends taken from each window, and the most candidates kept per question.
        max_answer_length: Longest answer, in tokens.
    """
    most, longest = (min(value, np.iinfo(np.int32).max) for value in (n_best_size, max_answer_length))
    with tf.device("CPU:0"):
        found = _compiled()(*windows[2:], logits, most, longest)
    return Candidates(*(part.numpy() for part in found))


@functools.cache
def _compiled() -> tf.types.experimental.PolymorphicFunction:
    """`candidates_in_graph` as one function: op by op, it would take twice as long, and 50 ms for a single question."""
    rows, number = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)
    signature = [tf.TensorSpec([None], tf.int64), *[rows] * 5, tf.TensorSpec([None], tf.bool)]

    @counted_alone(autograph=False, input_signature=[*signature, tf.TensorSpec([None, 2]), *[number] * 2])
    def candidates(*values):
        *of_windows, logits, n_best_size, max_answer_length = values
        windows = Windows(None, None, *of_windows)
        return tuple(vars(candidates_in_graph(windows, logits, n_best_size, max_answer_length)).values())

    return candidates


def _pairs(
    windows: Windows, logits: tf.Tensor, num_questions: tf.Tensor, n_best_size: int, max_answer_length: int
) -> tf.Tensor:
    """Pairs that count: int64 `[pairs, 3]` of window, start and end, both as positions in the row."""

    def rows(values: tf.Tensor, fill: float | bool) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_row_splits(values, windows.row_splits, validate=False)
        return ragged.to_tensor(fill)  # [windows, width]

    start_logits, end_logits = rows(logits[:, 0], _NONE), rows(logits[:, 1], _NONE)
    count, width = tf.unstack(tf.shape(start_logits))
    place = tf.range(width)
    can_end = (place >= windows.context_start[:, tf.newaxis]) & (place < windows.context_end[:, tf.newaxis])
    can_end &= rows(windows.char_start, 0) < rows(windows.char_end, 0)  # Not a token of blanks alone.
    can_start = can_end & rows(windows.max_context, False)
    copies = _copies(rows(windows.char_start, 0), can_end) * _copies(rows(windows.char_end, 0), can_end)
    most, max_answer_length = tf.minimum(n_best_size, width), tf.minimum(max_answer_length, width)
    all_of_them = tf.cast(most * most, tf.int64)
    # As many as can be among the best of the question: to sort the rest would be a waste.
    kept = tf.minimum(tf.minimum(tf.cast(n_best_size, tf.int64), all_of_them) * copies, all_of_them)

    def scored(row: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """The scores of pairs of some windows, for starts `[rows, starts, 1]` and ends `[rows, starts or 1, ends]`."""

        def at(values: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
            return tf.gather(tf.gather(values, row), tf.minimum(places, width - 1), batch_dims=1)

        length = ends - starts + 1
        valid = (length >= 1) & (length <= max_answer_length) & (ends < width)
        valid &= at(can_start, starts) & at(can_end, ends)
        scores = tf.cast(at(start_logits, starts), tf.float64) + tf.cast(at(end_logits, ends), tf.float64)
        return tf.where(valid, scores, _NONE)

    def pairs_of(row: tf.Tensor) -> tf.Tensor:
        # Of equal logits the first.
        starts, ends = (tf.math.top_k(tf.gather(values, row), most).indices for values in (start_logits, end_logits))
        scores, limit = scored(row, starts[:, :, tf.newaxis], ends[:, tf.newaxis, :]), tf.gather(kept, row)
        num_ranked = tf.cast(tf.reduce_max(limit), tf.int32)
        ranked = tf.math.top_k(tf.reshape(scores, [-1, most * most]), num_ranked).values
        worst = tf.gather(ranked, limit - 1, batch_dims=1)[:, tf.newaxis, tf.newaxis]
        which, start, end = tf.unstack(tf.where((scores >= worst) & (scores > _NONE)), axis=1)
        start, end = (
            tf.cast(tf.gather_nd(positions, tf.stack([which, rank], axis=1)), tf.int64)
            for positions, rank in ((starts, start), (ends, end))
        )
        return tf.stack([tf.gather(row, which), start, end], axis=1)

    def best_pairs(row: tf.Tensor) -> tf.Tensor:
        """The best pair of each window, of all starts and ends."""
        starts = tf.tile(place[tf.newaxis, :, tf.newaxis], [tf.size(row), 1, 1])
        scores = scored(row, starts, starts + tf.range(max_answer_length))
        # Of equal ones the first.
        best = tf.math.top_k(tf.reshape(scores, [-1, width * max_answer_length]), 1).indices[:, 0]
        start, more = (tf.cast(part, tf.int64) for part in (best // max_answer_length, best % max_answer_length))
        return tf.stack([row, start, start + more], axis=1)

    every = tf.range(tf.cast(count, tf.int64))
    none = tf.zeros([0, 3], tf.int64)
    pairs = prediction.in_parts(pairs_of, every, tf.maximum(PAIRS_AT_ONCE // tf.maximum(most * most, 1), 1), none)
    # If no pair of a question counts, each of its windows gives its best.
    owner = tf.gather(windows.example, pairs[:, 0])
    without = tf.math.unsorted_segment_sum(tf.ones_like(owner), owner, num_questions) == 0
    without = tf.gather(without, windows.example) & tf.reduce_any(can_start, axis=1)
    at_once = tf.maximum(PAIRS_AT_ONCE // tf.maximum(width * max_answer_length, 1), 1)
    rest = prediction.in_parts(best_pairs, tf.boolean_mask(every, without), at_once, none)
    return tf.concat([pairs, rest], 0)


def _copies(characters: tf.Tensor, in_context: tf.Tensor) -> tf.Tensor:
    """An upper bound on how many tokens of a row begin (or end) at the same character: int64 `[windows]`."""
    same = (characters[:, 1:] == characters[:, :-1]) & in_context[:, 1:] & in_context[:, :-1]
    return 1 + tf.math.count_nonzero(same, axis=1)


def candidates_in_graph(windows: Windows, logits: tf.Tensor, n_best_size: Any, max_answer_length: Any) -> Candidates:
    """The best pairs of each question, as tensors; of pairs with the same characters the best. Arguments as for
    `decode`, the last two at most int32's largest."""
    windows = windows._replace(example=tf.cast(windows.example, tf.int64))
    num_questions = 1 + tf.reduce_max(tf.concat([[-1], windows.example], 0))
    row, start, end = tf.unstack(_pairs(windows, logits, num_questions, n_best_size, max_answer_length), axis=1)
    origin = tf.gather(windows.row_splits, row)
    first, last = origin + start, origin + end
    example = tf.gather(windows.example, row)
    start_logit, end_logit = tf.gather(logits[:, 0], first), tf.gather(logits[:, 1], last)
    score = tf.cast(start_logit, tf.float64) + tf.cast(end_logit, tf.float64)
    char_start, char_end = tf.gather(windows.char_start, first), tf.gather(windows.char_end, last)

    # By score; in the order of the text where scores are equal. Sorting is stable.
    size = tf.cast(tf.reduce_max(windows.char_end), tf.int64) + 1
    key = (example * size + tf.cast(char_start, tf.int64)) * size + tf.cast(char_end, tf.int64)
    order = tf.argsort(key, stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(score, order), direction="DESCENDING", stable=True))
    distinct, which = tf.unique(tf.gather(key, order))  # In order of appearance: the best is first.
    order = tf.gather(order, tf.math.unsorted_segment_min(tf.range(tf.size(order)), which, tf.size(distinct)))
    order = tf.gather(order, tf.argsort(tf.gather(example, order), stable=True))
    owner = tf.gather(example, order)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(owner), owner, num_questions)
    rank = tf.range(tf.size(owner, tf.int64)) - tf.gather(tf.cumsum(counts, exclusive=True), owner)
    most = tf.cast(n_best_size, tf.int64)
    order, splits = tf.boolean_mask(order, rank < most), tf.concat([[0], tf.cumsum(tf.minimum(counts, most))], 0)
    found = (tf.gather(part, order) for part in (char_start, char_end, start_logit, end_logit, score))

    # No answer, in the first window in which it scores lowest; first of all in one whose score is no number.
    null_logits = tf.gather(logits, windows.row_splits[:-1])
    null = tf.cast(null_logits[:, 0], tf.float64) + tf.cast(null_logits[:, 1], tf.float64)
    known = tf.where(tf.math.is_nan(null), tf.constant(_NONE, tf.float64), null)
    lowest = tf.gather(tf.math.unsorted_segment_min(known, windows.example, num_questions), windows.example)
    at = tf.where(known == lowest, tf.range(tf.size(null)), tf.int32.max)
    at = tf.math.unsorted_segment_min(at, windows.example, num_questions)
    of_none = tf.gather(null_logits, at)
    return Candidates(splits, *found, of_none[:, 0], of_none[:, 1], tf.gather(null, at))


def select_answers(candidates: Candidates, options: tasks.AnsweringConfig) -> Answers:
    """The best candidate of each question, or none where the options say so, as tensors."""
    with tf.device("CPU:0"):
        splits = tf.convert_to_tensor(candidates.row_splits)
        own, null = probabilities(candidates, options.version_2_with_negative)

        def of_best(values: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:  # 0 for other rows.
            return tf.gather(tf.pad(values, [[0, 1]]), tf.where(rows, splits[:-1], tf.size(values, tf.int64)))

        answered = splits[1:] > splits[:-1]
        null_odds = candidates.null_score - of_best(candidates.score, answered)
        if options.version_2_with_negative:
            answered &= null_odds <= options.null_score_diff_threshold
        return Answers(
            char_start=of_best(candidates.char_start, answered),
            char_end=of_best(candidates.char_end, answered),
            probability=tf.where(answered, of_best(own, answered), null),
            null_odds=null_odds,
        )


def probabilities(candidates: Candidates, version_2_with_negative: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """A softmax over the candidates of each question, including "no answer" where that is a candidate.

    Returns:
        The probability of each candidate, float64 `[candidates]`, and of no answer, float64 `[questions]`: 1 where
        there is no other candidate, and 0 where no answer is not a candidate.
    """
    with tf.device("CPU:0"):
        counts = candidates.row_splits[1:] - candidates.row_splits[:-1]
        question, number = tf.repeat(tf.range(tf.size(counts)), counts), tf.size(counts)
        has_null = (counts == 0) | version_2_with_negative
        largest = tf.math.unsorted_segment_max(candidates.score, question, number)
        largest = tf.maximum(largest, tf.where(has_null, candidates.null_score, _NONE))
        own = tf.exp(candidates.score - tf.gather(largest, question))
        null = tf.where(has_null, tf.exp(candidates.null_score - largest), 0.0)
        total = null + tf.math.unsorted_segment_sum(own, question, number)
        return own / tf.gather(total, question), null / total


def n_best(
    candidates: Candidates, contexts: Sequence[str], context_of: np.ndarray, version_2_with_negative: bool
) -> Iterator[list[dict[str, Any]]]:
    """Each question's candidates, best first, as `text`, `probability`, `start_logit` and `end_logit`.

    Args:
        candidates: Of all questions.
        contexts: The distinct contexts.
        context_of: int `[questions]`: which of them each question is about.
        version_2_with_negative: Whether "no answer" is always a candidate; else it is one only if there is no other.
    """
    chosen, null_probability = (part.numpy() for part in probabilities(candidates, version_2_with_negative))
    columns = (candidates.char_start, candidates.char_end, chosen, candidates.start_logit, candidates.end_logit)
    rows = list(zip(*(column.tolist() for column in (*columns, candidates.score)), strict=True))
    nulls = (null_probability, candidates.null_start_logit, candidates.null_end_logit, candidates.null_score)
    splits, names = candidates.row_splits.tolist(), ("text", "probability", "start_logit", "end_logit")
    for i, (*null, null_score) in enumerate(zip(*(column.tolist() for column in nulls), strict=True)):
        context, own = contexts[context_of[i]], rows[splits[i] : splits[i + 1]]
        out = [(context[start:end], *numbers) for start, end, *numbers, _ in own]
        if version_2_with_negative or not own:
            out.insert(sum(row[-1] >= null_score for row in own), ("", *null))
        yield [dict(zip(names, entry, strict=True)) for entry in out]


_SHOWN_CONTEXT = 400
"""Characters of context that a report shows on each side of what it marks."""
_TIE = 1e-6
"""Orders answers that miss equally much; too small to show in a report."""


@dataclasses.dataclass(frozen=True)
class QuestionAnswering(Task[squad.QuestionExamples, Candidates]):
    """See `Task`. Outputs are logits of tokens, float32 `[tokens, 2]`: of an answer that starts there, and of one that
    ends there. Predictions are the best `Candidates` of each question.

    Metrics, as SQuAD's scripts compute and name them, 0 to 100: `f1` and `exact_match`; with questions that have no
    answer, `f1`, `exact`, `HasAns_*`, `NoAns_*`, `best_*` and their thresholds.

    Args:
        options: Windows' sizes, whether some questions have no answer, and which answer is given.
    """

    options: tasks.AnsweringConfig = dataclasses.field(default_factory=tasks.AnsweringConfig)

    name = "question_answering"
    length_rule = "Longer texts are split into rows of"
    pipeline_tag = "question-answering"
    reads_tokens = True

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: tasks.TaskOptions) -> QuestionAnswering:
        """The task of a saved model."""
        return cls.of_options(options.answering, getattr(saved, OWN_FIELD, None))

    @classmethod
    def of_options(cls, options: tasks.AnsweringConfig, noted: dict[str, Any] | None = None) -> QuestionAnswering:
        """The task with these options; what they leave open is taken from a saved model's notes.

        Args:
            options: The command's options.
            noted: What `notes` returned when the model was saved.

        Raises:
            UsageError: for `null_score_diff_threshold` if every question has an answer.
        """
        noted = noted or {}
        version_2 = options.version_2_with_negative or noted.get("version_2_with_negative") is True
        if options.null_score_diff_threshold and not version_2:
            rule = "null_score_diff_threshold is for questions that may have no answer"
            received = f"null_score_diff_threshold={options.null_score_diff_threshold} without version_2_with_negative"
            raise UsageError(f"{rule}. Received: {received}. Add --version_2_with_negative, or drop it.")
        sizes = {}
        for name in ("doc_stride", "max_query_length"):
            value = noted.get(name)
            sizes[name] = getattr(options, name) or (value if type(value) is int and value > 0 else None)
        return cls(dataclasses.replace(options, version_2_with_negative=version_2, **sizes))

    @property
    def kind(self) -> str:
        some = ", some questions without an answer" if self.options.version_2_with_negative else ""
        return f"question answering{some}"

    def notes(self) -> dict[str, Any]:
        names = ("doc_stride", "max_query_length", "version_2_with_negative")
        return {name: getattr(self.options, name) for name in names}

    def at_length(self, max_seq_length: int, options: tasks.TaskOptions, notes: list[str]) -> QuestionAnswering:
        options.answering.check_length(max_seq_length)
        resolved = self.resolved(max_seq_length)
        stride, longest = resolved.options.doc_stride, resolved.options.max_query_length
        said = {"doc_stride": "Windows are {} tokens apart", "max_query_length": "Questions are cut to {} tokens"}
        for name, line in said.items():
            trained, own = getattr(self.options, name), getattr(resolved.options, name)
            if trained not in (None, own):
                notes.append(
                    f"warning: {line.format(own)}: the {trained} that the model was trained with are more than a row "
                    f"of {max_seq_length} holds."
                )
        if stride > max_seq_length - 3 - longest:
            notes.append(
                f"Windows {stride} tokens apart do not overlap for questions of more than "
                f"{max_seq_length - 3 - stride} tokens: answers across their borders are not found. A smaller "
                "--doc_stride avoids it."
            )
        return resolved

    def resolved(self, max_seq_length: int) -> QuestionAnswering:
        """The same task with its windows' sizes resolved for rows of this length; those that a row cannot hold are
        replaced by what suits it."""
        most, options = tasks.most_room(max_seq_length), self.options
        sizes = (size if size and size <= most else None for size in (options.doc_stride, options.max_query_length))
        stride, longest = tasks.window_sizes(max_seq_length, *sizes)
        return QuestionAnswering(dataclasses.replace(options, doc_stride=stride, max_query_length=longest))

    def sizes(self, max_seq_length: int) -> dict[str, int]:
        """The windows' sizes for rows of this length, as `windows_in_graph` takes them."""
        own = self.resolved(max_seq_length).options
        return {
            "max_seq_length": max_seq_length,
            "doc_stride": own.doc_stride,
            "max_query_length": own.max_query_length,
        }

    def read(self, source: Source, config: DataConfig) -> squad.QuestionExamples:
        """The questions that an option names."""
        return squad.read_questions(source, config, version_2_with_negative=self.options.version_2_with_negative)

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: CheckTexts
    ) -> dict[str, squad.QuestionExamples]:
        return read_labelled_tables(config, self.name, self.read, notes)

    def check_options(self, config: Config) -> None:
        super().check_options(config)
        if config.data.batching == "packed":
            rule = "Windows over contexts fill their rows: there is nothing to pack"
            raise UsageError(f"{rule}. Received: batching='packed' for question answering. Drop --batching.")

    def head(self) -> Head:
        return Head(kind="QuestionAnswering")

    def encode(
        self, examples: squad.QuestionExamples, tokenizer: Tokenizer, max_seq_length: int, training: Training = None
    ) -> EncodedQuestions:
        sizes = self.sizes(max_seq_length)
        windows = make_windows(tokenizer, examples.questions, examples.contexts, examples.context_of, **sizes)
        count = len(windows.example)
        labels = np.zeros([count, 2], np.int32) if training is None else window_labels(windows, examples.labels)
        return EncodedQuestions(
            tokens=windows.tokens, labels=labels, weights=np.ones(count, np.float32), windows=windows
        )

    def loss(self, training: TrainingConfig) -> SpanCrossEntropy:
        return SpanCrossEntropy()

    def predictions(self, outputs: np.ndarray, encoded: EncodedQuestions) -> Candidates:
        options = self.options
        most, longest = options.n_best_size, options.max_answer_length
        return decode(encoded.windows, outputs, n_best_size=most, max_answer_length=longest)

    def scores(self, predictions: Candidates) -> np.ndarray:
        return predictions.null_score

    @property
    def undefined_metrics(self) -> tuple[str, ...]:
        return ("exact_match",) if self.options.version_2_with_negative else ("exact", "best_f1", "best_exact")

    def answers(self, predictions: Candidates) -> Answers:
        """The answer given to each question, as arrays."""
        return Answers(*(part.numpy() for part in select_answers(predictions, self.options)))

    def _metrics(self, predictions: Candidates, examples: squad.QuestionExamples) -> dict[str, float]:
        answers = self.answers(predictions)
        texts = answers.texts(examples.contexts, examples.context_of)
        version_2 = self.options.version_2_with_negative
        return squad_metrics(_golds(examples), texts, answers.null_odds if version_2 else None)

    def write_evaluation(
        self, directory: pathlib.Path, predictions: Candidates, examples: squad.QuestionExamples, prefix: str
    ) -> None:
        """`predictions.json`, `nbest_predictions.json` and `null_odds.json` in SQuAD's form."""
        answers, version_2 = self.answers(predictions), self.options.version_2_with_negative
        places = examples.contexts, examples.context_of
        files = {"predictions": answers.texts(*places), "nbest_predictions": n_best(predictions, *places, version_2)}
        files |= {"null_odds": answers.null_odds.tolist()} if version_2 else {}
        for name, values in files.items():  # A line each: the indentation of `json` would take ten times as long.
            entries = zip(examples.ids, values, strict=True)
            lines = ",\n".join(f"{json.dumps(own_id)}: {json.dumps(value)}" for own_id, value in entries)
            write_text(directory / f"{prefix}_{name}.json", f"{{\n{lines}\n}}\n")

    def error_analysis(self, predictions: Candidates, examples: squad.QuestionExamples) -> ErrorAnalysis:
        """The error is 1 minus F1; of two equally wrong answers, the more probable one is the worse."""
        answers = self.answers(predictions)
        texts = answers.texts(examples.contexts, examples.context_of)
        version_2 = self.options.version_2_with_negative
        _, f1 = score_predictions(_golds(examples), texts, version_2_with_negative=version_2)

        def shown(row: int) -> dict[str, Any]:
            context, gold = examples.context(row), examples.answers[row]
            given = int(answers.char_start[row]), int(answers.char_end[row])
            # Some answers of published data sets are not at their answer_start: they would mark the wrong words.
            placed = [(start, start + len(text)) for text, start in gold if squad.is_there(context, text, start)]
            right = placed[0] if placed else (0, 0)
            return {
                "question": examples.questions[row],
                "answers": sorted({text for text, _ in gold}),
                "prediction": context[given[0] : given[1]],
                "context": _marked(context, right, given),
            }

        errors = np.where(f1 < 1, 1 - f1 + _TIE * answers.probability, 0.0)
        return ErrorAnalysis(errors=errors, measure="missing F1", shown=shown, facts={})

    def card(self, num_texts: int) -> str:
        none = " or says that there is none" if self.options.version_2_with_negative else ""
        return f"finds the answer to a question in a text{none}"

    def example(self, num_texts: int) -> str:
        return '{"question": "...", "context": "..."}'


def _golds(examples: squad.QuestionExamples) -> list[list[str]]:
    return [[text for text, _ in answers] for answers in examples.answers]


def _marked(context: str, right: tuple[int, int], given: tuple[int, int]) -> list[dict[str, str]]:
    """A context in parts; those in the right answer are marked `answer`, those in the given one `wrong`, or both."""
    spans = [span for span in (right, given) if span[0] < span[1]]
    first = max(min((start for start, _ in spans), default=0) - _SHOWN_CONTEXT, 0)
    last = min(max((end for _, end in spans), default=0) + _SHOWN_CONTEXT, len(context))
    edges = sorted({first, last, *(edge for span in spans for edge in span)})
    parts = [{"text": "… ", "mark": ""}] if first else []
    for start, end in zip(edges, edges[1:], strict=False):
        marks = {"answer": right[0] <= start < right[1], "wrong": given[0] <= start < given[1]}
        parts.append({"text": context[start:end], "mark": " ".join(name for name, holds in marks.items() if holds)})
    return parts + ([{"text": " …", "mark": ""}] if last < len(context) else [])


def load_questions(config: DataConfig, options: tasks.TaskOptions) -> TaskData:
    """Reads questions about contexts, with their answers."""
    task, notes = QuestionAnswering.of_options(options.answering), []
    task = task.at_length(config.max_seq_length or task.default_max_seq_length, options, notes)
    sets = read_training_tables(config, task.name, task.read, notes)
    sets = hold_out(
        sets, config, notes, lambda train: equal(train.contexts[place].strip() for place in train.context_of)
    )
    sets["train"] = squad.training_questions(sets["train"], notes)
    return data_of(task, sets, notes, config)


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_words(text: str) -> tuple[str, ...]:
    """What counts of an answer: its words in lower case, without punctuation and articles."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score_predictions(
    golds: Sequence[Sequence[str]], predictions: Sequence[str], *, version_2_with_negative: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Compares each prediction with the best of its gold answers.

    Args:
        golds: The texts of all gold answers of each question; an empty list for a question without an answer.
        predictions: One per question; empty for no answer.
        version_2_with_negative: Whether version 2.0's rules hold.

    Returns:
        float64 `[questions]`, 0 or 1: whether both are equal except for case, punctuation, articles and spaces; and
        float64 `[questions]`, 0 to 1: the F1 of the words of both.
    """
    counted = functools.cache(answer_words)
    exact, f1 = np.zeros((2, len(golds)))
    for row, (given, predicted) in enumerate(zip(golds, predictions, strict=True)):
        answers, words = [counted(gold) for gold in given], counted(predicted)
        if version_2_with_negative:
            answers = [gold for gold in answers if gold] or [()]
        exact[row] = words in answers
        f1[row] = max((_f1(gold, words, empty_agrees=version_2_with_negative) for gold in answers), default=0)
    return exact, f1


def squad_metrics(
    golds: Sequence[Sequence[str]], predictions: Sequence[str], null_odds: np.ndarray | None = None
) -> dict[str, float]:
    """The metrics of SQuAD's scripts, on their scale of 0 to 100.

    Args:
        golds: As for `score_predictions`.
        predictions: As for `score_predictions`.
        null_odds: For version 2.0's script, `[questions]`: how much more likely no answer is than any answer, by any
            measure. None: as version 1.1's.

    Returns:
        `f1` and `exact_match`. Or version 2.0's `f1`, `exact` and `total`; the same three as `HasAns_*` and `NoAns_*`
        for the questions with and without an answer, if there are any; and `best_exact`, `best_exact_thresh`, `best_f1`
        and `best_f1_thresh`: the best scores if answers whose odds are above a threshold are withdrawn, and the
        thresholds.
    """
    exact, f1 = score_predictions(golds, predictions, version_2_with_negative=null_odds is not None)
    if null_odds is None:
        return {"f1": _percent(f1), "exact_match": _percent(exact)}
    has_answer, gives_answer = (np.array([bool(given) for given in column]) for column in (golds, predictions))
    out: dict[str, float] = {}
    for prefix, rows in (("", np.ones_like(has_answer)), ("HasAns_", has_answer), ("NoAns_", ~has_answer)):
        if rows.any():
            own = {"exact": _percent(exact[rows]), "f1": _percent(f1[rows]), "total": int(rows.sum())}
            out |= {f"{prefix}{name}": value for name, value in own.items()}
    for name, values in (("exact", exact), ("f1", f1)):
        # What answering one question more gains, in the order of the odds; the first score is that of answering none.
        order = np.argsort(null_odds, kind="stable")
        gains = np.where(has_answer, values, -1.0 * gives_answer)[order]
        scores = np.cumsum([(~has_answer).sum(), *gains])
        best = int(scores.argmax())
        out[f"best_{name}"] = 100.0 * scores[best] / len(golds)
        out[f"best_{name}_thresh"] = null_odds[order[best - 1]] if best else 0.0
    return {"f1": out["f1"]} | out


def _f1(gold: tuple[str, ...], predicted: tuple[str, ...], *, empty_agrees: bool) -> float:
    if not gold or not predicted:
        return float(empty_agrees and gold == predicted)
    num_same = (collections.Counter(gold) & collections.Counter(predicted)).total()
    precision, recall = num_same / len(predicted), num_same / len(gold)
    return (2 * precision * recall) / (precision + recall) if num_same else 0.0


def _percent(values: np.ndarray) -> float:
    """Adds the values one by one, as evaluate-v1.1.py does, and version 2 did until Python 3.11: since 3.12, `sum`
    compensates for rounding, as `np.sum` does in another way."""
    return float(100.0 * np.cumsum(values)[-1] / len(values))


class QuestionItems(prediction.Items[prediction.Item]):
    """Questions about contexts: the two texts of each item."""

    most = 512  # Each has a row for every window over its context.

    def item(self, value: Any, where: str) -> prediction.Item:
        if isinstance(value, Mapping):
            value = dict(zip(squad.QUESTION_COLUMNS, self.as_trained(value, "text_column"), strict=False)) or value
        if not isinstance(value, Mapping) or not value.keys() >= {*squad.QUESTION_COLUMNS}:
            received = f"the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else f"{value!r:.60}"
            raise UsageError(
                'A question comes with its context, as {"question": ..., "context": ...}. '
                f"Received: {received} in {where}. Pass both."
            )
        return self.row({name: value[name] for name in squad.QUESTION_COLUMNS}, where)

    def row(self, texts: Mapping[str, Any], where: str) -> prediction.Item:
        columns = zip(squad.QUESTION_COLUMNS, texts.values(), strict=True)
        found = [squad.filled_text(text, what, where, strict=False) for what, text in columns]
        return prediction.Item(texts=found)

    def encode(self, items: Sequence[prediction.Item]) -> EncodedQuestions:
        index: dict[str, int] = {}  # Each context is tokenised once.
        context_of = [index.setdefault(item.texts[1], len(index)) for item in items]
        return self._model.encode(
            squad.QuestionExamples(
                name=prediction.NAME,
                ids=[],
                questions=[item.texts[0] for item in items],
                contexts=[*index],
                context_of=np.array(context_of, np.int32),
                answers=[],
            )
        )

    def answers(self, items: Sequence[prediction.Item], predictions: Candidates) -> Iterator[dict[str, Any]]:
        """For no answer, the text is empty, and `start` and `end` are 0."""
        found = self.task.answers(predictions)
        columns = (found.char_start.tolist(), found.char_end.tolist(), found.probability.tolist())
        for item, start, end, score in zip(items, *columns, strict=True):
            yield {"score": rounded(score), "start": start, "end": end, "answer": item.texts[1][start:end]}

    def records(self, items: Sequence[prediction.Item], predictions: Candidates) -> Iterator[dict[str, Any]]:
        return ({name: answer[name] for name in self.columns()} for answer in self.answers(items, predictions))

    def columns(self) -> Sequence[str]:
        return ("answer", "start", "end", "score")


def open_question_files(config: Config) -> list[prediction.Job]:
    """The questions to answer, and where the answers go.

    Raises:
        UsageError: for input that cannot be opened, or output without a known ending.
    """
    asked, data = config.predict, config.data
    if asked.text and not asked.text_pair:
        todo = "Pass --text=QUESTION --text_pair=CONTEXT."
        raise UsageError(f"A question is answered from a context. Received: text={asked.text[0]!r:.60} alone. {todo}")
    if asked.text:
        file = prediction.typed_texts(asked, squad.QUESTION_COLUMNS)
    else:
        file = squad.open_questions(input_source(asked.input_file), data)
    columns = squad.question_columns(file, data.text_column)
    format, seen = prediction.chosen_format(asked, PREDICTED_ANSWERS, default="jsonl"), set()

    def check(name: Any, where: str) -> None:
        if format == "squad" and str(name) in seen:
            rule = "In SQuAD's form, every question needs a unique id"
            received = f"{str(name)!r:.60} a second time in {where}"
            raise UsageError(f"{rule}. Received: {received}. Rename one, or pass --output_format=jsonl.")
        seen.add(str(name))

    return [prediction.table_job(config, file, columns, check=check, format=format)]


class QuestionAnswerer(prediction.ServedModel):
    """Takes `question` and `context`; gives the answers of `--mode=predict`.

    Returns `answer`, string `[n]`, cut from the context; `start` and `end`, int32 `[n]`, its first character and the
    one after its last, as Python counts characters; `score`, float32 `[n]`, its probability among the `n_best_size`
    best candidates; `error`, see `ServedModel`. No answer is an empty text from 0 to 0; so is that of a row with an
    error, with a score of 0: an empty question or context, which `--mode=predict` refuses.

    For rows of token ids, returns `start_logits` and `end_logits`, float32 `[n, length]`, and `error`.
    """

    num_texts: ClassVar[int | None] = 2
    text_inputs = ("question", "context")

    @staticmethod
    def settings(task: Any) -> dict[str, Any]:
        return dataclasses.asdict(task.options)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        tokenizer, options = self._model.tokenizer, self._model.task.options
        with tf.device("CPU:0"):
            is_blank = [tf.strings.regex_full_match(text, prediction.BLANK) for text in (question, context)]
            error = tf.where(is_blank[0] | is_blank[1], "A question and its context must not be empty.", "")
            question, context = (tf.where(error == "", text, "") for text in (question, context))
            windows = windows_in_graph(
                tokenizer,
                tokenizer.tokenize(question),
                tokenizer.tokenize_with_offsets(context),
                tf.range(tf.size(context, tf.int64)),
                **self._model.task.sizes(self._model.max_seq_length),
            )
        logits = self.logits_of(windows.tokens)
        with tf.device("CPU:0"):
            error, logits = prediction.without_endless(error, logits, windows.tokens, windows.example)
            most, longest = (min(size, tf.int32.max) for size in (options.n_best_size, options.max_answer_length))
            found = select_answers(candidates_in_graph(windows, logits, most, longest), options)
            rows, is_answered = tf.range(tf.size(context, tf.int64)), error == ""
            start, end = (tf.where(is_answered, place, 0) for place in (found.char_start, found.char_end))
            return {
                "answer": prediction.substrings(context, rows, start, end),
                "start": start,
                "end": end,
                "score": tf.where(is_answered, tf.cast(found.probability, tf.float32), 0.0),
                "error": error,
            }

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        start, end = tf.unstack(logits, axis=2)
        return {"start_logits": start, "end_logits": end}
