"""Runs a grid row by row, each in processes of its own; rows that are done are kept, whatever happens later."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import logging
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tfbert.config.counted import counted
from tfbert.config.run import Config
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.modes.benchmark import pages
from tfbert.modes.benchmark.grid import BenchmarkRow, build_rows
from tfbert.modes.benchmark.measured import COLUMNS, compared, failed, failure_reason, measured
from tfbert.modes.child import end_child, start_child
from tfbert.output.lock import locked
from tfbert.output.output_dir import RUN_CONFIG, contents, read_run_config, write_json, write_text
from tfbert.report.facts import environment
from tfbert.tasks.detect import detect_task

log = logging.getLogger("tfbert")

_OWN = (RUN_CONFIG, "benchmark.json", "benchmark.csv", "benchmark.md", "benchmark.html", "plots", "rows")


def run_benchmark(config: Config) -> list[dict[str, Any]]:
    """Measures every row of the grid and writes the tables anew after each.

    The same command, given again, measures only the rows that are not done.

    Args:
        config: Its `benchmark` part names the grid, the others the run.

    Returns:
        The rows of `benchmark.json`.

    Raises:
        UsageError: for an output directory that holds something else.
        RunError: if every row failed, the tables say why; or for a directory that another benchmark is using.
        Preempted: if asked to stop; rows that are done are kept.
    """
    name = f"benchmark-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    directory = pathlib.Path(config.output.output_dir or f"runs/{name}")
    rows = build_rows(detect_task(config), directory)  # Its longest input depends on the task.
    try:
        with locked(directory):
            return _run_rows(rows, directory, config)
    except Preempted as error:
        raise Preempted(
            f"{error}; the rows that are done are kept; to continue after them, repeat the command with "
            f"--output_dir={directory} and without --overwrite_output_dir"
        ) from None


def _run_rows(rows: list[BenchmarkRow], directory: pathlib.Path, config: Config) -> list[dict[str, Any]]:
    _prepare(directory, config)
    log.info("benchmark of %s, to %s", counted(len(rows), "row"), directory)
    done: list[dict[str, Any]] = []
    for row in rows:
        numbers = _earlier(row, directory)
        if numbers is None:
            log.info("row %d of %d: %s", row.number, len(rows), pages.setting_text(row.settings))
            numbers = _measure(row, config, directory)
            write_json(directory / row.directory / "numbers.json", numbers)
        done.append(numbers)
        measured_rows = compared(done)
        _write(directory, config, measured_rows)
        log.info("row %d of %d: %s", row.number, len(rows), pages.row_text(measured_rows[-1]))
    log.info("saved to %s", directory)
    if all(numbers["status"] == "failed" for numbers in done):
        raise RunError(
            f"A benchmark needs a row that runs. Received: {counted(len(done), 'row')} that failed, the first one: "
            f"{done[0]['reason'].rstrip('.')}. See {directory / 'rows'} for its output; the same command tries again."
        )
    return compared(done)


def _prepare(directory: pathlib.Path, config: Config) -> None:
    if contents(directory):
        if not _holds(directory / RUN_CONFIG, config) and not config.output.overwrite_output_dir:
            raise UsageError(
                f"output_dir must be new, or hold the same benchmark. Received: output_dir={str(directory)!r}. "
                "Pass another, or --overwrite_output_dir to replace an earlier benchmark."
            )
        if config.output.overwrite_output_dir and read_run_config(directory).get("mode") != "benchmark":
            raise UsageError(
                "overwrite_output_dir replaces an earlier benchmark, and nothing else. "
                f"Received: output_dir={str(directory)!r}, which holds no benchmark. Pass another."
            )
        for name in _OWN if config.output.overwrite_output_dir else ():
            path = directory / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    write_text(directory / RUN_CONFIG, config.to_json())


def _holds(file: pathlib.Path, config: Config) -> bool:
    """Whether a file holds this configuration, perhaps as a version with fewer options wrote it."""
    try:
        return Config.from_json(file.read_text(encoding="utf-8")) == config
    except (OSError, ValueError, UsageError):
        return False


def _earlier(row: BenchmarkRow, directory: pathlib.Path) -> dict[str, Any] | None:
    """The numbers of a row that an earlier start of the same benchmark measured.

    None for a row that failed: memory that was in use, or a package that was missing, may be available now. None too
    for a row of other settings, which an earlier version made of the same options.
    """
    if row.config is None or not _holds(_config_file(row, directory), row.config):
        return None
    try:
        numbers = json.loads((directory / row.directory / "numbers.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return numbers if numbers["status"] == "done" else None


def _measure(row: BenchmarkRow, config: Config, directory: pathlib.Path) -> dict[str, Any]:
    run_directory = directory / row.directory
    shutil.rmtree(run_directory, ignore_errors=True)
    run_directory.mkdir(parents=True)
    if row.config is None:
        return failed(row, row.reason)
    config_file = _config_file(row, directory)
    write_text(config_file, row.config.to_json())
    command = [sys.executable, "-m", "tfbert.modes.benchmark.row", str(config_file), str(run_directory / "row.json")]
    if row.rows_at_a_time is not None:
        command.append(str(row.rows_at_a_time))
    if row.num_workers > 1:
        launcher = [sys.executable, "-m", "tfbert.launch", f"--num_workers={row.num_workers}", "--"]
        command = launcher + command
    log_file = directory / "rows" / f"{row.number:03}.log"
    status = _run(command, log_file)
    text = log_file.read_text(encoding="utf-8", errors="replace")
    if status:
        return failed(row, failure_reason(status, text))
    try:
        numbers = measured(row, config, run_directory)
    except (UsageError, OSError, KeyError, ValueError) as error:
        return failed(row, f"the run left no numbers: {type(error).__name__}: {error}")
    # A benchmark needs only the numbers: dozens of models would fill the disk.
    for path in [*run_directory.glob("*.safetensors"), run_directory / "checkpoints"]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return numbers


def _config_file(row: BenchmarkRow, directory: pathlib.Path) -> pathlib.Path:
    return directory / "rows" / f"{row.number:03}.json"


def _run(command: list[str], log_file: pathlib.Path) -> int:
    """Runs a command to its end, its output in a file; ends it and all it started when this process is told to end."""
    log_file.unlink(missing_ok=True)  # If it is a link, nothing is written through it.
    with log_file.open("xb") as file, _ends_as_interrupts():
        child = start_child(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            return child.wait()
        except KeyboardInterrupt:
            raise Preempted("stopped") from None
        finally:
            end_child(child)


@contextlib.contextmanager
def _ends_as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP act as Ctrl-C; a signal that is ignored, as SIGHUP under nohup, stays ignored."""

    def interrupt(*_):
        raise KeyboardInterrupt

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(directory: pathlib.Path, config: Config, rows: list[dict[str, Any]]) -> None:
    facts = environment() | {"devices": pages.devices_of(rows)}
    write_json(directory / "benchmark.json", facts | {"columns": COLUMNS, "rows": rows})
    file = io.StringIO()
    writer = csv.DictWriter(file, list(COLUMNS), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(directory / "benchmark.csv", file.getvalue())
    write_text(directory / "benchmark.md", pages.markdown(config, rows))
    plots = pages.plots_of(rows)
    (directory / "plots").mkdir(exist_ok=True)
    for name, (_, svg) in plots.items():
        write_text(directory / "plots" / f"{name}.svg", svg)
    write_text(directory / "benchmark.html", pages.page(config, rows, plots))
