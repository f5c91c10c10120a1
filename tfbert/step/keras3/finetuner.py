"""FineTuner over models of Keras 3: what of its step is Keras's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfbert.private import check_not_forked, let_go_of_traced_gradients, mask_of, with_mask
from tfbert.step import batch, gradients
from tfbert.step.core import Step, check_numbers
from tfbert.step.keras3 import data, private, refusals, workers
from tfbert.step.keras3.dropout import KeyedRandom
from tfbert.step.keras3.functions import over_replicas
from tfbert.step.keras3.labelled import Labelled, labelled, plain
from tfbert.step.keras3.layer_state import KerasLayerState
from tfbert.step.keras3.loss_terms import LossTerms, OwnLossTerms, output_names
from tfbert.step.keras3.optimizer import apply_if_finite, inner_of, unscaled
from tfbert.step.keras3.rows import check_rows
from tfbert.step.one_line import one_line


@keras.saving.register_keras_serializable("tfbert")
class FineTuner(Step, keras.Model):
    """Wraps a model of Keras 3; see `tfbert.FineTuner`."""

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
        refusals.OVERRIDES.check_tuner(self)
        super().__init__(name=name, dtype=model.dtype_policy)
        private.take_as_they_are(self)
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
        self.built = model.built

    @property
    def _labelled(self) -> Labelled:
        """What knows the labels: those of a model's own outputs are not those of `forward`'s."""
        return labelled(self.model) if self._forward is None else Labelled()

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, with the wrapped model's own configuration."""
        model, kind = keras.saving.serialize_keras_object(self.model), type(self.model)
        if kind.compile is not keras.Model.compile and kind.compile_from_config is keras.Model.compile_from_config:
            # Of such a model, as KerasHub's tasks are, Keras does not use it, and warns.
            model.pop("compile_config", None)
        forward = {"forward": keras.saving.serialize_keras_object(self._forward)} if self._forward else {}
        return forward | {
            "model": model,
            **self._arguments(),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> FineTuner:
        """The inverse of `get_config`."""
        parts = {name: config[name] for name in ("model", "forward") if name in config}
        made = {
            name: keras.saving.deserialize_keras_object(each, custom_objects=custom_objects)
            for name, each in parts.items()
        }
        return cls(**config | made)

    def get_build_config(self) -> None:
        """Nothing: the wrapped model says how it is built."""

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was, and creates the optimizer's variables; Keras then reads their values."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.model.built:
            self.optimizer.build(self.model.trainable_variables)

    def build(self, input_shape: Any = None) -> None:
        """Nothing: the wrapped model is built when it is called."""
        self.built = True

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        loss_weights=None,
        metrics=None,
        weighted_metrics=None,
        run_eagerly=False,
        steps_per_execution=1,
        jit_compile="auto",
        auto_scale_loss=True,
    ) -> None:
        """As `keras.Model.compile`.

        Raises:
            ValueError: for an object of tf_keras, no loss, a loss that is no mean, losses that do not match the model's
                outputs, an optimizer that accumulates gradients itself, or `jit_compile` (an argument of the
                constructor).
        """
        given = {"optimizer": optimizer, "loss": loss, "metrics": metrics, "weighted_metrics": weighted_metrics}
        refusals.check_overrides(self.model)  # Again: a method may have been assigned since.
        has_own = refusals.has_own_loss(self.model)
        labels = self._labelled
        if labels.is_own_loss(loss) and not has_own and labels.own_losses():
            loss, loss_weights = labels.compiled_losses()
            given["loss"] = loss
        metrics = labels.named_metrics(metrics)
        refusals.check_compile(given | {"jit_compile": jit_compile}, self.distribute_strategy, needs_loss=not has_own)
        names = output_names(self.model) if self._forward is None else None
        if names and len(names) > 1:
            object.__setattr__(self, "output_names", names)  # Keras names metrics by them; not saved.
        with self.distribute_strategy.scope():
            self._terms = OwnLossTerms(self.model) if has_own else LossTerms(loss, loss_weights, names)
            self._terms.usable = labels.usable
            super().compile(
                optimizer=optimizer,
                loss=loss,
                loss_weights=loss_weights,
                metrics=metrics,
                weighted_metrics=weighted_metrics,
                run_eagerly=run_eagerly,
                steps_per_execution=steps_per_execution,
                jit_compile=False,
                auto_scale_loss=auto_scale_loss,
            )
        others = {"loss_weights": loss_weights, "steps_per_execution": steps_per_execution, "run_eagerly": run_eagerly}
        self._note_compiled(**given | others | {"optimizer": self.optimizer, "auto_scale_loss": auto_scale_loss})
        private.unset_compiled_loss(self)
        self._has_metrics = private.compiled_metrics_of(self) is not None
        self._dropout = None  # The optimizer is new, and which variables are trainable may have changed.

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The loss; each of its terms, if there are several outputs; the compiled metrics; those that layers keep."""
        terms = self._terms.metrics if getattr(self, "_terms", None) is not None else []
        compiled = [private.compiled_metrics_of(self)] if getattr(self, "_has_metrics", False) else []
        return [*terms, *compiled, *(private.metrics_within(self.model) if terms else [])]

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The wrapped model's outputs: float32 where they are floating."""
        if self._forward is not None:
            outputs = self._forward(self.model, inputs, training)
        else:
            options = {"training": training} if private.takes_training(self.model) else {}
            outputs = self._labelled.for_loss(self.model(inputs, **options))

        def as_float32(output: tf.Tensor) -> tf.Tensor:
            if not keras.backend.is_float_dtype(output.dtype):
                return output
            return with_mask(tf.cast(output, tf.float32), mask_of(output))

        let_go_of_traced_gradients()
        return keras.tree.map_structure(as_float32, outputs)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Creates the variables of model and metrics before anything is traced; Keras calls it in `fit` and the like.

        Its own reads a batch, which it takes a mean of over replicas.
        """
        compiled = private.compiled_metrics_of(self)
        if all(layer.built for layer in private.layers_of(self.model)) and (compiled is None or compiled.built):
            self.built = True
            return
        spec = private.spec_of(iterator) if iterator is not None else data_batch
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(spec)
        inputs, labels = self._labelled.separated(inputs, labels)
        with self.distribute_strategy.scope():
            outputs = private.shapes_through(lambda x: self(x, training=False), inputs)
            self.built = True
            if compiled is not None and not compiled.built:
                private.shapes_through(self._update_metrics, labels, outputs, sample_weight)

    def make_train_function(self, force: bool = False) -> Any:
        """As Keras does, with all variables created before; raises a UsageError in a forked process."""
        check_not_forked()
        if self._dropout is None and self.model.built:
            with self.distribute_strategy.scope():
                self.create_variables()
        return super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> Any:
        """As `make_train_function`."""
        check_not_forked()
        return super().make_test_function(force)

    def make_predict_function(self, force: bool = False) -> Any:
        """As `make_train_function`."""
        check_not_forked()
        return super().make_predict_function(force)

    def _make_function(self, step_function: Any) -> Any:
        return over_replicas(
            self.distribute_strategy,
            step_function,
            self.get_metrics_result,
            num_steps=self.steps_per_execution,
            eagerly=self.run_eagerly,
        )

    def create_variables(self) -> None:
        """Settles what is trained and creates the optimizer's variables. The model must be built. Call it in scope."""
        num_replicas = self.distribute_strategy.num_replicas_in_sync
        self._dropout = KeyedRandom(self.model, self.gradient_accumulation_steps * num_replicas)
        # Not tracked: Keras would save and load them as weights of this model's own.
        object.__setattr__(self, "_trained", list(self.model.trainable_variables))
        object.__setattr__(self, "_averages", self._layer_state.averages())
        if not self._trained:
            raise ValueError("FineTuner trains the model's variables. Received: a model with none that are trainable.")
        refusals.check_layers(self.model)
        self._layer_state.check_carried(self.gradient_accumulation_steps)
        self._trace_anew()
        if not self.optimizer.built:
            self.optimizer.build(self._trained)

    def _unpacked(self, given: Any) -> tuple[Any, Any, Any]:
        batch.check_data(given, xla=self._xla)
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(given)
        inputs, labels = self._labelled.separated(inputs, labels)
        sample_weight = self._labelled.weighted(labels, sample_weight)
        if labels is None and not self._terms.takes_all:
            raise batch.no_labels(inputs)
        return inputs, labels, sample_weight

    def _prepare(self, inputs: Any) -> None:
        with tf.init_scope(), self.distribute_strategy.scope():
            self.create_variables()

    def _num_updates(self) -> tf.Tensor:
        return tf.cast(inner_of(self.optimizer).iterations.value, tf.int64)

    def _scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return self.optimizer.scale_loss(loss)

    def _unscaled(self, grads: list[tf.Tensor]) -> list[tf.Tensor]:
        return unscaled(self.optimizer, grads)

    def _apply(self, grads: list[tf.Tensor], trained: list[Any], clip: tf.Tensor, is_finite: tf.Tensor) -> None:
        apply_if_finite(self.optimizer, grads, trained, clip, is_finite)

    def _settle(self, averages: list[tuple[tf.Variable, tf.Tensor]], is_finite: tf.Tensor) -> None:
        # Each replica has its own, and Keras would show and save those of the first.
        now = gradients.all_reduce_sum([tf.convert_to_tensor(variable) for variable, _ in averages]) if averages else []
        count = tf.distribute.get_replica_context().num_replicas_in_sync
        for (variable, before), total in zip(averages, now, strict=True):
            variable.assign(tf.where(is_finite, total / count, before))

    def _values_of(self, variables: list[keras.Variable]) -> list[tf.Variable]:
        return [variable.value for variable in variables]

    def _update_metrics(self, labels: Any, predictions: Any, sample_weight: Any) -> None:
        if self._has_metrics:
            labels, predictions = self._labelled.counted(labels, predictions)
            private.compiled_metrics_of(self).update_state(labels, predictions, sample_weight)

    def _metric_states(self, labels: Any, predictions: Any) -> list[tuple[str, list[tf.Variable]]]:
        metrics = private.compiled_metrics_of(self).metrics
        return [(metric.name, self._values_of(metric.variables)) for metric in metrics]

    def _results(self) -> None:
        """Nothing: what has been measured is read over all replicas, outside of them."""

    def predict_step(self, given: Any) -> Any:
        """The outputs for a batch; what the model's own `predict_step` makes of it, where it has one."""
        if refusals.STEP_OVERRIDES.is_own(self.model, "predict_step"):  # Or a KerasHub task's, that decodes.
            return self.model.predict_step(given)
        return super().predict_step(given)

    def export(self, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.export`, of the wrapped model, which says what its inputs are."""
        self.model.export(*args, **kwargs)

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`."""
        given = self._given("fit", args, kwargs)
        with one_line():
            num_workers = workers.num_workers_of(self.distribute_strategy)
            given = data.for_fit(given, self.model, seed=self.seed, num_workers=num_workers)
            if num_workers > 1:
                strategy, check = self.distribute_strategy, self.check_same_start
                given["callbacks"] = workers.callbacks_of(given.get("callbacks"), strategy, check)
            return super().fit(**given)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.evaluate`."""
        given = self._given("evaluate", args, kwargs)
        with one_line():
            return super().evaluate(**data.for_reading(given, self.model))

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.predict`."""
        given = self._given("predict", args, kwargs)
        with one_line():
            return super().predict(**data.for_reading(given, self.model))

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.train_on_batch`: the rows of a batch are divided among the replicas."""
        given = self._given("train_on_batch", args, kwargs)
        with one_line():
            return super().train_on_batch(**data.for_batch(given, self.model))

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.test_on_batch`."""
        given = self._given("test_on_batch", args, kwargs)
        with one_line():
            return super().test_on_batch(**data.for_batch(given, self.model))

    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.predict_on_batch`."""
        given = self._given("predict_on_batch", args, kwargs)
        with one_line():
            return super().predict_on_batch(**data.for_batch(given, self.model))

    def _given(self, name: str, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        given = data.arguments_of(name, self, args, kwargs)
        refusals.check_call(self.model, name, given)
        if isinstance(self.model, Labelled):
            given |= {each: plain(given[each]) for each in ("x", "y", "validation_data") if each in given}
        check_rows(given, self.model, getattr(self, "loss", None))
        if not name.endswith("_on_batch"):
            with one_line():
                self._check_same_call(keras, name, given)
        return given
