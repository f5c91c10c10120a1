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

COMPARISON = "comparison"
FILES = ("seeds.json", "comparison.html", "comparison.md", "sweep.json", "sweep.md", "sweep.html")
"""What `--seeds` and `--sweep` write beside the directories of their runs."""
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
    decisive = runs[0].facts["decisive_metric"] or ""
    return OverSeeds(
        seeds=[run.options["seed"] for run in runs],
        values=values,
        mean=dict(zip(names, table.mean(axis=0).tolist(), strict=True)),
        standard_deviation=dict(zip(names, spread, strict=False)),
        ranking=ranked(values, decisive if decisive in names else ""),
    )


def differ_in_seed_alone(runs: list[RunFiles]) -> bool:
    """Whether all settings but the seed are the same, and the examples where they are known, and no two seeds are."""
    seeds: list[Any] = [run.options["seed"] for run in runs]
    has_one = all(run.facts["data"] == runs[0].facts["data"] for run in runs)
    return has_one and [name for name, _ in differing(runs)] == ["seed"] and len(set(seeds)) == len(runs)


def on_different_examples(runs: Sequence[RunFiles]) -> list[str]:
    """A line where runs were evaluated on different examples, such as of a file that changed between them."""
    tested = {run.facts["data"].get("evaluation_crc32") for run in runs}
    line = "The runs were evaluated on different examples: their scores are hard to compare."
    return [line] if len(tested) > 1 else []


def seeds_table(found: OverSeeds) -> pages.Table:
    """The runs, their mean and their standard deviation."""
    rows: list[Mapping[str, float]] = [*found.values, found.mean, found.standard_deviation]
    labels = [*(f"seed {seed}" for seed in found.seeds), "mean", "standard deviation"]
    metrics = [(name, [row.get(name) for row in rows], "{:.4f}") for name in found.mean]
    return pages.table_of([("run", labels, "{}"), *metrics], title="Over the seeds", texts=("run",), kept=found.best)


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


def seeds_lines(point: SweptPoint) -> list[str]:
    """What stands beside the table of seeds: where the best is, and seeds without a run."""
    found = point.over.ranking.in_words([run.name for run in point.runs], point.over.mean)
    return [found, *(f"{pages.sentence(name)} is missing: {why}." for name, why in point.failed.items())]


def write_seeds(point: SweptPoint, directory: pathlib.Path) -> OverSeeds:
    """Writes `seeds.json` and the comparison of the runs of `--seeds`, one or more.

    Raises:
        RunError: if they cannot be written.
    """
    found, ranking, values = point.over, point.over.ranking, dataclasses.asdict(point.over)
    best, equal = found.best, sorted(ranking.order[: ranking.equal]) if ranking.equal > 1 else []
    del values["ranking"]
    values |= {"decisive": ranking.decisive, "decided_by": ranking.decided_by}
    values |= {"directories": [run.name for run in point.runs], "equal": [found.seeds[index] for index in equal]}
    values["best"] = None if best is None else {"seed": found.seeds[best], "directory": point.runs[best].name}
    values["failed"] = {name.removeprefix("seed "): why for name, why in point.failed.items()}
    write_json(directory / FILES[0], values)
    comparison(point.runs, seeds_lines(point)).write(directory, COMPARISON)
    return found


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

    def table(self, directory: pathlib.Path) -> pages.Table:
        """A row for each point; on a page in that directory, with links to the reports of its runs."""
        done = [point for point in self.points if point.runs]
        names = [name for name in done[0].over.mean if all(name in point.over.mean for point in done)]
        names.sort(key=lambda name: (name != self.ranking.decisive, not name.endswith("loss")))
        planned = [len(point.runs) + len(point.failed) for point in self.points]
        counts = [f"{len(point.runs)} of {n}" for point, n in zip(self.points, planned, strict=True)]
        columns: list[tuple[str, list[Any], pages.Shown]]
        columns = [(name, [point.values[name] for point in self.points], shown) for name in done[0].values]
        columns += [("runs", counts, "{}")] if max(planned) > 1 else []
        columns += [(name, [_measured(point, name) for point in self.points], "{}") for name in names[:_MOST_METRICS]]
        columns.append(("time", [point.seconds for point in self.points], pages.duration))
        links = []
        for point in self.points:
            paths = [os.path.relpath(pathlib.Path(run.name) / "report.html", directory) for run in point.runs]
            seeds = [f"seed {run.options['seed']}" for run in point.runs]
            links.append([*zip(map(urllib.parse.quote, paths), seeds, strict=True)])
        return pages.table_of(columns, texts=done[0].values.keys(), kept=0, links=links)

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


def write_sweep(found: Swept, directory: pathlib.Path) -> None:
    """Writes `sweep.json`, `sweep.md` and `sweep.html`.

    Raises:
        RunError: if they cannot be written.
    """
    values = {"decisive": found.ranking.decisive, "decided_by": found.ranking.decided_by}
    values |= {"best": found.best and _as_json(found.best), "points": [_as_json(point) for point in found.points]}
    write_json(directory / "sweep.json", values)
    page = Page(
        title=f"Sweep of {' and '.join(found.points[0].values)}",
        directory=str(directory),
        lines=found.lines(),
        tables=[found.table(directory)],
        notes=found.notes(),
    )
    page.write(directory, "sweep")


def _as_json(point: SweptPoint) -> dict[str, Any]:
    found: dict[str, Any] = {"values": dict(point.values)}
    if point.runs:
        found |= {"mean": point.over.mean, "standard_deviation": point.over.standard_deviation}
        found["directory"] = point.directory
    found["runs"] = [
        {"directory": run.name, "seed": run.options["seed"], "results": values}
        for run, values in zip(point.runs, point.over.values if point.runs else [], strict=True)
    ]
    return found | {"failed": dict(point.failed)}


class ComparedRun(NamedTuple):
    """A run in the comparison.

    Attributes:
        run: Its files.
        speed_up: Its examples/s over those of the run of fewest replicas with the same work, precision and global
            batch; None where either is unknown, and where there is no other such run.
        efficiency: Examples/s of a replica over those of the run of fewest replicas with the same work and precision,
            with or without XLA, and the same batch in all or for each replica. None where that run has no fewer, and
            where there is no other such run.
    """

    run: RunFiles
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


def compare(runs: list[RunFiles]) -> list[ComparedRun]:
    """Each run against those that it can be compared with."""
    rows = []
    for run in runs:
        speed, pieces, speed_up, efficiency = run.examples_per_second, _micro_batches(run), None, None
        timed = [other for other in runs if other.examples_per_second]
        timed = [other for other in timed if _work(other) == _work(run) and _pieces_are_alike(other, run)]
        timed.sort(key=lambda o: (o.num_replicas, _micro_batches(o) != pieces, _xla(o), o.examples_per_second))
        same = [other for other in timed if _batch(other) == _batch(run)]
        first = same[0].examples_per_second if len(same) > 1 else None
        if speed and first:
            speed_up = speed / first
        alike = [other for other in timed if _xla(other) == _xla(run) and _scales(other, run)]
        if len({other.num_replicas for other in alike}) > 1:
            base = alike[0]
            first = base.examples_per_second if base is run or base.num_replicas < run.num_replicas else None
            if speed and first:
                efficiency = speed / run.num_replicas * base.num_replicas / first
        rows.append(ComparedRun(run, speed_up, efficiency))
    return rows


def _work(run: RunFiles) -> tuple[Any, ...]:
    """What runs share whose speeds are compared: what is computed, and the precision."""
    options = run.options
    return *(repr(options[name]) for name in _SAME_WORK), run.facts["precision"]


def _batch(run: RunFiles) -> int:
    return run.options["global_batch_size"] or 0


def _micro_batches(run: RunFiles) -> int:
    return run.options["gradient_accumulation_steps"] or 1


def _pieces_are_alike(run: RunFiles, other: RunFiles) -> bool:
    """Whether two runs cut batches alike: into as many micro-batches, or into micro-batches of one size."""
    sizes = {Fraction(_batch(one), one.num_replicas * _micro_batches(one)) for one in (run, other)}
    return _micro_batches(run) == _micro_batches(other) or len(sizes) == 1


def _xla(run: RunFiles) -> bool:
    return bool(run.options["xla"])


def _scales(run: RunFiles, other: RunFiles) -> bool:
    """Whether two runs have the same batch, in all or for each replica."""
    return _batch(run) == _batch(other) or _batch(run) * other.num_replicas == _batch(other) * run.num_replicas


def tables(rows: list[ComparedRun]) -> list[pages.Table]:
    """Quality and time, speed, and the settings in which the runs differ, with a row for each run."""
    runs = [row.run for row in rows]
    of_runs = ("run", run_labels(runs), "{}")
    names = {run.decisive: pages.words(run.decisive) for run in runs if run.decisive}
    for run in runs:
        names |= {name: title for name, title in run.validation_losses.items() if name not in names}
        names |= {run.tested: pages.words(run.tested)} if run.tested else {}

    def result(name: str) -> list[Any]:
        return [run.results.get(name) for run in runs]

    quality = [
        of_runs,
        *((title, result(name), "{:.4f}") for name, title in names.items()),
        ("training loss", [run.training_loss() for run in runs], "{:.4f}"),
        ("kept at step", result("best_step"), "{:,}"),
        ("updates", result("global_step"), "{:,}"),
        ("time", [pages.training_time(run.results) for run in runs], "{}"),
        ("speed-up", [row.speed_up for row in rows], "{:.2f}"),
    ]
    speed = [
        of_runs,
        ("devices", [run.facts["devices"] for run in runs], "{}"),
        ("precision", [f"{run.facts['precision']}{', XLA' if _xla(run) else ''}" for run in runs], "{}"),
        ("replicas", [run.num_replicas for run in runs], "{}"),
        ("batch", [run.options["global_batch_size"] for run in runs], "{:,}"),
        ("examples/s", [run.examples_per_second for run in runs], "{:,.1f}"),
        ("efficiency", [row.efficiency for row in rows], "{:.0%}"),
        ("tokens/s", result("train_tokens_per_second_steady"), "{:,.0f}"),
        ("peak memory", result("peak_memory_bytes"), pages.memory),
    ]
    metric, texts = shared_metric(runs), ("run", "devices", "precision")
    title = f"Quality and time, the best by {metric} first" if metric else "Quality and time"
    found = [pages.table_of(quality, title=title, texts=texts), pages.table_of(speed, title="Speed", texts=texts)]
    if differ_in_seed_alone(runs):
        found.insert(1, seeds_table(over_seeds(runs)))
    different = [(name, values, pages.show) for name, values in differing(runs)]
    if different:
        title = "Settings in which the runs differ"
        texts = ("run", *(name for name, *_ in different))
        found.append(pages.table_of([of_runs, *different], title=title, texts=texts))
    return found


def run_labels(runs: list[RunFiles]) -> list[str]:
    """A run's number and its name, without the directory that all of them are in: columns are narrow."""
    above = directory_of(runs)
    names = [os.path.relpath(run.name, above) if above else run.name for run in runs]
    return [f"{number}: {name}" for number, name in enumerate(names, 1)]


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


def comparison(runs: list[RunFiles], lines: Sequence[str] = ()) -> Page:
    """Runs side by side, with lines on what came out."""
    runs = by_score(runs)
    return Page(
        title=f"{counted(len(runs), 'run')} compared",
        directory=directory_of(runs),
        lines=[*lines],
        tables=tables(compare(runs)),
        notes=notes(runs),
    )
