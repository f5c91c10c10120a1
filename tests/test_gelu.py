"""The written-out GELU: the plain one's values and gradients."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from tests.models import random_batch, tiny_bert
from tfbert.gelu import gelu, use_own_gelu

POINTS = np.concatenate([np.linspace(-30, 30, 20_001), [0.0, -0.0, 1e-30, -1e-30]])


def value_and_gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y.numpy(), tape.gradient(y, x).numpy()


@pytest.mark.parametrize("xla", [False, True])
def test_equals_scipy(xla):
    x = tf.constant(POINTS, tf.float32)
    run = tf.function(lambda x: value_and_gradient_graph(gelu, x), jit_compile=xla)
    value, gradient = run(x)
    exact = np.asarray(x, np.float64)
    below, density = special.ndtr(exact), np.exp(-0.5 * exact**2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(value, exact * below, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(gradient, below + exact * density, rtol=2e-5, atol=1e-6)


def value_and_gradient_graph(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x)


@pytest.mark.parametrize(
    "dtype, subnormal, tolerance", [("float32", 1e-36, 1e-6), ("bfloat16", 1e-36, 2e-2), ("float16", 1e-6, 3e-3)]
)
def test_equals_tensorflows_own(dtype, subnormal, tolerance):
    """Values are equal bits but for halves of numbers too small to halve; gradients are rounded in another order."""
    x = tf.constant(POINTS, dtype)
    value, gradient = value_and_gradient(gelu, x)
    expected, expected_gradient = value_and_gradient(tf.nn.gelu, x)
    assert value.dtype == expected.dtype and gradient.dtype == expected_gradient.dtype
    np.testing.assert_allclose(value.astype(np.float64), expected.astype(np.float64), rtol=0, atol=subnormal)
    finite = np.abs(x.numpy().astype(np.float64)) < 20
    difference = gradient.astype(np.float64) - expected_gradient.astype(np.float64)
    assert np.isfinite(gradient.astype(np.float64)).all()
    assert np.abs(difference[finite]).max() <= tolerance


def test_a_model_computes_the_same_with_it():
    inputs, _, _ = random_batch(5)
    plain, own = tiny_bert(), tiny_bert()
    use_own_gelu(own)
    assert own.bert.encoder.layer[0].intermediate.intermediate_act_fn is gelu
    np.testing.assert_array_equal(own(inputs).logits, plain(inputs).logits)


def test_other_activations_stay():
    model = tiny_bert(num_hidden_layers=1, hidden_act="gelu_new")
    before = model.bert.encoder.layer[0].intermediate.intermediate_act_fn
    use_own_gelu(model)
    assert model.bert.encoder.layer[0].intermediate.intermediate_act_fn is before
