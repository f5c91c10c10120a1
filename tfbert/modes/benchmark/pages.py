"""A benchmark's rows -> Markdown, plots and an HTML page."""

from __future__ import annotations

from typing import Any

from tfbert.config.counted import counted
from tfbert.config.run import Config
from tfbert.modes.benchmark.measured import COLUMNS
from tfbert.modes.benchmark.prediction import growth, one_replica
from tfbert.report import plots
from tfbert.report.compare import markdown_table, markdown_text
from tfbert.report.facts import environment
from tfbert.report.pages import memory, render, share, show

_SETTINGS = ("pass", "workers", "replicas", "precision", "xla", "batch_size", "micro_batches", "seq_length", "batching")
_FORMATS = {
    "examples_per_second_with_warmup": "{:,.1f}",
    "examples_per_second": "{:,.1f}",
    "tokens_per_second": "{:,.0f}",
    "step_ms_p50": "{:,.1f}",
    "step_ms_p95": "{:,.1f}",
    "compile_seconds": "{:.1f}",
    "user_seconds": "{:,.1f}",
    "kernel_seconds": "{:,.1f}",
    "speed_up": "{:.2f}",
    "score": "{:.4f}",
    "cost": "{:.4g}",
    "seconds": "{:,.1f}",
    "all_reduce_ms": "{:,.1f}",
    "predicted_examples_per_second": "{:,.1f}",
}
_TITLES = {
    "name": "row",
    "seconds": "time, s",
    "examples_per_second_with_warmup": "examples/s with warm-up",
    "examples_per_second": "examples/s",
    "tokens_per_second": "real tokens/s",
    "step_ms_p50": "step p50, ms",
    "step_ms_p95": "step p95, ms",
    "compile_seconds": "compile, s",
    "data_wait_share": "waiting for data",
    "user_seconds": "CPU, s",
    "kernel_seconds": "kernel, s",
    "peak_memory_bytes": "peak memory",
    "peak_share": "share of peak",
    "batch_size": "batch",
    "micro_batches": "micro-batches",
    "seq_length": "tokens",
    "speed_up": "speed-up",
    "all_reduce_ms": "all-reduce, ms",
    "predicted_examples_per_second": "predicted examples/s",
}
_INSIDE = (
    "examples_per_second_with_warmup",
    "step_ms_p50",
    "step_ms_p95",
    "compile_seconds",
    "data_wait_share",
    "user_seconds",
    "kernel_seconds",
    "peak_memory_bytes",
    "peak_share",
)
"""Where a row's time and memory go: a table of its own, as one of all columns would be wider than a page."""
_LEFT_OUT = {"row", "devices", "gradient_bytes", *_SETTINGS}
"""A row's name has the settings, the heading the devices; the bytes depend on the model alone."""
_TEXTS = {"row", "status", "reason"}
"""Columns that are no numbers."""
_SHARES = {"data_wait_share", "peak_share", "efficiency"}


_COUNTED = {
    "workers": ("worker", "workers"),
    "replicas": ("replica", "replicas"),
    "micro_batches": ("micro-batch", "micro-batches"),
}
"""Settings that are numbers of something, with the words for one and for several."""
Cells = tuple[list[str], list[list[str]]]
"""The names of a table's columns, and a text for each cell."""


def cells(rows: list[dict[str, Any]]) -> Cells:
    """What the rows are compared by; without empty columns, and without `status` if all rows are done."""
    names = [name for name in COLUMNS if name not in {*_LEFT_OUT, *_INSIDE}]
    if all(row["status"] == "done" for row in rows):
        names.remove("status")
    return _table(rows, rows, names)


def inside_cells(rows: list[dict[str, Any]]) -> Cells:
    """Where the time and the memory of the rows went."""
    return _table(rows, [row for row in rows if row["status"] == "done"], list(_INSIDE))


def _table(rows: list[dict[str, Any]], shown: list[dict[str, Any]], names: list[str]) -> Cells:
    names = [name for name in names if any(row.get(name) not in (None, "") for row in shown)]
    called = {row["row"]: name for row, name in zip(rows, row_names(rows), strict=True)}
    body = [[called[row["row"]], *(_cell(column, row.get(column)) for column in names)] for row in shown]
    return [_TITLES["name"], *(_TITLES.get(name, name) for name in names)], body


def row_names(rows: list[dict[str, Any]]) -> list[str]:
    """What to call each row: its number, and the settings in which rows differ. The page's heading has the others."""
    differ = [name for name in _SETTINGS if len({str(row.get(name)) for row in rows}) > 1]
    return [f"{row['row']}: {', '.join(_words(row, name) for name in differ) or row['pass']}" for row in rows]


def _words(row: dict[str, Any], name: str) -> str:
    """A setting of a row in a word or two."""
    value = row.get(name)
    if value is None:
        return f"{name.replace('_', ' ')} –"
    if name == "xla":
        return "XLA" if value else "no XLA"
    if name in _COUNTED:
        one, many = _COUNTED[name]
        return f"{show(value)} {one if value == 1 else many}"
    if name == "batch_size":
        return f"batch {show(value)}"
    return f"{show(value)} tokens" if name == "seq_length" else str(value).replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if value in (None, ""):
        return "–"
    if name in _SHARES:
        return share(value)
    if name == "peak_memory_bytes":
        return memory(value)
    return _FORMATS[name].format(value) if name in _FORMATS else show(value)


def setting_text(settings: dict[str, Any]) -> str:
    """A row's settings in a line."""
    workers, replicas, micro_batches = settings["workers"], settings["replicas"], settings["micro_batches"]
    if replicas == "all":
        replicas = "all devices" + f" of {workers} workers" * (workers > 1)
    else:
        replicas = counted(workers * replicas, "replica")
    return (
        f"{settings['pass']}, {replicas}, {settings['precision']}{', XLA' * settings['xla']}, "
        f"batch {settings['batch_size']}{f' in {micro_batches} micro-batches' * (micro_batches != 1)}, "
        f"{settings['seq_length']} tokens{', ' + settings['batching'] if settings['batching'] else ''}"
    )


def row_text(row: dict[str, Any]) -> str:
    """What a row measured, in a line."""
    if row["status"] != "done":
        return f"failed: {row['reason']}"
    predicted = row.get("predicted_examples_per_second")
    beside = f" (predicted {predicted:,.1f})" if predicted else ""
    return f"{row['examples_per_second']:,.1f} examples/s{beside}, step {row['step_ms_p50']:,.1f} ms"


def markdown(config: Config, rows: list[dict[str, Any]]) -> str:
    """The table as Markdown text, with what is needed to read it."""
    lines = [*_heading(config, rows), ""]
    text = "\n".join(markdown_text(line) for line in lines) + "\n"
    for names, body in (cells(rows), inside_cells(rows)):
        text += (markdown_table(names, body, {*names} - _TEXTS) + "\n") * bool(body)
    text += _EXPLAINED
    for title, names, body, explained in growths(rows):
        text += f"\n## {title}\n\n{markdown_table(names, body)}\n{explained}\n"
    return text


def page(config: Config, rows: list[dict[str, Any]], plots: dict[str, tuple[str, str]]) -> str:
    """The table and the plots as HTML text."""
    # Reasons are in the list of rows: in a narrow column they would make the table tall.
    names, body = cells([{**row, "reason": ""} for row in rows])
    inside = inside_cells(rows)
    return render(
        "benchmark.html",
        title=f"Benchmark of {config.model.name}",
        heading=_heading(config, rows)[1:],
        names=names,
        inside=inside if inside[1] else None,
        numeric={*names, *inside[0]} - _TEXTS,
        rows=body,
        done=[row["status"] == "done" for row in rows],
        plots=list(plots.values()),
        explained=_EXPLAINED,
        growths=growths(rows),
        settings=[(row["row"], setting_text(row), row.get("reason", "")) for row in rows],
    )


def growths(rows: list[dict[str, Any]]) -> list[tuple[str, list[str], list[list[str]], str]]:
    """What more GPUs would give: title, column names, a text for each cell and an explanation, of the training row of
    most replicas that has a prediction; nothing without one. Replicas on CPUs have links of memory, which say nothing
    of a network."""
    found = [row for row in rows if row.get("predicted_examples_per_second") and "GPU" in row["devices"]]
    if not found:
        return []
    row = max(found, key=lambda row: row["workers"] * row["replicas"])
    one = one_replica(row, rows)
    body = [
        [f"{number:,}", f"{batch:,}", f"{speed:,.1f}", share(efficiency)]
        for number, batch, speed, efficiency in growth(row, one)
    ]
    explained = (
        f"On paper: arithmetic at the speed of row {one['row']}, {memory(row['gradient_bytes'])} of gradients an "
        f"update, and links as fast as those of row {row['row']}, in a ring. Links between machines are often slower "
        "than those inside one: docs/scaling.md has the formula."
    )
    return [("More GPUs, on paper", ["GPUs", "batch", "examples/s", "efficiency"], body, explained)]


def devices_of(rows: list[dict[str, Any]]) -> list[str]:
    """The devices that rows ran on, each once; known only for rows that are done."""
    return list(dict.fromkeys(row["devices"] for row in rows if row.get("devices")))


def plots_of(rows: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """File name -> (title, SVG), for each pass with rows that are done."""
    out = {}
    for measured in dict.fromkeys(row["pass"] for row in rows):
        done = [row for row in rows if row["pass"] == measured and row["status"] == "done"]
        labels = [name for name, row in zip(row_names(rows), rows, strict=True) if row in done]
        for name, title, label in (
            ("examples_per_second", "Throughput", "examples/s"),
            ("speed_up", "Speed-up within a precision", "times"),
            ("peak_memory_bytes", "Peak memory", "GiB"),
            ("peak_share", "Share of the measured peak matrix rate", "percent"),
        ):
            if not done or not all(name in row for row in done):
                continue
            scale = {"peak_memory_bytes": 2.0**-30, "peak_share": 100.0}.get(name, 1.0)
            svg = plots.bars(labels, [row[name] * scale for row in done], x_label=label)
            out[f"{measured}-{name}"] = (f"{title}, {measured}", svg)
    return out


def _heading(config: Config, rows: list[dict[str, Any]]) -> list[str]:
    facts = environment()
    devices = devices_of(rows)
    alike = [name for name in _SETTINGS if len({str(row.get(name)) for row in rows}) == 1]
    shared = ", ".join(f"{name.replace('_', ' ')} {show(rows[0].get(name))}" for name in alike)
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return [
        f"Benchmark of {config.model.name} on {config.source}.",
        *([f"All rows: {shared}."] if shared else []),
        *([f"Devices: {'; '.join(devices)}."] if devices else []),
        f"{facts['machine']}; {versions}.",
        f"Command: {facts['command']}",
    ]


_EXPLAINED = (
    "Speeds leave out the warm-up updates and those that compiled, except where they say so. Speed-up is relative to "
    "the first row of the same pass and precision that is done. The time is that of all updates of the row, or of its "
    "second evaluation. Efficiency compares examples/s of a replica with those in the row "
    "with the fewest replicas that differs in nothing but devices, batch and micro-batches. The share of the peak is "
    "the model's FLOPs for real tokens over the rate of a large matrix product in the same precision, measured after "
    "the row in its process. Peak memory is the device's, or the whole process's on a CPU; for an inference row it "
    "includes the two small updates before it. A predicted speed is that of one replica, in proportion to the "
    "examples, with the time of the all-reduce added to each update.\n"
)
