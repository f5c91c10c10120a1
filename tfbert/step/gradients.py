"""Gradients of one step, as free functions over tensors: split, accumulate, reduce, measure, clip. TensorFlow alone.

The order in a step is: count what has weight in the *global* batch -> scaled loss of each micro-batch, divided by that
count -> sum its gradients in float32 -> all-reduce (sum) -> unscale -> clip by global norm -> apply. One count for all
makes the update independent of how the batch was split. Counting first keeps float16 gradients as small as those of a
mean, so that the usual initial loss scale does not overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_PACKS = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=4 << 20)
LossFn = Callable[[Any, Any, Any, tf.Tensor | int], tuple[tf.Tensor, tf.Tensor, Any]]
"""`(inputs, labels, weights, micro_batch_index) -> (scaled_loss [], losses [terms], predictions [rows, ...])`, where
the losses of all micro-batches and replicas add up to those of the step."""


def num_rows_of(tensors: Any) -> tf.Tensor:
    """Rows of the first of some tensors, int32 `[]`."""
    return tf.shape(next(tensor for tensor in tf.nest.flatten(tensors) if tensor is not None))[0]


def split_rows(data: Any, weights: Any, num_micro_batches: int) -> tuple[Any, Any]:
    """Cuts rows into micro-batches of one size, which is at least 1: the last ones are filled with rows of weight 0.

    Those repeat a tensor's last row: a model may have no answer for a row of zeros, such as the mean of a text in which
    every token is padding. Only where there is no row to repeat are they zeros; see `nothing_if_empty`.

    Args:
        data: Structure of tensors `[rows, ...]`, whose numbers of rows may differ, as in packed inputs and labels.
        weights: Structure of tensors `[rows, ...]`.
        num_micro_batches: How many parts to make.

    Returns:
        Both, as tensors `[num_micro_batches, rows of one, ...]`; for a single one, `[rows, ...]`.
    """

    def split(tensor: tf.Tensor, is_weight: bool) -> tf.Tensor:
        num_rows = tf.shape(tensor)[0]
        size = tf.maximum((num_rows + num_micro_batches - 1) // num_micro_batches, 1)
        and_zeros = tf.pad(tensor, [[0, 1], *[[0, 0]] * (tensor.shape.rank - 1)])
        fill = num_rows if is_weight else tf.maximum(num_rows - 1, 0)
        rows = tf.minimum(tf.range(num_micro_batches * size), fill)
        return tf.gather(and_zeros, rows if num_micro_batches == 1 else tf.reshape(rows, [num_micro_batches, -1]))

    return (
        tf.nest.map_structure(lambda tensor: split(tensor, is_weight=False), data),
        tf.nest.map_structure(lambda tensor: split(tensor, is_weight=True), weights),
    )


def nothing_if_empty(grads: list[tf.Tensor | None], weights: Any) -> list[tf.Tensor | None]:
    """The gradients if any row has weight, else exact zeros: rows that only fill a share may give any, even NaN."""
    counts = tf.reduce_any([tf.reduce_any(each != 0) for each in tf.nest.flatten(weights)])
    return [g if g is None else tf.where(counts, g, tf.zeros([], g.dtype)) for g in grads]


def accumulate(
    loss_fn: LossFn,
    variables: list[tf.Variable],
    inputs: Any,
    labels: Any,
    weights: Any,
    *,
    num_micro_batches: int,
    autograph: bool = True,
) -> tuple[list[tf.Tensor | None], tf.Tensor, Any]:
    """Sums the gradients of a replica's rows, one micro-batch after the other, in float32.

    Args:
        loss_fn: Computes one micro-batch.
        variables: What to differentiate by.
        inputs: Structure of tensors, as `split_rows` makes them.
        labels: Structure of tensors, likewise.
        weights: Structure of float32 tensors, likewise.
        num_micro_batches: How many parts to compute one at a time.
        autograph: Whether `loss_fn` may branch on tensors in Python.

    Returns:
        Dense float32 gradients of the scaled loss, one for each variable (None where the loss does not depend on it);
        the losses `[terms]`; the predictions `[rows of all parts, ...]`.
    """

    # Called in two places below: as a tf.function it is traced once.
    @tf.function(autograph=autograph)
    def gradients_of(part: tuple, index: tf.Tensor | int) -> tuple[list[tf.Tensor | None], tf.Tensor, Any]:
        with tf.GradientTape() as tape:
            scaled, loss, predictions = loss_fn(*part, index)
        grads = tape.gradient(scaled, variables)
        dense = [g if g is None else tf.cast(tf.convert_to_tensor(g), tf.float32) for g in grads]
        return dense, loss, predictions

    if num_micro_batches == 1:
        return gradients_of((inputs, labels, weights), 0)

    def part(index: tf.Tensor) -> tuple:
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, index), (inputs, labels, weights))

    # The first micro-batch runs before the loop: its results give the loop's structure and save a round of zeros.
    grads, loss, predictions = gradients_of(part(tf.constant(0)), tf.constant(0))
    outputs = tf.nest.map_structure(
        lambda p: tf.TensorArray(p.dtype, num_micro_batches, element_shape=p.shape).write(0, p), predictions
    )

    def body(index, sums, loss_so_far, outputs):
        grads, loss, predictions = gradients_of(part(index), index)
        outputs = tf.nest.map_structure(lambda array, p: array.write(index, p), outputs, predictions)
        found = [g for g in grads if g is not None]
        return index + 1, [s + g for s, g in zip(sums, found, strict=True)], loss_so_far + loss, outputs

    # The second micro-batch must not begin before the first is done, or both are in memory at once.
    found = [g for g in grads if g is not None]
    with tf.control_dependencies([loss, *found]):
        second = tf.identity(tf.constant(1))
    _, found, loss, outputs = tf.while_loop(
        lambda index, *_: index < num_micro_batches,
        body,
        (second, found, loss, outputs),
        parallel_iterations=1,
        maximum_iterations=num_micro_batches - 1,
    )

    def join(array: tf.TensorArray) -> tf.Tensor:
        stacked = array.stack()
        return tf.reshape(stacked, tf.concat([[-1], tf.shape(stacked)[2:]], axis=0))

    sums = iter(found)
    return [g if g is None else next(sums) for g in grads], loss, tf.nest.map_structure(join, outputs)


def all_reduce_sum(tensors: list[tf.Tensor], dtype: tf.DType | None = None) -> list[tf.Tensor]:
    """Sums each tensor over all replicas; call it in a replica context, outside any XLA function.

    TensorFlow sends the last ones first, in packs, each as soon as it is computed: of gradients in the order of a
    model's layers, the first packs travel while the backward pass still computes the others.

    Args:
        tensors: All of one dtype.
        dtype: What is sent and added up; None for the tensors' own. The sums have that of the tensors again.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    sent = [tf.cast(tensor, dtype or tensor.dtype) for tensor in tensors]
    over_network = isinstance(context.strategy, tf.distribute.MultiWorkerMirroredStrategy)
    tables = [i for i, tensor in enumerate(sent) if over_network and is_table(tensor)]
    whole = [tensor for i, tensor in enumerate(sent) if i not in tables]
    sums = context.all_reduce(tf.distribute.ReduceOp.SUM, whole, _PACKS) if whole else []
    for i in tables:  # In the order of `sent`: each goes to its place.
        sums.insert(i, sum_of_rows_that_occur(sent[i]))
    return [tf.cast(total, tensor.dtype) for total, tensor in zip(sums, tensors, strict=True)]


def is_table(tensor: tf.Tensor) -> bool:
    """Whether this may be the gradient of a table of embeddings, most of whose rows a batch does not use."""
    return tensor.shape.rank == 2 and tensor.shape.is_fully_defined() and tensor.shape[0] >= 8 * tensor.shape[1]


def sum_of_rows_that_occur(table: tf.Tensor) -> tf.Tensor:
    """The sum of `table`, `[rows, width]`, over all replicas; rows that are zero on all of them are not sent.

    Of MiniLM's 30,522 words, two batches of 32 rows of SST-2 have some 700: 1 MB in place of 47. The sum is the same,
    row by row. One number for each row is sent first.
    """
    context = tf.distribute.get_replica_context()
    # The first row always goes along: there is always something to send.
    occurs = tf.reduce_any(table != 0, axis=1) | tf.one_hot(0, table.shape[0], True, False)
    (occurs,) = context.all_reduce(tf.distribute.ReduceOp.SUM, [tf.cast(occurs, tf.float32)])
    rows = tf.where(occurs > 0)
    (total,) = context.all_reduce(tf.distribute.ReduceOp.SUM, [tf.gather_nd(table, rows)])
    return tf.scatter_nd(rows, total, tf.shape(table, tf.int64))


def sum_and_count_before(values: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | int]:
    """Sums over all replicas, and the number of items on the replicas before this one, in one exchange.

    Args:
        values: float32 `[n]`, to sum.
        count: int32 `[]`, items on this replica.

    Returns:
        The sums, and the number of items before, int64 `[]`: 0 for the first replica, a Python number if it is alone.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values, 0
    replicas = tf.range(context.num_replicas_in_sync)
    own = tf.cast(tf.where(replicas == context.replica_id_in_sync_group, count, 0), tf.float32)
    (sums,) = all_reduce_sum([tf.concat([values, own], axis=0)])
    sums, shares = tf.split(sums, [tf.size(values), context.num_replicas_in_sync])
    before = tf.where(replicas < context.replica_id_in_sync_group, shares, 0.0)
    return sums, tf.cast(tf.reduce_sum(before), tf.int64)


def clip_coefficient(norm: tf.Tensor, max_norm: float) -> tf.Tensor:
    """The factor that brings a gradient of global norm `norm` down to `max_norm` (Pascanu et al. 2013); 1 if below.

    Args:
        norm: float32 `[]`.
        max_norm: Largest norm wanted; 0 for no clipping.
    """
    if not max_norm:
        return tf.ones([])
    return max_norm / tf.maximum(norm, max_norm)
