"""A run's files -> `report.html`: one file that needs no other. Every text in it is escaped."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np

from tfbert.config.counted import rate_text
from tfbert.output.output_dir import write_text
from tfbert.report import plots
from tfbert.report.run_files import RunFiles, read_run
from tfbert.report.settings import loss_extras, used
from tfbert.tasks.metrics import per_class
from tfbert.tasks.registry import entry_of

REPORT = "report.html"
_LARGEST_MATRIX = 30
"""Classes beyond which a confusion matrix is too large to read."""
_SPEEDS = ("runtime", "samples_per_second", "tokens_per_second", "model_gflops_per_second", "batch_seconds_p50")
_SPEEDS += ("batch_seconds_p95", "data_wait_share", "user_seconds", "kernel_seconds")
_EVALUATION_SPEEDS = tuple(f"eval_{name}" for name in _SPEEDS)
_TRAINING_LOSS = "training loss"
_UPDATE_PLOTS = (
    ("Learning rate", "learning_rate", "learning rate"),
    ("Gradient norm before clipping", "grad_norm", "global norm"),
)
_SPEED_PLOTS = (
    ("Throughput", "examples_per_second", "examples/s"),
    ("Waiting for data", "data_wait_share", "share of the time"),
)


def write_report(directory: str | pathlib.Path, results: dict[str, Any] | None = None) -> pathlib.Path:
    """Writes `directory/report.html` from the run's files there.

    Args:
        directory: The run's output directory.
        results: What `all_results.json` will hold; None where that file exists.

    Returns:
        The report's path.

    Raises:
        UsageError: for a directory that holds no finished run.
        RunError: if it cannot be written.
    """
    path = pathlib.Path(directory) / REPORT
    write_text(path, run_page(read_run(directory, results)))
    return path


def run_page(run: RunFiles) -> str:
    """The report of one run as HTML text."""
    task, evaluation = entry_of(run.task), run.facts.get("evaluation") or {}
    confusion = evaluation.get("confusion")
    return render(
        task.report,
        title=run.name,
        run=run,
        facts=run.facts,
        headline=_headline(run),
        quality_plots=_quality_plots(run, task.accuracies),
        speed_plots=_lines(run, _SPEED_PLOTS),
        about_losses=_about_losses(run),
        evaluations=_evaluations(run),
        evaluation=evaluation,
        classes=per_class(np.array(confusion), evaluation["label_names"]) if confusion else None,
        confusion=confusion if confusion and len(confusion) <= _LARGEST_MATRIX else None,
        results=sorted(run.results.items(), key=lambda item: _place(item[0])),
        settings=used(run),
    )


def render(template: str, **values: Any) -> str:
    """Fills a template of this package, or of a task's folder; every value is escaped but the plots."""
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment():
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("tfbert.report"), jinja2.PackageLoader("tfbert.tasks", "")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only `plots` makes what passes here unescaped, and matplotlib escapes the texts in it.
    environment.filters |= {"svg": markupsafe.Markup, "shown": show, "share": share, "memory": memory, "time": duration}
    environment.globals["lines_against"] = plots.lines_against
    # A long name may continue on another line after an underscore.
    environment.filters["broken"] = lambda name: markupsafe.escape(name).replace("_", markupsafe.Markup("_<wbr>"))
    return environment


def show(value: Any) -> str:
    """A value for people: numbers with 4 significant digits, lists separated by commas, no value as a dash."""
    if value is None or value == "" or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def share(value: float | None, digits: int = 1) -> str:
    """A part of 1 in percent."""
    return "–" if value is None else f"{100 * value:.{digits}f}%"


def memory(value: float | None) -> str:
    """Bytes as GiB."""
    return "–" if value is None else f"{value / 2**30:.2f} GiB"


def duration(seconds: float | None) -> str:
    """`1 h 2 min`, `2 min 3 s` or `3.1 s`."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _headline(run: RunFiles) -> list[tuple[str, str]]:
    """What a reader looks at first, as (name, value) pairs: quality, then speed; only what is known."""
    results, out = run.results, []
    if run.score:
        out.append((run.score[0].replace("_", " "), f"{run.score[1]:.4f}"))
    out += [(title, show(results[name])) for name, title in run.validation_losses.items() if name in results]
    if run.training_loss() is not None:
        out.append(("training loss then" if run.validation_losses else "training loss", show(run.training_loss())))
    if "train_runtime" in results:
        out.append(("training time", duration(results["train_runtime"])))
    if run.examples_per_second:
        out.append(("examples/s", rate_text(run.examples_per_second)))
    if "train_tokens_per_second_steady" in results:
        out.append(("real tokens/s", f"{results['train_tokens_per_second_steady']:,.0f}"))
    for name, key in (("step, median", "step_seconds_p50"), ("step, 95th percentile", "step_seconds_p95")):
        if key in results:
            out.append((name, f"{1000 * results[key]:,.0f} ms"))
    if "compile_seconds" in results:
        out.append(("tracing and compiling", duration(results["compile_seconds"])))
    if "data_wait_share" in results:
        out.append(("waiting for data", share(results["data_wait_share"], 2)))
    if "peak_memory_bytes" in results:
        out.append(("peak memory", memory(results["peak_memory_bytes"])))
    return out


def _quality_plots(run: RunFiles, together: tuple[str, ...]) -> list[tuple[str, str]]:
    """(title, SVG) of the losses, the metric that decided, the accuracies that go `together`, and how weights moved."""
    out, losses = [], []
    for kind, name, label in (("train", "loss", "training loss"), *_validation_series(run)):
        steps, values = run.series(kind, name)
        if steps:
            losses.append(plots.Series(label=label, x=steps, y=values, is_marked=kind == "eval"))
    if losses:
        title = "Training and validation loss" if len(losses) > 1 else losses[0].label.capitalize()
        out.append((title, plots.lines(losses, x_label="step", y_label="loss")))
    if run.score:
        name = run.score[0]
        steps, values = run.series("eval", f"eval_{name}")
        if steps and f"eval_{name}" not in run.validation_losses:
            title = name.replace("_", " ")
            line = plots.Series(label="", x=steps, y=values, is_marked=True)
            out.append((f"Evaluation: {title}", plots.lines([line], x_label="step", y_label=title)))
    accuracies = [_accuracy(run, name) for name in _logged(run, together)]
    if accuracies:
        out.append(("Evaluation: accuracies", plots.lines(accuracies, x_label="step", y_label="accuracy")))
    return out + _lines(run, _UPDATE_PLOTS)


def _logged(run: RunFiles, endings: tuple[str, ...]) -> list[str]:
    """What evaluations logged under names with these endings, except what has a plot of its own."""
    names = dict.fromkeys(name for record in run.records if record["kind"] == "eval" for name in record)
    own = f"eval_{run.score[0]}" if run.score else ""
    return [name for name in names if name.endswith(endings) and name != own]


def _accuracy(run: RunFiles, name: str) -> plots.Series:
    steps, values = run.series("eval", name)
    return plots.Series(label=name.removeprefix("eval_").replace("_", " "), x=steps, y=values, is_marked=True)


def _validation_series(run: RunFiles) -> list[tuple[str, str, str]]:
    return [("eval", name, title) for name, title in run.validation_losses.items()]


def _lines(run: RunFiles, logged: tuple[tuple[str, str, str], ...]) -> list[tuple[str, str]]:
    """(title, SVG) of numbers that training logged, where it did."""
    out = []
    for title, name, label in logged:
        steps, values = run.series("train", name)
        if steps:
            line = plots.Series(label="", x=steps, y=values)
            out.append((title, plots.lines([line], x_label="step", y_label=label, from_zero=True)))
    return out


def _about_losses(run: RunFiles) -> str:
    """What a reader must know to compare the two losses; empty where there is only one."""
    if not run.validation_losses:
        return ""
    dropout = run.facts.get("dropout", run.option("training", "dropout"))
    extras = ["dropout"] * (dropout != 0) + loss_extras(run)
    if not extras:
        return (
            "Each training loss is the mean over the updates since the point before; the validation loss is the mean "
            "over all examples."
        )
    more = extras != ["dropout"]
    those = "any of these" if len(extras) > 1 else "dropout" if not more else "it"
    return (
        f"Each training loss is the mean over the updates since the point before, with {_and(extras)}; "
        f"the validation loss is the mean over all examples, without {those}"
        f"{': the gap between the two is not overfitting alone' if more else ''}."
    )


def _and(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]


def _evaluations(run: RunFiles) -> dict[str, Any]:
    """The evaluations as two tables, metrics and speeds, since together they are too wide for paper; and the step whose
    weights were kept. A table is its column names and its rows; the training loss stands before the first other one."""
    records = [r for r in run.records if r["kind"] == "eval"]
    hidden = {"step", "kind", "time", "epoch"}
    names = list(dict.fromkeys(name for record in records for name in record if name not in hidden))
    losses = [name for name in names if name in run.validation_losses]
    metrics = [name for name in names if name not in {*losses, *_EVALUATION_SPEEDS}]
    if losses and run.training_loss(records[-1]["step"]) is not None:
        losses.insert(0, _TRAINING_LOSS)
        records = [record | {_TRAINING_LOSS: run.training_loss(record["step"])} for record in records]
    tables = [
        (group, [(r["step"], r.get("epoch"), [r.get(name) for name in group]) for r in records])
        for group in (losses + metrics, [name for name in names if name in _EVALUATION_SPEEDS])
    ]
    return {"quality": tables[0], "speed": tables[1], "best_step": run.results.get("best_step")}


def _place(name: str) -> tuple[bool, bool, bool]:
    """Sorts results: losses, other metrics, and everything that is not about quality."""
    is_loss = name.endswith("_loss")
    is_metric = name.startswith(("eval_", "test_")) and name.partition("_")[2] not in _SPEEDS
    return not (is_loss or is_metric), not is_loss, not name.startswith("train_")
