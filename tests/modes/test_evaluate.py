"""Predictions in order under any strategy, whole or streamed."""

import functools
import itertools
import threading
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.support.models import VOCAB, strategy_of, tiny_bert
from tfbert.batches.pipeline import EncodedExamples, padded_inputs
from tfbert.model import predictor as predictor_module
from tfbert.model.predictor import Predictor
from tfbert.tokens.tokenizer import TokenIds


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


def token_ids(n, seed=0, longest=14, pairs=False):
    """Random examples of 2 to `longest` tokens."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, longest + 1, n)
    second = np.array([rng.integers(1, length) if pairs else length for length in lengths], np.int32)
    flat = rng.integers(5, VOCAB, lengths.sum()).astype(np.int32)
    return TokenIds(flat=flat, row_splits=np.concatenate([[0], np.cumsum(lengths)]), second_start=second)


def each_alone(tokens):
    """The inputs of each example without padding."""
    for row in range(len(tokens)):
        ids = tokens.flat[tokens.row_splits[row] : tokens.row_splits[row + 1]][None]
        types = (np.arange(ids.shape[1]) >= tokens.second_start[row]).astype(np.int32)[None]
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
        yield {name: tf.constant(value, tf.int32) for name, value in inputs.items()}


def one_by_one(model, tokens):
    """The reference."""
    return np.array([model(inputs, training=False).logits.numpy()[0] for inputs in each_alone(tokens)])


def logits_of(model):
    return lambda inputs, training: model(inputs, training=training).logits


@functools.cache
def predictor_of(replicas, rows):
    """A model and what predicts with it; traced once."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        model = tiny_bert(num_labels=3, num_hidden_layers=1)
    return model, Predictor(logits_of(model), strategy, rows_per_replica=rows)


def first_ids(inputs, training):
    """A model of which only the batches matter."""
    return tf.cast(inputs["input_ids"][:, 0], tf.float32)


@pytest.mark.parametrize("count, replicas", [(21, 2), slow(1, 1), slow(1, 2), slow(8, 1), slow(8, 2), slow(21, 1)])
def test_logits_are_those_of_each_example_alone_in_order(replicas, count):
    model, predictor = predictor_of(replicas, rows=4)
    tokens = token_ids(count, pairs=True)
    expected = one_by_one(model, tokens)
    np.testing.assert_allclose(predictor.outputs(tokens), expected, atol=1e-5)
    examples = EncodedExamples(tokens=tokens, labels=np.zeros(count, np.int32), weights=np.ones(count, np.float32))
    np.testing.assert_allclose(predictor.outputs(examples), expected, atol=1e-5)


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_a_stream_is_the_same_as_each_chunk(replicas):
    model, predictor = predictor_of(replicas, rows=4)
    chunks = [token_ids(n, seed=n) for n in (5, 1, 13, 2)]
    found = list(predictor.stream(iter(chunks)))
    assert [len(part) for part in found] == [5, 1, 13, 2]
    for part, tokens in zip(found, chunks, strict=True):
        np.testing.assert_allclose(part, one_by_one(model, tokens), atol=1e-5)
    assert list(predictor.stream([])) == []


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_rows_are_counted_batch_by_batch(replicas):
    _, predictor = predictor_of(replicas, rows=4 // replicas)
    counts = []
    for _ in predictor.stream([token_ids(10), token_ids(5)], on_rows=counts.append):
        counts.append("chunk")
    assert counts == [4, 4, 2, "chunk", 4, 1, "chunk"]


@pytest.mark.parametrize("replicas, counts", [(1, [2, 2, 2, 2, 2, 3, 3, 5]), slow(2, [21])])
def test_rows_that_nobody_asked_for_are_as_many_as_make_a_number_of_tokens(replicas, counts, monkeypatch):
    monkeypatch.setattr(predictor_module, "_TOKENS", 29)
    model, predictor = predictor_of(replicas, rows=None)
    tokens, found = token_ids(21), []
    np.testing.assert_allclose(predictor.outputs(tokens, on_rows=found.append), one_by_one(model, tokens), atol=1e-5)
    assert found == counts


@pytest.mark.parametrize("replicas, counts", [(1, [4, 4, 5, 7, 1]), slow(2, [8, 10, 3])])
def test_a_gpu_has_a_number_of_tokens_and_its_next_batch_is_started(replicas, counts, monkeypatch):
    monkeypatch.setattr(predictor_module, "_TOKENS_ON_GPU", 58)
    model, _ = predictor_of(replicas, rows=4)
    with monkeypatch.context() as pretended:
        pretended.setattr(tf.config, "list_logical_devices", lambda kind=None: ["a GPU"])
        predictor = Predictor(logits_of(model), strategy_of(replicas))
    chunks, found = [token_ids(21), token_ids(1)], []
    for tokens, outputs in zip(chunks, predictor.stream(chunks, on_rows=found.append), strict=True):
        np.testing.assert_allclose(outputs, one_by_one(model, tokens), atol=1e-5)
    assert found == [*counts, 1]


def test_one_cpu_computes_two_batches_at_a_time():
    together = threading.Barrier(2, timeout=60)

    def forward(inputs, training):
        wait = tf.numpy_function(lambda x: [together.wait(), x][1], [inputs["input_ids"]], tf.int32)
        return tf.reduce_sum(tf.ensure_shape(wait, [None, None]), axis=1)

    predictor, tokens = Predictor(forward, strategy_of(1), rows_per_replica=2), token_ids(16)
    expected = [sum(tokens.flat[slice(*tokens.row_splits[row : row + 2])]) for row in range(16)]
    np.testing.assert_array_equal(predictor.outputs(tokens), expected)


def test_an_error_in_a_batch_arrives_and_ends_the_stream():
    def forward(inputs, training):
        tf.debugging.assert_less(tf.shape(inputs["input_ids"])[1], 10, "too wide")
        return first_ids(inputs, training)

    predictor = Predictor(forward, strategy_of(1), rows_per_replica=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too wide"):
        predictor.outputs(token_ids(20))
    assert len(predictor.outputs(token_ids(5, longest=9))) == 5


def test_a_stream_asks_for_one_chunk_ahead_and_no_more():
    _, predictor = predictor_of(1, rows=4)
    asked = []

    def chunks():
        for n in range(6):
            asked.append(n)
            yield token_ids(3, seed=n)

    stream = predictor.stream(chunks())
    for done in range(1, 4):
        next(stream)
        assert len(asked) == done + 1
    stream.close()
    assert len(asked) == 4


def test_an_error_in_the_source_arrives_as_it_is_and_ends_the_stream():
    _, predictor = predictor_of(1, rows=4)

    def chunks():
        yield token_ids(3)
        yield token_ids(4)
        raise ValueError("line 12")

    found = []
    with pytest.raises(ValueError, match="line 12"):
        for part in predictor.stream(chunks()):
            found.append(len(part))
    assert found == [3]
    assert len(predictor.outputs(token_ids(5))) == 5  # And the predictor is of use afterwards.


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_time_is_that_of_all_batches_and_waiting_is_told_apart(replicas, monkeypatch):
    monkeypatch.setattr(predictor_module, "_BATCHES_TIMED", 3)
    predictor = Predictor(first_ids, strategy_of(replicas), rows_per_replica=2)
    tokens, batches = token_ids(16 * replicas), 8
    predictor.outputs(tokens)  # Traces.
    ticks = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(predictor_module, "time", types.SimpleNamespace(perf_counter=lambda: next(ticks)))
        predictor.reset_clock()
        assert (predictor.seconds, predictor.waiting_seconds, list(predictor.batch_seconds)) == (0.0, 0.0, [])
        predictor.outputs(tokens)
    assert predictor.seconds == batches and list(predictor.batch_seconds) == [1, 1, 1]

    def slow_inputs(*arguments):
        time.sleep(0.05)
        return padded_inputs(*arguments)

    monkeypatch.setattr(predictor_module, "padded_inputs", slow_inputs)
    predictor.reset_clock()
    predictor.outputs(tokens)
    slept = 0.05 * batches * replicas
    assert 0.5 * slept < predictor.waiting_seconds < predictor.seconds


def test_predictions_do_not_trace_each_width_anew():
    traced = []

    def forward(inputs, training):
        traced.append(tf.executing_eagerly())
        return first_ids(inputs, training)

    predictor = Predictor(forward, strategy_of(1), rows_per_replica=2)
    for longest in (4, 9, 14):
        predictor.outputs(token_ids(9, longest=longest))
    assert len(traced) <= 2


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_outputs_of_tokens_and_several_come_in_order(replicas):
    model, _ = predictor_of(replicas, rows=4)
    tokens = token_ids(11, pairs=True)

    def outputs(inputs, training):
        hidden = model.bert(inputs, training=training)
        return {"tags": hidden.last_hidden_state[:, :, :5], "whole": hidden.pooler_output, "one": hidden[0][:, 0, 0]}

    strategy = strategy_of(replicas)
    predictor = Predictor(outputs, strategy, rows_per_replica=3, of_tokens={"tags"})
    found = predictor.outputs(tokens)
    shapes = {name: array.shape for name, array in found.items()}
    assert shapes == {"tags": (len(tokens.flat), 5), "whole": (11, 32), "one": (11,)}
    lone = Predictor(lambda *a, **k: outputs(*a, **k)["tags"], strategy, rows_per_replica=3, of_tokens=True)
    np.testing.assert_array_equal(lone.outputs(tokens), found["tags"])
    for row, inputs in enumerate(each_alone(tokens)):
        own, alone = slice(tokens.row_splits[row], tokens.row_splits[row + 1]), outputs(inputs, False)
        for name, place in (("tags", own), ("whole", row), ("one", row)):
            np.testing.assert_allclose(found[name][place], alone[name][0], atol=1e-5, err_msg=name)
