"""Question answering as a SavedModel: questions and contexts -> answers, with their characters."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import tensorflow as tf

from tfbert.config.tasks import most_room
from tfbert.tasks.answering.answers import answers_in_graph
from tfbert.tasks.answering.windows import windows_in_graph
from tfbert.tasks.base import Task
from tfbert.tasks.served_model import BLANK, ServedModel, substrings, without_endless
from tfbert.tasks.trained import TrainedModel


class QuestionAnswerer(ServedModel):
    """Takes `question` and `context`; gives the answers of `--mode=predict`.

    Returns `answer`, string `[n]`, cut from the context; `start` and `end`, int32 `[n]`, its first character and the
    one after its last, as Python counts characters; `score`, float32 `[n]`, its probability among the `n_best_size`
    best candidates; `error`, see `ServedModel`. No answer is an empty text from 0 to 0; so is that of a row with an
    error, with a score of 0: an empty question or context, which `--mode=predict` refuses, or no room for a context.

    For rows of token ids, returns `start_logits` and `end_logits`, float32 `[n, length]`, and `error`.
    """

    num_texts: ClassVar[int | None] = 2
    text_inputs = ("question", "context")

    def __init__(self, model: TrainedModel):
        super().__init__(dataclasses.replace(model, task=model.task.resolved(model.max_seq_length)))

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        return dataclasses.asdict(task)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        task, tokenizer = self._model.task, self._model.tokenizer
        with tf.device("CPU:0"):
            error = self._errors(question, context)
            question, context = (tf.where(error == "", text, "") for text in (question, context))
            windows = windows_in_graph(
                tokenizer,
                tokenizer.tokenize(question),
                tokenizer.tokenize_with_offsets(context),
                tf.range(tf.size(context, tf.int64)),
                max_seq_length=self._model.max_seq_length,
                doc_stride=task.doc_stride,
                max_query_length=task.max_query_length,
            )
        logits = self.token_logits(windows.tokens)
        with tf.device("CPU:0"):
            error, logits = without_endless(error, logits, windows.tokens, windows.example)
            found = answers_in_graph(
                windows,
                logits,
                tf.size(question),
                n_best_size=task.n_best_size,
                max_answer_length=task.max_answer_length,
                version_2_with_negative=task.version_2_with_negative,
                null_score_diff_threshold=task.null_score_diff_threshold,
            )
            rows, is_answered = tf.range(tf.size(context, tf.int64)), error == ""
            start, end = (tf.where(is_answered, place, 0) for place in (found.char_start, found.char_end))
            return {
                "answer": substrings(context, rows, start, end),
                "start": start,
                "end": end,
                "score": tf.where(is_answered, tf.cast(found.probability, tf.float32), 0.0),
                "error": error,
            }

    def _errors(self, question: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """string `[n]`: why a row cannot be answered; empty if it can."""
        is_blank = tf.strings.regex_full_match(question, BLANK) | tf.strings.regex_full_match(context, BLANK)
        error = tf.where(is_blank, "A question and its context must not be empty.", "")
        length = self._model.max_seq_length
        if self._model.task.max_query_length > most_room(length):  # Else every question is cut to what fits.
            is_long = self._model.tokenizer.tokenize(question).row_lengths() > most_room(length)
            rule = "A row must hold a question, 3 special tokens and some of the context: the question is too long."
            error = tf.where(is_long & ~is_blank, rule, error)
        return error

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        start, end = tf.unstack(logits, axis=2)
        return {"start_logits": start, "end_logits": end}
