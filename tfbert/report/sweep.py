"""The runs of a sweep -> a table that ranks them, and curves of the metric that decides."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.config.sweep import shown
from tfbert.report.pages import duration
from tfbert.report.plots import Curve
from tfbert.report.run_files import RunFiles
from tfbert.report.seeds import OverSeeds, on_different_examples, over_seeds
from tfbert.tasks.metrics import decided_by

EXAMPLES = "max_train_examples"
"""The option whose curve is over the examples that there were."""
_MOST_METRICS = 5
_MOST_CURVES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptPoint:
    """A combination of values, with its runs.

    Attributes:
        values: Of each option that is varied.
        label: What to call it.
        runs: Those that are done, one for each seed.
        failed: Why others are not, by their name.
    """

    values: Mapping[str, Any]
    label: str
    runs: list[RunFiles]
    failed: Mapping[str, str]

    @functools.cached_property
    def over(self) -> OverSeeds:
        """Means and deviations over the seeds; there must be a run."""
        return over_seeds(self.runs)

    @property
    def directory(self) -> str:
        """That of the best run; of the first where none is."""
        return self.runs[self.over.best or 0].name

    def mean(self, name: str) -> float | None:
        """The mean of a number of the results over the runs that have it."""
        found = [run.results[name] for run in self.runs if isinstance(run.results.get(name), (int, float))]
        return float(np.mean(found)) if found else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Swept:
    """The points of a sweep.

    Attributes:
        points: The best first; those without a run last.
        decisive: The metric by which they are ranked; empty where nothing was evaluated.
        decided_by: Another metric, in which the best is better than the next, where both are equal in that one; else
            `decisive`.
        equal: How many are best together; 1 where one is the best, 0 where nothing was evaluated.
    """

    points: list[SweptPoint]
    decisive: str
    decided_by: str
    equal: int

    @property
    def best(self) -> SweptPoint | None:
        """The best point; None where several are equally good, or nothing was evaluated."""
        return self.points[0] if self.equal == 1 else None

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each point with a run, the best first: its values, the mean of each metric, its standard
        deviation as `METRIC_std` where there is one, and the directory of its best run."""
        return [
            {
                **point.values,
                **point.over.mean,
                **{f"{name}_std": value for name, value in point.over.standard_deviation.items()},
                "directory": point.directory,
            }
            for point in self.points
            if point.runs
        ]


def rank(points: Sequence[SweptPoint]) -> Swept:
    """Ranks points by the mean of the metric that decides; equal ones stay in their order."""
    done = [point for point in points if point.runs]
    decisive = next((point.over.decisive for point in done if point.over.decisive), "")
    known = [point for point in done if not math.isnan(point.over.mean.get(decisive, math.nan))]

    def compared(one: SweptPoint, other: SweptPoint) -> int:
        return -decided_by(decisive, one.over.mean, other.over.mean)[0]

    known.sort(key=functools.cmp_to_key(compared))
    rest = [point for point in done if point not in known] + [point for point in points if not point.runs]
    equal = sum(compared(known[0], point) == 0 for point in known) if known else 0
    by = decided_by(decisive, known[0].over.mean, known[1].over.mean)[1] if len(known) > 1 else ""
    return Swept(points=[*known, *rest], decisive=decisive, decided_by=by or decisive, equal=equal)


def sweep_rows(found: Swept) -> tuple[list[str], list[list[str]]]:
    """A table with a row for each point: its columns, and a text for each cell."""
    names = list(found.points[0].values)
    done = [point for point in found.points if point.runs]
    metrics = [name for name in done[0].over.mean if all(name in point.over.mean for point in done)] if done else []
    metrics.sort(key=lambda name: (name != found.decisive, not name.endswith("loss")))
    metrics = metrics[:_MOST_METRICS]
    has_seeds = any(len(point.runs) + len(point.failed) > 1 for point in found.points)
    rows = []
    for point in found.points:
        cells = [shown(value) for value in point.values.values()]
        cells += [f"{len(point.runs)} of {len(point.runs) + len(point.failed)}"] * has_seeds
        cells += [_with_deviation(point, name) for name in metrics]
        cells.append(duration(point.mean("train_runtime")))
        rows.append(cells)
    return [*names, *["runs"] * has_seeds, *metrics, "time"], rows


def _with_deviation(point: SweptPoint, name: str) -> str:
    if not point.runs:
        return "–"
    deviation = point.over.standard_deviation.get(name)
    return f"{point.over.mean[name]:.4f}" + (f" ± {deviation:.4f}" if deviation is not None else "")


def curves(found: Swept) -> tuple[str, list[Curve]]:
    """The metric that decides over an option: what the horizontal axis is, and a curve for each combination of the
    others. The option is the one of most numbers, else the first one."""
    points = [point for point in found.points if point.runs and found.decisive in point.over.mean]
    if not points:
        return "", []
    names = list(points[0].values)
    values = {name: list(dict.fromkeys(point.values[name] for point in points)) for name in names}
    numeric = [name for name in names if all(type(value) in (int, float) for value in values[name])]
    over = max(numeric or names[:1], key=lambda name: len(values[name]))
    if len(values[over]) < 2:
        return "", []
    others: dict[str, list[SweptPoint]] = {}
    for point in points:
        label = ", ".join(f"{name}={shown(value)}" for name, value in point.values.items() if name != over)
        others.setdefault(label, []).append(point)
    out = []
    for label, group in sorted(others.items(), key=lambda item: _order(item[1][0], over))[:_MOST_CURVES]:
        places = [_place(point, over, values[over], numeric) for point in group]
        group = [point for _, point in sorted(zip(places, group, strict=True), key=lambda pair: pair[0])]
        out.append(
            Curve(
                label=label,
                x=sorted(places),
                y=[point.over.mean[found.decisive] for point in group],
                deviations=[point.over.standard_deviation.get(found.decisive, 0.0) for point in group],
                ticks=[_tick(point, over) for point in group],
                is_scale=over in numeric,
            )
        )
    return "training examples" if over == EXAMPLES else over, out


def _order(point: SweptPoint, over: str) -> list[tuple[bool, Any]]:
    """Where a curve is in the legend: numbers by their size."""
    values = [value for name, value in point.values.items() if name != over]
    return [(type(v) in (int, float), v if type(v) in (int, float) else str(v)) for v in values]


def _place(point: SweptPoint, name: str, values: list[Any], numeric: Sequence[str]) -> float:
    """Where a point is on the horizontal axis."""
    if name == EXAMPLES and (count := point.runs[0].facts.get("train_examples")):
        return count
    return point.values[name] if name in numeric else values.index(point.values[name])


def _tick(point: SweptPoint, name: str) -> str:
    if name == EXAMPLES and (count := point.runs[0].facts.get("train_examples")):
        return f"{count:,}"
    return shown(point.values[name])


def notes(found: Swept) -> list[str]:
    """What the numbers mean, and what makes them hard to compare, a line each."""
    runs = [run for point in found.points for run in point.runs]
    out = []
    if any(len(point.runs) > 1 for point in found.points):
        out.append("Numbers are means over the seeds, ± the standard deviation of the sample (n - 1).")
    out += on_different_examples(runs)
    counts = {
        point.values[EXAMPLES]: point.runs[0].facts.get("train_examples")
        for point in found.points
        if EXAMPLES in point.values and point.runs
    }
    fewer = {asked: count for asked, count in counts.items() if count and asked and count < asked}
    if fewer:
        shorter = ", ".join(f"{asked:,}" for asked in fewer)
        out.append(f"There are {max(fewer.values()):,} training examples, fewer than the {shorter} asked for.")
    return out
