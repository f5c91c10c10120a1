"""What a checkpoint says about itself, and the newest one that can be trusted. Imports no TensorFlow.

`state.json` is sealed, and holds size and CRC-32 of every other file of the checkpoint and of the best weights that it
refers to: any later change shows, and the run resumes from an earlier checkpoint instead.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import pathlib
import re
import zlib
from typing import Any, NamedTuple

from tfbert.errors import UsageError
from tfbert.output.output_dir import unseal

log = logging.getLogger("tfbert")

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
ADAPTER = "adapter_model.safetensors"
"""In the place of `MODEL`, of a run with LoRA: what it trains."""
FORMAT = 4
"""Of `state.json`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunState:
    """What a run knows besides variables.

    Attributes:
        step: Updates made.
        best: Metrics of the best evaluation; empty before the first.
        best_step: The step of that evaluation.
        without_better: Evaluations since the last one that was better than all before it.
        identity: The run's identity, see `resume.identify`.
        logged: What the counters of the model were when the loss was last logged; empty if that is not known.
    """

    step: int
    best: dict[str, float] = dataclasses.field(default_factory=dict)
    best_step: int = 0
    without_better: int = 0
    identity: dict[str, Any]
    logged: dict[str, float] = dataclasses.field(default_factory=dict)


def newest_intact(directory: pathlib.Path) -> RunState | None:
    """The state of the newest checkpoint whose files are all whole; warns about each one that it passes over.

    If no checkpoint has whole best weights, the newest is taken without them: the best evaluation is forgotten then.

    Args:
        directory: `output_dir/checkpoints`; need not exist.

    Raises:
        UsageError: for a checkpoint that another version wrote.
    """
    without_best = None
    for path in reversed(numbered(directory, "step")):
        try:
            saved = read_state(path)
            for name, expected in saved.files.items():
                if fingerprint(path / name) != expected:
                    raise ValueError(f"{name} is damaged")
        except (OSError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            log.warning("checkpoint %s is not whole (%s); looking for an earlier one", path, error)
            continue
        if not (damage := _damage_of_best(directory, saved)):
            return saved.state
        log.warning("checkpoint %s is not whole (%s); looking for an earlier one", path, damage)
        without_best = without_best or dataclasses.replace(saved.state, best={}, best_step=0, without_better=0)
    if without_best:
        log.warning("resuming from step %d; the best evaluation so far is forgotten", without_best.step)
    return without_best


def step_directory(directory: pathlib.Path, step: int) -> pathlib.Path:
    """Where the checkpoint of an update is."""
    return directory / f"step-{step:08}"


class SavedState(NamedTuple):
    """What `state.json` holds."""

    state: RunState
    files: dict[str, dict[str, int]]
    best_file: dict[str, int] | None


def read_state(path: pathlib.Path) -> SavedState:
    """Reads a checkpoint's `state.json`, and nothing else of it.

    Raises:
        OSError: where it cannot be read.
        ValueError: for anything that `Checkpoints.save` did not write there.
        UsageError: for what another version wrote.
    """
    content = unseal((path / STATE).read_text(encoding="utf-8"))
    version = content.pop("format", None)
    if _is_count(version) and version > FORMAT:
        raise UsageError(
            f"A checkpoint must be of this version of tfbert, or an earlier one. Received: {path} of format {version}. "
            "Resume with the version that wrote it."
        )
    if _is_count(version) and 0 < version < FORMAT:
        raise UsageError(
            "A run is finished by the version that began it, whose numbers and optimizer are its own. "
            f"Received: {path} of format {version}. Finish it with tfbert 1.0.0 as released (up to commit 8446d3e), "
            "or pass --overwrite_output_dir."
        )
    if version != FORMAT:
        raise ValueError(f"{STATE} of format {version!r}")
    fields = {field.name for field in dataclasses.fields(RunState)}
    if content.keys() != fields | {"files", "best_file"}:
        raise ValueError(f"{STATE} has missing or unknown fields")
    state = RunState(**{name: content[name] for name in fields})
    files, best_file = content["files"], content["best_file"]
    if not (_is_sound(state) and isinstance(files, dict) and all(map(_is_fingerprint, files.values()))):
        raise ValueError(f"{STATE} holds values that no run has")
    is_whole = OPTIMIZER in files and (MODEL in files or ADAPTER in files)
    if any(pathlib.PurePath(name).name != name for name in files) or not is_whole:
        raise ValueError(f"{STATE} does not name the files of a checkpoint")
    if (best_file is not None or state.best) and not _is_fingerprint(best_file):
        raise ValueError(f"{STATE} does not describe the best weights")
    if path.name != step_directory(path.parent, state.step).name:
        raise ValueError(f"it holds step {state.step}")
    return SavedState(state, files, best_file)


def _is_sound(state: RunState) -> bool:
    """Whether its values are of the kinds that a run has."""
    return (
        all(map(_is_count, (state.step, state.best_step, state.without_better)))
        and state.step > 0
        and state.best_step <= state.step
        and isinstance(state.best, dict)
        and all(type(value) in (int, float) and abs(value) < math.inf for value in state.best.values())
        and isinstance(state.identity, dict)
        and isinstance(state.logged, dict)
        and all(type(value) in (int, float) and abs(value) < math.inf for value in state.logged.values())
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_fingerprint(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"bytes", "crc32"} and all(map(_is_count, value.values()))


def _damage_of_best(directory: pathlib.Path, saved: SavedState) -> str:
    """What is wrong with the best weights that a checkpoint refers to; empty if nothing is."""
    if not saved.state.best:
        return ""
    best = best_weights(directory, saved.state.best_step)
    try:
        found = fingerprint(best)
    except OSError as error:
        return str(error)
    return "" if saved.best_file == found else f"{best.parent.name}/{best.name} is damaged"


def best_weights(directory: pathlib.Path, step: int) -> pathlib.Path:
    """Where the weights of the best evaluation are, if that came after update `step`."""
    return weights_in(directory / f"best-{step:08}")


def weights_in(directory: pathlib.Path) -> pathlib.Path:
    """The file of a checkpoint's weights."""
    return directory / (ADAPTER if (directory / ADAPTER).is_file() else MODEL)


def fingerprint(path: pathlib.Path) -> dict[str, int]:
    """A file's size and CRC-32."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return {"bytes": path.stat().st_size, "crc32": value}


def numbered(directory: pathlib.Path, kind: str) -> list[pathlib.Path]:
    """`kind-N` directories, by N."""
    return sorted((p for p in directory.glob(f"{kind}-*") if re.fullmatch(r"\w+-[0-9]{8,}", p.name)), key=number_of)


def number_of(path: pathlib.Path) -> int:
    """N of `kind-N`."""
    return int(path.name.rpartition("-")[2])
