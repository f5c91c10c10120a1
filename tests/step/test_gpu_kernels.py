"""Everything in a step is computed on the GPU, as TensorFlow's own list of kernels says.

An operation without a kernel for its types runs on the host, in silence: its inputs and results travel, and the GPU
waits. On a CPU nothing shows that; TensorFlow's packages for CPUs have the list of GPU kernels nevertheless.
"""

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels

from tests.support.either_keras import SLOW
from tests.support.models import random_batch, strategy_of

# Those of what is as large as a batch. int32 holds shapes, which are on the host in any case.
TYPES = {types_pb2.DataType.Value(f"DT_{name}") for name in ("FLOAT", "HALF", "BFLOAT16", "UINT16", "UINT32", "BOOL")}


def has_gpu_kernel(node):
    found = kernels.get_registered_kernels_for_op(node.op).kernel
    return any(
        kernel.device_type in ("GPU", "DEFAULT")
        and all(node.attr[rule.name].type in rule.allowed_values.list.type for rule in kernel.constraint)
        for kernel in found
    )


def on_host(function):
    """The operations of a traced function, and of those that it calls, that only the host can compute: kind, type."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    return {
        (node.op, types_pb2.DataType.Name(node.attr["T"].type))
        for node in nodes
        if node.attr["T"].type in TYPES and not has_gpu_kernel(node)
    }


@pytest.mark.parametrize(
    "policy", [*(pytest.param(each, marks=SLOW) for each in ("float32", "mixed_float16")), "mixed_bfloat16"]
)
def test_all_of_a_step_has_kernels_on_a_gpu(either, policy):
    options = {"gradient_accumulation_steps": 2, "max_grad_norm": 1.0, "policy": policy}
    # Without XLA, whose operations TensorFlow's list says nothing of.
    more = {} if either.is_keras_3 else {"jit_compile": False}
    adamw = lambda: either.keras.optimizers.AdamW(1e-2, 0.1, **more)  # noqa: E731
    model = either.build(lambda: either.bert(dropout=0.1, num_hidden_layers=1), optimizer=adamw, **options)
    with strategy_of(1).scope():
        model.create_variables()
    of_any_size = tf.nest.map_structure(
        lambda values: tf.TensorSpec([None] * values.ndim, values.dtype), random_batch(4, weights=[1.0] * 4)
    )
    traced = tf.function(model.train_step).get_concrete_function(of_any_size)
    assert "StatelessRandomUniformFullIntV2" in str(traced.graph.as_graph_def()), "the step draws dropout"
    assert on_host(traced) == set()


def test_what_has_no_kernel_is_found():
    sliced = tf.function(lambda bits: tf.slice(tf.bitcast(bits, tf.uint16), [0, 0, 0], [2, 2, 2]))
    assert on_host(sliced.get_concrete_function(tf.TensorSpec([4, 4], tf.uint32))) == {("Slice", "DT_UINT16")}
