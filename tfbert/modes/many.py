"""`--mode=train`: one run; with `--seeds` the same run with each of several seeds, with `--sweep` each run of a grid:
one after the other, each as the ordinary command in a process of its own, and the table over them.

So each of them resumes, restarts and is refused like any other run. Under `multi_worker`, every worker of the command
starts its own process for each run.
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
from tfbert.config.counted import counted
from tfbert.config.run import Config
from tfbert.config.sweep import Point, points_of
from tfbert.corpus.records import as_records_are
from tfbert.devices.cluster import PREEMPTED_STATUS, USAGE_STATUS, current_cluster
from tfbert.devices.start import inform_on_chief_alone
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.launch.worker_group import Signals
from tfbert.modes.child import run_to_its_end, signals_collected
from tfbert.output import output_dir
from tfbert.output.callback import Callback
from tfbert.output.trackers import all_callbacks
from tfbert.report.compare import write_comparison
from tfbert.report.many import (
    SEED_FILES,
    SWEEP_FILES,
    OverSeeds,
    Swept,
    SweptPoint,
    rank,
    seeds_lines,
    seeds_table,
    write_seeds,
    write_sweep,
)
from tfbert.report.run_files import RunFiles, read_run
from tfbert.tasks.detect import detect_task
from tfbert.train import launch_mark
from tfbert.train.found import CHECKPOINTS
from tfbert.train.identity import contents_of, different_in, other_contents
from tfbert.train.resume import how_to_resume
from tfbert.train.run import finetune

log = logging.getLogger("tfbert")

Starter = Callable[[Sequence[str], Mapping[str, str], Signals], int]
_POLL_SECONDS = 0.2
_INTERRUPTED = 128 + signal.SIGINT
"""The exit status of a command that Ctrl-C ended before it trained, or at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """What several runs are called in messages.

    Attributes:
        one: A run, as in "every seed must train".
        several: All of them, as in "output_dir of several seeds".
        compared: The rule that they differ in nothing else.
        ends_at_refusal: Whether a run that is refused ends all: the others would be too.
        pattern: Of the names of their directories.
        files: The names of their table's files.
    """

    one: str
    several: str
    compared: str
    ends_at_refusal: bool
    pattern: str
    files: tuple[str, ...]


DATA = "data"
"""The directory of a sweep's data that was given in memory: other processes read it from files."""
SEEDS = Kind(
    one="seed",
    several="several seeds",
    compared="Seeds are compared with everything else equal.",
    ends_at_refusal=True,
    pattern=r"seed-\d+",
    files=SEED_FILES,
)
SWEEP = Kind(
    one="run",
    several="a sweep",
    compared="Runs of a sweep differ in what is swept alone.",
    ends_at_refusal=False,
    pattern=rf"\w+=[^/]+|{DATA}",
    files=SWEEP_FILES,
)


def train(config: Config, callbacks: Sequence[Callback] = ()) -> dict[str, float] | OverSeeds | Swept | None:
    """What the mode does: `finetune`, with several seeds or a sweep `train_many`. The processes of these have no
    callbacks but the trackers of `report_to`."""
    all_callbacks(config.output.report_to, callbacks)  # What is missing is missing in every process.
    if config.runtime.sweep or config.runtime.seeds:
        return train_many(config)
    return finetune(config, callbacks=callbacks)


def train_many(config: Config, start: Starter = run_to_its_end) -> OverSeeds | Swept | None:
    """Trains each run, one after the other, and writes the table over those that are done.

    The same command resumes: a run that is done is not trained again, and one that was interrupted resumes. More seeds
    and values may be added to it.

    Args:
        config: The run, with `seeds`, `sweep`, or both.
        start: Runs a command to its end, with added environment variables, and passes signals on to it; returns its
            exit status, negative for a signal that killed it.

    Returns:
        The content of `seeds.json` or `sweep.json`; None on a worker that is not the chief.

    Raises:
        UsageError: for a directory that holds something else, a run that is done with other settings, and where one
            seed, or every run of a sweep, was refused.
        RunError: if a run failed; the others were trained, and the table has them. If the process of one of several
            workers was killed, that worker ends at once: all workers must start again together.
        Preempted: if asked to stop.
        KeyboardInterrupt: if asked a second time by SIGINT.
    """
    directory, is_sweep = output_dir.run_directory(config, output_dir.start_time()), bool(config.runtime.sweep)
    points = points_of(config) if is_sweep else [Point({}, config)]
    runs, of_point = {}, {}
    for point in points:
        for seed in config.runtime.seeds or (None,):
            of_seed = [] if seed is None else [f"seed {seed}"]
            name = ", ".join([point.label, *of_seed] if is_sweep else of_seed)
            where = ",".join([point.directory, *(f"seed={seed}" for _ in of_seed)]) if is_sweep else f"seed-{seed}"
            runs[name], of_point[name] = run_in(point.config, directory / where, seed), point
    kind = SWEEP if is_sweep else SEEDS
    log.info("%s: %s in %s", "sweep" if is_sweep else "seeds", counted(len(runs), "run"), directory)
    done, failed = train_all(config, directory, runs, kind, start)
    found = None
    if is_chief_of(config) and done:
        read, swept = {name: read_run(directory_of(run)) for name, run in done.items()}, []
        for point in points:
            own = [name for name in runs if of_point[name] is point]
            missing = {name: reason for name, reason in failed.items() if name in own}
            found_runs = [read[name] for name in own if name in read]
            check_same_data(found_runs, kind)
            swept.append(SweptPoint(values=point.values, label=point.label, runs=found_runs, failed=missing))
        found = _written(swept, directory, is_sweep=is_sweep)
    if failed:
        which = ", ".join(f"{name} ({reason})" for name, reason in failed.items())
        raise RunError(
            f"Every {kind.one} must train. Received: {len(failed)} of {len(runs)} {kind.one}s that failed, {which}. "
            f"See the messages above; {how_to_resume(config, directory)}."
        )
    return found


def _written(points: list[SweptPoint], directory: pathlib.Path, *, is_sweep: bool) -> OverSeeds | Swept:
    """Writes the table and shows it."""
    if is_sweep:
        found = rank(points)
        write_sweep(found, directory)
        lines = [*found.table().plain(), *found.lines()]
    else:
        runs, failed = points[0].runs, {int(name.split()[1]): reason for name, reason in points[0].failed.items()}
        found = write_seeds(runs, failed, directory)
        if len(runs) > 1:
            write_comparison(runs, directory)
        lines = [*seeds_table(found).plain(), *seeds_lines(found, runs, failed)]
    for line in ["", *lines, f"saved to {directory}"]:
        log.info("%s", line)
    return found


def directory_of(run: Config) -> pathlib.Path:
    """A run's output directory."""
    return pathlib.Path(run.output.output_dir)


def run_in(config: Config, directory: pathlib.Path, seed: int | None = None) -> Config:
    """A single run, with its own directory and perhaps another seed."""
    own = {"seeds": (), "sweep": ""} | ({} if seed is None else {"seed": seed})
    return dataclasses.replace(
        config,
        runtime=dataclasses.replace(config.runtime, **own),
        output=dataclasses.replace(config.output, output_dir=str(directory)),
    )


def train_all(
    config: Config, directory: pathlib.Path, runs: Mapping[str, Config], kind: Kind, start: Starter
) -> tuple[dict[str, Config], dict[str, str]]:
    """Trains runs, as `train_many`; those that are done are not trained again, those interrupted resume.

    Args:
        config: What was asked for.
        directory: Where the runs are.
        runs: By name, as messages call them.
        kind: What they are.
        start: As for `train_many`.

    Returns:
        The runs that have results, by name, in order; and why the others have none.
    """
    is_chief = is_chief_of(config)
    inform_on_chief_alone(is_chief)
    check_directory(directory, kind)
    done, known = {name for name, run in runs.items() if _is_done(run)}, {}
    contents = {name: contents_of(run, known) for name, run in runs.items()}
    for name, run in runs.items():
        _check_same(run, contents[name], kind, is_done=name in done)
    if is_chief:
        output_dir.make(directory)
        for name in kind.files if config.output.overwrite_output_dir else ():
            (directory / name).unlink(missing_ok=True)
    failed: dict[str, str] = {}
    refused: list[str] = []
    with signals_collected() as signals:
        for place, (name, run) in enumerate(runs.items(), 1):
            where = f"{name} ({place} of {len(runs)})"
            if name in done:
                log.info("%s: already done, in %s", where, directory_of(run))
                continue
            log.info("%s: training in %s", where, directory_of(run))
            # The child's messages name the command as the user typed it.
            status = start(_command(run), {STARTED_AS: sys.argv[0]}, signals)
            if status == 0 and not is_chief:
                status = _wait_for_results(run, signals)
            if status == 0:
                done.add(name)
                _check_read(run, contents[name], kind)
            _stop_if_asked(status, signals, config, directory, kind, has_more=not done.issuperset([*runs][place:]))
            if status == USAGE_STATUS:
                refused.append(name)
                if kind.ends_at_refusal:
                    break
            if status:
                failed[name] = "refused, see its message" if status == USAGE_STATUS else _in_words(status)
                log.warning("%s failed: %s", name, failed[name])
            if status < 0 and config.runtime.strategy == "multi_worker":
                break  # The other workers take a while to notice; the next run would find processes of this one.
    if refused and (kind.ends_at_refusal or len(refused) == len(runs)):
        raise UsageError(
            f"Every {kind.one} must be able to train as configured. Received: {refused[0]}, which was refused. "
            "See its message above."
        )
    return {name: run for name, run in runs.items() if name in done}, failed


def is_chief_of(config: Config) -> bool:
    """Whether this process is the one that writes."""
    if config.runtime.strategy != "multi_worker":
        return True
    cluster = current_cluster()
    return cluster.job == "chief" or ("chief" not in cluster.jobs and cluster.index == 0)


def check_directory(directory: pathlib.Path, kind: Kind) -> None:
    """Refuses a directory that holds anything but such runs and their table, or that cannot be written to.

    Raises:
        UsageError: naming what it holds.
    """
    output_dir.check_writable(directory)
    known = re.compile(rf"{kind.pattern}|{'|'.join(map(re.escape, kind.files))}")
    names = [name.removesuffix(".partial").lstrip(".") for name in output_dir.contents(directory)]
    others = [name for name in names if not known.fullmatch(name)]
    if others:
        raise UsageError(
            f"output_dir of {kind.several} must be new, or hold only runs of {kind.several.removeprefix('several ')}. "
            f"Received: output_dir={str(directory)!r}, which holds {others[0]!r}. Pass another."
        )


def check_same_data(runs: Sequence[RunFiles], kind: Kind) -> None:
    """Refuses a table over runs of different examples, such as of a file that was changed after the first run.

    Raises:
        RunError: naming two of them.
    """
    known = [run for run in runs if "data" in run.facts]  # Runs of earlier versions did not record it.
    for run in known:
        if run.facts["data"] != known[0].facts["data"]:
            raise RunError(
                f"{kind.one[0].upper()}{kind.one[1:]}s are compared on the same examples. Received: "
                f"{known[0].name!r} and {run.name!r}, of different ones. Pass another --output_dir, or "
                f"--overwrite_output_dir to train all {kind.one}s again."
            )


def _command(run: Config) -> list[str]:
    return [sys.executable, "-m", "tfbert", command_of(run).word, *option_words(run)]


def _is_done(run: Config) -> bool:
    """Whether the run's directory holds the results of an earlier start, and this start takes them."""
    return (directory_of(run) / output_dir.RESULTS).is_file() and _takes_earlier(run)


def has_trained(directory: pathlib.Path) -> bool:
    """Whether a run's directory holds what it was trained to: another start goes on with that, or takes it."""
    return (directory / output_dir.RESULTS).is_file() or any(directory.glob(f"{CHECKPOINTS}/step-*"))


def _takes_earlier(run: Config) -> bool:
    takes_earlier = run.output.resume == "auto" and not run.output.overwrite_output_dir
    return takes_earlier or launch_mark.is_restart(directory_of(run))


def _check_same(run: Config, contents: dict[str, int], kind: Kind, *, is_done: bool) -> None:
    """Refuses a run that was done with other settings or data, as resuming with others is refused, and one that was
    begun on others."""
    before = output_dir.read_run_config(directory_of(run)) if _takes_earlier(run) else {}
    if is_done:
        compared = as_records_are(run) if run.pretraining.train_records else run
        different = different_in(before, detect_task(compared).resolved()) + other_contents(before, contents)
    elif has_trained(directory_of(run)):  # It may be evaluated on other examples than when it began.
        different = other_contents(before, contents, "train_file", "train_records", "dataset")
    else:
        return
    if different:
        raise UsageError(
            f"{kind.compared} Received: {str(directory_of(run))!r}, {'a finished' if is_done else 'an unfinished'} run "
            f"with {', '.join(different)}. Pass the same, or another --output_dir; --overwrite_output_dir trains all "
            f"{kind.one}s again."
        )


def _check_read(run: Config, contents: dict[str, int], kind: Kind) -> None:
    """Ends the command where a run read another file than there was at the beginning: the next would be trained on it.

    Raises:
        RunError: naming the option.
    """
    if changed := other_contents(output_dir.read_run_config(directory_of(run)), contents):
        raise RunError(
            f"{kind.compared} Received: {str(directory_of(run))!r}, for which a file changed after the first run had "
            f"begun: {', '.join(changed)}. Leave the files as they are; --overwrite_output_dir trains all {kind.one}s "
            "again."
        )


def _stop_if_asked(
    status: int, signals: Signals, config: Config, directory: pathlib.Path, kind: Kind, *, has_more: bool
) -> None:
    """Ends the command if a signal to it, or to the run alone, asked for that.

    Raises:
        Preempted, KeyboardInterrupt: as `train_all`.
    """
    if signals.received.count(signal.SIGINT) > 1 and status:
        raise KeyboardInterrupt
    if status in (PREEMPTED_STATUS, _INTERRUPTED) or (signals.received and (status or has_more)):
        raise Preempted(f"stopped; {kind.one}s that are done are kept, and {how_to_resume(config, directory)}")


def _wait_for_results(run: Config, signals: Signals) -> int:
    """Waits for the results that the chief writes at the end: a run's processes must be gone before the next run.

    Returns:
        The status that the run counts as: 0, or 1 if no results appear.
    """
    left = run.runtime.cluster_timeout_seconds
    while not (directory_of(run) / output_dir.RESULTS).is_file():
        if left <= 0 or signals.wait(_POLL_SECONDS):
            return 1
        left -= _POLL_SECONDS
    return 0


def _in_words(status: int) -> str:
    return f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"
