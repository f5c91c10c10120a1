"""The results of `tasks_in_turns.py` as a Markdown file in benchmarks/results/; in pairs, PyTorch's number is first."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable

from results_page import table

_TITLES = {
    "classification": "Classification against PyTorch",
    "multi_label_classification": "Several labels a text against PyTorch",
    "token_classification": "Token classification against PyTorch",
    "question_answering": "Question answering against PyTorch",
    "multiple_choice": "Multiple choice against PyTorch",
}
_METRICS = (
    "micro_f1",
    "sample_f1",
    "subset_accuracy",
    "roc_auc",
    "average_precision",
    "f1",
    "macro_f1",
    "precision",
    "recall",
    "accuracy",
    "mean_reciprocal_rank",
    "exact_match",
    "exact",
    "HasAns_f1",
    "NoAns_f1",
)
_PARTS_OF_ONE = ("classification", "multi_label_classification", "token_classification", "multiple_choice")
"""Tasks whose metrics are fractions; they are shown as percentages."""
_SIDES = ("pytorch", "tfbert")


def turns_report(task: str, about: dict, num_predicted: int, turns: list[dict]) -> str:
    """The text of the file so far.

    Args:
        task: Its name.
        about: `machine`, as text by name, and `settings`, the command's options.
        num_predicted: Examples that each side predicted for each batch size.
        turns: Each with its `seed`, which side came `first`, and for each side `train`, `scores` and `predict`.
    """
    versions = turns[0]["tfbert"]["train"], turns[0]["pytorch"]["train"]
    machine = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about["machine"].items())
    command = " ".join(about["settings"])
    rows = turns[0]["pytorch"]["train"]["rows"]
    precision = "Training in bfloat16" if "--mixed_precision" in about["settings"] else "Float32"
    parts = [
        f"# {_TITLES[task]} ({datetime.date.today()})",
        f"{machine}. TensorFlow {versions[0].get('tensorflow', 'unknown')}; PyTorch {versions[1]['torch']} with "
        f"{versions[1]['threads']} threads and transformers {versions[1]['transformers']}. {precision}.",
        f"`python benchmarks/tasks_in_turns.py {command}`",
        f"The sides took turns; pairs are PyTorch's number and tfbert's, ratios tfbert's over PyTorch's. {rows:,} rows "
        "(texts, sentences or parts of them, windows) in each epoch; both sides made the same number of updates. The "
        "weights scored are those after the last one.",
        "## Scores",
        _scores(task, turns),
        "## Training",
        "Whole: the time of `fit`, or of Trainer's `train`, tracing and compiling included; steady: without the first "
        "10 updates, or half of fewer than 20. CPU seconds and memory are the whole process's.",
        _training(turns),
    ]
    if not turns[0]["tfbert"]["predict"]:
        return "\n\n".join(parts) + "\n"
    parts += [
        "## Prediction",
        f"{num_predicted:,} examples, tokenizing and decoding included, each side's better batch size. Ours includes "
        "tracing, reading and writing files; PyTorch's is after a warm-up. CPU seconds are the whole process's.",
        "### Trainer.predict, as transformers' own scripts do: rows in the given order",
        _prediction(turns, "trainer_predict"),
        "### A bare loop over rows sorted by length, which a user of PyTorch would have to write",
        _prediction(turns, "predict"),
    ]
    return "\n\n".join(parts) + "\n"


def _scores(task: str, turns: list[dict]) -> str:
    scale = 100 if task in _PARTS_OF_ONE else 1
    first = turns[0]["pytorch"]["scores"]
    names = [name for prefix in ("eval", "test") for each in _METRICS if (name := f"{prefix}_{each}") in first]
    lines = []
    for name in names:
        pairs = [tuple(scale * turn[side]["scores"][name] for side in _SIDES) for turn in turns]
        means = tuple(statistics.fmean(values) for values in zip(*pairs, strict=True))
        by_seed = "; ".join(f"{peer:.2f}, {own:.2f}" for peer, own in pairs)
        lines.append([name, by_seed, f"{means[0]:.2f}, {means[1]:.2f}", f"{means[1] - means[0]:+.2f}"])
    seeds = ", ".join(str(turn["seed"]) for turn in turns)
    return table(["metric", f"seeds {seeds}", "mean", "difference"], lines)


def _training(turns: list[dict]) -> str:
    head = ["seed", "first", "rows/s, whole", "ratio", "rows/s, steady", "ratio", "seconds"]
    head += ["program, kernel: PyTorch", "tfbert", "peak MB"]
    lines = []
    for turn in turns:
        sides = [turn[side]["train"] for side in _SIDES]
        line = [str(turn["seed"]), turn["first"], *_pair(sides, "rows_per_second")]
        line += [*_pair(sides, "rows_per_second_steady"), _joined(sides, "seconds", "{:,.0f}")]
        lines.append(line + [_cpu(side) for side in sides] + [_joined(sides, "peak_mb", "{:,}")])
    whole = _ratios(turns, lambda run: run["train"]["rows_per_second"])
    steady = _ratios(turns, lambda run: run["train"]["rows_per_second_steady"])
    return f"{table(head, lines)}\n\nAll turns together: whole **{whole}**, steady **{steady}** times PyTorch."


def _prediction(turns: list[dict], peers: str) -> str:
    """The table against the peer's way of this name."""

    def best(found: list[dict]) -> dict:
        return max(found, key=lambda each: each["examples_per_second"])

    runs = [{"pytorch": best(turn["pytorch"][peers]), "tfbert": best(turn["tfbert"]["predict"])} for turn in turns]
    head = ["seed", "examples/s", "ratio", "batch", "program, kernel: PyTorch", "tfbert", "peak MB"]
    lines = []
    for turn, run in zip(turns, runs, strict=True):
        sides = [run[side] for side in _SIDES]
        line = [str(turn["seed"]), *_pair(sides, "examples_per_second"), _joined(sides, "batch_size", "{}")]
        lines.append(line + [_cpu(side) for side in sides] + [_joined(sides, "peak_mb", "{:,}")])
    ratio = _ratios(runs, lambda run: run["examples_per_second"])
    return f"{table(head, lines)}\n\nAll turns together: **{ratio}** times PyTorch."


def _ratios(turns: list[dict], speed: Callable[[dict], float | None]) -> str:
    """The ratio of our speed to the peer's over the time of all turns."""
    speeds = {side: [speed(turn[side]) for turn in turns] for side in _SIDES}
    if any(not value or value != value for values in speeds.values() for value in values):
        return "none"
    seconds = {side: sum(1 / value for value in values) for side, values in speeds.items()}
    return f"{seconds['pytorch'] / seconds['tfbert']:.2f}"


def _pair(sides: list[dict], name: str) -> list[str]:
    """Both numbers, and the ratio of ours to the peer's; a run of few updates has no steady speed."""
    peer, own = (side[name] for side in sides)
    if not peer or not own or peer != peer:
        return ["none", "none"]
    return [f"{peer:.1f}, {own:.1f}", f"{own / peer:.2f}"]


def _joined(sides: list[dict], name: str, form: str) -> str:
    return ", ".join(form.format(side[name]) for side in sides)


def _cpu(used: dict) -> str:
    return f"{used['user_seconds']:,.0f}, {used['kernel_seconds']:,.0f} s"
