"""Gradient checkpointing: the same gradients, dropout included, from less memory."""

import functools
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import make_examples, plan_of
from tests.support.models import random_batch, strategy_of, tiny_bert, variables_of
from tests.support.updates import build, weights
from tfbert.batches.pipeline import make_dataset
from tfbert.model.forward import forward
from tfbert.step.keras3.parts import KeyedRandom
from tfbert.step.noise import Rows, noise_key

ROOT = pathlib.Path(__file__).parents[2]
SLOW = pytest.mark.slow


PLAIN, RECOMPUTED = (functools.partial(forward, recompute=recompute) for recompute in (False, True))


def make_model():
    return tiny_bert(dropout=0.3, num_hidden_layers=2)


def count_ops(function, name):
    """How often an operation occurs in the graph of a tf.function, functions it calls included."""
    definition = function.get_concrete_function().graph.as_graph_def()
    nodes = [*definition.node, *(node for part in definition.library.function for node in part.node_def)]
    return sum(node.op == name for node in nodes)


@pytest.fixture
def sums_in_written_order(optimised_graphs):
    """Without the pass of TensorFlow's graph optimiser that merges sums across layers, which changes their rounding."""
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    yield
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True})


@pytest.mark.parametrize(
    "policy, xla, tolerance",
    [
        ("float32", False, 0.0),
        pytest.param("mixed_bfloat16", False, 0.0, marks=SLOW),
        pytest.param("mixed_float16", False, 0.0, marks=SLOW),
        pytest.param("float32", True, 1e-5, marks=SLOW),
        pytest.param("mixed_bfloat16", True, 1e-3, marks=SLOW),
    ],
)
def test_gradients_are_the_same_with_dropout_on(policy, xla, tolerance, sums_in_written_order):
    keras.config.set_dtype_policy(policy)
    inputs, labels, _ = random_batch(6)

    def compute(forward):
        model = make_model()
        dropout = KeyedRandom(model, 1)

        @tf.function(jit_compile=xla, autograph=False)
        def step():
            with tf.GradientTape() as tape:
                # Rows 3 to 8 of a global batch.
                with dropout.keyed(noise_key(1, tf.constant(2, tf.int64)), Rows(tf.constant(3, tf.int64), 6)):
                    logits = tf.cast(forward(model, inputs, True), tf.float32)
                loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            # The key's context is left here, as it is in FineTuner: recomputation must remember it.
            return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables_of(model))]

        return step

    plain, recomputed = compute(PLAIN), compute(RECOMPUTED)
    (loss, grads), (loss_again, grads_again) = plain(), recomputed()
    assert float(loss) == pytest.approx(float(loss_again), rel=max(tolerance, 1e-7))
    size = float(tf.linalg.global_norm(grads))
    for one, other in zip(grads, grads_again, strict=True):
        np.testing.assert_allclose(other, one, atol=tolerance * size, rtol=0)
    if not xla:  # Each of 2 layers but the last computes its attention once more.
        assert (count_ops(plain, "Softmax"), count_ops(recomputed, "Softmax")) == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_packed_rows_are_recomputed_too(replicas):
    examples = make_examples()
    plan = plan_of(examples, 2 * replicas)

    def train(forward):
        dataset = strategy_of(replicas).distribute_datasets_from_function(
            lambda _: make_dataset(examples, lambda: iter([plan]), range(replicas), replicas, shape=plan.shape)
        )
        model = build(make_model, replicas=replicas, gradient_accumulation_steps=2, forward=forward)
        model.fit(dataset, steps_per_epoch=len(plan), verbose=0)
        return weights(model)

    for one, other in zip(train(PLAIN), train(RECOMPUTED), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6, rtol=0)


def test_what_is_not_trained_with_keys_is_left_as_it_was():
    inputs, _, _ = random_batch(3)
    model = make_model()
    np.testing.assert_array_equal(RECOMPUTED(model, inputs, False), PLAIN(model, inputs, False))
    noise = [RECOMPUTED(model, inputs, True).numpy() for _ in range(2)]
    assert (noise[0] != noise[1]).any()


MEMORY = """
import functools, pathlib, re, sys
import tensorflow as tf
import keras
from tfbert import BertConfig, TFBertForSequenceClassification
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.model.forward import forward


def peak():  # Not ru_maxrss: a process takes over that of the one that started it.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])

config = BertConfig(
    vocab_size=100, hidden_size=128, num_hidden_layers=8, num_attention_heads=4, intermediate_size=512, num_labels=2
)
model = TFBertForSequenceClassification(config)
forward = functools.partial(forward, recompute=sys.argv[1] == "recompute")
trained = FineTuner(model, jit_compile=sys.argv[2] == "xla", forward=forward)
trained.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def peak_after(rows):
    inputs = {"input_ids": tf.ones([rows, 128], tf.int32), "attention_mask": tf.ones([rows, 128], tf.int32)}
    trained.fit(tf.data.Dataset.from_tensors((inputs, tf.ones([rows], tf.int32))).repeat(2), verbose=0)
    return peak()


before = peak_after(1)
print(peak_after(64) - before)
"""


@SLOW
@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("compiled", ["plain", "xla"])
def test_the_peak_of_a_process_is_lower(compiled):
    """Eight layers' parts against their inputs: what 63 rows more add to the process's memory, in kB.

    One row's step holds what tracing and compiling take, which for XLA is more than a small step's data.
    """

    def peak(kind):
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, kind, compiled],
            capture_output=True,
            text=True,
            timeout=400,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    plain, recomputed = peak("keep"), peak("recompute")
    print(f"{compiled}: {plain / 1024:.0f} MB, recomputed {recomputed / 1024:.0f} MB")
    assert recomputed < 0.6 * plain
