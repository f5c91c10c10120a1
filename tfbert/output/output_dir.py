"""The output directory: where it is, what may be written there; no file is ever half written."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any

from tfbert.config.run import Config
from tfbert.errors import RunError, UsageError
from tfbert.output.lock import LOCK

RUN_CONFIG, RESULTS, LOG = "run_config.json", "all_results.json", "log.jsonl"
EVAL_RESULTS, CARD, LAUNCH = "eval_results.json", "README.md", ".launched_at"
FACTS, REPORT, TRACKER_ID = "report.json", "report.html", ".tracker_id"
# In the order in which they are removed: a run that has lost checkpoints must not look as if it could resume.
# run_config.json, by which a run is recognised, is not among them: it is replaced.
_OWN = ("checkpoints", "profile", "tensorboard", "wandb", FACTS, REPORT, "callbacks.json")
_OWN += (LOG, CARD, "config.json", RESULTS, LAUNCH, TRACKER_ID)


_started_at = ""


@contextlib.contextmanager
def one_start_time() -> Iterator[str]:
    """In the block, `start_time` has one value: all within agree on the directory of a run that was given none."""
    global _started_at
    before, _started_at = _started_at, start_time()
    try:
        yield _started_at
    finally:
        _started_at = before


def start_time() -> str:
    """When a run started, as in names of directories. Call it once and keep the value, or within `one_start_time`.

    `tfbert.launch` gives all workers and restarts the time of its own start, in TFBERT_LAUNCHED_AT.
    """
    return _started_at or os.environ.get("TFBERT_LAUNCHED_AT") or f"{datetime.datetime.now():%Y%m%d-%H%M%S}"


def run_directory(config: Config, started_at: str) -> pathlib.Path:
    """The run's output directory; where none was asked for, one under `runs/` whose name ends in `started_at`."""
    if config.output.output_dir:
        return pathlib.Path(config.output.output_dir)
    words = (pathlib.Path(config.source).name.split(".")[0], pathlib.Path(config.model.name).name)
    name = "-".join(re.sub(r"[^\w.]+", "_", word) for word in words)
    name = name if config.mode == "train" else f"{config.mode}-{name}"
    return pathlib.Path("runs") / f"{name}-{started_at}"


def contents(directory: pathlib.Path) -> list[str]:
    """The sorted names of what a directory holds; empty where there is no directory."""
    return sorted(path.name for path in directory.iterdir() if path.name != LOCK) if directory.is_dir() else []


def clear(directory: pathlib.Path, *, but: str = "") -> None:
    """Removes an earlier run's own files from a directory, except the one by which it is recognised, and `but`."""
    for path in (directory / name for name in _OWN if name != but):
        is_own_directory = path.is_dir() and not path.is_symlink()
        shutil.rmtree(path) if is_own_directory else path.unlink(missing_ok=True)


def clear_results(directory: pathlib.Path) -> None:
    """Removes what reports a finished run from its directory; its model stays until the next one takes its place."""
    for name in (RESULTS, FACTS, REPORT, CARD):
        (directory / name).unlink(missing_ok=True)


def read_run_config(directory: pathlib.Path) -> dict[str, Any]:
    """The `run_config.json` of the run in a directory, whatever its mode and version; empty without a whole one."""
    try:
        return read_json(directory / RUN_CONFIG)
    except (OSError, ValueError):
        return {}


def check_writable(directory: pathlib.Path) -> None:
    """Refuses a directory that could not be made or written to; changes nothing.

    Raises:
        UsageError: for such a directory.
    """
    try:
        str(directory.absolute()).encode()
    except UnicodeEncodeError:  # TensorFlow takes no other names.
        rule = "output_dir, with the directories above it, must be UTF-8"
        raise UsageError(f"{rule}. Received: {os.fsencode(directory.absolute())!r}. Pass another.") from None
    if directory.exists() and not directory.is_dir():
        rule = "output_dir must be a directory"
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r}, a file. Pass another.")
    parent = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        rule = "output_dir must be writable"
        todo = "Pass another, or change its permissions."
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r}; {str(parent)!r} is not. {todo}")


def check_new_file(path: pathlib.Path, way_out: str) -> None:
    """Refuses a file that exists, or that cannot be written; changes nothing.

    Args:
        path: The file to write later.
        way_out: What the user can do if it exists.

    Raises:
        UsageError: for such a file.
    """
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        rule = "An output file needs a directory that can be written"
        todo = "Pass another, or change its permissions."
        raise UsageError(f"{rule}. Received: {str(path)!r}; {str(parent)!r} is not one. {todo}")
    if path.exists():
        raise UsageError(f"An output file must not exist yet. Received: {str(path)!r}. {way_out}.")


def make(directory: pathlib.Path) -> None:
    """Makes a directory.

    Raises:
        RunError: where it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = "Output must be writable"
        todo = "Free space there, or pass another directory."
        raise RunError(f"{rule}. Received: {str(directory)!r} ({error.strerror}). {todo}") from None


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        OSError, ValueError: where there is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(error) from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON so that a reader sees either the old file or the new one, whole."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text file so that a reader sees either the old file or the new one, whole.

    What UTF-8 cannot hold, as of a file's name in Latin-1, is written as Python would escape it.

    Raises:
        RunError: if it cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # Left by a kill, or a link, which must not be written through.
        with partial.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)  # Else a new directory is neither empty nor that of a run.
        rule = "Output must be writable"
        todo = "Check free space and permissions there."
        raise RunError(f"{rule}. Received: {str(path)!r} ({error.strerror}). {todo}") from None
