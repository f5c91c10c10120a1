"""Runs that differ only in their seed -> the mean, the standard deviation and the best of their results."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tfbert.report.run_files import RunFiles
from tfbert.report.settings import differing
from tfbert.tasks.metrics import lower_is_better

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
        best: The index of the best run; None likewise.
    """

    seeds: list[int]
    values: list[dict[str, float]]
    mean: dict[str, float]
    standard_deviation: dict[str, float]
    decisive: str
    best: int | None


def over_seeds(runs: list[RunFiles]) -> OverSeeds:
    """Summarises runs.

    Args:
        runs: One or more; of equally good ones, the first is the best.
    """
    values = [
        {name: float(value) for name, value in run.results.items() if name.startswith(("eval_", "test_"))}
        for run in runs
    ]
    names = [name for name in values[0] if all(name in found for found in values)]
    table = np.array([[found[name] for name in names] for found in values], np.float64).reshape(len(runs), len(names))
    spread = table.std(axis=0, ddof=1) if len(runs) > 1 else ()
    decisive = runs[0].facts.get("decisive_metric") or (f"eval_{runs[0].score[0]}" if runs[0].score else "")
    best = None
    if decisive in names:
        column = table[:, names.index(decisive)] * (-1 if lower_is_better(decisive) else 1)
        best = None if np.isnan(column).all() else int(np.nanargmax(column))
    return OverSeeds(
        seeds=[run.option("runtime", _SEED) for run in runs],
        values=values,
        mean=dict(zip(names, table.mean(axis=0).tolist(), strict=True)),
        standard_deviation=dict(zip(names, np.asarray(spread).tolist(), strict=False)),
        decisive=decisive if decisive in names else "",
        best=best,
    )


def differ_in_seed_alone(runs: list[RunFiles]) -> bool:
    """Whether all settings but the seed are the same, and no two seeds are."""
    seeds: list[Any] = [run.option("runtime", _SEED) for run in runs]
    return [name for name, _ in differing(runs)] == [_SEED] and len(set(seeds)) == len(runs)


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
    if found.best is not None:
        best = found.values[found.best]
        rows.append([f"best by {found.decisive}: {labels[found.best]}", *(_text(best[name]) for name in names)])
    return ["run", *names], rows


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
