"""Layers of tf_keras that draw a seed, so that it is not known for which rows; noise that is drawn again."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.models import random_batch
from tfbert.model.forward import forward
from tfbert.step.noise import Rows, noise_key
from tfbert.step.tf_keras.parts import KeyedDropout


def key(step=2):
    return noise_key(1, tf.constant(step, tf.int64))


@pytest.mark.parametrize("mode", [pytest.param("horizontal", marks=pytest.mark.slow), "horizontal_and_vertical"])
def test_a_layer_that_draws_seeds_works_keyed_and_not(mode):
    model = keras.Sequential([keras.layers.Input([8, 8, 1]), keras.layers.RandomFlip(mode)])
    dropout, image = KeyedDropout(model), tf.reshape(tf.range(64.0), [1, 8, 8, 1])
    seen = set()
    for step in range(40):
        with dropout.keyed(key(step=step)):
            seen.add(model(image, training=True).numpy().tobytes())
    assert len(seen) == (2 if mode == "horizontal" else 4), "one draw decides over both directions"
    assert model(image, training=True).shape == image.shape


def test_a_layer_that_draws_a_seed_has_one_a_part():
    """What it makes of the seed is its own: nothing is known of rows, but parts must not repeat each other."""
    model = keras.Sequential([keras.layers.Input([4, 4, 1]), keras.layers.RandomFlip("horizontal")])
    dropout, images = KeyedDropout(model), tf.reshape(tf.range(64 * 16.0), [64, 4, 4, 1])
    flipped = []
    for first in (0, 64, 0):
        with dropout.keyed(key(), Rows(tf.constant(first, tf.int64), 64)):
            flipped.append((model(images, training=True) != images).numpy()[:, 0, 0, 0])
    np.testing.assert_array_equal(flipped[0], flipped[2])
    assert 15 < (flipped[0] != flipped[1]).sum() < 49


@pytest.mark.slow
def test_recomputed_layers_draw_the_noise_of_the_first_pass():
    """Gradient checkpointing: of three layers all but the last compute their attention once more, rows 3 to 8."""
    from tests.support.tf_keras_models import tiny_bert  # Imports transformers, which no quick test here needs.

    inputs, labels, _ = random_batch(6)

    def gradients(recompute):
        model = tiny_bert(dropout=0.3, num_hidden_layers=3)
        dropout = KeyedDropout(model)

        @tf.function(autograph=False)
        def step():
            with tf.GradientTape() as tape:
                with dropout.keyed(noise_key(1, tf.constant(2, tf.int64)), Rows(tf.constant(3, tf.int64), 6)):
                    logits = forward(model, inputs, True, recompute=recompute)
                loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            return [tf.convert_to_tensor(each) for each in tape.gradient(loss, model.trainable_variables)]

        graph = step.get_concrete_function().graph.as_graph_def()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        return step(), sum(node.op == "Softmax" for node in nodes)

    (plain, once), (found, again) = gradients(False), gradients(True)
    assert (once, again) == (3, 5)
    size = float(tf.linalg.global_norm(plain))
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6 * size, rtol=0)
