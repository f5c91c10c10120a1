"""The table of a sweep as files: `sweep.json`, `sweep.md` and `sweep.html`."""

from __future__ import annotations

import os
import pathlib
import urllib.parse
from typing import Any

from tfbert.output.output_dir import write_json, write_text
from tfbert.report import plots
from tfbert.report.compare import Table, markdown_table, markdown_text
from tfbert.report.pages import render
from tfbert.report.seeds import also_in, best_by
from tfbert.report.sweep import Swept, SweptPoint, curves, notes, sweep_rows

JSON, TABLE, PAGE = "sweep.json", "sweep.md", "sweep.html"
SWEEP_FILES = (JSON, TABLE, PAGE)


def write_sweep(found: Swept, directory: pathlib.Path) -> None:
    """Writes the files.

    Raises:
        RunError: if they cannot be written.
    """
    best = found.best
    write_json(
        directory / JSON,
        {
            "decisive": found.decisive,
            "decided_by": found.decided_by,
            "best": None if best is None else _as_json(best),
            "points": [_as_json(point) for point in found.points],
        },
    )
    names, rows = sweep_rows(found)
    numeric = names[len(found.points[0].values) :]
    lines = [
        markdown_table(names, rows, numeric),
        *(f"- {markdown_text(line)}" for line in [*closing_lines(found), *notes(found)]),
    ]
    write_text(directory / TABLE, "\n".join(lines) + "\n")
    write_text(directory / PAGE, sweep_page(found, directory))


def sweep_page(found: Swept, directory: pathlib.Path) -> str:
    """The table and its curves as HTML text, with a link to the report of each run."""
    names, rows = sweep_rows(found)
    x_label, drawn = curves(found)
    title = f"{_words(found.decisive)} by {x_label}" if drawn else ""
    options = len(found.points[0].values)
    links = [[(_report_of(run.name, directory), _seed(run)) for run in point.runs] for point in found.points]
    return render(
        "sweep.html",
        title=f"Sweep of {' and '.join(found.points[0].values)}",
        directory=str(directory),
        table=Table(title="", names=names, body=rows, numeric=frozenset(names[options:])),
        links=links,
        lines=closing_lines(found),
        notes=notes(found),
        plots=[(title[0].upper() + title[1:], plots.curves(drawn, x_label=x_label, y_label=_words(found.decisive)))]
        if drawn
        else [],
    )


def closing_lines(found: Swept) -> list[str]:
    """What stands below the table: where the best is, and runs that are missing."""
    out = []
    if found.best is not None:
        which = f"{found.best.label}, in {found.best.directory}"
        out.append(f"{_sentence(best_by(found.decisive, found.decided_by))}: {which}")
    elif found.equal:
        also = also_in(found.decisive, found.points[0].over.mean)
        out.append(f"{_sentence(best_by(found.decisive))}: none, {found.equal} are equal{also}.")
    else:
        out.append("Nothing was evaluated: the runs are not ranked.")
    return out + [f"{name} is missing: {why}." for point in found.points for name, why in point.failed.items()]


def _as_json(point: SweptPoint) -> dict[str, Any]:
    found: dict[str, Any] = {"values": dict(point.values)}
    if point.runs:
        found |= {"mean": point.over.mean, "standard_deviation": point.over.standard_deviation}
        found["directory"] = point.directory
    found["runs"] = [
        {"directory": run.name, "seed": run.option("runtime", "seed"), "results": values}
        for run, values in zip(point.runs, point.over.values if point.runs else [], strict=True)
    ]
    return found | {"failed": dict(point.failed)}


def _report_of(run: str, directory: pathlib.Path) -> str:
    return urllib.parse.quote(os.path.relpath(pathlib.Path(run) / "report.html", directory))


def _seed(run: Any) -> str:
    return f"seed {run.option('runtime', 'seed')}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _words(metric: str) -> str:
    return metric.removeprefix("eval_").replace("_", " ")
