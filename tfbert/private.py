"""Private parts of TensorFlow and Keras that are called or changed, each with its reason: nothing else touches one.

`tests/test_private.py` notices when they change. What `FusedAdamW` overrides of Keras's optimizer stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tf_keras as keras
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import config as framework_config
from tf_keras.src.backend import RandomGenerator

__all__ = ["RandomGenerator"]
"""The class that Keras's random layers draw from: they accept no other, and it has no public name."""


def is_op_determinism_enabled() -> bool:
    """Whether only deterministic kernels run. There is a public way to ask for that, and none to ask whether."""
    return framework_config.is_op_determinism_enabled()


def disable_op_determinism() -> None:
    """Ends that. There is no public way."""
    framework_config.disable_op_determinism()


def devices_are_settled() -> bool:
    """Whether TensorFlow has settled the devices of this process. There is no public way to ask."""
    return context.context()._initialized


def configure_coordination(**options: Any) -> None:
    """Sets how workers find and lose one another. MultiWorkerMirroredStrategy fills in its own where there is nothing,
    and takes no option for it.

    Args:
        options: As TensorFlow's `configure_coordination_service`.
    """
    context.context().configure_coordination_service(**options)
    # Without the barrier the first worker returns from registration at once, and then waits for the others for ever.
    context.context().coordination_service.cluster_register_with_barrier = True


def change_device_datasets(change: Callable[[tf.data.Dataset], tf.data.Dataset]) -> None:
    """Changes the data sets, one a device, that distributed ones put in front of their own: they take no options.

    Does nothing the second time.
    """
    create = multi_device_iterator_ops._create_device_dataset
    if getattr(create, "is_changed", False):
        return

    def create_changed(*args: Any, **kwargs: Any) -> tf.data.Dataset:
        return change(create(*args, **kwargs))

    create_changed.is_changed = True
    multi_device_iterator_ops._create_device_dataset = create_changed


def layers_of(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """A layer and all within it, depth first. `Model.layers` stops at the first level, `submodules` has another order
    and what are no layers."""
    return layer._flatten_layers()


def generator_of(layer: keras.layers.Layer) -> RandomGenerator | None:
    """What a random layer draws from; None for another layer."""
    generator = getattr(layer, "_random_generator", None)
    return generator if isinstance(generator, RandomGenerator) else None


def set_generator(layer: keras.layers.Layer, generator: RandomGenerator) -> None:
    """Has a random layer draw from another generator."""
    # Keras would track the assignment as a child of the layer and save it.
    object.__setattr__(layer, "_random_generator", generator)


def mask_of(tensor: tf.Tensor) -> tf.Tensor | None:
    """bool, which entries of a layer's output are not padding, as Keras noted it; None for all.

    The note is an attribute of a tensor, which is lost wherever an operation or a function makes a new tensor.
    """
    return getattr(tensor, "_keras_mask", None)


def with_mask(tensor: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    """The tensor with Keras's note on it, where there is one: Keras's metrics read it."""
    if mask is not None:
        tensor._keras_mask = mask
    return tensor


def policy_storing_float16() -> keras.mixed_precision.Policy:
    """Variables in float16, computed with in float32: by name, Keras knows only the reverse."""
    policy = keras.mixed_precision.Policy("float32")
    policy._variable_dtype = "float16"
    return policy


def number_collectives_apart() -> None:
    """Gives the next MirroredStrategy's all-reduces numbers of their own: TensorFlow numbers those of all strategies of
    a process alike, and those of CPU replicas collide."""
    tf.distribute.MirroredStrategy._collective_key_base += 100_000


def rate_of(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.schedules.LearningRateSchedule | tf.Variable:
    """The schedule, or the variable, that an optimizer was given as its learning rate: `learning_rate` is a schedule's
    value at `iterations`, and no other step's."""
    return optimizer._learning_rate


def loss_scale_variables(optimizer: keras.mixed_precision.LossScaleOptimizer) -> dict[str, tf.Variable]:
    """`value` and `good_steps` of a dynamic loss scale: Keras shows their values, but not the variables."""
    state = optimizer._loss_scale
    return {"value": state._current_loss_scale, "good_steps": state._counter}
