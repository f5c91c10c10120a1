"""bfloat16 gradients of thousands of tokens are float32's: sums must not be taken in 8 bits of mantissa. Predictions by
weights that change no more are as near to float32 as others."""

import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import encoders
from tests.support.models import random_batch, strategy_of, tiny_bert, variables_of
from tests.support.served import random_model
from tfbert.bert import layers
from tfbert.bert.models import (
    TFBertForPreTraining,
    TFBertForQuestionAnswering,
    TFBertForSequenceClassification,
    TFBertForTokenClassification,
)
from tfbert.model import ops
from tfbert.model.forward import forward, forward_pretraining, forward_spans, forward_tokens
from tfbert.model.ops import add_bias
from tfbert.private import layers_of
from tfbert.tasks.classification.classification import Classification

ROWS, WIDTH, PREDICTIONS = 64, 64, 32

KINDS = {
    "classes": (TFBertForSequenceClassification, forward),
    "tags": (TFBertForTokenClassification, forward_tokens),
    "answers": (TFBertForQuestionAnswering, forward_spans),
    "pre-training": (TFBertForPreTraining, forward_pretraining),
}


@pytest.mark.parametrize("xla", [False, True])
def test_bias_of_many_rows(xla):
    x, bias = tf.ones([4096, 8], tf.bfloat16), tf.Variable(tf.zeros([8]))

    @tf.function(jit_compile=xla, autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            y = add_bias(x, bias)
        return tape.gradient(y, bias)

    np.testing.assert_array_equal(gradient(), np.full(8, 4096, np.float32))


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", [kind if kind == "pre-training" else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
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
    model_class, run = KINDS[kind]
    model = tiny_bert(kind=model_class, num_hidden_layers=1)
    inputs, _, _ = random_batch(ROWS, WIDTH)
    rng = np.random.default_rng(1)
    if kind == "pre-training":
        inputs["masked_lm_positions"] = rng.integers(0, WIDTH, (ROWS, PREDICTIONS)).astype(np.int32)

    def compute(inputs):
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(run(model, inputs, True))
            losses = [_loss(tf.cast(logits, tf.float32), over_tokens=kind == "answers") for logits in outputs]
            loss = tf.add_n(losses)
        found = tape.gradient(loss, variables_of(model))
        return [None if one is None else tf.convert_to_tensor(one) for one in found]

    compute = compute if policy == "float32" else tf.function(compute, jit_compile=xla, autograph=False)
    values = zip(model.trainable_variables, compute(inputs), strict=True)
    return {variable.path.partition("/")[2]: value.numpy() for variable, value in values if value is not None}


def _loss(logits, *, over_tokens):
    """Makes the first class, or the first token, likely: upstream gradients of one sign, whose sum is largest."""
    likely = tf.nn.log_softmax(logits, axis=1 if over_tokens else -1)
    return -tf.reduce_mean(likely[:, 0] if over_tokens else likely[..., 0])


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "model_type, flags, rank",
    [("bert", set(), 0), ("bert", {"amx_bf16"}, 2), ("modernbert", {"amx_bf16"}, 0)]
    + [pytest.param(name, {"amx_bf16"}, 0, marks=SLOW) for name in ("bert", "distilbert", "electra", "roberta")],
)
def test_fixed_kernels_are_as_near_to_float32(model_type, flags, rank, monkeypatch):
    """Over four sets of weights: one alone has 18 outputs, whose errors have a ratio of 0.7 to 1.4 by chance."""
    monkeypatch.setattr(layers, "processor_flags", lambda: flags)
    ids = tf.constant(encoders._WORDS * encoders.MASK)
    inputs = {"input_ids": ids, "attention_mask": encoders.MASK, "token_type_ids": tf.zeros_like(ids)}
    found = [[], [], []]
    for seed, (which, policy) in itertools.product(
        range(4), enumerate(("float32", "mixed_bfloat16", "mixed_bfloat16"))
    ):
        keras.config.set_dtype_policy(policy)
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
    compute = tf.function(
        lambda x: ops.inference_gelu(tf.nn.bias_add(tf.matmul(x, tf.eye(16, dtype=x.dtype)), tf.zeros([16], x.dtype))),
        autograph=False,
    )
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
