"""Windows for question answering: rows `[CLS] question [SEP] part of the context [SEP]`, or as the tokenizer has them;
and scores of where an answer starts and ends -> the best answers, over all windows of a question at once.

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

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import TokenTensors
from tfbert.config.tasks import MAX_ANSWER_LENGTH, N_BEST_SIZE, AnsweringConfig
from tfbert.measure import counted_alone
from tfbert.tasks.prediction import in_parts
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


def make_windows(
    tokenizer: Tokenizer,
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
        doc_stride: Most tokens from the start of a window to the start of the next one, at least 1.
        max_query_length: Most tokens of a question, at least 1; the rest is left out.

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
            max_seq_length=max_seq_length,
            doc_stride=doc_stride,
            max_query_length=max_query_length,
        )
    return Windows(found.tokens.in_memory(), *(part.numpy() for part in found[1:]))


def windows_in_graph(
    tokenizer: Tokenizer,
    questions: tf.RaggedTensor,
    contexts: Pieces,
    context_of: tf.Tensor,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
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

    row, token = ids.value_rowids(), tf.range(tf.size(ids.values, tf.int64))
    left = token - tf.gather(ids.row_starts() + context_start, row)  # Tokens of context before it in the window.
    in_context = (left >= 0) & (left < tf.gather(length, row))
    # The place of a token among those of all contexts; the place after them all for other tokens.
    source = tf.where(in_context, tf.gather(first, row) + left, tf.size(contexts.ids.values, tf.int64))
    characters = (tf.gather(tf.concat([part.values, [0]], 0), source) for part in (contexts.starts, contexts.ends))
    # The same for each question by itself: others may have the same context.
    origin = tf.gather(tf.cumsum(total, exclusive=True), example) + first_token
    own = tf.where(in_context, tf.gather(origin, row) + left, tf.reduce_sum(total))
    most = in_context & _has_most_context(left, tf.gather(length, row), own, tf.reduce_sum(total) + 1)
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


def _has_most_context(left: tf.Tensor, length: tf.Tensor, source: tf.Tensor, num_sources: tf.Tensor) -> tf.Tensor:
    """bool `[tokens]`: whether this window gives a token of context the most context; of equal windows the first does.

    Args:
        left: int64 `[tokens]`, the tokens of context before the token in its window.
        length: int64 `[tokens]`, the window's tokens of context.
        source: int64 `[tokens]`, a number that is the same for the same token of a context.
        num_sources: All numbers of `source` are below this.
    """
    nearer = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
    score = nearer + 0.01 * tf.cast(length, tf.float64)
    token, last = tf.range(tf.size(left)), tf.size(left)
    is_best = score == tf.gather(tf.math.unsorted_segment_max(score, source, num_sources), source)
    winner = tf.math.unsorted_segment_min(tf.where(is_best, token, last), source, num_sources)
    return token == tf.gather(winner, source)


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
    n_best_size: int = N_BEST_SIZE,
    max_answer_length: int = MAX_ANSWER_LENGTH,
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
    pairs = in_parts(pairs_of, every, tf.maximum(PAIRS_AT_ONCE // tf.maximum(most * most, 1), 1), none)
    # If no pair of a question counts, each of its windows gives its best.
    owner = tf.gather(windows.example, pairs[:, 0])
    without = tf.math.unsorted_segment_sum(tf.ones_like(owner), owner, num_questions) == 0
    without = tf.gather(without, windows.example) & tf.reduce_any(can_start, axis=1)
    at_once = tf.maximum(PAIRS_AT_ONCE // tf.maximum(width * max_answer_length, 1), 1)
    rest = in_parts(best_pairs, tf.boolean_mask(every, without), at_once, none)
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


def select_answers(candidates: Candidates, options: AnsweringConfig) -> Answers:
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
