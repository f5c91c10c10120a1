"""Whether the parts of a batch make the whole, found by values: no loss, layer or metric says it of itself. And what
layers keep from one call to the next, besides weights that are trained: metrics, counts, running averages.

A batch may be cut where a row's loss depends on that row alone, where what layers add to the loss is a mean over rows,
and where a metric's state is a sum over rows. At some of the first steps the same rows are computed once more: beside
others, and fewer at once. Rows beside others keep their places in tensors of the same shapes, so that noise and
rounding are the same, in 16 bits too.

A step may call a model several times, once for each micro-batch, and on several replicas. Where a layer's own state
would then differ from that of one call with the whole batch, the layer is refused. BatchNormalization's averages are
the exception that every framework makes: they follow the parts that a batch is split into.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfbert import private
from tfbert.private import mask_of, with_mask
from tfbert.step.parts import KerasParts
from tfbert.step.terms import refuse_unless_equal

_STEPS = (0, 1, 3, 7)
"""More than one: values may be equal by chance, as those of a head of zeros are, or of pairs within a margin."""


class Values(NamedTuple):
    """What some rows give.

    Attributes:
        losses: Each row's loss in each term, float32 `[terms, rows]`.
        again: The same, computed once more from the same predictions: a loss may draw numbers.
        alone: Those of the first half of the rows, computed from the same predictions without the others'.
        added: What each layer adds to the loss, `[layers]`.
    """

    losses: tf.Tensor
    again: tf.Tensor
    alone: tf.Tensor
    added: tf.Tensor


def is_due(step: tf.Tensor) -> tf.Tensor:
    """Whether to compare in this step, counted from 0; bool `[]`."""
    return tf.reduce_any(tf.equal(tf.cast(step, tf.int64), _STEPS))


def row_faults(
    values_of: Callable[[Any, tf.Tensor], Values],
    data: Any,
    num_micro_batches: int,
    layers: LayerState,
    *,
    takes_all: bool,
) -> tf.Tensor:
    """Compares a micro-batch's rows with the same beside others, and with half of them.

    Args:
        values_of: A `tf.function`, of rows, given the first one's number.
        data: Structure of tensors `[rows, ...]`, this replica's, at least one row.
        num_micro_batches: Parts that a step makes of them.
        layers: The model's.
        takes_all: Whether the loss may call the model, so that predictions alone do not decide it.

    Returns:
        float32 `[3]`, 1 for a fault: in the loss, in the model or its own loss, in what layers add.
    """
    tolerance = layers.rounding()
    rows = tf.nest.flatten(data)[0]
    count, largest = rows.shape[0], max
    if count is None:
        count, largest = tf.shape(rows)[0], tf.maximum
    takes_any = layers.take_any_number_of_rows()
    size = largest(-(-count // num_micro_batches), 2 if takes_any else 1)  # A single row shows nothing.
    first_half = size // 2
    numbers = tf.minimum(tf.range(size), count - 1)

    def of(numbers: tf.Tensor, first: tf.Tensor | int = 0) -> Values:
        rows = tf.nest.map_structure(lambda tensor: tf.gather(tensor, numbers), data)
        return values_of(rows, tf.cast(first, tf.int64))

    graph = values_of.get_concrete_function(
        tf.nest.map_structure(lambda tensor: tf.gather(tensor, numbers), data), tf.constant(0, tf.int64)
    ).graph
    written = [(variable, tf.identity(variable)) for variable in layers.written_in(graph)]
    whole = of(numbers)
    loss_looks_across = _apart(whole.losses[:, :first_half], whole.alone, tolerance)
    loss_looks_across &= ~_apart(whole.losses, whole.again, tolerance)
    model_looks_across = adds_no_mean = tf.constant(False)
    if not layers.drawing_in(graph):
        beside = of(tf.where(tf.range(size) % 2 == 1, numbers, numbers[-1]))  # Others before and after each that stays.
        model_looks_across = _apart(whole.losses[:, 1::2], beside.losses[:, 1::2], tolerance)
        num_added = whole.added.shape[0]
        if takes_any and (takes_all or num_added):
            half, tolerance = of(numbers[:first_half]), 10 * tolerance  # Tensors of other shapes are rounded otherwise.
            if takes_all:
                model_looks_across |= _apart(whole.losses[:, :first_half], half.losses, tolerance)
            if num_added:
                rest, in_all = of(numbers[first_half:], first_half), tf.cast(size, tf.float32)
                in_half = tf.cast(first_half, tf.float32)
                sums = half.added * in_half + rest.added * (in_all - in_half)
                adds_no_mean = _apart((whole.added * in_all)[:, None], sums[:, None], tolerance)
    for variable, before in written:
        variable.assign(before)
    return tf.cast(tf.stack([loss_looks_across, model_looks_across, adds_no_mean]), tf.float32)


def row_lines(losses: str, split: str) -> list[str]:
    """What each of `row_faults` means."""
    rule = "A row's loss must not depend on the rows beside it, or it depends on how a batch is split. "
    instead = f"{split}. Train with gradient_accumulation_steps=1 on one replica."
    return [
        f"{rule}Received: {losses}, which gives a row another loss if others are absent, {instead}",
        f"{rule}Received: a layer, or {losses}, that looks across rows, {instead}",
        "What layers add to the loss must be a mean over rows, or it depends on how a batch is split. "
        f"Received: an add_loss that gives for all rows no mean of what it gives for parts of them, {split}. "
        "Divide a sum by the number of rows, or train with gradient_accumulation_steps=1 on one replica.",
    ]


def metric_line(name: str, num_replicas: int) -> str:
    """What one of `metric_faults` means."""
    return (
        "Replicas add up a metric's state, which must be a sum over rows. "
        f"Received: metric {name!r}, whose state for all rows is no sum of parts' states, on {num_replicas} replicas. "
        "Return a value per row from a function, keep a sum and a count, or measure on one replica."
    )


def metric_faults(
    metrics: list[list[tf.Variable]], update: Callable[[Any], None], data: Any, num_rows: tf.Tensor
) -> tf.Tensor:
    """Whether states for all rows are those for parts of them added up, as replicas add theirs. They stay as they are.

    Args:
        metrics: Each one's variables.
        update: Adds labels, predictions and weights of rows to them.
        data: These: structures of tensors `[rows, ...]`, or None.
        num_rows: How many there are.

    Returns:
        float32 `[metrics]`, 1 for a fault.
    """
    half = (num_rows + 1) // 2

    def part(start: Any, stop: Any) -> Any:
        def cut(tensor: tf.Tensor | None) -> tf.Tensor | None:
            if tensor is None:
                return None
            mask = mask_of(tensor)
            return with_mask(tensor[start:stop], None if mask is None else mask[start:stop])

        return tf.nest.map_structure(cut, data)

    before = [[tf.identity(variable) for variable in each] for each in metrics]

    def states_after(rows: Any) -> list[list[tf.Tensor]]:
        update(*rows)
        found = [[tf.cast(tf.identity(variable), tf.float64) for variable in each] for each in metrics]
        for variables, values in zip(metrics, before, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return found

    states = [states_after(rows) for rows in (part(0, num_rows), part(0, half), part(half, num_rows))]
    faults = []
    for start, whole, one, other in zip(before, *states, strict=True):
        pairs = [
            (tf.reshape(all_, [1, -1]), tf.reshape(first + rest - tf.cast(none, tf.float64), [1, -1]))
            for none, all_, first, rest in zip(start, whole, one, other, strict=True)
        ]
        faults.append(tf.reduce_any([_apart(*pair, 1e-3) for pair in pairs] or [False]))
    return tf.cast(tf.stack(faults), tf.float32)


def _apart(one: tf.Tensor, other: tf.Tensor, tolerance: float) -> tf.Tensor:
    """Whether values `[terms, values]` of any term differ by more than its largest one times a tolerance; bool `[]`."""
    known = tf.math.is_finite(one), tf.math.is_finite(other)
    both, zero = known[0] & known[1], tf.zeros([], one.dtype)
    difference = tf.reduce_max(tf.where(both, tf.abs(one - other), zero), axis=1)
    size = tf.reduce_max(tf.where(both, tf.maximum(tf.abs(one), tf.abs(other)), zero), axis=1)
    return tf.reduce_any(difference > tolerance * size) | tf.reduce_any(known[0] != known[1])


Faults = tuple[tf.Tensor, list[str]]
"""What must not be in a batch: float32 `[faults]`, above 0 if found, and a line for each."""


def joined(found: list[Faults]) -> Faults:
    """All of them as one."""
    return tf.concat([faults for faults, _ in found], 0), [line for _, lines in found for line in lines]


def refused(faults: tf.Tensor, lines: list[str]) -> list[tf.Operation]:
    """Operations that end `fit` with the line of the first fault above 0; all replicas are given the same."""
    operations: list[tf.Operation] = []
    for index, line in enumerate(lines):
        with tf.control_dependencies(operations):
            operations.append(refuse_unless_equal(faults[index], 0.0, line))
    return operations


_RANDOM = re.compile(
    "(Stateless|Stateful)?((Random|Standard)(Standard)?(Uniform|UniformInt|Normal|Gamma|Poisson|Binomial|Shuffle)"
    "|(Parameterized)?TruncatedNormal|Multinomial|Shuffle|SampleDistortedBoundingBox)(V[0-9])?"
    "|Stateful(Uniform|UniformInt|UniformFullInt)|RngReadAndSkip|RngSkip|NonDeterministicInts|.*CandidateSampler"
)
_ONCE = (tf.VariableAggregation.MEAN, tf.VariableAggregation.ONLY_FIRST_REPLICA)


class LayerState:
    """What the layers of a model keep.

    Args:
        model: A model that a step calls.
        parts: Its Keras.
    """

    def __init__(self, model: Any, parts: KerasParts):
        self._model = model
        self._parts = parts

    def normalizations(self) -> list[Any]:
        """Layers that take means over a batch, and may."""
        return [each for each in private.layers_of(self._model) if isinstance(each, self._parts.normalization)]

    def averages(self) -> list[tf.Variable]:
        """Variables that may follow the parts of a batch."""
        found = [getattr(each, name, None) for each in self.normalizations() for name in self._parts.averages]
        return [self._parts.value_of(variable) for variable in found if variable is not None]

    def _variables(self) -> list[tf.Variable]:
        return [self._parts.value_of(variable) for variable in self._model.variables]

    def has_mask(self) -> bool:
        """Whether an output may have Keras's mask of positions."""
        outputs = self._parts.outputs_of(self._model)
        if outputs is not None and all(len(each.shape) < 3 for each in tf.nest.flatten(outputs)):
            return False
        kind = self._parts.keras.layers.Masking
        return any(
            isinstance(each, kind) or getattr(each, "mask_zero", False) for each in private.layers_of(self._model)
        )

    def frozen(self) -> contextlib.AbstractContextManager[None]:
        """While active, layers that take means over a batch use their averages."""
        return private.as_not_trainable(self.normalizations())

    def drawing_in(self, graph: tf.Graph, first: int = 0) -> list[str]:
        """The types of a graph's operations of which nobody can say to which rows their numbers belong: all of
        `tf.random`. What `noise` draws is made of whole random words."""
        return sorted(filter(_RANDOM.fullmatch, private.operation_types(graph, first)))

    def written_in(self, graph: tf.Graph) -> list[tf.Variable]:
        """Variables that a graph assigns and of which each replica has its own."""
        found = private.variables_written(graph, 0, self._variables())
        return [v for v in found if v is not None and v.synchronization == tf.VariableSynchronization.ON_READ]

    def rounding(self) -> float:
        """What rounding may change of a value, relative to the largest one."""
        is_coarse = any("16" in (getattr(each, "compute_dtype", None) or "") for each in private.layers_of(self._model))
        return 1e-2 if is_coarse or tf.config.get_visible_devices("GPU") else 1e-4

    def take_any_number_of_rows(self) -> bool:
        """Whether no input says how many rows it has."""
        inputs = tf.nest.flatten(getattr(self._model, "inputs", None) or [])
        return all(each.shape[0] is None for each in inputs)

    def check_carried(self, num_micro_batches: int) -> None:
        """Raises ValueError for stateful recurrent layers in a batch of several parts."""
        num_parts = num_micro_batches * tf.distribute.get_strategy().num_replicas_in_sync
        recurrent = [each for each in private.layers_of(self._model) if isinstance(each, self._parts.keras.layers.RNN)]
        carried = [each.name for each in recurrent if each.stateful]
        if carried and num_parts > 1:
            raise ValueError(
                "A stateful layer carries each row's state on to the same row of the next batch. "
                f"Received: layer {carried[0]!r} with stateful=True and a batch in {num_parts} parts. "
                "Set stateful=False, or train with gradient_accumulation_steps=1 on one replica."
            )

    @contextlib.contextmanager
    def kept_once(self, num_micro_batches: int = 1) -> Iterator[None]:
        """Around a call of the model that is being traced: raises ValueError if it keeps state that depends on the
        split.

        Args:
            num_micro_batches: How often a step calls it, on each replica.
        """
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        first = 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())
        if num_micro_batches * num_replicas == 1:
            yield
            return
        split = f"gradient_accumulation_steps={num_micro_batches} on {num_replicas} replica(s)"
        try:
            yield
        except (RuntimeError, ValueError) as error:
            self._check_metrics(split)
            # TensorFlow's words for a variable that is assigned on a replica, or that replicas would have to meet for.
            if "merge_call" in str(error) or "aggregation method" in str(error):
                raise _of_state("a layer that assigns a variable in its call", split) from error
            raise
        self._check_metrics(split)
        if not tf.executing_eagerly():
            self._check_writes(first, num_micro_batches, split)

    def _check_metrics(self, split: str) -> None:
        for metric in private.metrics_within(self._model):
            raise ValueError(
                "A layer's own metric is updated for each part of a batch, of whatever size. "
                f"Received: metric {metric.name!r} of a layer (add_metric, or a Metric as an attribute), {split}. "
                "Pass it to FineTuner.compile(metrics=...), of an output of the model, or train in one part."
            )

    def _check_writes(self, first: int, num_micro_batches: int, split: str) -> None:
        graph, allowed = tf.compat.v1.get_default_graph(), self.averages()
        for name in self.drawing_in(graph, first) if self._parts.refuses_draws else ():
            raise ValueError(
                "Random numbers must belong to rows of the global batch, or they depend on the split. "
                f"Received: a layer that draws by itself, with the operation {name}, {split}. "
                "Use keras.random with a SeedGenerator, or train in one part."
            )
        for variable in private.variables_written(graph, first, self._variables(), apart_from=allowed):
            if variable is None:
                raise _of_state("a call that assigns a variable which no layer holds", split)
            is_shared = variable.synchronization == tf.VariableSynchronization.ON_READ and variable.aggregation in _ONCE
            is_generator = variable.name.startswith("StateVar")  # As TensorFlow calls that of a `tf.random.Generator`.
            if is_generator or (num_micro_batches == 1 and is_shared):
                continue
            raise _of_state(f"a layer that assigns {variable.name!r} in its call", split)


def _of_state(what: str, split: str) -> ValueError:
    return ValueError(
        "A layer's own state must change once in a step, whatever the split. "
        f"Received: {what}, {split}. "
        "Count steps by optimizer.iterations, or train with gradient_accumulation_steps=1 on one replica."
    )
