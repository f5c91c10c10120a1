"""`--mode=train`: one run, or, with `--seeds`, the same run with each of several seeds, and the table over them.

Each seed is the ordinary command in a process of its own, in `OUTPUT_DIR/seed-N`, so it resumes, restarts and is
refused like any other run. Under `multi_worker`, every worker of the command starts its own process for each seed.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from tfbert.config.commands import STARTED_AS, command_of, option_words
from tfbert.config.run import Config
from tfbert.devices.cluster import PREEMPTED_STATUS, USAGE_STATUS, current_cluster
from tfbert.devices.start import inform_on_chief_alone
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.launch.worker_group import Signals
from tfbert.modes.child import run_to_its_end, signals_collected
from tfbert.output import output_dir
from tfbert.report.compare import plain_table
from tfbert.report.run_files import RunFiles, read_run
from tfbert.report.seed_files import SEED_FILES, closing_lines, labels, write_seeds
from tfbert.report.seeds import OverSeeds, seed_rows
from tfbert.tasks.detect import detect_task
from tfbert.train import launch_mark
from tfbert.train.identity import different_in
from tfbert.train.resume import how_to_resume
from tfbert.train.run import finetune

log = logging.getLogger("tfbert")

Starter = Callable[[Sequence[str], Mapping[str, str], Signals], int]
_POLL_SECONDS = 0.2
_INTERRUPTED = 128 + signal.SIGINT
"""The exit status of a command that Ctrl-C ended before it trained, or at once."""


def train(config: Config) -> dict[str, float] | OverSeeds | None:
    """What the mode does: `finetune`, or, with several seeds, `train_seeds`."""
    return train_seeds(config) if config.runtime.seeds else finetune(config)


def train_seeds(config: Config, start: Starter = run_to_its_end) -> OverSeeds | None:
    """Trains each of `seeds`, one after the other, and writes the table over those that are done.

    The same command resumes: a seed that is done is not trained again, and one that was interrupted resumes.

    Args:
        config: The run, with `seeds`.
        start: Runs a command to its end, with added environment variables, and passes signals on to it; returns its
            exit status, negative for a signal that killed it.

    Returns:
        The content of `seeds.json`; None on a worker that is not the chief.

    Raises:
        UsageError: for a directory that holds something else, a seed that is done with other settings, and whatever a
            seed's run refuses.
        RunError: if a seed failed; the others were trained, and the table has them. If the process of one of several
            workers was killed, that worker ends at once: all workers must start again together.
        Preempted: if asked to stop.
        KeyboardInterrupt: if asked a second time by SIGINT.
    """
    directory, seeds = output_dir.run_directory(config, output_dir.start_time()), config.runtime.seeds
    is_chief = _is_chief(config)
    inform_on_chief_alone(is_chief)
    _check_directory(directory)
    runs = {seed: _run_of(config, directory, seed) for seed in seeds}
    done = {seed for seed, run in runs.items() if _is_done(run)}
    _check_same([runs[seed] for seed in done])
    if is_chief:
        output_dir.make(directory)
        for name in SEED_FILES if config.output.overwrite_output_dir else ():
            (directory / name).unlink(missing_ok=True)
    failed: dict[int, str] = {}
    with signals_collected() as signals:
        for place, seed in enumerate(seeds, 1):
            if seed in done:
                log.info("seed %d (%d of %d): already done, in %s", seed, place, len(seeds), _directory(runs[seed]))
                continue
            log.info("seed %d (%d of %d): training in %s", seed, place, len(seeds), _directory(runs[seed]))
            # The child's messages name the command as the user typed it.
            status = start(_command(runs[seed]), {STARTED_AS: sys.argv[0]}, signals)
            if status == 0 and not is_chief:
                status = _wait_for_results(runs[seed], signals)
            if status == 0:
                done.add(seed)
            _stop_if_asked(status, signals, config, directory, has_more=not done.issuperset(seeds[place:]))
            if status == USAGE_STATUS:
                raise UsageError(
                    f"Every seed must be able to train as configured. Received: seed {seed}, which was refused. "
                    "See its message above."
                )
            if status:
                failed[seed] = _in_words(status)
                log.warning("seed %d failed: %s", seed, failed[seed])
            if status < 0 and config.runtime.strategy == "multi_worker":
                break  # The other workers take a while to notice; the next seed would find processes of this one.
    found = _report(directory, [runs[seed] for seed in seeds if seed in done], failed) if is_chief and done else None
    if failed:
        which = ", ".join(f"seed {seed} ({reason})" for seed, reason in failed.items())
        raise RunError(
            f"Every seed must train. Received: {len(failed)} of {len(seeds)} seeds that failed, {which}. "
            f"See the messages above; {how_to_resume(config, directory)}."
        )
    return found


def _directory(run: Config) -> pathlib.Path:
    return pathlib.Path(run.output.output_dir)


def _run_of(config: Config, directory: pathlib.Path, seed: int) -> Config:
    """The run of one seed."""
    return dataclasses.replace(
        config,
        runtime=dataclasses.replace(config.runtime, seed=seed, seeds=()),
        output=dataclasses.replace(config.output, output_dir=str(directory / f"seed-{seed}")),
    )


def _command(run: Config) -> list[str]:
    return [sys.executable, "-m", "tfbert", command_of(run).word, *option_words(run)]


def _is_chief(config: Config) -> bool:
    if config.runtime.strategy != "multi_worker":
        return True
    cluster = current_cluster()
    return cluster.job == "chief" or ("chief" not in cluster.jobs and cluster.index == 0)


def _check_directory(directory: pathlib.Path) -> None:
    """Refuses a directory that holds anything but runs of seeds and their table."""
    output_dir.check_writable(directory)
    known = re.compile(rf"seed-\d+|{'|'.join(map(re.escape, SEED_FILES))}")
    names = [name.removesuffix(".partial").lstrip(".") for name in output_dir.contents(directory)]
    others = [name for name in names if not known.fullmatch(name)]
    if others:
        raise UsageError(
            "output_dir of several seeds must be new, or hold only runs of seeds. "
            f"Received: output_dir={str(directory)!r}, which holds {others[0]!r}. Pass another."
        )


def _is_done(run: Config) -> bool:
    """Whether the run's directory holds the results of an earlier start, and this start takes them."""
    directory = _directory(run)
    if not (directory / output_dir.RESULTS).is_file():
        return False
    takes_earlier = run.output.resume == "auto" and not run.output.overwrite_output_dir
    return takes_earlier or launch_mark.is_restart(directory)


def _check_same(runs: list[Config]) -> None:
    """Refuses runs that were done with other settings, as resuming with other settings is refused."""
    for run in runs:
        if different := different_in(output_dir.read_run_config(_directory(run)), detect_task(run).resolved()):
            raise UsageError(
                f"Seeds are compared with everything else equal. Received: {str(_directory(run))!r}, a finished run "
                f"with {', '.join(different)}. Pass the same, or another --output_dir; --overwrite_output_dir trains "
                "all seeds again."
            )


def _check_same_data(runs: list[RunFiles]) -> None:
    """Refuses a table over runs of different examples, such as of a file that was changed after the first seed.

    Raises:
        RunError: naming two of them.
    """
    known = [run for run in runs if "data" in run.facts]  # Runs of earlier versions did not record it.
    for run in known:
        if run.facts["data"] != known[0].facts["data"]:
            raise RunError(
                f"Seeds are compared on the same examples. Received: {known[0].name!r} and {run.name!r}, of different "
                "ones. Pass another --output_dir, or --overwrite_output_dir to train all seeds again."
            )


def _stop_if_asked(status: int, signals: Signals, config: Config, directory: pathlib.Path, *, has_more: bool) -> None:
    """Ends the command if a signal to it, or to the run alone, asked for that.

    Raises:
        Preempted, KeyboardInterrupt: as `train_seeds`.
    """
    if signals.received.count(signal.SIGINT) > 1 and status:
        raise KeyboardInterrupt
    if status in (PREEMPTED_STATUS, _INTERRUPTED) or (signals.received and (status or has_more)):
        raise Preempted(f"stopped; seeds that are done are kept, and {how_to_resume(config, directory)}")


def _wait_for_results(run: Config, signals: Signals) -> int:
    """Waits for the results that the chief writes at the end: a run's processes must be gone before the next run.

    Returns:
        The status that the run counts as: 0, or 1 if no results appear.
    """
    left = run.runtime.cluster_timeout_seconds
    while not (_directory(run) / output_dir.RESULTS).is_file():
        if left <= 0 or signals.wait(_POLL_SECONDS):
            return 1
        left -= _POLL_SECONDS
    return 0


def _in_words(status: int) -> str:
    return f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"


def _report(directory: pathlib.Path, done: list[Config], failed: Mapping[int, str]) -> OverSeeds:
    """Writes the table and shows it."""
    runs = [read_run(_directory(run)) for run in done]
    _check_same_data(runs)
    found = write_seeds(runs, failed, directory)
    log.info("")
    for line in [*plain_table(*seed_rows(found, labels(found))), *closing_lines(found, runs, failed)]:
        log.info("%s", line)
    log.info("saved to %s", directory)
    return found
