"""What each worker of `network_failures.py` runs with Keras 3: a script as a user writes it, with BackupAndRestore.

    TF_CONFIG=... python network_keras3.py OUT_DIRECTORY EPOCHS STEPS_PER_EPOCH STRATEGY

STRATEGY is `tfbert` for `tfbert.build_strategy`, or `plain` for `tf.distribute.MultiWorkerMirroredStrategy()`. Worker 0
adds a line to OUT_DIRECTORY/steps for each update; each worker writes its weights to OUT_DIRECTORY/INDEX.npz.
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tfbert

ROWS, FEATURES, WIDTH, CLASSES = 16, 64, 512, 4


class Steps(keras.callbacks.Callback):
    """Writes how far the run is.

    Args:
        path: Gets a line for each update.
    """

    def __init__(self, path: pathlib.Path):
        super().__init__()
        self._path = path

    def on_train_batch_end(self, batch, logs=None):
        """Called after each update."""
        with self._path.open("a") as out:
            out.write(f"{self.model.optimizer.iterations.numpy()}\n")


def main(directory: str, epochs: str, steps: str, kind: str) -> None:
    """Trains, and writes the weights."""
    out = pathlib.Path(directory)
    if kind == "plain":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = tfbert.build_strategy(tfbert.RuntimeConfig(strategy="multi_worker"))
    index = strategy.cluster_resolver.task_id
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS * int(steps), FEATURES)).astype(np.float32)
    y = np.argmax(x[:, :CLASSES], axis=1).astype(np.int32)
    with strategy.scope():
        keras.utils.set_random_seed(3)
        hidden = [
            layer
            for _ in range(2)
            for layer in (keras.layers.Dense(WIDTH, activation="tanh"), keras.layers.Dropout(0.3))
        ]
        layers = [keras.layers.Input([FEATURES]), *hidden, keras.layers.Dense(CLASSES)]
        model = tfbert.FineTuner(keras.Sequential(layers), max_grad_norm=1.0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.AdamW(0.001), loss, metrics=["accuracy"])
    callbacks = [keras.callbacks.BackupAndRestore(out / "backup")]
    callbacks += [Steps(out / "steps")] if index == 0 else []
    model.fit(x, y, batch_size=ROWS, epochs=int(epochs), verbose=0, shuffle=False, callbacks=callbacks)
    np.savez(out / f"{index}.npz", *model.model.get_weights())


if __name__ == "__main__":
    main(*sys.argv[1:])
