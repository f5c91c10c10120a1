"""`--sweep`: each run of a grid, with each of several seeds where there are any, and the table that ranks them."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Mapping

from tfbert.config.counted import counted
from tfbert.config.run import Config
from tfbert.config.sweep import Point, points_of
from tfbert.modes.child import run_to_its_end
from tfbert.modes.many import (
    Kind,
    Starter,
    Trained,
    check_all_trained,
    check_same_data,
    directory_of,
    is_chief_of,
    run_in,
    train_all,
)
from tfbert.output import output_dir
from tfbert.report.many import SWEEP_FILES, Swept, SweptPoint, rank, write_sweep
from tfbert.report.run_files import read_run

log = logging.getLogger("tfbert")

DATA = "data"
"""The directory of data that was given in memory: other processes read it from files."""
KIND = Kind(
    one="run",
    several="a sweep",
    compared="Runs of a sweep differ in what is swept alone.",
    ends_at_refusal=False,
    pattern=rf"\w+=[^/]+|{DATA}",
    files=SWEEP_FILES,
)


def train_sweep(config: Config, start: Starter = run_to_its_end) -> Swept | None:
    """Trains each run of the grid, one after the other, and writes the table over those that are done.

    The same command resumes: a run that is done is not trained again, and one that was interrupted resumes. More values
    may be added to it.

    Args:
        config: The run, with `sweep`, and perhaps `seeds`.
        start: As for `train_all`.

    Returns:
        The content of `sweep.json`; None on a worker that is not the chief.

    Raises:
        UsageError: as `train_all`.
        RunError: if a run failed, or was refused where others were not; these were trained, and the table has them.
        Preempted, KeyboardInterrupt: as `train_all`.
    """
    directory = output_dir.run_directory(config, output_dir.start_time())
    points = points_of(config)
    planned = {_name(point, seed): (point, seed) for point in points for seed in (config.runtime.seeds or (None,))}
    runs = {
        name: run_in(point.config, directory / (point.directory + f",seed={seed}" * (seed is not None)), seed)
        for name, (point, seed) in planned.items()
    }
    log.info("sweep: %s in %s", counted(len(runs), "run"), directory)
    trained = train_all(config, directory, runs, KIND, start)
    found = _report(directory, points, planned, trained) if is_chief_of(config) and trained.done else None
    check_all_trained(trained, config, directory, KIND, len(runs))
    return found


def _name(point: Point, seed: int | None) -> str:
    return point.label + f", seed {seed}" * (seed is not None)


def _report(
    directory: pathlib.Path, points: list[Point], planned: Mapping[str, tuple[Point, int | None]], trained: Trained
) -> Swept:
    """Writes the table and shows it."""
    read = {name: read_run(directory_of(run)) for name, run in trained.done.items()}
    swept = []
    for point in points:
        names = [name for name, (own, _) in planned.items() if own is point]
        runs = [read[name] for name in names if name in read]
        check_same_data(runs, KIND)
        failed = {name: reason for name, reason in trained.failed.items() if name in names}
        swept.append(SweptPoint(values=point.values, label=point.label, runs=runs, failed=failed))
    found = rank(swept)
    write_sweep(found, directory)
    log.info("")
    for line in [*found.table().plain(), *found.lines()]:
        log.info("%s", line)
    log.info("saved to %s", directory)
    return found
