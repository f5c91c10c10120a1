"""Keys of dropout noise, and Keras's layers that draw some."""

import tensorflow as tf
import tf_keras as keras

from tfbert.step.noise import noise_key, noise_stream


def key(seed=1, step=2):
    return noise_key(seed, tf.constant(step, tf.int64))


def stream(**parts):
    return noise_stream(key(**parts))


def layers():
    return [
        keras.layers.Dropout(0.5),
        keras.layers.SpatialDropout1D(0.5),
        keras.layers.GaussianNoise(1.0),
        keras.layers.GaussianDropout(0.5),
        keras.layers.AlphaDropout(0.5),
    ]
