"""transformers' TensorFlow models and optimizers, which are of tf_keras."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

import tfbert
from tests.support.either_keras import SLOW, Either
from tests.support.models import random_batch
from tests.support.tf_keras_models import tiny_bert

pytestmark = SLOW
TWO = Either("tf_keras")


def test_bert_predicts_its_logits():
    inputs, labels, _ = random_batch(7)
    model = tiny_bert(num_hidden_layers=1)
    trained = tfbert.FineTuner(model)
    trained.compile("adam", TWO.loss(), metrics=["accuracy"], run_eagerly=True)
    logits = model(inputs).logits.numpy()
    np.testing.assert_allclose(trained.predict(inputs, batch_size=4, verbose=0), logits, atol=1e-5)
    result = trained.evaluate(inputs, labels, batch_size=4, verbose=0, return_dict=True)
    expected = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True).numpy().mean()
    assert result["loss"] == pytest.approx(expected, abs=1e-5)
    assert result["accuracy"] == pytest.approx((logits.argmax(1) == labels).mean())


def test_labels_among_the_inputs():
    inputs, labels, _ = random_batch(8)
    found = []
    for data_set in ((inputs, labels), ({**inputs, "labels": labels},)):
        keras.utils.set_random_seed(3)
        bert = tiny_bert(dropout=0.0)
        model = tfbert.FineTuner(bert, gradient_accumulation_steps=2)
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss=TWO.loss())
        model.fit(tf.data.Dataset.from_tensor_slices(data_set).batch(4), verbose=0)
        found.append([w.numpy() for w in bert.weights])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="SparseCategoricalCrossentropy"):
        tfbert.FineTuner(tiny_bert()).compile(optimizer=TWO.sgd())


def test_several_outputs():
    from transformers import BertConfig, TFBertForQuestionAnswering

    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1}
    model = TFBertForQuestionAnswering(BertConfig(vocab_size=20, **sizes))
    model.build_in_name_scope()
    trained = tfbert.FineTuner(model, gradient_accumulation_steps=2)
    trained.compile(keras.optimizers.Adam(0.01), {"start_logits": TWO.loss(), "end_logits": TWO.loss()})
    ids = np.random.default_rng(0).integers(1, 20, (8, 5)).astype(np.int32)
    labels = {"start_logits": np.full(8, 1), "end_logits": np.full(8, 3)}
    losses = trained.fit(ids, labels, batch_size=8, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    assert {name: value.shape for name, value in trained.predict(ids, verbose=0).items()} == {
        "start_logits": (8, 5),
        "end_logits": (8, 5),
    }
