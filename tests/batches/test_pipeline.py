"""Batches of plans against NumPy, and the same rows however many replicas they are split over; a model's inputs, in a
graph and in NumPy, against each other and against rows written out."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import assert_replicas_get_the_same, assert_shares_make_up, make_examples
from tfbert.batches.pipeline import INPUTS, TokenTensors, make_dataset, padded_inputs, padded_inputs_in_graph
from tfbert.batches.plan import FILL, BatchPlan, plan_epoch
from tfbert.tokens.tokenizer import TokenIds

LENGTHS = np.array([3, 9, 5, 2, 7, 4, 9, 6, 3, 8, 2])


def examples_of(labels=None):
    """Eleven examples, each with a label of its own."""
    return make_examples(labels=np.arange(11, dtype=np.int32) if labels is None else labels, lengths=LENGTHS, count=11)


def plan_of(epoch=0, batch=4):
    options = {"global_batch_size": batch, "seed": 3, "epoch": epoch, "group_by_length": True}
    return plan_epoch(LENGTHS, **options, allowed_widths=np.arange(1, max(LENGTHS) + 1))


def numpy_batch(examples, rows, width, pad_id):
    """One batch, a row at a time."""
    inputs = {name: np.zeros((len(rows), width), int) for name in ("attention_mask", "token_type_ids")}
    inputs["input_ids"] = np.full((len(rows), width), pad_id)
    labels, weights = np.zeros(len(rows), examples.labels.dtype), np.zeros(len(rows), np.float32)
    for at, row in enumerate(rows):
        if row == FILL:
            continue
        ids = examples.tokens.flat[examples.tokens.row_splits[row] : examples.tokens.row_splits[row + 1]]
        inputs["input_ids"][at, : len(ids)] = ids
        inputs["attention_mask"][at, : len(ids)] = 1
        inputs["token_type_ids"][at, examples.tokens.second_start[row] : len(ids)] = 1
        labels[at], weights[at] = examples.labels[row], examples.weights[row]
    return inputs, labels, weights


def read(examples, plans, replicas=range(1), num_replicas=1, pad_id=0):
    examples = dataclasses.replace(examples, tokens=dataclasses.replace(examples.tokens, pad_id=pad_id))
    return list(make_dataset(examples, plans, replicas, num_replicas).as_numpy_iterator())


def test_batches_equal_numpy():
    examples, plan, pad_id = examples_of(), plan_of(), 7
    batches = read(examples, lambda: iter([plan]), pad_id=pad_id)
    assert len(batches) == len(plan) == 3
    for (inputs, labels, weights), rows, width in zip(batches, plan.rows, plan.widths, strict=True):
        expected_inputs, expected_labels, expected_weights = numpy_batch(examples, rows, width, pad_id)
        is_real = rows != FILL
        for name, expected in expected_inputs.items():
            assert inputs[name].dtype == np.int32 and inputs[name].shape == (4, width)
            np.testing.assert_array_equal(inputs[name][is_real], expected[is_real], err_msg=name)
        np.testing.assert_array_equal(labels[is_real], expected_labels[is_real])
        np.testing.assert_array_equal(weights, expected_weights)


def test_rows_that_fill_a_batch_weigh_nothing_and_attend_to_something():
    plan = plan_of()
    ends = np.stack([LENGTHS - 1, LENGTHS], axis=1).astype(np.int32)  # Places in a row, as of answers.
    inputs, labels, weights = read(examples_of(ends), lambda: iter([plan]), pad_id=7)[-1]
    is_fill = plan.rows[-1] == FILL
    assert is_fill.sum() == 1
    np.testing.assert_array_equal(weights[is_fill], 0.0)
    assert (inputs["input_ids"][is_fill] == 7).all()
    # A softmax over nothing but masked positions would be undefined.
    np.testing.assert_array_equal(inputs["attention_mask"][is_fill].sum(axis=1), 1)
    # TensorFlow refuses a label that is no place in the row, and the batch may be narrower than any one example.
    np.testing.assert_array_equal(labels[is_fill], 0)
    assert (labels[~is_fill] > 0).all()


def test_labels_keep_their_type():
    """Integers do in the other tests."""
    labels = np.linspace(0, 5, 11).astype(np.float32)
    for _, found, weights in read(examples_of(labels), lambda: iter([plan_of()])):
        assert found.dtype == labels.dtype and found.shape == (4,)
        assert weights.dtype == np.float32


@pytest.mark.parametrize("num_replicas", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_the_shares_of_all_replicas_make_up_the_global_batch(num_replicas):
    examples, plans = examples_of(), lambda: iter([plan_of(0), plan_of(1)])
    whole = read(examples, plans)
    shares = read(examples, plans, range(num_replicas), num_replicas)
    assert len(whole) == 6
    assert_shares_make_up(whole, shares, num_replicas)


def test_a_worker_reads_its_own_replicas_only():
    examples, plans = examples_of(), lambda: iter([plan_of()])
    everything = read(examples, plans, range(4), 4)
    first, second = (read(examples, plans, replicas, 4) for replicas in (range(0, 2), range(2, 4)))
    merged = [batch for at in (0, 2, 4) for batch in (*first[at : at + 2], *second[at : at + 2])]
    tf.nest.map_structure(np.testing.assert_array_equal, merged, everything)


def test_distributed_replicas_get_what_the_plan_says():
    plan = plan_of()
    assert assert_replicas_get_the_same(examples_of(), lambda: iter([plan])) == len(plan)


def test_epochs_follow_each_other_and_a_run_can_start_inside_one():
    examples = examples_of()
    whole = read(examples, lambda: (plan_of(epoch) for epoch in range(3)))
    assert len(whole) == 9
    orders = [np.concatenate([labels for _, labels, _ in whole[start : start + 3]]) for start in (0, 3, 6)]
    assert (orders[0] != orders[1]).any() and (orders[1] != orders[2]).any()

    def from_step_4():
        plan = plan_of(1)
        yield BatchPlan(rows=plan.rows[1:], widths=plan.widths[1:])
        yield plan_of(2)

    tf.nest.map_structure(np.testing.assert_array_equal, read(examples, from_step_4), whole[4:])


def test_a_dataset_can_be_walked_again():
    plans = [plan_of()]
    dataset = make_dataset(examples_of(), lambda: iter(plans), range(1), 1)
    first, again = list(dataset.as_numpy_iterator()), list(dataset.as_numpy_iterator())
    tf.nest.map_structure(np.testing.assert_array_equal, again, first)


# A single text of 3 tokens, a pair of 2 and 2, a single text of 1.
TOKENS = TokenIds(
    flat=np.array([2, 11, 3, 2, 12, 13, 3, 14], np.int32),
    row_splits=np.array([0, 3, 7, 8]),
    second_start=np.array([3, 2, 1], np.int32),
    pad_id=9,
)


def in_graph(tokens, rows, width):
    ids = tf.RaggedTensor.from_row_splits(tokens.flat, tokens.row_splits)
    tensors = TokenTensors.of_rows(ids, tokens.second_start, tokens.pad_id)
    run = tf.function(lambda rows, width: padded_inputs_in_graph(tensors, rows, width))
    return run(tf.constant(rows), tf.constant(width))


def test_rows_are_padded_and_segments_told_apart():
    expected = {
        "input_ids": [[2, 12, 13, 3, 9], [2, 11, 3, 9, 9], [9] * 5],
        "attention_mask": [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]],
        "token_type_ids": [[0, 0, 1, 1, 0], [0] * 5, [0] * 5],
    }
    found = padded_inputs(TOKENS, np.array([1, 0, FILL]), 5)
    assert {name: array.tolist() for name, array in found.items()} == expected


@pytest.mark.parametrize("pad_id, beyond", [(0, 0), (7, 3)])
def test_a_graph_makes_the_same(pad_id, beyond):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 20, 50)
    second_start = rng.integers(1, lengths + 1).astype(np.int32)
    tokens = dataclasses.replace(make_examples(50, lengths=lengths).tokens, second_start=second_start, pad_id=pad_id)
    for size in (1, 50):
        rows = rng.integers(0, 50, size)
        width = int(lengths[rows].max()) + beyond
        arrays, found = padded_inputs(tokens, rows, width), in_graph(tokens, rows, width)
        assert list(arrays) == list(found.inputs) == list(INPUTS)
        for name in INPUTS:
            assert arrays[name].dtype == found.inputs[name].numpy().dtype == np.int32
            np.testing.assert_array_equal(arrays[name], found.inputs[name].numpy(), err_msg=name)
        np.testing.assert_array_equal(found.is_token.numpy().sum(axis=1), lengths[rows])
