"""The options that a training run used, and those in which runs differ, from their `run_config.json` files.

Imports no TensorFlow. A file of an earlier version lacks options of this one: they were at their default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tfbert.config.rules import is_met
from tfbert.config.run import Config
from tfbert.report.run_files import RunFiles

_PARTS = {
    name: [field for field in dataclasses.fields(part) if "train" in field.metadata["modes"]]
    for name, part in Config.classes().items()
}
_FIELDS = {name: fields for name, fields in _PARTS.items() if fields}
"""The options that training takes, by part."""
_ELSEWHERE = {part.name for part in dataclasses.fields(Config)} - _FIELDS.keys()
_OF_TASKS = {field.name: field for fields in _FIELDS.values() for field in fields if field.metadata["tasks"]}
"""The options that have an effect in certain tasks only. In others they were at their default."""
_NEEDS = {field.name: needs for fields in _FIELDS.values() for field in fields if (needs := field.metadata["needs"])}
"""The options that have an effect with another one only."""
_NAMES_THE_RUN = "output_dir"
_IDLE: dict[str, Callable[[dict[str, Any]], bool]] = {
    "warmup_ratio": lambda options: bool(options["warmup_steps"]),
    "cluster_timeout_seconds": lambda options: options["strategy"] != "multi_worker",
    "header": lambda options: not options["train_file"],
    "input_format": lambda options: not options["train_file"],
    "save_total_limit": lambda options: not options["save_steps"],
}
"""When an option that has a value has no effect because of another one, though it is not refused then."""


def settings(run: RunFiles) -> dict[str, dict[str, Any]]:
    """Every option that had an effect on a training run, by part.

    Options that this version does not know are among them.
    """
    parts = {}
    for part, fields in _FIELDS.items():
        defaults = {field.name: _as_json(field.default) for field in fields}
        parts[part] = defaults | run.config.get(part, {})
    parts |= {part: options for part, options in run.config.items() if part not in parts and part not in _ELSEWHERE}
    known = {name: value for part in parts.values() for name, value in part.items()}

    def has_effect(name: str) -> bool:
        if (field := _OF_TASKS.get(name)) and run.task not in field.metadata["tasks"]:
            return known[name] != _as_json(field.default)
        if name in _NEEDS:
            return is_met(_NEEDS[name], known)
        return name not in _IDLE or not _IDLE[name](known)

    parts = {part: {name: options[name] for name in options if has_effect(name)} for part, options in parts.items()}
    return {part: options for part, options in parts.items() if options}


def used(run: RunFiles) -> dict[str, dict[str, Any]]:
    """`settings` for a reader: without options that are off or empty by default and were left so."""
    off = {field.name: _as_json(field.default) for fields in _FIELDS.values() for field in fields if not field.default}
    parts = {
        part: {name: value for name, value in options.items() if name not in off or value != off[name]}
        for part, options in settings(run).items()
    }
    return {part: options for part, options in parts.items() if options}


def differing(runs: list[RunFiles]) -> list[tuple[str, list[Any]]]:
    """The options in which runs differ, with the value of each run; None where it had no effect or no value.

    `output_dir`, which always differs, is left out: it is a run's name.
    """
    flat = [
        {name: value for part in settings(run).values() for name, value in part.items() if value not in ("", [])}
        for run in runs
    ]
    names = dict.fromkeys(name for options in flat for name in options if name != _NAMES_THE_RUN)
    rows = [(name, [options.get(name) for options in flat]) for name in names]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]


def loss_extras(run: RunFiles) -> list[str]:
    """What the training loss includes and the validation loss does not, beside dropout."""
    out = []
    if smoothing := run.option("training", "label_smoothing"):
        out.append(f"label smoothing of {smoothing}")
    if weights := run.option("training", "class_weights"):
        out.append(f"class weights ({weights if isinstance(weights, str) else ', '.join(map(str, weights))})")
    return out


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
