"""The peer in tf_keras: transformers' TFBertForSequenceClassification in a plain `model.fit`.

    python benchmarks/peers/tf_transformers.py train --model=DIR --train_file=train.tsv --output_dir=RUN
    python benchmarks/peers/tf_transformers.py evaluate --model=RUN --validation_file=dev.tsv
    python benchmarks/peers/tf_transformers.py predict --model=RUN --input_file=texts.jsonl

In tfbert's own environment with `datasets`; transformers 4.55 to 4.57 cannot load PyTorch-format safetensors into a
TensorFlow model, and 5 has no TensorFlow. Optimizer, rate and data sets are transformers' own (`create_optimizer`,
`prepare_tf_dataset`), the loss is the model's. `--padding=max_length` pads every text to `--max_seq_length`; `longest`
pads to the longest of a batch in random order, as the guide to text classification does; `pools` makes batches of like
length, which a user has to write. tfbert's own code reads the files and computes the scores. Prints a JSON line.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import datasets
import numpy as np
import tensorflow as tf
import tf_keras as keras
from keras_jobs import CLIP, WEIGHT_DECAY, Predict, by_length, dataset, num_updates, pools, run_job, speeds
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TFBertForSequenceClassification, create_optimizer

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_WARM_UP = 0.1


def main() -> None:
    """Does one of the three jobs."""
    packages = ("tf-keras", "transformers", "datasets")
    run_job(__doc__, fit, load, paddings=("max_length", "longest", "pools"), packages=packages)


def fit(args: argparse.Namespace, texts: list[str], labels: np.ndarray) -> dict:
    """Trains, and saves the model."""
    keras.utils.set_random_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = TFBertForSequenceClassification.from_pretrained(args.model, num_labels=len(set(labels.tolist())))
    batches = batches_of(args, model, tokenizer, texts, labels)
    steps = num_updates(args, len(texts))
    optimizer, _ = create_optimizer(
        args.learning_rate,
        num_train_steps=steps,
        num_warmup_steps=int(_WARM_UP * steps),
        weight_decay_rate=WEIGHT_DECAY,
        adam_global_clipnorm=CLIP,
    )
    model.compile(optimizer=optimizer, jit_compile=args.jit_compile)
    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter()))
    started = time.perf_counter()
    model.fit(batches, epochs=args.num_train_epochs, verbose=0, callbacks=[clock])
    found = speeds(args, started, ends)
    model.save_pretrained(args.output_dir)
    tokenizer.save_pretrained(args.output_dir)
    return found


def load(args: argparse.Namespace) -> Predict:
    """The model's own `predict`."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = TFBertForSequenceClassification.from_pretrained(args.model)
    model.compile(jit_compile=args.jit_compile)

    def predict(texts: list[str]) -> np.ndarray:
        logits = model.predict(batches_of(args, model, tokenizer, texts), verbose=0).logits
        if args.padding != "pools":
            return logits
        out = np.empty_like(logits)
        out[np.concatenate(by_length(args, encode(args, tokenizer, texts)["input_ids"]))] = logits
        return out

    return predict


def encode(args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> dict[str, list]:
    """The inputs of all texts."""
    padding = "max_length" if args.padding == "max_length" else False
    return dict(tokenizer(texts, truncation=True, max_length=args.max_seq_length, padding=padding))


def batches_of(
    args: argparse.Namespace,
    model: TFBertForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    labels: np.ndarray | None = None,
) -> tf.data.Dataset:
    """Batches to train on, if there are labels; else all rows, in order or from long to short."""
    columns = encode(args, tokenizer, texts)
    if args.padding == "pools":
        rows = columns["input_ids"]
        return dataset(
            args, _INPUTS, rows, pools(args, rows) if labels is not None else lambda: by_length(args, rows), labels
        )
    table = datasets.Dataset.from_dict(columns if labels is None else columns | {"labels": labels})
    return model.prepare_tf_dataset(
        table,
        batch_size=args.global_batch_size,
        shuffle=labels is not None,
        tokenizer=None if args.padding == "max_length" else tokenizer,
    )


if __name__ == "__main__":
    main()
