"""What each of two workers runs: KerasHub's BERT in each cell of a grid, and what plain Keras 3 does there.

python workers_grid_script.py OUT_DIRECTORY POLICY:XLA:MICRO_BATCHES...
"""

import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tfbert
from tests.support.either_keras import CLASSES, FEATURES, Either, rows
from tests.support.keras_hub import bert, texts
from tests.support.updates import CLIP, DECAY, EPSILON, RATE

ROWS, BATCH = 43, 16


def main(out, *cells):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    path = pathlib.Path(out) / f"{strategy.cluster_resolver.task_id}"
    np.savez(path, **{cell: np.concatenate([w.ravel() for w in train(strategy, *cell.split(":"))]) for cell in cells})
    path.with_suffix(".json").write_text(json.dumps({name: refusal(strategy, name) for name in PLAIN}))


def train(strategy, policy, xla, micro_batches):
    """The weights after an epoch, from a data set of dictionaries."""
    keras.config.set_dtype_policy(policy)
    with strategy.scope():
        options = {"gradient_accumulation_steps": int(micro_batches), "jit_compile": xla == "xla"}
        model = tfbert.FineTuner(bert(), max_grad_norm=CLIP, **options)
        model.compile(keras.optimizers.AdamW(RATE, weight_decay=DECAY, epsilon=EPSILON), Either("keras").loss())
    batches = tf.data.Dataset.from_tensor_slices(texts(ROWS)).batch(BATCH)
    model.fit(batches.with_options(by_rows()), verbose=0)
    keras.config.set_dtype_policy("float32")
    assert int(model.counters.skipped_steps.numpy()) == 0
    return model.model.get_weights()


def by_rows():
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return options


class Built(keras.Sequential):
    """Does not read a batch to be built by."""

    def _maybe_symbolic_build(self, *args, **kwargs):
        self.optimizer.build(self.trainable_variables)


def dense(kind):
    model = kind([keras.layers.Input([FEATURES]), keras.layers.Dense(CLASSES)])
    model.compile(keras.optimizers.SGD(0.1), Either("keras").loss())
    return model, rows(16)


def of_dictionaries():
    model = bert(dropout=0.0)
    model.compile(keras.optimizers.SGD(0.1), Either("keras").loss())
    return model, texts(16)


PLAIN = {"arrays": lambda: dense(keras.Sequential), "built": lambda: dense(Built), "dictionaries": of_dictionaries}
"""Models with their data, by what `REFUSALS` of the test calls them."""


def refusal(strategy, name):
    """What plain Keras says instead of training; nothing where it trains."""
    with strategy.scope():
        model, arrays = PLAIN[name]()
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(8).with_options(by_rows())
    try:
        model.fit(batches, verbose=0)
    except Exception as error:  # Any: that it ends in one is what is found.
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
