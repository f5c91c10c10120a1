"""What layers keep from one call to the next, besides weights that are trained: metrics, counts, running averages.

A step may call a model several times, once for each micro-batch, and on several replicas. Where a layer's own state
would then differ from that of one call with the whole batch, the layer is refused. BatchNormalization's averages are
the exception that every framework makes: they follow the parts that a batch is split into.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfbert import private
from tfbert.step.parts import KerasParts

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
            if private.is_generator_state(variable) or (num_micro_batches == 1 and is_shared):
                continue
            raise _of_state(f"a layer that assigns {variable.name!r} in its call", split)


def _of_state(what: str, split: str) -> ValueError:
    return ValueError(
        "A layer's own state must change once in a step, whatever the split. "
        f"Received: {what}, {split}. "
        "Count steps by optimizer.iterations, or train with gradient_accumulation_steps=1 on one replica."
    )
