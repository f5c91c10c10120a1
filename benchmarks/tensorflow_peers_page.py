"""The results of `tensorflow_peers.py` as Markdown: one line for each side and seed, and what the words mean."""

from __future__ import annotations

import statistics

from results_page import table

_TERMS = {
    "longest": "batches in random order, padded to their longest text",
    "pools": "batches of like length, written by the user; with `jit` their widths are multiples of 16",
    "padded": "every text padded to `--max_seq_length`",
    "jit": "compiled by XLA; the others are not, and Keras 3 by itself does not on a CPU",
}
_NONE = "-"


def paragraphs(runs: dict[str, dict[str, dict]]) -> list[str]:
    """What was found.

    Args:
        runs: By side and by seed: `rows`, `predicted`, `train`, `scores` and `predict`. tfbert's is what the others
            are compared with; without it there are no ratios.
    """
    return [
        "Sides: " + "; ".join(f"**{name}**: {meaning}" for name, meaning in _TERMS.items()) + ". Model Garden's "
        "`tf-models-official` 2.20 needs TensorFlow 2.20 and does not install beside 2.21: it was not run. Google's "
        "pre-training scripts train no classifier; their records: `prepare_speed.py` and `pretraining_speed.py`.",
        "## Training",
        table(
            ["side", "seed", "rows", "examples/s, start included", "steady", "tfbert over it, steady", "accuracy"]
            + ["CPU seconds: program, kernel", "seconds of the process", "peak MB"],
            [_trained(runs, side, seed) for side, found in runs.items() for seed in found],
        ),
        "Start included: the time of `fit`, with tracing and compiling (KerasHub's padded sides tokenize in it too). "
        "Steady: without the first 10 updates, or half of fewer than 20; shapes that XLA meets later are compiled in "
        "it. Process: from its start to its end, with imports, loading and saving. Sides with fewer rows than tfbert's "
        "are compared by their steady rates alone: they are not scored, and their other seconds are of less work. "
        "tfbert's and transformers' learning rate rises for a tenth of the updates and then falls; Keras 3 has no such "
        "schedule: KerasHub's falls from the start.",
        "## Prediction",
        table(
            ["side", "seed", "texts", "examples/s, tracing included", "tfbert over it", "once more in the process"]
            + ["CPU seconds: program, kernel", "seconds of the process", "peak MB"],
            [_predicted(runs, side, seed) for side, found in runs.items() for seed in found],
        ),
        "Each side's own `predict`, tokenizing included; tfbert's also reads and writes files. The process predicts "
        "the texts once in tfbert, twice in the others.",
        *_best(runs),
    ]


def _trained(runs: dict[str, dict[str, dict]], side: str, seed: str) -> list[str]:
    run = runs[side][seed]
    trained, ours = run["train"], runs.get("tfbert", {}).get(seed)
    scores = run["scores"]
    ratio = _ratio(ours and ours["train"]["rows_per_second_steady"], trained["rows_per_second_steady"])
    line = [side, seed, f"{run['rows']:,}", _rate(trained["rows_per_second"])]
    line += [_rate(trained["rows_per_second_steady"]), ratio if side != "tfbert" else _NONE]
    return [*line, f"{scores['eval_accuracy']:.3f}" if scores else _NONE, *_used(trained)]


def _predicted(runs: dict[str, dict[str, dict]], side: str, seed: str) -> list[str]:
    run = runs[side][seed]
    found, ours = run["predict"], runs.get("tfbert", {}).get(seed)
    ratio = _ratio(ours and ours["predict"]["examples_per_second"], found["examples_per_second"])
    line = [side, seed, f"{run['predicted']:,}", _rate(found["examples_per_second"])]
    line += [ratio if side != "tfbert" else _NONE, _rate(found.get("examples_per_second_again"))]
    return line + _used(found)


def _best(runs: dict[str, dict[str, dict]]) -> list[str]:
    """The peers' fastest side, over the seeds that both have; the steady rate of training decides."""
    ours = runs.get("tfbert", {})
    ratios = {}
    for side, found in runs.items():
        both = [(ours[seed]["train"], found[seed]["train"]) for seed in found if seed in ours]
        pairs = [(own["rows_per_second_steady"], peer["rows_per_second_steady"]) for own, peer in both]
        if side != "tfbert" and pairs and all(value and value == value for pair in pairs for value in pair):
            ratios[side] = statistics.median(own / peer for own, peer in pairs)
    if not ratios:
        return []
    side = min(ratios, key=ratios.get)
    return [f"The fastest of the peers in training is **{side}**: tfbert is **{ratios[side]:.2f}** times as fast."]


def _rate(value: float | None) -> str:
    return f"{value:.1f}" if value and value == value else _NONE


def _ratio(ours: float | None, theirs: float | None) -> str:
    if not ours or not theirs or ours != ours or theirs != theirs:
        return _NONE
    return f"{ours / theirs:.2f}"


def _used(used: dict) -> list[str]:
    cpu = f"{used['user_seconds']:,.0f}, {used['kernel_seconds']:,.0f}"
    return [cpu, f"{used['process_seconds']:,.0f}", f"{used['peak_mb']:,}"]
