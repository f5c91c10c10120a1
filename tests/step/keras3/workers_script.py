"""What each of some workers runs, or one process alone: training with Keras 3, whose results are written as JSON; or
training that is refused by values, of which its line is.

python workers_script.py OUT_DIRECTORY MICRO_BATCHES [KILL_AT_STEP]
python workers_script.py OUT_DIRECTORY loss|metric|evaluate
"""

import json
import os
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tfbert

FEATURES, CLASSES, ROWS = 5, 3, 43
"""In batches of 16: the last has 11 rows, and with 4 micro-batches an empty one."""


class Killed(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations.value.numpy() == self.step:
            os._exit(9)


def data():
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
    return x, np.argmax(x[:, :CLASSES], axis=1).astype(np.int32)


def in_batch_negatives(labels, outputs):
    scores = tf.matmul(outputs, outputs, transpose_b=True)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(outputs)[0]), scores)


def root_of_the_mean(labels, outputs):
    return tf.sqrt(tf.reduce_mean(outputs**2))


def refused(out, case):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        model = tfbert.FineTuner(keras.Sequential([keras.layers.Input([FEATURES]), keras.layers.Dense(CLASSES)]))
        model.compile("sgd", in_batch_negatives if case == "loss" else loss, metrics=[root_of_the_mean])
    try:
        (model.evaluate if case == "evaluate" else model.fit)(*data(), batch_size=8, verbose=0)
    except ValueError as error:
        pathlib.Path(out, f"{strategy.cluster_resolver.task_id}.json").write_text(json.dumps(str(error)))


def main(out, micro_batches, kill_at=0):
    out = pathlib.Path(out)
    is_alone = "TF_CONFIG" not in os.environ
    strategy = tf.distribute.get_strategy() if is_alone else tf.distribute.MultiWorkerMirroredStrategy()
    x, y = data()
    with strategy.scope():
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.3), keras.layers.Dense(CLASSES)]
        model = tfbert.FineTuner(
            keras.Sequential([keras.layers.Input([FEATURES]), *layers]),
            gradient_accumulation_steps=int(micro_batches),
            max_grad_norm=0.5,
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.AdamW(0.02), loss, metrics=["accuracy"])
    callbacks = [keras.callbacks.BackupAndRestore(out / "backup"), keras.callbacks.CSVLogger(out / "log.csv")]
    callbacks += [Killed(int(kill_at))] if int(kill_at) else []
    fit = {"batch_size": 16, "epochs": 3, "verbose": 0, "shuffle": False, "validation_data": (x[:13], y[:13])}
    history = model.fit(x, y, callbacks=callbacks, **fit).history
    predictions = model.predict(x[:11], batch_size=4, verbose=0)
    evaluated = model.evaluate(x, y, batch_size=16, verbose=0)
    shuffled = model.fit(x, y, batch_size=16, epochs=1, verbose=0).history if not is_alone else {}
    index = 0 if is_alone else strategy.cluster_resolver.task_id
    weights = [np.array(weight).tolist() for weight in model.model.get_weights()]
    (out / f"{index}.json").write_text(
        json.dumps(
            {
                "history": {name: [float(value) for value in values] for name, values in history.items()},
                "rows": [float(value) for value in shuffled.get("accuracy", [])],
                "weights": weights,
                "predictions": predictions.tolist(),
                "evaluated": [float(value) for value in evaluated],
                "files": sorted(path.name for path in out.iterdir()),
            }
        )
    )


if __name__ == "__main__":
    (main if sys.argv[2].isdigit() else refused)(*sys.argv[1:])
