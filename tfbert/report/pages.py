"""A run's files -> `report.html`: one file that needs no other. Every text in it is escaped."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

from tfbert.output import write_text
from tfbert.report import plots
from tfbert.report.run_files import RunFiles, read_run

REPORT = "report.html"
_LARGEST_MATRIX = 30
"""Classes beyond which a confusion matrix is too large to read."""
_EVALUATION_SPEEDS = ("eval_runtime", "eval_samples_per_second", "eval_tokens_per_second")
_EVALUATION_SPEEDS += ("eval_model_gflops_per_second", "eval_batch_seconds_p50", "eval_batch_seconds_p95")
_EVALUATION_SPEEDS += ("eval_data_wait_share", "eval_user_seconds", "eval_kernel_seconds")


def write_report(directory: str | pathlib.Path, results: dict[str, Any] | None = None) -> pathlib.Path:
    """Writes `directory/report.html` from the run's files there.

    Args:
        directory: The run's output directory.
        results: What `all_results.json` will hold; None where it is there.

    Returns:
        Where it is.

    Raises:
        UsageError: for a directory that holds no finished run.
        RunError: if it cannot be written.
    """
    path = pathlib.Path(directory) / REPORT
    write_text(path, run_page(read_run(directory, results)))
    return path


def run_page(run: RunFiles) -> str:
    """The report of one run as HTML text."""
    evaluation = run.facts.get("evaluation") or {}
    is_readable = evaluation.get("confusion") and len(evaluation["confusion"]) <= _LARGEST_MATRIX
    return render(
        "run.html",
        title=run.name,
        run=run,
        facts=run.facts,
        headline=_headline(run),
        plots=_plots(run),
        evaluations=_evaluations(run),
        evaluation=evaluation,
        confusion=evaluation["confusion"] if is_readable else None,
        split=_split(run),
    )


def render(template: str, **values: Any) -> str:
    """Fills a template of this package; every value is escaped but the plots."""
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment():
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tfbert.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only `plots` makes what passes here unescaped, and matplotlib escapes the texts in it.
    environment.filters |= {"svg": markupsafe.Markup, "shown": show, "share": share, "memory": memory, "time": duration}
    # A long name may go on in another line after an underscore.
    environment.filters["broken"] = lambda name: markupsafe.escape(name).replace("_", markupsafe.Markup("_<wbr>"))
    return environment


def show(value: Any) -> str:
    """A value for people: numbers with 4 digits that count, lists by comma, nothing as a dash."""
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
    """What is looked at first, as (name, value) pairs; only what is known."""
    results, out = run.results, []
    if run.score:
        out.append((run.score[0].replace("_", " "), f"{run.score[1]:.4f}"))
    if "train_runtime" in results:
        out.append(("training time", duration(results["train_runtime"])))
    if run.examples_per_second:
        out.append(("examples/s", f"{run.examples_per_second:,.0f}"))
    if "train_tokens_per_second_steady" in results:
        out.append(("real tokens/s", f"{results['train_tokens_per_second_steady']:,.0f}"))
    if "step_seconds_p50" in results:
        out.append(("step, median", f"{1000 * results['step_seconds_p50']:,.0f} ms"))
        out.append(("step, 95th percentile", f"{1000 * results['step_seconds_p95']:,.0f} ms"))
    if "compile_seconds" in results:
        out.append(("tracing and compiling", duration(results["compile_seconds"])))
    if "data_wait_share" in results:
        out.append(("waiting for data", share(results["data_wait_share"], 2)))
    if "peak_memory_bytes" in results:
        out.append(("peak memory", memory(results["peak_memory_bytes"])))
    return out


def _plots(run: RunFiles) -> list[tuple[str, str]]:
    """(title, SVG) of everything that was logged."""
    kinds = (
        ("Training loss", "train", "loss", "loss of the last steps", False),
        ("Learning rate", "train", "learning_rate", "learning rate", True),
        ("Throughput", "train", "examples_per_second", "examples/s", True),
        ("Gradient norm before clipping", "train", "grad_norm", "global norm", True),
        ("Waiting for data", "train", "data_wait_share", "share of the time", True),
    )
    out = []
    for title, kind, name, label, from_zero in kinds:
        steps, values = run.series(kind, name)
        if steps:
            line = plots.Series(label="", x=steps, y=values)
            out.append((title, plots.lines([line], x_label="step", y_label=label, from_zero=from_zero)))
    if run.score:
        name = run.score[0]
        steps, values = run.series("eval", f"eval_{name}")
        if steps:
            title = name.replace("_", " ")
            line = plots.Series(label="", x=steps, y=values)
            out.insert(1, (f"Evaluation: {title}", plots.lines([line], x_label="step", y_label=title, markers=True)))
    return out


def _evaluations(run: RunFiles) -> dict[str, Any]:
    """The evaluations as two tables, metrics and speeds, since together they are too wide for paper; and the step whose
    weights were kept. A table is its column names and its rows."""
    records = [r for r in run.records if r["kind"] == "eval"]
    hidden = {"step", "kind", "time", "epoch"}
    names = list(dict.fromkeys(name for record in records for name in record if name not in hidden))
    groups = [name for name in names if name not in _EVALUATION_SPEEDS], [n for n in names if n in _EVALUATION_SPEEDS]
    tables = [
        (group, [(r["step"], r.get("epoch"), [r.get(name) for name in group]) for r in records])
        for group in groups
        if group
    ]
    return {"tables": tables, "best_step": run.results.get("best_step")}


def _split(run: RunFiles) -> dict[str, Any] | None:
    """The profiled step: its parts in milliseconds, and a bar."""
    profile = run.facts.get("profile")
    if not profile:
        return None
    parts = {name: 1000 * seconds for name, seconds in profile["parts"].items()}
    total = sum(parts.values())
    rows = [(name, value, value / total if total else 0.0) for name, value in parts.items()]
    return profile | {"rows": rows, "total": total, "plot": plots.split_bar(parts, x_label="milliseconds of a step")}
