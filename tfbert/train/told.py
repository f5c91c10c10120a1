"""What a run's callbacks are told, and how the run ends where one of them fails."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from tfbert.config.run import Config
from tfbert.errors import Preempted
from tfbert.output.callback import Callback, Record, RunInfo
from tfbert.output.reports import Reports
from tfbert.train.build import Run
from tfbert.train.identity import values_of


def reports_of(run: Run, callbacks: Sequence[Callback]) -> Reports:
    """The reports to them, of which nothing is told yet."""
    directory = run.directory if run.chief else None
    return Reports(directory, callbacks, run.reported, values_of(run.identity, run.config))


def start_reports(run: Run, reports: Reports, logged: Sequence[Record]) -> None:
    """Tells callbacks that the run starts; every worker must call.

    Raises:
        RunError: on all workers, where one of them fails.
    """
    schedule, data = run.schedule, run.data
    numbers = {
        "total_steps": schedule.total_steps,
        "steps_per_epoch": schedule.steps_per_epoch,
        "warmup_steps": schedule.warmup_steps,
        "global_batch_size": run.config.training.global_batch_size,
        "num_replicas": run.strategy.num_replicas_in_sync,
        "train_examples": len(data.train),
        "eval_examples": sum(len(part) for part in data.validation.values()),
        "parameters": run.classifier.num_parameters(),
        "trained_parameters": run.classifier.num_parameters(only_trainable=True),
    }
    info = RunInfo(
        directory=run.directory,
        options=_options(run.config),
        first_step=schedule.first_step,
        total_steps=schedule.total_steps,
    )
    reports.start(info, {name: float(value) for name, value in numbers.items()}, logged)
    if run.consensus.any(reports.failed is not None):
        raise reports.error("Nothing was trained. Repair it, and start again.")


@contextlib.contextmanager
def ended(run: Run, reports: Reports) -> Iterator[dict[str, float]]:
    """Tells callbacks how the run ended that the block trains.

    Yields:
        Where the block puts the results.

    Raises:
        RunError: on the chief, for a callback that failed after the last update.
    """
    results: dict[str, float] = {}
    try:
        yield results
    except Preempted:
        reports.end("stopped")
        raise
    except BaseException:
        reports.end("failed")
        raise
    reports.end("finished", int(results.get("global_step", 0)), results)
    if reports.failed is not None:
        raise reports.error(f"The run is done, and all its files are in {run.directory}.")


def _options(config: Config) -> dict[str, object]:
    """The options of a training run, by name, with values as JSON has them."""
    fields = [(part, field) for part in config.parts() for field in dataclasses.fields(part)]
    values = {f.name: getattr(part, f.name) for part, f in fields if "train" in f.metadata["modes"]}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
