"""What only a run itself knows at its end, kept as `report.json`: with it, files are enough to make a report anew."""

from __future__ import annotations

import importlib.metadata
import pathlib
import platform
import sys
from typing import Any

import numpy as np

FACTS = "report.json"
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


def evaluation_facts(
    task: str,
    label_names: tuple[str, ...],
    name: str,
    texts: list[str],
    text_pairs: list[str] | None,
    labels: np.ndarray,
    logits: np.ndarray,
) -> dict[str, Any]:
    """How the kept weights do on an evaluation set: the confusion matrix, and the examples they get most wrong.

    Args:
        task: `classification` or `regression`.
        label_names: Name of each class; empty for regression.
        name: Of the set.
        texts: `[n]`.
        text_pairs: `[n]`; None for single texts.
        labels: int `[n]` classes, or float `[n]` targets.
        logits: float `[n, num_labels]`, or `[n, 1]` for regression.

    Returns:
        What JSON can hold. `worst` has at most `MAX_WORST` examples, the worst first: by the cross-entropy of wrong
        predictions, or by the absolute error of a regression.
    """
    facts: dict[str, Any] = {"set": name, "task": task, "num_examples": len(labels), "label_names": list(label_names)}
    if task == "regression":
        predictions = np.asarray(logits, np.float64).reshape(len(labels))
        wrongness = np.abs(predictions - labels)
        is_wrong, shown = wrongness > 0, lambda value: f"{value:.4g}"
    else:
        from scipy.special import logsumexp

        from tfbert.metrics import confusion_matrix

        logits = np.asarray(logits, np.float64)
        predictions = logits.argmax(axis=1)
        wrongness = logsumexp(logits, axis=1) - logits[np.arange(len(labels)), labels]
        is_wrong, shown = predictions != labels, lambda value: label_names[int(value)]
        facts["confusion"] = confusion_matrix(logits, labels, len(label_names)).tolist()
    facts["num_wrong"] = int(is_wrong.sum())
    order = np.argsort(-np.where(is_wrong, wrongness, -1.0), kind="stable")[: min(MAX_WORST, facts["num_wrong"])]
    facts["worst"] = [
        {
            "row": int(i),
            "text": _cut(texts[i]),
            "text_pair": None if text_pairs is None else _cut(text_pairs[i]),
            "label": shown(labels[i]),
            "prediction": shown(predictions[i]),
            "wrongness": round(float(wrongness[i]), 4),
        }
        for i in order
    ]
    return facts


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " …"
