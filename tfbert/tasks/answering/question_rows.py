"""Rows as they were parsed -> a table of questions, each checked. Every error names the place and the id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tfbert.config.counted import counted
from tfbert.data.bad_rows import BadRows
from tfbert.data.columns import UNLABELLED
from tfbert.data.files import check_text
from tfbert.errors import UsageError
from tfbert.tasks.answering.questions import NO_PLACE, Answer, Place, QuestionTable, where

OTHER_ANSWERS = "tfbert: other answers"
"""The key of a row for texts that count as right answers wherever they are; no name that a column of data has."""


def blank_error(what: str, where: str) -> UsageError:
    """The error for a question or a context of nothing but spaces."""
    return UsageError(f"A {what} must not be empty. Received: an empty one in {where}. Repair or drop the question.")


def question_table(
    name: str,
    rows: Iterable[tuple[Place, dict[str, Any] | UsageError]],
    *,
    place_names: tuple[str, ...],
    require_answers: bool = True,
    version_2_with_negative: bool = False,
    skip_bad_rows: bool = False,
) -> QuestionTable:
    """Checks questions one by one and makes a table of them.

    Args:
        name: What messages call the data.
        rows: The place of each question, and its `id`, `question`, `context`, `answers` (a list of objects with `text`
            and `answer_start`, or an object with a list of each) and, where there are any, `OTHER_ANSWERS` and
            `is_impossible`; or the error that says why it cannot be read.
        place_names: What a place's numbers count.
        require_answers: Whether each question must have `answers`, even if only an empty list. If not required, a
            question without `answers` gets none and is not impossible.
        version_2_with_negative: Whether a question may have no answer.
        skip_bad_rows: Leave out questions that cannot be used, rather than stop at the first; a note counts them.

    Raises:
        UsageError: for a bad question, one without an answer where there may be none, or no question at all.
    """
    ids: dict[str, None] = {}
    contexts: dict[str, int] = {}
    questions, context_of, answers, is_impossible, places = [], [], [], [], []
    bad_rows = BadRows(skip_bad_rows)

    def checked(place: Place, row: dict[str, Any]) -> tuple[Place, str, str, str, tuple[Answer, ...] | None]:
        at = where(name, place_names, place)
        own_id = _id(row.get("id"), at)
        at = f"{at} (id {own_id!r:.60})"
        if own_id in ids:
            raise UsageError(f"Every question needs a unique id. Received: a repeated id in {at}. Rename or drop it.")
        question, context = [_filled_text(row.get(what), what, at) for what in ("question", "context")]
        return place, own_id, question, context, _answers(row, require_answers, at)

    for place, own_id, question, context, given in bad_rows.usable(rows, checked):
        ids[own_id] = None
        questions.append(question)
        context_of.append(contexts.setdefault(context, len(contexts)))
        answers.append(given or ())
        is_impossible.append(given == ())
        places.append(place)
    notes = bad_rows.skipped(name, len(ids), "question", "questions")
    table = QuestionTable(
        name=name,
        ids=list(ids),
        questions=questions,
        contexts=list(contexts),
        context_of=np.asarray(context_of, np.int32),
        answers=answers,
        is_impossible=np.asarray(is_impossible, bool),
        places=np.asarray(places, np.int32).reshape(len(ids), len(place_names)),
        place_names=place_names,
        notes=notes,
    )
    if not version_2_with_negative:
        _refuse_impossible(table)
    return table


def _refuse_impossible(table: QuestionTable) -> None:
    if table.is_impossible.any():
        first = int(table.is_impossible.argmax())
        raise UsageError(
            f"Questions without an answer need version_2_with_negative. Received: {int(table.is_impossible.sum()):,} "
            f"of {len(table):,} questions of {table.name} without one, the first with id {table.ids[first]!r:.60}. "
            "Pass --version_2_with_negative, or drop them."
        )


def _id(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        received = "none" if value in (None, "") else f"id={value!r:.60}"
        raise UsageError(
            f"Every question needs an id, a word or a number. Received: {received} in {where}. Add one or drop it."
        )
    return check_text(str(value), "id", where)


def _filled_text(value: Any, what: str, where: str) -> str:
    text = check_text(value, what, where)
    if not text.strip():
        raise blank_error(what, where)
    return text


def _answers(row: dict[str, Any], require: bool, where: str) -> tuple[Answer, ...] | None:
    """The answers, empty for an impossible question; None where the row does not say."""
    given, impossible = row.get("answers"), row.get("is_impossible")
    if not isinstance(impossible, bool | None):
        raise UsageError(
            f"is_impossible must be true or false. Received: is_impossible={impossible!r:.60} in {where}. Repair it."
        )
    if given is None and not impossible:
        if require:
            raise UsageError(
                "Every question needs 'answers', an empty list if it has none. "
                f"Received: no 'answers' in {where}. Add them or drop the question{UNLABELLED}."
            )
        return None
    answers = tuple(_answer(text, start, where) for text, start in _pairs(given or [], where))
    answers += tuple(_answer(text, NO_PLACE, where) for text in row.get(OTHER_ANSWERS) or ())
    if answers and impossible:
        raise UsageError(
            "A question with is_impossible=True must have no answers. "
            f"Received: is_impossible=True with {counted(len(answers), 'answer')} in {where}. Drop one or the other."
        )
    return answers


def _pairs(given: Any, where: str) -> list[tuple[Any, Any]]:
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
    elif isinstance(given, list) and all(isinstance(answer, dict) for answer in given):
        return [(answer.get("text"), answer.get("answer_start")) for answer in given]
    raise UsageError(
        "'answers' must be a list of objects with 'text' and 'answer_start', or an object with two equally long lists "
        "under these names. "
        f"Received: answers={given!r:.80} in {where}. Repair or drop the question."
    )


def _answer(text: Any, start: Any, where: str) -> Answer:
    for key, value in (("text", text), ("answer_start", start)):
        if value is None:
            raise UsageError(f"Every answer needs {key!r}. Received: an answer without it in {where}. Add it.")
    if not isinstance(text, str) or not text.strip():
        raise UsageError(
            "An answer must have a text; a question without an answer has an empty list. "
            f"Received: text={text!r:.60} in {where}. Repair or drop it."
        )
    if isinstance(start, bool) or not isinstance(start, int):
        raise UsageError(
            "answer_start must be a whole number: a character of the context, counted from 0. "
            f"Received: answer_start={start!r:.60} in {where}. Repair or drop the answer."
        )
    return check_text(text, "text", where), start
