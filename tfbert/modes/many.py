"""`--mode=train`: one run; with `--seeds` the same run with each of several seeds, with `--sweep` each run of a grid:
one after the other, each as the ordinary command in a process of its own, and the table over them.

So each of them resumes, restarts and is refused like any other run.
"""

from __future__ import annotations

import logging
import pathlib
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from tfbert.config.run import STARTED_AS, Config, Point, command_of, option_words, points_of
from tfbert.config.types import counted
from tfbert.corpus.records import as_records_are
from tfbert.devices.cluster import PREEMPTED_STATUS, USAGE_STATUS
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.launch import Signals, run_to_its_end
from tfbert.output import output_dir
from tfbert.output.logs import Callback, all_callbacks
from tfbert.report import compare
from tfbert.report.run_files import RunFiles, read_run
from tfbert.tasks.registry import detect_task
from tfbert.train.resume import CHECKPOINTS, contents_of, different_in, how_to_resume, is_restart, other_contents
from tfbert.train.run import finetune

log = logging.getLogger("tfbert")

Starter = Callable[[Sequence[str], Mapping[str, str], Signals], int]
_INTERRUPTED = 128 + signal.SIGINT
"""The exit status of a command that Ctrl-C ended before it trained, or at once."""
_FILES = tuple(f"{compare.SWEEP}.{ending}" for ending in ("json", "md", "html"))
_EARLIER_TABLES = ("seeds.json", "seeds.md")  # Which would be out of date.
_EARLIER_FILES = (*_EARLIER_TABLES, "comparison.html", "comparison.md")
_OWN = re.compile("|".join([r"seed-\d+|\w+=[^/]+|data", *map(re.escape, _FILES + _EARLIER_FILES)]))
"""What a directory of such runs holds; `data` is of earlier versions, too."""
_COMPARED = "Runs are compared with everything else equal."
_ALL_AGAIN = "--overwrite_output_dir trains all runs again"


def train(config: Config, callbacks: Sequence[Callback] = ()) -> dict[str, float] | compare.Swept:
    """What the mode does: `finetune`, with several seeds or a sweep `train_many`. The processes of these have no
    callbacks but the trackers of `report_to`."""
    all_callbacks(config.output.report_to, callbacks)  # What is missing is missing in every process.
    if config.runtime.sweep or config.runtime.seeds:
        return train_many(config)
    return finetune(config, callbacks=callbacks)


def train_many(config: Config, start: Starter = run_to_its_end) -> compare.Swept:
    """Trains each run, one after the other, and writes the table over those that are done.

    The same command resumes: a run that is done is not trained again, and one that was interrupted resumes. More seeds
    and values may be added to it.

    Args:
        config: The run, with `seeds`, `sweep`, or both.
        start: Runs a command to its end, with added environment variables, and passes signals on to it; returns its
            exit status, negative for a signal that killed it.

    Returns:
        The content of `sweep.json`.

    Raises:
        UsageError: for a directory that holds something else, a run that is done with other settings, and where every
            run was refused.
        RunError: if a run failed; the others were trained, and the table has them.
        Preempted: if asked to stop.
        KeyboardInterrupt: if asked a second time by SIGINT.
    """
    directory, is_sweep = output_dir.run_directory(config), bool(config.runtime.sweep)
    grouped: list[tuple[Point, dict[str, Config]]] = []
    for point in points_of(config) if is_sweep else [Point({}, config)]:
        own = {}
        for seed in config.runtime.seeds or (None,):
            name, where = point.label, point.directory
            if seed is not None:
                name = f"{name}, seed {seed}" if is_sweep else f"seed {seed}"
                where = f"{where},seed={seed}" if is_sweep else f"seed-{seed}"
            own[name] = run_in(point.config, directory / where, seed)
        grouped.append((point, own))
    runs = {name: run for _, own in grouped for name, run in own.items()}
    log.info("%s: %s in %s", "sweep" if is_sweep else "seeds", counted(len(runs), "run"), directory)
    done, failed = train_all(config, directory, runs, start)
    swept = []
    for point, own in grouped:
        missing = {name: failed[name] for name in own if name in failed}
        found_runs = [read_run(directory_of(run)) for name, run in own.items() if name in done]
        check_same_data(found_runs)
        swept.append(compare.SweptPoint(values=point.values, label=point.label, runs=found_runs, failed=missing))
    found = compare.rank(swept)
    if done:
        found.write(directory)
        tables = [line for table in found.tables(directory) for line in ("", *table.plain())]
        for line in (*tables, *found.lines(), f"saved to {directory}"):
            log.info("%s", line)
    if failed:
        which = ", ".join(f"{name} ({reason})" for name, reason in failed.items())
        received = f"{len(failed)} of {len(runs)} runs that failed, {which}"
        todo = f"See the messages above; {how_to_resume(config, directory)}."
        raise RunError(f"Every run must train. Received: {received}. {todo}")
    return found


def directory_of(run: Config) -> pathlib.Path:
    """A run's output directory."""
    return pathlib.Path(run.output.output_dir)


def run_in(config: Config, directory: pathlib.Path, seed: int | None = None) -> Config:
    """A single run, with its own directory and perhaps another seed."""
    own = {"seeds": (), "sweep": "", "output_dir": str(directory)}
    return config.changed(own if seed is None else own | {"seed": seed})


def train_all(
    config: Config, directory: pathlib.Path, runs: Mapping[str, Config], start: Starter
) -> tuple[set[str], dict[str, str]]:
    """Trains runs, as `train_many`; those that are done are not trained again, those interrupted resume.

    Args:
        config: What was asked for.
        directory: Where the runs are.
        runs: By name, as messages call them.
        start: As for `train_many`.

    Returns:
        The names of the runs that have results; and why the others have none.
    """
    check_directory(directory)
    has_results = {name for name, run in runs.items() if (directory_of(run) / output_dir.RESULTS).is_file()}
    done, known = {name for name in has_results if _takes_earlier(runs[name])}, {}
    contents = {name: contents_of(run, known) for name, run in runs.items()}
    for name, run in runs.items():
        _check_same(run, contents[name], is_done=name in done)
    output_dir.make(directory)
    for name in _FILES + _EARLIER_FILES if config.output.overwrite_output_dir else _EARLIER_TABLES:
        (directory / name).unlink(missing_ok=True)
    failed: dict[str, str] = {}
    refused: list[str] = []
    with Signals() as signals:
        for place, (name, run) in enumerate(runs.items(), 1):
            where = f"{name} ({place} of {len(runs)})"
            if name in done:
                log.info("%s: already done, in %s", where, directory_of(run))
                continue
            log.info("%s: training in %s", where, directory_of(run))
            command = [sys.executable, "-m", "tfbert", command_of(run).word, *option_words(run)]
            # The child's messages name the command as the user typed it.
            status = start(command, {STARTED_AS: sys.argv[0]}, signals)
            if status == 0:
                done.add(name)
                _check_read(run, contents[name])
            _stop_if_asked(status, signals, config, directory, has_more=not done.issuperset([*runs][place:]))
            if status == USAGE_STATUS:
                refused.append(name)
                if not config.runtime.sweep:
                    break  # Other seeds would be refused too.
            if status:
                failed[name] = "refused, see its message" if status == USAGE_STATUS else _in_words(status)
                log.warning("%s failed: %s", name, failed[name])
    if refused and (not config.runtime.sweep or len(refused) == len(runs)):
        rule = "Every run must be able to train as configured"
        raise UsageError(f"{rule}. Received: {refused[0]}, which was refused. See its message above.")
    return done, failed


def check_directory(directory: pathlib.Path) -> None:
    """Refuses a directory that holds anything but such runs and their table, or that cannot be written to.

    Raises:
        UsageError: naming what it holds.
    """
    output_dir.check_writable(directory)
    names = [name.removesuffix(".partial").lstrip(".") for name in output_dir.contents(directory)]
    if others := [name for name in names if not _OWN.fullmatch(name)]:
        rule = "output_dir of several runs must be new, or hold only runs of seeds or of a sweep"
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r}, which holds {others[0]!r}. Pass another.")


def check_same_data(runs: Sequence[RunFiles]) -> None:
    """Refuses a table over runs of different examples, such as of a file that was changed after the first run.

    Raises:
        RunError: naming two of them.
    """
    for run in runs:
        if run.facts["data"] != runs[0].facts["data"]:
            received = f"{runs[0].name!r} and {run.name!r}, of different ones"
            todo = f"Pass another --output_dir; {_ALL_AGAIN}."
            raise RunError(f"Runs are compared on the same examples. Received: {received}. {todo}")


def has_trained(directory: pathlib.Path) -> bool:
    """Whether a run's directory holds what it was trained to: another start goes on with that, or takes it."""
    return (directory / output_dir.RESULTS).is_file() or any(directory.glob(f"{CHECKPOINTS}/step-*"))


def _takes_earlier(run: Config) -> bool:
    takes_earlier = run.output.resume == "auto" and not run.output.overwrite_output_dir
    return takes_earlier or is_restart(directory_of(run))


def _check_same(run: Config, contents: dict[str, int], *, is_done: bool) -> None:
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
        kind = "a finished" if is_done else "an unfinished"
        received = f"{str(directory_of(run))!r}, {kind} run with {', '.join(different)}"
        raise UsageError(f"{_COMPARED} Received: {received}. Pass the same, or another --output_dir; {_ALL_AGAIN}.")


def _check_read(run: Config, contents: dict[str, int]) -> None:
    """Ends the command where a run read another file than there was at the beginning: the next would be trained on it.

    Raises:
        RunError: naming the option.
    """
    if changed := other_contents(output_dir.read_run_config(directory_of(run)), contents):
        what = f"for which a file changed after the first run had begun: {', '.join(changed)}"
        received = f"{str(directory_of(run))!r}, {what}"
        raise RunError(f"{_COMPARED} Received: {received}. Leave the files as they are; {_ALL_AGAIN}.")


def _stop_if_asked(status: int, signals: Signals, config: Config, directory: pathlib.Path, *, has_more: bool) -> None:
    """Ends the command if a signal to it, or to the run alone, asked for that.

    Raises:
        Preempted, KeyboardInterrupt: as `train_all`.
    """
    if signals.received.count(signal.SIGINT) > 1 and status:
        raise KeyboardInterrupt
    if status in (PREEMPTED_STATUS, _INTERRUPTED) or (signals.received and (status or has_more)):
        raise Preempted(f"stopped; runs that are done are kept, and {how_to_resume(config, directory)}")


def _in_words(status: int) -> str:
    return f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"
