"""Texts with words to fill in: `Paris is the [MASK] of France.` -> rows -> the best words for each place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from tfbert.data.files import check_text
from tfbert.errors import UsageError
from tfbert.tasks.base import rounded
from tfbert.tasks.prediction import BEST, Item, Items, TrainedModel
from tfbert.tasks.pretraining.pretraining import MOST_CANDIDATES, MaskedRows
from tfbert.tokens.ragged import splits_of
from tfbert.tokens.tokenizer import TokenIds

_UNCUT = 1 << 24
_FILLED = 5
"""Words for each masked place by default, as in transformers."""


class MaskedItems(Items[Item]):
    """Texts with words to fill in.

    Args:
        model: The model that was called.
        top_k: How many words to give for each masked place; `BEST`: 5.
    """

    most = 256  # Some hundred candidates are kept for each word.
    takes_top_k = True

    def __init__(self, model: TrainedModel, top_k: int | None | Literal["best"] = BEST):
        super().__init__(model, top_k)
        if top_k is None or (top_k != BEST and top_k > MOST_CANDIDATES):
            raise UsageError(
                f"top_k must be at most {MOST_CANDIDATES} where words are filled in. "
                f"Received: top_k={top_k}. Pass fewer."
            )
        self._words = _FILLED if top_k == BEST else top_k

    def item(self, value: Any, where: str) -> Item:
        text = check_text(value, "text", where, strict=False)
        mask = self._model.tokenizer.mask_token
        if mask not in text:
            raise UsageError(
                f"A text to fill in must have a {mask}. Received: {text!r:.60} in {where}. "
                f"Write {mask} for the word to find."
            )
        return Item(name=where, texts=[text])

    def encode(self, items: Sequence[Item]) -> MaskedRows:
        """Texts as rows. A literal mask, such as `[MASK]`, is a masked place; every other special token is plain text.

        Raises:
            UsageError: for a text whose mask would be cut off.
        """
        tokenizer, longest = self._model.tokenizer, self._model.max_seq_length
        mask, parts = tokenizer.mask_token, [item.texts[0].split(tokenizer.mask_token) for item in items]
        if tokenizer.mask_takes_blanks:
            parts = [[*(part.rstrip() for part in own[:-1]), own[-1]] for own in parts]
        pieces = tokenizer.encode([part for own in parts for part in own], max_seq_length=_UNCUT)
        splits, rows, at = pieces.row_splits.tolist(), [], 0
        for item, own in zip(items, parts, strict=True):
            ids = [tokenizer.cls_id]
            for number in range(at, at + len(own)):
                ids += [tokenizer.mask_id] * (number > at)
                ids += pieces.flat[splits[number] + 1 : splits[number + 1] - 1].tolist()  # Without [CLS] and [SEP].
            at += len(own)
            cut = np.array([*ids[: longest - 1], tokenizer.sep_id], np.int32)
            if (cut == tokenizer.mask_id).sum() < len(own) - 1:
                raise UsageError(
                    f"Every {mask} must be within the first {longest} tokens of its text. Received: a later one in "
                    f"{item.name}. Shorten the text, or load the model with a larger max_seq_length."
                )
            rows.append(cut)
        lengths = np.array([len(row) for row in rows], np.int32)
        tokens = TokenIds(
            flat=np.concatenate(rows), row_splits=splits_of(lengths), second_start=lengths, pad_id=tokenizer.pad_id
        )
        places = [np.flatnonzero(row == tokenizer.mask_id) for row in rows]
        positions = np.zeros((len(rows), max(map(len, places))), np.int32)
        for row, own in zip(positions, places, strict=True):
            row[: len(own)] = own
        return MaskedRows(tokens=tokens, positions=positions)

    def predictions(self, outputs: dict[str, np.ndarray], encoded: MaskedRows) -> dict[str, Any]:
        return outputs | {"texts": encoded}

    def scores(self, predictions: dict[str, Any]) -> np.ndarray:
        return predictions["score"]

    def answers(self, items: Sequence[Item], predictions: dict[str, Any]) -> Iterator[list[Any]]:
        """The best words of each text, as transformers' `fill-mask` pipeline gives them: best first, each with `score`
        (its probability), `token` (its id), `token_str`, and `sequence`, the text with the word filled in. For a text
        with several masked places, one such list per place; in its sequences, the other places stay masked."""
        tokenizer, texts = self._model.tokenizer, predictions["texts"]
        splits = texts.tokens.row_splits.tolist()
        for row, positions in enumerate(texts.positions):
            ids, places = texts.tokens.flat[splits[row] : splits[row + 1]].tolist(), positions[positions > 0].tolist()
            found = []
            for number, place in enumerate(places):
                scores, tokens = (predictions[name][row, number, : self._words].tolist() for name in ("score", "token"))
                words = []
                for score, token in zip(scores, tokens, strict=True):
                    own = [*ids[:place], token, *ids[place + 1 :]]
                    sequence = tokenizer.decode(own, skip_special_tokens=len(places) == 1)
                    word = tokenizer.decode([token])
                    words.append({"score": rounded(score), "token": token, "token_str": word, "sequence": sequence})
                found.append(words)
            yield found[0] if len(places) == 1 else found
