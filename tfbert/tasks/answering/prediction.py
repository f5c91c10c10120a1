"""Prediction of answers: rows of questions and contexts, or SQuAD's JSON -> an answer for each question."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfbert.config.run import Config
from tfbert.data.endings import PREDICTED_ANSWERS
from tfbert.data.open_file import BadRows
from tfbert.data.rows import input_source
from tfbert.errors import UsageError
from tfbert.tasks.answering.answer_lists import Asked, check_new, open_answers
from tfbert.tasks.answering.examples import EncodedQuestions, QuestionExamples
from tfbert.tasks.answering.questions import QuestionTable
from tfbert.tasks.answering.squad import QUESTION_COLUMNS, open_questions, question_columns, without_blanks
from tfbert.tasks.answering.windows import no_room_error
from tfbert.tasks.prediction_files import PredictionFile, chosen_format
from tfbert.tasks.prediction_texts import (
    RowsJob,
    TextJob,
    check_id_column,
    output_path,
    read_texts,
    typed_texts,
    usual_id_column,
)
from tfbert.tasks.trained import TrainedModel

CHUNK_QUESTIONS = 512
"""Questions that are read and answered together; each has a row for every window over its context."""


@dataclasses.dataclass(frozen=True)
class Questions:
    """Consecutive rows."""

    ids: list[Asked]


class QuestionJob(RowsJob):
    """A file of questions and contexts, see `Job`."""

    def writer(self, model: TrainedModel, *, is_writer: bool) -> PredictionFile:
        return open_answers(self.path, self.texts.format, model.task, is_writer=is_writer)

    def chunks(self, model: TrainedModel, bad_rows: BadRows) -> Iterator[Questions]:
        own = self.texts
        check_room, seen = room_check(model), set()

        def check(name: Any, values: list[str], where: str) -> None:
            check_room(values[0], where)
            if own.format == "squad":
                check_new(str(name), seen, where)

        read = read_texts(own.file, own.texts, own.id_column, bad_rows, most_rows=CHUNK_QUESTIONS, check=check)
        for chunk in read:
            rows = zip(chunk.ids, chunk.text, chunk.text_pair, strict=True)
            yield Questions([Asked(name=name, question=question, context=context) for name, question, context in rows])

    def encoder(self, model: TrainedModel) -> Callable[[Questions], EncodedQuestions]:
        return lambda chunk: model.encode(QuestionExamples(table=unanswered(self.name, chunk.ids)))


def open_question_files(config: Config) -> list[QuestionJob]:
    """The questions to answer, and where the answers go.

    Raises:
        UsageError: for input that cannot be opened, output without a known ending, or a data set by name.
    """
    asked, data = config.predict, config.data
    if data.dataset or asked.glue_task:
        raise UsageError(
            "Questions are answered from files. "
            f"Received: dataset={data.dataset!r}, glue_task={asked.glue_task!r}. Pass --input_file."
        )
    if asked.text and not asked.text_pair:
        raise UsageError(
            f"A question is answered from a context. Received: text={asked.text[0]!r:.60} alone. "
            "Pass --text=QUESTION --text_pair=CONTEXT."
        )
    if asked.text:
        file = without_blanks(typed_texts(asked, QUESTION_COLUMNS))
    else:
        file = open_questions(input_source(asked.input_file), data)
    columns = question_columns(file, data.text_column)
    id_column = asked.id_column or usual_id_column([column for column in file.columns if column not in columns])
    check_id_column(id_column, file.name, file.columns)
    format = chosen_format(asked, PREDICTED_ANSWERS, default="jsonl")
    job = TextJob(file=file, texts=columns, id_column=id_column, path=output_path(asked), format=format)
    return [QuestionJob(texts=job)]


def room_check(model: TrainedModel) -> Callable[[str, str], None]:
    """A function that refuses a question too long to leave room for its context; it takes the question and its place.

    It tokenises only questions that may be that long.
    """
    task, num_special = model.task.resolved(model.max_seq_length), model.tokenizer.num_special(2)
    most = model.max_seq_length - num_special - 1

    def check(question: str, where: str) -> None:
        if model.tokenizer.most_per_character * len(question) > most:
            (tokens,) = np.diff(model.tokenizer.encode_with_offsets([question]).row_splits)
            if tokens > most:
                longest = min(tokens, task.max_query_length)
                raise no_room_error(model.max_seq_length, longest, f"in {where}", num_special)

    return check if task.max_query_length > most else lambda question, where: None


def unanswered(name: str, rows: Sequence[Asked]) -> QuestionTable:
    """Questions without answers as a table of distinct contexts, so that each context is tokenised once."""
    index: dict[str, int] = {}
    context_of = [index.setdefault(row.context, len(index)) for row in rows]
    none: list[Any] = [()] * len(rows)
    return QuestionTable(
        name=name,
        ids=[str(number) for number in range(len(rows))],
        questions=[row.question for row in rows],
        contexts=list(index),
        context_of=np.array(context_of, np.int32),
        answers=none,
        is_impossible=np.zeros(len(rows), bool),
        places=np.zeros([len(rows), 1], np.int32),
        place_names=("row",),
    )
