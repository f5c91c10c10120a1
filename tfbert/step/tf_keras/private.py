"""Private parts of tf_keras, and of transformers 4, that are called or changed, each with its reason."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tf_keras as keras
from tensorflow.python.framework.func_graph import FuncGraph
from tf_keras.src.backend import RandomGenerator

__all__ = ["RandomGenerator"]
"""The class that Keras's random layers draw from: they accept no other, and it has no public name."""


def scratch_graph() -> tf.Graph:
    """A graph of its own to build a model in, as `Model.build` does."""
    return FuncGraph("build")


@contextlib.contextmanager
def without_aggregation(optimizer: keras.optimizers.Optimizer) -> Iterator[list[None]]:
    """While active, `apply_gradients` takes gradients as they are, however a user's own calls Keras's.

    Replicas enter it in turn, before the first has left it.

    Yields:
        A list that gets an item whenever Keras would have summed gradients over replicas.
    """

    def as_they_are(grads_and_vars: Any) -> Any:
        as_they_are.asked.append(None)
        return grads_and_vars

    as_they_are.asked, as_they_are.entered = [], 0
    given = vars(optimizer).setdefault("aggregate_gradients", as_they_are)
    given.entered += 1
    try:
        yield given.asked
    finally:
        given.entered -= 1
        if not given.entered:
            vars(optimizer).pop("aggregate_gradients", None)


def generator_of(layer: keras.layers.Layer) -> Any:
    """The generator that a random layer draws from; None for any other layer."""
    generator = getattr(layer, "_random_generator", None)
    return generator if isinstance(generator, RandomGenerator) else None


def set_generator(layer: keras.layers.Layer, generator: RandomGenerator) -> None:
    """Makes a random layer draw from another generator."""
    # Keras would track the assignment as a child of the layer and save it.
    object.__setattr__(layer, "_random_generator", generator)


def build_metrics(model: keras.Model, labels: Any, predictions: Any) -> None:
    """Creates the variables of a model's compiled metrics outside the step that is being traced. Keras would create
    them within, upon which TensorFlow traces the step a second time. Neither has an option for it.

    Args:
        model: A compiled model; nothing happens if its metrics are built.
        labels: A batch's, only their shapes count.
        predictions: The model's outputs, likewise.
    """

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        return next_creator(**options | {"experimental_enable_variable_lifting": False})

    metrics = model.compiled_metrics
    if not metrics.built:
        with tf.init_scope(), tf.variable_creator_scope(create):
            metrics.build(predictions, metrics._conform_to_outputs(predictions, labels))
