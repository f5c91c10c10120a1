"""Writes predicted answers one by one: as JSON lines, a table, or an object as SQuAD's scripts take it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tfbert.data.endings import TABLES
from tfbert.errors import UsageError
from tfbert.tasks.answering.answers import Candidates
from tfbert.tasks.answering.question_answering import QuestionAnswering
from tfbert.tasks.base import rounded
from tfbert.tasks.prediction_files import Line, PredictionFile, line_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """A question about a context.

    Attributes:
        name: What names it in the output.
        question: The question.
        context: The text that may hold the answer.
    """

    name: Any
    question: str
    context: str

    def __repr__(self) -> str:
        return repr(self.name)


def answered(task: QuestionAnswering, questions: Sequence[Asked], predictions: Candidates) -> Iterator[dict[str, Any]]:
    """The answer to each question as `answer`, its first character in the context as `start`, one past its last as
    `end`, and its probability as `score`. For no answer, the text is empty, and `start` and `end` are 0."""
    found = task.answers(predictions)
    columns = (found.char_start.tolist(), found.char_end.tolist(), found.probability.tolist())
    for asked, start, end, score in zip(questions, *columns, strict=True):
        yield {"answer": asked.context[start:end], "start": start, "end": end, "score": rounded(score)}


def check_new(name: str, seen: set[str], where: str) -> None:
    """Refuses an id that SQuAD's form, an object of answers by id, already has; adds it to those seen.

    Raises:
        UsageError: naming it and its place.
    """
    if name in seen:
        raise UsageError(
            "In SQuAD's form, every question needs a unique id. "
            f"Received: {name!r:.60} a second time in {where}. Rename one, or pass --output_format=jsonl."
        )
    seen.add(name)


def open_answers(path: pathlib.Path | None, format: str, task: QuestionAnswering, *, is_writer: bool) -> PredictionFile:
    """Opens a file of answers.

    Args:
        path: The file to write; None: standard output.
        format: `jsonl`, `tsv`, `csv` or `squad`.
        task: The task that makes the predictions.
        is_writer: Whether to write at all.
    """
    if format in TABLES:
        return _TableFile(path, task, is_writer=is_writer, line=line_of(format))
    return {"jsonl": _JsonFile, "squad": _SquadFile}[format](path, task, is_writer=is_writer)


class _AnswerFile(PredictionFile):
    """Writes the answer to each question: its text, its characters in the context and its probability. For no answer,
    the text is empty, and the characters are 0 to 0."""

    def __init__(self, path: pathlib.Path | None, task: QuestionAnswering, *, is_writer: bool):
        super().__init__(path, is_writer=is_writer)
        self._task = task

    def _answers(self, ids: Sequence[Asked], predictions: Candidates) -> Iterator[dict[str, Any]]:
        found = answered(self._task, ids, predictions)
        return ({"id": asked.name} | answer for asked, answer in zip(ids, found, strict=True))


class _JsonFile(_AnswerFile):
    """One object per line."""

    def _lines(self, ids: Sequence[Asked], outputs: Candidates) -> Iterable[str]:
        return (json.dumps(row, ensure_ascii=False) for row in self._answers(ids, outputs))


class _TableFile(_AnswerFile):
    """One row per question."""

    def __init__(self, path: pathlib.Path | None, task: QuestionAnswering, *, is_writer: bool, line: Line):
        super().__init__(path, task, is_writer=is_writer)
        self._line = line

    def _header(self) -> Iterable[str]:
        return [self._line(("id", "answer", "start", "end", "score"))]

    def _lines(self, ids: Sequence[Asked], outputs: Candidates) -> Iterable[str]:
        return (self._line(row.values()) for row in self._answers(ids, outputs))


class _SquadFile(_AnswerFile):
    """One object, id -> answer, as in SQuAD's `predictions.json`; one question per line. Ids must be unique, see
    `check_new`."""

    def __init__(self, path: pathlib.Path | None, task: QuestionAnswering, *, is_writer: bool):
        super().__init__(path, task, is_writer=is_writer)
        self._held: list[str] = []  # The last line, held until it is known whether another follows.

    def _header(self) -> Iterable[str]:
        return ["{"]

    def _lines(self, ids: Sequence[Asked], outputs: Candidates) -> Iterable[str]:
        for row in self._answers(ids, outputs):
            yield from (f"{line}," for line in self._held)
            self._held = [json.dumps({str(row["id"]): row["answer"]}, ensure_ascii=False)[1:-1]]

    def _last_lines(self) -> Iterable[str]:
        return [*self._held, "}"]
