"""Noise of Keras 3's layers drawn again, as gradient checkpointing needs it; numbers that BERT's dropouts have."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.models import tiny_bert
from tfbert.bert import models
from tfbert.private import layers_of
from tfbert.step.keras3.parts import KeyedRandom
from tfbert.step.keras3.private import generators_of
from tfbert.step.noise import noise_key, same_noise


def key(step=2):
    return noise_key(1, tf.constant(step, tf.int64))


def test_the_same_noise_can_be_drawn_again_later():
    model = keras.Sequential([keras.Input([100]), keras.layers.Dropout(0.5)])
    dropout = KeyedRandom(model, 1)
    assert same_noise() is None, "noise that is not keyed cannot be drawn again"
    with dropout.keyed(key()):
        again, first = same_noise(), model(tf.ones([1, 100]), training=True)
    with dropout.keyed(key(step=9)):
        other = model(tf.ones([1, 100]), training=True)
        with again():
            inner = model(tf.ones([1, 100]), training=True)
    with dropout.keyed(key(step=9)), again():
        pass
    with dropout.keyed(key(step=9)):
        after = model(tf.ones([1, 100]), training=True)
    with again():
        outer = model(tf.ones([1, 100]), training=True)
    for found, expected in ((inner, first), (outer, first), (after, other)):
        np.testing.assert_array_equal(found, expected)
    assert (first != other).numpy().any()


def test_a_layer_that_is_shared_is_recomputed_with_the_noise_of_its_call():
    layer = keras.layers.Dropout(0.5)
    model = keras.Sequential([keras.Input([100]), layer])
    dropout, ones = KeyedRandom(model, 1), tf.ones([1, 100])
    with dropout.keyed(key()):
        plain = [layer(ones, training=True) for _ in range(3)]
    with dropout.keyed(key()):
        contexts, found = [], []
        for _ in range(3):
            contexts.append(same_noise())
            with contexts[-1]():
                found.append(layer(ones, training=True))
    for context, expected in zip(contexts, plain, strict=True):
        with context():
            np.testing.assert_array_equal(layer(ones, training=True), expected)
    np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize(
    "kind, head",
    [
        ("SequenceClassification", [59]),
        ("MultipleChoice", [59]),
        ("TokenClassification", [57]),
        ("QuestionAnswering", []),
        ("PreTraining", []),
    ],
)
def test_each_dropout_of_bert_has_the_noise_that_it_had_in_tfbert_1_0(kind, head):
    """Its number there was its layer's place in transformers' TensorFlow model, as these are."""
    model = tiny_bert(kind=getattr(models, f"TFBertFor{kind}"), num_hidden_layers=3, dropout=0.1)
    numbers = KeyedRandom(model, 1)._numbers
    found = [numbers[id(each)] for layer in layers_of(model) for each in generators_of(layer)]
    assert sorted(found) == [4, 12, 16, 22, 29, 33, 39, 46, 50, 56, *head]
