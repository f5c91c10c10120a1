"""A run's files -> all that its report is made of, and the options that it used; and what only the run itself knows at
its end, kept as `report.json`.

Values stay as the files hold them. Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import pathlib
import platform
import sys
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.config.run import CONTENTS, EARLIER, UNTIL_STEP, Config
from tfbert.data.reading import read_json_object
from tfbert.errors import UsageError
from tfbert.output.output_dir import FACTS, LOG, RESULTS, RUN_CONFIG, SEAL, checked, checksum, with_seal, write_json

if TYPE_CHECKING:
    from tfbert.tasks.base import Examples, Task

_RULE = "A run's files must be readable"
_OF_FILES = "crc32_of"
"""The checksums of the run's other files: of a JSON object its values', of any other its bytes'."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles:
    """A finished run.

    Attributes:
        name: The directory as it was given.
        config: `run_config.json`, a dictionary a part.
        results: `all_results.json`.
        records: `log.jsonl`, in order.
        facts: `report.json`.
        until_step: Options that had other values up to an update, by that update.
    """

    name: str
    config: dict[str, Any]
    results: dict[str, Any]
    records: list[dict[str, Any]]
    facts: dict[str, Any]
    until_step: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """Every option by its name; one that the run's version lacked is at its default."""
        return _DEFAULTS | {name: value for part in self.config.values() for name, value in part.items()}

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
        return self.facts.get("evaluation", {}).get("task") or self.options["task"]

    @property
    def examples_per_second(self) -> float | None:
        """The steady speed where it is known, else that of the whole run; None where training was not timed."""
        results = self.results
        value = results.get("train_examples_per_second_steady", results.get("train_samples_per_second"))
        return value if _is_number(value) else None

    @property
    def num_replicas(self) -> int:
        """Replicas over all workers."""
        return self.results.get("num_replicas", 1)

    @property
    def decisive(self) -> str:
        """The metric that decided, as the results call it: `eval_accuracy`; empty where nothing was evaluated."""
        name = self.facts["decisive_metric"] or ""
        return name if _is_number(self.results.get(name)) else ""

    @property
    def tested(self) -> str:
        """What the results call the same metric on the test set, as `test_accuracy`; empty if they lack it."""
        names = [name for name in self.results if name.startswith("test_")]
        return max((name for name in names if self.decisive.endswith(name[len("test") :])), key=len, default="")


def read_run(directory: str | pathlib.Path, results: dict[str, Any] | None = None) -> RunFiles:
    """Reads a run's files.

    Args:
        directory: Its output directory.
        results: What `all_results.json` will hold, for a run that is about to write it.

    Raises:
        UsageError: one line, for a directory that holds no finished run, a file that cannot be read, or one that was
            changed after the run had written it.
    """
    path, names = pathlib.Path(directory), [RUN_CONFIG, LOG, FACTS, *([] if results else [RESULTS])]
    if lacking := [name for name in names if not (path / name).is_file()]:
        rule = f"A finished run is a directory with {RUN_CONFIG}, {LOG}, {FACTS} and {RESULTS}"
        todo = "Pass a run's output directory, or finish the run."
        raise UsageError(f"{rule}. Received: {str(directory)!r} without {lacking[0]}. {todo}")
    facts = read_json_object(path / FACTS, _RULE)
    results = results or read_json_object(path / RESULTS, _RULE)
    if not {SEAL, _OF_FILES} <= facts.keys():
        todo = "Read the report.html that the run wrote, or leave the run out."
        raise UsageError(f"{FACTS} must be of this version. Received: {str(path / FACTS)!r} without checksums. {todo}")
    if name := changed_file(path, facts, results):
        rule = "A finished run's numbers must be as it wrote them"
        todo = "Restore the file, or leave the run out."
        raise UsageError(f"{rule}. Received: {str(path / name)!r}, changed later. {todo}")
    config = read_json_object(path / RUN_CONFIG, _RULE)
    until_step = config.pop(UNTIL_STEP, {})
    parts = {name: part for name, part in config.items() if isinstance(part, dict)}
    config = {name: part for name, part in parts.items() if name not in (CONTENTS, EARLIER)}
    return RunFiles(
        name=str(directory),
        config=config,
        results=results,
        records=[json.loads(line) for line in (path / LOG).read_text(encoding="utf-8").splitlines()],
        facts=facts,
        until_step=until_step,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


_DEFAULTS: dict[str, Any] = json.loads(json.dumps(Config().values()))
"""Of every option, as JSON has it."""


def used(run: RunFiles) -> dict[str, dict[str, Any]]:
    """The options that were not at their default, by part."""
    parts = {
        part: {name: value for name, value in options.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}
        for part, options in run.config.items()
    }
    return {part: options for part, options in parts.items() if options}


def differing(runs: Sequence[RunFiles]) -> list[tuple[str, list[Any]]]:
    """The options in which runs differ, with the value of each run; None where neither a run nor this version has one.

    `output_dir`, which always differs, is left out: it is a run's name.
    """
    flat = [run.options for run in runs]
    names = dict.fromkeys(name for options in flat for name in options if name != "output_dir")
    rows = [(name, [options.get(name) for options in flat]) for name in names]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]


def loss_extras(run: RunFiles) -> list[str]:
    """What the training loss includes and the validation loss does not, beside dropout."""
    out = []
    if smoothing := run.options["label_smoothing"]:
        out.append(f"label smoothing of {smoothing}")
    if weights := run.options["class_weights"]:
        out.append(f"class weights ({weights if isinstance(weights, str) else ', '.join(map(str, weights))})")
    return out


MAX_WORST = 20
MAX_TEXT = 1000
_LIBRARIES = ("tensorflow", "tf-keras", "transformers", "tensorflow-text", "numpy")


def environment() -> dict[str, Any]:
    """The machine and the software, for whoever wants to repeat the run."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # Installed under another name, as tensorflow-cpu is.
            continue
    return {"command": " ".join(sys.argv), "machine": processor(), "versions": versions}


def processor() -> str:
    """The CPU's name, as far as the system tells."""
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # Not Linux.
    return platform.processor() or platform.machine()


def write_facts(directory: pathlib.Path, facts: dict[str, Any], results: dict[str, Any]) -> None:
    """Writes `report.json` with a checksum of itself, of the results, of the log and of the configuration: what is
    changed later is noticed.

    Args:
        directory: The run's output directory, with its configuration and its whole log.
        facts: What JSON can hold.
        results: What `all_results.json` will hold.

    Raises:
        RunError: if it cannot be written.
    """
    write_json(directory / FACTS, with_seal(facts | {_OF_FILES: _of_files(directory, results)}))


def changed_file(directory: pathlib.Path, facts: dict[str, Any], results: dict[str, Any]) -> str:
    """The file of a finished run that is not as the run wrote it; empty if there is none, or nobody knows.

    Args:
        directory: The run's output directory.
        facts: The content of its `report.json`; empty where it has none.
        results: That of its `all_results.json`.
    """
    try:
        known = checked(facts)[_OF_FILES] if SEAL in facts else {}
    except ValueError:
        return FACTS
    return next((name for name, found in _of_files(directory, results).items() if known.get(name, found) != found), "")


def _of_files(directory: pathlib.Path, results: dict[str, Any]) -> dict[str, int]:
    files = {name: directory / name for name in (LOG, RUN_CONFIG)}
    written = {name: zlib.crc32(path.read_bytes() if path.is_file() else b"") for name, path in files.items()}
    return {RESULTS: checksum(results), **written}


def evaluation_facts(task: Task, name: str, examples: Examples, predictions: Any) -> dict[str, Any]:
    """How the kept weights do on an evaluation set: the task's facts about all, and the examples they get most wrong.

    Args:
        task: What labels and predictions are.
        name: The set's name.
        examples: Labelled.
        predictions: For all of them, as the task makes them.

    Returns:
        What JSON can hold. `worst` has at most `MAX_WORST` examples, the worst first, each with its `row` among those
        that were evaluated, from 0, and `where` it is in its file.
    """
    analysis = task.error_analysis(predictions, examples)
    num_wrong = int((analysis.errors > 0).sum())
    facts = {
        "set": name,
        "source": examples.name,
        "task": task.name,
        "num_examples": len(examples),
        "label_names": list(task.label_names),
    }
    facts |= analysis.facts | {"num_wrong": num_wrong, "measure": analysis.measure}
    facts["worst"] = [
        {name: _cut(value) if isinstance(value, str) else value for name, value in analysis.shown(i).items()}
        | {"row": i, "where": examples.where(i), "error": round(float(analysis.errors[i]), 4)}
        for i in np.argsort(-analysis.errors, kind="stable")[: min(MAX_WORST, num_wrong)].tolist()
    ]
    return facts


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " …"
