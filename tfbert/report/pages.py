"""A run's files -> `report.html`: one file that needs no other. Every text in it is escaped."""

from __future__ import annotations

import functools
import logging
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.config.counted import rate_text
from tfbert.devices.waiting import log_if_slow
from tfbert.output.output_dir import write_text
from tfbert.report import plots
from tfbert.report.run_files import RunFiles, environment, evaluation_facts, loss_extras, read_run, used, write_facts
from tfbert.report.tables import Table, duration, markdown_text, memory, sentence, share, show, table_of
from tfbert.tasks.metrics import per_class
from tfbert.tasks.registry import entry_of

if TYPE_CHECKING:
    from tfbert.tasks.base import TaskData

log = logging.getLogger("tfbert")

REPORT = "report.html"
_LARGEST_MATRIX = 30
"""Classes beyond which a confusion matrix is too large to read."""
_SPEEDS = ("runtime", "samples_per_second", "tokens_per_second", "model_gflops_per_second", "batch_seconds_p50")
_SPEEDS += ("batch_seconds_p95", "data_wait_share", "user_seconds", "kernel_seconds")

Logged = tuple[str, str, str]
"""What is drawn of a log: a record's kind, the name of a number in it, and its label."""


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


def report_at_end(
    directory: pathlib.Path, facts: dict[str, Any], data: TaskData, predictions: Any, results: dict[str, Any]
) -> pathlib.Path | None:
    """Writes `report.json` and `report.html`; a failure is a warning, since the run does not need them.

    Args:
        directory: The run's output directory, with its other files.
        facts: What only the run knows: `devices`, `precision`, `parameters`, `dropout`, `decisive_metric`, `data`.
        data: What it trained and evaluated on.
        predictions: Those of the kept weights for the first evaluation set, as the task makes them; None without a set.
        results: What `all_results.json` will hold.

    Returns:
        Where the report is; None where it could not be written.
    """
    try:
        facts = environment() | facts | data.facts | {"train_examples": len(data.train)}
        if predictions is not None:
            name, examples = next(iter(data.validation.items()))
            facts["evaluation"] = evaluation_facts(data.task, name, examples, predictions)
        write_facts(directory, facts, results)
        with log_if_slow("drawing the report"):
            return write_report(directory, results)
    except Exception as error:  # Whatever it is: the model is there, and its results must be written.
        log.warning("the report could not be written (%s: %s); nothing else is lost", type(error).__name__, error)
        return None


def run_page(run: RunFiles) -> str:
    """The report of one run as HTML text."""
    task, evaluation = entry_of(run.task), run.facts.get("evaluation") or {}
    confusion = evaluation.get("confusion")
    quality, speed = _evaluations(run)
    return render(
        task.report,
        title=run.name,
        run=run,
        facts=run.facts,
        headline=_headline(run),
        quality_plots=_quality_plots(run, task.accuracies),
        speed_plots=[
            *drawn("Throughput", "examples/s", [(run, ("train", "examples_per_second", ""))], from_zero=True),
            *drawn("Waiting for data", "share", [(run, ("train", "data_wait_share", ""))], from_zero=True),
        ],
        about_losses=_about_losses(run),
        quality=quality,
        speed=speed,
        evaluation=evaluation,
        classes=per_class(np.array(confusion), evaluation["label_names"]) if confusion else None,
        confusion=confusion if confusion and len(confusion) <= _LARGEST_MATRIX else None,
        results=sorted(run.results.items(), key=lambda item: _place(item[0])),
        settings=used(run),
    )


def render(template: str, **values: Any) -> str:
    """Fills a template of this package, or of a task's folder; in HTML, every value is escaped but the plots."""
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment():
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("tfbert.report"), jinja2.PackageLoader("tfbert.tasks", "")]),
        autoescape=lambda name: str(name).endswith(".html"),
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only `plots` makes what passes here unescaped, and matplotlib escapes the texts in it.
    environment.filters |= {"svg": markupsafe.Markup, "shown": show, "md": markdown_text}
    environment.globals["lines_against"] = plots.lines_against
    # A long name may continue on another line after an underscore.
    environment.filters["broken"] = lambda name: markupsafe.escape(name).replace("_", markupsafe.Markup("_<wbr>"))
    return environment


def drawn(
    title: str, y_label: str, wanted: Sequence[tuple[RunFiles, Logged]], *, smooth: bool = False, **options: Any
) -> list[tuple[str, str]]:
    """(title, SVG) of what runs logged; nothing where they did not. Smooth curves are means of up to 20 values."""
    series = []
    for run, (kind, name, label) in wanted:
        steps, values = run.series(kind, name)
        if steps:
            over = min(20, max(1, len(values) // 10)) if smooth else 1
            values = [float(np.mean(values[max(0, end - over) : end])) for end in range(1, len(values) + 1)]
            series.append(plots.Series(label=label, x=steps, y=values, is_marked=kind == "eval"))
    if not series:
        return []
    return [(title or sentence(series[0].label), plots.lines(series, x_label="step", y_label=y_label, **options))]


def _headline(run: RunFiles) -> list[tuple[str, str]]:
    """What a reader looks at first, as (name, value) pairs: quality, then speed; only what is known."""
    score, losses = run.score or ("", None), run.validation_losses
    numbers = run.results | {"": score[1], "loss": run.training_loss(), "speed": run.examples_per_second}
    wanted = [
        ("", score[0].replace("_", " "), "{:.4f}".format),
        *((name, title, show) for name, title in losses.items()),
        ("loss", "training loss then" if losses else "training loss", show),
        ("train_runtime", "training time", duration),
        ("speed", "examples/s", rate_text),
        ("train_tokens_per_second_steady", "real tokens/s", "{:,.0f}".format),
        ("step_seconds_p50", "step, median", _milliseconds),
        ("step_seconds_p95", "step, 95th percentile", _milliseconds),
        ("compile_seconds", "tracing and compiling", duration),
        ("data_wait_share", "waiting for data", functools.partial(share, digits=2)),
        ("peak_memory_bytes", "peak memory", memory),
    ]
    return [(title, shown(numbers[name])) for name, title, shown in wanted if numbers.get(name) is not None]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"


def _quality_plots(run: RunFiles, together: tuple[str, ...]) -> list[tuple[str, str]]:
    """(title, SVG) of the losses, the metric that decided, the accuracies that go `together`, and how weights moved."""
    losses = [("train", "loss", "training loss"), *(("eval", *named) for named in run.validation_losses.items())]
    losses = [logged for logged in losses if run.series(*logged[:2])[0]]
    title = "Training and validation loss" if len(losses) > 1 else ""
    out = drawn(title, "loss", [(run, logged) for logged in losses])
    own = f"eval_{run.score[0]}" if run.score else ""
    if own and own not in run.validation_losses:
        title = _words(own)
        out += drawn(f"Evaluation: {title}", title, [(run, ("eval", own, ""))])
    names = dict.fromkeys(name for record in run.records if record["kind"] == "eval" for name in record)
    accuracies = [(run, ("eval", name, _words(name))) for name in names if name.endswith(together) and name != own]
    out += drawn("Evaluation: accuracies", "accuracy", accuracies)
    out += drawn("Learning rate", "learning rate", [(run, ("train", "learning_rate", ""))], from_zero=True)
    title = "Gradient norm before clipping"
    return out + drawn(title, "global norm", [(run, ("train", "grad_norm", ""))], from_zero=True)


def _words(name: str) -> str:
    return name.removeprefix("eval_").replace("_", " ")


def _about_losses(run: RunFiles) -> str:
    """What a reader must know to compare the two losses; empty where there is only one."""
    if not run.validation_losses:
        return ""
    dropout = run.facts.get("dropout", run.option("training", "dropout"))
    extras = [*(["dropout"] if dropout != 0 else []), *loss_extras(run)]
    without = ", without it" if len(extras) == 1 else ", without them"
    own, others = (f", with {' and '.join(extras)}", without) if extras else ("", "")
    return (
        f"Each training loss is the mean over the updates since the point before{own}; the validation loss is the mean "
        f"over all examples{others}."
    )


def _evaluations(run: RunFiles) -> tuple[Table, Table]:
    """The evaluations as two tables, metrics and speeds, since together they are too wide for paper; the row of the
    weights that were kept is marked. The training loss stands before the first other one."""
    records = [record for record in run.records if record["kind"] == "eval"]
    speeds = {f"eval_{name}" for name in _SPEEDS}
    names = list(dict.fromkeys(name for record in records for name in record if name not in _HIDDEN))
    names.sort(key=lambda name: name not in run.validation_losses)
    steps = [record["step"] for record in records]
    at = [("step", steps, "{}"), ("epoch", [record.get("epoch") for record in records], show)]
    losses = [run.training_loss(step) if run.validation_losses else None for step in steps]
    columns = [(name, [record.get(name) for record in records], show) for name in names]
    best = run.results.get("best_step")
    quality = [*at, ("training loss", losses, show), *(column for column in columns if column[0] not in speeds)]
    return (
        table_of(quality, kept=steps.index(best) if best in steps else None),
        table_of([*at, *(column for column in columns if column[0] in speeds)]),
    )


_HIDDEN = {"step", "kind", "time", "epoch"}


def _place(name: str) -> tuple[bool, bool, bool]:
    """Sorts results: losses, other metrics, and everything that is not about quality."""
    is_loss = name.endswith("_loss")
    is_metric = name.startswith(("eval_", "test_")) and name.partition("_")[2] not in _SPEEDS
    return not (is_loss or is_metric), not is_loss, not name.startswith("train_")
