"""A run's files -> `report.html`: one file that needs no other. Every text in it is escaped.

Numbers -> plots as SVG text that stands inside an HTML page. Takes values and labels, knows nothing of runs.

`README.md` of a trained model: what it was trained on and how, how good it is, and how to use it.

A table, once: as Markdown, as lines for a screen, and by the templates as HTML; and values as people read them.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import logging
import pathlib
import re
import shlex
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.config.run import Config, command_of, option_words
from tfbert.config.types import counted, rate_text
from tfbert.devices.process import log_if_slow
from tfbert.model.keras_hub import may_be_built_in
from tfbert.output.output_dir import write_text
from tfbert.report.run_files import RunFiles, environment, evaluation_facts, loss_extras, read_run, used, write_facts
from tfbert.tasks.metrics import per_class
from tfbert.tasks.registry import entry_of

if TYPE_CHECKING:
    from tfbert.tasks.base import TaskData

log = logging.getLogger("tfbert")

COLORS = ("#2563a8", "#c2571a", "#2e7d4f", "#8a3ffc", "#a3195b", "#5f6b7a", "#0f8b8d", "#9a7b00")
_WIDTH, _HEIGHT = 4.4, 2.7
"""Inches: about a phone's width, so that text keeps its size there; a page puts two side by side."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # Text stays text: small, searchable, and in the page's own font.
    "svg.hashsalt": "tfbert",  # The same numbers give the same file.
    "text.parse_math": False,  # A dollar sign in a run's name is a dollar sign.
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
}


def line_plot(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    marked: Collection[str] = (),
    from_zero: bool = False,
    x_is_whole: bool = True,
) -> str:
    """A plot of one or more lines.

    Args:
        lines: x and y of each, `[n]`, by its label; an only one may have an empty label.
        x_label: Under the plot.
        y_label: Beside it.
        marked: The lines of which each point is marked; a point that stands alone always is.
        from_zero: Start the vertical axis at 0.
        x_is_whole: Whether the horizontal axis counts: there is no half a step.
    """

    # matplotlib takes half a second to import; the Figure alone keeps no global state and needs no display.
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A name in a script that matplotlib's font lacks; the page's has it.
        figure = Figure(figsize=(_WIDTH, _HEIGHT))
        axes = figure.add_subplot()
        for index, (label, (x, y)) in enumerate(lines.items()):
            marker = "o" if label in marked or len(x) == 1 else ""
            axes.plot(x, y, color=COLORS[index % len(COLORS)], marker=marker, markersize=3.5)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=x_is_whole))
        if from_zero:
            axes.set_ylim(bottom=0)
        if any(lines):
            # Below the plot, where no line can hide it. Handles are given, as matplotlib leaves out some labels.
            axes.legend(
                axes.get_lines(), [*lines], loc="upper left", bbox_to_anchor=(-0.1, -0.22), frameon=False, fontsize=8
            )

        file = io.StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", bbox_inches="tight", pad_inches=0.05, transparent=True, metadata=metadata)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    # Several plots share a page, where an id must be unique; nothing refers to those of groups.
    return re.sub(r'<g id="[^"]*"', "<g", text)


def lines_against(columns: Mapping[str, Sequence[float]], x: str) -> str:
    """A plot of several quantities, `[n]` each, against the one of them that is named `x`."""
    lines = {name: (columns[x], values) for name, values in columns.items() if name != x}
    return line_plot(lines, x_label=x, y_label="", from_zero=True, x_is_whole=False)


# Characters with a meaning to Markdown or HTML within a line; an underscore only at the edge of a word.
_MARKUP = re.compile(r"[\\`*\[\]<>|~$&]|(?<!\w)_|_(?!\w)")
# Control characters, ends of lines, what turns the direction of the text around, and halves of surrogate pairs.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

Shown = str | Callable[[Any], str]
"""How a column shows its values: a pattern, or a function."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        names: Of its columns.
        body: A text for each cell.
        title: What it is about; may be empty.
        numeric: Columns of numbers, which stand on the right.
        kept: The row that is marked on a page.
        links: On a page, for each row what stands behind it, as (address, text).
    """

    names: Sequence[str]
    body: Sequence[Sequence[str]]
    title: str = ""
    numeric: Collection[str] = ()
    kept: int | None = None
    links: Sequence[Sequence[tuple[str, str]]] = ()

    def markdown(self) -> str:
        """The table in GitHub's Markdown."""
        rule = ["---:" if name in self.numeric else "---" for name in self.names]
        lines = [map(markdown_text, self.names), rule, *(map(markdown_text, row) for row in self.body)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def plain(self) -> list[str]:
        """The table for a screen, a line each: its first column on the left, numbers on the right; its rows are columns
        where there are more metrics than rows."""
        lines = [list(self.names), *map(list, self.body)]
        if len(self.names) > len(lines):
            lines = [list(line) for line in zip(*lines, strict=True)]
        first, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return [
            "  ".join([line[0].ljust(first), *(cell.rjust(w) for cell, w in zip(line[1:], widths, strict=True))])
            for line in lines
        ]


def table_of(
    columns: Sequence[tuple[str, Sequence[Any], Shown]], *, texts: Collection[str] = (), **about: Any
) -> Table:
    """A table of columns; those without a value in any row are left out.

    Args:
        columns: The name of each, a value for each row, or None, and how they are shown.
        texts: Columns that hold no numbers.
        **about: The other attributes of the table.
    """
    known = [column for column in columns if any(value is not None for value in column[1])]
    cells = [
        ["–" if value is None else shown.format(value) if isinstance(shown, str) else shown(value) for value in values]
        for _, values, shown in known
    ]
    names = [name for name, *_ in known]
    body = [list(row) for row in zip(*cells, strict=True)]
    return Table(names=names, body=body, numeric={*names} - {*texts}, **about)


def markdown_text(text: str) -> str:
    """Markdown that shows a text as it is: it starts no HTML, no link, no table column and no new line."""
    return _MARKUP.sub(r"\\\g<0>", visible(text))


def visible(text: str) -> str:
    """A text whose control characters, which JSON can bring into labels, are written as Python writes them."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


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


def memory(value: float) -> str:
    """Bytes as GiB."""
    return f"{value / 2**30:.2f} GiB"


def duration(seconds: float) -> str:
    """`1 h 2 min`, `2 min 3 s` or `3.1 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


REPORT = "report.html"
_LARGEST_MATRIX = 30
"""Classes beyond which a confusion matrix is too large to read."""
_SPEEDS = ("runtime", "samples_per_second", "tokens_per_second", "model_gflops_per_second", "batch_seconds_p50")
_SPEEDS += ("batch_seconds_p95", "data_wait_share", "user_seconds", "kernel_seconds")


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
) -> None:
    """Writes `report.json` and `report.html`; a failure is a warning, since the run does not need them.

    Args:
        directory: The run's output directory, with its other files.
        facts: What only the run knows: `devices`, `precision`, `parameters`, `dropout`, `decisive_metric`, `data`.
        data: What it trained and evaluated on.
        predictions: Those of the kept weights for the first evaluation set, as the task makes them; None without a set.
        results: What `all_results.json` will hold.
    """
    try:
        facts = environment() | facts | {"train_examples": len(data.train)}
        if predictions is not None:
            name, examples = next(iter(data.validation.items()))
            facts["evaluation"] = evaluation_facts(data.task, name, examples, predictions)
        write_facts(directory, facts, results)
        with log_if_slow("drawing the report"):
            write_report(directory, results)
    except Exception as error:  # Whatever it is: the model is there, and its results must be written.
        log.warning("the report could not be written (%s: %s); nothing else is lost", type(error).__name__, error)


def run_page(run: RunFiles) -> str:
    """The report of one run as HTML text."""
    task, evaluation = entry_of(run.task), run.facts.get("evaluation") or {}
    confusion = evaluation.get("confusion")
    (quality, speed), (quality_plots, speed_plots) = _evaluations(run), _plots(run, task.accuracies)
    return render(
        f"{task.folder}/report.html",
        title=run.name,
        run=run,
        facts=run.facts,
        headline=_headline(run),
        quality_plots=quality_plots,
        speed_plots=speed_plots,
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
    # Only `line_plot` makes what passes here unescaped, and matplotlib escapes the texts in it.
    environment.filters |= {"svg": markupsafe.Markup, "shown": show, "md": markdown_text}
    environment.globals["lines_against"] = lines_against
    # A long name may continue on another line after an underscore.
    environment.filters["broken"] = lambda name: markupsafe.escape(name).replace("_", markupsafe.Markup("_<wbr>"))
    return environment


def _plots(run: RunFiles, together: tuple[str, ...]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(title, SVG) of what a run logged of its quality: the losses, the metric that decided, the accuracies that go
    `together`, and how weights moved; and of its speed."""
    quality: list[tuple[str, str]] = []
    speed: list[tuple[str, str]] = []

    def draw(into: list, title: str, y_label: str, wanted: dict[str, tuple[str, str]], from_zero: bool = False) -> None:
        lines = {label: run.series(*logged) for label, logged in wanted.items()}
        lines = {label: line for label, line in lines.items() if line[0]}
        if lines:
            marked = [label for label in lines if wanted[label][0] == "eval"]
            plot = line_plot(lines, x_label="step", y_label=y_label, marked=marked, from_zero=from_zero)
            into.append((title, plot))

    own = run.decisive
    losses = {"training loss": ("train", "loss")}
    losses |= {title: ("eval", name) for name, title in run.validation_losses.items()}
    draw(quality, "Training and validation loss" if len(losses) > 1 else "Training loss", "loss", losses)
    if own not in run.validation_losses:
        draw(quality, f"Evaluation: {words(own)}", words(own), {"": ("eval", own)})
    names = dict.fromkeys(name for record in run.records if record["kind"] == "eval" for name in record)
    accuracies = {words(name): ("eval", name) for name in names if name.endswith(together) and name != own}
    draw(quality, "Evaluation: accuracies", "accuracy", accuracies)
    draw(quality, "Learning rate", "learning rate", {"": ("train", "learning_rate")}, from_zero=True)
    draw(quality, "Gradient norm before clipping", "global norm", {"": ("train", "grad_norm")}, from_zero=True)
    draw(speed, "Throughput", "examples/s", {"": ("train", "examples_per_second")}, from_zero=True)
    draw(speed, "Waiting for data", "share", {"": ("train", "data_wait_share")}, from_zero=True)
    return quality, speed


def _headline(run: RunFiles) -> list[tuple[str, str]]:
    """What a reader looks at first, as (name, value) pairs: quality, then speed; only what is known."""
    losses, numbers = run.validation_losses, run.results | {"loss": run.training_loss()}
    numbers |= {"time": training_time(run.results), "speed": run.examples_per_second}

    def milliseconds(seconds: float) -> str:
        return f"{1000 * seconds:,.0f} ms"

    wanted = [
        (run.decisive, words(run.decisive), "{:.4f}".format),
        *((name, title, show) for name, title in losses.items()),
        ("loss", "training loss then" if losses else "training loss", show),
        ("time", "training time", str),
        ("speed", "examples/s", rate_text),
        ("train_tokens_per_second_steady", "real tokens/s", "{:,.0f}".format),
        ("step_seconds_p50", "step, median", milliseconds),
        ("step_seconds_p95", "step, 95th percentile", milliseconds),
        ("compile_seconds", "tracing and compiling", duration),
        ("data_wait_share", "waiting for data", "{:.2%}".format),
        ("peak_memory_bytes", "peak memory", memory),
    ]
    return [(title, shown(numbers[name])) for name, title, shown in wanted if numbers.get(name) is not None]


def training_time(results: dict[str, Any]) -> str | None:
    """How long a run trained: of one that was resumed, from where it went on; None if that is not known."""
    if "train_runtime" not in results:
        return None
    since = f" since step {results['resumed_at_step']:,}" if "resumed_at_step" in results else ""
    return duration(results["train_runtime"]) + since


def words(name: str) -> str:
    """A metric's name as people write it: `accuracy` for `eval_accuracy`."""
    return name.removeprefix("eval_").replace("_", " ")


def _about_losses(run: RunFiles) -> str:
    """What a reader must know to compare the two losses; empty where there is only one."""
    if not run.validation_losses:
        return ""
    extras = [*(["dropout"] if run.facts["dropout"] != 0 else []), *loss_extras(run)]
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


_WHERE_IT_GOES = ("output_dir", "overwrite_output_dir")
_NOT_EVALUATED = "The model was not evaluated.\n"


def model_card(
    config: Config,
    data: TaskData,
    results: dict[str, float],
    *,
    version: str,
    model_type: str,
    directory: pathlib.Path,
    head_start: str = "",
) -> str:
    """The card as Markdown, with the metadata that the Hugging Face hub reads.

    Args:
        config: The run, its defaults resolved.
        data: What it was trained on.
        results: As in `all_results.json`.
        version: Of tfbert.
        model_type: Of the model, as in its `config.json`.
        directory: Where the model is.
        head_start: A sentence on where a new head started; may be empty.
    """
    import tensorflow as tf
    from huggingface_hub import ModelCardData

    metrics = {name: f"{value:.4f}" for name, value in results.items() if name.startswith(("eval_", "test_"))}
    metadata = {"library_name": "transformers", "pipeline_tag": data.task.pipeline_tag, "tags": [model_type, "tfbert"]}
    name = config.model.model_name_or_path
    # The hub's names are OWNER/NAME or NAME: neither a directory or a file, which would have been read, nor KerasHub's.
    is_local = name.startswith((".", "/", "~")) or pathlib.Path(name).exists() or may_be_built_in(name)
    if name.count("/") <= 1 and not config.model.is_scratch and not is_local:
        metadata["base_model"] = name
    if metrics:
        names = dict.fromkeys(name.split("_", 1)[1] for name in metrics if name.startswith("eval_"))
        # Counts and thresholds that come with some metrics are not metrics.
        known = tuple(name for name in data.task.metric_names if name != "loss")
        metadata["metrics"] = [name for name in names if name.endswith(known)]
    sets = [(name, part.name, f"{len(part):,}") for name, part in {"training": data.train, **data.sets}.items()]
    # TensorFlow is also installed under other names.
    versions = {"tfbert": version, "tensorflow": tf.__version__} | environment()["versions"]
    return render(
        "model_card.md",
        metadata=ModelCardData(**metadata).to_yaml(),
        config=config,
        results=results,
        task=data.task,
        model_type=model_type,
        num_texts=data.train.num_texts,
        classes=", ".join(map(_code, data.task.label_names)),
        sets=Table(names=("set", "from", "examples"), body=sets).markdown(),
        metrics=Table(names=("metric", "value"), body=[*metrics.items()]).markdown() if metrics else _NOT_EVALUATED,
        command=command_line(config),
        updates=counted(round(results["global_step"]), "update"),
        batch=counted(config.training.global_batch_size, "example"),
        rate=rate_text(results["train_samples_per_second"]),
        head_start=head_start,
        versions=Table(names=("package", "version"), body=[*versions.items()]).markdown(),
        usage=f"{entry_of(data.task.name).folder}/usage.md",
        place=_string(str(directory)),
    )


def command_line(config: Config) -> str:
    """The command that repeats a run: each option that is not at its default."""
    command = command_of(config)
    return " ".join([command.started, *map(_shell_word, option_words(config, _WHERE_IT_GOES))])


def _code(text: str) -> str:
    """A text as a code span, in a fence of more backticks than it has in a row."""
    text = visible(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if not text.strip(" ") or text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def _string(text: str) -> str:
    """A text as Python writes it, in double quotes where it can be."""
    return f'"{text}"' if text.isprintable() and not {*text} & {*'"\\'} else repr(text)


def _shell_word(word: str) -> str:
    """As `shlex.quote`, on one line: a line end would end the card's block of code."""
    if not CONTROL.search(word):
        return shlex.quote(word)
    escaped = re.sub(r"[\\']", r"\\\g<0>", word)
    return "$'" + CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped) + "'"
