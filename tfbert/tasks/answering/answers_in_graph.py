"""The twins of `answers` and `answer_lists` in the TensorFlow graph: logits of windows -> answers."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfbert.tasks.answering.answers import PAIRS_AT_ONCE
from tfbert.tasks.answering.question_answering import QuestionAnswering
from tfbert.tasks.answering.windows_in_graph import Windows

_NONE = float("-inf")


class Answers(NamedTuple):
    """The answer to each question; characters 0 to 0 where there is none. See `answer_files.Answers`.

    Attributes:
        char_start: int32 `[n]`, its first character in the context.
        char_end: int32 `[n]`, the character after its last.
        probability: float64 `[n]`, of the given answer, or of no answer, among all candidates.
    """

    char_start: tf.Tensor
    char_end: tf.Tensor
    probability: tf.Tensor


class _Candidates(NamedTuple):
    """Parts of contexts, the best ones of each question: question after question, best first."""

    example: tf.Tensor  # int64 [m]
    char_start: tf.Tensor  # int32 [m]
    char_end: tf.Tensor  # int32 [m]
    score: tf.Tensor  # float64 [m]
    rank: tf.Tensor  # int64 [m]: 0 for the best of its question.


def answers_in_graph(windows: Windows, logits: tf.Tensor, num_questions: tf.Tensor, task: QuestionAnswering) -> Answers:
    """The answers that the task gives to these windows.

    Args:
        windows: Those of all questions.
        logits: float32 `[tokens, 2]`, of an answer that starts at each token, and of one that ends there.
        num_questions: int32 `[]`, how many questions there are.
        task: Its options decide.
    """
    n_best_size, max_answer_length = (min(most, tf.int32.max) for most in (task.n_best_size, task.max_answer_length))
    pairs = _pairs(windows, logits, num_questions, n_best_size, max_answer_length)
    found = _candidates(windows, logits, num_questions, pairs, n_best_size)
    is_best = found.rank == 0
    owner = tf.boolean_mask(found.example, is_best)[:, tf.newaxis]

    def of_best(values: tf.Tensor) -> tf.Tensor:  # 0 for a question without candidates.
        return tf.scatter_nd(owner, tf.boolean_mask(values, is_best), tf.cast([num_questions], tf.int64))

    answered = of_best(tf.ones_like(found.rank)) > 0
    best = of_best(found.score)
    of_rows = tf.reduce_sum(tf.cast(tf.gather(logits, windows.row_splits[:-1]), tf.float64), axis=1)
    null = tf.math.unsorted_segment_min(of_rows, windows.example, num_questions)

    # A softmax over the candidates, and over no answer where that is one of them.
    has_null = tf.ones_like(answered) if task.version_2_with_negative else ~answered
    largest = tf.maximum(tf.where(has_null, null, _NONE), tf.where(answered, best, _NONE))
    own = tf.exp(found.score - tf.gather(largest, found.example))
    null_share = tf.where(has_null, tf.exp(null - largest), 0.0)
    total = null_share + tf.math.unsorted_segment_sum(own, found.example, num_questions)
    if task.version_2_with_negative:
        answered &= null - best <= task.null_score_diff_threshold
    return Answers(
        tf.where(answered, of_best(found.char_start), 0),
        tf.where(answered, of_best(found.char_end), 0),
        tf.where(answered, tf.exp(best - largest), null_share) / total,
    )


def _pairs(
    windows: Windows, logits: tf.Tensor, num_questions: tf.Tensor, n_best_size: int, max_answer_length: int
) -> tf.Tensor:
    """Pairs that count, as `answers.decode` finds them: int64 `[pairs, 3]` of window, start and end, both as positions
    in the row."""

    def rows(values: tf.Tensor, fill: float | bool) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_row_splits(values, windows.row_splits, validate=False)
        return ragged.to_tensor(fill)  # [windows, width]

    start_logits, end_logits = rows(logits[:, 0], _NONE), rows(logits[:, 1], _NONE)
    can_start, can_end = rows(windows.max_context, False), rows(windows.in_context, False)
    count, width = tf.unstack(tf.shape(start_logits))
    most = tf.minimum(n_best_size, width)
    max_answer_length = tf.minimum(max_answer_length, width)  # None is longer than a row.
    at_once = tf.maximum(PAIRS_AT_ONCE // tf.maximum(most * most, 1), 1)
    copies = _copies(rows(windows.char_start, 0), can_end) * _copies(rows(windows.char_end, 0), can_end)
    kept = tf.minimum(tf.cast(tf.minimum(n_best_size, most * most), tf.int64) * copies, tf.cast(most * most, tf.int64))

    def pairs_of(number: tf.Tensor, found: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        own = slice(number * at_once, (number + 1) * at_once)
        # Of equal logits the first.
        (first, starts), (last, ends) = (tf.math.top_k(values[own], most) for values in (start_logits, end_logits))
        length = ends[:, tf.newaxis, :] - starts[:, :, tf.newaxis] + 1
        valid = (length >= 1) & (length <= max_answer_length)
        valid &= tf.gather(can_start[own], starts, batch_dims=1)[:, :, tf.newaxis]
        valid &= tf.gather(can_end[own], ends, batch_dims=1)[:, tf.newaxis, :]
        # Keep only as many as can be among the best of the question.
        scores = tf.cast(first, tf.float64)[:, :, tf.newaxis] + tf.cast(last, tf.float64)[:, tf.newaxis, :]
        scores = tf.where(valid, scores, _NONE)
        num_ranked = tf.cast(tf.reduce_max(kept[own]), tf.int32)
        ranked = tf.math.top_k(tf.reshape(scores, [-1, most * most]), num_ranked).values
        valid &= scores >= tf.gather(ranked, kept[own] - 1, batch_dims=1)[:, tf.newaxis, tf.newaxis]
        row, start, end = tf.unstack(tf.where(valid), axis=1)
        start, end = (
            tf.cast(tf.gather_nd(positions, tf.stack([row, rank], axis=1)), tf.int64)
            for positions, rank in ((starts, start), (ends, end))
        )
        row += tf.cast(number * at_once, tf.int64)
        return number + 1, found.write(number, tf.stack([row, start, end], axis=1))

    none = tf.TensorArray(tf.int64, size=0, dynamic_size=True, infer_shape=False, element_shape=[None, 3])
    _, found = tf.while_loop(
        lambda number, _: number * at_once < count,
        pairs_of,
        (0, none),
        parallel_iterations=1,  # Else several are in memory at a time.
    )
    pairs = found.concat()
    row = pairs[:, 0]

    def best_pair(row: tf.Tensor) -> tf.Tensor:
        """The best pair of one window, among all starts and ends."""
        beyond = [[0, max_answer_length - 1]]
        last = tf.range(tf.shape(can_end)[1])[:, tf.newaxis] + tf.range(max_answer_length)
        scores = tf.cast(start_logits[row], tf.float64)[:, tf.newaxis]
        scores += tf.cast(tf.gather(tf.pad(end_logits[row], beyond), last), tf.float64)
        inside = can_start[row][:, tf.newaxis] & tf.gather(tf.pad(can_end[row], beyond), last)
        place = tf.math.top_k(tf.reshape(tf.where(inside, scores, _NONE), [-1]), 1).indices[0]
        start = tf.cast(place // max_answer_length, tf.int64)
        return tf.stack([row, start, start + tf.cast(place % max_answer_length, tf.int64)])

    # If no pair of a question counts, each of its windows gives its best.
    counts = tf.math.unsorted_segment_sum(tf.ones_like(row), tf.gather(windows.example, row), num_questions)
    without = (tf.gather(counts, windows.example) == 0) & tf.reduce_any(can_start, axis=1)
    rest = tf.map_fn(best_pair, tf.where(without)[:, 0], fn_output_signature=tf.TensorSpec([3], tf.int64))
    return tf.concat([pairs, rest], 0)


def _copies(characters: tf.Tensor, in_context: tf.Tensor) -> tf.Tensor:
    """See `answers._copies`: int64 `[windows]`."""
    same = (characters[:, 1:] == characters[:, :-1]) & in_context[:, 1:] & in_context[:, :-1]
    return 1 + tf.math.count_nonzero(same, axis=1)


def _candidates(
    windows: Windows, logits: tf.Tensor, num_questions: tf.Tensor, pairs: tf.Tensor, n_best_size: int
) -> _Candidates:
    """The best pairs of each question; of pairs with the same characters the best."""
    row, start, end = tf.unstack(pairs, axis=1)
    origin = tf.gather(windows.row_splits, row)
    first, last = origin + start, origin + end
    example = tf.gather(windows.example, row)
    score = sum(tf.cast(tf.gather(logits[:, i], token), tf.float64) for i, token in enumerate((first, last)))
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
    order, rank = (tf.boolean_mask(values, rank < n_best_size) for values in (order, rank))
    return _Candidates(*(tf.gather(values, order) for values in (example, char_start, char_end, score)), rank)
