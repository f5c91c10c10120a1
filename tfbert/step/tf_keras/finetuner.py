"""FineTuner: any Keras classifier, trained by `model.fit` with a step that stays correct however a batch is split."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.private import let_go_of_traced_gradients, mask_of, with_mask
from tfbert.step.core import Step, check_numbers
from tfbert.step.tf_keras import refusals
from tfbert.step.tf_keras.calls import Calls
from tfbert.step.tf_keras.dropout import KeyedDropout
from tfbert.step.tf_keras.labels import unpack
from tfbert.step.tf_keras.layer_state import KerasLayerState
from tfbert.step.tf_keras.loss_terms import LossTerms, OwnLossTerms, output_names
from tfbert.step.tf_keras.one_process import OneProcess
from tfbert.step.tf_keras.optimizer import apply_if_finite, scaled, unscaled
from tfbert.step.tf_keras.private import build_metrics, metrics_within, scratch_graph
from tfbert.step.tf_keras.refusals import OVERRIDES


class FineTuner(Step, Calls, OneProcess):
    """Wraps a tf_keras model; train it with the usual `compile`, `fit`, `evaluate` and `predict`.

    A step is one optimizer update. `train_step` gets a replica's whole share of a global batch, splits it into
    micro-batches, sums their gradients in float32, sums those over all replicas, clips by global norm and applies. The
    loss is a sum of terms, one for each output that has a loss; each is divided by the number of its weights not 0 in
    the global batch: rows, or positions where `sample_weight` is `[rows, positions]`. The update is the same for any
    number of replicas, workers and micro-batches, also when shares are uneven or empty: rows of weight 0 fill them up,
    which only BatchNormalization notices, or a layer that adds a loss of its activations, as `activity_regularizer`
    does. What else looks across rows is refused where a batch is in several parts: at the first steps rows are computed
    once more beside others. A step whose gradients are not finite changes nothing but the step count, on all
    replicas, BatchNormalization's averages included. A model's own `compute_loss` with a value per row takes the place
    of the terms; other methods that plain Keras would call and this step does not are refused by name.

    `save("x.keras")` keeps all that is needed to continue training, `save_weights` the weights; `save("directory")`
    makes a SavedModel, which loads for prediction only. For a Hugging Face model, `model.model.save_pretrained` writes
    what its `from_pretrained` reads.

    Args:
        model: A tf_keras model, or a Hugging Face TF model: its `logits` are taken. Create it in the strategy's scope.
        gradient_accumulation_steps: Micro-batches per replica and step.
        max_grad_norm: Largest global norm of the gradient of the global batch; 0 for no clipping.
        jit_compile: Compile the forward and backward pass with XLA, under any strategy. Each new shape of a batch
            is compiled anew: pad to few lengths.
        seed: Decides the dropout noise, together with step, row of the global batch and layer.
        forward: `(model, inputs, training) -> output`, for inputs that the model does not take as they are; None calls
            the model. Its output has one row for each label. It and the loss are traced without AutoGraph, which takes
            seconds and which nothing in BERT needs.

    Attributes:
        model: The wrapped model.
        counters: What the run counts, see `StepCounters`.
        marks_steps: Set to True before training to have a step's parts marked in profiles (on CPUs).

    Raises:
        ValueError: for a Keras 3 object, a model with a step of its own or of another strategy's scope, or options that
            exclude each other.

    Examples:
        >>> with strategy.scope():
        ...     model = FineTuner(classifier, gradient_accumulation_steps=4, max_grad_norm=1.0)
        ...     model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        >>> model.fit(train_ds, epochs=3)
    """

    __module__ = "tfbert.finetuner"  # What a saved model names, wherever the class stands.

    def __init__(
        self,
        model: keras.Model,
        *,
        gradient_accumulation_steps: int = 1,
        max_grad_norm: float = 0.0,
        jit_compile: bool = False,
        seed: int = 0,
        forward: Callable[[keras.Model, Any, bool | None], Any] | None = None,
        name: str = "fine_tuner",
    ):
        refusals.check_model(model)
        check_numbers(gradient_accumulation_steps, max_grad_norm)
        OVERRIDES.check_model(model)
        OVERRIDES.check_tuner(self)
        super().__init__(name=name, dtype=model.dtype_policy)
        self._begin(
            model,
            KerasLayerState(model),
            gradient_accumulation_steps=gradient_accumulation_steps,
            max_grad_norm=max_grad_norm,
            jit_compile=jit_compile,
            seed=seed,
            autograph=forward is None,
        )
        self._forward = forward

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, with the wrapped model's own configuration.

        Raises:
            NotImplementedError: for a `forward` that cannot be found by its name.
        """
        importlib.import_module("tfbert.classifier").register(keras)
        refusals.check_saved_forward(self._forward)
        forward = {"forward": keras.saving.serialize_keras_object(self._forward)} if self._forward else {}
        return forward | {
            "model": keras.saving.serialize_keras_object(self.model),
            **self._arguments(),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> FineTuner:
        """The inverse of `get_config`."""
        model = keras.saving.deserialize_keras_object(config["model"], custom_objects=custom_objects)
        if hasattr(model, "build_in_name_scope"):  # Hugging Face's: its configuration holds no shapes to build from.
            model.build_in_name_scope()
        made = {"model": model}
        if "forward" in config:
            importlib.import_module("tfbert.classifier").register(keras)
            made["forward"] = keras.saving.deserialize_keras_object(config["forward"], custom_objects=custom_objects)
        return cls(**config | made)

    def get_build_config(self) -> None:
        """Nothing: the wrapped model says how it is built, and not every model can be built from a shape."""

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was, and creates the optimizer's variables; Keras then reads their values."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.model.built:
            self.optimizer.build(self.model.trainable_variables)

    def compile(self, optimizer="rmsprop", loss=None, metrics=None, jit_compile=None, **kwargs) -> None:
        """As `tf_keras.Model.compile`.

        Raises:
            ValueError: for a Keras 3 object, no loss, a loss that is no mean, losses that do not match the model's
                outputs, or `jit_compile` (an argument of the constructor).
        """
        given = {"optimizer": optimizer, "loss": loss, "metrics": metrics, "jit_compile": jit_compile}
        OVERRIDES.check_model(self.model)  # Again: a method may have been assigned since.
        has_own = OVERRIDES.is_own(self.model, "compute_loss")
        refusals.check_compile(given | kwargs, self.model, needs_loss=not has_own)
        names = output_names(self.model)
        if names and len(names) > 1:
            object.__setattr__(self, "output_names", names)  # Keras names metrics by them; not saved.
        with self.distribute_strategy.scope():
            # Keras must not track its means, like compiled metrics: they are not weights to save and load.
            self._terms = OwnLossTerms(self.model) if has_own else LossTerms(loss, kwargs.get("loss_weights"), names)
        self._has_metrics = any(m is not None for m in tf.nest.flatten([metrics, kwargs.get("weighted_metrics")]))
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)
        self._note_compiled(**given | kwargs | {"optimizer": self.optimizer})
        self._dropout = None  # The optimizer is new, and which variables are trainable may have changed.

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The loss; each of its terms, if there are several outputs; the compiled metrics; those that layers keep."""
        terms = self._terms.metrics if getattr(self, "_terms", None) is not None else []
        compiled = self.compiled_metrics.metrics if getattr(self, "compiled_metrics", None) is not None else []
        return [*terms, *compiled, *metrics_within(self)]

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The wrapped model's outputs, or the `logits` of a Hugging Face output that has them: float32."""
        forward = self._forward
        outputs = forward(self.model, inputs, training) if forward else self.model(inputs, training=training)
        outputs = getattr(outputs, "logits", outputs)
        if isinstance(outputs, dict):
            outputs = dict(outputs)  # Perhaps of Hugging Face's own type.

        def as_float32(output: tf.Tensor) -> tf.Tensor:
            return with_mask(tf.cast(output, tf.float32), mask_of(output)) if output.dtype.is_floating else output

        let_go_of_traced_gradients()
        return tf.nest.map_structure(as_float32, outputs)

    def make_train_function(self, force: bool = False):
        """As Keras does, but creates all variables before the step is traced: else TensorFlow traces it twice."""
        if self._dropout is None and self.model.built and self.model.variables:
            with self.distribute_strategy.scope():
                self.create_variables()
        return super().make_train_function(force)

    def create_variables(self) -> None:
        """Settles what is trained and creates the optimizer's variables. The model must be built. Call it in scope."""
        self._dropout = KeyedDropout(self.model)
        # Not tracked: Keras would save and load them as weights of this model's own.
        object.__setattr__(self, "_trained", self.model.trainable_variables)
        object.__setattr__(self, "_averages", self._layer_state.each_replicas_own())
        if not self._trained:
            raise ValueError("FineTuner trains the model's variables. Received: a model with none that are trainable.")
        refusals.check_layers(self.model)
        self._layer_state.check_carried(self.gradient_accumulation_steps)
        if self._forward is None and not self._xla:
            refusals.warn_of_bfloat16_biases(self.model)
        self._trace_anew()
        with tf.init_scope():
            self.optimizer.build(self._trained)

    def _prepare(self, inputs: Any) -> None:
        """As `Step._prepare`: in a graph of its own, so that nothing a model assigns is assigned for this."""
        with scratch_graph().as_default(), self._layer_state.kept_once(self.gradient_accumulation_steps):
            like = tf.nest.map_structure(lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape), inputs)
            self(like, training=False)
        self.create_variables()

    def _unpacked(self, data: Any) -> tuple[Any, Any, Any]:
        return unpack(data, self.model, needs_labels=not self._terms.takes_all, xla=self._xla)

    def _num_updates(self) -> tf.Variable:
        return self.optimizer.iterations

    def _scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return scaled(self.optimizer, loss)

    def _unscaled(self, grads: list[tf.Tensor]) -> list[tf.Tensor]:
        return unscaled(self.optimizer, grads)

    def _apply(self, grads: list[tf.Tensor], trained: list[Any], clip: tf.Tensor, is_finite: tf.Tensor) -> None:
        apply_if_finite(self.optimizer, grads, trained, clip, is_finite)

    def _values_of(self, variables: list[tf.Variable]) -> list[tf.Variable]:
        return variables

    def _results(self) -> dict[str, tf.Tensor]:
        return self.get_metrics_result()

    def _update_metrics(self, labels: Any, predictions: Any, sample_weight: Any) -> None:
        build_metrics(self, labels, predictions)
        self.compiled_metrics.update_state(labels, predictions, sample_weight)

    def _metric_states(self, labels: Any, predictions: Any) -> list[tuple[str, list[tf.Variable]]]:
        build_metrics(self, labels, predictions)
        return [(metric.name, metric.variables) for metric in self.compiled_metrics.metrics]

    def predict_step(self, data: Any) -> Any:
        """The outputs for a batch; what the model's own `predict_step` makes of it, where it has one."""
        if OVERRIDES.is_own(self.model, "predict_step"):
            return self.model.predict_step(data)
        return super().predict_step(data)
