"""Heads that read each token, or some: the last layer, and labels of tokens."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import make_examples, packed_batches, plain_batches, plan_of
from tests.support.models import tiny_bert, variables_of
from tfbert.batches.pipeline import EncodedExamples
from tfbert.batches.plan import FILL
from tfbert.model.forward import encode

LABELS = 3


def labelled(count=37, share=0.6):
    """Examples whose tokens have labels, but for some."""
    examples = make_examples(count)
    rng = np.random.default_rng(9)
    size = len(examples.tokens.flat)
    labels = rng.integers(0, LABELS, size).astype(np.int32)
    weights = np.where(rng.random(size) < share, np.repeat(examples.weights, examples.tokens.lengths), 0)
    weights[: examples.tokens.lengths[0]] = 0  # An example without any.
    return EncodedExamples(
        tokens=examples.tokens, labels=labels, weights=weights.astype(np.float32), labels_tokens=True
    )


def test_every_token_of_packed_rows_is_that_of_one_example_a_row():
    model, examples = tiny_bert(), make_examples(11)
    plan = plan_of(examples)
    for (inputs, _, _), (alone, _, weights) in zip(
        packed_batches(examples, plan), plain_batches(examples, plan), strict=True
    ):
        expected, found = (encode(model.bert, each).numpy() for each in (alone, inputs))
        for row in np.flatnonzero(weights):
            length, start = int(alone["attention_mask"][row].numpy().sum()), int(inputs["cls_positions"][row])
            own = found.reshape(-1, found.shape[-1])[start : start + length]
            np.testing.assert_allclose(own, expected[row, :length], atol=1e-5)


@pytest.mark.parametrize("is_packed", [False, True])
def test_positions_are_those_of_every_token_with_their_gradients(is_packed):
    model, examples = tiny_bert(num_hidden_layers=2), make_examples()
    plan = plan_of(examples)
    inputs = (packed_batches if is_packed else plain_batches)(examples, plan)[0][0]
    rows, width = inputs["input_ids"].shape
    positions = np.random.default_rng(0).integers(0, width, (rows, 5)).astype(np.int32)
    # Only places that hold a token: what stands at the others is not defined.
    held = inputs["example_ids"] if is_packed else inputs["attention_mask"]
    positions = np.where(np.take_along_axis(held.numpy(), positions, 1) > 0, positions, 0).astype(np.int32)
    side = tf.constant(np.random.default_rng(1).normal(size=(rows, 5, 32)), tf.float32)

    def compute(read):
        with tf.GradientTape() as tape:
            values = read()
            loss = tf.reduce_sum(values * side)
        return values, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables_of(model.bert.encoder))]

    read = positions
    if is_packed:  # Of an example in each row, counted through the rows.
        own = inputs["example_ids"].numpy() == inputs["example_ids"].numpy()[:, :1]
        positions = np.where(np.take_along_axis(own, positions, 1), positions, 0)
        read = positions + width * np.arange(rows, dtype=np.int32)[:, None]
    found = compute(lambda: encode(model.bert, inputs, reads=tf.constant(read)))
    expected = compute(lambda: tf.gather(encode(model.bert, inputs), positions, batch_dims=1))
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("is_packed", [False, True])
def test_labels_of_tokens_stand_where_the_ids_are(is_packed):
    examples = labelled()
    plan, tokens = plan_of(examples), examples.tokens
    batches = (packed_batches if is_packed else plain_batches)(examples, plan)
    seen = np.zeros(len(tokens.flat), int)
    for rows, starts, (inputs, labels, weights) in zip(plan.rows, plan.starts, batches, strict=True):
        ids = inputs["input_ids"].numpy()
        assert labels.shape == weights.shape == ids.shape and (labels.dtype, weights.dtype) == (tf.int32, tf.float32)
        found = [array.numpy().reshape(-1) for array in (labels, weights)]
        counted = 0
        for place, (row, start) in enumerate(zip(rows, starts, strict=True)):
            if row == FILL:
                continue
            start = start if is_packed else place * ids.shape[1]
            own = slice(tokens.row_splits[row], tokens.row_splits[row + 1])
            expected, there = examples.labels[own], slice(start, start + tokens.lengths[row])
            np.testing.assert_array_equal(found[0][there], expected)
            weighed = examples.weights[own]
            np.testing.assert_array_equal(found[1][there], weighed)
            counted += np.count_nonzero(weighed)
            seen[own] += 1
        assert np.count_nonzero(found[1]) == counted, "nothing else weighs"
    np.testing.assert_array_equal(seen, 1)
