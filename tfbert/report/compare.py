"""Several runs side by side: the table of devices, time, speed-up, efficiency and accuracy, as HTML and Markdown."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from tfbert.output import write_text
from tfbert.report import plots
from tfbert.report.pages import duration, memory, render
from tfbert.report.run_files import RunFiles

HTML, MARKDOWN = "comparison.html", "comparison.md"
_SAME_WORK = (("model", "model_name_or_path"), ("data", "dataset"), ("data", "train_file"), ("data", "max_seq_length"))
_SMOOTHED_OVER = 20
"""Logged losses that a smoothed point is the mean of, at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A run in the comparison.

    Attributes:
        run: Its files.
        speed_up: Its examples/s over those of the first run; None where either is unknown.
        efficiency: The speed-up over the ratio of the replicas.
    """

    run: RunFiles
    speed_up: float | None
    efficiency: float | None


def compare(runs: list[RunFiles]) -> list[Row]:
    """Each run against the first."""
    first = runs[0]
    rows = []
    for run in runs:
        speed_up = None
        if run.examples_per_second and first.examples_per_second:
            speed_up = run.examples_per_second / first.examples_per_second
        efficiency = None if speed_up is None else speed_up * first.num_replicas / run.num_replicas
        rows.append(Row(run=run, speed_up=speed_up, efficiency=efficiency))
    return rows


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Column names, and a text for each cell; columns that no run has a value for are left out."""
    metrics = list(dict.fromkeys(row.run.score[0] for row in rows if row.run.score))
    columns: list[tuple[str, list[str | None]]] = [
        ("run", [row.run.name for row in rows]),
        ("devices", [row.run.facts.get("devices") or row.run.option("runtime", "strategy") for row in rows]),
        ("precision", [row.run.precision + ", XLA" * bool(row.run.option("runtime", "xla")) for row in rows]),
        ("time", [_or_none(duration, row.run.results.get("train_runtime")) for row in rows]),
        ("examples/s", [_text(row.run.examples_per_second, "{:,.1f}") for row in rows]),
        ("speed-up", [_text(row.speed_up, "{:.2f}") for row in rows]),
        ("efficiency", [_text(row.efficiency, "{:.0%}") for row in rows]),
    ]
    for metric in metrics:
        scores = [_text(row.run.results.get(f"eval_{metric}"), "{:.4f}") for row in rows]
        columns.append((metric.replace("_", " "), scores))
    columns += [
        ("replicas", [str(row.run.num_replicas) for row in rows]),
        ("batch", [_text(row.run.option("training", "global_batch_size")) for row in rows]),
        ("updates", [_text(row.run.results.get("global_step"), "{:,}") for row in rows]),
        ("tokens/s", [_text(row.run.results.get("train_tokens_per_second_steady"), "{:,.0f}") for row in rows]),
        ("peak memory", [_or_none(memory, row.run.results.get("peak_memory_bytes")) for row in rows]),
    ]
    columns = [(name, cells) for name, cells in columns if any(cell is not None for cell in cells)]
    body = [["–" if cells[i] is None else cells[i] for _, cells in columns] for i in range(len(rows))]
    return [name for name, _ in columns], body


def notes(runs: list[RunFiles]) -> list[str]:
    """What makes the numbers of these runs hard to compare, a line each."""
    out = []
    for part, name in _SAME_WORK:
        values = list(dict.fromkeys(str(run.option(part, name, "")) for run in runs))
        if len(values) > 1:
            out.append(
                f"The runs differ in {name} ({', '.join(v or 'none' for v in values)}): speeds compare unlike work."
            )
    if any("train_examples_per_second_steady" not in run.results for run in runs):
        out.append("Runs without a steady speed are compared by their whole training time, compilation included.")
    machines = list(dict.fromkeys(run.facts.get("machine", "unknown") for run in runs))
    if len(machines) > 1:
        out.append(f"The runs were made on different machines: {', '.join(machines)}.")
    return out


def comparison_page(runs: list[RunFiles]) -> str:
    """The comparison as HTML text."""
    rows = compare(runs)
    names, body = table(rows)
    numbered = [f"{number}: {run.name}" for number, run in enumerate(runs, 1)]
    return render(
        "comparison.html",
        title=f"{len(runs)} runs compared",
        names=names,
        numeric=set(names) - {"run", "devices", "precision"},
        rows=body,
        notes=notes(runs),
        plots=_plots(rows, numbered),
    )


def comparison_markdown(runs: list[RunFiles]) -> str:
    """The comparison as Markdown text."""
    names, body = table(compare(runs))
    lines = [markdown_table(names, body), "Speed-up and efficiency are against the first run."]
    return "\n".join([*lines, *(markdown_text(note) for note in notes(runs))]) + "\n"


def markdown_table(names: list[str], body: list[list[str]]) -> str:
    """A table in GitHub's Markdown; numbers stand right."""
    is_numeric = [all(row[i][:1].isdigit() or row[i] == "–" for row in body) for i in range(len(names))]
    lines = [names, ["---:" if numeric else "---" for numeric in is_numeric]]
    lines += [[markdown_text(cell) for cell in row] for row in body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def markdown_text(text: str) -> str:
    """A text that Markdown and HTML leave as it is."""
    text = " ".join(text.split())
    for special in "\\`*_[]|~":
        text = text.replace(special, "\\" + special)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def write_comparison(runs: list[RunFiles], directory: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes both files; the directory must be there.

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


def _plots(rows: list[Row], labels: list[str]) -> list[tuple[str, str]]:
    out = []
    curves = []
    for row, label in zip(rows, labels, strict=True):
        steps, values = row.run.series("train", "loss")
        if steps:
            over = min(_SMOOTHED_OVER, max(1, len(values) // 10))
            curves.append(plots.Series(label=label, x=steps, y=smoothed(values, over)))
    if curves:
        out.append(("Training loss", plots.lines(curves, x_label="step", y_label="loss")))
    scored = [(row.run.score[0], row, label) for row, label in zip(rows, labels, strict=True) if row.run.score]
    for metric in dict.fromkeys(name for name, _, _ in scored):
        found = [(row.run.series("eval", f"eval_{metric}"), label) for name, row, label in scored if name == metric]
        curves = [plots.Series(label=label, x=steps, y=values) for (steps, values), label in found if steps]
        title = metric.replace("_", " ")
        if curves:
            out.append((f"Evaluation: {title}", plots.lines(curves, x_label="step", y_label=title, markers=True)))
    numbers = [str(number) for number in range(1, len(rows) + 1)]
    speeds = [row.run.examples_per_second or 0.0 for row in rows]
    if any(speeds):
        out.append(("Throughput, by number of the run", plots.bars(numbers, speeds, x_label="examples/s")))
    if any(row.speed_up for row in rows):
        ups = [row.speed_up or 0.0 for row in rows]
        out.append(("Speed-up over run 1", plots.bars(numbers, ups, x_label="times")))
    return out


def _text(value: Any, pattern: str = "{}") -> str | None:
    return None if value is None else pattern.format(value)


def _or_none(function, value):
    return None if value is None else function(value)
