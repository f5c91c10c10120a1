"""A tf.data.Dataset of texts and labels, read to its end -> a table in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfbert.config.types import shown
from tfbert.data.columns import WORDS_NAMES
from tfbert.data.given_table import GivenTable, make_table, plain
from tfbert.errors import UsageError

_MOST_ROWS = 1_000_000
"""Rows that are read of a data set that does not say how many it has: it may have no end."""
_BATCH = 1000
_FORMS = "Pass one of (text, label), ((text, text), label), (words, tags) or dictionaries of columns"


def table_of_tf_data(argument: str, dataset: tf.data.Dataset, *, holds_sentences: bool = False) -> GivenTable:
    """A table of a data set, batched or not; it is read once, as a shuffled one has another order each time.

    Args:
        argument: What messages call the data.
        dataset: Its elements are pairs or dictionaries.
        holds_sentences: Whether a pair of lists is a sentence with its tags, rather than a batch of texts.

    Raises:
        UsageError: for one without an end, or with other elements.
    """
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise UsageError(f"{argument} must have an end. Received: {argument}={shown(dataset)}. Drop its repeat().")
    names, flat = _columns(argument, dataset.element_spec, holds_sentences)
    specs = dict(zip(names, flat(dataset.element_spec), strict=True))
    depth = _depth(argument, specs, holds_sentences)
    is_single = [_ends_in_one(spec, depth) for spec in specs.values()]
    if not depth and all(isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0 for spec in specs.values()):
        dataset, depth = dataset.batch(_BATCH), 1  # Ten times as fast.
    rows: list[Sequence[Any]] = []
    for element in dataset.as_numpy_iterator():
        values = [plain(value) for value in flat(element)]
        for row in _rows(values) if depth else [values]:
            rows.append([v[0] if single else v for v, single in zip(row, is_single, strict=True)])
        if len(rows) > _MOST_ROWS and dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY:
            raise UsageError(
                f"{argument} must have an end. Received: a tf.data.Dataset of more than {_MOST_ROWS:,} rows that does "
                "not say how many it has. Apply tf.data.experimental.assert_cardinality(n) to it."
            )

    def read(places: list[int]) -> Iterator[Sequence[Any]]:
        return ([row[place] for place in places] for row in rows)

    return make_table(argument, "tf.data.Dataset", names, len(rows), read)


def _columns(argument: str, spec: Any, holds_sentences: bool) -> tuple[list[str], Any]:
    """The names of the columns of elements, and a function that lists an element's values."""
    if isinstance(spec, Mapping):
        names = list(spec)
        return names, lambda element: [element[name] for name in names]
    if not isinstance(spec, tuple) or len(spec) != 2:
        what = "without labels" if not isinstance(spec, tuple) else f"of {len(spec)} parts"
        raise UsageError(
            f"A tf.data.Dataset has pairs or dictionaries as elements. Received: {argument} with elements {what}: "
            f"{shown(spec)}. {_FORMS}."
        )
    inputs, _ = spec
    if isinstance(inputs, Mapping):
        names = list(inputs)
        return [*names, "label"], lambda element: [*(element[0][name] for name in names), element[1]]
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise UsageError(f"A pair has two texts. Received: {argument} with elements {shown(spec)}. {_FORMS}.")
        return ["text", "text_pair", "label"], lambda element: [*element[0], element[1]]
    return (["tokens", "tags"] if holds_sentences else ["text", "label"]), list


def _depth(argument: str, specs: Mapping[str, Any], holds_sentences: bool) -> int:
    """0 for a data set whose elements are rows; 1 for batches of rows."""
    leaves = {name: tf.nest.flatten(spec) for name, spec in specs.items()}
    for name, found in leaves.items():
        if any(isinstance(spec, tf.SparseTensorSpec) or spec.shape.rank is None for spec in found):
            raise UsageError(
                "The tensors of a data set must be dense or ragged, and of known rank. "
                f"Received: {argument} with {name!r}: {shown(specs[name])}. Convert them with map(...)."
            )
    ranks = {name: min(spec.shape.rank for spec in found) for name, found in leaves.items()}
    words = next((name for name in specs if str(name).lower() in WORDS_NAMES[0]), None)
    if words is None and not holds_sentences:
        depth = min(ranks.values())
    else:
        depth = (ranks[words] if words is not None else min(ranks.values())) - 1
    if not 0 <= depth <= 1:
        raise UsageError(
            "A data set has a row, or a batch of rows, in each element. "
            f"Received: {argument} with {shown(dict(specs))}. Call its unbatch() or map(...)."
        )
    return depth


def _ends_in_one(spec: Any, depth: int) -> bool:
    """Whether each row has a list of one number, as Keras gives labels of two classes."""
    is_tensor = isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string
    return is_tensor and spec.shape.rank == depth + 1 and spec.shape[-1] == 1


def _rows(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The rows of a batch, whose values are lists, or dictionaries of lists."""
    return zip(*(_of_batch(value) for value in values), strict=True)


def _of_batch(value: Any) -> list[Any]:
    if not isinstance(value, dict):
        return value
    columns = [_of_batch(inner) for inner in value.values()]
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
