"""What a checkpoint holds, how it is written whole or not at all, and how it is restored.

A checkpoint is a directory `checkpoints/step-N`:

| file | what |
| --- | --- |
| `model.safetensors`, `config.json`, tokenizer files | the model, as `from_pretrained` loads it; with LoRA |
| `adapter_model.safetensors`, `adapter_config.json` | what is trained, as PEFT names it; the rest is the base's |
| `optimizer.safetensors` | the optimizer's moments, the update count, the loss scale, the step counters |
| `state.json` | evaluation's state, what the run was, size and CRC-32 of each file, `best-N`'s too; sealed itself |

Data order and dropout are functions of the update count, so nothing of theirs is saved. The weights of the best
evaluation are kept apart in `checkpoints/best-N`, for as long as a checkpoint or the run refers to them. A finished run
keeps none of this; where all checkpoints were to be kept, they stay as models, or adapters. With `keep_optimizer` it
keeps one, of its last update, from which a longer run goes on: `last-N` until the results are there, then `step-N`,
since no run resumes without an update to make.

What a checkpoint says about itself, and the newest one that can be trusted.

`state.json` is sealed, and holds size and CRC-32 of every other file of the checkpoint and of the best weights that it
refers to: any later change shows, and the run resumes from an earlier checkpoint instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfbert.bert.lora import set_trained
from tfbert.config.types import counted
from tfbert.corpus.manifest import crc32_of
from tfbert.errors import RunError, UsageError
from tfbert.model.weights import read_weights, write_weights
from tfbert.output.output_dir import seal, unseal
from tfbert.step.keras3.finetuner import FineTuner

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

    def without_best(self) -> RunState:
        """The same without the best evaluation."""
        return dataclasses.replace(self, best={}, best_step=0, without_better=0)


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
        own = None
        try:
            state, files, best_file = read_state(path)
            _check_whole(path, files)
            own = state
            if own.best:
                best = best_weights(directory, own.best_step)
                _check_whole(best.parent, {best.name: best_file})
            return own
        except UsageError:
            raise
        except (OSError, ValueError) as error:
            log.warning("checkpoint %s is not whole (%s); looking for an earlier one", path, error)
            without_best = without_best or (own and own.without_best())
    if without_best:
        log.warning("resuming from step %d; the best evaluation so far is forgotten", without_best.step)
    return without_best


def step_directory(directory: pathlib.Path, step: int) -> pathlib.Path:
    """Where the checkpoint of an update is."""
    return directory / f"step-{step:08}"


def read_state(path: pathlib.Path) -> tuple[RunState, dict[str, dict[str, int]], dict[str, int] | None]:
    """Reads a checkpoint's `state.json`, and nothing else of it: the state, the fingerprints of the checkpoint's files,
    and that of the best weights. What is sealed is as `Checkpoints.save` wrote it.

    Raises:
        OSError: where it cannot be read.
        ValueError: for anything that `Checkpoints.save` did not write there.
        UsageError: for what another version wrote.
    """
    content = unseal((path / STATE).read_text(encoding="utf-8"))
    version = content.pop("format", 0)
    if version != FORMAT:
        rule = f"A run is finished by the version of tfbert that began it; this one writes format {FORMAT}"
        todo = "Finish it with that version (below 4: tfbert 1.0.0, commit 8446d3e), or pass --overwrite_output_dir."
        raise UsageError(f"{rule}. Received: {path} of format {version}. {todo}")
    fields = {field.name for field in dataclasses.fields(RunState)}
    if content.keys() != fields | {"files", "best_file"}:
        raise ValueError(f"{STATE} has missing or unknown fields")
    state = RunState(**{name: content[name] for name in fields})
    if path.name != step_directory(path.parent, state.step).name:
        raise ValueError(f"it holds step {state.step}")
    return state, content["files"], content["best_file"]


def _check_whole(directory: pathlib.Path, files: dict[str, dict[str, int] | None]) -> None:
    for name, expected in files.items():
        if fingerprint(directory / name) != expected:
            raise ValueError(f"{directory.name}/{name} is damaged")


def best_weights(directory: pathlib.Path, step: int) -> pathlib.Path:
    """Where the weights of the best evaluation are, if that came after update `step`."""
    return weights_in(directory / f"best-{step:08}")


def weights_in(directory: pathlib.Path) -> pathlib.Path:
    """The file of a checkpoint's weights."""
    return directory / (ADAPTER if (directory / ADAPTER).is_file() else MODEL)


def fingerprint(path: pathlib.Path) -> dict[str, int]:
    """A file's size and CRC-32."""
    return {"bytes": path.stat().st_size, "crc32": crc32_of(path)}


def numbered(directory: pathlib.Path, kind: str) -> list[pathlib.Path]:
    """`kind-N` directories, by N."""
    return sorted((p for p in directory.glob(f"{kind}-*") if re.fullmatch(r"\w+-[0-9]{8,}", p.name)), key=number_of)


def number_of(path: pathlib.Path) -> int:
    """N of `kind-N`."""
    return int(path.name.rpartition("-")[2])


@dataclasses.dataclass(kw_only=True)
class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        directory: `output_dir/checkpoints`; need not exist.
        is_writer: Whether this process writes: the chief.
        keep: How many of the newest checkpoints to keep; 0 for all.
        save_model: Writes the model to a directory as `from_pretrained` loads it, or what is trained of it.
        weights_file: The file in which it writes the weights.
    """

    directory: pathlib.Path
    is_writer: bool
    keep: int
    save_model: Callable[[pathlib.Path], None]
    weights_file: str = MODEL
    _best_files: dict[int, dict[str, int]] = dataclasses.field(default_factory=dict, init=False)

    def save(self, model: FineTuner, state: RunState) -> int:
        """Writes `step-N` and removes what is no longer needed.

        Returns:
            Its size in bytes; 0 where another worker writes.

        Raises:
            RunError: if it cannot be written; earlier checkpoints stay.
        """
        if not self.is_writer:
            return 0
        for path in numbered(self.directory, "step"):
            if number_of(path) > state.step:  # Damaged: the run resumed from an earlier one.
                shutil.rmtree(path, ignore_errors=True)

        path = self._write_state(step_directory(self.directory, state.step).name, model, state)
        _keep_only(numbered(self.directory, "step")[-self.keep :], self.directory)
        return sum(file.stat().st_size for file in path.iterdir())

    def save_last(self, model: FineTuner, state: RunState) -> None:
        """Writes `last-N`, which `tidy` makes a checkpoint; removes nothing.

        Raises:
            RunError: if it cannot be written; the checkpoints stay.
        """
        if self.is_writer:
            self._write_state(f"last-{state.step:08}", model, state)

    def _write_state(self, name: str, model: FineTuner, state: RunState) -> pathlib.Path:
        """Writes a checkpoint's files to a directory of that name, and returns its path."""

        def write(directory: pathlib.Path) -> None:
            self.save_model(directory)
            tensors = {name: variable.numpy() for name, variable in _training_variables(model).items()}
            write_weights(tensors, directory / OPTIMIZER)
            files = {p.name: fingerprint(p) for p in sorted(directory.iterdir())}
            if state.best and state.best_step not in self._best_files:  # Later damage must not pass for right.
                self._best_files[state.best_step] = fingerprint(best_weights(self.directory, state.best_step))
            best_file = self._best_files[state.best_step] if state.best else None
            content = {"format": FORMAT, **dataclasses.asdict(state), "files": files, "best_file": best_file}
            (directory / STATE).write_text(seal(content), encoding="utf-8")

        self._write(name, write)
        return self.directory / name

    def save_best(self, tensors: dict[str, np.ndarray], step: int) -> None:
        """Writes `best-N`, the model's weights at its best evaluation, or what is trained of it."""
        if not self.is_writer:
            return

        def write(directory: pathlib.Path) -> None:
            write_weights(tensors, directory / self.weights_file)
            self._best_files[step] = fingerprint(directory / self.weights_file)

        self._write(f"best-{step:08}", write)

    def read_best(self, step: int) -> dict[str, np.ndarray]:
        """The weights that `save_best` wrote at `step`."""
        return read_weights(best_weights(self.directory, step))

    def restore(self, model: FineTuner, state: RunState) -> None:
        """Sets every variable of the run; `model.create_variables()` must have been called in scope.

        Raises:
            RunError: for a checkpoint whose variables are not this model's, or that no longer exists.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = step_directory(self.directory, state.step)
        try:
            set_trained(model.model, read_weights(weights_in(path)))
            tensors = load_file(path / OPTIMIZER)
            for name, variable in _training_variables(model).items():
                if name not in tensors or tensors[name].size != math.prod(variable.shape):
                    raise ValueError(f"without {name!r}")
                variable.assign(tensors[name].reshape(variable.shape))  # safetensors has no scalars.
        except (OSError, SafetensorError, ValueError) as error:
            rule = "A checkpoint must hold this run's variables"
            raise RunError(f"{rule}. Received: {path}: {error}. Remove this checkpoint and start again.") from None

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
            newest = next(reversed(numbered(self.directory, "step")), "its beginning")
            todo = f"Free space there, or see to the file server, and start again: the run resumes from {newest}."
            raise RunError(f"A checkpoint must be written whole. Received: {final} ({reason}). {todo}") from None


def _keep_only(steps: list[pathlib.Path], directory: pathlib.Path) -> None:
    """Removes all checkpoints but these, best weights to which none of these refers, and what was half written."""
    kept = {*steps}
    for path in steps:
        with contextlib.suppress(OSError, ValueError):  # Not whole: no run resumes from it.
            kept.add(best_weights(directory, read_state(path)[0].best_step).parent)
    found = [path for kind in ("step", "best", "last") for path in numbered(directory, kind)]
    for path in (*found, *directory.glob(".partial-*")):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def tidy(output_dir: pathlib.Path, *, keep: int, keep_state: bool = False) -> list[str]:
    """Removes the checkpoints of a finished run: it is not resumed, and its own model replaces them.

    Where all were to be kept, they stay, as models without the optimizer's state. A kill in between leaves the run
    finished and its model whole.

    Args:
        output_dir: Its output directory, with the results written.
        keep: The run's `save_total_limit`.
        keep_state: The run's `keep_optimizer`: the checkpoint of its last update stays as it is.

    Returns:
        Lines to log.
    """
    directory = output_dir / "checkpoints"
    if not directory.is_dir():
        return []
    state = _kept_state(directory) if keep_state else []
    models = [] if keep else [path for path in numbered(directory, "step") if path not in state]
    for path in models:
        for name in (STATE, OPTIMIZER):  # In this order: without its state it is no checkpoint.
            with contextlib.suppress(OSError):
                (path / name).unlink()
    _keep_only([*state, *models], directory)
    with contextlib.suppress(OSError):  # It still holds models, or is a link.
        directory.rmdir()
    kinds = "adapters" if any(directory.glob(f"step-*/{ADAPTER}")) else "models"
    lines = [f"{counted(len(models), 'checkpoint')} kept as {kinds}"] if models else []
    if state:
        lines.append("the state of training is kept: the same command with more epochs trains on")
    return lines or ["checkpoints removed: no longer needed"]


def _kept_state(directory: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoint of a finished run's last update; empty without one."""
    for path in numbered(directory, "last"):
        final = step_directory(directory, number_of(path))
        shutil.rmtree(final, ignore_errors=True)
        path.replace(final)
    for path in reversed(numbered(directory, "step")):
        with contextlib.suppress(OSError, ValueError):
            read_state(path)
            return [path]
    return []


def _training_variables(model: FineTuner) -> dict[str, Any]:
    """Everything that changes during training besides the model, by a name that is the same in every process."""
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    variables = {f"optimizer/{index:04}": variable for index, variable in enumerate(inner.variables)}
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        variables |= {"loss_scale/value": optimizer.dynamic_scale, "loss_scale/good_steps": optimizer.step_counter}
    return variables | {f"progress/{name}": variable for name, variable in vars(model.counters).items()}


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
