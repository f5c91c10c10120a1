"""Whether the parts of a batch make the whole, found by values: no loss, layer or metric says it of itself.

A batch may be cut where a row's loss depends on that row alone, where what layers add to the loss is a mean over rows,
and where a metric's state is a sum over rows. At some of the first steps the same rows are computed once more: beside
others, and fewer at once. Rows beside others keep their places in tensors of the same shapes, so that noise and
rounding are the same, in 16 bits too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfbert.private import mask_of, with_mask
from tfbert.step.state import LayerState
from tfbert.step.values import refuse_unless_equal

_STEPS = (0, 1, 3, 7)
"""More than one: values may be equal by chance, as those of a head of zeros are, or of pairs within a margin."""


class Values(NamedTuple):
    """What some rows give.

    Attributes:
        losses: Each row's loss in each term, float32 `[terms, rows]`.
        again: The same, computed once more from the same predictions: a loss may draw numbers.
        alone: Those of the first half of the rows, computed from the same predictions without the others'.
        added: What each layer adds to the loss, `[layers]`.
    """

    losses: tf.Tensor
    again: tf.Tensor
    alone: tf.Tensor
    added: tf.Tensor


def is_due(step: tf.Tensor) -> tf.Tensor:
    """Whether to compare in this step, counted from 0; bool `[]`."""
    return tf.reduce_any(tf.equal(tf.cast(step, tf.int64), _STEPS))


def row_faults(
    values_of: Callable[[Any, tf.Tensor], Values],
    data: Any,
    num_micro_batches: int,
    layers: LayerState,
    *,
    takes_all: bool,
) -> tf.Tensor:
    """Compares a micro-batch's rows with the same beside others, and with half of them.

    Args:
        values_of: A `tf.function`, of rows, given the first one's number.
        data: Structure of tensors `[rows, ...]`, this replica's, at least one row.
        num_micro_batches: Parts that a step makes of them.
        layers: The model's.
        takes_all: Whether the loss may call the model, so that predictions alone do not decide it.

    Returns:
        float32 `[3]`, 1 for a fault: in the loss, in the model or its own loss, in what layers add.
    """
    tolerance = layers.rounding()
    rows = tf.nest.flatten(data)[0]
    count, largest = rows.shape[0], max
    if count is None:
        count, largest = tf.shape(rows)[0], tf.maximum
    takes_any = layers.take_any_number_of_rows()
    size = largest(-(-count // num_micro_batches), 2 if takes_any else 1)  # A single row shows nothing.
    first_half = size // 2
    numbers = tf.minimum(tf.range(size), count - 1)

    def of(numbers: tf.Tensor, first: tf.Tensor | int = 0) -> Values:
        rows = tf.nest.map_structure(lambda tensor: tf.gather(tensor, numbers), data)
        return values_of(rows, tf.cast(first, tf.int64))

    graph = values_of.get_concrete_function(
        tf.nest.map_structure(lambda tensor: tf.gather(tensor, numbers), data), tf.constant(0, tf.int64)
    ).graph
    written = [(variable, tf.identity(variable)) for variable in layers.written_in(graph)]
    whole = of(numbers)
    loss_looks_across = _apart(whole.losses[:, :first_half], whole.alone, tolerance)
    loss_looks_across &= ~_apart(whole.losses, whole.again, tolerance)
    model_looks_across = adds_no_mean = tf.constant(False)
    if not layers.drawing_in(graph):
        beside = of(tf.where(tf.range(size) % 2 == 1, numbers, numbers[-1]))  # Others before and after each that stays.
        model_looks_across = _apart(whole.losses[:, 1::2], beside.losses[:, 1::2], tolerance)
        num_added = whole.added.shape[0]
        if takes_any and (takes_all or num_added):
            half, tolerance = of(numbers[:first_half]), 10 * tolerance  # Tensors of other shapes are rounded otherwise.
            if takes_all:
                model_looks_across |= _apart(whole.losses[:, :first_half], half.losses, tolerance)
            if num_added:
                rest, in_all = of(numbers[first_half:], first_half), tf.cast(size, tf.float32)
                in_half = tf.cast(first_half, tf.float32)
                sums = half.added * in_half + rest.added * (in_all - in_half)
                adds_no_mean = _apart((whole.added * in_all)[:, None], sums[:, None], tolerance)
    for variable, before in written:
        variable.assign(before)
    return tf.cast(tf.stack([loss_looks_across, model_looks_across, adds_no_mean]), tf.float32)


def row_lines(losses: str, split: str) -> list[str]:
    """What each of `row_faults` means."""
    rule = "A row's loss must not depend on the rows beside it, or it depends on how a batch is split. "
    instead = f"{split}. Train with gradient_accumulation_steps=1 on one replica."
    return [
        f"{rule}Received: {losses}, which gives a row another loss if others are absent, {instead}",
        f"{rule}Received: a layer, or {losses}, that looks across rows, {instead}",
        "What layers add to the loss must be a mean over rows, or it depends on how a batch is split. "
        f"Received: an add_loss that gives for all rows no mean of what it gives for parts of them, {split}. "
        "Divide a sum by the number of rows, or train with gradient_accumulation_steps=1 on one replica.",
    ]


def metric_line(name: str, num_replicas: int) -> str:
    """What one of `metric_faults` means."""
    return (
        "Replicas add up a metric's state, which must be a sum over rows. "
        f"Received: metric {name!r}, whose state for all rows is no sum of parts' states, on {num_replicas} replicas. "
        "Return a value per row from a function, keep a sum and a count, or measure on one replica."
    )


def metric_faults(
    metrics: list[list[tf.Variable]], update: Callable[[Any], None], data: Any, num_rows: tf.Tensor
) -> tf.Tensor:
    """Whether states for all rows are those for parts of them added up, as replicas add theirs. They stay as they are.

    Args:
        metrics: Each one's variables.
        update: Adds labels, predictions and weights of rows to them.
        data: These: structures of tensors `[rows, ...]`, or None.
        num_rows: How many there are.

    Returns:
        float32 `[metrics]`, 1 for a fault.
    """
    half = (num_rows + 1) // 2

    def part(start: Any, stop: Any) -> Any:
        def cut(tensor: tf.Tensor | None) -> tf.Tensor | None:
            if tensor is None:
                return None
            mask = mask_of(tensor)
            return with_mask(tensor[start:stop], None if mask is None else mask[start:stop])

        return tf.nest.map_structure(cut, data)

    before = [[tf.identity(variable) for variable in each] for each in metrics]

    def states_after(rows: Any) -> list[list[tf.Tensor]]:
        update(*rows)
        found = [[tf.cast(tf.identity(variable), tf.float64) for variable in each] for each in metrics]
        for variables, values in zip(metrics, before, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return found

    states = [states_after(rows) for rows in (part(0, num_rows), part(0, half), part(half, num_rows))]
    faults = []
    for start, whole, one, other in zip(before, *states, strict=True):
        pairs = [
            (tf.reshape(all_, [1, -1]), tf.reshape(first + rest - tf.cast(none, tf.float64), [1, -1]))
            for none, all_, first, rest in zip(start, whole, one, other, strict=True)
        ]
        faults.append(tf.reduce_any([_apart(*pair, 1e-3) for pair in pairs] or [False]))
    return tf.cast(tf.stack(faults), tf.float32)


def _apart(one: tf.Tensor, other: tf.Tensor, tolerance: float) -> tf.Tensor:
    """Whether values `[terms, values]` of any term differ by more than its largest one times a tolerance; bool `[]`."""
    known = tf.math.is_finite(one), tf.math.is_finite(other)
    both, zero = known[0] & known[1], tf.zeros([], one.dtype)
    difference = tf.reduce_max(tf.where(both, tf.abs(one - other), zero), axis=1)
    size = tf.reduce_max(tf.where(both, tf.maximum(tf.abs(one), tf.abs(other)), zero), axis=1)
    return tf.reduce_any(difference > tolerance * size) | tf.reduce_any(known[0] != known[1])


def refused(faults: tf.Tensor, lines: list[str]) -> list[tf.Operation]:
    """Operations that end `fit` with the line of the first fault above 0; all replicas are given the same."""
    operations: list[tf.Operation] = []
    for index, line in enumerate(lines):
        with tf.control_dependencies(operations):
            operations.append(refuse_unless_equal(faults[index], 0.0, line))
    return operations
