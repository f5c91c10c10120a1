"""Operations with gradients written out: the plain ones' values and gradients. Of bfloat16, gradients of thousands
of tokens are float32's: sums must not be taken in 8 bits of mantissa; and predictions by weights that change no more
are as near to float32 as others."""

import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from tests.support import encoders
from tests.support.cases import quick, slow
from tests.support.models import random_batch, strategy_of, tiny_bert, variables_of
from tests.support.served import random_model
from tfbert.bert import layers
from tfbert.bert.models import class_of
from tfbert.model import ops
from tfbert.model.forward import forward
from tfbert.model.head import Head
from tfbert.model.ops import dense, gelu, inference_gelu, layer_norm
from tfbert.private import layers_of
from tfbert.tasks.classification.classification import Classification

POINTS = np.concatenate([np.linspace(-30, 30, 20_001), [0.0, -0.0, 1e-30, -1e-30]])


def weighted_gradients(function, upstream, *tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
        total = tf.reduce_sum(tf.cast(y, tf.float32) * upstream)
    return y, tape.gradient(total, tensors)


def value_and_gradient(function, x):
    y, (gradient,) = weighted_gradients(function, 1.0, x)
    return y, gradient


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


@pytest.mark.parametrize("xla", [False, slow(True)])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float16", 2e-3), ("bfloat16", 2e-2)])
def test_layer_norm_equals_keras_layer(dtype, tolerance, xla):
    rng = np.random.default_rng(0)
    x = tf.cast(rng.normal(3, 2, (7, 24)).astype(np.float32), dtype)
    upstream = tf.constant(rng.normal(size=(7, 24)).astype(np.float32))
    layer = keras.layers.LayerNormalization(epsilon=1e-12, dtype=keras.mixed_precision.Policy("float32"))
    layer.build([7, 24])
    layer.set_weights([rng.normal(1, 0.3, 24), rng.normal(size=24)])

    def own(*tensors):
        return layer_norm(*tensors, 1e-12)

    def theirs(x, *weights):
        return layer.stateless_call(weights, [], x)[0]

    weights = [*map(tf.convert_to_tensor, layer.weights)]
    found, gradients = tf.function(weighted_gradients, jit_compile=xla)(own, upstream, x, *weights)
    assert found.dtype == x.dtype and gradients[0].dtype == x.dtype and gradients[1].dtype == tf.float32
    expected, exact = weighted_gradients(theirs, upstream, tf.cast(x, tf.float32), *weights)
    for one, other in zip((found, *gradients), (expected, *exact), strict=True):
        one, other = np.asarray(tf.cast(one, tf.float64)), np.asarray(other, np.float64)
        np.testing.assert_allclose(one, other, atol=tolerance * np.abs(other).max(), rtol=0)


def test_layer_norm_of_equal_values_is_its_bias():
    found = layer_norm(tf.fill([2, 8], 5.0), tf.ones([8]), tf.range(8.0), 1e-12)
    np.testing.assert_array_equal(found, [np.arange(8.0)] * 2)


# bfloat16.


ROWS, WIDTH, PREDICTIONS = 64, 64, 32

KINDS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "PreTraining")


@pytest.mark.parametrize("xla", [False, True])
def test_bias_of_many_rows(xla):
    x, bias = tf.ones([4096, 8], tf.bfloat16), tf.zeros([8])

    compute = tf.function(weighted_gradients, jit_compile=xla, autograph=False)
    _, (_, gradient) = compute(ops.add_bias, 1.0, x, bias)
    np.testing.assert_array_equal(gradient, np.full(8, 4096, np.float32))


@pytest.mark.parametrize("xla", [False, slow(True)])
@pytest.mark.parametrize("kind", quick(KINDS, "PreTraining"))
def test_gradients_are_those_of_float32(kind, xla):
    expected, found = gradients(kind, "float32"), gradients(kind, "mixed_bfloat16", xla=xla)
    sizes = {name: np.linalg.norm(value) for name, value in expected.items()}
    # The rest is what softmax does not feel, such as a bias of all keys or answers: rounding alone.
    felt = [name for name, size in sizes.items() if size > 1e-5 * max(sizes.values())]
    off = {name: np.linalg.norm(found[name] - expected[name]) / sizes[name] for name in felt}
    assert len(sizes) - len(off) <= 4
    assert max(off.values()) < 0.05, max(off, key=off.get)


def gradients(kind, policy, *, xla=False):
    """By variable, those that have one."""
    keras.config.set_dtype_policy(policy)
    model = tiny_bert(kind=class_of("bert", kind), num_hidden_layers=1)
    inputs, _, _ = random_batch(ROWS, WIDTH)
    rng = np.random.default_rng(1)
    if kind == "PreTraining":
        inputs["masked_lm_positions"] = rng.integers(0, WIDTH, (ROWS, PREDICTIONS)).astype(np.int32)

    def compute(inputs):
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(Head(kind=kind).forward(model, inputs, True))
            loss = tf.add_n([_loss(logits, axis=1 if kind == "QuestionAnswering" else -1) for logits in outputs])
        found = tape.gradient(loss, variables_of(model))
        return [None if one is None else tf.convert_to_tensor(one) for one in found]

    compute = compute if policy == "float32" else tf.function(compute, jit_compile=xla, autograph=False)
    values = zip(model.trainable_variables, compute(inputs), strict=True)
    return {variable.path.partition("/")[2]: value.numpy() for variable, value in values if value is not None}


def _loss(logits, axis):
    """Makes the first class, or the first token, likely: upstream gradients of one sign, whose sum is largest."""
    likely = tf.nn.log_softmax(tf.cast(logits, tf.float32), axis=axis)
    return -tf.reduce_mean(likely[:, 0] if axis == 1 else likely[..., 0])


FIXED = [("bert", set(), 0), ("bert", {"amx_bf16"}, 2), ("modernbert", {"amx_bf16"}, 0)]
FIXED += [slow(name, {"amx_bf16"}, 0) for name in ("bert", "distilbert", "electra", "roberta")]


@pytest.mark.parametrize("model_type, flags, rank", FIXED)
def test_fixed_kernels_are_as_near_to_float32(model_type, flags, rank, monkeypatch):
    """Over four sets of weights: one alone has 18 outputs, whose errors have a ratio of 0.7 to 1.4 by chance."""
    monkeypatch.setattr(layers, "processor_flags", lambda: flags)
    ids = tf.constant(encoders._WORDS * encoders.MASK)
    inputs = {"input_ids": ids, "attention_mask": encoders.MASK, "token_type_ids": tf.zeros_like(ids)}
    found = [[], [], []]
    for seed, which in itertools.product(range(4), range(3)):
        keras.config.set_dtype_policy("mixed_bfloat16" if which else "float32")
        model = encoders.make(model_type, seed=seed)
        if rank:
            model.enable_lora(rank, targets="all", seed=1)
            for variable in model.trainable_variables:
                if variable.name == "lora_kernel_b":
                    variable.assign(np.random.default_rng(seed).normal(0, 0.1, variable.shape))
        if which == 2:
            layers.fix_kernels(model)
        compute = tf.function(forward, autograph=False) if which == 2 else forward
        found[which].append(tf.cast(compute(model, inputs, False), tf.float32).numpy())
    exact, rounded, fixed = np.array(found)
    errors = [np.sqrt(np.mean((other - exact) ** 2)) for other in (rounded, fixed)]
    assert 0 < errors[1] < 1.25 * errors[0] and min(map(np.ptp, exact)) > 0.5
    assert errors[0] < 8 * 2**-8 * np.sqrt(np.mean(exact**2)), "more than eight steps of bfloat16"


@pytest.mark.parametrize("joins", [None, False])
def test_gelu_of_a_product_keeps_its_tail(joins, monkeypatch):
    """1 + erf(x) in bfloat16 would be 6% off at -2.5, and 0 below -3."""
    if joins is not None:
        monkeypatch.setattr(ops, "_joins_gelu", lambda: joins)
    x = np.float32(tf.cast(np.linspace(-5, 5, 1024).reshape(64, 16), tf.bfloat16))

    @tf.function(autograph=False)
    def compute(x):
        return inference_gelu(tf.nn.bias_add(tf.matmul(x, tf.eye(16, dtype=x.dtype)), tf.zeros([16], x.dtype)))

    exact = np.array([0.5 * value * math.erfc(-value * math.sqrt(0.5)) for value in x.reshape(-1)])
    found = np.float32(compute(tf.cast(x, tf.bfloat16))).reshape(-1)
    np.testing.assert_allclose(found, exact, rtol=0.006, atol=2e-6)


@pytest.mark.parametrize("policy, replicas, is_fixed", [("mixed_bfloat16", 1, True), ("float32", 1, False)])
def test_kernels_are_fixed_where_one_cpu_predicts_in_bfloat16(policy, replicas, is_fixed):
    keras.config.set_dtype_policy(policy)
    model = random_model(Classification(("a", "b")), num_texts=1, max_seq_length=24)
    model.predictor(strategy_of(replicas), None)
    dense = [layer for layer in layers_of(model.classifier) if isinstance(layer, layers.Dense)]
    assert len(dense) == 8 and {hasattr(layer, "fixed_kernel") for layer in dense} == {is_fixed}
