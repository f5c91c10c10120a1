"""What the TensorFlow peers share: their jobs and arguments, rows, batches of like length, and speeds. It imports no
Keras: each peer has its own."""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from common import chosen, label_meanings

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.data.files import (
    find_columns,  # noqa: E402
    read_file,  # noqa: E402
)
from tfbert.data.labels import canonical  # noqa: E402
from tfbert.tasks.metrics import classification_metrics  # noqa: E402

WEIGHT_DECAY, CLIP = 0.01, 1.0
_STARTING = 10
"""Updates that the steady speed leaves out, as tfbert's does; half of all updates if there are fewer than 20."""
_MOST_BATCHES = 50
"""Batches of a pool, as in the `group_by_length` of Hugging Face's Trainer."""
_COMPILED_WIDTHS = 16
"""XLA compiles each width: the pools' are rounded up to a multiple of this, so that there are few."""

Predict = Callable[[list[str]], np.ndarray]
"""Texts -> their logits, `[texts, classes]`, in order; tokenizes them."""


def run_job(
    description: str,
    fit: Callable[[argparse.Namespace, list[str], np.ndarray], dict],
    load: Callable[[argparse.Namespace], Predict],
    *,
    paddings: Sequence[str],
    packages: Sequence[str],
) -> None:
    """Reads a peer's arguments, does the job, and prints the results as a JSON line.

    Args:
        description: The script's docstring.
        fit: Trains on texts and classes, int64 `[texts]`, saves the model, and returns `speeds`.
        load: What predicts with a model that `fit` saved.
        paddings: How the peer can pad its batches.
        packages: Names of packages whose versions are told.
    """
    args = arguments(description, paddings)
    if args.job == "train":
        found = fit(args, *labelled(args.train_file, args.max_train_examples))
    elif args.job == "evaluate":
        texts, labels = labelled(args.validation_file, args.max_eval_examples)
        found = {f"eval_{name}": value for name, value in classification_metrics(load(args)(texts), labels).items()}
    else:
        found = timed(args, load(args))
    versions = {name: importlib.metadata.version(name) for name in ("tensorflow", *packages)}
    print(json.dumps(found | {"versions": versions}))


def arguments(description: str, paddings: Sequence[str]) -> argparse.Namespace:
    """The arguments of a peer."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["train", "evaluate", "predict"])
    parser.add_argument("--model", required=True)
    for name in ("output_dir", "train_file", "validation_file", "input_file"):
        parser.add_argument(f"--{name}", default="")
    for name in ("max_train_examples", "max_eval_examples"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--padding", choices=paddings, default=paddings[0])
    parser.add_argument("--jit_compile", action="store_true", help="XLA, in training and in prediction")
    parser.add_argument("--num_train_epochs", type=int, default=1)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--global_batch_size", type=int, default=32, help="of prediction too")
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def labelled(path: str, limit: int) -> tuple[list[str], np.ndarray]:
    """The single texts of a file that tfbert would take, and their classes, int64 `[texts]`."""
    table = read_file(path)
    ids = label_meanings(table)["label2id"]
    kept = chosen(len(table), limit)
    return [table.text[row] for row in kept], np.array([ids[canonical(table.labels[row])] for row in kept])


def timed(args: argparse.Namespace, predict: Predict) -> dict[str, float]:
    """Examples per second on the objects in `--input_file`, JSON lines: with tracing and compiling, and once more."""
    rows = [json.loads(line) for line in pathlib.Path(args.input_file).read_text(encoding="utf-8").splitlines()]
    (column,), _ = find_columns(args.input_file, list(rows[0]), require_label=False)
    found = {}
    for name in ("examples_per_second", "examples_per_second_again"):
        start = time.perf_counter()
        predict([row[column] for row in rows])
        found[name] = round(len(rows) / (time.perf_counter() - start), 2)
    return found


def num_updates(args: argparse.Namespace, num_rows: int) -> int:
    """Updates of a run whose epochs have full batches only."""
    return args.num_train_epochs * (num_rows // args.global_batch_size)


def speeds(args: argparse.Namespace, started: float, ends: Sequence[float]) -> dict[str, float]:
    """Rows per second of a run, from when `fit` was called and when each update ended, in seconds."""
    skipped = min(_STARTING, len(ends) // 2)
    seconds = time.perf_counter() - started
    steady = args.global_batch_size * (len(ends) - skipped) / (ends[-1] - ends[skipped - 1]) if skipped else math.nan
    return {
        "global_step": len(ends),
        "seconds": round(seconds, 1),
        "rows_per_second": round(args.global_batch_size * len(ends) / seconds, 2),
        "rows_per_second_steady": round(steady, 2),
    }


def pools(args: argparse.Namespace, rows: Sequence[Sequence[int]]) -> Callable[[], list[np.ndarray]]:
    """The batches of the next epoch, as rows' indices: full ones of like length, as the Trainer's `group_by_length`
    makes them. Pools of rows in random order are each sorted from long to short."""
    size, epochs = args.global_batch_size, itertools.count()

    def batches() -> list[np.ndarray]:
        order = np.random.default_rng([args.seed, next(epochs)]).permutation(len(rows))
        pool = size * max(1, min(_MOST_BATCHES, len(rows) // (4 * size)))
        by_length = [
            row
            for start in range(0, len(rows), pool)
            for row in sorted(order[start : start + pool], key=lambda row: -len(rows[row]))
        ]
        return list(np.reshape(by_length[: len(rows) // size * size], (-1, size)))

    return batches


def by_length(args: argparse.Namespace, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Batches of all rows from long to short, as their indices; the last may be short."""
    order = np.argsort([-len(row) for row in rows], kind="stable")
    return np.split(order, range(args.global_batch_size, len(rows), args.global_batch_size))


def dataset(
    args: argparse.Namespace,
    names: tuple[str, str, str],
    rows: Sequence[Sequence[int]],
    batches: Callable[[], list[np.ndarray]],
    labels: np.ndarray | None = None,
) -> tf.data.Dataset:
    """Batches padded to their longest row.

    Args:
        args: The peer's.
        names: What the model calls ids, mask and segments.
        rows: Token ids of each text.
        batches: The indices of the rows of each batch, anew for each epoch.
        labels: int64 `[rows]`; None: inputs only.
    """
    multiple = _COMPILED_WIDTHS if args.jit_compile else 1

    def arrays():
        for batch in batches():
            lengths = np.array([len(rows[row]) for row in batch])
            width = min(-(-lengths.max() // multiple) * multiple, args.max_seq_length)
            ids = np.zeros((len(batch), width), np.int32)
            for place, row in enumerate(batch):
                ids[place, : lengths[place]] = rows[row]
            mask = (np.arange(width) < lengths[:, None]).astype(np.int32)
            inputs = dict(zip(names, (ids, mask, np.zeros_like(ids)), strict=True))
            yield inputs if labels is None else (inputs, labels[batch])

    signature = dict.fromkeys(names, tf.TensorSpec([None, None], tf.int32))
    if labels is not None:
        signature = signature, tf.TensorSpec([None], tf.int64)
    return tf.data.Dataset.from_generator(arrays, output_signature=signature).prefetch(tf.data.AUTOTUNE)
