"""Several runs -> means and deviations over their seeds, their ranking by the metric that decides, and the files with
the tables of `--seeds` and `--sweep`."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.config.sweep import shown
from tfbert.output.output_dir import write_json, write_text
from tfbert.report import plots
from tfbert.report.pages import render
from tfbert.report.run_files import RunFiles
from tfbert.report.settings import differing
from tfbert.report.tables import Shown, Table, duration, markdown_text, sentence, table_of
from tfbert.tasks.metrics import decided_by, tie_breakers

SEED_FILES = ("seeds.json", "seeds.md", "comparison.html", "comparison.md")
SWEEP_FILES = ("sweep.json", "sweep.md", "sweep.html")
EXAMPLES = "max_train_examples"
"""The option whose curve is over the examples that there were."""
_SEED = "seed"
_MOST_METRICS = 5
_MOST_CURVES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking:
    """Which of several results is the best.

    Attributes:
        order: Their indices, the best first; equal ones in their order, those without the metric last.
        decisive: The metric by which they are ranked; empty where nothing was evaluated.
        decided_by: Another one, in which the best is better than the next, where both are equal in that one; else
            `decisive`.
        equal: How many are best together: 1 where one is the best, 0 where the metric is a number in none.
    """

    order: list[int]
    decisive: str
    decided_by: str
    equal: int

    @property
    def best(self) -> int | None:
        """The index of the best; None where several are equally good, or nothing was evaluated."""
        return self.order[0] if self.equal == 1 else None

    def in_words(self, names: Sequence[str], metrics: Mapping[str, Any]) -> str:
        """Which is the best and by what, as `Best by eval_f1: seed 1`.

        Args:
            names: What to call each.
            metrics: Those that there are, by which equal ones could have been told apart.
        """
        if not self.decisive:
            return "Nothing was evaluated: the runs are not ranked."
        if not self.equal:
            return f"Best by {self.decisive}: none, it is a number in none of them."
        if self.equal > 1:
            others = tie_breakers(self.decisive, metrics)
            also = f", also in {' and '.join(others)}" if others else ""
            best = [names[index] for index in sorted(self.order[: self.equal])]
            which = "all runs" if len(best) == len(names) else " and ".join(best)
            return f"Best by {self.decisive}: none, {which} are equal{also}."
        also = "" if self.decided_by == self.decisive else f" (several are equal in {self.decisive})"
        return f"Best by {self.decided_by}{also}: {names[self.order[0]]}"


def ranked(results: Sequence[Mapping[str, float]], decisive: str) -> Ranking:
    """Ranks results. A tie in the metric that decides falls to the lower loss, as within a run."""

    def worse(one: int, other: int) -> int:
        return -decided_by(decisive, results[one], results[other])[0]

    known = [index for index, found in enumerate(results) if not math.isnan(found.get(decisive, math.nan))]
    known.sort(key=functools.cmp_to_key(worse))
    equal = sum(worse(known[0], index) == 0 for index in known) if known else 0
    by = decided_by(decisive, results[known[0]], results[known[1]])[1] if len(known) > 1 else ""
    rest = [index for index in range(len(results)) if index not in known]
    return Ranking(order=[*known, *rest], decisive=decisive, decided_by=by or decisive, equal=equal)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """The results of several runs.

    Attributes:
        seeds: Of each run.
        values: Of each run, every metric of the evaluation and the test set by name.
        mean: Over the runs, of each metric that all runs have.
        standard_deviation: Likewise, the sample's (n - 1); empty for a single run.
        ranking: Of the runs.
    """

    seeds: list[int]
    values: list[dict[str, float]]
    mean: dict[str, float]
    standard_deviation: dict[str, float]
    ranking: Ranking

    @property
    def best(self) -> int | None:
        """The index of the best run; None where nothing was evaluated, and where several are equally good."""
        return self.ranking.best


def over_seeds(runs: Sequence[RunFiles]) -> OverSeeds:
    """Summarises one run or more."""
    values = [
        {name: float(value) for name, value in run.results.items() if name.startswith(("eval_", "test_"))}
        for run in runs
    ]
    names = [name for name in values[0] if all(name in found for found in values)]
    table = np.array([[found[name] for name in names] for found in values], np.float64).reshape(len(runs), len(names))
    spread = table.std(axis=0, ddof=1).tolist() if len(runs) > 1 else []
    decisive = runs[0].facts.get("decisive_metric") or (f"eval_{runs[0].score[0]}" if runs[0].score else "")
    return OverSeeds(
        seeds=[run.option("runtime", _SEED) for run in runs],
        values=values,
        mean=dict(zip(names, table.mean(axis=0).tolist(), strict=True)),
        standard_deviation=dict(zip(names, spread, strict=False)),
        ranking=ranked(values, decisive if decisive in names else ""),
    )


def differ_in_seed_alone(runs: list[RunFiles]) -> bool:
    """Whether all settings but the seed are the same, and the examples where they are known, and no two seeds are."""
    seeds: list[Any] = [run.option("runtime", _SEED) for run in runs]
    known = [run.facts["data"] for run in runs if "data" in run.facts]  # Not in runs of earlier versions.
    has_one = all(data == known[0] for data in known)
    return has_one and [name for name, _ in differing(runs)] == [_SEED] and len(set(seeds)) == len(runs)


def on_different_examples(runs: Sequence[RunFiles]) -> list[str]:
    """A line where runs were evaluated on different examples, such as of a file that changed between them."""
    tested = {run.facts["data"].get("evaluation_crc32") for run in runs if "data" in run.facts}
    line = "The runs were evaluated on different examples: their scores are hard to compare."
    return [line] if len(tested) > 1 else []


def seeds_table(found: OverSeeds) -> Table:
    """The runs, their mean and their standard deviation."""
    rows: list[Mapping[str, float]] = [*found.values, found.mean, found.standard_deviation]
    labels = [*(f"seed {seed}" for seed in found.seeds), "mean", "standard deviation"]
    metrics = [(name, [row.get(name) for row in rows], "{:.4f}") for name in found.mean]
    return table_of([("run", labels, "{}"), *metrics], title="Over the seeds", texts=("run",), kept=found.best)


def seeds_lines(found: OverSeeds, runs: Sequence[RunFiles], failed: Mapping[int, str]) -> list[str]:
    """What stands below the table: seeds without a run, and where the best is."""
    missing = [f"Seed {seed} is missing: {reason}." for seed, reason in failed.items()]
    return [*missing, found.ranking.in_words([run.name for run in runs], found.mean)]


def write_seeds(runs: Sequence[RunFiles], failed: Mapping[int, str], directory: pathlib.Path) -> OverSeeds:
    """Writes `seeds.json` and `seeds.md`.

    Args:
        runs: Those that are done, one or more.
        failed: The other seeds, and why they have no run.
        directory: Where to write them.

    Raises:
        RunError: if they cannot be written.
    """
    found = over_seeds(runs)
    ranking, values = found.ranking, dataclasses.asdict(found)
    best, equal = found.best, sorted(ranking.order[: ranking.equal]) if ranking.equal > 1 else []
    values |= {"decisive": ranking.decisive, "decided_by": ranking.decided_by} | {"directories": [r.name for r in runs]}
    values["best"] = None if best is None else {"seed": found.seeds[best], "directory": runs[best].name}
    values["equal"] = [found.seeds[index] for index in equal]
    del values["ranking"]
    write_json(directory / SEED_FILES[0], values | {"failed": {str(seed): why for seed, why in failed.items()}})
    _write_markdown(directory / SEED_FILES[1], seeds_table(found), seeds_lines(found, runs, failed))
    return found


def _write_markdown(path: pathlib.Path, table: Table, lines: Sequence[str]) -> None:
    write_text(path, "\n".join([table.markdown(), *(f"- {markdown_text(line)}" for line in lines)]) + "\n")


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

    @property
    def seconds(self) -> float | None:
        """The mean time of its runs."""
        found = [run.results["train_runtime"] for run in self.runs if "train_runtime" in run.results]
        return float(np.mean(found)) if found else None

    @property
    def examples(self) -> int | None:
        """The training examples that there were, where the sweep is over them."""
        return self.runs[0].facts.get("train_examples") if EXAMPLES in self.values and self.runs else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Swept:
    """The points of a sweep.

    Attributes:
        points: The best first; those without a run last.
        ranking: Of them, in the order in which they were planned.
    """

    points: list[SweptPoint]
    ranking: Ranking

    @property
    def best(self) -> SweptPoint | None:
        """The best point; None where several are equally good, or nothing was evaluated."""
        return None if self.ranking.best is None else self.points[0]

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

    def table(self, directory: pathlib.Path | None = None) -> Table:
        """A row for each point; on a page in a directory, with links to the reports of its runs."""
        done = [point for point in self.points if point.runs]
        names = [name for name in done[0].over.mean if all(name in point.over.mean for point in done)]
        names.sort(key=lambda name: (name != self.ranking.decisive, not name.endswith("loss")))
        planned = [len(point.runs) + len(point.failed) for point in self.points]
        counts = [f"{len(point.runs)} of {n}" for point, n in zip(self.points, planned, strict=True)]
        columns: list[tuple[str, list[Any], Shown]]
        columns = [(name, [point.values[name] for point in self.points], shown) for name in done[0].values]
        columns += [("runs", counts, "{}")] if max(planned) > 1 else []
        columns += [(name, [_measured(point, name) for point in self.points], "{}") for name in names[:_MOST_METRICS]]
        columns.append(("time", [point.seconds for point in self.points], duration))
        links = (
            [
                [(_address(run, directory), f"seed {run.option('runtime', _SEED)}") for run in point.runs]
                for point in self.points
            ]
            if directory
            else ()
        )
        return table_of(columns, texts=done[0].values.keys(), kept=0, links=links)

    def lines(self) -> list[str]:
        """What stands below the table: where the best is, and runs that are missing."""
        names = {place: point.label for place, point in zip(self.ranking.order, self.points, strict=True)}
        if self.best is not None:
            names[self.ranking.order[0]] += f", in {self.best.directory}"
        found = self.ranking.in_words([names[place] for place in range(len(names))], self.points[0].over.mean)
        return [found, *(f"{name} is missing: {why}." for p in self.points for name, why in p.failed.items())]

    def notes(self) -> list[str]:
        """What the numbers mean, and what makes them hard to compare, a line each."""
        out = on_different_examples([run for point in self.points for run in point.runs])
        if any(len(point.runs) > 1 for point in self.points):
            out.insert(0, "Numbers are means over the seeds, ± the standard deviation of the sample (n - 1).")
        asked = {point.values[EXAMPLES]: point.examples for point in self.points if point.examples}
        fewer = {most: count for most, count in asked.items() if most and count < most}
        if fewer:
            shorter = ", ".join(f"{most:,}" for most in fewer)
            out.append(f"There are {max(fewer.values()):,} training examples, fewer than the {shorter} asked for.")
        return out


def rank(points: Sequence[SweptPoint]) -> Swept:
    """Ranks points by the mean of the metric that decides; equal ones stay in their order."""
    done = [point.over.ranking.decisive for point in points if point.runs]
    decisive = next(filter(None, done), "")
    ranking = ranked([point.over.mean if point.runs else {} for point in points], decisive)
    order = sorted(ranking.order, key=lambda index: not points[index].runs)
    ranking = dataclasses.replace(ranking, order=order)
    return Swept(points=[points[index] for index in order], ranking=ranking)


def _measured(point: SweptPoint, name: str) -> str | None:
    if not point.runs:
        return None
    deviation = point.over.standard_deviation.get(name)
    return f"{point.over.mean[name]:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def _address(run: RunFiles, directory: pathlib.Path) -> str:
    return urllib.parse.quote(os.path.relpath(pathlib.Path(run.name) / "report.html", directory))


def write_sweep(found: Swept, directory: pathlib.Path) -> None:
    """Writes `sweep.json`, `sweep.md` and `sweep.html`.

    Raises:
        RunError: if they cannot be written.
    """
    ranking, best = found.ranking, found.best
    values = {"decisive": ranking.decisive, "decided_by": ranking.decided_by}
    values |= {"best": best and _as_json(best), "points": [_as_json(point) for point in found.points]}
    write_json(directory / SWEEP_FILES[0], values)
    _write_markdown(directory / SWEEP_FILES[1], found.table(), [*found.lines(), *found.notes()])
    page = render(
        "page.html",
        title=f"Sweep of {' and '.join(found.points[0].values)}",
        directory=str(directory),
        lines=found.lines(),
        tables=[found.table(directory)],
        notes=found.notes(),
        plots=curves(found),
    )
    write_text(directory / SWEEP_FILES[2], page)


def _as_json(point: SweptPoint) -> dict[str, Any]:
    found: dict[str, Any] = {"values": dict(point.values)}
    if point.runs:
        found |= {"mean": point.over.mean, "standard_deviation": point.over.standard_deviation}
        found["directory"] = point.directory
    found["runs"] = [
        {"directory": run.name, "seed": run.option("runtime", _SEED), "results": values}
        for run, values in zip(point.runs, point.over.values if point.runs else [], strict=True)
    ]
    return found | {"failed": dict(point.failed)}


def curves(found: Swept) -> list[tuple[str, str]]:
    """(title, SVG) of the metric that decides over the option of most numbers: a curve for each combination of the
    others; nothing where no option has several numbers."""
    decisive = found.ranking.decisive
    points = [point for point in found.points if point.runs and decisive in point.over.mean]
    numbers = {
        name: {point.values[name] for point in points}
        for name in found.points[0].values
        if all(type(point.values[name]) in (int, float) for point in points)
    }
    over = max(numbers, key=lambda name: len(numbers[name]), default="")
    if len(numbers.get(over, ())) < 2:
        return []

    def place(point: SweptPoint) -> float:
        return point.examples if over == EXAMPLES and point.examples else point.values[over]

    groups: dict[str, list[SweptPoint]] = {}
    for point in sorted(points, key=place):
        label = ", ".join(f"{name}={shown(value)}" for name, value in point.values.items() if name != over)
        groups.setdefault(label, []).append(point)
    series = [
        plots.Series(label=label, x=[*map(place, group)], y=[p.over.mean[decisive] for p in group], is_marked=True)
        for label, group in sorted(groups.items())[:_MOST_CURVES]
    ]
    x_label = "training examples" if over == EXAMPLES else over
    y_label = decisive.removeprefix("eval_").replace("_", " ")
    is_whole = all(isinstance(value, int) for value in numbers[over])
    drawn = plots.lines(series, x_label=x_label, y_label=y_label, x_is_whole=is_whole)
    return [(sentence(f"{y_label} by {x_label}"), drawn)]
