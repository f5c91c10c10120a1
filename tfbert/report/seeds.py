"""Runs that differ only in their seed -> the mean, the standard deviation and the best of their results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container
from typing import Any

import numpy as np

from tfbert.report.run_files import RunFiles
from tfbert.report.settings import differing
from tfbert.tasks.metrics import decided_by, tie_breakers

_SEED = "seed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """The results of several runs.

    Attributes:
        seeds: Of each run.
        values: Of each run, every metric of the evaluation and the test set by name.
        mean: Over the runs, of each metric that all runs have.
        standard_deviation: Likewise, the sample's (n - 1); empty for a single run.
        decisive: The metric that decides which run is the best, as `eval_accuracy`; empty where nothing was evaluated.
        decided_by: Another metric, which decided among runs that are equal in that one; else `decisive`.
        best: The index of the best run; None where nothing was evaluated, and where several are equally good.
        equal: The indices of these; empty where one is the best.
    """

    seeds: list[int]
    values: list[dict[str, float]]
    mean: dict[str, float]
    standard_deviation: dict[str, float]
    decisive: str
    decided_by: str
    best: int | None
    equal: list[int]

    def best_in_words(self, labels: list[str]) -> str:
        """Which run is the best and by what, as `best by eval_f1: seed 1`; empty where nothing was evaluated.

        Args:
            labels: What to call each of the runs.
        """
        if self.equal:
            which = "all runs" if len(self.equal) == len(self.seeds) else " and ".join(labels[i] for i in self.equal)
            return f"{best_by(self.decisive)}: none, {which} are equal{also_in(self.decisive, self.mean)}"
        return "" if self.best is None else f"{best_by(self.decisive, self.decided_by)}: {labels[self.best]}"


def best_by(decisive: str, decided_by: str = "") -> str:
    """By what the best is the best: `best by eval_f1`, or `best by eval_loss (several are equal in eval_f1)`."""
    if decided_by in ("", decisive):
        return f"best by {decisive}"
    return f"best by {decided_by} (several are equal in {decisive})"


def also_in(decisive: str, names: Container[str]) -> str:
    """What else is equal where none is the best: `, also in eval_loss`; empty for nothing."""
    others = tie_breakers(decisive, names)
    return f", also in {' and '.join(others)}" if others else ""


def over_seeds(runs: list[RunFiles]) -> OverSeeds:
    """Summarises runs.

    Args:
        runs: One or more. A tie in the metric that decides falls to the lower loss, as within a run.
    """
    values = [
        {name: float(value) for name, value in run.results.items() if name.startswith(("eval_", "test_"))}
        for run in runs
    ]
    names = [name for name in values[0] if all(name in found for found in values)]
    table = np.array([[found[name] for name in names] for found in values], np.float64).reshape(len(runs), len(names))
    spread = table.std(axis=0, ddof=1) if len(runs) > 1 else ()
    decisive = runs[0].facts.get("decisive_metric") or (f"eval_{runs[0].score[0]}" if runs[0].score else "")
    best, by, equal = _best(decisive, values) if decisive in names else (None, "", [])
    return OverSeeds(
        seeds=[run.option("runtime", _SEED) for run in runs],
        values=values,
        mean=dict(zip(names, table.mean(axis=0).tolist(), strict=True)),
        standard_deviation=dict(zip(names, np.asarray(spread).tolist(), strict=False)),
        decisive=decisive if decisive in names else "",
        decided_by=by,
        best=best,
        equal=equal,
    )


def _best(decisive: str, values: list[dict[str, float]]) -> tuple[int | None, str, list[int]]:
    """The index of the best run, the metric by which it is, and the indices of several that are best together."""
    best, by, equal = None, decisive, []
    for index, found in enumerate(values):
        if math.isnan(found[decisive]):
            continue
        order, name = decided_by(decisive, found, {} if best is None else values[best])
        if order > 0:
            best, by, equal = index, name, [index]
        elif order == 0:
            equal.append(index)
        elif name != decisive and by == decisive:
            by = name
    return (best, by, []) if len(equal) == 1 else (None, decisive, equal)


def differ_in_seed_alone(runs: list[RunFiles]) -> bool:
    """Whether all settings but the seed are the same, and the examples where they are known, and no two seeds are."""
    seeds: list[Any] = [run.option("runtime", _SEED) for run in runs]
    known = [run.facts["data"] for run in runs if "data" in run.facts]  # Not in runs of earlier versions.
    has_one = all(data == known[0] for data in known)
    return has_one and [name for name, _ in differing(runs)] == [_SEED] and len(set(seeds)) == len(runs)


def on_different_examples(runs: list[RunFiles]) -> list[str]:
    """A line where runs were evaluated on different examples, such as of a file that changed between them."""
    tested = {run.facts["data"].get("evaluation_crc32") for run in runs if "data" in run.facts}
    return ["The runs were evaluated on different examples: their scores are hard to compare."] * (len(tested) > 1)


def seed_rows(found: OverSeeds, labels: list[str]) -> tuple[list[str], list[list[str]]]:
    """A table of the runs, their mean, their standard deviation and the best: its columns, and a text for each cell.

    Args:
        found: The runs.
        labels: What to call each of them.
    """
    names = list(found.mean)
    rows = [
        [label, *(_text(values[name]) for name in names)] for label, values in zip(labels, found.values, strict=True)
    ]
    rows.append(["mean", *(_text(found.mean[name]) for name in names)])
    rows.append(["standard deviation", *(_text(found.standard_deviation.get(name)) for name in names)])
    if words := found.best_in_words(labels):
        best = {} if found.best is None else found.values[found.best]
        rows.append([words, *(_text(best.get(name)) for name in names)])
    return ["run", *names], rows


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
