"""Labels as text: which are numbers, and how messages show labels."""

from __future__ import annotations

import pathlib
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbert.config.counted import counted
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from transformers import BertConfig

FEW_EXAMPLES = 5
"""A class with fewer examples is hardly learned, and is often a typing error."""
_MOST_SHOWN = 10
_SEPARATORS = ("|", ",", ";", " ")
"""What stands between several labels in one text; blanks only between numbers."""
_SIGNS = ("#", "+", "/", "&")
"""The same, where each part is a label of its own too: names such as `comp/sys` and `R&B` are usual."""
_LIST = re.compile(r"\[.*\]|\{.*[,'\"].*\}|\(.*,.*\)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def is_number(label: str) -> bool:
    """Whether a label reads as a number, finite or not."""
    return _NUMBER.fullmatch(label) is not None


def have_fractions(labels: Sequence[str]) -> bool:
    """Whether all labels are numbers and at least one has a fraction."""
    return all(map(is_number, labels)) and any(float(label) % 1 for label in labels if np.isfinite(float(label)))


def several_in_one(names: Sequence[str]) -> str | None:
    """A label that looks like several in one text, such as `[0, 1, 0]`, `a|b` or `8,20`; None if none does.

    A character in a name is no sign of that. The parts must occur elsewhere too: `R&B|Soul` beside `Rock` is one class.
    """
    lists = [name for name in names if len(name) > 1 and _LIST.fullmatch(name)]
    if len(lists) > 1 and 2 * len(lists) >= len(names):
        return lists[0]
    for separator in (*_SEPARATORS, *_SIGNS):
        parts = {name: {part.strip() for part in name.split(separator)} for name in names if separator in name}
        parts = {name: own for name, own in parts.items() if all(own)}
        if separator == " ":
            parts = {name: own for name, own in parts.items() if all(map(is_number, own))}
        whole = set(names) - parts.keys()
        for name, own in parts.items():
            more = (part for other, part in parts.items() if other != name and separator not in _SIGNS)
            others = whole.union(*more)
            if own <= others:
                return name
    return None


def names_of_model(saved: BertConfig, directory: pathlib.Path) -> tuple[str, ...]:
    """The labels of a saved model, in their order.

    Raises:
        UsageError: for labels that cannot be told apart.
    """
    names = tuple(saved.id2label.get(i, f"LABEL_{i}") for i in range(saved.num_labels))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            "Every label of a model must have a different name. "
            f"Received: {twice!r} more than once in id2label of {directory / 'config.json'}. Repair it."
        )
    return names


def or_name_ids(label: str, names: Sequence[str]) -> str:
    """The end of a message about an unknown label: what to do if it is a number, and names are no numbers."""
    is_id = label.isdigit() and not any(map(is_number, names))
    return ", or pass --label_names with the names of 0, 1, ... in this order" * is_id


def shortened(names: Sequence[str], most: int = 20) -> str:
    """The first labels, in quotes."""
    return ", ".join(map(quoted, names[:most])) + (", ..." if len(names) > most else "")


def quoted(label: str) -> str:
    """A label in quotes, cut to 60 characters."""
    return repr(label if len(label) <= 60 else f"{label[:57]}...")


def look_alikes(names: Sequence[str], counts: Sequence[int], what: str) -> list[str]:
    """A line if some labels are almost the same.

    Args:
        names: The labels.
        counts: The training examples of each.
        what: What messages call several labels.
    """
    groups: dict[str, list[str]] = {}
    for name, count in zip(names, counts, strict=True):
        key = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        groups.setdefault(key, []).append(f"{name!r} ({counted(count, 'example')})")
    alike = [", ".join(group) for group in groups.values() if len(group) > 1]
    return [f"{what} that differ only in case or space: {_first_few(alike, '; ')}"] if alike else []


def rare_ones(names: Sequence[str], counts: Sequence[int], what: str) -> list[str]:
    """A line if some labels hardly occur; see `look_alikes`."""
    pairs = zip(names, counts, strict=True)
    rare = [f"{name!r} ({count})" for name, count in pairs if count < FEW_EXAMPLES]
    if not rare:
        return []
    return [
        f"{len(rare):,} of {len(counts):,} {what} with fewer than {FEW_EXAMPLES} training examples: {_first_few(rare)}"
    ]


def _first_few(items: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(items) - _MOST_SHOWN:,} more" if len(items) > _MOST_SHOWN else ""
    return separator.join(items[:_MOST_SHOWN]) + more
