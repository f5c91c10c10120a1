"""What in a run's data can be trained on and still looks like an accident: a line each."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tfbert.data.sources import Examples, TaskData

FEW_EXAMPLES = 5
"""A class with fewer is hardly learned, and often a typing error."""
_MOST_SHOWN = 10


def doubts(data: TaskData) -> list[str]:
    """A line for each doubt: classes that are written almost alike or hardly occur, and rows that are trained on and
    evaluated on."""
    out = []
    if data.task == "classification":
        counts = np.bincount(data.train.labels, minlength=len(data.label_names)).tolist()
        out += _almost_alike(data.label_names, counts) + _rare(data.label_names, counts)
    for other in (*data.validation.values(), *([data.test] if data.test else [])):
        out += _seen_in_training(data.train, other)
    return [f"warning: {line}" for line in out]


def _almost_alike(names: Sequence[str], counts: Sequence[int]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name, count in zip(names, counts, strict=True):
        key = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        groups.setdefault(key, []).append(f"{name!r} ({count:,} examples)")
    alike = [", ".join(group) for group in groups.values() if len(group) > 1]
    return [f"classes that differ only in case or space: {_first_few(alike, '; ')}"] if alike else []


def _rare(names: Sequence[str], counts: Sequence[int]) -> list[str]:
    rare = [f"{name!r} ({count})" for name, count in zip(names, counts, strict=True) if count < FEW_EXAMPLES]
    if not rare:
        return []
    return [
        f"{len(rare):,} of {len(names):,} classes with fewer than {FEW_EXAMPLES} training examples: {_first_few(rare)}"
    ]


def _seen_in_training(train: Examples, other: Examples) -> list[str]:
    if os.path.realpath(train.name) == os.path.realpath(other.name):
        return [f"{other.name} is trained on and evaluated on: its scores say nothing about other texts"]
    # What is evaluated on is the smaller part, to be kept in memory; an empty text is no sign of anything.
    evaluated = {key for key in _keys(other) if any(key)}
    seen = {key for key in _keys(train) if key in evaluated}
    count = sum(key in seen for key in _keys(other))
    return [f"{other.name}: {count:,} of {len(other):,} rows are in the training data too"] if count else []


def _keys(examples: Examples) -> Iterator[tuple[str, ...]]:
    """Each row's text, or two, without the blanks around."""
    columns = [examples.text] if examples.text_pair is None else [examples.text, examples.text_pair]
    return zip(*(map(str.strip, column) for column in columns), strict=True)


def _first_few(items: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(items) - _MOST_SHOWN:,} more" if len(items) > _MOST_SHOWN else ""
    return separator.join(items[:_MOST_SHOWN]) + more
