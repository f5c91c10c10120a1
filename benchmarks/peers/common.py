"""What the training peers share: the rows that tfbert takes from the same file, and their classes."""

from __future__ import annotations

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.data.files import RawTable  # noqa: E402
from tfbert.data.labels import canonical  # noqa: E402
from tfbert.tasks.classes import is_number


def chosen(count: int, limit: int) -> np.ndarray:
    """The indices of `limit` rows out of `count`, in order: those that tfbert's `--max_train_examples` and
    `--max_eval_examples` keep. A limit of 0: all."""
    order = np.random.Generator(np.random.PCG64(0)).permutation(count)
    return np.sort(order[: limit or count])


def label_meanings(table: RawTable) -> dict[str, dict]:
    """The fields of a configuration that name the classes of a file, in tfbert's order."""
    names = sorted(set(map(canonical, table.labels)), key=float if all(map(is_number, table.labels)) else None)
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
