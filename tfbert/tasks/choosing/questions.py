"""Questions with their choices as they were written, and a table of them as examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.tasks.sets import InMemory

Place = tuple[int, ...]
"""Where a question stands: numbers from 1, one for each level; 0 for a level that it does not have."""
NO_LABEL = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """A question with its choices.

    Attributes:
        name: What names it in a file of predictions; None for a number.
        context: What it is about; may be empty if there is a question.
        question: The question, or the beginning of what each choice ends; may be empty if there is a context.
        choices: At least two, none of them empty.
        label: The right one as it was written; None if the data does not say.
        index: The right one, counted from 0, where the data leaves no doubt about it; else None.
    """

    name: Any = None
    context: str
    question: str
    choices: tuple[str, ...]
    label: int | str | None = None
    index: int | None = None

    def __repr__(self) -> str:
        return repr(self.name)  # As messages show the id of an example.

    @property
    def texts(self) -> list[str]:
        return [self.context, self.question, *self.choices]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceExamples(InMemory):
    """Questions with their choices, see `Examples`.

    Attributes:
        name: Where they came from, for messages.
        asked: The questions.
        labels: int32 `[n]`: the right choice of each, from 0; `NO_LABEL` where it is not known.
        places: int32 `[n, levels]`: a `Place` of each.
        place_names: What the numbers of a place count, such as `line`.
        notes: What the user should know, one line each.
        columns: Those that were read, by the options that name them; empty where nobody can choose them.
    """

    name: str
    asked: list[Asked]
    labels: np.ndarray
    places: np.ndarray
    place_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    num_texts = 2

    def __len__(self) -> int:
        return len(self.asked)

    @property
    def counts(self) -> np.ndarray:
        """int32 `[n]`: how many choices each question has."""
        return np.array([len(asked.choices) for asked in self.asked], np.int32)

    def take(self, indices: Iterable[int]) -> ChoiceExamples:
        indices = np.asarray(list(indices), np.int64)
        return dataclasses.replace(
            self, asked=[self.asked[i] for i in indices], labels=self.labels[indices], places=self.places[indices]
        )

    def where(self, row: int) -> str:
        return place_text(self.place_names, self.places[row])

    def texts(self) -> list[str]:
        contexts = dict.fromkeys(asked.context for asked in self.asked)  # Many questions may be about one.
        return [*contexts, *(text for asked in self.asked for text in (asked.question, *asked.choices))]

    def checksum(self, name: str, start: int) -> int:
        # How many choices each question has is part of what is held: the texts alone do not say.
        parts = [name, *(f"{len(asked.choices)}\0{asked.context}" for asked in self.asked)]
        return super().checksum("\0".join(parts), start)

    def contents(self) -> Iterator[tuple[str, ...]]:
        return (tuple(map(str.strip, (a.context, a.question, *a.choices))) for a in self.asked)


def place_text(names: Sequence[str], place: Sequence[int]) -> str:
    """A place in a file, such as `line 3, question 2`."""
    return ", ".join(f"{what} {number}" for what, number in zip(names, place, strict=True) if number)
