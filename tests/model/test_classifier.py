"""The classifier's forward pass, which computes what is read, beside the whole: logits, gradients, updates."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.models import POLICIES, VOCAB, random_batch, tiny_bert, variables_of
from tfbert.model.forward import forward
from tfbert.step.keras3.parts import KeyedRandom
from tfbert.step.noise import Rows, noise_key


def gradients_of(compute, model, inputs, labels):
    """(logits, gradients) of a summed loss, in float32."""
    with tf.GradientTape() as tape:
        logits = tf.cast(compute(inputs), tf.float32)
        loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    return logits, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables_of(model))]


def assert_computes_the_models_own(model, inputs, labels, tolerance, xla=False):
    expected, exact = gradients_of(
        lambda x: model(x, training=True, output_hidden_states=True).logits, model, inputs, labels
    )
    step = tf.function(gradients_of, jit_compile=True, autograph=False) if xla else gradients_of
    found, gradients = step(lambda x: forward(model, x, True), model, inputs, labels)
    np.testing.assert_allclose(found, expected, atol=5 * tolerance)
    size = max(1.0, float(tf.linalg.global_norm(exact)))
    for variable, one, other in zip(model.trainable_variables, gradients, exact, strict=True):
        np.testing.assert_allclose(one, other, atol=5 * tolerance * size, rtol=0, err_msg=variable.path)


@POLICIES
def test_logits_and_gradients_are_the_models_own(policy, tolerance, xla):
    keras.config.set_dtype_policy(policy)
    inputs, labels, _ = random_batch(6)
    inputs["token_type_ids"][:, 5:] = 1
    assert_computes_the_models_own(tiny_bert(num_hidden_layers=3), inputs, labels, tolerance, xla)


@pytest.mark.parametrize("names", [("input_ids",), ("input_ids", "attention_mask"), ("input_ids", "token_type_ids")])
@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 9])
def test_inputs_that_may_be_left_out(names, width):
    inputs, labels, _ = random_batch(4, width=12)
    inputs = {name: inputs[name][:, :width] for name in names}
    other = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}
    assert_computes_the_models_own(tiny_bert(num_hidden_layers=1, **other), inputs, labels, 2e-6)


def test_what_fills_a_row_changes_nothing():
    model = tiny_bert()
    inputs, _, _ = random_batch(5)
    other = inputs | {"input_ids": np.where(inputs["attention_mask"], inputs["input_ids"], VOCAB - 1)}
    np.testing.assert_array_equal(forward(model, other, False), forward(model, inputs, False))


@pytest.mark.slow
def test_with_dropout_the_logits_have_the_models_mean():
    """Means over 3,000 noises of both, some standard errors apart at most; dropout is on at every place of both."""
    model = tiny_bert(dropout=0.2)
    inputs, _, _ = random_batch(2)
    # Each row of a batch has noise of its own.
    inputs = {name: np.tile(values, [3000, 1]) for name, values in inputs.items()}
    dropout = KeyedRandom(model, 1)

    def logits(compute):
        with dropout.keyed(noise_key(1, tf.constant(0, tf.int64)), Rows(0, 6000)):
            found = compute(inputs).numpy().reshape(3000, 2, -1)
        return found.mean(axis=0), found.std(axis=0)

    mean, spread = logits(lambda x: forward(model, x, True))
    expected, expected_spread = logits(lambda x: model(x, training=True, output_hidden_states=True).logits)
    assert (np.abs(mean - expected) < 5 * np.hypot(spread, expected_spread) / np.sqrt(3000)).all()
    np.testing.assert_allclose(spread, expected_spread, rtol=0.1)
