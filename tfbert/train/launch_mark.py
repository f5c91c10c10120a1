"""Which launch wrote an output directory: a restart of that launch resumes, whatever the flags say of earlier runs.

A launch is one call of `tfbert.launch`, or one SLURM job, which starts again when it is requeued.
"""

from __future__ import annotations

import os
import pathlib

from tfbert.errors import UsageError
from tfbert.output.output_dir import LAUNCH, write_text
from tfbert.output.sealed import seal, unseal

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
        launch, start = _read(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise UsageError(
            "A restart resumes where its launch stopped, so the file that names the launch must be whole. "
            f"Received: {str(path)!r}, which is damaged ({error}). Remove it, and start with --resume=auto."
        ) from None
    # Two commands of one start of a SLURM job are two runs.
    return launch == launched_at if launched_at else launch == job and start < restarts


def done(directory: pathlib.Path) -> None:
    """Notes on each worker that its process has finished the run in a directory."""
    _done.add(directory.absolute())


def mark(directory: pathlib.Path) -> None:
    """Records in a directory which launch, if any, writes to it."""
    launched_at = os.environ.get("TFBERT_LAUNCHED_AT")
    job, restarts = _slurm_job()
    if launched_at or job:
        write_text(directory / LAUNCH, seal({"launch": launched_at or job, "start": 0 if launched_at else restarts}))


def _slurm_job() -> tuple[str, int]:
    """The SLURM job's name in the mark, and how often it was requeued; an empty name outside SLURM."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return f"slurm-{job}" if job else "", int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def _read(text: str) -> tuple[str, int]:
    """The launch that a mark names, and which start of it.

    Raises:
        ValueError: for any other text.
    """
    values = unseal(text)
    launch, start = values.get("launch"), values.get("start")
    if not isinstance(launch, str) or type(start) is not int:
        raise ValueError("not a launch")
    return launch, start
