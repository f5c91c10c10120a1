"""What a checkpoint holds; writing it so that it is there whole or not at all; the newest one that is sound.

A checkpoint is a directory `checkpoints/step-N`:

| file | what |
| --- | --- |
| `model.safetensors`, `config.json`, tokenizer files | the model, as `from_pretrained` loads it |
| `optimizer.safetensors` | AdamW's moments, the update count, the loss scale, the step counters |
| `state.json` | evaluation's state, what the run was, and size and CRC-32 of each file, `best-N`'s too |

Data order and dropout are functions of the update count, so nothing of theirs is saved. The weights of the best
evaluation stand apart in `checkpoints/best-N`, kept for as long as a checkpoint or the run refers to them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
import re
import shutil
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from tfbert.errors import RunError, UsageError
from tfbert.finetuner import FineTuner
from tfbert.weights import read_weights, set_weights_dict, write_weights

log = logging.getLogger("tfbert")

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_FORMAT = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunState:
    """What a run knows besides variables.

    Attributes:
        step: Updates made.
        best: Metrics of the best evaluation; empty before the first.
        best_step: When that was.
        without_better: Evaluations since.
        identity: What must be the same for a run to go on from here, by name.
    """

    step: int
    best: dict[str, float]
    best_step: int
    without_better: int
    identity: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run.

    Args:
        directory: `output_dir/checkpoints`; need not exist.
        is_writer: Whether this process writes: the chief.
        keep: Newest checkpoints to keep; 0 for all.
        save_model: Writes the model to a directory as `from_pretrained` loads it.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        is_writer: bool,
        keep: int,
        save_model: Callable[[pathlib.Path], None],
    ):
        self.directory = directory
        self._is_writer = is_writer
        self._keep = keep
        self._save_model = save_model
        self._best_files: dict[int, dict[str, int]] = {}

    def save(self, model: FineTuner, state: RunState) -> int:
        """Writes `step-N` and removes what is no longer needed.

        Returns:
            Its size in bytes; 0 where another worker writes.

        Raises:
            RunError: if it cannot be written; earlier checkpoints stay.
        """
        if not self._is_writer:
            return 0
        for path in _numbered(self.directory, "step"):
            if _number(path) > state.step:  # Damaged: the run went on from an earlier one.
                shutil.rmtree(path, ignore_errors=True)

        def write(directory: pathlib.Path) -> None:
            self._save_model(directory)
            tensors = {name: variable.numpy() for name, variable in _training_variables(model).items()}
            write_weights(tensors, directory / OPTIMIZER)
            files = {p.name: _fingerprint(p) for p in sorted(directory.iterdir())}
            best_file = self._fingerprint_of_best(state.best_step) if state.best else None
            content = {"format": _FORMAT, **dataclasses.asdict(state), "files": files, "best_file": best_file}
            (directory / STATE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

        name = f"step-{state.step:08}"
        self._write(name, write)
        self._remove_old(state)
        return sum(path.stat().st_size for path in (self.directory / name).iterdir())

    def save_best(self, tensors: dict[str, np.ndarray], step: int) -> None:
        """Writes `best-N`, the model's weights at its best evaluation."""
        if not self._is_writer:
            return

        def write(directory: pathlib.Path) -> None:
            write_weights(tensors, directory / MODEL)
            self._best_files[step] = _fingerprint(directory / MODEL)

        self._write(f"best-{step:08}", write)

    def read_best(self, step: int) -> dict[str, np.ndarray]:
        """The weights that `save_best` wrote at `step`."""
        return read_weights(_best_file(self.directory, step))

    def newest_sound(self) -> RunState | None:
        """The state of the newest checkpoint whose files are all whole; names each one passed over in a warning.

        Where none refers to best weights that are whole, one without: the best evaluation is forgotten then.
        """
        paths = list(reversed(_numbered(self.directory, "step")))
        without_best = None
        for path in paths:
            try:
                state = _read_state(path)
                _check_best(path, state)
                return state
            except _BestDamaged as error:
                log.warning("checkpoint %s is not whole (%s); looking for an earlier one", path, error)
                without_best = without_best or dataclasses.replace(state, best={}, best_step=0, without_better=0)
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("checkpoint %s is not whole (%s); looking for an earlier one", path, error)
        if without_best:
            log.warning("going on from step %d; the best evaluation so far is forgotten", without_best.step)
        return without_best

    def restore(self, model: FineTuner, state: RunState) -> None:
        """Sets every variable of the run; `model.create_variables()` must have been called in scope.

        Raises:
            RunError: for a checkpoint whose variables are not this model's.
        """
        path = self.directory / f"step-{state.step:08}"
        set_weights_dict(model.model, read_weights(path / MODEL))
        from safetensors.numpy import load_file

        tensors = load_file(path / OPTIMIZER)
        for name, variable in _training_variables(model).items():
            # Another precision than before: the loss scale starts anew.
            if name not in tensors and name.startswith("loss_scale/"):
                continue
            if name not in tensors or tensors[name].size != variable.shape.num_elements():
                raise RunError(f"A checkpoint must hold this run's variables. Received: {path} without {name!r}.")
            variable.assign(tensors[name].reshape(variable.shape))  # safetensors has no scalars.

    def _write(self, name: str, write: Callable[[pathlib.Path], None]) -> None:
        """Writes a directory under another name, makes it durable, then renames it."""
        partial, final = self.directory / f".partial-{name}", self.directory / name
        try:
            shutil.rmtree(partial, ignore_errors=True)
            if not self.directory.parent.is_dir():
                raise FileNotFoundError(2, "the output directory is gone")
            partial.mkdir(parents=True)
            write(partial)
            for path in (*partial.iterdir(), partial):
                _sync(path)
            if final.exists():  # Left by an earlier start that came this far.
                shutil.rmtree(final)
            partial.replace(final)
            _sync(self.directory)
        except (OSError, RunError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            reason = getattr(error, "strerror", None) or error
            raise RunError(
                f"A checkpoint must be written whole. Received: {final} ({reason}). "
                f"Free space there and start again: the run goes on from {self._newest_name()}."
            ) from None

    def _fingerprint_of_best(self, step: int) -> dict[str, int]:
        """Computed once: damage that comes later must not pass for right."""
        if step not in self._best_files:
            self._best_files[step] = _fingerprint(_best_file(self.directory, step))
        return self._best_files[step]

    def _newest_name(self) -> str:
        found = _numbered(self.directory, "step")
        return str(found[-1]) if found else "its beginning"

    def _remove_old(self, state: RunState) -> None:
        earlier = [path for path in _numbered(self.directory, "step") if _number(path) < state.step]
        for path in earlier[: max(0, len(earlier) - self._keep + 1)] if self._keep else []:
            shutil.rmtree(path, ignore_errors=True)
        needed = {state.best_step}
        for path in _numbered(self.directory, "step"):
            try:
                needed.add(json.loads((path / STATE).read_text(encoding="utf-8"))["best_step"])
            except (OSError, ValueError, KeyError):
                continue  # Not whole: nothing goes on from it.
        for path in _numbered(self.directory, "best"):
            if _number(path) not in needed:
                shutil.rmtree(path, ignore_errors=True)
        for path in self.directory.glob(".partial-*"):
            shutil.rmtree(path, ignore_errors=True)


def check_identity(saved: dict[str, Any], current: dict[str, Any], directory: pathlib.Path) -> None:
    """Refuses to go on from a checkpoint of another run.

    Raises:
        UsageError: naming what differs.
    """
    different = [name for name in current if saved.get(name) != current[name]]
    if different:
        parts = ", ".join(f"{name}={saved.get(name)!r} there and {current[name]!r} here" for name in different)
        raise UsageError(
            f"A run goes on only with the same model, data and task. Received: {directory} with {parts}. "
            "Pass another --output_dir, or --overwrite_output_dir to start over."
        )


def crc(*arrays: np.ndarray) -> int:
    """CRC-32 of arrays' bytes: tells data sets apart."""
    value = 0
    for array in arrays:
        value = zlib.crc32(np.ascontiguousarray(array).data.cast("B"), value)
    return value


def _training_variables(model: FineTuner) -> dict[str, tf.Variable]:
    """Everything that changes during training besides the model, by a name that is the same in every process."""
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    variables = {f"optimizer/{index:04}": variable for index, variable in enumerate(inner.variables)}
    if isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer) and optimizer.dynamic:
        state = optimizer._loss_scale  # Keras shows its value, but not the variable.
        variables |= {"loss_scale/value": state._current_loss_scale, "loss_scale/good_steps": state._counter}
    return variables | {f"progress/{name}": variable for name, variable in vars(model.progress).items()}


def _read_state(path: pathlib.Path) -> RunState:
    content = json.loads((path / STATE).read_text(encoding="utf-8"))
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']}")
    for name, expected in content["files"].items():
        if _fingerprint(path / name) != expected:
            raise ValueError(f"{name} is damaged")
    return RunState(**{field.name: content[field.name] for field in dataclasses.fields(RunState)})


class _BestDamaged(Exception):
    """A checkpoint is whole, but not the best weights that it refers to."""


def _check_best(path: pathlib.Path, state: RunState) -> None:
    if not state.best:
        return
    best = _best_file(path.parent, state.best_step)
    try:
        found = _fingerprint(best)
    except OSError as error:
        raise _BestDamaged(str(error)) from None
    # Versions before this file was recorded only referred to it.
    if json.loads((path / STATE).read_text(encoding="utf-8")).get("best_file", found) != found:
        raise _BestDamaged(f"{best.parent.name}/{best.name} is damaged")


def _best_file(directory: pathlib.Path, step: int) -> pathlib.Path:
    return directory / f"best-{step:08}" / MODEL


def _fingerprint(path: pathlib.Path) -> dict[str, int]:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return {"bytes": path.stat().st_size, "crc32": value}


def _numbered(directory: pathlib.Path, kind: str) -> list[pathlib.Path]:
    """`kind-N` directories, by N."""
    return sorted(p for p in directory.glob(f"{kind}-*") if re.fullmatch(rf"{kind}-\d{{8,}}", p.name))


def _number(path: pathlib.Path) -> int:
    return int(path.name.rpartition("-")[2])


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
