"""Questions about contexts with their answers as written, and which answers are not where they should be.

`answer_start` counts Unicode characters, as Python's `str` does. In published data sets some answers are not there: an
evaluation needs their texts alone and keeps them all, while training would learn the wrong words from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfbert.errors import UsageError

Answer = tuple[str, int]
"""The text of an answer, and the character of the context at which it starts."""
Place = tuple[int, ...]
"""Where a question is in its file, from 1: a line, or article, paragraph and question; 0 where a level is unknown."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuestionTable:
    """Questions and answers as they were written.

    Attributes:
        name: Where they came from, for messages.
        ids: One a question, all different.
        questions: One a question.
        contexts: The distinct contexts.
        context_of: int32 `[n]`: which of `contexts` a question is about.
        answers: All gold answers of each question; empty for one that has none.
        is_impossible: bool `[n]`: whether the context does not hold an answer.
        places: int32 `[n, levels]`: as `Place`.
        place_names: What each level of `places` counts, such as `line`.
        notes: What the user should know, one line each.
    """

    name: str
    ids: list[str]
    questions: list[str]
    contexts: list[str]
    context_of: np.ndarray
    answers: list[tuple[Answer, ...]]
    is_impossible: np.ndarray
    places: np.ndarray
    place_names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def context(self, row: int) -> str:
        """What question `row`, counted from 0, is about."""
        return self.contexts[self.context_of[row]]

    def where(self, row: int) -> str:
        """What messages call question `row`, counted from 0."""
        return where(self.name, self.place_names, self.places[row])

    def take(self, indices: Sequence[int] | np.ndarray) -> QuestionTable:
        """These questions in this order, with no contexts but theirs."""
        indices = np.asarray(indices, np.int64)
        used, context_of = np.unique(self.context_of[indices], return_inverse=True)
        return dataclasses.replace(
            self,
            ids=[self.ids[i] for i in indices],
            questions=[self.questions[i] for i in indices],
            contexts=[self.contexts[i] for i in used],
            context_of=context_of.astype(np.int32).reshape(-1),
            answers=[self.answers[i] for i in indices],
            is_impossible=self.is_impossible[indices],
            places=self.places[indices],
        )


def where(name: str, place_names: Sequence[str], place: Sequence[int]) -> str:
    """What messages call a place in a file, such as `dev.json, article 3, paragraph 1, question 7`."""
    known = [f"{what} {number}" for what, number in zip(place_names, place, strict=True) if number]
    return ", ".join([name, *known])


def misaligned_answers(table: QuestionTable) -> list[tuple[int, int]]:
    """The question, and which of its answers, of each answer that its context does not hold at its start."""
    return [
        (row, number)
        for row, answers in enumerate(table.answers)
        for number, (text, start) in enumerate(answers)
        if start < 0 or not table.context(row).startswith(text, start)
    ]


def training_questions(table: QuestionTable, *, keep_misaligned_answers: bool = False) -> QuestionTable:
    """What can be learnt from: answers that are where they say, and questions with such an answer or without any.

    Args:
        table: As it was read.
        keep_misaligned_answers: Move an answer that is elsewhere to the nearest place of its text in the context,
            rather than leave it out; one whose text is nowhere is left out all the same.

    Returns:
        The table itself where all is well; else another, its last note saying what was done.

    Raises:
        UsageError: where no question is left.
    """
    bad = misaligned_answers(table)
    if not bad:
        return table
    answers: list[list[Answer | None]] = [list(given) for given in table.answers]
    num_moved = 0
    for row, number in bad:
        text, start = table.answers[row][number]
        found = nearest(table.context(row), text, start) if keep_misaligned_answers else -1
        answers[row][number] = (text, found) if found >= 0 else None
        num_moved += found >= 0
    sound = [tuple(answer for answer in given if answer is not None) for given in answers]
    kept = [row for row, given in enumerate(sound) if given or table.is_impossible[row]]
    if not kept:
        raise UsageError(
            "Training needs an answer that is in its context where answer_start says, counted in characters. "
            f"Received: {table.name}, where none of {len(table):,} questions has one. Repair the file"
            + "." * keep_misaligned_answers
            + ", or pass --keep_misaligned_answers to look for their texts." * (not keep_misaligned_answers)
        )
    moved = f"{num_moved:,} moved to the nearest place of their text, " if keep_misaligned_answers else ""
    note = (
        f"{table.name}: of {len(bad):,} answers that are elsewhere, {moved}{len(bad) - num_moved:,} left out of "
        f"training; questions left without one and out: {len(table) - len(kept):,} of {len(table):,}"
    )
    return dataclasses.replace(table, answers=sound, notes=(*table.notes, note)).take(kept)


def nearest(context: str, text: str, start: int) -> int:
    """Where a text occurs in a context, as near as can be to a character; the first of two as near; -1: nowhere."""
    best = -1
    found = context.find(text)
    while found >= 0:
        if best < 0 or abs(found - start) < abs(best - start):
            best = found
        found = context.find(text, found + 1)
    return best
