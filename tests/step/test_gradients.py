"""The parts of a step against NumPy: filling, accumulation, sums over replicas, clipping."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import slow
from tests.support.either_keras import weights
from tests.support.models import strategy_of
from tfbert.step.gradients import (
    accumulate,
    all_reduce_sum,
    clip_coefficient,
    nothing_if_empty,
    split_rows,
    sum_and_count_before,
)


@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("num_micro_batches", [1, 2, 3, 6])
def test_accumulation_sums_the_gradients_of_the_scaled_loss(num_micro_batches, is_graph):
    """Weighted squared error of a linear model: gradients that NumPy can write down."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(6, 3)), rng.normal(size=6), rng.uniform(0, 2, 6)
    x, y, weights = (each.astype(np.float32) for each in drawn)
    kernel, bias, unused = tf.Variable([1.0, -2.0, 0.5]), tf.Variable(0.25), tf.Variable([[3.0, 4.0]])

    def loss_fn(inputs, labels, weights, micro_batch):
        predictions = tf.linalg.matvec(inputs["x"], kernel) + bias
        loss = tf.reduce_sum(weights * (predictions - labels) ** 2)
        return 8.0 * loss, loss, predictions

    def run(x, y, weights):
        return accumulate(loss_fn, [kernel, bias, unused], {"x": x}, y, weights, num_micro_batches=num_micro_batches)

    split = [num_micro_batches] if num_micro_batches > 1 else []
    parts = (part.reshape(*split, -1, *part.shape[1:]) for part in (x, y, weights))
    grads, loss, predictions = (tf.function(run, autograph=False) if is_graph else run)(*map(tf.constant, parts))
    error = x.astype(np.float64) @ kernel.numpy() + 0.25 - y
    np.testing.assert_allclose(grads[0], 8 * 2 * (weights * error) @ x, rtol=1e-5)
    np.testing.assert_allclose(grads[1], 8 * 2 * (weights * error).sum(), rtol=1e-5)
    assert grads[2] is None, "the loss does not depend on it"
    np.testing.assert_allclose(loss, (weights * error**2).sum(), rtol=1e-5)
    np.testing.assert_allclose(predictions, error + y, rtol=1e-5, atol=1e-6)


def test_micro_batches_are_computed_one_after_the_other():
    """What saves memory: the second must not begin before the first is done."""
    seen = []

    def loss_fn(inputs, labels, weights, micro_batch):
        tf.py_function(lambda i, rows: seen.append((int(i), rows.numpy().tolist())), [micro_batch, inputs], [])
        return variable * tf.reduce_sum(inputs), tf.zeros([]), inputs

    variable = tf.Variable(1.0)

    @tf.function(autograph=False)
    def run(rows):
        return accumulate(loss_fn, [variable], rows, rows, rows, num_micro_batches=3)

    _, _, predictions = run(tf.reshape(tf.range(6.0), [3, 2]))
    assert seen == [(0, [0.0, 1.0]), (1, [2.0, 3.0]), (2, [4.0, 5.0])]
    np.testing.assert_array_equal(predictions, np.arange(6.0))


def test_gradients_of_gathered_rows_are_dense_and_sums_are_float32():
    """2048 + 1 is 2048 in float16."""
    table, half = tf.Variable(tf.ones([5, 2])), tf.Variable(tf.ones([], tf.float16))

    def loss_fn(inputs, labels, weights, micro_batch):
        loss = tf.reduce_sum(tf.gather(table, inputs)) + tf.cast(tf.reduce_sum(labels * half), tf.float32)
        return loss, loss, inputs

    ids, numbers = tf.constant([[1], [1], [4], [0]]), tf.constant([[2048.0], [1.0], [1.0], [1.0]], tf.float16)
    (dense, summed), _, _ = accumulate(loss_fn, [table, half], ids, numbers, tf.ones([4, 1]), num_micro_batches=4)
    np.testing.assert_array_equal(dense, [[1, 1], [2, 2], [0, 0], [0, 0], [1, 1]])
    assert summed.dtype == tf.float32 and float(summed) == 2051.0


@pytest.mark.parametrize("rows, parts, size", [(5, 4, 2), (4, 4, 1), (0, 3, 1), (0, 1, 1), (7, 1, 7), (1, 4, 1)])
def test_split_rows_fills_with_the_last_row_at_weight_0(rows, parts, size):
    numbers = tf.range(6.0 * rows) + 1
    structure = {"a": tf.reshape(numbers, [rows, 2, 3]), "b": (tf.range(rows) + 7, tf.fill([rows], True))}
    split, weights = split_rows(structure, {"c": tf.fill([rows], 0.5), "d": tf.fill([rows, 2], 0.5)}, parts)
    for before, after in zip(tf.nest.flatten(structure), tf.nest.flatten(split), strict=True):
        leading = (parts, size) if parts > 1 else (size,)
        assert after.shape[: len(leading)] == leading and after.dtype == before.dtype
        after = after.numpy().reshape(parts * size, *before.shape[1:])
        np.testing.assert_array_equal(after[:rows], before)
        for row in after[rows:]:
            np.testing.assert_array_equal(row, before[-1] if rows else np.zeros(before.shape[1:]))
    expected = np.reshape([0.5] * rows + [0.0] * (parts * size - rows), leading)
    np.testing.assert_array_equal(weights["c"], expected)
    np.testing.assert_array_equal(weights["d"], np.stack([expected] * 2, axis=-1))


def test_gradients_of_rows_that_do_not_count_are_0():
    bad = [tf.constant([np.nan, 1.0]), None, tf.constant(np.inf)]
    for g in nothing_if_empty(bad, tf.zeros([3]))[::2]:
        np.testing.assert_array_equal(g, np.zeros(g.shape))
    for g, kept in zip(bad, nothing_if_empty(bad, tf.constant([0.0, 0.1])), strict=True):
        assert (kept is None) == (g is None)
        np.testing.assert_array_equal(kept, g)


def test_split_rows_keeps_what_is_known_of_the_shape():
    @tf.function(input_signature=[tf.TensorSpec([None, 3, None])])
    def split(tensor):
        parts, _ = split_rows(tensor, tf.ones([3]), 2)
        assert parts.shape.as_list() == [2, None, 3, None]
        return parts

    assert split(tf.ones([3, 3, 5])).shape == (2, 2, 3, 5)


def test_split_rows_takes_tensors_of_different_rows_and_texts():
    (texts, long), _ = split_rows((tf.constant(["a", "b", "c"]), tf.range(5)), tf.ones([3]), 4)
    np.testing.assert_array_equal(long, [[0, 1], [2, 3], [4, 4], [4, 4]])
    assert texts.numpy().tolist() == [[b"a"], [b"b"], [b"c"], [b"c"]]


@pytest.mark.parametrize(
    "norm, limit, expected", [(4.0, 1.0, 0.25), (0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (0.0, 1.0, 1.0), (9.0, 0.0, 1.0)]
)
def test_clip_coefficient(norm, limit, expected):
    assert float(clip_coefficient(tf.constant(norm), limit)) == expected


def on_replicas(replicas, compute):
    """Of each result that replicas compute, given their numbers: what they all have."""
    strategy = strategy_of(replicas)

    def each():
        return compute(tf.convert_to_tensor(tf.distribute.get_replica_context().replica_id_in_sync_group))

    results = tf.function(lambda: strategy.run(each), autograph=False)()
    return [strategy.experimental_local_results(result) for result in results]


def test_sums_of_what_was_rounded_to_bfloat16():
    """Many more numbers than a pack has; each replica gets the same."""
    rng = np.random.default_rng(0)
    shares = [rng.normal(size=(2, size)).astype(np.float32) for size in (3, 3_000_000, 5)]

    def summed(replica):
        return all_reduce_sum([tf.gather(share, replica) for share in shares], tf.bfloat16)

    for values, share in zip(on_replicas(2, summed), shares, strict=True):
        first, second = share.astype(tf.bfloat16.as_numpy_dtype)
        for value in values:
            assert value.dtype == tf.float32
            np.testing.assert_array_equal(value, (first + second).astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("used", [[0, 3, 7, 8, 39], []])
def test_of_a_table_only_rows_that_occur_are_sent_over_a_network(dtype, used, monkeypatch):
    """Rows of both replicas, of one, that cancel out, that are not finite; and a batch that uses no row."""
    real = tf.distribute.ReplicaContext.all_reduce
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", type(strategy_of(2)))

    def checked(context, op, tensors, *options):
        for tensor in tensors:
            assert tensor.shape != [40, 4]
            tf.debugging.assert_equal(tf.shape(tensor)[0], tensor.shape[0] or len(used) or 1)
        return real(context, op, tensors, *options)

    monkeypatch.setattr(tf.distribute.ReplicaContext, "all_reduce", checked)
    shares = np.zeros((2, 40, 4), np.float32)
    if used:
        shares[0, [3, 7, 39]], shares[1, [7, 8, 39]] = 1.5, [[-1.5], [2.25], [np.nan]]

    def summed(replica):
        return all_reduce_sum([tf.ones([31, 4]), tf.gather(shares, replica), tf.ones([4])], tf.as_dtype(dtype))

    for values, expected in zip(on_replicas(2, summed), (2.0, shares.sum(0), 2.0), strict=True):
        for value in values:
            assert value.dtype == tf.float32
            np.testing.assert_array_equal(value, np.broadcast_to(expected, value.shape))


@pytest.mark.parametrize("micro_batches", [1, slow(3)])
def test_updates_with_gradients_summed_in_bfloat16(three, micro_batches):
    """Gradients of two replicas are rounded by a part in 128 at most, those of one and losses never."""
    rng = np.random.default_rng(1)
    xy = rng.normal(size=(24, 6)).astype(np.float32), rng.normal(size=(24, 4)).astype(np.float32)
    make = lambda: three.sequential(lambda: [three.layers.Dense(4)], shape=[6])  # noqa: E731
    flat = lambda values: np.concatenate([value.ravel() for value in values])  # noqa: E731
    fit = {"optimizer": lambda: three.sgd(1.0), "batch_size": 24}

    def updated(replicas, dtype, parts=1):
        options = {"wrap": {"all_reduce_dtype": dtype}, "compiled": {"loss": "mse", "run_eagerly": replicas == 1}}
        found = three.ours(make, xy, replicas=replicas, parts=parts, **options, **fit)
        assert found.model.get_config()["all_reduce_dtype"] == dtype
        return flat(found.weights) - flat(weights(make())), found.history["loss"]

    expected, loss = updated(1, "float32")
    assert np.abs(updated(1, "bfloat16", micro_batches)[0] - expected).max() < 1e-6
    found, others = updated(2, "bfloat16", micro_batches)
    assert others == pytest.approx(loss, rel=1e-6)
    assert 1e-5 < np.abs(found - expected).max() < np.abs(expected).max() / 64


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_replicas_before_this_one_have(replicas):
    """Shares of 5 and 2 rows: the second replica's begin at row 5."""

    def sums(replica):
        total, before = sum_and_count_before(tf.stack([tf.cast(replica, tf.float32) + 1.5, 3.0]), 5 - 3 * replica)
        assert replicas == 1 and before == 0 or before.dtype == tf.int64
        return total, tf.convert_to_tensor(before)

    total, before = on_replicas(replicas, sums)
    np.testing.assert_array_equal(total, [[[1.5, 3.0]], [[4.0, 6.0]] * 2][replicas - 1])
    np.testing.assert_array_equal(before, [0, 5][:replicas])
