"""A part of the training examples is held out, to evaluate on: `--validation_split`.

It depends on `--split_seed` and the examples, in their order, alone. Examples that share a text are on one side; each
class keeps its share, as far as that allows.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.errors import UsageError

Set = TypeVar("Set", bound=Any)
"""A dataclass with a length, `name` and `take`: examples, or a table of them."""


def hold_out(
    sets: dict[str, Set],
    config: DataConfig,
    notes: list[str],
    *,
    groups: np.ndarray,
    strata: np.ndarray | None = None,
) -> dict[str, Set]:
    """The sets of a run with a part of `train` as `validation`; as they are without `validation_split`.

    Args:
        sets: By name, `train` first.
        config: Names the share, and the seed.
        notes: Receives what was held out.
        groups: int `[n]`: training examples with equal numbers stay together.
        strata: int `[n]`: the class of each training example, each of which keeps its share; None: all are alike.

    Raises:
        UsageError: where there are other examples to evaluate on, or none can be held out.
    """
    share, seed, train = config.validation_split, config.split_seed, sets["train"]
    if share is None:
        return sets
    if found := [name for name in sets if name.startswith("validation")]:
        raise UsageError(
            "validation_split is for data without examples to evaluate on. "
            f"Received: validation_split={share} with {sets[found[0]].name}. Drop --validation_split."
        )
    wanted, is_held = int(share * len(train) + 0.5), held_out_rows(groups, strata, share, seed)
    count = int(is_held.sum())
    together = f", in groups of up to {np.bincount(groups).max():,} that share their texts" * (
        len(np.unique(groups)) < len(train)
    )
    if not count:
        raise UsageError(
            "validation_split must hold out at least one example, and leave one of each class to train on. "
            f"Received: validation_split={share} of {len(train):,} in {train.name}{together}. "
            "Pass a larger share, or more examples."
        )
    few = f", rather than {wanted:,}, as they come{together[1:]}" * (2 * count < wanted)
    notes.append(
        f"validation_split={share:g}: {count:,} of {len(train):,} examples of {train.name} are held out to evaluate "
        f"on{few}; split_seed={seed}"
    )
    held = dataclasses.replace(train.take(np.flatnonzero(is_held)), name=f"{train.name} (validation_split)")
    kept = train.take(np.flatnonzero(~is_held))
    return {"train": kept, "validation": held} | {name: part for name, part in sets.items() if name != "train"}


def held_out_rows(groups: np.ndarray, strata: np.ndarray | None, share: float, seed: int) -> np.ndarray:
    """Which of n rows are held out: bool `[n]`.

    Groups are taken in an order drawn at random, each if its rows are still wanted of all their strata.

    Args:
        groups: int `[n]`, from 0.
        strata: int `[n]`, from 0; at least one row of each is left. None: all are alike.
        share: Above 0 and below 1.
        seed: Decides the order.
    """
    strata = np.zeros(len(groups), np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    random = np.random.Generator(np.random.PCG64(seed))
    wanted = _quotas(np.bincount(strata), share, random).tolist()
    by_group = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups)).tolist()
    is_held, left = np.zeros(len(groups), bool), sum(wanted)
    for group in random.permutation(len(ends)).tolist():
        if not left:
            break
        rows = by_group[(ends[group - 1] if group else 0) : ends[group]]
        counts = collections.Counter(strata[rows].tolist())
        if rows.size and all(wanted[stratum] >= count for stratum, count in counts.items()):
            is_held[rows] = True
            left -= len(rows)
            for stratum, count in counts.items():
                wanted[stratum] -= count
    return is_held


def _quotas(sizes: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """How many rows of each stratum are held out: the share of it, rounded so that the sum is the share of all; never a
    whole stratum. Where several are as near to the next number, chance decides."""
    exact = share * sizes
    quotas = np.floor(exact).astype(np.int64)
    missing = int(share * sizes.sum() + 0.5) - int(quotas.sum())
    order = np.lexsort((random.permutation(len(sizes)), quotas - exact))
    quotas[order[: max(missing, 0)]] += 1
    return np.minimum(quotas, sizes - 1)


def equal(keys: Iterable[Hashable]) -> np.ndarray:
    """Numbers that are equal where the keys are: int64 `[n]`."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def that_share_texts(contents: Sequence[tuple[str, ...]], share: float, notes: list[str]) -> np.ndarray:
    """Numbers that are equal where examples share a text: int64 `[n]`.

    Pairs may all hang together through a few texts that many of them have, so that nothing could be held out. Then only
    pairs with the same first text stay together, or else those with the same second one, or else equal pairs.

    Args:
        contents: The text, or the two texts, of each example.
        share: The share of them that is held out.
        notes: Receives a line where pairs that share a text may be on both sides.
    """
    if not contents or len(contents[0]) == 1:
        return equal(contents)
    largest = max(_SMALL_GROUP, int(share * len(contents)) // 10)
    first, second = (equal(texts) for texts in zip(*contents, strict=True))
    choices = (
        ("", _connected(contents)),
        ("pairs with the same first text", first),
        ("pairs with the same second text", second),
        ("equal pairs", equal(contents)),
    )
    what, groups = next((choice for choice in choices if np.bincount(choice[1]).max() <= largest), choices[-1])
    if what:
        notes.append(f"warning: validation_split keeps {what} together, no others: they share too many texts")
    return groups


_SMALL_GROUP = 10
"""Groups of up to this many pairs are small, however few pairs there are."""


def _connected(pairs: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Numbers that are equal where pairs hang together through texts that they share: int64 `[n]`."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    flat = equal(text for pair in pairs for text in pair).reshape(-1, 2)
    size = int(flat.max()) + 1
    graph = coo_array((np.ones(len(flat), np.int8), (flat[:, 0], flat[:, 1])), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return labels[flat[:, 0]].astype(np.int64)
