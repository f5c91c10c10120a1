"""Several runs side by side: their quality, their speed and the settings in which they differ, as HTML and Markdown."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

from tfbert.output.output_dir import write_text
from tfbert.report.many import differ_in_seed_alone, on_different_examples, over_seeds, ranked, seeds_table
from tfbert.report.pages import drawn, render
from tfbert.report.run_files import RunFiles
from tfbert.report.settings import differing, loss_extras
from tfbert.report.tables import Table, duration, markdown_text, memory, sentence, show, table_of

HTML, MARKDOWN = "comparison.html", "comparison.md"
_SAME_WORK = ("model_name_or_path", "dataset", "train_file", "text_column", "max_seq_length")
_SAME_EXAMPLES = ("dataset", "validation_file", "validation_split", "split_seed", "text_column", "label_column")
_SAME_EXAMPLES += ("max_eval_examples",)


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
    metric = shared_metric(runs)
    order = ranked([run.results if run.score else {} for run in runs], metric).order if metric else range(len(runs))
    return [runs[index] for index in order]


def shared_metric(runs: list[RunFiles]) -> str:
    """The metric by which all scored runs were decided, as `eval_accuracy`; empty where there are several, or none."""
    metrics = {f"eval_{run.score[0]}" for run in runs if run.score}
    return metrics.pop() if len(metrics) == 1 else ""


def compare(runs: list[RunFiles]) -> list[ComparedRun]:
    """Each run against those that it can be compared with."""
    rows = []
    for run in runs:
        speed, timed = run.examples_per_second, [other for other in runs if other.examples_per_second]
        same = [other for other in timed if _work(other) == _work(run) and _batch(other) == _batch(run)]
        speed_up = efficiency = None
        base = min(same, key=_size, default=run)
        if speed and base.examples_per_second and len(same) > 1:
            speed_up = speed / base.examples_per_second
        alike = [other for other in timed if _work(other) == _work(run) and _xla(other) == _xla(run)]
        base = min((other for other in alike if _scales(other, run)), key=_size, default=run)
        if speed and base.examples_per_second and (base is run or base.num_replicas < run.num_replicas):
            efficiency = speed / run.num_replicas * base.num_replicas / base.examples_per_second
        rows.append(ComparedRun(run=run, speed_up=speed_up, efficiency=efficiency))
    return rows


def _work(run: RunFiles) -> tuple[Any, ...]:
    """What runs share whose speeds are compared: what is computed, and the precision."""
    parts = ["model", *["data"] * (len(_SAME_WORK) - 1)]
    return *(repr(run.option(part, name)) for part, name in zip(parts, _SAME_WORK, strict=True)), run.precision


def _batch(run: RunFiles) -> int:
    return run.option("training", "global_batch_size") or 0


def _xla(run: RunFiles) -> bool:
    return bool(run.option("runtime", "xla"))


def _scales(run: RunFiles, other: RunFiles) -> bool:
    """Whether two runs have the same batch, in all or for each replica."""
    return _batch(run) == _batch(other) or _batch(run) * other.num_replicas == _batch(other) * run.num_replicas


def _size(run: RunFiles) -> tuple[Any, ...]:
    """The order in which a run is the one that others are compared with."""
    return run.num_replicas, _xla(run), run.examples_per_second


def tables(rows: list[ComparedRun]) -> list[Table]:
    """Quality and time, speed, and the settings in which the runs differ, with a row for each run."""
    runs = [row.run for row in rows]
    of_runs = ("run", run_labels(runs), "{}")
    names = {f"eval_{run.score[0]}": run.score[0].replace("_", " ") for run in runs if run.score}
    for run in runs:
        names |= {name: title for name, title in run.validation_losses.items() if name not in names}

    def result(name: str) -> list[Any]:
        return [run.results.get(name) for run in runs]

    quality = [
        of_runs,
        *((title, result(name), "{:.4f}") for name, title in names.items()),
        ("training loss", [run.training_loss() for run in runs], "{:.4f}"),
        ("kept at step", result("best_step"), "{:,}"),
        ("updates", result("global_step"), "{:,}"),
        ("time", result("train_runtime"), duration),
        ("speed-up", [row.speed_up for row in rows], "{:.2f}"),
    ]
    speed = [
        of_runs,
        ("devices", [run.facts.get("devices") or run.option("runtime", "strategy") for run in runs], "{}"),
        ("precision", [f"{run.precision}, XLA" if _xla(run) else run.precision for run in runs], "{}"),
        ("replicas", [run.num_replicas for run in runs], "{}"),
        ("batch", [run.option("training", "global_batch_size") for run in runs], "{:,}"),
        ("examples/s", [run.examples_per_second for run in runs], "{:,.1f}"),
        ("efficiency", [row.efficiency for row in rows], "{:.0%}"),
        ("tokens/s", result("train_tokens_per_second_steady"), "{:,.0f}"),
        ("peak memory", result("peak_memory_bytes"), memory),
    ]
    metric, texts = shared_metric(runs), ("run", "devices", "precision")
    title = f"Quality and time, the best by {metric} first" if metric else "Quality and time"
    found = [table_of(quality, title=title, texts=texts), table_of(speed, title="Speed", texts=texts)]
    if differ_in_seed_alone(runs):
        found.insert(1, seeds_table(over_seeds(runs)))
    settings = [(name, values, show) for name, values in differing(runs)]
    if settings:
        title = "Settings in which the runs differ"
        found.append(table_of([of_runs, *settings], title=title, texts=["run", *(name for name, *_ in settings)]))
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
        "Speed-up: examples/s over those of the run of fewest replicas with the same model, data, length, precision "
        "and global batch. Efficiency: examples/s of a replica over those in the run of fewest replicas that differs "
        "in its devices, and at most in the global batch, if each replica has the same share."
    ]
    if len(metrics := dict.fromkeys(f"eval_{run.score[0]}" for run in runs if run.score)) > 1:
        out.append(f"The runs were decided by different metrics, {' and '.join(metrics)}: they are in the order given.")
    if any(run.training_loss() is not None for run in runs):
        out.append("The training loss is the last one logged before the kept weights were evaluated.")
    different = {name for name, _ in differing(runs)}
    rules = {"speeds are for different work": _SAME_WORK, "scores are on different examples": _SAME_EXAMPLES}
    for rule, names in rules.items():
        if unlike := [name for name in names if name in different]:
            out.append(f"The runs differ in {', '.join(unlike)}: their {rule}.")
    out += on_different_examples(runs)
    if any(run.option("data", "validation_split") for run in runs) and "train_file" in different:
        out.append("The runs differ in train_file: with validation_split, on different examples.")
    for extras in dict.fromkeys(tuple(loss_extras(run)) for run in runs):
        which = ", ".join(str(number) for number, run in enumerate(runs, 1) if tuple(loss_extras(run)) == extras)
        if extras:
            extra = " and ".join(extras)
            out.append(f"The training loss of run {which} includes {extra}; the validation loss does not.")
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
    return render(
        "page.html",
        title=f"{len(runs)} runs compared",
        directory=directory_of(runs),
        lines=[],
        tables=tables(compare(runs)),
        notes=notes(runs),
        plots=_plots(runs),
    )


def comparison_markdown(runs: list[RunFiles]) -> str:
    """The comparison as Markdown text."""
    runs = by_score(runs)
    parts = [f"{table.title}:\n\n{table.markdown()}" for table in tables(compare(runs))]
    return "\n".join([*parts, *(f"- {markdown_text(note)}" for note in notes(runs))]) + "\n"


def comparison_text(runs: list[RunFiles]) -> str:
    """The comparison for a screen."""
    runs, lines = by_score(runs), []
    for table in tables(compare(runs)):
        lines += [f"{table.title}:", "", *table.plain(), ""]
    return "\n".join([*lines, *notes(runs)]) + "\n"


def write_comparison(runs: list[RunFiles], directory: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes both files; the directory must exist.

    Raises:
        RunError: if they cannot be written.
    """
    paths = directory / HTML, directory / MARKDOWN
    write_text(paths[0], comparison_page(runs))
    write_text(paths[1], comparison_markdown(runs))
    return paths


def _plots(runs: list[RunFiles]) -> list[tuple[str, str]]:
    labelled = [*zip(runs, run_labels(runs), strict=True)]
    losses = {name: title for run in runs for name, title in run.validation_losses.items()}
    scores = {f"eval_{run.score[0]}": f"evaluation: {run.score[0].replace('_', ' ')}" for run in runs if run.score}
    out = drawn("Training loss", "loss", [(run, ("train", "loss", label)) for run, label in labelled], smooth=True)
    for name, title in (losses | scores).items():
        y_label = "loss" if name in losses else title.partition(": ")[2]
        out += drawn(sentence(title), y_label, [(run, ("eval", name, label)) for run, label in labelled])
    return out
