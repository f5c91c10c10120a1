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
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tfbert import private
from tfbert.private import mask_of, with_mask
from tfbert.step.gradients import num_rows_of
from tfbert.step.noise import noise_key, rows_of
from tfbert.step.terms import as_numbers, loss_of_probabilities, most_of, refuse_unless_equal

_STEPS = (0, 1, 3, 7)
"""More than one: values may be equal by chance, as those of a head of zeros are, or of pairs within a margin."""
_ROUNDING = 0.05
"""Of probabilities that a model computes in 16 bits: a sum of 512 is up to 1.02."""
_RANDOM = re.compile(
    "(Stateless|Stateful)?((Random|Standard)(Standard)?(Uniform|UniformInt|Normal|Gamma|Poisson|Binomial|Shuffle)"
    "|(Parameterized)?TruncatedNormal|Multinomial|Shuffle|SampleDistortedBoundingBox)(V[0-9])?"
    "|Stateful(Uniform|UniformInt|UniformFullInt)|RngReadAndSkip|RngSkip|NonDeterministicInts|.*CandidateSampler"
)
_ONCE = (tf.VariableAggregation.MEAN, tf.VariableAggregation.ONLY_FIRST_REPLICA)

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


class Comparing:
    """What a `Step` knows of its model, losses and metrics by their values and by graphs that were traced."""

    def _row_faults(self, inputs: Any, rows: Any, weights: Any, first_row: Any) -> Faults:
        """Compares a micro-batch's rows with the same beside others, and with half of them."""
        num_parts, split = self.gradient_accumulation_steps, self._split()
        is_packed = self._forward is not None and isinstance(inputs, Mapping) and "cls_positions" in inputs
        if not (self.is_foreign and split) or is_packed:  # Rows of packed inputs are not those of labels.
            return tf.zeros([0]), []
        data, terms = (inputs, rows, weights), self._terms

        def values_of(data: Any, first: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """Of some rows, given the first one's number: each one's loss in each term, `[terms, rows]`; the same
            computed once more from the same predictions, since a loss may draw numbers; that of the first half, from
            the same predictions without the others'; and what each layer adds to the loss, `[layers]`."""
            inputs, rows, weights = data
            key, place = noise_key(self.seed, self._num_updates()), rows_of(*data, first_row + first, tf.constant(0))
            frozen = private.as_not_trainable(self._normalizations())  # So that they use their averages.
            with self._dropout.keyed(key, place), self._kept_once(num_parts), frozen:
                # Copies: of softmax's own output Keras's losses take the logits, of a part of it they cannot.
                predictions = tf.nest.map_structure(
                    lambda each: with_mask(tf.identity(each), mask_of(each)), self(inputs, training=True)
                )
                added = [] if terms.takes_all else as_numbers(self.losses)
                losses = terms.by_row(rows, predictions, weights, inputs)
            again, kept = losses, (losses.shape[1] or tf.shape(losses)[1]) // 2
            alone = losses[:, :kept]
            if not terms.takes_all:
                again = terms.by_row(rows, predictions, weights, inputs)
                half = tf.nest.map_structure(lambda each: each[:kept] if each.shape.rank else each, predictions)
                rows, weights = tf.nest.map_structure(lambda each: each[:kept], (rows, weights))
                alone = terms.by_row(rows, half, weights, inputs)
            return losses, again, alone, tf.stack(added) if added else tf.zeros([0])

        function = tf.function(values_of, autograph=self._autograph)
        num_rows = [tf.shape(each)[0] for each in tf.nest.flatten(data)]
        is_whole = tf.reduce_all(tf.equal(num_rows, num_rows[0])) & (num_rows[0] > 0)
        due = _is_due(self.counters.steps() - self._compared_from)
        faults = tf.cond(due & is_whole, lambda: self._compare_rows(function, data), lambda: tf.zeros([3]))
        rule = "A row's loss must not depend on the rows beside it, or it depends on how a batch is split. "
        instead = f"{split}. Train with gradient_accumulation_steps=1 on one replica."
        return faults, [
            f"{rule}Received: {terms.described}, which gives a row another loss if others are absent, {instead}",
            f"{rule}Received: a layer, or {terms.described}, that looks across rows, {instead}",
            "What layers add to the loss must be a mean over rows, or it depends on how a batch is split. "
            f"Received: an add_loss that gives for all rows no mean of what it gives for parts of them, {split}. "
            "Divide a sum by the number of rows, or train with gradient_accumulation_steps=1 on one replica.",
        ]

    def _compare_rows(self, values_of: Any, data: Any) -> tf.Tensor:
        """1 for a fault in the loss, in the model or its own loss, and in what layers add: float32 `[3]`."""
        # What rounding may change of a value, relative to the largest one.
        is_coarse = any("16" in (getattr(e, "compute_dtype", None) or "") for e in private.layers_of(self.model))
        tolerance = 1e-2 if is_coarse or tf.config.get_visible_devices("GPU") else 1e-4
        # Not, where an input says how many rows it has.
        takes_any, takes_all, rows = self._takes_any_rows, self._terms.takes_all, tf.nest.flatten(data)[0]
        count, largest = rows.shape[0], max
        if count is None:
            count, largest = tf.shape(rows)[0], tf.maximum
        # A single row shows nothing.
        size = largest(-(-count // self.gradient_accumulation_steps), 2 if takes_any else 1)
        first_half = size // 2
        numbers = tf.minimum(tf.range(size), count - 1)

        def chosen(numbers: tf.Tensor, first: tf.Tensor | int = 0) -> tuple[Any, tf.Tensor]:
            return tf.nest.map_structure(lambda tensor: tf.gather(tensor, numbers), data), tf.cast(first, tf.int64)

        graph = values_of.get_concrete_function(*chosen(numbers)).graph
        found = private.variables_written(graph, 0, self._values_of(self.model.variables))
        own = tf.VariableSynchronization.ON_READ
        written = [(v, tf.identity(v)) for v in found if v is not None and v.synchronization == own]
        losses, again, alone, added = values_of(*chosen(numbers))
        loss_looks_across = _apart(losses[:, :first_half], alone, tolerance) & ~_apart(losses, again, tolerance)
        model_looks_across = adds_no_mean = tf.constant(False)
        if not drawing_in(graph):
            # Others before and after each that stays.
            beside, *_ = values_of(*chosen(tf.where(tf.range(size) % 2 == 1, numbers, numbers[-1])))
            model_looks_across = _apart(losses[:, 1::2], beside[:, 1::2], tolerance)
            num_added = added.shape[0]
            if takes_any and (takes_all or num_added):
                *half, added_in_half = values_of(*chosen(numbers[:first_half]))
                tolerance *= 10  # Tensors of other shapes are rounded otherwise.
                if takes_all:
                    model_looks_across |= _apart(losses[:, :first_half], half[0], tolerance)
                if num_added:
                    *_, added_in_rest = values_of(*chosen(numbers[first_half:], first_half))
                    in_all, in_half = tf.cast(size, tf.float32), tf.cast(first_half, tf.float32)
                    sums = added_in_half * in_half + added_in_rest * (in_all - in_half)
                    adds_no_mean = _apart((added * in_all)[:, None], sums[:, None], tolerance)
        for variable, before in written:
            variable.assign(before)
        return tf.cast(tf.stack([loss_looks_across, model_looks_across, adds_no_mean]), tf.float32)

    def _range_faults(self, predictions: Any) -> Faults:
        """The same for outputs that a loss takes for probabilities."""
        losses = self._terms.of_probabilities
        if not (self.is_foreign and losses):
            return tf.zeros([0]), []
        outputs = self._terms.of_outputs(predictions, "outputs")
        found = [(loss, outputs[name]) for name, loss in losses.items()]
        faults = [tf.reduce_any((output < -_ROUNDING) | (output > most_of(loss) + _ROUNDING)) for loss, output in found]
        return tf.cast(tf.stack(faults), tf.float32), [
            str(loss_of_probabilities(loss, "outputs below 0 or above 1")) for loss, _ in found
        ]

    def _metric_faults(self, *measured: Any, training: bool) -> Faults:
        """The same for compiled metrics, of which every replica has its own state: whether states for all rows are
        those for parts of them added up, as replicas add theirs. They stay as they are.

        Args:
            measured: Labels, predictions and weights: structures of tensors `[rows, ...]`, or None.
            training: Whether in a step, not an evaluation.
        """
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if not (self.is_foreign and self._has_metrics) or num_replicas == 1:
            return tf.zeros([0]), []
        states = self._metric_states(*measured[:2])
        metrics = [variables for _, variables in states]
        num_rows = num_rows_of(measured[:2])
        half = (num_rows + 1) // 2

        def state_after(start: Any, stop: Any) -> list[list[tf.Tensor]]:
            def cut(tensor: tf.Tensor | None) -> tf.Tensor | None:
                mask = mask_of(tensor)
                part = None if tensor is None else tensor[start:stop]
                return part if mask is None else with_mask(part, mask[start:stop])

            self._update_metrics(*tf.nest.map_structure(cut, measured))
            return tf.nest.map_structure(lambda variable: tf.cast(tf.identity(variable), tf.float64), metrics)

        def is_no_sum(before: tf.Tensor, whole: tf.Tensor, one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
            both = one + other - tf.cast(before, tf.float64)
            return _apart(tf.reshape(whole, [1, -1]), tf.reshape(both, [1, -1]), 1e-3)

        def compare() -> tf.Tensor:
            before, after = tf.nest.map_structure(tf.identity, metrics), []
            for part in ((0, num_rows), (0, half), (half, num_rows)):
                after.append(state_after(*part))
                tf.nest.map_structure(lambda variable, value: variable.assign(value), metrics, before)
            found = tf.nest.map_structure(is_no_sum, before, *after)
            return tf.cast(tf.stack([tf.reduce_any(each or [False]) for each in found]), tf.float32)

        step = self.counters.steps() - self._compared_from if training else self.counters.evaluated
        faults = tf.cond(_is_due(step) & (num_rows > 1), compare, lambda: tf.zeros([len(states)]))
        return faults, [
            "Replicas add up a metric's state, which must be a sum over rows. "
            f"Received: metric {name!r}, whose state for all rows is no sum of parts' states, on {num_replicas} "
            "replicas. Return a value per row from a function, keep a sum and a count, or measure on one replica."
            for name, _ in states
        ]

    def _split(self, num_micro_batches: int | None = None) -> str:
        """In how many parts a batch is, in words; nothing for one part."""
        num_parts = num_micro_batches or self.gradient_accumulation_steps
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        is_one = num_parts * num_replicas == 1
        return "" if is_one else f"gradient_accumulation_steps={num_parts} on {num_replicas} replica(s)"

    def _normalizations(self) -> list[Any]:
        """Layers that take means over a batch, and may."""
        return [each for each in private.layers_of(self.model) if isinstance(each, self._parts.normalization)]

    def _running_averages(self) -> list[tf.Variable]:
        """Variables that may follow the parts of a batch."""
        found = [getattr(each, name, None) for each in self._normalizations() for name in self._parts.averages]
        return [self._parts.value_of(variable) for variable in found if variable is not None]

    def _has_mask(self) -> bool:
        """Whether an output may have Keras's mask of positions."""
        outputs, kind = self._parts.outputs_of(self.model), self._parts.keras.layers.Masking
        if outputs is not None and all(len(each.shape) < 3 for each in tf.nest.flatten(outputs)):
            return False
        return any(isinstance(e, kind) or getattr(e, "mask_zero", False) for e in private.layers_of(self.model))

    @contextlib.contextmanager
    def _kept_once(self, num_micro_batches: int = 1) -> Iterator[None]:
        """Around a call of the model that is being traced: raises ValueError if it keeps state that depends on the
        split.

        Args:
            num_micro_batches: How often a step calls it, on each replica.
        """
        split = self._split(num_micro_batches)
        if not split:
            yield
            return
        first = 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())
        error = None
        try:
            yield
        except (RuntimeError, ValueError) as caught:
            error = caught
        for metric in private.metrics_within(self.model):
            rule = "A layer's own metric is updated for each part of a batch, of whatever size"
            received = f"metric {metric.name!r} of a layer (add_metric, or a Metric as an attribute), {split}"
            todo = "Pass it to FineTuner.compile(metrics=...), of an output of the model, or train in one part."
            raise ValueError(f"{rule}. Received: {received}. {todo}")
        # TensorFlow's words for a variable that is assigned on a replica, or that replicas would have to meet for.
        if error is not None and ("merge_call" in str(error) or "aggregation method" in str(error)):
            raise _of_state("a layer that assigns a variable in its call", split) from error
        if error is not None:
            raise error
        if not tf.executing_eagerly():
            self._check_writes(tf.compat.v1.get_default_graph(), first, split, is_once=num_micro_batches == 1)

    def _check_writes(self, graph: tf.Graph, first: int, split: str, *, is_once: bool) -> None:
        for name in drawing_in(graph, first) if self._parts.refuses_draws else ():
            rule = "Random numbers must belong to rows of the global batch, or they depend on the split"
            received = f"a layer that draws by itself, with the operation {name}, {split}"
            todo = "Use keras.random with a SeedGenerator, or train in one part."
            raise ValueError(f"{rule}. Received: {received}. {todo}")
        found = private.variables_written(
            graph, first, self._values_of(self.model.variables), apart_from=self._running_averages()
        )
        for variable in found:
            if variable is None:
                raise _of_state("a call that assigns a variable which no layer holds", split)
            is_shared = variable.synchronization == tf.VariableSynchronization.ON_READ and variable.aggregation in _ONCE
            is_generator = variable.name.startswith("StateVar")  # As TensorFlow calls that of a `tf.random.Generator`.
            if not (is_generator or (is_once and is_shared)):
                raise _of_state(f"a layer that assigns {variable.name!r} in its call", split)


def drawing_in(graph: tf.Graph, first: int = 0) -> list[str]:
    """The types of a graph's operations of which nobody can say to which rows their numbers belong: all of
    `tf.random`. What `noise` draws is made of whole random words."""
    return sorted(filter(_RANDOM.fullmatch, private.operation_types(graph, first)))


def _is_due(step: tf.Tensor) -> tf.Tensor:
    """Whether to compare in this step, counted from 0; bool `[]`."""
    return tf.reduce_any(tf.equal(tf.cast(step, tf.int64), _STEPS))


def _apart(one: tf.Tensor, other: tf.Tensor, tolerance: float) -> tf.Tensor:
    """Whether values `[terms, values]` of any term differ by more than its largest one times a tolerance; bool `[]`."""
    known = tf.math.is_finite(one), tf.math.is_finite(other)
    both, zero = known[0] & known[1], tf.zeros([], one.dtype)
    difference = tf.reduce_max(tf.where(both, tf.abs(one - other), zero), axis=1)
    size = tf.reduce_max(tf.where(both, tf.maximum(tf.abs(one), tf.abs(other)), zero), axis=1)
    return tf.reduce_any(difference > tolerance * size) | tf.reduce_any(known[0] != known[1])


def _of_state(what: str, split: str) -> ValueError:
    rule = "A layer's own state must change once in a step, whatever the split"
    todo = "Count steps by optimizer.iterations, or train with gradient_accumulation_steps=1 on one replica."
    return ValueError(f"{rule}. Received: {what}, {split}. {todo}")
