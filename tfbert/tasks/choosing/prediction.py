"""Prediction of choices: questions in Python, or of files in any form in which they are read -> a choice for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.config.run import Config
from tfbert.data.endings import PREDICTED_TEXTS
from tfbert.data.rows import input_source
from tfbert.errors import UsageError
from tfbert.tasks.base import rounded
from tfbert.tasks.choosing.encoded import EncodedChoices, encode_choices
from tfbert.tasks.choosing.multiple_choice import Choices
from tfbert.tasks.choosing.questions import NO_LABEL, Asked, Checks, Columns, open_questions, place_text, table_rows
from tfbert.tasks.items import BEST, Items
from tfbert.tasks.prediction_files import Job, check_id_column, chosen_format, output_path, row_id, usual_id_column


class ChoiceItems(Items[Asked]):
    """Questions with their choices."""

    most = 2048
    takes_top_k = True
    _num_read = _num_cut = 0

    def item(self, value: Any, where: str) -> Asked:
        if isinstance(value, Mapping) and self.as_trained(value, "text_column"):
            if self.as_trained(value, "choice_columns"):
                return self.checked(self._of_table(value, where), where)
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
        return self.checked(asked, where)

    def _of_table(self, value: Mapping[str, Any], where: str) -> Asked:
        """A row of a table whose columns are those that the model was trained on."""
        *context, question = self._model.columns["text_column"]
        choices = tuple(self._model.columns["choice_columns"])
        columns = Columns(context="".join(context), question=question, choices=choices, label="")
        (asked,) = table_rows(columns, Checks(strict=False, labelled=False))(value, where)
        if isinstance(asked, UsageError):
            raise asked
        return asked

    def checked(self, asked: Asked, where: str) -> Asked:
        """The same question, unless it is too long.

        Only those are tokenised that may be.

        Raises:
            UsageError: for one that leaves no room for the context.
        """
        longest, tokenizer = max(map(len, asked.choices)), self._model.tokenizer
        room = self._model.max_seq_length - tokenizer.num_special(2) - 1
        if tokenizer.most_per_character * (len(asked.question) + longest) > room:
            self._encoded([asked], [where])
        return asked

    def size(self, item: Asked) -> int:
        return len(item.context) * len(item.choices) + sum(map(len, item.choices))

    def encode(self, items: Sequence[Asked]) -> EncodedChoices:
        encoded = self._encoded(items, items)
        self._num_read += len(items)
        self._num_cut += encoded.num_cut
        return encoded

    def _encoded(self, items: Sequence[Asked], names: Sequence[Any]) -> EncodedChoices:
        labels, model = np.full(len(items), NO_LABEL, np.int32), self._model
        return encode_choices(
            items, model.tokenizer, model.max_seq_length, labels=labels, where=lambda row: str(names[row])
        )

    def notes(self, name: str) -> list[str]:
        if not self._num_cut:
            return []
        cut, total = f"{self._num_cut:,}", f"{self._num_read:,}"
        return [f"{name}: contexts of {cut} of {total} questions are cut to fit {self._model.max_seq_length} tokens"]

    def answers(self, items: Sequence[Asked], predictions: Choices) -> Iterator[Any]:
        for one, shares in zip(items, predictions.probabilities, strict=True):
            own = shares[: len(one.choices)]
            most = 1 if self._top_k == BEST else self._top_k
            order = np.argsort(-own, kind="stable")[:most].tolist()
            found = [{"index": i, "choice": one.choices[i], "score": rounded(own[i])} for i in order]
            yield found[0] if self._top_k == BEST else found

    def records(self, items: Sequence[Asked], predictions: Choices) -> Iterator[dict[str, Any]]:
        """Also the `probabilities` of all choices."""
        answers = self.answers(items, predictions)
        for one, answer, shares in zip(items, answers, predictions.probabilities, strict=True):
            yield answer | {"probabilities": [*map(rounded, shares[: len(one.choices)])]}

    def columns(self) -> Sequence[str]:
        return ("index", "choice", "score", "probabilities")  # The last is a list in JSON.


def open_choice_files(config: Config) -> list[Job]:
    """The questions to answer, and where the answers go.

    Raises:
        UsageError: for input that cannot be opened, or output without a known ending.
    """
    asked = config.predict

    def id_column(columns: Sequence[str]) -> str:
        if asked.id_column and not columns:
            check_id_column(asked.id_column, asked.input_file, columns)
        return asked.id_column or usual_id_column(columns)

    opened = open_questions(
        input_source(asked.input_file),
        config.data,
        choice_columns=config.choosing.choice_columns,
        id_column=id_column,
        checks=Checks(strict=False, labelled=False),
    )

    def read(items: ChoiceItems, row: Asked, number: int, where: str) -> Asked:
        name = number if row.name is None else row_id(row.name, "id", where)
        return dataclasses.replace(items.checked(row, where), name=name)

    return [
        Job(
            name=opened.name,
            columns=opened.read,
            rows=((f"{opened.name}, {place_text(opened.place_names, place)}", row) for place, row in opened.rows),
            read=read,
            path=output_path(asked),
            format=chosen_format(asked, PREDICTED_TEXTS, default="jsonl"),
        )
    ]
