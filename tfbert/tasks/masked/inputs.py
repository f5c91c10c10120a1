"""Texts with words to fill in as inputs of a loaded model in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tfbert.data.files import check_text
from tfbert.errors import UsageError
from tfbert.tasks.inputs import BEST, Inputs
from tfbert.tasks.masked.masked_texts import encode_masked_texts, filled
from tfbert.tasks.masked.masked_words import MOST_CANDIDATES, MaskedRows
from tfbert.tasks.trained import TrainedModel

_FILLED = 5
"""Words for each masked place by default, as in transformers."""
_CHUNK_MASKED = 256
"""Texts with masked words that are predicted together: some hundred candidates are kept for each word."""


class _Masked(NamedTuple):
    """A text, and what messages call it."""

    text: str
    where: str


class MaskedInputs(Inputs[_Masked]):
    """Texts with words to fill in.

    Args:
        model: The model that was called.
        top_k: How many words to give for each masked place; `BEST`: 5.
    """

    most = _CHUNK_MASKED

    takes_top_k = True

    def __init__(self, model: TrainedModel, top_k: int | None | Literal["best"] = BEST):
        super().__init__(model, top_k)
        if top_k is None or (top_k != BEST and top_k > MOST_CANDIDATES):
            raise UsageError(
                f"top_k must be at most {MOST_CANDIDATES} where words are filled in. "
                f"Received: top_k={top_k}. Pass fewer."
            )
        self._words = _FILLED if top_k == BEST else top_k

    def is_one(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping)

    def entry(self, value: Any, where: str) -> _Masked:
        text = check_text(value, "text", where, strict=False)
        mask = self._model.tokenizer.mask_token
        if mask not in text:
            raise UsageError(
                f"A text to fill in must have a {mask}. Received: {text!r:.60} in {where}. "
                f"Write {mask} for the word to find."
            )
        return _Masked(text, where)

    def size(self, entry: _Masked) -> int:
        return len(entry.text)

    def encode(self, entries: Sequence[_Masked]) -> MaskedRows:
        texts, names = zip(*entries, strict=True)
        self._texts = encode_masked_texts(self._model.tokenizer, texts, names, self._model.max_seq_length)
        return self._texts

    def predictions(self, outputs: dict[str, np.ndarray], encoded: MaskedRows) -> dict[str, np.ndarray]:
        return outputs

    def scores(self, predictions: dict[str, np.ndarray]) -> np.ndarray:
        return predictions["score"]

    def answers(self, entries: Sequence[_Masked], predictions: dict[str, np.ndarray]) -> Iterator[list[Any]]:
        return filled(self._texts, predictions, self._model.tokenizer, self._words)
