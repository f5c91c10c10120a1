"""The page that gpu.py writes: what it measured, pass by pass, and the best of each setting."""

import itertools

from results_page import table

from tfbert.model.files import SCRATCH_LAYOUTS

OUT_OF_MEMORY = "out of memory"
WAYS = {
    "training": {"tfbert": ("XLA off", "XLA on"), "torch": ("eager", "compiled")},
    "inference": {"tfbert": ("XLA off",), "torch": ("eager", "compiled", "cast")},
    "auto": {"tfbert": ("XLA off",)},
    "checkpointing": {"tfbert": ("XLA off",)},
}
"""Pass -> side -> the ways that each setting is measured in."""

_SETTING = ("pass", "model", "seq_length", "precision", "batch_size", "steps", "device", "side", "way")
_HEADS = ["model", "tokens", "precision"]
_ORDERS = {"pass": list(WAYS), "model": list(SCRATCH_LAYOUTS), "precision": ["float32", "float16", "bfloat16"]}
_SIDES = {"tfbert": "tfbert", "torch": "PyTorch"}
_EXPLAINED = """\
A cell is examples/s after the warm-up; after it, the peak memory of the GPU in GiB. All rows are full: as many tokens
as the table says. On a GPU, float32 multiplies matrices in TF32 on both sides. "ratio" is tfbert's fastest way over
PyTorch's. "out of memory": this batch, or a smaller one, did not fit. "–": not measured.

PyTorch has fused attention (SDPA) with a mask, autocast, and in training fused AdamW. `compiled` is `torch.compile`;
`cast` is compiled too, with weights converted to the precision once instead of autocast (float32 has none). Its batches
are already on the GPU; tfbert's come from the host. tfbert predicts without XLA; its memory there includes the
optimizer's, of two small updates before.
"""
_OF_BEST = (
    "Each side with the batch and way of most examples/s, and the largest batch that fits, of those that were tried."
)
_OF_AUTO = "The micro-batch that `--gradient_accumulation_steps=auto` chooses for a global batch, and its updates."
_OF_CHECKPOINTING = "Training with `--gradient_checkpointing`, which recomputes activations to save memory."


def setting_of(row: dict) -> tuple:
    """What names a row."""
    return tuple(row[name] for name in _SETTING)


def row_of(rows: list[dict], row: dict) -> dict | None:
    """The row of the same setting, if there is one."""
    return next((found for found in rows if setting_of(found) == setting_of(row)), None)


def page(document: dict) -> str:
    """All tables, in Markdown.

    Args:
        document: As in `gpu.json`.
    """
    rows = sorted(document["rows"], key=_order)
    torch = next((row["torch"] for row in rows if "torch" in row), "not run")
    versions = f"TensorFlow {document['tensorflow']}, PyTorch {torch}"
    lines = [
        "# BERT on a GPU, against PyTorch\n",
        f"GPU: {document['gpu']}, driver {document['driver']}; {document['processor']}; {versions}.\n",
        *(f"    {command}" for command in document["commands"]),
        f"\n{_EXPLAINED}",
    ]
    for name in ("training", "inference"):
        found = [row for row in rows if row["pass"] == name]
        if found:
            lines += [f"## {name.capitalize()}, the best batch\n", f"{_OF_BEST}\n", _best(found), ""]
            lines += [f"## {name.capitalize()}, all batches\n", _all(found), ""]
    for name, title, explained in (
        ("auto", "The micro-batch that `auto` finds", _OF_AUTO),
        ("checkpointing", "Gradient checkpointing", _OF_CHECKPOINTING),
    ):
        found = [row for row in rows if row["pass"] == name]
        if found:
            lines += [f"## {title}\n", f"{explained}\n", _all(found), ""]
    return "\n".join([*lines, *_failures(rows)])


def _order(row: dict) -> tuple:
    ranks = [_ORDERS[name].index(row[name]) for name in ("pass", "model")]
    return (*ranks, row["seq_length"], _ORDERS["precision"].index(row["precision"]), row["batch_size"], row["steps"])


def _groups(rows: list[dict], *names: str) -> list[list[dict]]:
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: [row[name] for name in names])]


def _all(rows: list[dict]) -> str:
    """A line for each setting of a pass, a column for each way."""
    ways = [(side, way) for side, ways in WAYS[rows[0]["pass"]].items() for way in ways]
    is_auto, has_peer = rows[0]["pass"] == "auto", any(side == "torch" for side, _ in ways)
    head = [
        *_HEADS,
        "global batch" if is_auto else "batch",
        *["micro-batch"] * is_auto,
        *(f"{_SIDES[side]}, {way}" for side, way in ways),
    ]
    lines = []
    for group in _groups(rows, "model", "seq_length", "precision", "batch_size", "steps", "device"):
        found = {(row["side"], row["way"]): row for row in group}
        line = [
            *_setting_cells(group[0]),
            f"{group[0]['batch_size']:,}",
            *([_micro_batch(group[0])] if is_auto else []),
        ]
        line += [_cell(found.get(way)) for way in ways]
        best = [_fastest([row for row in group if row["side"] == side]) for side in _SIDES]
        lines.append(line + [_ratio(*best)] * has_peer)
    return table(head + ["ratio"] * has_peer, lines)


def _best(rows: list[dict]) -> str:
    """A line for each setting of a pass, without regard to the batch."""
    head, lines = [*_HEADS], []
    head += [f"{name}, best" for name in _SIDES.values()] + ["ratio"]
    head += [f"{name}, largest batch" for name in _SIDES.values()]
    for group in _groups(rows, "model", "seq_length", "precision"):
        sides = [[row for row in group if row["side"] == side] for side in _SIDES]
        best = [_fastest(side) for side in sides]
        cells = [f"{r['examples_per_second']:,.1f} ({r['batch_size']:,}, {r['way']})" if r else "–" for r in best]
        lines.append([*_setting_cells(group[0]), *cells, _ratio(*best), *map(_largest, sides)])
    return table(head, lines)


def _setting_cells(row: dict) -> list[str]:
    return [row["model"], str(row["seq_length"]), row["precision"]]


def _fastest(rows: list[dict]) -> dict | None:
    done = [row for row in rows if row["status"] == "done"]
    return max(done, key=lambda row: row["examples_per_second"], default=None)


def _ratio(own: dict | None, peer: dict | None) -> str:
    return f"{own['examples_per_second'] / peer['examples_per_second']:.2f}" if own and peer else "–"


def _largest(rows: list[dict]) -> str:
    """The largest batch that fits in any way; "or more" if memory suffices for all that were tried."""
    done = max((row["batch_size"] for row in rows if row["status"] == "done"), default=0)
    beyond = [row for row in rows if row["batch_size"] > done and row.get("reason") == OUT_OF_MEMORY]
    if not done:
        return "none" if beyond else "–"
    return f"{done:,}" + ("" if beyond else " or more")


def _cell(row: dict | None) -> str:
    if row is None:
        return "–"
    if row["status"] != "done":
        return OUT_OF_MEMORY if row["reason"] == OUT_OF_MEMORY else "failed"
    memory = row.get("peak_memory_bytes")
    return f"{row['examples_per_second']:,.1f}" + (f"; {memory / 2**30:.2f}" if memory else "")


def _micro_batch(row: dict) -> str:
    return f"{row['batch_size'] // row['micro_batches']:,}" if row["status"] == "done" else "–"


def _failures(rows: list[dict]) -> list[str]:
    """Why rows failed, but for memory."""
    failed = [row for row in rows if row["status"] != "done" and row["reason"] != OUT_OF_MEMORY]
    names = ("pass", "model", "seq_length", "precision", "batch_size", "side", "way")
    lines = [f"- {' '.join(str(row[name]) for name in names)}: {row['reason']}" for row in failed]
    return ["## Failures\n", *lines, ""] if lines else []
