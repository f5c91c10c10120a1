"""`README.md` of a trained model: what it was trained on and how, how good it is, and how to use it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pathlib
import platform
import shlex
from collections.abc import Sequence

import tensorflow as tf

from tfbert.config import Config
from tfbert.data.sources import TaskData

_PACKAGES = ("tensorflow", "tf-keras", "transformers", "tensorflow-text", "numpy")
_WHERE_IT_GOES = ("output_dir", "overwrite_output_dir")


def model_card(config: Config, data: TaskData, results: dict[str, float], *, version: str) -> str:
    """The card as Markdown, with the metadata that the Hugging Face hub reads.

    Args:
        config: The run, its defaults resolved.
        data: What it was trained on.
        results: As in `all_results.json`.
        version: Of tfbert.
    """
    metrics = {name: value for name, value in results.items() if name.startswith(("eval_", "test_"))}
    takes = "pairs of texts" if data.train.text_pair is not None else "single texts"
    gives = f"{len(data.label_names)} classes" if data.label_names else "a score"
    sets = {"training": data.train, **data.validation} | ({"test": data.test} if data.test else {})
    header = ["library_name: transformers", "pipeline_tag: text-classification", "tags:", "- bert", "- tfbert"]
    if not config.model.is_scratch and _is_hub_name(config.model.model_name_or_path):
        header.append(f"base_model: {config.model.model_name_or_path}")
    if metrics:
        names = dict.fromkeys(name.split("_", 1)[1] for name in metrics if name.startswith("eval_"))
        header += ["metrics:", *(f"- {name}" for name in names if name != "loss")]
    lines = [
        "---",
        *header,
        "---",
        "",
        f"# {config.model.model_name_or_path} fine-tuned on {config.data.source}",
        "",
        f"A BERT model that gives {takes} one of {gives}." if data.label_names else f"BERT that scores {takes}.",
        *([f"Classes, in the order of the logits: {', '.join(data.label_names)}."] if data.label_names else []),
        "",
        "## Data",
        "",
        *_table(("set", "from", "examples"), [(name, part.name, f"{len(part):,}") for name, part in sets.items()]),
        "",
        f"Texts are cut to {config.data.max_seq_length} tokens, `[CLS]` and `[SEP]` included.",
        "",
        "## Metrics",
        "",
        *(
            _table(("metric", "value"), [(name, f"{value:.4f}") for name, value in metrics.items()])
            if metrics
            else ["The model was not evaluated."]
        ),
        "",
        "## Training",
        "",
        f"    {command_line(config)}",
        "",
        f"{results['global_step']:,} updates ({results['epoch']:.4g} epochs) of {config.training.global_batch_size} "
        f"examples in {results['train_runtime']:.0f} s, {results['train_samples_per_second']:.0f} examples a second.",
        "",
        "## Versions",
        "",
        *_table(("package", "version"), [("tfbert", version), *_versions()]),
        "",
        "## Use",
        "",
        "```python",
        "from transformers import pipeline",
        "",
        'classify = pipeline("text-classification", "THIS_DIRECTORY")',
        'classify({"text": "...", "text_pair": "..."})' if takes.startswith("pairs") else 'classify("...")',
        "```",
    ]
    return "\n".join(lines) + "\n"


def command_line(config: Config) -> str:
    """The command that repeats a run: each option that is not at its default."""
    words = ["python", "run_finetune.py"]
    for part in vars(config).values():
        for field in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
            value = getattr(part, field.name)
            if value == field.default or field.name in _WHERE_IT_GOES:
                continue
            if isinstance(value, bool):
                words.append(f"--{field.name}" if value else f"--no{field.name}")
            else:
                text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
                words.append(f"--{field.name}={text}")
    return shlex.join(words)


def _is_hub_name(name: str) -> bool:
    """Whether a name can be the hub's, OWNER/NAME or NAME, and leads to no directory, which would have been read."""
    return name.count("/") <= 1 and not name.startswith((".", "/", "~")) and not pathlib.Path(name).is_dir()


def _versions() -> list[tuple[str, str]]:
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:  # tensorflow comes under other names too.
            if name == "tensorflow":
                found.append((name, tf.__version__))
    return [*found, ("Python", platform.python_version())]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
