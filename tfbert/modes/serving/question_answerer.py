"""Question answering as a SavedModel: questions and contexts -> answers, with their characters."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import tensorflow as tf

from tfbert.modes.serving.answers_in_graph import answers_in_graph
from tfbert.modes.serving.served_model import ServedModel, substrings
from tfbert.modes.serving.windows_in_graph import windows_in_graph
from tfbert.tasks.base import Task

_BLANK = r"[\s\x0b\x1c-\x1f\x{85}\pZ]*"
"""Matches a text of which Python's `str.strip` leaves nothing."""


class QuestionAnswerer(ServedModel):
    """Takes `question` and `context`; gives the answers of `--mode=predict`.

    Returns `answer`, string `[n]`, cut from the context; `start` and `end`, int32 `[n]`, its first character and the
    one after its last, as Python counts characters; `score`, float32 `[n]`, its probability among the `n_best_size`
    best candidates. No answer is an empty text from 0 to 0. An empty question or context, which `--mode=predict`
    refuses, ends in an InvalidArgumentError.

    For rows of token ids, returns `start_logits` and `end_logits`, float32 `[n, length]`.
    """

    num_texts: ClassVar[int | None] = 2
    text_inputs = ("question", "context")

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        return dataclasses.asdict(task)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        task, tokenizer = self._model.task, self._model.tokenizer
        with tf.device("CPU:0"), tf.control_dependencies([_check_filled(question, context)]):
            windows = windows_in_graph(
                tokenizer,
                tokenizer.tokenize(question),
                tokenizer.tokenize_with_offsets(context),
                max_seq_length=self._model.max_seq_length,
                doc_stride=task.doc_stride,
                max_query_length=task.max_query_length,
            )
        logits = self.token_logits(windows.tokens)
        with tf.device("CPU:0"):
            found = answers_in_graph(windows, logits, tf.size(question), task)
            rows = tf.range(tf.size(context, tf.int64))
            return {
                "answer": substrings(context, rows, found.char_start, found.char_end),
                "start": found.char_start,
                "end": found.char_end,
                "score": tf.cast(found.probability, tf.float32),
            }

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        start, end = tf.unstack(logits, axis=2)
        return {"start_logits": start, "end_logits": end}


def _check_filled(question: tf.Tensor, context: tf.Tensor) -> tf.Operation:
    """Refuses texts that are empty, or only white space."""
    is_blank = tf.strings.regex_full_match(question, _BLANK) | tf.strings.regex_full_match(context, _BLANK)
    rule = "A question and its context must not be empty. Received: an empty one in row, counted from 0: "
    return tf.debugging.Assert(~tf.reduce_any(is_blank), [rule, tf.where(is_blank)[:1, 0]])
