"""The peer: transformers' TensorFlow model in a plain `model.fit`, padded to the maximum, in its own environment.

    python -m venv peer-tf && peer-tf/bin/pip install tensorflow tf-keras "transformers<5" safetensors
    TF_USE_LEGACY_KERAS=1 peer-tf/bin/python benchmarks/peers/plain_fit.py --model=DIR --train_file=train.tsv \\
        --validation_file=dev.tsv

What transformers' own TensorFlow examples do: every text padded to `--max_seq_length`, tf_keras's AdamW with decay on
matrices only, a linear rate, clipping by global norm. Reads tab-separated files as `hf_trainer.py` does. Prints when
its first update was done, and one JSON line.
"""

import argparse
import json
import os
import pathlib
import time

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf
import tf_keras as keras
from transformers import AutoTokenizer, TFBertForSequenceClassification

BATCH = 32


def read(path, limit):
    """Texts and labels of a TSV file; the same random subset as tfbert's `--max_train_examples`."""
    lines = pathlib.Path(path).read_bytes().decode("utf-8").split("\n")[1:]
    rows = [line.rstrip("\r").split("\t") for line in lines if line.strip()]
    if limit:
        rng = np.random.Generator(np.random.PCG64(0))
        rows = [rows[i] for i in np.sort(rng.permutation(len(rows))[:limit])]
    return [text for _, text in rows], np.array([int(label) for label, _ in rows])


def main():
    """Trains for one epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max_train_examples", type=int, default=0)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    keras.utils.set_random_seed(args.seed)
    if args.bf16:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = TFBertForSequenceClassification.from_pretrained(args.model, num_labels=2)

    def encode(path, limit=0):
        texts, labels = read(path, limit)
        options = {"truncation": True, "padding": "max_length", "max_length": args.max_seq_length}
        return dict(tokenizer(texts, return_tensors="np", **options)), labels

    features, labels = encode(args.train_file, args.max_train_examples)
    train = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(len(labels), seed=args.seed)
    train = train.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    rate = keras.optimizers.schedules.PolynomialDecay(5e-5, len(train), end_learning_rate=0.0)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0, jit_compile=False)
    optimizer.exclude_from_weight_decay(var_names=["bias", "LayerNorm"])
    model.compile(
        optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    said = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: print("first update done", flush=True) if batch == 0 else None
    )
    started = time.perf_counter()
    model.fit(train, epochs=1, verbose=0, callbacks=[said])
    seconds = time.perf_counter() - started
    features, labels = encode(args.validation_file)
    logits = model.predict(tf.data.Dataset.from_tensor_slices(features).batch(BATCH), verbose=0).logits
    found = {
        "examples_per_second": round(len(train) * BATCH / seconds, 2),
        "eval_accuracy": float(np.mean(logits.argmax(-1) == labels)),
        "tensorflow": tf.__version__,
        "bf16": args.bf16,
        "seed": args.seed,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
