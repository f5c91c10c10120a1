"""keras.io's examples with BERT, small and in our own words, after changing the import: each learns, and is saved."""

import keras
import numpy as np
import pytest

from tests.support.bert import SIZES, worst
from tfbert import BertConfig, TFBertForMaskedLM, TFBertForSequenceClassification, TFBertModel

ROWS, WIDTH = 96, 12
CLS, SEP, MASK = 1, 2, 3
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(6, WIDTH + 1, ROWS)
ATTENTION = (np.arange(WIDTH) < LENGTHS[:, None]).astype(np.int32)


def texts():
    """`[CLS]`, words from 10 on, `[SEP]`, padding."""
    ids = RNG.integers(10, 30, (ROWS, WIDTH)).astype(np.int32) * ATTENTION
    ids[:, 0] = CLS
    ids[np.arange(ROWS), LENGTHS - 1] = SEP
    return ids


RATES = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def pretrained(tmp_path):
    """A directory with an encoder, in the place of a download."""
    keras.utils.set_random_seed(0)
    TFBertModel(BertConfig(**SIZES | RATES)).save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.mark.slow
def test_question_answering(tmp_path):
    """The answer is the word 40, wherever it stands."""
    ids, places = texts(), RNG.integers(1, LENGTHS - 1)
    ids[np.arange(ROWS), places] = 40
    encoder = TFBertModel.from_pretrained(pretrained(tmp_path / "encoder"))

    input_ids, token_type_ids, attention_mask = inputs = [keras.Input([WIDTH], dtype="int32") for _ in range(3)]
    tokens = encoder(input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)[0]
    shares = []
    for name in ("start", "end"):
        logits = keras.layers.Flatten()(keras.layers.Dense(1, name=f"{name}_logit", use_bias=False)(tokens))
        shares.append(keras.layers.Activation(keras.activations.softmax, name=name)(logits))
    model = keras.Model(inputs, shares)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=False)
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=5e-3), loss=[loss, loss])

    x = [ids, ids * 0, ATTENTION]
    history = model.fit(x, [places, places], batch_size=32, epochs=6, verbose=0).history["loss"]
    start, end = model.predict(x, verbose=0)
    assert history[-1] < 0.1 * history[0]
    assert (start.argmax(1) == places).mean() > 0.95 and (end.argmax(1) == places).mean() > 0.95
    model.save(tmp_path / "model.keras")
    assert worst(keras.models.load_model(tmp_path / "model.keras").predict(x, verbose=0), (start, end)) == 0


@pytest.mark.slow
def test_masked_language_modelling_end_to_end(tmp_path):
    """Words follow one another; the classifier begins with the encoder that has learned how."""
    first = RNG.integers(0, 20, (ROWS, 1))
    ids = (10 + (first + np.arange(WIDTH)) % 20).astype(np.int32) * ATTENTION
    hidden = (RNG.random(ids.shape) < 0.2) & (ATTENTION > 0)
    masked, labels = np.where(hidden, MASK, ids), np.where(hidden, ids, -100)
    keras.utils.set_random_seed(1)
    model = TFBertForMaskedLM(BertConfig(**SIZES | RATES))
    model.compile(optimizer=keras.optimizers.Adam(3e-3), metrics=["accuracy"])
    inputs = {"input_ids": masked, "attention_mask": ATTENTION}
    history = model.fit(inputs, labels, epochs=60, batch_size=32, verbose=0).history
    assert history["accuracy"][-1] > 0.8 > 0.3 > history["accuracy"][0]
    found = model.predict(inputs, verbose=0).logits.argmax(-1)
    assert (found == ids)[hidden].mean() > 0.9

    model.save_pretrained(tmp_path)
    classifier = TFBertForSequenceClassification.from_pretrained(tmp_path, num_labels=2, seed=0)
    assert worst(classifier.bert.embeddings.weight, model.bert.embeddings.weight) == 0
    parity = (first[:, 0] % 2).astype(np.int32)
    classifier.compile(optimizer=keras.optimizers.Adam(1e-3), metrics=["accuracy"])
    inputs = {"input_ids": ids, "attention_mask": ATTENTION}
    history = classifier.fit(inputs, parity, epochs=10, batch_size=16, verbose=0).history
    assert history["accuracy"][-1] > 0.9
