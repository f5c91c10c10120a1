"""The peer: transformers' TensorFlow model in a plain `model.fit`, padded to the maximum, in its own environment.

    python -m venv peer-tf && peer-tf/bin/pip install "tensorflow>=2.21,<2.22" "tf-keras>=2.21,<2.22" \\
        "transformers>=4.53,<4.55" "safetensors>=0.4.3"
    TF_USE_LEGACY_KERAS=1 peer-tf/bin/python benchmarks/peers/plain_fit.py --model=DIR --train_file=train.tsv \\
        --validation_file=dev.tsv

Does what transformers' own TensorFlow examples do: every text padded to `--max_seq_length`, tf_keras's AdamW with decay
on matrices only, a linearly decaying rate, clipping by global norm. Texts are single, labels are 0 and 1; tfbert's own
code, which needs no TensorFlow here, reads the files. Prints a line when its first update is done, and one JSON line at
the end. The versions are tfbert's own: transformers 4.55 to 4.57 cannot load PyTorch-format safetensors into a
TensorFlow model, and 5 has no TensorFlow.
"""

import argparse
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf
import tf_keras as keras
from common import chosen
from transformers import AutoTokenizer, TFBertForSequenceClassification

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.data.files import read_file  # noqa: E402

BATCH = 32


def main():
    """Trains for one epoch."""
    args = arguments()
    keras.utils.set_random_seed(args.seed)
    if args.bf16:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = TFBertForSequenceClassification.from_pretrained(args.model, num_labels=2)

    def encode(path, limit=0):
        table = read_file(path)
        kept = chosen(len(table), limit)
        texts, labels = [table.text[row] for row in kept], np.array([int(table.labels[row]) for row in kept])
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
        "eval_accuracy": float((logits.argmax(-1) == labels).mean()),
        "tensorflow": tf.__version__,
        "bf16": args.bf16,
        "seed": args.seed,
    }
    print(json.dumps(found))


def arguments() -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max_train_examples", type=int, default=0)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


if __name__ == "__main__":
    main()
