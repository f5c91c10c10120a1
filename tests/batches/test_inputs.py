"""A model's inputs, in a graph and in NumPy, against each other and against rows written out."""

import numpy as np
import pytest
import tensorflow as tf

from tfbert.batches.pipeline import INPUTS, TokenTensors, padded_inputs, padded_inputs_in_graph
from tfbert.batches.plan import FILL
from tfbert.tokens.tokenizer import TokenIds

# A single text of 3 tokens, a pair of 2 and 2, a single text of 1.
TOKENS = TokenIds(
    flat=np.array([2, 11, 3, 2, 12, 13, 3, 14], np.int32),
    row_splits=np.array([0, 3, 7, 8]),
    second_start=np.array([3, 2, 1], np.int32),
    pad_id=9,
)


def in_graph(tokens, rows, width):
    tensors = TokenTensors(
        flat=tf.constant(tokens.flat),
        starts=tf.constant(tokens.row_splits[:-1]),
        lengths=tf.constant(tokens.lengths),
        second_start=tf.constant(tokens.second_start),
        pad_id=tokens.pad_id,
    )
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
    tokens = TokenIds(
        flat=rng.integers(1, 1000, lengths.sum()).astype(np.int32),
        row_splits=np.concatenate([[0], np.cumsum(lengths)]),
        second_start=rng.integers(1, lengths + 1).astype(np.int32),
        pad_id=pad_id,
    )
    for size in (1, 50):
        rows = rng.integers(0, 50, size)
        width = int(lengths[rows].max()) + beyond
        arrays, found = padded_inputs(tokens, rows, width), in_graph(tokens, rows, width)
        assert list(arrays) == list(found.inputs) == list(INPUTS)
        for name in INPUTS:
            assert arrays[name].dtype == found.inputs[name].numpy().dtype == np.int32
            np.testing.assert_array_equal(arrays[name], found.inputs[name].numpy(), err_msg=name)
        np.testing.assert_array_equal(found.is_token.numpy().sum(axis=1), lengths[rows])
