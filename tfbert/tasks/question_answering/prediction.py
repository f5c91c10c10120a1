"""Prediction of answers: questions and contexts in Python, in tables, or in SQuAD's JSON -> an answer for each.

Question answering as a SavedModel: questions and contexts -> answers, with their characters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from tfbert.config.run import Config
from tfbert.config.tasks import most_room
from tfbert.data.files import check_text
from tfbert.data.reading import PREDICTED_ANSWERS
from tfbert.data.rows import input_source
from tfbert.errors import UsageError
from tfbert.tasks import prediction
from tfbert.tasks.base import Task, rounded
from tfbert.tasks.question_answering import squad
from tfbert.tasks.question_answering.windows import Candidates, answers_in_graph, no_room_error, windows_in_graph


class QuestionItems(prediction.Items[prediction.Item]):
    """Questions about contexts: the two texts of each item."""

    most = 512  # Each has a row for every window over its context.

    def __init__(self, model: prediction.TrainedModel, top_k: Literal["best"] = prediction.BEST):
        super().__init__(model, top_k)
        self._longest = self.task.resolved(model.max_seq_length).max_query_length

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
        found = [check_text(text, name, where, strict=False) for name, text in texts.items()]
        for what, text in zip(squad.QUESTION_COLUMNS, found, strict=True):
            if not text.strip():
                raise squad.blank_error(what, where)
        model, num_special = self._model, self._model.tokenizer.num_special(2)
        most = model.max_seq_length - num_special - 1
        # Only those are tokenised that may be too long.
        if self._longest > most and model.tokenizer.most_per_character * len(found[0]) > most:
            (tokens,) = np.diff(model.tokenizer.encode_with_offsets(found[:1]).row_splits)
            if tokens > most:
                raise no_room_error(model.max_seq_length, min(tokens, self._longest), f"in {where}", num_special)
        return prediction.Item(texts=found)

    def encode(self, items: Sequence[prediction.Item]) -> squad.EncodedQuestions:
        return self._model.encode(squad.QuestionExamples(table=unanswered(items)))

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
        raise UsageError(
            f"A question is answered from a context. Received: text={asked.text[0]!r:.60} alone. "
            "Pass --text=QUESTION --text_pair=CONTEXT."
        )
    if asked.text:
        file = prediction.typed_texts(asked, squad.QUESTION_COLUMNS)
    else:
        file = squad.open_questions(input_source(asked.input_file), data)
    columns = squad.question_columns(file, data.text_column)
    format, seen = prediction.chosen_format(asked, PREDICTED_ANSWERS, default="jsonl"), set()

    def check(name: Any, where: str) -> None:
        if format == "squad" and str(name) in seen:
            raise UsageError(
                "In SQuAD's form, every question needs a unique id. "
                f"Received: {str(name)!r:.60} a second time in {where}. Rename one, or pass --output_format=jsonl."
            )
        seen.add(str(name))

    return [prediction.table_job(config, file, columns, check=check, format=format)]


def unanswered(items: Sequence[prediction.Item]) -> squad.QuestionTable:
    """Questions without answers as a table of distinct contexts, so that each context is tokenised once."""
    index: dict[str, int] = {}
    context_of = [index.setdefault(item.texts[1], len(index)) for item in items]
    none: list[Any] = [()] * len(items)
    return squad.QuestionTable(
        name=prediction.NAME,
        ids=[str(number) for number in range(len(items))],
        questions=[item.texts[0] for item in items],
        contexts=list(index),
        context_of=np.array(context_of, np.int32),
        answers=none,
        is_impossible=np.zeros(len(items), bool),
        places=np.zeros([len(items), 1], np.int32),
        place_names=("row",),
    )


class QuestionAnswerer(prediction.ServedModel):
    """Takes `question` and `context`; gives the answers of `--mode=predict`.

    Returns `answer`, string `[n]`, cut from the context; `start` and `end`, int32 `[n]`, its first character and the
    one after its last, as Python counts characters; `score`, float32 `[n]`, its probability among the `n_best_size`
    best candidates; `error`, see `ServedModel`. No answer is an empty text from 0 to 0; so is that of a row with an
    error, with a score of 0: an empty question or context, which `--mode=predict` refuses, or no room for a context.

    For rows of token ids, returns `start_logits` and `end_logits`, float32 `[n, length]`, and `error`.
    """

    num_texts: ClassVar[int | None] = 2
    text_inputs = ("question", "context")

    def __init__(self, model: prediction.TrainedModel):
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
            error, logits = prediction.without_endless(error, logits, windows.tokens, windows.example)
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
                "answer": prediction.substrings(context, rows, start, end),
                "start": start,
                "end": end,
                "score": tf.where(is_answered, tf.cast(found.probability, tf.float32), 0.0),
                "error": error,
            }

    def _errors(self, question: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """string `[n]`: why a row cannot be answered; empty if it can."""
        is_blank = tf.strings.regex_full_match(question, prediction.BLANK) | tf.strings.regex_full_match(
            context, prediction.BLANK
        )
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
