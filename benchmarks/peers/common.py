"""What the training peers share: their arguments, and the rows that tfbert takes from the same file."""

import argparse
import pathlib

import numpy as np


def arguments(description: str) -> argparse.Namespace:
    """The arguments of a training peer."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max_train_examples", type=int, default=0)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def read(path: str, limit: int = 0) -> tuple[list[str], np.ndarray]:
    """Texts and labels of a tab-separated file with a header, the label first, as GLUE's SST-2.

    Args:
        path: The file.
        limit: As `chosen` takes it.
    """
    lines = pathlib.Path(path).read_bytes().decode("utf-8").split("\n")[1:]
    rows = [line.rstrip("\r").split("\t") for line in lines if line.strip()]
    rows = [rows[i] for i in chosen(len(rows), limit)]
    return [text for _, text in rows], np.array([int(label) for label, _ in rows])


def chosen(count: int, limit: int) -> np.ndarray:
    """The indices of `limit` rows out of `count`, in order: those that tfbert's `--max_train_examples` and
    `--max_eval_examples` keep. A limit of 0: all."""
    order = np.random.Generator(np.random.PCG64(0)).permutation(count)
    return np.sort(order[: limit or count])
