"""What only the run itself knows at its end, kept as `report.json`: with it, files are enough to rewrite the report."""

from __future__ import annotations

import importlib.metadata
import pathlib
import platform
import sys
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.output.output_dir import FACTS, LOG, RESULTS, RUN_CONFIG, write_json
from tfbert.output.sealed import checked, checksum, with_seal

if TYPE_CHECKING:
    from tfbert.tasks.base import Task
    from tfbert.tasks.sets import Examples

MAX_WORST = 20
MAX_TEXT = 1000
_OF_FILES = "crc32_of"
"""The checksums of the run's other files: of a JSON object its values', of any other its bytes'."""
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
        facts: The content of its `report.json`.
        results: That of its `all_results.json`.
    """
    try:
        facts = checked(facts)
    except ValueError:
        return FACTS
    known = facts.get(_OF_FILES) or {}
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
