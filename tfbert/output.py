"""The output directory: what may be written where, and never half of it."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any, TextIO

from tfbert.config import Config
from tfbert.errors import RunError, UsageError

RUN_CONFIG, RESULTS, LOG = "run_config.json", "all_results.json", "log.jsonl"
EVAL_RESULTS, CARD = "eval_results.json", "README.md"
_LAUNCH, _LOCK = ".launched_at", ".lock"
# In the order in which they are removed: a run that has lost checkpoints must not look as if it could go on.
# run_config.json, by which a run is known, is not among them: it is replaced.
_OWN = ("checkpoints", "profile", "tensorboard", "report.json", "report.html")
_OWN += (LOG, CARD, "config.json", RESULTS, _LAUNCH)

_locks: dict[pathlib.Path, TextIO] = {}
"""The directories that this process is writing runs to."""


def is_of_this_launch(directory: pathlib.Path) -> bool:
    """Whether an earlier start of this launch wrote what is there: a restart goes on in any case.

    A launch is one of `tfbert.launch`, or a SLURM job, which is started again when it was requeued.
    """
    try:
        left = (directory / _LAUNCH).read_text(encoding="utf-8")
    except OSError:
        return False
    launched_at = os.environ.get("TFBERT_LAUNCHED_AT")
    if launched_at:
        return left == launched_at
    job, restarts = _slurm_job()
    # Two commands of one start of a job are two runs.
    return bool(job) and left.startswith(f"{job} ") and int(left.split()[1]) < restarts


def _slurm_job() -> tuple[str, int]:
    """Its name for `_LAUNCH` and how often it was requeued; an empty name outside SLURM."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return f"slurm-{job}" if job else "", int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def way_on(config: Config, directory: pathlib.Path) -> str:
    """How a run that was stopped goes on."""
    if config.output.output_dir and looks_for_earlier(config):
        return f"the same command goes on in {directory}"
    return f"--output_dir={directory} goes on, with --resume=auto and without --overwrite_output_dir"


def looks_for_earlier(config: Config) -> bool:
    """Whether the run is to look for what an earlier start left."""
    return config.output.resume == "auto" and not config.output.overwrite_output_dir


def choose(config: Config) -> pathlib.Path:
    """The run's output directory; a new one under `runs/` where none was asked for.

    Its name holds the time of the start; `tfbert.launch` gives all workers and restarts the same in TFBERT_LAUNCHED_AT.
    """
    if config.output.output_dir:
        return pathlib.Path(config.output.output_dir)
    words = (pathlib.Path(config.data.source).name.split(".")[0], pathlib.Path(config.model.model_name_or_path).name)
    name = "-".join(re.sub(r"[^\w.]+", "_", word) for word in words)
    name = name if config.mode == "train" else f"{config.mode}-{name}"
    now = os.environ.get("TFBERT_LAUNCHED_AT") or f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return pathlib.Path("runs") / f"{name}-{now}"


def as_begun(config: Config, directory: pathlib.Path) -> Config:
    """The run with what an earlier, unfinished start of it in `directory` found for `auto`; else unchanged.

    So a run goes on with the micro-batches, and thus the dropout noise, that it began with.
    """
    is_wanted = looks_for_earlier(config) or is_of_this_launch(directory)
    if not (config.training.is_auto and is_wanted) or (directory / RESULTS).exists():
        return config
    try:
        begun = Config.from_json((directory / RUN_CONFIG).read_text(encoding="utf-8"))
    except (OSError, UsageError, UnicodeDecodeError):
        return config
    return config.accumulating(begun.training.gradient_accumulation_steps)


def check(directory: pathlib.Path, config: Config, *, can_resume: bool) -> None:
    """Refuses a directory that a run cannot have, before any time is spent; changes nothing.

    Args:
        directory: The output directory.
        config: The run, its defaults resolved.
        can_resume: Whether a checkpoint was found there.

    Raises:
        UsageError: for one that is not empty, is no directory, cannot be written or holds the model to be fine-tuned.
    """
    check_writable(directory)
    if not directory.is_dir() or not any(path.name != _LOCK for path in directory.iterdir()):
        return
    _check_apart(directory, config)
    if config.output.overwrite_output_dir:
        _check_replaceable(directory)
        return
    is_unfinished = not (directory / RESULTS).exists()
    may_go_on = config.output.resume == "auto" or is_of_this_launch(directory)
    if may_go_on and is_unfinished and (can_resume or _is_same_run(directory, config)):
        return
    what = "an unfinished run of another configuration or other files" if is_unfinished else "a finished run"
    raise UsageError(
        f"output_dir must be new or empty. Received: output_dir={str(directory)!r}, which holds {what}. "
        "Pass another, or --overwrite_output_dir to replace an earlier run."
    )


def _check_apart(directory: pathlib.Path, config: Config) -> None:
    """Refuses a directory that is the model's, or above it: its files are read until they would be replaced."""
    name = config.model.model_name_or_path
    model = pathlib.Path(name).expanduser()
    if config.model.is_scratch or not model.is_dir():
        return
    if directory.resolve() in (model.resolve(), *model.resolve().parents):
        raise UsageError(
            "output_dir must not hold the model that is fine-tuned. "
            f"Received: output_dir={str(directory)!r} with model_name_or_path={name!r}. Pass another --output_dir."
        )


def _check_replaceable(directory: pathlib.Path) -> None:
    """Refuses to overwrite what no training run left there; an empty directory will do."""
    present = sorted(path.name for path in directory.iterdir() if path.name != _LOCK)
    if present and not holds_run(directory):
        raise UsageError(
            "overwrite_output_dir replaces an earlier training run, and nothing else. "
            f"Received: output_dir={str(directory)!r}, which holds {present[0]!r} and no run's {RUN_CONFIG}. "
            "Pass another."
        )


def holds_run(directory: pathlib.Path, mode: str = "train") -> bool:
    """Whether a training run, or a benchmark, of whatever version has the directory."""
    try:
        values = json.loads((directory / RUN_CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get("mode") == mode


def check_writable(directory: pathlib.Path) -> None:
    """Refuses a directory that could not be made or written to; changes nothing.

    Raises:
        UsageError: where that is so.
    """
    if directory.exists() and not directory.is_dir():
        raise UsageError(
            f"output_dir must be a directory. Received: output_dir={str(directory)!r}, a file. Pass another."
        )
    parent = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"output_dir must be writable. Received: output_dir={str(directory)!r}; {str(parent)!r} is not. "
            "Pass another, or change its permissions."
        )


def check_new_file(path: pathlib.Path, way_out: str) -> None:
    """Refuses to write over a file, or where none can be written; changes nothing.

    Args:
        path: The file to be.
        way_out: What the user can do if it exists.

    Raises:
        UsageError: where that is so.
    """
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"An output file needs a directory that can be written. Received: {str(path)!r}; {str(parent)!r} is none. "
            "Pass another, or change its permissions."
        )
    if path.exists():
        raise UsageError(f"An output file must not exist yet. Received: {str(path)!r}. {way_out}.")


def _is_same_run(directory: pathlib.Path, config: Config) -> bool:
    """Whether an earlier start of the same run, which came to no checkpoint, left its files there."""
    try:
        return (directory / RUN_CONFIG).read_text(encoding="utf-8") == config.to_json()
    except OSError:
        return False


def prepare(directory: pathlib.Path, config: Config, *, is_resumed: bool) -> None:
    """Makes the directory, takes an earlier run's files out of it unless resumed, and writes `run_config.json`.

    Raises:
        UsageError: for a directory that cannot be written, or that holds something else than a run by now.
        RunError: for one that another process is writing a run to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not is_resumed:
            _check_replaceable(directory)
        _lock(directory)
        # Another run may have ended here since it was looked at, while the model was loaded.
        check(directory, config, can_resume=is_resumed)
        for name in () if is_resumed else _OWN:
            path = directory / name
            is_own_directory = path.is_dir() and not path.is_symlink()
            shutil.rmtree(path) if is_own_directory else path.unlink(missing_ok=True)
        write_text(directory / RUN_CONFIG, config.to_json())
        job, restarts = _slurm_job()
        if launch := os.environ.get("TFBERT_LAUNCHED_AT") or (job and f"{job} {restarts}"):
            write_text(directory / _LAUNCH, launch)
    except OSError as error:
        raise UsageError(
            f"output_dir must be writable. Received: output_dir={str(directory)!r} ({error.strerror}). Pass another."
        ) from None


def _lock(directory: pathlib.Path) -> None:
    """Keeps other processes out of the directory until `release`, or this process's end, however it ends."""
    path = directory.resolve() / _LOCK
    if path in _locks:
        return
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return  # A file system without locks.
        # Not waited for: once the other run ends, all that was found out before it did is out of date.
        raise RunError(
            f"A run needs an output directory of its own. Received: output_dir={str(directory)!r}, to which another "
            "process is writing. Pass another, or wait for it; several workers need --strategy=multi_worker."
        ) from None
    _locks[path] = file


def release(directory: pathlib.Path) -> None:
    """Lets other processes write runs to a directory that `prepare` was called for; else does nothing."""
    if file := _locks.pop(directory.resolve() / _LOCK, None):
        file.close()


def finished_before_restart(config: Config, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The results of a run that was done before its workers were started again; None for any other."""
    directory = choose(config)
    if not is_of_this_launch(directory) or not (directory / RESULTS).exists():
        return None
    say(f"{directory} holds this run, finished before the restart")
    return json.loads((directory / RESULTS).read_text(encoding="utf-8"))


def make(directory: pathlib.Path) -> None:
    """Makes a directory.

    Raises:
        RunError: where it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"Output must be writable. Received: {str(directory)!r} ({error.strerror}).") from None


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON so that a reader sees the old file or the new one, whole."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text file likewise.

    Raises:
        RunError: if it cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)  # Else a new directory is neither empty nor a run's.
        raise RunError(
            f"Output must be writable. Received: {str(path)!r} ({error.strerror}). Free space there."
        ) from None
