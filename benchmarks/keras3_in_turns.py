"""FineTuner's step beside plain Keras 3's `fit`, in turns: the same KerasHub BERT, batches, optimizer and clipping.

    python benchmarks/keras3_in_turns.py

A turn is one epoch of `--steps` updates by one side, then by the other; which begins alternates. Each combination of
gradient accumulation, precision and XLA has a process of its own, in which both sides train a BERT of MiniLM's size
(6 layers, 384 wide) with random weights, AdamW and clipping by global norm. Where gradients are
accumulated over N micro-batches, plain Keras gets batches an Nth as large and `gradient_accumulation_steps=N` in its
optimizer, on one device, where that works. An update is 32 rows on either side. Writes a file to benchmarks/results/
with wall time and CPU seconds, those in the kernel apart: on a busy machine the CPU seconds say more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from results_page import beginning, default_output, table  # noqa: E402

ROWS, VOCABULARY = 32, 30522
SIDES = ("Keras 3", "FineTuner")


def main() -> None:
    """Measures one combination, or starts a process for each and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accumulation", default="1,4", help="numbers of micro-batches")
    parser.add_argument("--precision", default="float32,mixed_bfloat16")
    parser.add_argument("--xla", default="off,on")
    parser.add_argument("--width", type=int, default=64, help="tokens of a row")
    parser.add_argument("--steps", type=int, default=8, help="updates of a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--keep_freed_memory", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--output", type=pathlib.Path, default=default_output("keras3-speed"))
    parser.add_argument("--measure", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measured(args, *args.measure.split(","))))
        return
    found = {}
    for cell in itertools.product(args.accumulation.split(","), args.precision.split(","), args.xla.split(",")):
        command = [sys.executable, __file__, *sys.argv[1:], f"--measure={','.join(cell)}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[cell] = json.loads(done.stdout.splitlines()[-1])
        print(cell, summary(found[cell]), flush=True)
    del args.measure
    args.output.write_text("\n\n".join(page(args, found)) + "\n", encoding="utf-8")
    print(args.output.read_text(encoding="utf-8"))


def measured(args: argparse.Namespace, accumulation: str, precision: str, xla: str) -> dict[str, list[list[float]]]:
    """For each side, the seconds (wall, user, kernel) of each turn; the load average at the end."""
    import tfbert

    if args.keep_freed_memory:
        tfbert.keep_freed_memory()
    import keras

    keras.config.set_dtype_policy(precision)
    parts = int(accumulation)
    trained = {
        "Keras 3": (plain(args, parts, xla == "on"), batches(args, ROWS // parts, args.steps * parts)),
        "FineTuner": (tuner(args, parts, xla == "on"), batches(args, ROWS, args.steps)),
    }
    seconds = {side: [] for side in SIDES}
    for turn in range(-1, args.turns):  # The first traces and compiles.
        for side in SIDES[:: -1 if turn % 2 else 1]:
            model, data = trained[side]
            spent = timed(lambda model=model, data=data: model.fit(data, verbose=0))
            if turn >= 0:
                seconds[side].append(spent)
    return seconds | {"load": list(os.getloadavg())}


def timed(function) -> tuple[float, float, float]:
    """Seconds of a call: wall, user, kernel."""
    from tfbert.measure import cpu_seconds

    start, before = time.perf_counter(), cpu_seconds()
    function()
    cpu = cpu_seconds() - before
    return time.perf_counter() - start, *cpu.tolist()


def batches(args: argparse.Namespace, rows: int, count: int):
    """Random tokens, the same number in each row.

    Without tf.data's autotuner: at the end of an epoch its thread may sleep on for as long as the epoch took, on both
    sides alike (`tfbert/private.py`), and a turn by the clock would measure that.
    """
    import numpy as np
    import tensorflow as tf

    from tfbert.private import without_autotune

    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCABULARY, (rows * count, args.width)).astype(np.int32)
    inputs = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids * 0 + 1}
    labels = rng.integers(0, 2, rows * count)
    updates = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(rows, drop_remainder=True)
    return without_autotune(updates.cache().prefetch(2))


def bert(args: argparse.Namespace):
    """KerasHub's classifier of MiniLM's size."""
    import keras
    import keras_hub

    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=VOCABULARY,
        num_layers=args.layers,
        num_heads=12,
        hidden_dim=384,
        intermediate_dim=1536,
        max_sequence_length=512,
        dropout=args.dropout,
    )
    options = {"num_classes": 2, "dropout": args.dropout, "preprocessor": None}
    return keras_hub.models.BertTextClassifier(backbone=backbone, **options)


def settings(**optimizer) -> dict:
    """Arguments of `compile`, for either side."""
    import keras

    return {
        "optimizer": keras.optimizers.AdamW(3e-5, weight_decay=0.01, **optimizer),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
    }


def plain(args: argparse.Namespace, parts: int, xla: bool):
    """The model alone."""
    model = bert(args)
    accumulated = {"gradient_accumulation_steps": parts} if parts > 1 else {}
    model.compile(**settings(global_clipnorm=1.0, **accumulated), jit_compile=xla)
    return model


def tuner(args: argparse.Namespace, parts: int, xla: bool):
    """The model in a FineTuner."""
    import tfbert

    model = tfbert.FineTuner(bert(args), gradient_accumulation_steps=parts, max_grad_norm=1.0, jit_compile=xla)
    model.compile(**settings())
    return model


def ratios(seconds: dict[str, list[list[float]]], places: tuple[int, ...]) -> list[float]:
    """How much longer plain Keras took in each turn, by the sum of some of the seconds."""
    pairs = zip(*(seconds[side] for side in SIDES), strict=True)
    return [sum(one[place] for place in places) / sum(other[place] for place in places) for one, other in pairs]


def summary(seconds: dict[str, list[list[float]]]) -> str:
    """Medians of the turns' ratios."""
    wall, cpu = (statistics.median(ratios(seconds, places)) for places in ((0,), (1, 2)))
    return f"wall {wall:.3f}, CPU {cpu:.3f}"


def page(args: argparse.Namespace, found: dict[tuple[str, ...], dict]) -> list[str]:
    """The results as Markdown, one paragraph each."""
    import importlib.metadata

    words = [f"{name} {importlib.metadata.version(name)}" for name in ("keras", "keras-hub")]
    head = ["micro-batches", "precision", "XLA", "CPU: ratio", "lowest, highest", "wall: ratio", "lowest, highest"]
    head += ["CPU ms an update: Keras 3, FineTuner", "of it in the kernel", "load"]
    lines = []
    for (parts, precision, xla), seconds in found.items():
        cpu, wall = ratios(seconds, (1, 2)), ratios(seconds, (0,))
        line = [parts, precision, xla]
        for each in (cpu, wall):
            line += [f"{statistics.median(each):.2f}", f"{min(each):.2f}, {max(each):.2f}"]
        for places in ((1, 2), (2,)):
            turns = {side: [sum(turn[place] for place in places) for turn in seconds[side]] for side in SIDES}
            line.append(", ".join(f"{1000 * statistics.median(turns[side]) / args.steps:.0f}" for side in SIDES))
        lines.append([*line, f"{seconds['load'][0]:.1f}"])
    return [
        *beginning("FineTuner beside plain Keras 3", "keras3_in_turns.py", args, *words),
        f"KerasHub's BERT of {args.layers} layers, 384 wide; {ROWS} rows of {args.width} tokens an update; AdamW, "
        f"clipping, dropout {args.dropout}, one device, tf.data's autotuner off on both sides. Ratios are plain Keras "
        "3's time over FineTuner's, so that above 1 FineTuner is faster: the median, the lowest and the highest of the "
        "turns. The load is the machine's average over a minute at the end, of which one side uses about 2.",
        table(head, lines),
    ]


if __name__ == "__main__":
    main()
