"""Several runs, one after the other, each as the ordinary command in a process of its own: what seeds and sweeps share.

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
from tfbert.config.run import Config
from tfbert.corpus.record_files import as_records_are
from tfbert.devices.cluster import PREEMPTED_STATUS, USAGE_STATUS, current_cluster
from tfbert.devices.start import inform_on_chief_alone
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.launch.worker_group import Signals
from tfbert.modes.child import signals_collected
from tfbert.output import output_dir
from tfbert.report.run_files import RunFiles
from tfbert.tasks.detect import detect_task
from tfbert.train import launch_mark
from tfbert.train.found import CHECKPOINTS
from tfbert.train.identity import contents_of, different_in, other_contents
from tfbert.train.resume import how_to_resume

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """What became of the runs.

    Attributes:
        done: Those that have results, by name, in order.
        failed: Why the others have none, by name.
    """

    done: dict[str, Config]
    failed: dict[str, str]


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
) -> Trained:
    """Trains runs, one after the other; those that are done are not trained again, those interrupted resume.

    Args:
        config: What was asked for.
        directory: Where the runs are.
        runs: By name, as messages call them.
        kind: What they are.
        start: Runs a command to its end, with added environment variables, and passes signals on to it; returns its
            exit status, negative for a signal that killed it.

    Raises:
        UsageError: for a directory that holds something else, a run that is done with other settings, and where one, or
            every one, was refused.
        Preempted: if asked to stop.
        KeyboardInterrupt: if asked a second time by SIGINT.
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
    return Trained(done={name: run for name, run in runs.items() if name in done}, failed=failed)


def check_all_trained(trained: Trained, config: Config, directory: pathlib.Path, kind: Kind, total: int) -> None:
    """Ends the command with an error where a run failed.

    Raises:
        RunError: naming those that did.
    """
    if trained.failed:
        which = ", ".join(f"{name} ({reason})" for name, reason in trained.failed.items())
        failed = f"{len(trained.failed)} of {total} {kind.one}s that failed, {which}"
        raise RunError(
            f"Every {kind.one} must train. Received: {failed}. "
            f"See the messages above; {how_to_resume(config, directory)}."
        )


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
