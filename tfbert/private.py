"""Private parts of TensorFlow, Keras and transformers that are called or changed, each with its reason.

No other module uses one, but for `FusedAdamW`, which overrides methods of Keras's optimizer. `tests/test_private.py`
notices when they change.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import linecache
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.autograph.pyct import loader
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import auto_control_deps_utils, ops
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework.func_graph import FuncGraph

from tfbert.errors import UsageError

if TYPE_CHECKING:  # Whoever trains a model of Keras 3 does not wait for tf_keras.
    import tf_keras as keras
    from tf_keras.src.backend import RandomGenerator

__all__ = ["RandomGenerator"]
"""The class that Keras's random layers draw from: they accept no other, and it has no public name."""


def __getattr__(name: str) -> Any:
    if name != "RandomGenerator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tf_keras.src.backend import RandomGenerator

    return RandomGenerator


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
    for name, entry in list(registered.items()):
        gradient = entry["type"]
        # Those of a SavedModel that was loaded have another function, which holds no graph of its own.
        if getattr(gradient, "__qualname__", "") != "_graph_mode_decorator.<locals>.internal_grad_fn":
            continue
        graphs = {graph for tensor in _tensors_of(gradient) for graph in _with_outer(tensor.graph)}
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


def _closed_over(function: FunctionType) -> dict[str, Any]:
    return {
        name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True)
    }


def _tensors_of(gradient: FunctionType) -> Iterator[tf.Tensor]:
    """The tensors that a registered gradient was traced with: those of the operation's results."""
    inner = _closed_over(gradient)["tape_grad_fn"]
    for value in tf.nest.flatten(_closed_over(inner)["result"], expand_composites=True):
        if isinstance(getattr(value, "graph", None), FuncGraph):
            yield value


def _with_outer(graph: tf.Graph) -> Iterator[FuncGraph]:
    """A graph and those it was traced in: any of them may outlive the others, and be differentiated then."""
    while isinstance(graph, FuncGraph):
        yield graph
        graph = graph.outer_graph


def change_device_datasets(change: Callable[[tf.data.Dataset], tf.data.Dataset]) -> None:
    """Applies `change` to the data sets, one a device, that a distributed data set makes: they take no options.

    A second call does nothing.
    """
    create = multi_device_iterator_ops._create_device_dataset
    if getattr(create, "is_changed", False):
        return

    def create_changed(*args: Any, **kwargs: Any) -> tf.data.Dataset:
        return change(create(*args, **kwargs))

    create_changed.is_changed = True
    multi_device_iterator_ops._create_device_dataset = create_changed


def layers_of(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """A layer and all within it, depth first. `Model.layers` stops at the first level; `submodules` has another order
    and includes objects that are not layers."""
    return layer._flatten_layers()


@contextlib.contextmanager
def as_not_trainable(layers: list[Any]) -> Iterator[None]:
    """While active, layers take themselves for frozen. By the public property their variables would change too."""
    before = [(each, each._trainable) for each in layers]
    for each in layers:
        object.__setattr__(each, "_trainable", False)
    try:
        yield
    finally:
        for each, value in before:
            object.__setattr__(each, "_trainable", value)


def metrics_within(layer: keras.layers.Layer) -> list[keras.metrics.Metric]:
    """The metrics that layers keep for themselves, from `add_metric` or as attributes: `Model.metrics` has them among
    the compiled ones."""
    return [metric for each in layers_of(layer) for metric in each._metrics]


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


def scratch_graph() -> tf.Graph:
    """A graph of its own to build a model in, as `Model.build` does."""
    return FuncGraph("build")


def is_generator_state(variable: tf.Variable) -> bool:
    """Whether a variable is the state of a `tf.random.Generator`, whose name TensorFlow gives."""
    return variable.name.startswith("StateVar")


def decayed_names(optimizer: keras.optimizers.legacy.Optimizer) -> tuple[list[str], list[str]]:
    """Names that transformers' `AdamWeightDecay` decays in any case, and names that it does not; it shows neither."""
    return optimizer._include_in_weight_decay or [], optimizer._exclude_from_weight_decay or []


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


def generator_of(layer: keras.layers.Layer) -> RandomGenerator | None:
    """The generator that a random layer draws from; None for any other layer."""
    from tf_keras.src.backend import RandomGenerator

    generator = getattr(layer, "_random_generator", None)
    return generator if isinstance(generator, RandomGenerator) else None


def set_generator(layer: keras.layers.Layer, generator: RandomGenerator) -> None:
    """Makes a random layer draw from another generator."""
    # Keras would track the assignment as a child of the layer and save it.
    object.__setattr__(layer, "_random_generator", generator)


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


def policy_storing_float16() -> keras.mixed_precision.Policy:
    """Variables in float16, computation in float32. Keras has a name only for the reverse."""
    import tf_keras as keras

    policy = keras.mixed_precision.Policy("float32")
    policy._variable_dtype = "float16"
    return policy


def number_collectives_apart() -> None:
    """Gives the next MirroredStrategy's all-reduces numbers of their own. TensorFlow uses the same numbers for every
    strategy in a process, and the all-reduces of CPU replicas collide."""
    tf.distribute.MirroredStrategy._collective_key_base += 100_000


def rate_of(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.schedules.LearningRateSchedule | tf.Variable:
    """The schedule, or the variable, that an optimizer was given as its learning rate. With a schedule,
    `learning_rate` has the value at `iterations` only, and not at any other step."""
    return optimizer._learning_rate


def loss_scale_variables(optimizer: keras.mixed_precision.LossScaleOptimizer) -> dict[str, tf.Variable]:
    """`value` and `good_steps` of a dynamic loss scale: Keras shows their values, but not the variables."""
    state = optimizer._loss_scale
    return {"value": state._current_loss_scale, "good_steps": state._counter}


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


def import_modeling_tf_bert() -> ModuleType:
    """transformers' module of BERT's classes, imported without scikit-learn and SciPy: a fifth less of all imports.

    They come with GLUE's metrics, which transformers has deprecated and its models do not use; there is no option.
    The metrics' functions import what they call when they call it.
    """
    name = "transformers.data.metrics"
    if name not in sys.modules:
        from transformers.utils import import_utils

        before, import_utils._sklearn_available = import_utils._sklearn_available, False
        try:
            metrics = importlib.import_module(name)
        finally:
            import_utils._sklearn_available = before
        for module, functions in _OF_METRICS.items():
            vars(metrics).update({function: _imported_late(module, function) for function in functions})
    return importlib.import_module("transformers.models.bert.modeling_tf_bert")


_OF_METRICS = {"scipy.stats": ("pearsonr", "spearmanr"), "sklearn.metrics": ("f1_score", "matthews_corrcoef")}
"""What `transformers.data.metrics` imports, module -> names."""


def _imported_late(module: str, function: str) -> Callable[..., Any]:
    return lambda *args, **options: getattr(importlib.import_module(module), function)(*args, **options)
