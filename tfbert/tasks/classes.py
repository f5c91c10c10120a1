"""Labels as text: which are numbers, and how messages show labels."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def is_number(label: str) -> bool:
    """Whether a label reads as a number, finite or not."""
    return _NUMBER.fullmatch(label) is not None


def have_fractions(labels: Sequence[str]) -> bool:
    """Whether all labels are numbers and at least one has a fraction."""
    return all(map(is_number, labels)) and any(float(label) % 1 for label in labels if np.isfinite(float(label)))


def shortened(names: Sequence[str], most: int = 20) -> str:
    """The first labels, in quotes."""
    return ", ".join(map(quoted, names[:most])) + (", ..." if len(names) > most else "")


def quoted(label: str) -> str:
    """A label in quotes, cut to 60 characters."""
    return repr(label if len(label) <= 60 else f"{label[:57]}...")
