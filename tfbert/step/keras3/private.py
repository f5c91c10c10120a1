"""Private parts of Keras 3 that the step calls or changes, each with its reason. No other module uses one."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend
from keras.src.trainers.compile_utils import get_loss

from tfbert.errors import replaced


def generators_of(layer: keras.layers.Layer) -> list[keras.random.SeedGenerator]:
    """What a layer draws random numbers with."""
    return list(layer._seed_generators)


def outputs_of(model: keras.Model) -> Any:
    """The symbolic outputs of a functional model in their structure; None for any other model."""
    return getattr(getattr(model, "_functional", None) or model, "_outputs_struct", None)  # Of a Sequential, too.


def takes_training(layer: keras.layers.Layer) -> bool:
    """Whether a layer's `call` has the argument `training`: Keras passes it only then."""
    return layer._call_has_training_arg


def resize_variable(layer: keras.layers.Layer, attribute: str, shape: list[int]) -> None:
    """Puts a new variable of zeros in the place of one that a layer has: a built layer accepts no further ones."""
    old = getattr(layer, attribute)
    layer._tracker.unlock()
    layer._untrack_variable(old)
    new = layer.add_weight(shape=shape, initializer="zeros", name=old.name, dtype=old.dtype)
    new._path = old.path  # Which names the parts around the layer, too.
    setattr(layer, attribute, new)
    layer._tracker.lock()


def store_as_float16(variable: keras.Variable) -> None:
    """Keeps a variable's values in float16. Keras has a policy only for the reverse: float32 computed in float16."""
    variable._value = tf.Variable(tf.cast(variable.value, tf.float16), trainable=False, name=variable.name)
    variable._dtype = "float16"


def take_as_they_are(model: keras.Model) -> None:
    """Lets a model that only calls another get its inputs as they are, as a functional one does."""
    model._convert_input_args = False
    model._allow_non_tensor_positional_args = True


def accept_layers(model: keras.Model) -> None:
    """Lets a class that derives from a model's add layers to it after the model's constructor, which builds it."""
    model._tracker.unlock()


def loss_of(identifier: Any, labels: tf.Tensor, predictions: tf.Tensor) -> keras.losses.Loss:
    """The loss that `compile` means by a name, a function or an object; "crossentropy" depends on the shapes."""
    return get_loss(identifier, labels, predictions)


def spec_of(batches: Any) -> Any:
    """The specification of the batches that `fit` or `evaluate` is about to read, those of the first replica."""
    spec = batches._distributed_dataset.element_spec
    return tf.nest.map_structure(
        lambda each: each._value_specs[0] if hasattr(each, "_value_specs") else each, spec, expand_composites=False
    )


def shapes_through(function: Callable[..., Any], *specs: Any) -> Any:
    """What a function of tensors returns, as symbolic tensors; variables it creates are created, nothing is assigned.

    Args:
        function: Called in a graph of its own.
        specs: Structures of what has a shape and a dtype, or None.
    """

    def symbolic(spec: Any) -> Any:
        return (
            None if spec is None else keras.KerasTensor(tuple(spec.shape), keras.backend.standardize_dtype(spec.dtype))
        )

    symbols = [keras.tree.map_structure(symbolic, spec) for spec in specs]
    return backend.compute_output_spec(function, *symbols)


def unset_compiled_loss(model: keras.Model) -> None:
    """Leaves a compiled model without Keras's own loss and its mean: FineTuner has its own."""
    model._compile_loss = None
    model._loss_tracker = None


def compiled_metrics_of(model: keras.Model) -> keras.metrics.Metric | None:
    """All metrics of `compile`, as one; None without any. There is no public way to update them."""
    return model._compile_metrics


def each_of(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """An optimizer and, of a `MultiOptimizer`, those that it shares variables out to."""
    held = keras.tree.flatten(getattr(optimizer, "optimizers", ()))  # A user's own class may mean anything by it.
    return [optimizer, *(each for each in held if isinstance(each, keras.optimizers.Optimizer))]


@contextlib.contextmanager
def summed_already(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """While active, `apply` takes gradients as they are: neither summed over replicas nor divided by a loss scale.

    Moving averages that overwrite the weights do so on each replica by itself: Keras's own way cannot be taken there.
    """
    with contextlib.ExitStack() as stack:
        for each in each_of(optimizer):
            changed = replaced(
                vars(each),
                loss_scale_factor=None,
                _all_reduce_sum_gradients=lambda grads_and_vars: grads_and_vars,
                _overwrite_model_variables_with_average_value=functools.partial(_overwrite, each),
            )
            stack.enter_context(changed)
        yield


def _overwrite(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> None:
    for variable, average in zip(variables, optimizer._model_variables_moving_average, strict=True):
        if average is not None:
            variable.assign(average)


def without_writing(backup: keras.callbacks.BackupAndRestore) -> keras.callbacks.BackupAndRestore:
    """The callback, made to restore only: there is no option for it."""
    backup._save_model = lambda: None
    backup.delete_checkpoint = False
    return backup


DRAWS = ("dropout", "normal", "uniform", "truncated_normal", "randint")
"""What `keras.random` draws by row; the rest of its functions see a batch as a whole."""
OTHER_DRAWS = ("categorical", "shuffle", "gamma", "binomial", "beta")

_active = threading.local()  # Replicas are threads.


def drawn_by(drawer: Any) -> AbstractContextManager[None]:
    """While active, in this thread, Keras's random functions ask `drawer.draw(name, function, arguments)`.

    All layers of Keras draw through a handful of functions of its backend; by their seeds alone it could not be said
    which rows they draw for.
    """
    for name in (*DRAWS, *OTHER_DRAWS):
        function = getattr(backend.random, name)
        if not hasattr(function, "asks_drawer"):
            setattr(backend.random, name, _asking(name, function))
    # A layer may create a variable while it is being traced, whose initial value is none of a row's.
    return replaced(vars(_active), drawer=drawer, is_eager=tf.executing_eagerly())


def _asking(name: str, function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def ask(*args: Any, **options: Any) -> tf.Tensor:
        drawer = getattr(_active, "drawer", None)
        if drawer is None or tf.executing_eagerly() != _active.is_eager:
            return function(*args, **options)
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        return drawer.draw(name, function, dict(bound.arguments))

    ask.asks_drawer = True
    return ask


class GivenSeed(keras.random.SeedGenerator):
    """Gives one seed, a tensor, and holds no state: Keras's random functions accept no tensor."""

    def __init__(self, seed: tf.Tensor):
        self._seed = seed

    def next(self, ordered: bool = True) -> tf.Tensor:
        """The seed."""
        return self._seed


def forget_restored_epoch(model: keras.Model) -> None:
    """The next `fit` begins at its own first epoch: Keras keeps what `BackupAndRestore` set in an earlier one."""
    model._initial_epoch = None
