"""Operations with gradients written out: the plain ones' values and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from tfbert.model.ops import dense, gelu, inference_gelu, layer_norm

POINTS = np.concatenate([np.linspace(-30, 30, 20_001), [0.0, -0.0, 1e-30, -1e-30]])


def value_and_gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x)


@pytest.mark.parametrize("xla", [False, True])
def test_equals_scipy(xla):
    x = tf.constant(POINTS, tf.float32)
    value, gradient = tf.function(lambda x: value_and_gradient(gelu, x), jit_compile=xla, autograph=False)(x)
    exact = np.asarray(x, np.float64)
    below, density = special.ndtr(exact), np.exp(-0.5 * exact**2) / np.sqrt(2 * np.pi)
    assert (np.abs(value - exact * below) <= 2e-7 * np.abs(exact)).all()
    np.testing.assert_allclose(gradient, below + exact * density, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("bfloat16", 0), ("float16", 0)])
def test_inference_gelu_equals_gelu(dtype, tolerance):
    x = tf.constant(POINTS, dtype)
    found, expected = inference_gelu(x), gelu(x)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.numpy().astype("f"), expected.numpy().astype("f"), rtol=0, atol=tolerance)


def test_inference_gelu_is_one_operation_with_its_product(optimised_graphs):
    nodes = nodes_that_ran(lambda x, kernel, bias: inference_gelu(dense(x, kernel, bias)), "float32")
    (fused,) = (node for node in nodes if "fused_ops" in node.attr)
    assert list(fused.attr["fused_ops"].list.s) == [b"BiasAdd", b"GeluExact"]
    assert not any(node.op == "Erf" for node in nodes)


def test_bias_of_bfloat16_is_not_joined_with_its_product(optimised_graphs):
    nodes = nodes_that_ran(lambda x, kernel, bias: x @ kernel + bias, "bfloat16")
    assert any("fused_ops" in node.attr for node in nodes), "what would be joined is"
    nodes = nodes_that_ran(dense, "bfloat16")
    assert any("MatMul" in node.op for node in nodes)
    assert not any("fused_ops" in node.attr for node in nodes)


def nodes_that_ran(compute, dtype):
    """Of the optimised graph of `compute(x, kernel, bias)`."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(dtype, [None, 8])
        kernel, bias = (v1.get_variable(f"w{n}", [8, 16][n:], dtype, use_resource=True) for n in range(2))
        y = tf.identity(compute(x, kernel, bias))  # What is fetched is kept as it is.
        session.run(v1.global_variables_initializer())
        ran = v1.RunMetadata()
        session.run(y, {x: np.ones([4, 8])}, v1.RunOptions(output_partition_graphs=True), ran)
    nodes = [node for graph in ran.partition_graphs for node in graph.node]
    if not any(node.op.startswith("_Mkl") for node in nodes):
        pytest.skip("TensorFlow does not use oneDNN on this CPU")
    return nodes


@pytest.mark.parametrize("dtype, rounding, smallest", [("bfloat16", 2**-8, 1e-37), ("float16", 2**-11, 2**-24)])
def test_16_bits_are_rounded_once(dtype, rounding, smallest):
    """Value and slope are float32's, rounded: computing in 16 bits would be wrong by several roundings."""
    x = tf.constant(POINTS, dtype)
    found = value_and_gradient(gelu, x)
    for part, exact in zip(found, value_and_gradient(gelu, tf.cast(x, tf.float32)), strict=True):
        assert part.dtype == x.dtype
        off = np.abs(part.numpy().astype(np.float64) - exact)
        assert (off <= np.maximum(rounding * np.abs(exact), smallest)).all()


def weighted_gradients(function, upstream, *tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
        total = tf.reduce_sum(tf.cast(y, tf.float32) * upstream)
    return y, tape.gradient(total, tensors)


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float16", 2e-3), ("bfloat16", 2e-2)])
def test_layer_norm_equals_keras_layer(dtype, tolerance, xla):
    rng = np.random.default_rng(0)
    x = tf.cast(rng.normal(3, 2, (7, 24)).astype(np.float32), dtype)
    upstream = tf.constant(rng.normal(size=(7, 24)).astype(np.float32))
    layer = keras.layers.LayerNormalization(epsilon=1e-12, dtype=keras.mixed_precision.Policy("float32"))
    layer.build([7, 24])
    layer.set_weights([rng.normal(1, 0.3, 24), rng.normal(size=24)])

    def own(x, gamma, beta):
        return layer_norm(x, gamma, beta, 1e-12)

    found, gradients = tf.function(
        lambda: weighted_gradients(own, upstream, x, *map(tf.convert_to_tensor, layer.weights)), jit_compile=xla
    )()
    assert found.dtype == x.dtype and gradients[0].dtype == x.dtype and gradients[1].dtype == tf.float32
    with tf.GradientTape() as tape:
        tape.watch(whole := tf.cast(x, tf.float32))
        expected = layer(whole)
        total = tf.reduce_sum(expected * upstream)
    exact = tape.gradient(total, [whole, *layer.trainable_weights])
    for one, other in zip((found, *gradients), (expected, *exact), strict=True):
        one, other = np.asarray(tf.cast(one, tf.float64)), np.asarray(other, np.float64)
        np.testing.assert_allclose(one, other, atol=tolerance * np.abs(other).max(), rtol=0)


def test_layer_norm_of_equal_values_is_its_bias():
    found = layer_norm(tf.fill([2, 8], 5.0), tf.ones([8]), tf.range(8.0), 1e-12)
    np.testing.assert_array_equal(found, [np.arange(8.0)] * 2)
