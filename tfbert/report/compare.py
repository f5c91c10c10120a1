"""Several runs side by side: their quality, their speed and the settings in which they differ, as HTML and Markdown."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

from tfbert.output.output_dir import write_text
from tfbert.report import plots
from tfbert.report.pages import duration, memory, render, show
from tfbert.report.run_files import RunFiles
from tfbert.report.seeds import differ_in_seed_alone, on_different_examples, over_seeds, seed_rows
from tfbert.report.settings import differing, loss_extras
from tfbert.tasks.metrics import decided_by

HTML, MARKDOWN = "comparison.html", "comparison.md"
_MODEL = "model_name_or_path"
_SAME_WORK = (_MODEL, "dataset", "train_file", "text_column", "max_seq_length")
_SAME_EXAMPLES = (
    "dataset",
    "validation_file",
    "validation_split",
    "split_seed",
    "text_column",
    "label_column",
    "max_eval_examples",
)
_RUNS_ABREAST = 8
"""Runs side by side in one table of settings."""
_SMOOTHED_OVER = 20
"""The most logged losses that a smoothed point is the mean of."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run in the comparison.

    Attributes:
        run: Its files.
        speed_up: Its examples/s over those of the run of fewest replicas with the same work, precision and global
            batch; None where either is unknown, and where there is no other such run.
        efficiency: Examples/s of a replica over those of the run of fewest replicas with the same work and precision,
            with or without XLA, and the same batch in all or for each replica. None where that run has no fewer.
    """

    run: RunFiles
    speed_up: float | None
    efficiency: float | None


def by_score(runs: list[RunFiles]) -> list[RunFiles]:
    """Runs in the order of a comparison: the best first, by the metric that decided, those without a score last. In the
    order given where they were not decided by the same metric."""
    if not (metric := shared_metric(runs)):
        return runs
    known = [run for run in runs if run.score]

    def worse(one: RunFiles, other: RunFiles) -> int:
        return -decided_by(metric, one.results, other.results)[0]

    return sorted(known, key=functools.cmp_to_key(worse)) + [run for run in runs if not run.score]


def shared_metric(runs: list[RunFiles]) -> str:
    """The metric by which all scored runs were decided, as `eval_accuracy`; empty where there are several, or none."""
    metrics = {f"eval_{run.score[0]}" for run in runs if run.score}
    return metrics.pop() if len(metrics) == 1 else ""


def compare(runs: list[RunFiles]) -> list[ComparedRun]:
    """Each run against those that it can be compared with."""
    rows = []
    for run in runs:
        group = [r for r in runs if _work(r) == _work(run) and r.examples_per_second]
        first = min(group, key=_size, default=run)
        speed_up = None
        if len(group) > 1 and run.examples_per_second and first.examples_per_second:
            speed_up = run.examples_per_second / first.examples_per_second
        alike = min((r for r in runs if _scales(r, run) and r.examples_per_second), key=_size, default=run)
        efficiency, speed, base = None, run.examples_per_second, alike.examples_per_second
        if speed and base and (alike is run or alike.num_replicas < run.num_replicas):
            efficiency = speed / run.num_replicas * alike.num_replicas / base
        rows.append(ComparedRun(run=run, speed_up=speed_up, efficiency=efficiency))
    return rows


def _work(run: RunFiles) -> tuple[Any, ...]:
    """What runs share whose speeds are compared: what is computed, precision and global batch."""
    return *_same_work(run), run.precision, run.option("training", "global_batch_size")


def _same_work(run: RunFiles) -> tuple[Any, ...]:
    return tuple(repr(run.option("model" if name == _MODEL else "data", name)) for name in _SAME_WORK)


def _scales(run: RunFiles, other: RunFiles) -> bool:
    """Whether two runs differ in devices, and at most in the batch of all of them or of each."""
    batch, batch_of_other = (r.option("training", "global_batch_size") or 0 for r in (run, other))
    same_batch = batch == batch_of_other or batch * other.num_replicas == batch_of_other * run.num_replicas
    return same_batch and (_same_work(run), _arithmetic(run)) == (_same_work(other), _arithmetic(other))


def _size(run: RunFiles) -> tuple[Any, ...]:
    """The order in which a run is the one that others are compared with."""
    return run.num_replicas, bool(run.option("runtime", "xla")), run.examples_per_second or 0.0


def _arithmetic(run: RunFiles) -> tuple[str, bool]:
    return run.precision, bool(run.option("runtime", "xla"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the comparison.

    Attributes:
        title: What it is about.
        names: Of its columns.
        body: A text for each cell.
        numeric: Columns of numbers.
    """

    title: str
    names: list[str]
    body: list[list[str]]
    numeric: frozenset[str] = frozenset()


def tables(rows: list[ComparedRun]) -> list[Table]:
    """Quality and time, speed, and the settings in which the runs differ; each table is narrow enough for a page."""
    runs = [row.run for row in rows]
    labels = run_labels(runs)
    scores = {name: name.replace("_", " ") for name in dict.fromkeys(run.score[0] for run in runs if run.score)}
    losses = {name: title for run in runs for name, title in run.validation_losses.items()}
    names = {f"eval_{name}": title for name, title in scores.items()}
    names |= {name: title for name, title in losses.items() if name not in names}
    quality: list[tuple[str, list[str | None]]] = [
        *((title, [_text(run.results.get(name), "{:.4f}") for run in runs]) for name, title in names.items()),
        ("training loss", [_text(run.training_loss(), "{:.4f}") for run in runs]),
        ("kept at step", [_text(run.results.get("best_step"), "{:,}") for run in runs]),
        ("updates", [_text(run.results.get("global_step"), "{:,}") for run in runs]),
        ("time", [_or_none(duration, run.results.get("train_runtime")) for run in runs]),
        ("speed-up", [_text(row.speed_up, "{:.2f}") for row in rows]),
    ]
    speed: list[tuple[str, list[str | None]]] = [
        ("devices", [run.facts.get("devices") or run.option("runtime", "strategy") for run in runs]),
        ("precision", [precision + ", XLA" * xla for precision, xla in map(_arithmetic, runs)]),
        ("replicas", [str(run.num_replicas) for run in runs]),
        ("batch", [_text(run.option("training", "global_batch_size"), "{:,}") for run in runs]),
        ("examples/s", [_text(run.examples_per_second, "{:,.1f}") for run in runs]),
        ("efficiency", [_text(row.efficiency, "{:.0%}") for row in rows]),
        ("tokens/s", [_text(run.results.get("train_tokens_per_second_steady"), "{:,.0f}") for run in runs]),
        ("peak memory", [_or_none(memory, run.results.get("peak_memory_bytes")) for run in runs]),
    ]
    metric = shared_metric(runs)
    title = "Quality and time" + f", the best by {metric} first" * bool(metric)
    found = [_by_run(title, labels, quality), _by_run("Speed", labels, speed)]
    if differ_in_seed_alone(runs):
        columns, body = seed_rows(over_seeds(runs), [f"seed {run.option('runtime', 'seed')}" for run in runs])
        found.insert(1, Table(title="Over the seeds", names=columns, body=body, numeric=frozenset(columns[1:])))
    return found + _setting_tables(differing(runs), len(runs))


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
        "Speed-up: examples/s over those of the run of fewest replicas with the same model, data, length, precision "
        "and global batch. Efficiency: examples/s of a replica over those in the run of fewest replicas that differs "
        "in its devices, and at most in the global batch, if each replica has the same share."
    ]
    if len(metrics := dict.fromkeys(f"eval_{run.score[0]}" for run in runs if run.score)) > 1:
        out.append(f"The runs were decided by different metrics, {' and '.join(metrics)}: they are in the order given.")
    if any(run.training_loss() is not None for run in runs):
        out.append("The training loss is the last one logged before the kept weights were evaluated.")
    for extras in dict.fromkeys(tuple(loss_extras(run)) for run in runs):
        if extras:
            which = [str(number) for number, run in enumerate(runs, 1) if tuple(loss_extras(run)) == extras]
            named = f"run{'s' * (len(which) > 1)} {', '.join(which)}"
            out.append(f"In {named} the training loss includes {' and '.join(extras)}; the validation loss does not.")
    different = {name for name, _ in differing(runs)}
    rules = (("speeds are for different work", _SAME_WORK), ("scores are on different examples", _SAME_EXAMPLES))
    for rule, names in rules:
        if unlike := [name for name in names if name in different]:
            out.append(f"The runs differ in {', '.join(unlike)}: their {rule}.")
    out += on_different_examples(runs)
    if any(run.option("data", "validation_split") for run in runs) and "train_file" in different:
        out.append("The runs differ in train_file: with validation_split, on different examples.")
    for number, run in enumerate(runs, 1):
        for step, options in run.until_step.items():
            had = ", ".join(f"{name} {show(value)}" for name, value in options.items())
            out.append(f"Up to update {step}, run {number} had {had}.")
    if any("train_examples_per_second_steady" not in run.results for run in runs):
        out.append("Runs without a steady speed are compared by that of their whole training, compilation included.")
    machines = list(dict.fromkeys(run.facts.get("machine", "unknown") for run in runs))
    if len(machines) > 1:
        out.append(f"The runs were made on different machines: {', '.join(machines)}.")
    return out


def comparison_page(runs: list[RunFiles]) -> str:
    """The comparison as HTML text."""
    runs = by_score(runs)
    rows = compare(runs)
    return render(
        "comparison.html",
        title=f"{len(runs)} runs compared",
        directory=directory_of(runs),
        tables=tables(rows),
        notes=notes(runs),
        plots=_plots(rows, run_labels(runs)),
    )


def comparison_markdown(runs: list[RunFiles]) -> str:
    """The comparison as Markdown text."""
    runs, lines = by_score(runs), []
    for table in tables(compare(runs)):
        lines += [f"{table.title}:", "", markdown_table(table.names, table.body, table.numeric)]
    return "\n".join([*lines, *(f"- {markdown_text(note)}" for note in notes(runs))]) + "\n"


def comparison_text(runs: list[RunFiles]) -> str:
    """The comparison for a screen."""
    runs, lines = by_score(runs), []
    for table in tables(compare(runs)):
        lines += [f"{table.title}:", "", *plain_table(table.names, table.body), ""]
    return "\n".join([*lines, *notes(runs)]) + "\n"


def _by_run(title: str, labels: list[str], columns: Sequence[tuple[str, Sequence[str | None]]]) -> Table:
    """A table with a row for each run; columns without a value for any run are left out."""
    shown = [("run", labels), *((name, cells) for name, cells in columns if any(cell is not None for cell in cells))]
    body = [["–" if cells[i] is None else cells[i] for _, cells in shown] for i in range(len(labels))]
    names = [name for name, _ in shown]
    return Table(title=title, names=names, body=body, numeric=frozenset(names) - {"run", "devices", "precision"})


def _setting_tables(settings: list[tuple[str, list[Any]]], num_runs: int) -> list[Table]:
    """Tables with a row for each setting and a column for each run, each with as many runs as fit a page."""
    out = []
    for first in range(0, num_runs if settings else 0, _RUNS_ABREAST):
        places = range(first, min(first + _RUNS_ABREAST, num_runs))
        title = "Settings in which the runs differ"
        if num_runs > _RUNS_ABREAST:
            title += f", runs {first + 1} to {places[-1] + 1}"
        names = ["setting", *(f"run {place + 1}" for place in places)]
        out.append(Table(title=title, names=names, body=[[n, *(show(v[i]) for i in places)] for n, v in settings]))
    return out


def markdown_table(names: list[str], body: list[list[str]], numeric: Collection[str] | None = None) -> str:
    """A table in GitHub's Markdown; numbers are on the right.

    Args:
        names: Of its columns.
        body: A text for each cell.
        numeric: Columns of numbers. None: those whose cells all begin with a digit.
    """
    if numeric is None:
        cells = zip(names, zip(*body, strict=True), strict=True)
        numeric = [name for name, column in cells if all(cell[:1].isdigit() or cell == "–" for cell in column)]
    lines = [names, ["---:" if name in numeric else "---" for name in names]]
    lines += [[markdown_text(cell) for cell in row] for row in body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def plain_table(names: list[str], rows: list[list[str]]) -> list[str]:
    """A table for the screen, a line each: its first column on the left, numbers on the right; runs are
    columns where there are more metrics than runs."""
    lines = [names, *rows]
    if len(names) > len(lines):
        lines = [list(line) for line in zip(*lines, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]


def markdown_text(text: str) -> str:
    """A text that Markdown and HTML leave as it is."""
    text = " ".join(text.split())
    for special in "\\`*_[]|~":
        text = text.replace(special, "\\" + special)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def write_comparison(runs: list[RunFiles], directory: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes both files; the directory must exist.

    Raises:
        RunError: if they cannot be written.
    """
    paths = directory / HTML, directory / MARKDOWN
    write_text(paths[0], comparison_page(runs))
    write_text(paths[1], comparison_markdown(runs))
    return paths


def smoothed(values: list[float], over: int) -> list[float]:
    """The mean of each value and up to `over - 1` before it."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return [(sums[i + 1] - sums[max(0, i + 1 - over)]) / min(over, i + 1) for i in range(len(values))]


def _plots(rows: list[ComparedRun], labels: list[str]) -> list[tuple[str, str]]:
    out = []
    curves = []
    for row, label in zip(rows, labels, strict=True):
        steps, values = row.run.series("train", "loss")
        if steps:
            over = min(_SMOOTHED_OVER, max(1, len(values) // 10))
            curves.append(plots.Series(label=label, x=steps, y=smoothed(values, over)))
    if curves:
        out.append(("Training loss", plots.lines(curves, x_label="step", y_label="loss")))
    metrics = {row.run.score[0]: row.run.score[0].replace("_", " ") for row in rows if row.run.score}
    shown = {name: title for row in rows for name, title in row.run.validation_losses.items()}
    for name, title in (shown | {f"eval_{name}": f"evaluation: {title}" for name, title in metrics.items()}).items():
        found = [(row.run.series("eval", name), label) for row, label in zip(rows, labels, strict=True)]
        curves = [plots.Series(label=label, x=xs, y=ys, is_marked=True) for (xs, ys), label in found if xs]
        if curves:
            y_label = "loss" if name in shown else title.partition(": ")[2]
            out.append((title[0].upper() + title[1:], plots.lines(curves, x_label="step", y_label=y_label)))
    drawn = (
        ("Throughput, by number of the run", "examples/s", [row.run.examples_per_second for row in rows]),
        ("Speed-up, within a precision and a batch", "times", [row.speed_up for row in rows]),
    )
    for title, unit, values in drawn:
        known = {str(number): value for number, value in enumerate(values, 1) if value}  # None is not 0.
        if known:
            out.append((title, plots.bars(list(known), list(known.values()), x_label=unit)))
    return out


def _text(value: Any, pattern: str = "{}") -> str | None:
    return None if value is None else pattern.format(value)


def _or_none(function, value):
    return None if value is None else function(value)
