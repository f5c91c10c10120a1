"""Several runs -> means and deviations over their seeds, their ranking by the metric that decides, and a page:
of runs that were trained apart, of `--seeds`, and of `--sweep`."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tfbert.config.run import shown
from tfbert.config.types import counted
from tfbert.output.output_dir import write_json, write_text
from tfbert.report import pages
from tfbert.report.run_files import RunFiles, differing, loss_extras
from tfbert.tasks.metrics import decided_by, tie_breakers

COMPARISON, SWEEP = "comparison", "sweep"
EXAMPLES = "max_train_examples"
"""The option of which a run may have fewer than it asks for."""
_MOST_METRICS = 5
_SAME_WORK = ("model_name_or_path", "dataset", "train_file", "train_records", "text_column", "max_seq_length")
_SAME_WORK += ("long_texts", "batching", "gradient_checkpointing", "optimizer")
_SAME_WORK += ("lora_rank", "lora_targets", "deterministic")
_SAME_EXAMPLES = ("dataset", "validation_file", "validation_split", "split_seed", "text_column", "label_column")
_SAME_EXAMPLES += ("max_eval_examples",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """What is said of several runs, written once for a browser, as Markdown and for a screen.

    Attributes:
        title: What it is.
        tables: Those of the runs.
        lines: What came out.
        notes: What the numbers mean, and what makes them hard to compare.
        directory: Where the runs are.
    """

    title: str
    tables: list[pages.Table]
    lines: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    directory: str = ""

    def html(self) -> str:
        """The page; needs no other file."""
        return pages.render("page.html", **vars(self))

    def markdown(self) -> str:
        """The tables, then a list of the rest."""
        titled = [f"{table.title}:\n\n{table.markdown()}" if table.title else table.markdown() for table in self.tables]
        return "\n".join([*titled, *(f"- {pages.markdown_text(line)}" for line in (*self.lines, *self.notes))]) + "\n"

    def text(self) -> str:
        """The same for a screen."""
        parts = [line for table in self.tables for line in (f"{table.title}:", "", *table.plain(), "")]
        return "\n".join([*parts, *self.lines, *self.notes]) + "\n"

    def write(self, directory: pathlib.Path, name: str) -> list[pathlib.Path]:
        """Writes `NAME.html` and `NAME.md` to a directory that exists.

        Raises:
            RunError: if they cannot be written.
        """
        texts = {directory / f"{name}.html": self.html(), directory / f"{name}.md": self.markdown()}
        for path, text in texts.items():
            write_text(path, text)
        return [*texts]


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
class SweptPoint:
    """Runs that differ in their seeds alone: all of `--seeds`, or those of one combination of a sweep's values.

    Attributes:
        runs: Those that are done, one for each seed.
        values: Of each option that a sweep varies.
        label: What to call the combination.
        failed: Why other runs are not done, by their name.
    """

    runs: list[RunFiles]
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    label: str = ""
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def results(self) -> list[dict[str, float]]:
        """Every metric of the evaluation and the test set, of each run."""
        return [
            {name: float(value) for name, value in run.results.items() if name.startswith(("eval_", "test_"))}
            for run in self.runs
        ]

    @functools.cached_property
    def mean(self) -> dict[str, float]:
        """Over the runs, of each metric that all of them have."""
        first, *others = self.results or [{}]
        return {name: float(np.mean(self._all(name))) for name in first if all(name in other for other in others)}

    @functools.cached_property
    def standard_deviation(self) -> dict[str, float]:
        """Likewise, the sample's (n - 1); empty for a single run."""
        return {name: float(np.std(self._all(name), ddof=1)) for name in self.mean} if len(self.runs) > 1 else {}

    def _all(self, name: str) -> list[float]:
        return [own[name] for own in self.results]

    @functools.cached_property
    def ranking(self) -> Ranking:
        """Of the runs."""
        decisive = self.runs[0].facts["decisive_metric"] if self.runs else ""
        return ranked(self.results, decisive if decisive in self.mean else "")

    @property
    def directory(self) -> str:
        """That of the best run; of the first where none is."""
        return self.runs[self.ranking.best or 0].name

    def table(self) -> pages.Table:
        """Its runs, their mean and their standard deviation."""
        labels = [*(f"seed {run.options['seed']}" for run in self.runs), "mean", "standard deviation"]
        rows = [*self.results, self.mean, self.standard_deviation]
        columns = [("run", labels, "{}"), *((name, [row.get(name) for row in rows], "{:.4f}") for name in self.mean)]
        return pages.table_of(columns, title="Over the seeds", texts=("run",), kept=self.ranking.best)

    def as_json(self) -> dict[str, Any]:
        """What `sweep.json` holds of it."""
        runs = [
            {"directory": run.name, "seed": run.options["seed"], "results": own}
            for run, own in zip(self.runs, self.results, strict=True)
        ]
        numbers = {"mean": self.mean, "standard_deviation": self.standard_deviation}
        found = numbers | {"directory": self.directory} if self.runs else {}
        return {"values": dict(self.values)} | found | {"runs": runs, "failed": dict(self.failed)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Swept:
    """The points of a sweep, of which at least one has a run; of `--seeds` alone, the only one.

    Attributes:
        points: The best first; those without a run last.
        ranking: Of them, in the order in which they were planned; of the only one, its runs'.
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
                **point.mean,
                **{f"{name}_std": value for name, value in point.standard_deviation.items()},
                "directory": point.directory,
            }
            for point in self.points
            if point.runs
        ]

    def tables(self, directory: pathlib.Path) -> list[pages.Table]:
        """A row for each point, which on a page in that directory has links to the reports of its runs; and of the only
        point the results of each seed."""
        done, points = [point for point in self.points if point.runs], self.points
        names = [name for name in done[0].mean if all(name in point.mean for point in done)]
        names.sort(key=lambda name: (name != self.ranking.decisive, not name.endswith("loss")))
        planned = [len(point.runs) + len(point.failed) for point in points]

        def measured(point: SweptPoint, name: str) -> str | None:
            deviation = f" ± {point.standard_deviation[name]:.4f}" if len(point.runs) > 1 else ""
            return f"{point.mean[name]:.4f}{deviation}" if point.runs else None

        def seconds(point: SweptPoint) -> float | None:
            found = [run.results["train_runtime"] for run in point.runs if "train_runtime" in run.results]
            return float(np.mean(found)) if found else None

        columns: list[tuple[str, list[Any], pages.Shown]]
        columns = [(name, [point.values[name] for point in points], shown) for name in done[0].values]
        if max(planned) > 1:
            counts = [f"{len(point.runs)} of {n}" for point, n in zip(points, planned, strict=True)]
            columns.append(("runs", counts, "{}"))
        columns += [(name, [measured(point, name) for point in points], "{}") for name in names[:_MOST_METRICS]]
        columns.append(("time", [seconds(point) for point in points], pages.duration))
        links = []
        for point in points:
            paths = [os.path.relpath(f"{run.name}/report.html", directory) for run in point.runs]
            seeds = [f"seed {run.options['seed']}" for run in point.runs]
            links.append([*zip(map(urllib.parse.quote, paths), seeds, strict=True)])
        table = pages.table_of(columns, texts=done[0].values.keys(), kept=0, links=links)
        return [table] if len(points) > 1 or planned == [1] else [table, points[0].table()]

    def lines(self) -> list[str]:
        """What stands below the tables: where the best is, and runs that are missing."""
        if len(self.points) == 1:
            names = {place: run.name for place, run in enumerate(self.points[0].runs)}
        else:
            names = {place: point.label for place, point in zip(self.ranking.order, self.points, strict=True)}
            if self.best is not None:
                names[self.ranking.order[0]] += f", in {self.best.directory}"
        found = self.ranking.in_words([names[place] for place in range(len(names))], self.points[0].mean)
        return [found, *(f"{name} is missing: {why}." for p in self.points for name, why in p.failed.items())]

    def notes(self) -> list[str]:
        """What the numbers mean, and what makes them hard to compare, a line each."""
        out = on_different_examples([run for point in self.points for run in point.runs])
        if any(len(point.runs) > 1 for point in self.points):
            out.insert(0, "Numbers are means over the seeds, ± the standard deviation of the sample (n - 1).")
        if EXAMPLES in self.points[0].values:
            done = [point for point in self.points if point.runs]
            there = {point.values[EXAMPLES]: point.runs[0].facts.get("train_examples", math.inf) for point in done}
            fewer = {most: count for most, count in there.items() if count < most}
            if fewer:
                shorter = ", ".join(f"{most:,}" for most in fewer)
                out.append(f"There are {max(fewer.values()):,} training examples, fewer than the {shorter} asked for.")
        return out

    def write(self, directory: pathlib.Path) -> None:
        """Writes `sweep.json`, `sweep.md` and `sweep.html`.

        Raises:
            RunError: if they cannot be written.
        """
        values = {"decisive": self.ranking.decisive, "decided_by": self.ranking.decided_by}
        values |= {"best": self.best and self.best.as_json(), "points": [point.as_json() for point in self.points]}
        write_json(directory / f"{SWEEP}.json", values)
        title = f"Sweep of {' and '.join(self.points[0].values)}" if self.points[0].values else "Several seeds"
        page = Page(
            title=title, directory=str(directory), lines=self.lines(), tables=self.tables(directory), notes=self.notes()
        )
        page.write(directory, SWEEP)


def rank(points: Sequence[SweptPoint]) -> Swept:
    """Ranks points by the mean of the metric that decides; equal ones stay in their order."""
    if len(points) == 1:
        return Swept(points=[*points], ranking=points[0].ranking)
    decisive = next(filter(None, (point.ranking.decisive for point in points)), "")
    ranking = ranked([point.mean for point in points], decisive)
    order = sorted(ranking.order, key=lambda index: not points[index].runs)
    return Swept(points=[points[index] for index in order], ranking=dataclasses.replace(ranking, order=order))


def on_different_examples(runs: Sequence[RunFiles]) -> list[str]:
    """A line where runs were evaluated on different examples, such as of a file that changed between them."""
    tested = {run.facts["data"].get("evaluation_crc32") for run in runs}
    line = "The runs were evaluated on different examples: their scores are hard to compare."
    return [line] if len(tested) > 1 else []


class Scaling(NamedTuple):
    """How fast a run was beside those that it can be compared with.

    Attributes:
        speed_up: Its examples/s over those of the run of fewest replicas with the same work, precision and global
            batch; None where either is unknown, and where there is no other such run.
        efficiency: Examples/s of a replica over those of the run of fewest replicas with the same work and precision,
            with or without XLA, and the same batch in all or for each replica. None where that run has no fewer, and
            where there is no other such run.
    """

    speed_up: float | None
    efficiency: float | None


def by_score(runs: list[RunFiles]) -> list[RunFiles]:
    """Runs in the order of a comparison: the best first, by the metric that decided, those without a score last. In the
    order given where they were not decided by the same metric."""
    metric = shared_metric(runs)
    order = ranked([run.results if run.decisive else {} for run in runs], metric).order if metric else range(len(runs))
    return [runs[index] for index in order]


def shared_metric(runs: list[RunFiles]) -> str:
    """The metric by which all scored runs were decided, as `eval_accuracy`; empty where there are several, or none."""
    metrics = {run.decisive for run in runs} - {""}
    return metrics.pop() if len(metrics) == 1 else ""


def compare(runs: list[RunFiles]) -> list[Scaling]:
    """Each run against those of the same work and precision whose batches are cut alike: into as many micro-batches, or
    into micro-batches of one size."""

    def work(run: RunFiles) -> tuple[Any, ...]:
        return *(repr(run.options[name]) for name in _SAME_WORK), run.facts["precision"]

    def batch(run: RunFiles) -> int:
        return run.options["global_batch_size"] or 0

    def pieces(run: RunFiles) -> int:
        return run.options["gradient_accumulation_steps"] or 1

    def micro_batch(run: RunFiles) -> Fraction:
        return Fraction(batch(run), run.num_replicas * pieces(run))

    rows = []
    for run in runs:
        timed = [
            other
            for other in runs
            if other.examples_per_second
            and work(other) == work(run)
            and (pieces(other) == pieces(run) or micro_batch(other) == micro_batch(run))
        ]
        timed.sort(key=lambda o: (o.num_replicas, pieces(o) != pieces(run), o.options["xla"], o.examples_per_second))
        same = [other for other in timed if batch(other) == batch(run)]
        alike = [
            other
            for other in timed
            if other.options["xla"] == run.options["xla"]
            and (batch(other) == batch(run) or batch(other) * run.num_replicas == batch(run) * other.num_replicas)
        ]
        speed, speed_up, efficiency = run.examples_per_second, None, None
        if speed and len(same) > 1 and (first := same[0].examples_per_second):
            speed_up = speed / first
        if speed and len({other.num_replicas for other in alike}) > 1:
            base, first = alike[0], alike[0].examples_per_second
            if first and (base is run or base.num_replicas < run.num_replicas):
                efficiency = speed / run.num_replicas * base.num_replicas / first
        rows.append(Scaling(speed_up, efficiency))
    return rows


def tables(runs: list[RunFiles]) -> list[pages.Table]:
    """Quality and time, speed, and the settings in which the runs differ, with a row for each run."""
    above, scaling, metric = directory_of(runs), compare(runs), shared_metric(runs)
    # Without the directory that all of them are in: columns are narrow.
    paths = [os.path.relpath(run.name, above) if above else run.name for run in runs]
    of_runs = ("run", [f"{number}: {path}" for number, path in enumerate(paths, 1)], "{}")
    names = {run.decisive: pages.words(run.decisive) for run in runs if run.decisive}
    for run in runs:
        names |= {name: title for name, title in run.validation_losses.items() if name not in names}
        names |= {run.tested: pages.words(run.tested)} if run.tested else {}

    def result(name: str) -> list[Any]:
        return [run.results.get(name) for run in runs]

    def option(name: str) -> list[Any]:
        return [run.options[name] for run in runs]

    def fact(name: str) -> list[Any]:
        return [run.facts[name] for run in runs]

    quality = [
        of_runs,
        *((title, result(name), "{:.4f}") for name, title in names.items()),
        ("training loss", [run.training_loss() for run in runs], "{:.4f}"),
        ("kept at step", result("best_step"), "{:,}"),
        ("updates", result("global_step"), "{:,}"),
        ("time", [pages.training_time(run.results) for run in runs], "{}"),
        ("speed-up", [row.speed_up for row in scaling], "{:.2f}"),
    ]
    precisions = zip(fact("precision"), option("xla"), strict=True)
    speed = [
        of_runs,
        ("devices", fact("devices"), "{}"),
        ("precision", [f"{precision}{', XLA' if xla else ''}" for precision, xla in precisions], "{}"),
        ("replicas", [run.num_replicas for run in runs], "{}"),
        ("batch", option("global_batch_size"), "{:,}"),
        ("examples/s", [run.examples_per_second for run in runs], "{:,.1f}"),
        ("efficiency", [row.efficiency for row in scaling], "{:.0%}"),
        ("tokens/s", result("train_tokens_per_second_steady"), "{:,.0f}"),
        ("peak memory", result("peak_memory_bytes"), pages.memory),
    ]
    texts, different = ("run", "devices", "precision"), [(name, values, pages.show) for name, values in differing(runs)]
    title = f"Quality and time, the best by {metric} first" if metric else "Quality and time"
    found = [pages.table_of(quality, title=title, texts=texts), pages.table_of(speed, title="Speed", texts=texts)]
    is_same_data = all(data == runs[0].facts["data"] for data in fact("data"))
    if is_same_data and [name for name, *_ in different] == ["seed"] and len({*option("seed")}) == len(runs):
        found.insert(1, SweptPoint(runs=runs).table())
    if different:
        title = "Settings in which the runs differ"
        texts = ("run", *(name for name, *_ in different))
        found.append(pages.table_of([of_runs, *different], title=title, texts=texts))
    return found


def directory_of(runs: list[RunFiles]) -> str:
    """The directory that all runs are in; empty where their names share none."""
    try:
        return os.path.commonpath([os.path.normpath(run.name).rpartition(os.sep)[0] for run in runs])
    except ValueError:  # Some paths are absolute, and some are not.
        return ""


def notes(runs: list[RunFiles]) -> list[str]:
    """What the numbers of these runs mean, and what makes them hard to compare, a line each."""
    out = [
        "Speed-up: examples/s over those of the run of fewest replicas with the same model, data, length, precision, "
        "micro-batches and global batch. Efficiency: examples/s of a replica over those in the run of fewest replicas "
        "that differs in its devices, and at most in the global batch, if each replica has the same share."
    ]
    if len(metrics := dict.fromkeys(run.decisive for run in runs if run.decisive)) > 1:
        out.append(f"The runs were decided by different metrics, {' and '.join(metrics)}: they are in the order given.")
    if any(run.training_loss() is not None for run in runs):
        out.append("The training loss is the last one logged before the kept weights were evaluated.")
    different = {name for name, _ in differing(runs)}
    rules = {"speeds are for different work": _SAME_WORK, "scores are on different examples": _SAME_EXAMPLES}
    for rule, names in rules.items():
        if unlike := [name for name in names if name in different]:
            out.append(f"The runs differ in {', '.join(unlike)}: their {rule}.")
    out += on_different_examples(runs)
    if any(run.options["validation_split"] for run in runs) and "train_file" in different:
        out.append("The runs differ in train_file: with validation_split, on different examples.")
    for extras in dict.fromkeys(tuple(loss_extras(run)) for run in runs):
        which = ", ".join(str(number) for number, run in enumerate(runs, 1) if tuple(loss_extras(run)) == extras)
        if extras:
            extra = " and ".join(extras)
            out.append(f"The training loss of run {which} includes {extra}; the validation loss does not.")
    for number, run in enumerate(runs, 1):
        for step, options in run.until_step.items():
            had = ", ".join(f"{name} {pages.show(value)}" for name, value in options.items())
            out.append(f"Up to update {step}, run {number} had {had}.")
    if any("train_examples_per_second_steady" not in run.results for run in runs):
        out.append("Runs without a steady speed are compared by that of their whole training, compilation included.")
    machines = list(dict.fromkeys(run.facts["machine"] for run in runs))
    if len(machines) > 1:
        out.append(f"The runs were made on different machines: {', '.join(machines)}.")
    out.append("Each run's report.html has its curves; those of several: train with --report_to=tensorboard.")
    return out


def comparison(runs: list[RunFiles]) -> Page:
    """Runs side by side."""
    runs = by_score(runs)
    return Page(
        title=f"{counted(len(runs), 'run')} compared",
        directory=directory_of(runs),
        tables=tables(runs),
        notes=notes(runs),
    )
