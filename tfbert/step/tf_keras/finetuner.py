"""FineTuner over models of tf_keras: what of it is Keras's own. Random layers draw what `noise` says belongs to each
row of the global batch; any optimizer is given its gradients, applied on all replicas together, or on none."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.private import layers_of, metrics_within
from tfbert.step.noise import Noise, known_leading
from tfbert.step.refusals import KerasParts, refuse_own
from tfbert.step.terms import Total, check_labels
from tfbert.step.tf_keras import private
from tfbert.step.tuner import Tuner


class _KeyedGenerator(private.RandomGenerator):
    """What a random layer draws from while a key is set."""

    def __init__(self, noise: Noise, layer_index: int):
        super().__init__(seed=layer_index, rng_type=private.RandomGenerator.RNG_STATELESS)
        self._noise = noise
        self._layer_index = layer_index

    def make_seed_for_stateless_op(self) -> tf.Tensor:
        """A seed from the first row, for a layer that draws by itself, so that its rows are not known."""
        return self._noise.seed(self._layer_index)

    def random_normal(self, shape, mean=0.0, stddev=1.0, dtype=None, nonce=None):
        return _as(mean + stddev * self._noise.normal(self._layer_index, shape), dtype)

    def truncated_normal(self, shape, mean=0.0, stddev=1.0, dtype=None, nonce=None):
        return _as(mean + stddev * self._noise.truncated_normal(self._layer_index, shape), dtype)

    def random_uniform(self, shape, minval=0.0, maxval=None, dtype=None, nonce=None):
        if tf.as_dtype(dtype or keras.backend.floatx()).is_integer:
            return super().random_uniform(shape, minval, maxval, dtype, nonce)
        maxval = 1.0 if maxval is None else maxval
        return _as(minval + self._noise.uniform(self._layer_index, shape) * (maxval - minval), dtype)

    def dropout(self, inputs: tf.Tensor, rate: Any, noise_shape=None) -> tf.Tensor:
        if isinstance(rate, (int, float)) and not 0 < rate < 1:  # Nothing or everything.
            return super().dropout(inputs, rate, noise_shape)
        leading = inputs.shape[:1] if noise_shape is None else known_leading(noise_shape)
        return self._noise.dropout(self._layer_index, inputs, rate, leading, noise_shape)


class KeyedDropout(Noise):
    """Takes over the randomness of every random layer of a model (`Dropout`, `GaussianNoise`, ...), while a key is set.

    Args:
        model: A built or unbuilt Keras model; layers it creates later keep their own generators.
    """

    def __init__(self, model: keras.Model, num_parts: int = 1):
        super().__init__(around=self._taken_over)
        numbered = [(layer, _KeyedGenerator(self, index)) for index, layer in enumerate(layers_of(model))]
        self._keyed = [(layer, keyed) for layer, keyed in numbered if private.generator_of(layer) is not None]

    @contextlib.contextmanager
    def _taken_over(self) -> Iterator[None]:
        before = [(layer, private.generator_of(layer)) for layer, _ in self._keyed]
        for pair in self._keyed:
            private.set_generator(*pair)
        try:
            yield
        finally:
            for pair in before:
                private.set_generator(*pair)


def _as(values: tf.Tensor, dtype: Any) -> tf.Tensor:
    return tf.cast(values, dtype or keras.backend.floatx())


def _scales(optimizer: keras.optimizers.Optimizer) -> bool:
    return isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer)


def _apply(optimizer: keras.optimizers.Optimizer, grads: list[tf.Tensor], variables: list[tf.Variable]) -> None:
    """Calls `apply_gradients`, a user's own included, with gradients that are summed over replicas already.

    Raises:
        ValueError: for an own one that sums them over replicas itself.
    """
    pairs = list(zip(grads, variables, strict=True))
    parameters = inspect.signature(optimizer.apply_gradients).parameters.values()
    if any(p.name == "skip_gradients_aggregation" or p.kind == p.VAR_KEYWORD for p in parameters):
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        with private.without_aggregation(inner):  # An own one may take the argument, and not pass it on.
            optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        return
    with private.without_aggregation(optimizer) as asked:
        optimizer.apply_gradients(pairs)
    if not asked and tf.distribute.get_strategy().num_replicas_in_sync > 1:
        received = f"optimizer {type(optimizer).__name__}, whose apply_gradients keeps Keras from doing so"
        todo = "Give it the argument skip_gradients_aggregation, and sum nothing where it is True."
        raise ValueError(f"FineTuner sums gradients over replicas before apply_gradients. Received: {received}. {todo}")


@keras.saving.register_keras_serializable("tfbert")  # So that a saved FineTuner finds it.
class _Total(Total, keras.metrics.Metric):
    """See `Total`."""

    keras = keras


class TFKerasParts(KerasParts):
    """See `KerasParts`."""

    keras = keras
    libraries = of_steps = frozenset({"tf_keras", "tensorflow", "transformers", "tfbert"})
    of_optimizers = ("minimize", "compute_gradients", "aggregate_gradients")
    of_losses = ("__call__", "_get_reduction")
    other = "keras"
    means = (keras.losses.Reduction.AUTO, keras.losses.Reduction.SUM_OVER_BATCH_SIZE, keras.losses.Reduction.NONE)
    converts = True
    compiled_loss = "compiled_loss"
    normalization = keras.layers.BatchNormalization.__base__  # The older classes', too.
    averages = ("moving_mean", "moving_variance")
    refuses_draws = False
    Total = _Total
    keyed = KeyedDropout
    loss_of = staticmethod(keras.losses.get)

    def outputs_of(self, model: keras.Model) -> Any:
        return getattr(model, "output", None)

    def value_of(self, variable: tf.Variable) -> tf.Variable:
        return variable

    def settled(self, model: keras.Model, averages: list[tf.Variable]) -> list[tf.Variable]:
        # All that layers change in the forward pass, each replica its own. Not every weight is a variable: those of
        # lookup tables are not.
        own = tf.VariableSynchronization.ON_READ
        return [v for v in model.non_trainable_variables if getattr(v, "synchronization", None) == own]

    def check_saved(self, forward: Callable[..., Any]) -> None:
        importlib.import_module("tfbert.classifier").register(keras)
        if isinstance(forward, types.FunctionType) and "<" not in forward.__qualname__:
            return
        # Keras's sign for "no configuration".
        raise NotImplementedError(
            "A function is saved by its name; a lambda, a partial and a method have none. "
            f"Received: forward={forward!r}. Write a function in a module, or save weights: model.save_weights, or "
            "model.model.save_pretrained of a Hugging Face model."
        )

    def deserialized(self, config: Any, custom_objects: dict[str, Any] | None) -> Any:
        importlib.import_module("tfbert.classifier").register(keras)
        made = super().deserialized(config, custom_objects)
        if hasattr(made, "build_in_name_scope"):  # Hugging Face's: its configuration holds no shapes to build from.
            made.build_in_name_scope()
        return made

    def loss_values(self, loss: Any, labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        check_labels(loss, labels, predictions)
        if labels.dtype.is_floating and predictions.dtype.is_floating:
            labels = tf.cast(labels, predictions.dtype)
        return loss.call(labels, predictions) if isinstance(loss, keras.losses.Loss) else loss(labels, predictions)

    def num_updates(self, optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
        return optimizer.iterations

    def scaled(self, optimizer: keras.optimizers.Optimizer, loss: tf.Tensor) -> tf.Tensor:
        return optimizer.get_scaled_loss(loss) if _scales(optimizer) else loss

    def scale_of(self, optimizer: keras.optimizers.Optimizer) -> Any:
        return optimizer.loss_scale if _scales(optimizer) else None

    def apply(self, optimizer, grads, variables, factor, is_finite) -> None:
        """As of `KerasParts`; a dynamic `LossScaleOptimizer` also adapts its scale."""
        if _scales(optimizer) and optimizer.dynamic:
            # It checks for non-finite gradients itself, skips on all replicas together and adapts its scale. A norm may
            # overflow where no gradient does: NaN makes it skip then too.
            factor = tf.where(is_finite, factor, math.nan)
            _apply(optimizer, [g * factor for g in grads], variables)
            return
        if _scales(optimizer):  # With a fixed scale it would check nothing.
            optimizer = optimizer.inner_optimizer
        with tf.init_scope():
            optimizer.build(variables)

        def apply(grads, factor):
            _apply(optimizer, [g * factor for g in grads], variables)

        # An update meets the other replicas. TensorFlow allows that in no branch of a replica: branch first, then fan
        # out.
        def meet(strategy, grads, factor, is_finite):
            def step() -> tf.Tensor:
                strategy.extended.call_for_each_replica(apply, args=(grads, factor))
                return tf.constant(0)

            def skip() -> tf.Tensor:
                optimizer.iterations.assign_add(1, read_value=False)
                return tf.constant(0)

            tf.cond(strategy.experimental_local_results(is_finite)[0], step, skip)

        tf.distribute.get_replica_context().merge_call(meet, args=(grads, factor, is_finite))

    def check_optimizer(self, optimizer: Any, strategy: tf.distribute.Strategy) -> None:
        if not isinstance(optimizer, (str, keras.optimizers.Optimizer)):
            raise ValueError(
                "FineTuner takes one of tf_keras's current optimizers. "
                f"Received: optimizer={type(optimizer).__name__}. Pass keras.optimizers.AdamW(...), or another of "
                "keras.optimizers; none of its `legacy`, as transformers' AdamWeightDecay is one."
            )
        inner = getattr(optimizer, "inner_optimizer", None)
        if inner is not None and not optimizer.dynamic:
            instead = "Define it on the inner optimizer"
            refuse_own("optimizer", optimizer, ["apply_gradients"], instead, self.libraries)


class FineTuner(Tuner, keras.Model):
    """Wraps a model of tf_keras; see `tfbert.FineTuner`.

    `save("directory")` makes a SavedModel, which loads for prediction only. For a Hugging Face model,
    `model.model.save_pretrained` writes what its `from_pretrained` reads.
    """

    __module__ = "tfbert.finetuner"  # What a saved model names, wherever the class stands.
    _parts = TFKerasParts()

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The loss; each of its terms, if there are several outputs; the compiled metrics; those that layers keep."""
        terms = self._terms.metrics if getattr(self, "_terms", None) is not None else []
        compiled = self.compiled_metrics.metrics if getattr(self, "compiled_metrics", None) is not None else []
        return [*terms, *compiled, *metrics_within(self)]

    def _forwarded(self, inputs: Any, training: bool | None) -> Any:
        """As of `Tuner`; the `logits` of a Hugging Face output that has them."""
        forward = self._forward
        outputs = forward(self.model, inputs, training) if forward else self.model(inputs, training=training)
        outputs = getattr(outputs, "logits", outputs)
        return dict(outputs) if isinstance(outputs, dict) else outputs  # Perhaps of Hugging Face's own type.

    def create_variables(self) -> None:
        """As of `Tuner`; warns of layers whose biases get wrong gradients: in bfloat16 on a CPU, without XLA."""
        super().create_variables()
        if self._forward is not None or self._xla or tf.config.get_visible_devices("GPU"):
            return
        for layer in layers_of(self.model):
            if getattr(layer, "compute_dtype", None) == "bfloat16" and getattr(layer, "use_bias", False):
                warnings.warn(
                    "On a CPU, TensorFlow sums the gradient of a bias in bfloat16: the more rows, the more it is off. "
                    f"Received: layer {layer.name!r} with bfloat16 and use_bias=True. Train in float32, or with "
                    "FineTuner(jit_compile=True); for BERT, pass forward=tfbert.classifier.forward.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return

    def _prepare(self, inputs: Any) -> None:
        """As `Step._prepare`: in a graph of its own, so that nothing a model assigns is assigned for this."""
        with private.scratch_graph().as_default(), self._kept_once(self.gradient_accumulation_steps):
            like = tf.nest.map_structure(lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape), inputs)
            self(like, training=False)
        self.create_variables()

    def _separated(self, inputs: Any, labels: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        # Hugging Face's models may get their labels among the inputs, as their own `train_step` allows: under the names
        # of the model's arguments. They are taken out, and named as the outputs are where there are several.
        if labels is None and isinstance(inputs, Mapping) and hasattr(self.model, "get_label_to_output_name_mapping"):
            from transformers.utils import find_labels

            names = [name for name in find_labels(type(self.model)) if name in inputs]
            to_output = self.model.get_label_to_output_name_mapping()
            found = {to_output.get(name, name): inputs[name] for name in names}
            labels = next(iter(found.values())) if len(found) == 1 else found or None
            inputs = {name: value for name, value in inputs.items() if name not in names}
        return inputs, labels, sample_weight

    def _read(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        if name == "fit" and self.model.built:
            self.check_same_start()
        return given

    def _results(self) -> dict[str, tf.Tensor]:
        return self.get_metrics_result()

    def _update_metrics(self, labels: Any, predictions: Any, sample_weight: Any) -> None:
        private.build_metrics(self, labels, predictions)
        self.compiled_metrics.update_state(labels, predictions, sample_weight)

    def _metric_states(self, labels: Any, predictions: Any) -> list[tuple[str, list[tf.Variable]]]:
        private.build_metrics(self, labels, predictions)
        return [(metric.name, metric.variables) for metric in self.compiled_metrics.metrics]
