"""A run directory -> everything its report is made of. Values stay as the files hold them."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from typing import Any

from tfbert.config.run import CONTENTS, EARLIER, UNTIL_STEP
from tfbert.data.foreign_files import read_json_object
from tfbert.errors import UsageError
from tfbert.output.output_dir import FACTS, LOG, RESULTS, RUN_CONFIG
from tfbert.report.facts import changed_file

_RULE = "A run's files must be readable"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles:
    """A finished run.

    Attributes:
        name: The directory as it was given.
        config: `run_config.json`, a dictionary a part.
        results: `all_results.json`.
        records: `log.jsonl`, in order.
        facts: `report.json`; empty for a run that has none.
        until_step: Options that had other values up to an update, by that update.
    """

    name: str
    config: dict[str, Any]
    results: dict[str, Any]
    records: list[dict[str, Any]]
    facts: dict[str, Any]
    until_step: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def option(self, part: str, name: str, default: Any = None) -> Any:
        """An option of the run's configuration; `default` where its version had none."""
        return self.config.get(part, {}).get(name, default)

    def series(self, kind: str, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of a logged number, where it was logged."""
        found = [(r["step"], r[name]) for r in self.records if r["kind"] == kind and _is_number(r.get(name))]
        return [step for step, _ in found], [value for _, value in found]

    @property
    def validation_losses(self) -> dict[str, str]:
        """A readable name of the loss on each validation set, by its name in the log and the results."""
        logged = [name for record in self.records if record["kind"] == "eval" for name in record]
        names = dict.fromkeys(name for name in logged if name.startswith("eval_") and name.endswith("_loss"))
        sets = {name: name.removeprefix("eval").removesuffix("_loss").strip("_") for name in names}
        return {name: f"validation loss, {part}" if part else "validation loss" for name, part in sets.items()}

    def training_loss(self, step: int | None = None) -> float | None:
        """The last one logged up to a step, or up to the step whose weights were kept; None where there is none."""
        last = step or self.results.get("best_step") or math.inf
        steps, values = self.series("train", "loss")
        return next((value for at, value in zip(steps[::-1], values[::-1], strict=True) if at <= last), None)

    @property
    def task(self) -> str:
        """The task's name; `auto` where it was found in the data and nothing was evaluated."""
        return self.facts.get("evaluation", {}).get("task") or self.option("data", "task", "auto")

    @property
    def precision(self) -> str:
        """`float32`, `mixed_float16` or `mixed_bfloat16`."""
        if "precision" in self.facts:
            return self.facts["precision"]
        if not self.option("runtime", "mixed_precision"):
            return "float32"
        return f"mixed_{self.option('runtime', 'mixed_precision_dtype')}"

    @property
    def examples_per_second(self) -> float | None:
        """The steady speed where it is known, else that of the whole run; None where training was not timed."""
        results = self.results
        value = results.get("train_examples_per_second_steady", results.get("train_samples_per_second"))
        return value if _is_number(value) else None

    @property
    def num_replicas(self) -> int:
        """Replicas over all workers."""
        return self.results.get("num_replicas") or self.option("runtime", "num_replicas") or 1

    @property
    def score(self) -> tuple[str, float] | None:
        """Name and value of the evaluation metric that decided; in runs of earlier versions, which do not say, the one
        asked for, accuracy or pearson."""
        decisive = (self.facts.get("decisive_metric") or "").removeprefix("eval_")
        for name in (decisive, self.option("training", "metric_for_best_model"), "accuracy", "pearson"):
            value = self.results.get(f"eval_{name}")
            if name and value is not None and _is_number(value):
                return name, value
        return None


def read_run(directory: str | pathlib.Path, results: dict[str, Any] | None = None) -> RunFiles:
    """Reads a run's files.

    Args:
        directory: Its output directory.
        results: What `all_results.json` will hold, for a run that is about to write it.

    Raises:
        UsageError: one line, for a directory that holds no finished run, a file that cannot be read, or one that was
            changed after the run had written it.
    """
    path = pathlib.Path(directory)
    if not path.is_dir():
        raise UsageError(f"A run is a directory. Received: {str(directory)!r}, which is not. Check the path.")
    for name in (RUN_CONFIG, LOG) if results else (RUN_CONFIG, RESULTS, LOG):
        if not (path / name).is_file():
            raise UsageError(
                f"A finished run has {RUN_CONFIG}, {RESULTS} and {LOG}. Received: {str(directory)!r} without {name}. "
                "Pass a run's output directory, or finish the run."
            )
    config = read_json_object(path / RUN_CONFIG, _RULE)
    results = results or read_json_object(path / RESULTS, _RULE)
    config = {name: part for name, part in config.items() if name not in (CONTENTS, EARLIER)}
    until_step = config.pop(UNTIL_STEP, {})
    parts = [config, until_step, *until_step.values()] if isinstance(until_step, dict) else [until_step]
    if not all(isinstance(part, (dict, str)) for part in config.values()) or not all(type(p) is dict for p in parts):
        raise _unusable(path / RUN_CONFIG, "not a run's configuration")
    facts = read_json_object(path / FACTS, _RULE) if (path / FACTS).is_file() else {}
    if name := changed_file(path, facts, results):
        raise UsageError(
            f"A finished run's numbers must be as it wrote them. Received: {str(path / name)!r}, changed later. "
            "Restore the file, or leave the run out."
        )
    config = {name: part for name, part in config.items() if isinstance(part, dict)}
    return RunFiles(
        name=str(directory),
        config=config,
        results=results,
        records=_records(path / LOG),
        facts=facts,
        until_step=until_step,
    )


def _records(path: pathlib.Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, getattr(error, "strerror", None) or "not UTF-8") from None
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("step"), int) or "kind" not in record:
            raise _unusable(path, f"line {number} is not a record")
        records.append(record)
    return records


def _unusable(path: pathlib.Path, reason: str) -> UsageError:
    return UsageError(f"{_RULE}. Received: {str(path)!r} ({reason}). Repair it, or leave the run out.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
