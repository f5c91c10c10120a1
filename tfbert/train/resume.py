"""Whether a run starts or resumes, and from where: decided once, under the lock, before anything is read or built.

The flag `--overwrite_output_dir` replaces a run, finished or not, unless an earlier start of the same launch wrote it:
a restart of that launch resumes, whatever the flags say of earlier runs. A launch is one call of `tfbert.launch`, or
one SLURM job, which starts again when it is requeued. All that a resumed run takes over from the earlier start is in
the checkpoint, under its checksum.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfbert.batches.schedule import Schedule, warmup_steps
from tfbert.config.counted import counted
from tfbert.config.run import CONTENTS, UNTIL_STEP, Config
from tfbert.devices.strategy import is_chief
from tfbert.devices.workers import Consensus, check_same
from tfbert.errors import RunError, UsageError, is_command
from tfbert.output import output_dir
from tfbert.output.output_dir import LAUNCH, locked, seal, unseal, write_text
from tfbert.report.run_files import changed_file
from tfbert.step.schedule import share_at_end
from tfbert.train.identity import BATCH_ORDER, EVALUATION, Identity, differences, different_in, settings
from tfbert.train.saved_state import MODEL, STATE, RunState, newest_intact, step_directory, weights_in

_done: set[pathlib.Path] = set()
"""Directories of runs that this process has finished: another run in one of them is no restart."""


def is_restart(directory: pathlib.Path) -> bool:
    """Whether an earlier start of this launch wrote the directory.

    Raises:
        UsageError: where this process belongs to a launch, and the directory's mark is damaged.
    """
    launched_at = os.environ.get("TFBERT_LAUNCHED_AT")
    job, restarts = _slurm_job()
    if (not launched_at and not job) or directory.absolute() in _done:
        return False
    path = directory / LAUNCH
    try:
        launch, start = _launch_in(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        rule = "A restart resumes where its launch stopped, so the file that names the launch must be whole"
        todo = "Remove it, and start with --resume=auto."
        raise UsageError(f"{rule}. Received: {str(path)!r}, which is damaged ({error}). {todo}") from None
    # Two commands of one start of a SLURM job are two runs.
    return launch == launched_at if launched_at else launch == job and start < restarts


def _mark(directory: pathlib.Path) -> None:
    """Records in a directory which launch, if any, writes to it."""
    launched_at = os.environ.get("TFBERT_LAUNCHED_AT")
    job, restarts = _slurm_job()
    if launched_at or job:
        write_text(directory / LAUNCH, seal({"launch": launched_at or job, "start": 0 if launched_at else restarts}))


def _slurm_job() -> tuple[str, int]:
    """The SLURM job's name in the mark, and how often it was requeued; an empty name outside SLURM."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return f"slurm-{job}" if job else "", int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def _launch_in(text: str) -> tuple[str, int]:
    """The launch that a mark names, and which start of it.

    Raises:
        ValueError: for any other text.
    """
    values = unseal(text)
    launch, start = values.get("launch"), values.get("start")
    if not isinstance(launch, str) or type(start) is not int:
        raise ValueError("not a launch")
    return launch, start


CHECKPOINTS = "checkpoints"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What an output directory holds. What takes long to read, or may be damaged, is read when it is first asked for.

    Attributes:
        directory: The output directory.
        names: The sorted names of its files and directories.
        run_config: Its `run_config.json`; empty without a whole one.
        is_finished: Whether it holds results.
        is_restart: Whether an earlier start of this launch wrote it.
    """

    directory: pathlib.Path
    names: list[str]
    run_config: dict[str, Any]
    is_finished: bool
    is_restart: bool

    @property
    def holds_run(self) -> bool:
        """Whether it is that of a training run, by any version."""
        return self.run_config.get("mode") == "train"

    @functools.cached_property
    def checkpoint(self) -> RunState | None:
        """The state of the newest intact checkpoint; of a finished run, None where its checkpoints are mere models."""
        checkpoints = self.directory / CHECKPOINTS
        if self.is_finished and not any(checkpoints.glob(f"step-*/{STATE}")):
            return None
        return newest_intact(checkpoints)

    @property
    def _facts(self) -> dict[str, Any]:
        try:
            return output_dir.read_json(self.directory / output_dir.FACTS)
        except (OSError, ValueError):
            return {}  # Without its report a run is as finished.

    @functools.cached_property
    def results(self) -> dict[str, Any]:
        """The results of a finished run.

        Raises:
            UsageError: if they are not whole.
        """
        path = self.directory / output_dir.RESULTS
        try:
            results = output_dir.read_json(path)
            if changed_file(self.directory, self._facts, results) == output_dir.RESULTS:
                raise ValueError("changed after the run had written it")
            return results
        except (OSError, ValueError) as error:
            rule = "A finished run's results must be whole"
            raise UsageError(f"{rule}. Received: {str(path)!r} ({error}). Remove the file.") from None


def inspect(directory: pathlib.Path) -> Found:
    """Finds out what a directory holds; changes nothing.

    Raises:
        UsageError: where this process belongs to a launch, and the directory's mark is damaged.
    """
    return Found(
        directory=directory,
        names=output_dir.contents(directory),
        run_config=output_dir.read_run_config(directory),
        is_finished=(directory / output_dir.RESULTS).exists(),
        is_restart=is_restart(directory),
    )


_SAME_SETTINGS = "Pass the same settings"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """How a run starts.

    Attributes:
        directory: Its output directory.
        asked: The run as its configuration asks for it.
        config: The same with what the earlier start found for `auto`.
        resumed: The state of the checkpoint that it resumes from; None for a run that starts at its beginning.
        earlier: The run's identity in that checkpoint; None without one.
        finished: The run's results, if an earlier start of the same launch finished it; else None.
        notes: Lines to log.
    """

    directory: pathlib.Path
    asked: Config
    config: Config
    resumed: RunState | None = None
    earlier: Identity | None = None
    finished: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def checkpoints(self) -> pathlib.Path:
        """Where the run's checkpoints are."""
        return self.directory / CHECKPOINTS

    @property
    def checkpoint(self) -> pathlib.Path | None:
        """The directory of the checkpoint that the run resumes from."""
        return step_directory(self.checkpoints, self.resumed.step) if self.resumed else None


@contextlib.contextmanager
def open_directory(
    directory: pathlib.Path, config: Config, strategy: tf.distribute.Strategy, consensus: Consensus
) -> Iterator[Start]:
    """Locks the run's output directory for as long as the block lasts, and finds out how the run starts.

    Only the chief locks, and the other workers wait for it. A directory that was made for a run which then wrote
    nothing is removed again.

    Args:
        directory: The run's output directory.
        config: The run, its defaults resolved.
        strategy: Each of its workers must call this function.
        consensus: Between these workers.

    Raises:
        UsageError: for a directory that the run cannot use, on all workers alike.
        RunError: for one that another process is writing to, or in which workers see different files.
    """
    with contextlib.ExitStack() as stack:
        with _together(consensus):
            if is_chief(strategy):
                output_dir.check_writable(directory)
                stack.enter_context(locked(directory))
        with _together(consensus):
            start = decide(inspect(directory), config, num_replicas=strategy.num_replicas_in_sync)
        check_same(
            lambda: {
                "checkpoint": f"step {start.resumed.step}" if start.resumed else "none",
                "gradient_accumulation_steps": start.config.training.gradient_accumulation_steps,
                "is_finished": start.finished is not None,
            },
            strategy,
            rule="All workers must see the same checkpoints",
            way_out="Put --output_dir on a file system that all workers share",
            error=RunError,
        )
        yield start
        _done.add(directory.absolute())


def decide(found: Found, config: Config, *, num_replicas: int = 1) -> Start:
    """How a run starts in a directory.

    Args:
        found: What the directory holds, locked.
        config: The run, its defaults resolved.
        num_replicas: Replicas of all workers together.

    Raises:
        UsageError: for a directory that the run cannot use.
    """
    directory, launched_here = found.directory, found.is_restart
    start = Start(directory=directory, asked=config, config=config)
    if not found.names:
        return start
    if found.is_finished and launched_here:
        _check_own_directory(found, config)
        return dataclasses.replace(start, finished=found.results)
    _check_apart(directory, config)
    if config.output.overwrite_output_dir and not launched_here:
        _check_replaceable(found)
        return start
    if found.is_finished:
        return _further(found, start, num_replicas)
    if config.output.resume == "never" and not launched_here:
        raise _refusal(found, "an unfinished run" if found.holds_run else repr(found.names[0]))
    if found.checkpoint:
        return _resumed(dataclasses.replace(start, resumed=found.checkpoint), num_replicas)
    if not found.holds_run:
        raise _refusal(found, f"{found.names[0]!r} and no run")
    if not launched_here and (different := different_in(found.run_config, config)):
        raise _refusal(found, f"an unfinished run of another configuration, with {', '.join(different)}")
    note = f"{directory} holds an unfinished run without a checkpoint to resume from: it starts at the beginning"
    return dataclasses.replace(start, notes=(note,))


def _further(found: Found, start: Start, num_replicas: int) -> Start:
    """The start of a run that goes further than it did when it finished.

    Raises:
        UsageError: for a run that is not asked to, or cannot.
    """
    config, way_out = start.asked, f", or --model={found.directory} to start a new run from its weights"
    earlier = Identity.of(found.checkpoint) if found.checkpoint else None
    longer = earlier.changed(config, "longer") if earlier else different_in(found.run_config, config, ("longer",))
    if config.output.resume == "never" or not longer:
        raise _refusal(found, "a finished run", way_out)
    if earlier is None:
        what = "a finished run without the state of its training, which --keep_optimizer keeps"
        raise _refusal(found, what, way_out)
    if found.checkpoint.step < earlier.choices.get("total_steps", 0):
        what = f"a run that stopped early, at update {found.checkpoint.step}, and would stop there again"
        raise _refusal(found, what, way_out)
    return _resumed(dataclasses.replace(start, resumed=found.checkpoint), num_replicas)


def keep_warm_up(start: Start, schedule: Schedule) -> Schedule:
    """The schedule with the warm-up that the run began with: `warmup_ratio` of a longer run would be more."""
    begun = start.earlier.choices.get("warmup_steps") if start.earlier else None
    return schedule if begun is None else dataclasses.replace(schedule, warmup_steps=begun)


def check_same_run(start: Start, facts: dict[str, Any], total_steps: int) -> tuple[RunState, list[str]]:
    """Checks what is known only once data and model are built, and that the run has not become shorter.

    Args:
        start: Of a resumed run.
        facts: Those of model, data and precision now; see `facts_of`.
        total_steps: Updates of the whole run now.

    Returns:
        The state to resume from, without the best evaluation if that was made on other examples; and lines to log.

    Raises:
        UsageError: naming what differs.
    """
    state, earlier, training = start.resumed, start.earlier, start.config.training
    comparable = {name: value for name, value in facts.items() if name != EVALUATION}
    if different := differences(earlier.facts, comparable):
        is_older = differences({BATCH_ORDER: earlier.facts[BATCH_ORDER]}, comparable) == different
        way_out = "Finish it with the version of tfbert that began it" if is_older else _SAME_SETTINGS
        rule = "A run resumes only with the same model, data, order of batches and precision"
        raise _other_run(start, different, rule, way_out)
    planned = earlier.choices.get("total_steps", total_steps)
    if total_steps < planned or total_steps <= state.step:
        lengths = settings(start.asked, "longer")
        different = [f"{planned} updates planned before and {total_steps} now", *differences(earlier.settings, lengths)]
        rule = f"A run at update {state.step} needs one to make, and to be at least as long as planned"
        raise _other_run(start, different, rule)
    lines = [f"resuming at step {state.step} of {total_steps} from {start.checkpoint}"]
    if total_steps > planned:
        end = share_at_end(training.lr_schedule, training.lr_power)
        rate = f": the learning rate falls to {end * training.learning_rate:g} at the new end" if end < 1 else ""
        lines.append(f"a longer run than before, {total_steps} updates in place of {planned}{rate}")
        if start.config.data.batching == "packed":  # Rows are packed for all updates of a run, so here for more.
            lines.append("rows are packed anew for the whole length: dropout may draw other noise from here on")
        begun = earlier.choices.get("warmup_steps", 0)
        if begun != warmup_steps(training, total_steps):
            lines.append(f"the warm-up stays as it was, {counted(begun, 'update')}")
    if split := earlier.changed(start.asked, "split"):
        now = settings(start.asked, "split")
        what = ", ".join(f"{name}={now[name]!r} in place of {value!r}" for name, value in split.items())
        # Dropout noise depends on a token's place in its padded row, or in its packed row.
        other_noise = start.config.data.batching == "packed" or split.keys() & {"xla", "max_compiled_shapes"}
        updates = "with other dropout noise" if other_noise else "with the same updates but for rounding"
        lines.append(f"computed differently from before, {updates}: {what}")
    if state.best and earlier.facts.get(EVALUATION, facts[EVALUATION]) != facts[EVALUATION]:
        # Earlier metrics cannot be compared with those to come.
        lines.append("the examples to evaluate on are not those of before: the best evaluation so far is forgotten")
        state = dataclasses.replace(state, best={}, best_step=0, without_better=0)
    return state, lines


def identify(start: Start, config: Config, facts: dict[str, Any], schedule: Schedule, num_replicas: int) -> Identity:
    """The run's identity, for its checkpoints.

    Args:
        start: How it starts.
        config: Complete: nothing is left to be decided.
        facts: Those of model, data and precision.
        schedule: The whole run's.
        num_replicas: Replicas of all workers together.
    """
    asked, until_step, earlier = settings(start.asked, "same", "longer", "content", "split"), {}, start.earlier
    if earlier:
        changed = earlier.changed(start.asked, "longer", "content", "split")
        until_step = earlier.until_step | ({str(start.resumed.step): changed} if changed else {})
        # Whoever repeats run_config.json asks for the number that `auto` came to: both ways must resume.
        asked |= {name: value for name, value in earlier.settings.items() if name in asked and name not in changed}
    return Identity(
        settings=asked,
        choices={
            "gradient_accumulation_steps": config.training.gradient_accumulation_steps,
            "num_replicas": num_replicas,
            "warmup_steps": schedule.warmup_steps,
            "total_steps": schedule.total_steps,
        },
        facts=facts,
        until_step=until_step,
    )


def write_start(directory: pathlib.Path, config: Config, identity: Identity, *, is_resumed: bool) -> None:
    """Removes an earlier run's files from the directory unless this run resumes it, and writes `run_config.json`.

    Args:
        directory: The output directory.
        config: The run.
        identity: Its identity.
        is_resumed: Whether it resumes what is there.

    Raises:
        UsageError: for a directory that cannot be written.
        RunError: for a full disk.
    """
    try:
        if not is_resumed:
            is_new = config.output.overwrite_output_dir and not is_restart(directory)
            output_dir.clear(directory, but="" if is_new else output_dir.TRACKER_ID)  # An unfinished run begins again.
        noted = {UNTIL_STEP: identity.until_step, CONTENTS: identity.contents}
        values = json.loads(config.to_json()) | {name: value for name, value in noted.items() if value}
        output_dir.write_json(directory / output_dir.RUN_CONFIG, values)
        output_dir.clear_results(directory)  # Of a run that goes further.
        _mark(directory)
    except OSError as error:
        rule = "output_dir must be writable"
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r} ({error.strerror}). Pass another.") from None


def how_to_resume(config: Config, directory: pathlib.Path) -> str:
    """How to resume a run that was stopped."""
    if config.output.output_dir and config.output.resume == "auto" and not config.output.overwrite_output_dir:
        return f"the same {'command' if is_command() else 'call'} resumes in {directory}"
    return f"--output_dir={directory} resumes the run, with --resume=auto and without --overwrite_output_dir"


def _resumed(start: Start, num_replicas: int) -> Start:
    """The start of a resumed run, with its identity from the checkpoint.

    Raises:
        UsageError: for settings other than those that it began with.
    """
    earlier = Identity.of(start.resumed)
    if different := differences(earlier.settings, settings(start.asked, "same"), earlier.choices):
        raise _other_run(start, different, "A run resumes with the settings that it began with")
    config, found = start.asked, earlier.choices.get("gradient_accumulation_steps")
    # With the same number of replicas, a resumed run keeps the micro-batches that it began with.
    if config.training.is_auto and found and earlier.choices.get("num_replicas", num_replicas) == num_replicas:
        config = config.accumulating(found)
    return dataclasses.replace(start, config=config, earlier=earlier)


@contextlib.contextmanager
def _together(consensus: Consensus) -> Iterator[None]:
    """Ends all workers if one of them cannot continue; every worker must enter this block.

    Raises:
        UsageError, RunError: the worker's own error, or one that says where to find the cause.
    """
    own = None
    try:
        yield
    except (UsageError, RunError) as error:
        own = error
    kinds = (UsageError, RunError)
    seen = [consensus.any(isinstance(own, kind)) for kind in kinds]  # A list: every worker answers every question.
    if own is not None:
        raise own
    if any(seen):
        kind = kinds[seen.index(True)]
        raise kind("All workers must be able to start. Received: one that is not. See its output for the cause.")


def _other_run(start: Start, different: list[str], rule: str, way_out: str = _SAME_SETTINGS) -> UsageError:
    """The refusal of a run that is not the one whose checkpoint is there."""
    from_these = f": with --model={start.checkpoint} a new run starts from these weights"
    if weights_in(start.checkpoint).name != MODEL:
        from_these = ""
    return UsageError(
        f"{rule}. Received: output_dir={str(start.directory)!r} with {', '.join(different)}. "
        f"{way_out}, or pass another --output_dir{from_these}; --overwrite_output_dir starts over."
    )


def _check_apart(directory: pathlib.Path, config: Config) -> None:
    """Refuses a directory that is the model's, or above it: the run would replace files that it reads."""
    name = config.model.model_name_or_path
    model = pathlib.Path(name).expanduser()
    if config.model.is_scratch or not model.exists():
        return
    if directory.resolve() in (model.resolve(), *model.resolve().parents):
        rule = "output_dir must not hold the model that is fine-tuned"
        todo = "Pass another --output_dir."
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r} with model_name_or_path={name!r}. {todo}")


def _check_own_directory(found: Found, config: Config) -> None:
    """Refuses a directory in which another run of the same launch has finished."""
    if different := different_in(found.run_config, config):
        raise UsageError(
            "Each run of a launch needs an output_dir of its own. "
            f"Received: output_dir={str(found.directory)!r}, in which this launch has finished a run with "
            f"{', '.join(different)}. Pass another."
        )


def _check_replaceable(found: Found) -> None:
    """Refuses to overwrite files that no training run wrote."""
    if not found.holds_run:
        raise UsageError(
            "overwrite_output_dir replaces an earlier training run, and nothing else. "
            f"Received: output_dir={str(found.directory)!r}, which holds {found.names[0]!r} but no run's "
            f"{output_dir.RUN_CONFIG}. "
            "Pass another."
        )


def _refusal(found: Found, what: str, way_out: str = "") -> UsageError:
    replace = ", or --overwrite_output_dir to replace an earlier run" if found.holds_run else ""
    rule = "output_dir must be new or empty"
    todo = f"Pass another{replace}{way_out}."
    return UsageError(f"{rule}. Received: output_dir={str(found.directory)!r}, which holds {what}. {todo}")
