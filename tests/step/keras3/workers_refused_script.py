"""What each of two workers runs: training that is refused by values. Its line is written to a file of each worker.

python workers_refused_script.py OUT_DIRECTORY CASE
"""

import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tfbert


def in_batch_negatives(labels, outputs):
    scores = tf.matmul(outputs, outputs, transpose_b=True)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(outputs)[0]), scores)


def root_of_the_mean(labels, outputs):
    return tf.sqrt(tf.reduce_mean(outputs**2))


def main(out, case):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        model = tfbert.FineTuner(keras.Sequential([keras.layers.Input([5]), keras.layers.Dense(3)]))
        model.compile("sgd", in_batch_negatives if case == "loss" else loss, metrics=[root_of_the_mean])
    call = model.evaluate if case == "evaluate" else model.fit
    try:
        call(x, np.argmax(x[:, :3], axis=1), batch_size=8, verbose=0)
    except ValueError as error:
        path = pathlib.Path(out, f"{strategy.cluster_resolver.task_id}.json")
        path.write_text(json.dumps(str(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
