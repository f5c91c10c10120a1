"""FineTuner from your own code: your own Keras model, then a BERT, through plain `model.fit`.

    python examples/fit_from_python.py

Both run under MirroredStrategy with gradient accumulation and clipping, with their own loss, metrics, class weights and
a standard Keras callback. The task is made up: does a sequence hold more tokens from the upper half of the vocabulary?
"""

import keras
import numpy as np
import tensorflow as tf

import tfbert

VOCAB, LENGTH, BATCH = 40, 12, 32


def make_data(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids `[rows, LENGTH]` and labels `[rows]`, about a third of them 1."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, VOCAB, (rows, LENGTH)).astype(np.int32)
    labels = ((ids >= VOCAB // 2).mean(axis=1) > 0.55).astype(np.int32)
    return ids, labels


def own_model() -> keras.Model:
    """Any Keras model with one output will do."""
    ids = keras.Input((LENGTH,), dtype="int32")
    hidden = keras.layers.Embedding(VOCAB, 16)(ids)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    hidden = keras.layers.Dropout(0.1)(hidden)
    return keras.Model(ids, keras.layers.Dense(1, activation="sigmoid")(hidden))


def bert_model() -> keras.Model:
    """A small BERT with random weights; `from_pretrained` gives a trained one."""
    config = tfbert.BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        num_labels=2,
    )
    return tfbert.TFBertForSequenceClassification(config)


def train(build, loss, rate: float, epochs: int, strategy: tf.distribute.Strategy) -> float:
    """Fits one model and returns its validation accuracy."""
    train_data = tf.data.Dataset.from_tensor_slices(make_data(2000, seed=0)).shuffle(2000, seed=0).batch(BATCH)
    validation_data = tf.data.Dataset.from_tensor_slices(make_data(400, seed=1)).batch(BATCH)
    with strategy.scope():
        model = tfbert.FineTuner(build(), gradient_accumulation_steps=2, max_grad_norm=1.0)
        model.compile(optimizer=keras.optimizers.Adam(rate), loss=loss, metrics=["accuracy"])
    history = model.fit(
        train_data,
        validation_data=validation_data,
        epochs=epochs,
        class_weight={0: 1.0, 1: 1.5},
        callbacks=[keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)],
        verbose=2,
    )
    return max(history.history["val_accuracy"])


def main() -> dict[str, float]:
    """Trains both and returns their validation accuracies."""
    keras.utils.set_random_seed(0)
    strategy = tf.distribute.MirroredStrategy()
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return {
        "own model": train(own_model, "binary_crossentropy", 2e-2, 8, strategy),
        "BERT": train(bert_model, cross_entropy, 3e-3, 4, strategy),
    }


if __name__ == "__main__":
    for name, accuracy in main().items():
        print(f"{name}: {accuracy:.3f}")
