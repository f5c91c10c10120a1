"""bfloat16 gradients of thousands of tokens are float32's: sums must not be taken in 8 bits of mantissa."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.models import random_batch, tiny_bert, variables_of
from tfbert.bert.models import (
    TFBertForPreTraining,
    TFBertForQuestionAnswering,
    TFBertForSequenceClassification,
    TFBertForTokenClassification,
)
from tfbert.model.forward import forward, forward_pretraining, forward_spans, forward_tokens
from tfbert.model.ops import add_bias

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

    @tf.function(jit_compile=xla)
    def gradient():
        with tf.GradientTape() as tape:
            y = add_bias(x, bias)
        return tape.gradient(y, bias)

    np.testing.assert_array_equal(gradient(), np.full(8, 4096, np.float32))


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", [kind if kind in ("tags", "pre-training") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
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
    model = tiny_bert(kind=model_class)
    inputs, _, _ = random_batch(ROWS, WIDTH)
    rng = np.random.default_rng(1)
    if kind == "pre-training":
        inputs["masked_lm_positions"] = rng.integers(0, WIDTH, (ROWS, PREDICTIONS)).astype(np.int32)

    @tf.function(jit_compile=xla)
    def compute(inputs):
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(run(model, inputs, True))
            losses = [_loss(tf.cast(logits, tf.float32), over_tokens=kind == "answers") for logits in outputs]
            loss = tf.add_n(losses)
        found = tape.gradient(loss, variables_of(model))
        return [None if one is None else tf.convert_to_tensor(one) for one in found]

    values = zip(model.trainable_variables, compute(inputs), strict=True)
    return {variable.path.partition("/")[2]: value.numpy() for variable, value in values if value is not None}


def _loss(logits, *, over_tokens):
    """Makes the first class, or the first token, likely: upstream gradients of one sign, whose sum is largest."""
    likely = tf.nn.log_softmax(logits, axis=1 if over_tokens else -1)
    return -tf.reduce_mean(likely[:, 0] if over_tokens else likely[..., 0])
