"""Private parts of TensorFlow, and of whichever Keras, that are called or changed, each with its reason.

Those of one Keras are in `step/keras3/private` and `step/tf_keras/private`. `tests/test_private.py` notices when they
change.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import linecache
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.pyct import loader
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import auto_control_deps_utils, ops
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework.func_graph import FuncGraph

from tfbert.errors import UsageError, replaced


def check_not_in_tf_keras(name: str) -> None:
    """Refuses a model of Keras 3 inside a layer of tf_keras, which would not train it. There is no public way to ask.

    Raises:
        UsageError: in the call of such a layer.
    """
    calls = sys.modules.get("tf_keras.src.engine.base_layer_utils")
    if calls is not None and calls.call_context().in_call:
        received = f"{name} called by a layer of tf_keras, which would leave it as it is"
        todo = "Write `import keras` and derive from its classes. (`tf.keras` is tf_keras where TF_USE_LEGACY_KERAS=1.)"
        raise UsageError(f"A model of Keras 3 is trained within models of Keras 3. Received: {received}. {todo}")


def made_by(output: Any) -> tuple[Any, int]:
    """The layer of a symbolic output of either Keras, and which of its outputs it is. There is no public way to ask."""
    layer, _, index = output._keras_history
    return layer, index


def is_op_determinism_enabled() -> bool:
    """Whether only deterministic kernels run. There is a public way to set that, but none to ask."""
    return framework_config.is_op_determinism_enabled()


def disable_op_determinism() -> None:
    """Allows kernels that are not deterministic again. There is no public way."""
    framework_config.disable_op_determinism()


def devices_are_initialized() -> bool:
    """Whether TensorFlow has initialized the devices of this process. There is no public way to ask."""
    return context.context()._initialized


def configure_coordination(**options: Any) -> None:
    """Sets how workers find one another, and notice that one is lost. MultiWorkerMirroredStrategy has no option for
    this: it sets its own values unless some are set already.

    Args:
        options: As TensorFlow's `configure_coordination_service`.
    """
    context.context().configure_coordination_service(**options)
    # Without the barrier the first worker returns from registration at once, and then waits for the others for ever.
    context.context().coordination_service.cluster_register_with_barrier = True


def has_workers() -> bool:
    """Whether this process was set up as one of several workers."""
    return context.context().coordination_service is not None


def publish(name: str, text: str) -> None:
    """Lets all workers read a text: of any size, and whatever else differs between them. A name serves once."""
    context.context().set_config_key_value(name, text)


def published(name: str, seconds: float) -> str | None:
    """A text that a worker has published, or publishes within some seconds; None where there is none.

    Raises:
        tf.errors.OpError: where the first worker, which keeps the texts, is gone.
    """
    try:
        return context.context().get_config_key_value(name, int(1000 * seconds))
    except tf.errors.DeadlineExceededError:
        return None


def fail_all_workers(line: str) -> None:
    """Ends every collective operation, of all workers, in an error with this line; there can be none after it."""
    context.context().report_error_to_cluster(tf.errors.ABORTED, line)


_is_forked = False
"""Whether TensorFlow had been used before this process was forked."""


def check_not_forked() -> None:
    """Call it where TensorFlow begins to compute. Its threads are not in a forked process: a model there would wait for
    them for ever. There is no public way to ask whether it was used before the fork.

    Raises:
        UsageError: in a process forked from one that had used TensorFlow.
    """
    if _is_forked:
        raise UsageError(
            "TensorFlow cannot compute in a process forked from one that has used it. "
            f"Received: a call in such a process, {os.getpid()}, forked by {os.getppid()}. Start processes with "
            'multiprocessing.get_context("spawn"), or load models and train only after the fork.'
        )


def _note_fork() -> None:
    global _is_forked
    _is_forked = _is_forked or devices_are_initialized()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def _load_generated(source: str, delete_on_exit: bool) -> tuple[ModuleType, str]:
    """What AutoGraph generates, as a module. TensorFlow's own function writes a file, which stays where a signal ends
    the process; what shows source code, as tracebacks do, finds it in `linecache` too."""
    path = f"__autograph_generated_file{next(_generated)}.py"
    module = sys.modules[path.removesuffix(".py")] = ModuleType(path.removesuffix(".py"))
    module.__file__ = path
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), vars(module))
    return module, path


_generated = itertools.count()
loader.load_source = _load_generated


def let_go_of_traced_gradients() -> None:
    """Lets what `tf.custom_gradient` has registered so far live as long as the graphs it was traced in.

    TensorFlow registers a function for each such operation it traces and never forgets one. The functions hold their
    graphs, which hold the variables of the model: without this, no model that was ever called in a `tf.function` is
    freed. Call it where a graph with such operations is traced, or after it was.
    """
    registered = ops.gradient_registry._registry
    for name, entry in registered.copy().items():  # In one go: a collection of garbage in between takes entries out.
        gradient = entry["type"]
        # Those of a SavedModel that was loaded have another function, which holds no graph of its own.
        if getattr(gradient, "__qualname__", "") != "_graph_mode_decorator.<locals>.internal_grad_fn":
            continue
        graphs, inner = set(), inspect.getclosurevars(gradient).nonlocals["tape_grad_fn"]
        for value in tf.nest.flatten(inspect.getclosurevars(inner).nonlocals["result"], expand_composites=True):
            graph = getattr(value, "graph", None)  # Of the operation's results, when the gradient was traced.
            while isinstance(graph, FuncGraph):  # Any of those around it may outlive the others, and be differentiated.
                graphs.add(graph)
                graph = graph.outer_graph
        for graph in graphs:
            graph._traced_gradients = [*getattr(graph, "_traced_gradients", ()), gradient]
        if graphs:
            entry["type"] = _held_weakly(gradient)
            weakref.finalize(gradient, registered.pop, name, None).atexit = False


def _held_weakly(gradient: Callable[..., Any]) -> Callable[..., Any]:
    held = weakref.ref(gradient)

    @tf.autograph.experimental.do_not_convert  # As TensorFlow's own function, which a SavedModel traces.
    def call(op: tf.Operation, *upstream: tf.Tensor) -> Any:
        return held()(op, *upstream)

    return call


@contextlib.contextmanager
def as_not_trainable(layers: list[Any]) -> Iterator[None]:
    """While active, layers take themselves for frozen. By the public property their variables would change too."""
    with contextlib.ExitStack() as stack:
        for each in layers:
            stack.enter_context(replaced(vars(each), _trainable=False))
        yield


def variables_written(
    graph: tf.Graph, first: int, variables: list[tf.Variable], apart_from: list[tf.Variable] = ()
) -> list[tf.Variable | None]:
    """Which variables the operations of a graph, or those of functions they call, write. There is no public way.

    Args:
        graph: A function's, being traced.
        first: The number of its operations that are not asked about.
        variables: Those asked for, besides all that the graph has met; of a distributed one, its part on any device.
        apart_from: Variables that may be written.

    Returns:
        The variables; None for one that none of them is, such as a global one. Generators' states are left out where
        they are none of `variables`.
    """
    written: dict[int, tf.Tensor] = {}
    for op in graph.get_operations()[first:]:
        if op.type.startswith(("Rng", "Stateful")) and "Partitioned" not in op.type:
            continue
        for tensor in auto_control_deps_utils.get_read_write_resource_inputs(op)[1]:
            within, found = graph, tensor
            while isinstance(within, FuncGraph):  # Out to where the variable lives.
                outer = {id(internal): external for external, internal in within.captures}
                found, within = outer.get(id(found), found), within.outer_graph
            written[id(found)] = found

    def handles(variable: tf.Variable) -> set[int]:
        parts = getattr(variable, "values", None) or [variable]
        return {id(part.handle) for part in parts if hasattr(part, "handle")}  # A table has none.

    for each in apart_from:
        for handle in handles(each):
            written.pop(handle, None)
    known = [v for v in (*variables, *getattr(graph, "variables", ())) if handles(v) & written.keys()]
    for each in known:
        for handle in handles(each):
            written.pop(handle, None)
    # Tables and iterators are resources too, but say nothing of a shape.
    others = (getattr(tensor, "_handle_data", None) for tensor in written.values())
    return [*known, *(None for data in others if data is not None and data.is_set)]


def operation_types(graph: tf.Graph, first: int) -> set[str]:
    """The types of a graph's operations, and of those of functions, loops and branches that they call.

    Args:
        graph: A function's, being traced.
        first: The number of its operations that are not asked about.
    """
    operations, seen = graph.get_operations()[first:], set()
    types = {op.type for op in operations}
    nodes = [op.node_def for op in operations if op.type.endswith(("Call", "While", "If", "Case"))]
    while nodes:
        for attribute in nodes.pop().attr.values():
            for function in (attribute.func, *attribute.list.func):
                if function.name and function.name not in seen:
                    seen.add(function.name)
                    within = graph._get_function(function.name).definition.node_def
                    types.update(node.op for node in within)
                    nodes.extend(within)
    return types


def mask_of(tensor: tf.Tensor) -> tf.Tensor | None:
    """Keras's mask of a layer's output: bool, True where an entry is not padding; None where there is no mask.

    The mask is an attribute of the tensor. It is lost wherever an operation or a function makes a new tensor.
    """
    return getattr(tensor, "_keras_mask", None)


def with_mask(tensor: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    """The tensor with Keras's mask on it, where there is one: Keras's metrics read it."""
    if mask is not None:
        tensor._keras_mask = mask
    return tensor


def number_collectives_apart() -> None:
    """Gives the next MirroredStrategy's all-reduces numbers of their own. TensorFlow uses the same numbers for every
    strategy in a process, and the all-reduces of CPU replicas collide."""
    tf.distribute.MirroredStrategy._collective_key_base += 100_000


def rate_of(optimizer: Any) -> Any:
    """The schedule, or the variable, that an optimizer was given as its learning rate. With a schedule,
    `learning_rate` has the value at `iterations` only, and not at any other step."""
    return optimizer._learning_rate


def strategy_of(holder: Any) -> tf.distribute.Strategy | None:
    """The strategy in whose scope a model or an optimizer of either Keras was created; None for one outside any."""
    return getattr(holder, "_distribute_strategy", getattr(holder, "_distribution_strategy", None))


def layers_of(layer: Any) -> list[Any]:
    """A layer of either Keras and all within it, depth first. `Model.layers` stops at the first level; `submodules` has
    another order and includes objects that are not layers."""
    return list(layer._flatten_layers())


def metrics_within(layer: Any) -> list[Any]:
    """The metrics that layers keep for themselves, from `add_metric` or as attributes: `Model.metrics` has them among
    the compiled ones in tf_keras, and leaves out those of models within models in Keras 3."""
    return [metric for each in layers_of(layer) for metric in each._metrics]


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same dataset with parallelism and buffers as written.

    In TensorFlow 2.21 the destructor of an iterator waits for the autotuner's thread, and the wake-up that should end
    that thread's sleep (`Model::OptimizeLoop`, up to 60 s at a time) gets lost: of fifteen small runs on a CPU, five
    stood still for 7 to 150 s after their last update. Nothing here needs tuning.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def device_iterators_without_autotune() -> None:
    """Turns the autotuner off for the iterators, one per device, that a distributed dataset adds after its own: they
    take no options. A second call does nothing."""
    create = multi_device_iterator_ops._create_device_dataset
    if getattr(create, "is_changed", False):
        return

    def create_changed(*args: Any, **kwargs: Any) -> tf.data.Dataset:
        return without_autotune(create(*args, **kwargs))

    create_changed.is_changed = True
    multi_device_iterator_ops._create_device_dataset = create_changed


def distributed(
    strategy: tf.distribute.Strategy, dataset: Callable[[tf.distribute.InputContext], tf.data.Dataset]
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """What `strategy.distribute_datasets_from_function` makes of a function, with batches that stay on the host; the
    data set itself for a single replica.

    TensorFlow computes with whole numbers of 32 bits there: batches on a GPU came back for that, and the host waited
    each time for all that the GPU had still to do.
    """
    if strategy.num_replicas_in_sync == 1:
        with tf.device("CPU"):
            return dataset(tf.distribute.InputContext())
    device_iterators_without_autotune()
    on_the_host = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    return strategy.distribute_datasets_from_function(dataset, on_the_host)
