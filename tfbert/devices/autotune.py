"""tf.data without its autotuner, whose thread can hold up a run for minutes.

In TensorFlow 2.21 the destructor of an iterator waits for the autotuner's thread, and the wake-up that should end that
thread's sleep (`Model::OptimizeLoop`, up to 60 s at a time) gets lost: of fifteen small runs on a CPU, five stood
still for 7 to 150 s after their last update. Nothing here needs tuning: parallelism and buffers are written out.
"""

from __future__ import annotations

import tensorflow as tf

from tfbert.private import change_device_datasets


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same dataset with parallelism and buffers as written."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def device_iterators_without_autotune() -> None:
    """Turns the autotuner off for the iterators, one per device, that a distributed dataset adds after its own."""
    change_device_datasets(without_autotune)
