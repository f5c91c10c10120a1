"""What only the run itself knows at its end, kept as `report.json`: with it, files are enough to rewrite the report."""

from __future__ import annotations

import importlib.metadata
import pathlib
import platform
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tfbert.tasks.base import Task
    from tfbert.tasks.sets import Examples

MAX_WORST = 20
MAX_TEXT = 1000
_LIBRARIES = ("tensorflow", "tf-keras", "transformers", "numpy")


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
