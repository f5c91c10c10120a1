"""A small training of which each worker computes its share: a process needs TensorFlow for it, but not transformers."""

import keras
import numpy as np
import tensorflow as tf

from tfbert.step.keras3.finetuner import FineTuner

BATCH = 8


def train(strategy, micro_batches):
    """Weights after 3 updates, dropout on; the last batch has 3 rows, so that a second worker's share is empty."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, BATCH, 5)).astype(np.float32)
    y = rng.integers(0, 3, (3, BATCH)).astype(np.int32)
    weights = np.ones((3, BATCH), np.float32)
    weights[-1, 3:] = 0.0

    def dataset(context):
        size = BATCH // context.num_input_pipelines
        own = slice(context.input_pipeline_id * size, (context.input_pipeline_id + 1) * size)
        return tf.data.Dataset.from_tensor_slices((x[:, own], y[:, own], weights[:, own]))

    with strategy.scope():
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.3), keras.layers.Dense(3)]
        inner = keras.Sequential([keras.layers.Input([5]), *layers])
        model = FineTuner(inner, gradient_accumulation_steps=micro_batches, max_grad_norm=0.5)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.5, momentum=0.9), loss)
    model.fit(strategy.distribute_datasets_from_function(dataset), steps_per_epoch=len(x), verbose=0)
    return [variable.numpy() for variable in model.model.trainable_variables]
