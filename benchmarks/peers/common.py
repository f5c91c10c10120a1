"""What the training peers share: the rows that tfbert takes from the same file."""

import numpy as np


def chosen(count: int, limit: int) -> np.ndarray:
    """The indices of `limit` rows out of `count`, in order: those that tfbert's `--max_train_examples` and
    `--max_eval_examples` keep. A limit of 0: all."""
    order = np.random.Generator(np.random.PCG64(0)).permutation(count)
    return np.sort(order[: limit or count])
