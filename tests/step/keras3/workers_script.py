"""What each of some workers runs, or one process alone: training with Keras 3, whose results are written as JSON;
training that is refused by values, of which its line is; KerasHub's BERT in each cell of a grid, and what plain Keras 3
does there.

python workers_script.py OUT_DIRECTORY train MICRO_BATCHES [KILL_AT_STEP]
python workers_script.py OUT_DIRECTORY refused loss|metric|evaluate
python workers_script.py OUT_DIRECTORY grid POLICY:XLA:MICRO_BATCHES...
"""

import json
import os
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tfbert
from tests.support.either_keras import CLASSES, FEATURES, Either, in_batch_negatives, root_of_the_mean, rows
from tests.support.keras_hub import bert, texts
from tests.support.updates import CLIP, DECAY, EPSILON, RATE

THREE = Either("keras")
ROWS, BATCH = 43, 16
"""The last batch has 11 rows, and with 4 micro-batches an empty one."""


def train(out, micro_batches, kill_at=0):
    is_alone = "TF_CONFIG" not in os.environ
    strategy = tf.distribute.get_strategy() if is_alone else tf.distribute.MultiWorkerMirroredStrategy()
    x, y = rows(ROWS)
    options = {"gradient_accumulation_steps": int(micro_batches), "max_grad_norm": 0.5}
    with strategy.scope():
        model = tfbert.FineTuner(THREE.classifier(dropout=0.3), **options)
        model.compile(keras.optimizers.AdamW(0.02), THREE.loss(), metrics=["accuracy"])

    def kill(batch, logs):
        if model.optimizer.iterations.value.numpy() == int(kill_at):
            os._exit(9)

    callbacks = [keras.callbacks.BackupAndRestore(out / "backup"), keras.callbacks.CSVLogger(out / "log.csv")]
    callbacks.append(keras.callbacks.LambdaCallback(on_train_batch_end=kill))
    fit = {"batch_size": BATCH, "epochs": 3, "verbose": 0, "shuffle": False, "validation_data": (x[:13], y[:13])}
    found = {
        "history": model.fit(x, y, callbacks=callbacks, **fit).history,
        "predictions": model.predict(x[:11], batch_size=4, verbose=0),
        "evaluated": model.evaluate(x, y, batch_size=BATCH, verbose=0),
    }
    if not is_alone:
        found["rows"] = model.fit(x, y, batch_size=BATCH, verbose=0).history["accuracy"]
    found["weights"] = model.model.get_weights()
    index = 0 if is_alone else strategy.cluster_resolver.task_id
    (out / f"{index}.json").write_text(json.dumps(found, default=lambda values: values.tolist()))


def linear(kind=keras.Sequential):
    return kind([keras.layers.Input([FEATURES]), keras.layers.Dense(CLASSES)])


def refused(out, case):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tfbert.FineTuner(linear())
        model.compile("sgd", in_batch_negatives if case == "loss" else THREE.loss(), metrics=[root_of_the_mean])
    try:
        (model.evaluate if case == "evaluate" else model.fit)(*rows(ROWS), batch_size=8, verbose=0)
    except ValueError as error:
        (out / f"{strategy.cluster_resolver.task_id}.json").write_text(json.dumps(str(error)))


def grid(out, *cells):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    path = out / f"{strategy.cluster_resolver.task_id}"
    np.savez(path, **{cell: trained(strategy, *cell.split(":")) for cell in cells})
    path.with_suffix(".json").write_text(json.dumps({name: refusal(strategy, name) for name in PLAIN}))


def trained(strategy, policy, xla, micro_batches):
    """The weights after an epoch, from a data set of dictionaries."""
    options = {"gradient_accumulation_steps": int(micro_batches), "max_grad_norm": CLIP, "jit_compile": xla == "xla"}
    with THREE.policy(policy):
        with strategy.scope():
            model = tfbert.FineTuner(bert(), **options)
            model.compile(keras.optimizers.AdamW(RATE, weight_decay=DECAY, epsilon=EPSILON), THREE.loss())
        model.fit(by_rows(texts(ROWS), BATCH), verbose=0)
    assert int(model.counters.skipped_steps.numpy()) == 0
    return np.concatenate([weight.ravel() for weight in model.model.get_weights()])


def by_rows(arrays, batch_size):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size).with_options(options)


class Built(keras.Sequential):
    """Does not read a batch to be built by."""

    def _maybe_symbolic_build(self, *args, **kwargs):
        self.optimizer.build(self.trainable_variables)


PLAIN = {
    "arrays": lambda: (linear(), rows(16)),
    "built": lambda: (linear(Built), rows(16)),
    "dictionaries": lambda: (bert(dropout=0.0), texts(16)),
}
"""Models with their data, by what `REFUSALS` of the test calls them."""


def refusal(strategy, name):
    """What plain Keras says instead of training; nothing where it trains."""
    with strategy.scope():
        model, arrays = PLAIN[name]()
        model.compile(keras.optimizers.SGD(0.1), THREE.loss())
    try:
        model.fit(by_rows(arrays, 8), verbose=0)
    except Exception as error:  # Any: that it ends in one is what is found.
        return str(error)
    return ""


if __name__ == "__main__":
    {"train": train, "refused": refused, "grid": grid}[sys.argv[2]](pathlib.Path(sys.argv[1]), *sys.argv[3:])
