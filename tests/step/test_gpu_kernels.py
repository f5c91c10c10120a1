"""Everything in a step is computed on the GPU, as TensorFlow's own list of kernels says.

An operation without a kernel for its types runs on the host, in silence: its inputs and results travel, and the GPU
waits. On a CPU nothing shows that; TensorFlow's packages for CPUs have the list of GPU kernels nevertheless.
"""

import functools

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

from tests.support.cases import slow
from tests.support.models import random_batch, strategy_of
from tfbert.step.noise import Rows, drop, noise_key, noise_stream

# Those of what is as large as a batch, and of random counters. int32 holds shapes, which are on the host in any case.
NAMES = ("FLOAT", "HALF", "BFLOAT16", "UINT16", "UINT32", "UINT64", "BOOL")
TYPES = {types_pb2.DataType.Value(f"DT_{name}") for name in NAMES}


@functools.cache
def kernels_of(op):
    return kernels.get_registered_kernels_for_op(op).kernel


def has_gpu_kernel(node):
    return any(
        kernel.device_type in ("GPU", "DEFAULT")
        and all(node.attr[rule.name].type in rule.allowed_values.list.type for rule in kernel.constraint)
        for kernel in kernels_of(node.op)
    )


def on_host(function):
    """The operations of a traced function, and of those that it calls, that only the host can compute: kind, type."""
    graph = function.graph.as_graph_def()
    return without_kernel([*graph.node, *(node for inner in graph.library.function for node in inner.node_def)])


def without_kernel(nodes):
    return {
        (node.op, types_pb2.DataType.Name(node.attr["T"].type))
        for node in nodes
        if node.attr["T"].type in TYPES and not has_gpu_kernel(node)
    }


def made_by_optimiser(call):
    """The operations with which TensorFlow's optimiser of arithmetic replaces others, the same for all devices."""
    context.enable_run_metadata()
    try:
        call()
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    nodes = [node for each in graphs for node in each.post_optimization_graph.node]
    nodes += [n for g in graphs for f in g.post_optimization_graph.library.function for n in f.node_def]
    return [node for node in nodes if "ArithmeticOptimizer" in node.name]


def a_step(either, policy):
    """A traced update, and a batch for it."""
    options = {"gradient_accumulation_steps": 2, "max_grad_norm": 1.0, "policy": policy}
    # Without XLA, whose operations TensorFlow's list says nothing of.
    more = {} if either.is_keras_3 else {"jit_compile": False}
    adamw = lambda: either.keras.optimizers.AdamW(1e-2, 0.1, **more)  # noqa: E731
    model = either.build(lambda: either.bert(dropout=0.1, num_hidden_layers=1), optimizer=adamw, **options)
    with strategy_of(1).scope():
        model.create_variables()
    batch = tf.nest.map_structure(tf.constant, random_batch(4, weights=[1.0] * 4))
    of_any_size = tf.nest.map_structure(lambda each: tf.TensorSpec([None] * each.shape.rank, each.dtype), batch)
    return tf.function(model.train_step, autograph=False).get_concrete_function(of_any_size), batch


@pytest.mark.parametrize("policy", [*(slow(each) for each in ("float32", "mixed_float16")), "mixed_bfloat16"])
def test_all_of_a_step_has_kernels_on_a_gpu(either, policy):
    traced, _ = a_step(either, policy)
    assert "StatelessRandomUniformFullIntV2" in str(traced.graph.as_graph_def()), "the step draws dropout"
    assert on_host(traced) == set()


@pytest.mark.parametrize("policy", [slow("mixed_float16")])
def test_all_that_the_optimiser_makes_of_a_step_has_kernels(either, policy, optimised_graphs):
    traced, batch = a_step(either, policy)
    made = made_by_optimiser(functools.partial(traced, batch))
    assert made and without_kernel(made) == set()


@pytest.mark.parametrize("place", ["added at once", "added twice"])
def test_where_dropout_begins_is_added_at_once(place, optimised_graphs):
    """Of two additions the optimiser makes an AddN, which a GPU has not for counters."""

    @tf.function(autograph=False)
    def dropped(inputs, first):
        stream = noise_stream(noise_key(0, first))
        if place == "added twice":
            stream = stream._replace(counter=stream.counter + tf.constant([0, 1], tf.uint64))
        return drop(inputs, 0.1, stream, 1, rows=Rows(first, 4))

    made = made_by_optimiser(lambda: dropped(tf.ones([4, 8, 16]), tf.constant(3, tf.int64)))
    assert without_kernel(made) == ({("AddN", "DT_UINT64")} if place == "added twice" else set())


def test_what_has_no_kernel_is_found():
    sliced = tf.function(lambda bits: tf.slice(tf.bitcast(bits, tf.uint16), [0, 0, 0], [2, 2, 2]))
    assert on_host(sliced.get_concrete_function(tf.TensorSpec([4, 4], tf.uint32))) == {("Slice", "DT_UINT16")}
