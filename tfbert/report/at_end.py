"""The report that a run writes at its end; a failure to write it never costs the finished run."""

from __future__ import annotations

import logging
import pathlib
from typing import TYPE_CHECKING, Any

from tfbert.devices.waiting import log_if_slow
from tfbert.report.facts import environment, evaluation_facts, write_facts
from tfbert.report.pages import write_report

if TYPE_CHECKING:
    from tfbert.tasks.base import TaskData

log = logging.getLogger("tfbert")


def report_at_end(
    directory: pathlib.Path,
    facts: dict[str, Any],
    data: TaskData,
    predictions: Any,
    results: dict[str, Any],
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
