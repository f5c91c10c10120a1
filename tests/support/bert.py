"""Small models of our own classes, transformers' with the same weights, and a batch for each class."""

import keras
import numpy as np

import tfbert
from tests.support import models as tiny
from tfbert.bert import models

SIZES, VOCAB = tiny.SIZES, tiny.VOCAB
ROWS, WIDTH = 12, 9
_rng = np.random.default_rng(0)
LENGTHS = _rng.integers(2, WIDTH + 1, ROWS)
MASK = (np.arange(WIDTH) < LENGTHS[:, None]).astype(np.int32)
IDS = _rng.integers(1, VOCAB // 3, (ROWS, WIDTH)).astype(np.int32) * MASK  # Most tokens occur several times.
TEXTS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": (np.arange(WIDTH) > 4).astype(np.int32) * MASK}
CHOICES = {name: value.reshape(4, 3, WIDTH) for name, value in TEXTS.items()}
CLASSES = (IDS.sum(1) % 3).astype(np.int32)
TAGS = np.where(MASK > 0, IDS % 3, -100).astype(np.int32)
WORDS = np.where(_rng.random((ROWS, WIDTH)) < 0.5, IDS, -100) * MASK - 100 * (1 - MASK)
PLACES = {"start_positions": np.minimum(1, LENGTHS - 1), "end_positions": LENGTHS - 1}
KINDS = {
    "TFBertModel": ({}, TEXTS, {}),
    "TFBertForSequenceClassification": ({"num_labels": 3}, TEXTS, {"labels": CLASSES}),
    "TFBertForTokenClassification": ({"num_labels": 3}, TEXTS, {"labels": TAGS}),
    "TFBertForQuestionAnswering": ({}, TEXTS, PLACES),
    "TFBertForMultipleChoice": ({}, CHOICES, {"labels": CLASSES[:4]}),
    "TFBertForMaskedLM": ({}, TEXTS, {"labels": WORDS}),
    "TFBertForPreTraining": ({}, TEXTS, {"labels": WORDS, "next_sentence_label": CLASSES % 2}),
}
"""Each class: what its configuration says besides `SIZES`, inputs, labels."""
WITH_LABELS = [kind for kind, (_, _, labels) in KINDS.items() if labels]


def make(kind="TFBertForSequenceClassification", dropout=0.0, seed=3, **values):
    """A model with weights of a seed."""
    values = {"num_labels": 2} | KINDS[kind][0] | values
    return tiny.tiny_bert(dropout=dropout, seed=seed, kind=getattr(models, kind), **values)


def tuned(make_model, kind, replicas=1, micro_batches=1, epochs=1, **options):
    """A model after FineTuner's epochs of 12 rows, with dropout, and the history."""
    with tiny.strategy_of(replicas).scope():
        model = make_model(kind, dropout=0.1)
        tuner = tfbert.FineTuner(model, gradient_accumulation_steps=micro_batches, **options)
        # With the usual epsilon, Adam blows up the rounding of gradients that are 0 in exact arithmetic.
        tuner.compile(tfbert.AdamW(1e-2, epsilon=1e-3))
    _, inputs, labels = KINDS[kind]
    return model, tuner.fit(inputs | labels, batch_size=4, epochs=epochs, shuffle=False, verbose=0).history


def kept_by_keras(model, optimizer, directory):
    """A model after an update as Keras saves and loads it: weights, and which of them are trained, are the same."""
    model.compile(optimizer, metrics=["accuracy"], run_eagerly=True)
    model.fit(TEXTS, CLASSES, batch_size=ROWS, verbose=0)
    model.save(directory / "m.keras")
    model.save_weights(directory / "m.weights.h5")
    loaded = keras.models.load_model(directory / "m.keras")
    assert worst(loaded.get_weights(), model.get_weights()) == 0
    assert [v.path for v in loaded.trainable_variables] == [v.path for v in model.trainable_variables]
    return loaded


def worst(one, other):
    """The largest difference between two structures of arrays."""
    pairs = zip(keras.tree.flatten(one), keras.tree.flatten(other), strict=True)
    return max(float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max()) for a, b in pairs)
