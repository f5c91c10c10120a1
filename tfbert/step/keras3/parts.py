"""`KerasParts` of Keras 3; its random layers, drawing what `noise` says belongs to each row of the global batch; and
any optimizer of it, given the gradients of the global batch: applied on all replicas together, or on none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfbert.private import layers_of, rate_of, strategy_of
from tfbert.step.keras3 import private
from tfbert.step.keras3.fused import LAMB, AdamW
from tfbert.step.keras3.private import OTHER_DRAWS, GivenSeed, drawn_by, each_of, generators_of, summed_already
from tfbert.step.noise import Noise, known_leading, noise_key
from tfbert.step.refusals import KerasParts, check_keras, is_of, needs_scope, refuse_own
from tfbert.step.terms import Total, check_labels

_MAX_RANGE = 1 << 23
"""As many whole numbers as a float32 between 0 and 1 tells apart evenly."""


class KeyedRandom(Noise):
    """Takes over all random functions of Keras in a model's forward passes, whichever layer calls them.

    Each `SeedGenerator` has a part of the stream of its own: that of a layer's `noise_number`, or else in the order of
    the layers that hold them, after these; what no layer holds, in the order in which it is used.

    Args:
        model: A built or unbuilt Keras model.
        num_parts: Micro-batches of a global batch, on all replicas.
    """

    def __init__(self, model: keras.Model, num_parts: int):
        super().__init__(around=lambda: drawn_by(self))
        self._num_parts = num_parts
        # The generators are kept alive: another object could get the number of one that is gone.
        held = [(layer, each) for layer in layers_of(model) for each in generators_of(layer)]
        numbers = {id(each): layer.noise_number for layer, each in held if hasattr(layer, "noise_number")}
        self._known: list[Any] = [each for _, each in held]
        self._numbers, self._next = numbers, 1 + max(numbers.values(), default=-1)
        for _, each in held:
            self._number_of(each)

    def draw(self, name: str, function: Callable[..., tf.Tensor], given: dict[str, Any]) -> tf.Tensor:
        """What a random function returns.

        Args:
            name: The function's.
            function: Keras's own.
            given: All its arguments.

        Raises:
            ValueError: for one that cannot be drawn by row, where a batch is in several parts.
        """
        seed = given["seed"]
        if isinstance(seed, bool) or not isinstance(seed, (int, keras.random.SeedGenerator, type(None))):
            return function(**given)  # Keras says what it accepts.
        if isinstance(seed, int):  # The same numbers in every step.
            fixed = noise_key(seed % (1 << 31), tf.constant(0))
            with self.keyed(fixed, self.source.rows):
                return self._drawn(name, function, given, 0)
        return self._drawn(name, function, given, self._number_of(seed))

    def _number_of(self, generator: keras.random.SeedGenerator | None) -> int:
        if id(generator) not in self._numbers:
            self._known.append(generator)
            self._numbers[id(generator)] = self._next
            self._next += 1
        return self._numbers[id(generator)]

    def _drawn(self, name: str, function: Callable[..., tf.Tensor], given: dict[str, Any], number: int) -> tf.Tensor:
        dtype = given.get("dtype") or keras.config.floatx()
        if name == "dropout":
            return self._dropped(given["inputs"], given["rate"], given["noise_shape"], number)
        if name in ("normal", "truncated_normal"):
            drawn = getattr(self, name)(number, given["shape"])
            return tf.cast(given["mean"] + given["stddev"] * drawn, dtype)
        if name == "uniform":
            low, high = (tf.cast(given[each], tf.float32) for each in ("minval", "maxval"))
            return tf.cast(low + self.uniform(number, given["shape"]) * (high - low), dtype)
        if name == "randint":
            return self._whole(given, number, dtype)
        if self._num_parts > 1:
            raise ValueError(
                "Random numbers must belong to rows of the global batch, or they depend on the split. "
                f"Received: a layer that calls keras.random.{name}, and a batch in {self._num_parts} parts. "
                "Use dropout, normal, uniform, truncated_normal or randint there, or train with "
                "gradient_accumulation_steps=1 on one replica."
            )
        assert name in OTHER_DRAWS
        return function(**given | {"seed": GivenSeed(self.seed(number))})

    def _dropped(self, inputs: tf.Tensor, rate: Any, noise_shape: Any, number: int) -> tf.Tensor:
        if isinstance(rate, (int, float)) and rate in (0, 1):
            return inputs if rate == 0 else tf.zeros_like(inputs)
        inputs, leading = tf.convert_to_tensor(inputs), inputs.shape[:1]
        if noise_shape is not None:
            if noise_shape[0] is not None:
                leading = known_leading(noise_shape[:1])
            sizes = tf.shape(inputs)
            noise_shape = tf.stack([sizes[i] if size is None else size for i, size in enumerate(noise_shape)])
        return self.dropout(number, inputs, rate, leading, noise_shape)

    def _whole(self, given: dict[str, Any], number: int, dtype: Any) -> tf.Tensor:
        low, high = given["minval"], given["maxval"]
        span = tf.get_static_value(tf.convert_to_tensor(high)), tf.get_static_value(tf.convert_to_tensor(low))
        if None in span or span[0] - span[1] > _MAX_RANGE:
            rule = f"Whole numbers are drawn by row from a known range of at most {_MAX_RANGE}"
            received = f"a layer that calls keras.random.randint(minval={low}, maxval={high})"
            raise ValueError(f"{rule}. Received: {received}. Use keras.random.uniform there, and round what it gives.")
        size = float(span[0] - span[1])
        drawn = tf.minimum(tf.floor(self.uniform(number, given["shape"]) * size), size - 1)
        return tf.cast(tf.cast(drawn, tf.int64) + tf.cast(low, tf.int64), dtype)


def inner_of(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer that a `LossScaleOptimizer` is around; any other is its own."""
    is_around = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return optimizer.inner_optimizer if is_around else optimizer


def _adapt(optimizer: keras.optimizers.LossScaleOptimizer, is_finite: tf.Tensor) -> None:
    """Doubles the scale after a number of finite updates in a row, and halves it after another."""
    count, scale = tf.identity(optimizer.step_counter.value), tf.identity(optimizer.dynamic_scale.value)
    is_due = tf.equal(count, optimizer.dynamic_growth_steps - 1)
    doubled = scale * 2.0  # Infinite at last where nothing overflows, from where no update would be finite.
    grown = tf.where(is_due & tf.math.is_finite(doubled), doubled, scale)
    # As tf_keras does, not below 1; Keras 3 goes on towards 0, from where it takes long to come back.
    halved = tf.minimum(scale, tf.maximum(scale * 0.5, 1.0))
    optimizer.dynamic_scale.assign(tf.where(is_finite, grown, halved))
    optimizer.step_counter.assign(tf.where(is_due | ~is_finite, tf.zeros_like(count), count + 1))


class _Total(Total, keras.metrics.Metric):
    """See `Total`."""

    keras = keras


class Keras3Parts(KerasParts):
    """See `KerasParts`."""

    keras = keras
    # What KerasHub's tasks make of `compile`, `fit`, `evaluate` and `predict` is done here too.
    libraries = frozenset({"keras", "keras_hub", "keras_nlp", "tensorflow", "tfbert"})
    of_steps = libraries - {"keras_hub", "keras_nlp"}
    of_optimizers = ("scale_loss", "stateless_apply")
    of_losses = ("__call__",)
    other = "tf_keras"
    means = ("sum_over_batch_size", "mean", "none", None)
    converts = False
    compiled_loss = "_compile_loss"
    normalization = keras.layers.BatchNormalization
    averages = ("moving_mean", "moving_variance", "moving_stddev", "renorm_mean", "renorm_stddev")
    refuses_draws = True
    Total = _Total
    keyed = KeyedRandom
    outputs_of = staticmethod(private.outputs_of)

    def wrap(self, tuner: Any) -> None:
        private.take_as_they_are(tuner)

    def value_of(self, variable: keras.Variable) -> tf.Variable:
        """What TensorFlow knows one of Keras's variables as."""
        return variable.value

    def serialized(self, model: keras.Model) -> dict[str, Any]:
        config, kind = super().serialized(model), type(model)
        if kind.compile is not keras.Model.compile and kind.compile_from_config is keras.Model.compile_from_config:
            # Of such a model, as KerasHub's tasks are, Keras does not use it, and warns.
            config.pop("compile_config", None)
        return config

    def loss_of(self, identifier: Any) -> Any:
        """The loss that Keras means by a name, a function or an object."""
        # Which loss a name is may depend on the shapes of what it compares.
        return identifier

    def loss_values(self, loss: Any, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """What a loss returns for rows of labels and predictions."""
        made = private.loss_of(loss, labels, predictions)
        check_labels(made, labels, predictions)
        # As Loss.__call__ does.
        labels, predictions = (keras.ops.convert_to_tensor(each, dtype=made.dtype) for each in (labels, predictions))
        return made.call(labels, predictions)

    def gives_axis(self, predictions: tf.Tensor) -> bool:
        return predictions.shape[-1] == 1

    def num_updates(self, optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
        """Steps made before this one, int64 `[]`."""
        return tf.cast(inner_of(optimizer).iterations.value, tf.int64)

    def scaled(self, optimizer: keras.optimizers.Optimizer, loss: tf.Tensor) -> tf.Tensor:
        """The loss times the optimizer's loss scale."""
        return optimizer.scale_loss(loss)

    def scale_of(self, optimizer: keras.optimizers.Optimizer) -> Any:
        """What `scaled` multiplies by, a number or a tensor; None for nothing."""
        is_around = inner_of(optimizer) is not optimizer
        return optimizer.dynamic_scale.value if is_around else optimizer.loss_scale_factor

    def apply(self, optimizer, grads, variables, factor, is_finite) -> None:
        """One update with `gradient x factor`, or none if the gradients are not finite; `iterations` counts either. A
        `LossScaleOptimizer` adapts its scale. Call it in a replica context, with values that are equal on all replicas.

        Args:
            optimizer: Any of this Keras, built for these variables, and perhaps others.
            grads: float32, summed over replicas.
            variables: What to update.
            factor: float32 `[]`, which takes the loss scale back and clips.
            is_finite: bool `[]`.
        """
        inner = inner_of(optimizer)

        def apply(grads: list[tf.Tensor], factor: tf.Tensor | None) -> None:
            clipped = grads if factor is None else [grad * factor for grad in grads]
            if inner is optimizer:
                optimizer.apply_gradients(list(zip(clipped, variables, strict=True)))
            else:  # As LossScaleOptimizer does.
                inner.apply(clipped, variables)

        def fused(strategy, grads, factor, is_finite):
            # Skipping and clipping are parts of the update: no branch, and no pass of their own.
            with summed_already(inner), inner.given(factor, is_finite):
                strategy.extended.call_for_each_replica(apply, args=(grads, None))

        # An update meets the other replicas. TensorFlow allows that in no branch of a replica: branch first, then fan
        # out.
        def branched(strategy, grads, factor, is_finite):
            def step() -> tf.Tensor:
                with summed_already(inner):
                    strategy.extended.call_for_each_replica(apply, args=(grads, factor))
                return tf.constant(0)

            def skip() -> tf.Tensor:
                for each in each_of(inner):
                    each.iterations.assign_add(1)
                return tf.constant(0)

            tf.cond(is_finite, step, skip)

        def meet(strategy, grads, factor, is_finite):
            factor, is_finite = (strategy.experimental_local_results(each)[0] for each in (factor, is_finite))
            # A class derived from these may look at the gradients: it gets them clipped.
            is_fused = type(inner) in (AdamW, LAMB) and not any(
                (inner.clipnorm, inner.clipvalue, inner.global_clipnorm, inner.use_ema)
            )
            (fused if is_fused else branched)(strategy, grads, factor, is_finite)
            if inner is not optimizer:
                _adapt(optimizer, is_finite)

        tf.distribute.get_replica_context().merge_call(meet, args=(grads, factor, is_finite))

    def check_model(self, model: keras.Model) -> None:
        """Raises ValueError for another backend than TensorFlow, a strategy that is not tried, and layers of tf_keras
        within the model."""
        if keras.config.backend() != "tensorflow":
            raise ValueError(
                "FineTuner trains with TensorFlow. "
                f"Received: a model of Keras 3 with the backend {keras.config.backend()!r}. "
                'Set os.environ["KERAS_BACKEND"] = "tensorflow" before keras is imported.'
            )
        of, here = tf.distribute, tf.distribute.get_strategy()
        if of.has_strategy() and not isinstance(
            here, (of.OneDeviceStrategy, of.MirroredStrategy, of.MultiWorkerMirroredStrategy)
        ):
            rule = "FineTuner trains on one device, with MirroredStrategy or MultiWorkerMirroredStrategy"
            raise ValueError(f"{rule}. Received: {type(here).__name__}. Use one of these.")
        for layer in layers_of(model):
            for name, value in vars(layer).items():
                if name.startswith("_self_"):  # TensorFlow's own lists of what the others hold.
                    continue
                # Not Mapping: asking an abstract class of each layer's values takes half a second.
                held = list(value.values()) if isinstance(value, dict) else value
                for each in held if isinstance(held, (list, tuple)) else [held]:
                    if isinstance(each, tf.Module) and is_of("tf_keras", each):
                        rule = "Keras 3 does not train layers of tf_keras within a model"
                        received = f"{type(each).__name__} of tf_keras as {type(layer).__name__}.{name}"
                        todo = "Use a layer of Keras 3, or build the whole model with tf_keras."
                        raise ValueError(f"{rule}. Received: {received}. {todo}")

    def check_optimizer(self, optimizer: Any, strategy: tf.distribute.Strategy) -> None:
        """Raises ValueError for an optimizer whose updates would not be those of the global batch."""
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            return  # Keras makes one of its name, or says what is wrong.
        inner = inner_of(optimizer)
        if optimizer is not inner:
            instead = "Define it on the inner optimizer"
            refuse_own("optimizer", optimizer, ("apply", "apply_gradients"), instead, self.libraries)
        for each in (optimizer, *each_of(inner)):
            check_keras("learning_rate", rate_of(each), self)
            if each.gradient_accumulation_steps:
                raise ValueError(
                    "FineTuner accumulates gradients within a step, which then is one update. "
                    f"Received: an optimizer with gradient_accumulation_steps={each.gradient_accumulation_steps}. "
                    f"Pass FineTuner(gradient_accumulation_steps={each.gradient_accumulation_steps}) and batches that "
                    "many times as large instead."
                )
            made_under = strategy_of(each)
            if needs_scope(made_under, strategy):
                raise ValueError(
                    "An optimizer's variables belong to the strategy in whose scope it was created. "
                    f"Received: an optimizer created under {type(made_under).__name__}, and a model under "
                    f"{type(strategy).__name__}. Create it in the same `with strategy.scope():`."
                )


PARTS = Keras3Parts()
