"""Which choice a label means: a number from 0, a letter, or the text of a choice. One reading for a whole file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfbert.errors import UsageError
from tfbert.tasks.choosing.questions import Asked

_WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
_LETTER = re.compile(r"\(?([A-Za-z])[).]?", re.ASCII)
_RULE = "A label is the number of the right choice from 0, its letter, or its text"
_MOST = 26


def find_indexes(asked: Sequence[Asked], where: Sequence[str]) -> list[int | UsageError]:
    """The right choice of each labelled question, from 0; or the error that says why it is not known.

    The reading that fits most labels is that of the whole file.

    Args:
        asked: The questions; `label` of each is what was written. Those whose `index` is known keep it.
        where: What messages call each question.

    Raises:
        UsageError: for labels that can be read in two ways that differ, or numbers that count from 1.
    """
    open_ones = [row for row, one in enumerate(asked) if one.index is None]
    if not open_ones:
        return [one.index for one in asked]
    readings = {kind: [read(asked[row]) for row in open_ones] for kind, read in _READINGS.items()}
    fits = {kind: sum(index is not None for index in found) for kind, found in readings.items()}
    best = [kind for kind, count in fits.items() if count == max(fits.values())]
    if _NUMBER in best:
        _refuse_from_one([asked[row] for row in open_ones], readings[_NUMBER], [where[row] for row in open_ones])
    for row, *found in zip(open_ones, *(readings[kind] for kind in best), strict=True):
        if len(set(found)) > 1:
            ways = " and ".join(best)
            raise UsageError(
                f"{_RULE}, the same in a whole file. Received: labels that could be read as {ways}, "
                f"such as {asked[row].label!r:.60} in {where[row]}, where these differ. Write letters: A, B, ..."
            )
    chosen = dict(zip(open_ones, readings[best[0]], strict=True))
    kind = best[0] if max(fits.values()) else ""
    return [
        one.index if row not in chosen else chosen[row] if chosen[row] is not None else _error(one, where[row], kind)
        for row, one in enumerate(asked)
    ]


def index_of_letter(label: object, count: int) -> int | None:
    """The choice that a letter means, from 0; None for anything else, or a letter that no choice has."""
    match = _LETTER.fullmatch(label.strip()) if isinstance(label, str) else None
    index = ord(match[1].upper()) - ord("A") if match else _MOST
    return index if index < count else None


def _number(one: Asked) -> int | None:
    value = _whole(one.label)
    return value if value is not None and 0 <= value < len(one.choices) else None


def _whole(label: int | str | None) -> int | None:
    if isinstance(label, int):
        return label
    return int(float(label)) if isinstance(label, str) and _WHOLE.fullmatch(label.strip()) else None


def _letter(one: Asked) -> int | None:
    return index_of_letter(one.label, len(one.choices))


def _text(one: Asked) -> int | None:
    if not isinstance(one.label, str):
        return None
    same = [index for index, choice in enumerate(one.choices) if choice.strip() == one.label.strip()]
    return same[0] if len(same) == 1 else None


_NUMBER = "numbers"
_READINGS = {_NUMBER: _number, "letters": _letter, "texts": _text}


def _refuse_from_one(asked: Sequence[Asked], found: Sequence[int | None], where: Sequence[str]) -> None:
    """Refuses a file whose numbers count from 1: none is 0, and some are the number of choices."""
    values = [_whole(one.label) for one in asked]
    past = [row for row, (one, value) in enumerate(zip(asked, values, strict=True)) if value == len(one.choices)]
    if past and 0 not in values:
        raise UsageError(
            f"{_RULE}. Received: {asked[past[0]].label!r} for {len(asked[past[0]].choices)} choices in "
            f"{where[past[0]]}, and no 0: these seem to count from 1. Subtract 1, or write letters: A, B, ..."
        )


def _error(one: Asked, where: str, kind: str) -> UsageError:
    like = f" as most labels here are ({kind})" * bool(kind)
    twice = isinstance(one.label, str) and sum(choice.strip() == one.label.strip() for choice in one.choices) > 1
    what = ", the text of several choices" if twice else ""
    return UsageError(
        f"{_RULE}{like}. Received: {one.label!r:.60}{what}, for {len(one.choices)} choices in {where}. "
        "Correct it or drop the question."
    )
