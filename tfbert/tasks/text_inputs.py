"""Texts and pairs of texts as inputs of a loaded model in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tfbert.batches.pipeline import EncodedExamples
from tfbert.data.files import check_text
from tfbert.errors import UsageError
from tfbert.model.bert_config import check_token_types
from tfbert.tasks.inputs import BEST, NAME, Inputs
from tfbert.tasks.text_task import TextExamples, takes
from tfbert.tasks.trained import TrainedModel

_NAMES = ("text", "text_pair")
_PAIR = '{"text": ..., "text_pair": ...} or a tuple of two texts'


class TextInputs(Inputs[tuple[str, ...]]):
    """Texts or pairs of texts to classify or score; all entries of a call are of one kind.

    Args:
        model: The model that was called.
        top_k: How many classes each answer lists; None for all; `BEST` for the best one, not in a list.
    """

    takes_top_k = True

    def __init__(self, model: TrainedModel, top_k: int | None | Literal["best"] = BEST):
        super().__init__(model, top_k)
        self._num_texts = model.num_texts

    def is_one(self, inputs: Any) -> bool:
        is_pair = isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(text, str) for text in inputs)
        return isinstance(inputs, str | Mapping) or (is_pair and self._num_texts == 2)

    def entry(self, value: Any, where: str) -> tuple[str, ...]:
        if isinstance(value, Mapping):
            # A row of a table has more than texts.
            row = [] if value.keys() <= {*_NAMES} else self.as_trained(value, "text_column")
            texts = dict(zip(_NAMES, row, strict=False)) or _named(value, where)
        elif isinstance(value, tuple | list | np.ndarray):
            if len(value) != 2:
                raise UsageError(
                    f"A pair of texts is {_PAIR}. Received: {len(value)} values in {where}. Repair or drop it."
                )
            texts = dict(zip(_NAMES, value, strict=True))
        else:
            texts = {"text": value}
        found = tuple(check_text(text, name, where, strict=False) for name, text in texts.items())
        if self._num_texts is None:
            check_token_types(self._model.classifier.config, len(found))
            self._num_texts = len(found)
        if len(found) != self._num_texts:
            todo = f"Pass {_PAIR}" if self._num_texts == 2 else "Pass a text"
            raise UsageError(
                f"The model takes {takes(self._num_texts)}, one kind per call. "
                f"Received: {'a single text' if len(found) == 1 else 'a pair'} in {where}. {todo}."
            )
        return found

    def size(self, entry: tuple[str, ...]) -> int:
        return sum(map(len, entry))

    def encode(self, entries: Sequence[tuple[str, ...]]) -> EncodedExamples:
        text, *second = map(list, zip(*entries, strict=True))
        examples = TextExamples(name=NAME, text=text, text_pair=second[0] if second else None, labels=None)
        return self._model.encode(examples)

    def answers(self, entries: Sequence[tuple[str, ...]], predictions: np.ndarray) -> Iterator[Any]:
        if self._top_k == BEST:
            return self._model.task.best(predictions)
        return self._model.task.entries(predictions, self._top_k)


def _named(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The texts of a mapping, which must have the first of their names, and no others."""
    if _NAMES[0] not in value or not value.keys() <= {*_NAMES}:
        raise UsageError(
            "A text has the key 'text', and a pair also 'text_pair'. "
            f"Received: the keys {', '.join(map(repr, value))} in {where}. Rename or drop any other key."
        )
    return {name: value[name] for name in _NAMES if name in value}
