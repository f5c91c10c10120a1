"""Questions about contexts with their answers as written, and which answers are not where they should be.

`answer_start` counts Unicode characters, as Python's `str` does. In published data sets, some answers are not at their
`answer_start`. An evaluation needs only the texts of answers and keeps them all; training would learn the wrong words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tfbert.batches.pipeline import EncodedExamples
from tfbert.errors import UsageError
from tfbert.tasks.answering.windows import Windows
from tfbert.tasks.sets import InMemory

Answer = tuple[str, int]
"""The text of an answer, and the character of the context at which it starts."""
NO_PLACE = -(2**31)
"""The start of an answer that counts as right but need not be in the context, such as another name of it."""
_SHOWN_IDS = 5
Place = tuple[int, ...]
"""Where a question is in its file, from 1: a line, or article, paragraph and question; 0 where a level is unknown."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuestionTable:
    """Questions and answers as they were written.

    Attributes:
        name: Where they came from, for messages.
        ids: One per question, all different.
        questions: One per question.
        contexts: The distinct contexts.
        context_of: int32 `[n]`: which of `contexts` a question is about.
        answers: All gold answers of each question, those at `NO_PLACE` last; empty for a question that has none.
        is_impossible: bool `[n]`: whether the context does not hold an answer.
        places: int32 `[n, levels]`: one `Place` per question.
        place_names: What each level of `places` counts, such as `line`.
        notes: What the user should know, one line each.
        misaligned_ids: The ids that `note_misaligned` found, also of questions that were left out since.
        columns: Those that were read, by the options that name them; empty where nobody can choose them.
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
    misaligned_ids: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def context(self, row: int) -> str:
        """The context of question `row`, counted from 0."""
        return self.contexts[self.context_of[row]]

    def where(self, row: int) -> str:
        """What messages call question `row`, counted from 0."""
        return where(self.name, self.place_names, self.places[row])

    def place(self, row: int) -> str:
        """The same without the file's name."""
        return ", ".join(_known(self.place_names, self.places[row]))

    def take(self, indices: Sequence[int] | np.ndarray) -> QuestionTable:
        """A table of these questions in this order, with only their contexts."""
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
    return ", ".join([name, *_known(place_names, place)])


def _known(place_names: Sequence[str], place: Sequence[int]) -> list[str]:
    return [f"{what} {number}" for what, number in zip(place_names, place, strict=True) if number]


def misaligned_answers(table: QuestionTable) -> list[tuple[int, int]]:
    """The answers that are not in their context at `answer_start`, each as its question's row and its own index. Those
    at `NO_PLACE` count where the question has no other."""
    return [
        (row, number)
        for row, answers in enumerate(table.answers)
        for number, (text, start) in enumerate(answers)
        if (start != NO_PLACE or not number) and (start < 0 or not table.context(row).startswith(text, start))
    ]


def note_misaligned(table: QuestionTable, file: str) -> QuestionTable:
    """The same table, with the ids of questions with answers that are not at `answer_start`, and a note about them.

    Args:
        table: As it was read.
        file: What will hold all these ids, for the note, which shows a few.
    """
    bad = misaligned_answers(table)
    if not bad:
        return table
    ids = tuple(table.ids[row] for row in dict.fromkeys(row for row, _ in bad))
    shown = ", ".join(f"{name!r:.60}" for name in ids[:_SHOWN_IDS])
    more = f" and {len(ids) - _SHOWN_IDS:,} more, all in {file}" if len(ids) > _SHOWN_IDS else ""
    note = (
        f"{table.name}: {len(bad):,} of {sum(map(len, table.answers)):,} answers are not in their context at "
        f"answer_start: {'ids' if len(ids) > 1 else 'id'} {shown}{more}"
    )
    return dataclasses.replace(table, notes=(*table.notes, note), misaligned_ids=ids)


def training_questions(table: QuestionTable, *, keep_misaligned_answers: bool = False) -> QuestionTable:
    """The questions to train on: only answers that are at their `answer_start`, and only questions that have such an
    answer or are impossible.

    Args:
        table: As it was read.
        keep_misaligned_answers: Move an answer that is not at its `answer_start` to the nearest place of its text in
            the context, rather than leave it out. An answer whose text is nowhere in the context is left out anyway.

    Returns:
        The table itself if all answers are where they should be; else a new one, whose last note says what was changed.

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
            "Training needs an answer that is in its context at answer_start, counted in characters. "
            f"Received: {table.name}, where none of {len(table):,} questions has one. Repair the file"
            + "." * keep_misaligned_answers
            + ", or pass --keep_misaligned_answers to look for their texts." * (not keep_misaligned_answers)
        )
    moved = f"{num_moved:,} moved to the nearest place of their text, " if keep_misaligned_answers else ""
    note = (
        f"{table.name}: of {len(bad):,} answers that are not at answer_start, {moved}{len(bad) - num_moved:,} left out "
        f"of training; questions left out because no answer remains: {len(table) - len(kept):,} of {len(table):,}"
    )
    return dataclasses.replace(table, answers=sound, notes=(*table.notes, note)).take(kept)


def nearest(context: str, text: str, start: int) -> int:
    """The place of a text in a context that is nearest to the character `start`; of two equally near, the first; -1 if
    the text does not occur."""
    best = -1
    found = context.find(text)
    while found >= 0:
        if best < 0 or abs(found - start) < abs(best - start):
            best = found
        found = context.find(text, found + 1)
    return best


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuestionExamples(InMemory):
    """Questions about contexts, see `Examples`.

    Attributes:
        table: The questions as they were written.
    """

    table: QuestionTable

    num_texts = 2

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def labels(self) -> np.ndarray:
        """int32 `[n, 2]`: the first character of each question's first answer and one past its last; 0, 0 for none.

        Where the data puts an answer outside the context, as only evaluation keeps it, the nearest end of the context.
        """
        return np.array([self._span(row) for row in range(len(self))], np.int32).reshape(-1, 2)

    def _span(self, row: int) -> tuple[int, int]:
        if not self.table.answers[row]:
            return 0, 0
        (text, start), *_ = self.table.answers[row]
        first, end = (min(max(place, 0), len(self.table.context(row))) for place in (start, start + len(text)))
        return first, end

    def __len__(self) -> int:
        return len(self.table)

    def take(self, indices: Iterable[int]) -> QuestionExamples:
        return QuestionExamples(table=self.table.take(np.asarray(list(indices), np.int64)))

    def where(self, row: int) -> str:
        return self.table.place(row)

    def texts(self) -> list[str]:
        return self.table.questions + self.table.contexts

    def contents(self) -> Iterator[tuple[str, ...]]:
        return ((q.strip(), self.table.context(i).strip()) for i, q in enumerate(self.table.questions))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncodedQuestions(EncodedExamples):
    """Windows over the contexts of questions, one row per window.

    Attributes:
        windows: The windows.
        num_questions: The number of questions.
    """

    windows: Windows
    num_questions: int
