"""Questions with their choices as inputs of a loaded model in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.errors import UsageError
from tfbert.tasks.base import rounded
from tfbert.tasks.choosing.encoded import EncodedChoices
from tfbert.tasks.choosing.metrics import Choices
from tfbert.tasks.choosing.prediction import CHUNK_QUESTIONS, encoded_questions, room_check
from tfbert.tasks.choosing.questions import Asked, Checks, Columns, table_rows
from tfbert.tasks.inputs import BEST, NAME, Inputs


class ChoiceInputs(Inputs[Asked]):
    """Questions with their choices."""

    most = CHUNK_QUESTIONS
    takes_top_k = True

    def is_one(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping)

    def entry(self, value: Any, where: str) -> Asked:
        if isinstance(value, Mapping) and self.as_trained(value, "text_column"):
            if self.as_trained(value, "choice_columns"):
                return self._checked(self._row(value, where), where)
        is_right = isinstance(value, Mapping) and "choices" in value and ({"question", "context"} & value.keys())
        choices = value["choices"] if is_right else None
        if isinstance(choices, np.ndarray):
            choices = choices.tolist()
        if not isinstance(choices, list | tuple):
            received = f"the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else f"{value!r:.60}"
            raise UsageError(
                'Choices come with their question or context, as {"context": ..., "question": ..., "choices": [...]}. '
                f"Received: {received} in {where}. Pass choices as a list, and a question, a context or both."
            )
        asked = Checks(strict=False).asked(value.get("context"), value.get("question"), choices, where)
        return self._checked(asked, where)

    def _row(self, value: Mapping[str, Any], where: str) -> Asked:
        """A row of a table whose columns are those that the model was trained on."""
        *context, question = self._model.columns["text_column"]
        choices = tuple(self._model.columns["choice_columns"])
        columns = Columns(context="".join(context), question=question, choices=choices, label="")
        (asked,) = table_rows(columns, Checks(strict=False, labelled=False))(value, where)
        if isinstance(asked, UsageError):
            raise asked
        return asked

    def _checked(self, asked: Asked, where: str) -> Asked:
        room_check(self._model)(asked, where)
        return dataclasses.replace(asked, name=where)

    def size(self, entry: Asked) -> int:
        return len(entry.context) * len(entry.choices) + sum(map(len, entry.choices))

    def encode(self, entries: Sequence[Asked]) -> EncodedChoices:
        return encoded_questions(self._model, entries, NAME)

    def answers(self, entries: Sequence[Asked], predictions: Choices) -> Iterator[Any]:
        for one, shares in zip(entries, predictions.probabilities, strict=True):
            own = shares[: len(one.choices)]
            most = 1 if self._top_k == BEST else self._top_k
            order = np.argsort(-own, kind="stable")[:most].tolist()
            found = [{"index": i, "choice": one.choices[i], "score": rounded(own[i])} for i in order]
            yield found[0] if self._top_k == BEST else found
