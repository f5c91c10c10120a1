"""Texts with words to fill in: `Paris is the [MASK] of France.` -> rows -> the best words for each place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.errors import UsageError
from tfbert.tasks.base import rounded
from tfbert.tasks.masked.masked_words import MaskedRows
from tfbert.tokens.tokenizer import TokenIds

if TYPE_CHECKING:
    from tfbert.tokens.tokenizer import Tokenizer

_UNCUT = 1 << 24


def encode_masked_texts(
    tokenizer: Tokenizer, texts: Sequence[str], names: Sequence[str], max_seq_length: int
) -> MaskedRows:
    """Texts as rows. A literal mask, such as `[MASK]`, is a masked place; every other special token is plain text.

    Args:
        tokenizer: The model's.
        texts: Each with at least one mask.
        names: What messages call each.
        max_seq_length: Longest row in tokens; longer texts are cut.

    Raises:
        UsageError: for a text whose mask would be cut off.
    """
    mask = tokenizer.mask_token
    parts = [text.split(mask) for text in texts]
    if tokenizer.mask_takes_blanks:
        parts = [[*(part.rstrip() for part in own[:-1]), own[-1]] for own in parts]
    pieces = tokenizer.encode([part for own in parts for part in own], max_seq_length=_UNCUT)
    splits, rows, at = pieces.row_splits.tolist(), [], 0
    for name, own in zip(names, parts, strict=True):
        ids = [tokenizer.cls_id]
        for number in range(at, at + len(own)):
            ids += [tokenizer.mask_id] * (number > at)
            ids += pieces.flat[splits[number] + 1 : splits[number + 1] - 1].tolist()  # Without [CLS] and [SEP].
        at += len(own)
        cut = np.array([*ids[: max_seq_length - 1], tokenizer.sep_id], np.int32)
        if (cut == tokenizer.mask_id).sum() < len(own) - 1:
            raise UsageError(
                f"Every {mask} must be within the first {max_seq_length} tokens of its text. "
                f"Received: a later one in {name}. Shorten the text, or load the model with a larger max_seq_length."
            )
        rows.append(cut)
    lengths = np.array([len(row) for row in rows], np.int32)
    flat, row_splits = np.concatenate(rows), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    tokens = TokenIds(flat=flat, row_splits=row_splits, second_start=lengths, pad_id=tokenizer.pad_id)
    places = [np.flatnonzero(row == tokenizer.mask_id) for row in rows]
    positions = np.zeros((len(rows), max(map(len, places))), np.int32)
    for row, own in zip(positions, places, strict=True):
        row[: len(own)] = own
    return MaskedRows(tokens=tokens, positions=positions)


def filled(texts: MaskedRows, outputs: dict[str, np.ndarray], tokenizer: Tokenizer, top_k: int) -> Iterator[list[Any]]:
    """The best words of each text, as transformers' `fill-mask` pipeline gives them.

    Args:
        texts: The rows.
        outputs: What `masked_words.candidates` keeps of the model's outputs for them.
        tokenizer: The model's.
        top_k: Words of each masked place.

    Yields:
        For each text, the best words, best first, each with `score` (its probability), `token` (its id), `token_str`,
        and `sequence`, the text with the word filled in. For a text with several masked places, one such list per
        place; in its sequences, the other places stay masked.
    """
    splits = texts.tokens.row_splits.tolist()
    for row, positions in enumerate(texts.positions):
        ids, places = texts.tokens.flat[splits[row] : splits[row + 1]].tolist(), positions[positions > 0].tolist()
        found = []
        for number, place in enumerate(places):
            scores, tokens = (outputs[name][row, number, :top_k].tolist() for name in ("score", "token"))
            words = []
            for score, token in zip(scores, tokens, strict=True):
                own = [*ids[:place], token, *ids[place + 1 :]]
                sequence = tokenizer.decode(own, skip_special_tokens=len(places) == 1)
                word = tokenizer.decode([token])
                words.append({"score": rounded(score), "token": token, "token_str": word, "sequence": sequence})
            found.append(words)
        yield found[0] if len(places) == 1 else found
