"""The peer in Keras 3: KerasHub's BertTextClassifier in a plain `fit`, from a preset that it made of the same model.

    python benchmarks/peers/keras_hub_fit.py train --model=PRESET --train_file=train.tsv --output_dir=RUN
    python benchmarks/peers/keras_hub_fit.py evaluate --model=RUN --validation_file=dev.tsv
    python benchmarks/peers/keras_hub_fit.py predict --model=RUN --input_file=texts.jsonl

In tfbert's own environment with `keras-hub`. `--padding=max_length` is KerasHub's own way: texts go into `fit`, and its
preprocessor pads them all to `--max_seq_length`. `pools` leaves the preprocessor out and makes batches of like length,
which a user has to write. Without `--jit_compile`, Keras decides (`jit_compile="auto"`). The rate falls linearly,
without warm-up, for which Keras has no schedule. tfbert's own code reads the files and computes the scores. Prints a
JSON line.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras_hub.models import BertTextClassifier, BertTextClassifierPreprocessor, BertTokenizer
from keras_jobs import CLIP, WEIGHT_DECAY, Predict, by_length, dataset, num_updates, pools, run_job, speeds

_INPUTS = ("token_ids", "padding_mask", "segment_ids")
_NO_DECAY = ("bias", "gamma", "beta")
_TOKENIZED = 1000
"""Texts at a time."""


def main() -> None:
    """Does one of the three jobs."""
    run_job(__doc__, fit, load, paddings=("max_length", "pools"), packages=("keras", "keras-hub"))


def fit(args: argparse.Namespace, texts: list[str], labels: np.ndarray) -> dict:
    """Trains, and saves the model as a preset."""
    keras.utils.set_random_seed(args.seed)
    task = BertTextClassifier.from_preset(
        args.model, num_classes=len(set(labels.tolist())), preprocessor=preprocessor(args)
    )
    if args.padding == "pools":
        rows = encode(args, BertTokenizer.from_preset(args.model), texts)
        batches = dataset(args, _INPUTS, rows, pools(args, rows), labels)
    else:
        batches = tf.data.Dataset.from_tensor_slices((texts, labels)).shuffle(len(texts), seed=args.seed)
        batches = batches.batch(args.global_batch_size, drop_remainder=True)
    rate = keras.optimizers.schedules.PolynomialDecay(args.learning_rate, num_updates(args, len(texts)), 0.0)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=WEIGHT_DECAY, epsilon=1e-8, global_clipnorm=CLIP)
    optimizer.exclude_from_weight_decay(var_names=[*_NO_DECAY])
    task.compile(optimizer=optimizer, jit_compile=args.jit_compile or "auto")
    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter()))
    started = time.perf_counter()
    task.fit(batches, epochs=args.num_train_epochs, verbose=0, callbacks=[clock])
    found = speeds(args, started, ends) | {"jit_compile": bool(task.jit_compile)}
    if task.preprocessor is None:  # A preset of a classifier holds one.
        task.preprocessor = BertTextClassifierPreprocessor(BertTokenizer.from_preset(args.model))
    task.save_to_preset(args.output_dir)
    return found


def load(args: argparse.Namespace) -> Predict:
    """The model's own `predict`."""
    task = BertTextClassifier.from_preset(args.model, preprocessor=preprocessor(args))
    task.compile(jit_compile=args.jit_compile or "auto")
    tokenizer = BertTokenizer.from_preset(args.model)

    def predict(texts: list[str]) -> np.ndarray:
        if args.padding == "max_length":
            return task.predict(texts, batch_size=args.global_batch_size, verbose=0)
        rows = encode(args, tokenizer, texts)
        order = by_length(args, rows)
        logits = task.predict(dataset(args, _INPUTS, rows, lambda: order), verbose=0)
        out = np.empty_like(logits)
        out[np.concatenate(order)] = logits
        return out

    return predict


def preprocessor(args: argparse.Namespace) -> BertTextClassifierPreprocessor | None:
    """KerasHub's own, or none."""
    if args.padding == "pools":
        return None
    return BertTextClassifierPreprocessor.from_preset(args.model, sequence_length=args.max_seq_length)


def encode(args: argparse.Namespace, tokenizer: BertTokenizer, texts: list[str]) -> list[np.ndarray]:
    """Token ids of each text. In `tf.data` KerasHub's tokenizer is TensorFlow's, elsewhere one in Python."""
    parts = tf.data.Dataset.from_tensor_slices(texts).batch(_TOKENIZED).map(tokenizer)
    first, last = [tokenizer.start_token_id], [tokenizer.end_token_id]
    rows = (row[: args.max_seq_length - 2] for part in parts for row in part.numpy())
    return [np.concatenate([first, row, last]) for row in rows]


if __name__ == "__main__":
    main()
