"""One update, whichever Keras the model is from: all of it in order, on a batch as `fit` gets it; and what a run counts
on the device, so that the host never waits for a number that nothing reads."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfbert.devices.process import missing_xla_flags
from tfbert.measure import ALL_REDUCE, FORWARD_BACKWARD, GRADIENTS, REDUCED, ROWS, UPDATE, UPDATED, mark
from tfbert.private import let_go_of_traced_gradients, mask_of, with_mask
from tfbert.step import comparisons, gradients, refusals
from tfbert.step.gradients import num_rows_of
from tfbert.step.noise import noise_key, rows_of
from tfbert.step.updates import global_norm

log = logging.getLogger("tfbert")


class StepCounters:
    """What a run counts on the device, so that only reading a counter makes the host wait.

    Attributes:
        loss_sum: float64 `[]`: sum of the losses of all steps whose gradients were finite.
        finite_steps: int64 `[]`: how many those are.
        skipped_steps: int64 `[]`: steps whose gradients were not finite.
        skipped_in_a_row: int64 `[]`: such steps since the last finite one.
        gradient_norm: float32 `[]`: global norm of the last step's gradient, before clipping.
        evaluated: int64 `[]`: batches that were evaluated.
    """

    def __init__(self):
        def counter(dtype: tf.DType, name: str) -> tf.Variable:
            once = tf.VariableAggregation.ONLY_FIRST_REPLICA
            return tf.Variable(0, dtype=dtype, trainable=False, aggregation=once, name=name)

        self.loss_sum = counter(tf.float64, "loss_sum")
        self.finite_steps = counter(tf.int64, "finite_steps")
        self.skipped_steps = counter(tf.int64, "skipped_steps")
        self.skipped_in_a_row = counter(tf.int64, "skipped_in_a_row")
        self.gradient_norm = counter(tf.float32, "gradient_norm")
        self.evaluated = counter(tf.int64, "evaluated")

    def steps(self) -> tf.Tensor:
        """All of them, int64 `[]`."""
        return self.finite_steps + self.skipped_steps

    def update(self, loss: tf.Tensor, norm: tf.Tensor, is_finite: tf.Tensor) -> None:
        """Counts a step; the arguments are equal on all replicas."""
        one = tf.cast(is_finite, tf.int64)
        self.loss_sum.assign_add(tf.where(is_finite, tf.cast(loss, tf.float64), 0.0))
        self.finite_steps.assign_add(one)
        self.skipped_steps.assign_add(1 - one)
        self.skipped_in_a_row.assign((self.skipped_in_a_row + 1) * (1 - one))
        self.gradient_norm.assign(norm)


def check_data(data: Any, *, xla: bool = False) -> None:
    """Raises ValueError for a batch that cannot be cut into micro-batches, or that XLA does not take."""
    for tensor in tf.nest.flatten(data):
        if getattr(tensor, "shape", None) is not None and tf.TensorShape(tensor.shape).rank is None:
            found = "a tensor of unknown shape. Give from_generator its output_signature, or call tf.ensure_shape"
        elif xla and getattr(tensor, "dtype", None) == tf.string:
            found = "texts, and FineTuner(jit_compile=True). Leave that out, or make numbers of texts in the data set"
        elif isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor)):
            found = f"a {type(tensor).__name__}. In the data set call tensor.to_tensor(), or tf.sparse.to_dense(tensor)"
        else:
            continue
        raise ValueError(f"FineTuner cuts batches of dense tensors, and XLA compiles numbers. Received: {found}.")


def no_labels(inputs: Any) -> ValueError:
    """For a batch of inputs alone."""
    among = f", with {', '.join(sorted(inputs))}" if isinstance(inputs, Mapping) else ""
    todo = "Let the data set give pairs, (inputs, labels), or pass y."
    return ValueError(f"FineTuner needs labels for its loss. Received: inputs alone{among}. {todo}")


class Step(comparisons.Comparing):
    """The step of a `FineTuner`. What differs between Kerases is in `KerasParts` and in what derives from this class.

    Attributes:
        model: The wrapped model.
        gradient_accumulation_steps: Micro-batches per replica and step.
        max_grad_norm: Largest global norm of the gradient of the global batch; 0 for no clipping.
        all_reduce_dtype: What gradients are rounded to before they are summed over replicas.
        seed: Decides the noise.
        counters: What the run counts.
        marks_steps: Whether a step's parts are marked in profiles.
        is_foreign: Whether the model, loss and metrics are a user's, whose masks are read, and of which it is not known
            that a batch can be cut.
    """

    _parts: refusals.KerasParts

    def __init__(
        self,
        model: Any,
        *,
        gradient_accumulation_steps: int = 1,
        max_grad_norm: float = 0.0,
        all_reduce_dtype: str = "float32",
        jit_compile: bool = False,
        seed: int = 0,
        forward: Callable[[Any, Any, bool | None], Any] | None = None,
        name: str = "fine_tuner",
    ):
        refusals.check_model(model, self._parts)
        instead = "Define compute_loss on the wrapped model, or pass metrics=[...]"
        refusals.refuse_own("a FineTuner", self, refusals.OF_TUNERS, instead, self._parts.libraries)
        super().__init__(name=name, dtype=model.dtype_policy)
        self.model = model
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.max_grad_norm = max_grad_norm
        self.all_reduce_dtype = all_reduce_dtype
        self.seed = seed
        self.counters = StepCounters()
        self.marks_steps = False
        self.is_foreign = True
        self._xla = jit_compile
        self._check_arguments()
        if jit_compile and tf.config.get_visible_devices("GPU") and (missing := missing_xla_flags()):
            log.warning(
                'XLA tries kernels for minutes: set XLA_FLAGS="%s" before TensorFlow is imported', " ".join(missing)
            )
        self._forward = forward
        self._autograph = forward is None and self._parts.converts
        self._dropout = None
        self._unreached = []
        self._terms = None
        self._has_metrics = False
        self._untracked("_compiled_with", {})
        # What it has not called tf_keras copies attribute by attribute, which a Hugging Face model does not survive.
        self.built = model.built
        # Of a Sequential without an Input, its first batch would say how many, though it takes any number.
        self._takes_any_rows = all(e.shape[0] is None for e in tf.nest.flatten(getattr(model, "inputs", None) or []))
        self._parts.wrap(self)

    def _untracked(self, name: str, value: Any) -> None:
        """Sets an attribute that is no part of what Keras saves and loads of this model."""
        object.__setattr__(self, name, value)

    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments, for `get_config`: those that are numbers."""
        names = ("gradient_accumulation_steps", "max_grad_norm", "all_reduce_dtype", "seed")
        return {name: getattr(self, name) for name in names} | {"jit_compile": self._xla}

    def _check_arguments(self) -> None:
        """Raises ValueError for what no step can be made with."""
        num_parts, norm, seed = self.gradient_accumulation_steps, self.max_grad_norm, self.seed
        is_count = isinstance(num_parts, numbers.Integral) and num_parts >= 1
        is_norm = isinstance(norm, numbers.Real) and norm >= 0
        for name, is_right, rule in (
            ("gradient_accumulation_steps", is_count, "a whole number from 1, for no accumulation"),
            ("max_grad_norm", is_norm, "a number from 0, for no clipping"),
            ("all_reduce_dtype", self.all_reduce_dtype in ("float32", "bfloat16"), "float32 or bfloat16"),
            ("jit_compile", isinstance(self._xla, bool), "True or False"),
            ("seed", isinstance(seed, numbers.Integral), "a whole number"),
        ):
            if not is_right:
                value = self._arguments()[name]
                raise ValueError(f"{name} is {rule}. Received: {name}={value!r}. Pass such a value.")

    def _unpacked(self, data: Any) -> tuple[Any, Any, Any]:
        """Inputs, labels and sample weights of a batch."""
        check_data(data, xla=self._xla)
        given = self._parts.keras.utils.unpack_x_y_sample_weight(data)
        inputs, labels, sample_weight = self._separated(*given)
        if labels is None and not self._terms.takes_all:
            raise no_labels(inputs)
        return inputs, labels, sample_weight

    def _num_updates(self) -> tf.Tensor:
        """Steps made before this one, int64 `[]`."""
        return self._parts.num_updates(self.optimizer)

    def _values_of(self, variables: list[Any]) -> list[tf.Variable]:
        return [self._parts.value_of(variable) for variable in variables]

    def update(self, data: Any) -> tf.Tensor:
        """One update from all replicas' shares of a global batch, without Keras's `fit`; returns the steps so far."""
        self.distribute_strategy.run(self.train_step, args=(data,))
        return self.counters.steps()

    def split_into(self, gradient_accumulation_steps: int) -> None:
        """Changes the number of micro-batches; `create_variables` must have been called. Steps are traced anew."""
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._trace_anew()
        self.train_function = None

    def _trace_anew(self) -> None:
        self._untracked("_traced", self._arguments())
        with tf.init_scope():
            self._compared_from = int(self.counters.steps())
        self._local_gradients = self._accumulate
        if self._xla:
            self._local_gradients = tf.function(self._accumulate, jit_compile=True, autograph=self._autograph)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One update from this replica's share of a global batch; runs in a replica context."""
        inputs, labels, sample_weight = self._unpacked(data)
        num_rows = num_rows_of((labels, inputs))
        weights = self._terms.weights(sample_weight, num_rows, labels)
        if self._dropout is None:
            self._prepare(inputs)
        if self.is_foreign and (self._has_mask() or any(each.shape.rank > 1 for each in weights.values())):
            # The counts are needed before the predictions that have the masks. TensorFlow computes no more than these.
            masks_alone = tf.function(lambda inputs: self._terms.masked(weights, self(inputs, training=False)))
            weights = masks_alone(inputs)
        counts = self._terms.counts(weights)
        with tf.name_scope(ALL_REDUCE):
            total_counts, first_row = gradients.sum_and_count_before(counts, num_rows)
        total_counts = tf.maximum(total_counts, 1.0)
        (total_counts,) = self._marked(ROWS, [total_counts])
        rows = self._terms.rows(labels, sample_weight)
        averages = [(v, tf.identity(v)) for v in self._averages]
        grads, losses, outputs = self._own_gradients(inputs, rows, weights, total_counts, first_row)
        predictions, masks = tf.nest.map_structure(lambda output: output[:num_rows], outputs)
        for index, mask in masks.items():
            with_mask(tf.nest.flatten(predictions)[index], mask)
        with tf.control_dependencies([losses]):  # Not both at once in memory.
            found = [self._row_faults(inputs, rows, weights, first_row)]
        measured = labels, predictions, sample_weight
        found += [self._range_faults(predictions), self._metric_faults(*measured, training=True)]
        faults, lines = comparisons.joined(found)
        grads, trained = self._reached(grads)
        losses, *grads = self._marked(GRADIENTS, [losses, *grads])

        with tf.name_scope(ALL_REDUCE):
            total_losses = tf.concat([losses, faults], 0)
            if self.all_reduce_dtype == "float32":
                total_losses, *grads = gradients.all_reduce_sum([total_losses, *grads])
            else:
                grads = gradients.all_reduce_sum(grads, tf.as_dtype(self.all_reduce_dtype))
                (total_losses,) = gradients.all_reduce_sum([total_losses])
        total_losses, total_faults = total_losses[: losses.shape[0]], total_losses[losses.shape[0] :]
        total_losses, *grads = self._marked(REDUCED, [total_losses, *grads])
        with tf.name_scope(UPDATE):
            scale = self._parts.scale_of(self.optimizer)
            scale = None if scale is None else tf.cast(scale, tf.float32)
            with tf.control_dependencies(comparisons.refused(total_faults, lines)):
                norm = global_norm(grads, scale, self._values_of(trained)[0].device)
            is_finite = tf.math.is_finite(norm)
            factor = gradients.clip_coefficient(norm, self.max_grad_norm)
            factor = factor if scale is None else factor / scale
            self._parts.apply(self.optimizer, grads, trained, factor, is_finite)
            self._settle(averages, is_finite)
        # The variables are read after they are updated; their count alone would wait for no update.
        self._marked(UPDATED, [self._num_updates(), *self._values_of(trained)])

        self.counters.update(self._terms.total(total_losses), norm, is_finite)
        self._terms.update_metrics(losses * total_counts, counts)
        if self._has_metrics:
            self._update_metrics(labels, predictions, sample_weight)
        let_go_of_traced_gradients()
        return self._results()

    def try_step(self, data: Any) -> tf.Tensor:
        """Computes this replica's gradients and forgets them: the part of a step whose memory depends on the split.

        Changes nothing and waits for no other replica, so that one of them can fail alone. Runs in a replica context.

        Returns:
            The gradients' global norm, float32 `[]`.
        """
        inputs, labels, sample_weight = self._unpacked(data)
        weights = self._terms.weights(sample_weight, num_rows_of((labels, inputs)), labels)
        counts = tf.maximum(self._terms.counts(weights), 1.0)
        grads, _, _ = self._own_gradients(inputs, self._terms.rows(labels, sample_weight), weights, counts, 0)
        return tf.linalg.global_norm(self._reached(grads)[0])

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Loss and compiled metrics of a batch, averaged over rows or positions with a weight other than 0."""
        inputs, labels, sample_weight = self._unpacked(data)
        num_rows = num_rows_of((labels, inputs))
        with self._kept_once():
            predictions = self(inputs, training=False)
        weights = self._terms.masked(self._terms.weights(sample_weight, num_rows, labels), predictions)
        rows = self._terms.rows(labels, sample_weight)
        sums = self._terms.sums(rows, predictions, weights, self.losses, inputs, training=False)
        self._terms.update_metrics(sums, self._terms.counts(weights))
        measured = labels, predictions, sample_weight
        found = [self._range_faults(predictions), self._metric_faults(*measured, training=False)]
        with tf.control_dependencies(comparisons.refused(*comparisons.joined(found))):
            self.counters.evaluated.assign_add(1)
        self._update_metrics(labels, predictions, sample_weight)
        return self._results()

    def _settle(self, averages: list[tuple[tf.Variable, tf.Tensor]], is_finite: tf.Tensor) -> None:
        """Takes back what the forward pass assigned, where the step is skipped."""
        for variable, before in averages:
            variable.assign(tf.where(is_finite, variable, before))

    def _reached(self, grads: list[tf.Tensor | None]) -> tuple[list[tf.Tensor], list[Any]]:
        """Gradients and their variables, except those on which the loss does not depend: these stay, without decay."""
        pairs = [(g, v) for g, v in zip(grads, self._trained, strict=True) if g is not None]
        if not pairs:
            raise ValueError("The loss must depend on a trainable variable. Received: a loss that depends on none.")
        names = [getattr(v, "path", v.name) for g, v in zip(grads, self._trained, strict=True) if g is None]
        if names != self._unreached:  # Once, not for each replica.
            log.warning("not trained, since the loss does not depend on them: %s", ", ".join(names))
            self._unreached = names
        found, trained = zip(*pairs, strict=True)
        return list(found), list(trained)

    def _own_gradients(self, inputs, rows, weights, total_counts, first_row):
        data, parts = (inputs, rows), self.gradient_accumulation_steps
        is_known = any(each.shape[0] is not None for each in tf.nest.flatten((data, weights)))
        # The command's batches have a row, and are taken as they are: what cuts whole numbers is on the host, from
        # where a GPU waits for them. With a known number, noise would take another tensor's rows for these.
        if self.is_foreign or is_known or parts * tf.distribute.get_replica_context().num_replicas_in_sync > 1:
            data, weights = gradients.split_rows(data, weights, parts)
        return self._local_gradients(*data, weights, total_counts, self._num_updates(), first_row)

    def _marked(self, name: str, tensors: list[tf.Tensor | tf.Variable]) -> list[tf.Tensor]:
        return mark(name, list(map(tf.convert_to_tensor, tensors))) if self.marks_steps else tensors

    def _accumulate(self, inputs, rows, weights, total_counts, step, first_row):
        def loss_fn(inputs, rows, weights, micro_batch):
            noise = self._dropout.keyed(
                noise_key(self.seed, step), rows_of(inputs, rows, weights, first_row, micro_batch)
            )
            # By the scopes' names a profile of a GPU tells the parts of a step apart, XLA or not.
            with noise, self._kept_once(self.gradient_accumulation_steps), tf.name_scope(FORWARD_BACKWARD):
                predictions = self(inputs, training=True)
                if self._terms.takes_all:  # It may call the model once more.
                    losses = self._terms.sums(rows, predictions, weights, [], inputs)
            if not self._terms.takes_all:
                losses = self._terms.sums(rows, predictions, weights, self.losses, inputs)
            losses /= total_counts
            if not (self._has_metrics or self._terms.of_probabilities):
                # Nothing reads them, and those of a batch of tens of thousands are large: a number for each token of
                # the vocabulary at each masked position.
                predictions = ()
            masks = {i: mask_of(output) for i, output in enumerate(tf.nest.flatten(predictions))}
            masks = {i: mask for i, mask in masks.items() if mask is not None}
            scaled = self._parts.scaled(self.optimizer, self._terms.total(losses))
            return scaled, losses, (predictions, masks)

        grads, losses, outputs = gradients.accumulate(
            loss_fn,
            self._values_of(self._trained),
            inputs,
            rows,
            weights,
            num_micro_batches=self.gradient_accumulation_steps,
            autograph=self._autograph,
        )
        # A single replica has the whole batch; several share it, and the last batch may leave some without rows.
        if tf.distribute.get_replica_context().num_replicas_in_sync > 1:
            grads = gradients.nothing_if_empty(grads, weights)
        return grads, losses, outputs
