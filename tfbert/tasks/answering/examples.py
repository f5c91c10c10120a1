"""Questions about contexts as examples, and their windows as token ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from tfbert.batches.pipeline import EncodedExamples
from tfbert.tasks.answering.questions import QuestionTable
from tfbert.tasks.answering.windows import Windows
from tfbert.tasks.sets import InMemory


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
