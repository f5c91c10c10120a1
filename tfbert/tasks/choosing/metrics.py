"""Scores of choices: accuracy, mean reciprocal rank and loss; and for which questions they are low."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

MISSING = -np.inf
"""The logit of a choice that an example does not have."""
_LENGTHS = (0, 32, 64, 128, 256, 512)
"""Where the groups of lengths begin, in words of context, question and choices together."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """The model's scores for the choices of each example.

    Attributes:
        logits: float32 `[n, choices]`; `MISSING` for a choice that an example does not have.
        counts: int64 `[n]`: how many choices each has.
    """

    logits: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, splits: np.ndarray) -> Choices:
        """From scores of all choices, float32 `[sequences]`, and where each example's begin, int64 `[n + 1]`."""
        counts = np.diff(splits)
        is_there = np.arange(counts.max(initial=0)) < counts[:, None]
        logits = np.full(is_there.shape, MISSING, np.float32)
        logits[is_there] = scores
        return cls(logits=logits, counts=counts)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def is_there(self) -> np.ndarray:
        """bool `[n, choices]`: which choices there are."""
        return np.arange(self.logits.shape[1]) < self.counts[:, None]

    @property
    def index(self) -> np.ndarray:
        """int64 `[n]`: the best choice of each; the first of equals."""
        return self.logits.argmax(axis=1)

    @property
    def probabilities(self) -> np.ndarray:
        """float64 `[n, choices]`: a softmax over the choices of each example; 0 for missing ones."""
        logits = self.logits.astype(np.float64)
        own = np.exp(logits - logits.max(axis=1, keepdims=True))
        return own / own.sum(axis=1, keepdims=True)

    def losses(self, labels: np.ndarray) -> np.ndarray:
        """float64 `[n]`: the cross-entropy of each right choice, in nats."""
        logits = self.logits.astype(np.float64)
        most = logits.max(axis=1)
        total = most + np.log(np.exp(logits - most[:, None]).sum(axis=1))
        return total - logits[np.arange(len(labels)), labels]

    def ranks(self, labels: np.ndarray) -> np.ndarray:
        """int64 `[n]`: the place of each right choice among all, best first, from 1; of equals, the first comes first,
        so that rank 1 is an accurate prediction."""
        rows = np.arange(len(labels))
        own = self.logits[rows, labels][:, None]
        is_before = np.arange(self.logits.shape[1]) < labels[:, None]
        return 1 + ((self.logits > own) | ((self.logits == own) & is_before)).sum(axis=1)


def choice_metrics(choices: Choices, labels: np.ndarray) -> dict[str, float]:
    """The metrics of predictions, given the right choices, int `[n]`."""
    ranks = choices.ranks(labels)
    return {
        "accuracy": float((ranks == 1).mean()),
        "mean_reciprocal_rank": float((1 / ranks).mean()),
        "loss": float(choices.losses(labels).mean()),
    }


def breakdown(choices: Choices, labels: np.ndarray, words: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    """The metrics by the number of choices and by length.

    Args:
        choices: The predictions.
        labels: int `[n]`.
        words: The words of each example's texts together.

    Returns:
        By title: rows of `name`, `accuracy`, `mean_reciprocal_rank`, `chance` (the accuracy of guessing) and
        `questions`.
    """
    counts, words = choices.counts, np.asarray(words)
    by_count = [(f"{count} choices", counts == count) for count in np.unique(counts)]
    ends = (*_LENGTHS[1:], np.iinfo(np.int64).max)
    by_length = [
        (
            f"{start} words or more" if end == ends[-1] else f"{start} to {end - 1} words",
            (words >= start) & (words < end),
        )
        for start, end in zip(_LENGTHS, ends, strict=True)
    ]

    def row(name: str, where: np.ndarray) -> dict[str, Any]:
        ranks = choices.ranks(labels)[where]
        return {
            "name": name,
            "accuracy": float((ranks == 1).mean()),
            "mean_reciprocal_rank": float((1 / ranks).mean()),
            "chance": float((1 / counts[where]).mean()),
            "questions": int(where.sum()),
        }

    groups = {"By the number of choices": by_count, "By length": by_length}
    return {title: [row(name, where) for name, where in rows if where.any()] for title, rows in groups.items()}
