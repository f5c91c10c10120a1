"""FineTuner over models of Keras 3: what of it is Keras's own. With several workers: which of them writes, and whether
they begin alike.

Steps are functions of an iterator: over all replicas and workers, with results that are read over all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfbert.devices.workers import is_chief, num_workers_of
from tfbert.private import layers_of, metrics_within
from tfbert.step import gradients
from tfbert.step.core import check_data, no_labels
from tfbert.step.keras3 import data, private
from tfbert.step.keras3.data import Labelled, as_taken, check_rows
from tfbert.step.keras3.parts import PARTS
from tfbert.step.refusals import has_own_loss
from tfbert.step.tuner import Tuner


def _shared(strategy: tf.distribute.Strategy, batch: Any, for_results: bool = False) -> Any:
    """A batch given at once, as the share of each replica: rows one after the other, perhaps none for the last.

    Of results Keras puts those of the first replica of each worker before those of the second ones: so are their rows.
    """
    batch = keras.tree.map_structure(lambda each: None if each is None else tf.convert_to_tensor(each), batch)
    count = strategy.num_replicas_in_sync
    if count == 1:
        return batch
    of_worker = len(strategy.extended.worker_devices)

    def share(context: tf.distribute.experimental.ValueContext) -> Any:
        number = context.replica_id_in_sync_group
        if for_results:
            number = number % of_worker * (count // of_worker) + number // of_worker

        def rows(tensor: tf.Tensor | None) -> tf.Tensor | None:
            if tensor is None:
                return None
            size = -(-tensor.shape[0] // count)
            return tensor[number * size :][:size]

        return keras.tree.map_structure(rows, batch)

    return strategy.experimental_distribute_values_from_function(share)


@keras.saving.register_keras_serializable("tfbert")
class FineTuner(Tuner, keras.Model):
    """Wraps a model of Keras 3; see `tfbert.FineTuner`."""

    _parts = PARTS

    @property
    def _labelled(self) -> Labelled:
        """What knows the labels: those of a model's own outputs are not those of `forward`'s."""
        is_known = self._forward is None and isinstance(self.model, Labelled)
        return self.model if is_known else Labelled()

    def build(self, input_shape: Any = None) -> None:
        """Nothing: the wrapped model is built when it is called."""
        self.built = True

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.compile`; see `Tuner.compile`."""
        given, labels = {"loss": None} | self._arguments_of("compile", args, kwargs), self._labelled
        labels.check_loss(given["loss"])
        if labels.is_own_loss(given["loss"]) and labels.own_losses() and not has_own_loss(self.model, PARTS):
            given["loss"], given["loss_weights"] = labels.compiled_losses(given.get("loss_weights"))
        given |= {"loss": labels.named(given["loss"]), "loss_weights": labels.named_weights(given.get("loss_weights"))}
        given |= {each: labels.named_metrics(given.get(each)) for each in ("metrics", "weighted_metrics")}
        super().compile(**given)
        self._terms.usable = self._labelled.usable
        private.unset_compiled_loss(self)
        self._has_metrics = private.compiled_metrics_of(self) is not None

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The loss; each of its terms, if there are several outputs; the compiled metrics; those that layers keep."""
        terms = self._terms.metrics if getattr(self, "_terms", None) is not None else []
        compiled = [private.compiled_metrics_of(self)] if getattr(self, "_has_metrics", False) else []
        return [*terms, *compiled, *(metrics_within(self.model) if terms else [])]

    def _forwarded(self, inputs: Any, training: bool | None) -> Any:
        if self._forward is not None:
            return self._forward(self.model, inputs, training)
        options = {"training": training} if private.takes_training(self.model) else {}
        return self._labelled.for_loss(self.model(inputs, **options))

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Creates the variables of model and metrics before anything is traced; Keras calls it in `fit` and the like.

        Its own reads a batch, which it takes a mean of over replicas.
        """
        compiled = private.compiled_metrics_of(self)
        if all(layer.built for layer in layers_of(self.model)) and (compiled is None or compiled.built):
            self.built = True
            return
        spec = private.spec_of(iterator) if iterator is not None else data_batch
        check_data(spec)
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(spec)
        inputs, labels = self._labelled.separated(inputs, labels)
        if labels is None and compiled is not None and not self._terms.takes_all:
            raise no_labels(inputs)
        with self.distribute_strategy.scope():
            outputs = private.shapes_through(lambda x: self(x, training=False), inputs)
            self.built = True
            if compiled is not None and not compiled.built:
                weights = private.shapes_through(self._labelled.weighted, labels, sample_weight)
                private.shapes_through(self._update_metrics, labels, outputs, weights)

    def _make_function(self, step_function: Callable[[Any], None]) -> Callable[[Any], dict[str, tf.Tensor]]:
        """What Keras calls for its next batch: a function of an iterator, that ends with OutOfRangeError or
        StopIteration where there is no batch left.

        Keras's own takes a mean over replicas of what each has measured, and fails with several workers.
        """
        strategy = self.distribute_strategy

        @tf.autograph.experimental.do_not_convert
        def of_batch(batch: Any) -> dict[str, tf.Tensor]:
            # None is an optional without a value where tf.data has written it.
            none = tf.experimental.Optional
            batch = keras.tree.map_structure(lambda each: None if isinstance(each, none) else each, batch)
            strategy.run(step_function, args=(batch,))
            return self.get_metrics_result()

        @tf.autograph.experimental.do_not_convert
        def of_next(iterator: Any) -> dict[str, tf.Tensor]:
            return of_batch(iterator.get_next())

        now, later = of_batch, of_next
        if not self.run_eagerly:
            now, later = (tf.function(each, reduce_retracing=True) for each in (of_batch, of_next))

        def function(iterator: Any) -> dict[str, tf.Tensor]:
            if isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
                return later(iterator)
            return now(_shared(strategy, next(iterator)))

        return function

    def _separated(self, inputs: Any, labels: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        inputs, labels = self._labelled.separated(inputs, labels)
        return inputs, labels, self._labelled.weighted(labels, sample_weight)

    def _prepare(self, inputs: Any) -> None:
        with tf.init_scope(), self.distribute_strategy.scope():
            self.create_variables()

    def _settle(self, averages: list[tuple[tf.Variable, tf.Tensor]], is_finite: tf.Tensor) -> None:
        # Each replica has its own, and Keras would show and save those of the first.
        now = gradients.all_reduce_sum([tf.convert_to_tensor(variable) for variable, _ in averages]) if averages else []
        count = tf.distribute.get_replica_context().num_replicas_in_sync
        for (variable, before), total in zip(averages, now, strict=True):
            variable.assign(tf.where(is_finite, total / count, before))

    def _update_metrics(self, labels: Any, predictions: Any, sample_weight: Any) -> None:
        if self._has_metrics:
            labels, predictions = self._labelled.counted(labels, predictions)
            private.compiled_metrics_of(self).update_state(labels, predictions, sample_weight)

    def _metric_states(self, labels: Any, predictions: Any) -> list[tuple[str, list[tf.Variable]]]:
        metrics = private.compiled_metrics_of(self).metrics
        return [(metric.name, self._values_of(metric.variables)) for metric in metrics]

    def _results(self) -> None:
        """Nothing: what has been measured is read over all replicas, outside of them."""

    def export(self, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.export`, of the wrapped model, which says what its inputs are."""
        self.model.export(*args, **kwargs)

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        if data.preprocessing_of(self.model) is None:
            given = as_taken(given, self._labelled)
        # Inputs and labels of a model behind `forward` are of that function.
        check_rows(given, self.model if self._forward is None else None, getattr(self, "loss", None))
        return given

    def _read(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        if name == "fit":  # Alone: a callback that evaluates leaves what was restored.
            private.forget_restored_epoch(self)
        strategy, callbacks = self.distribute_strategy, given.get("callbacks")
        num_workers = num_workers_of(strategy)
        given = data.as_read(name, given, self.model, seed=self.seed, num_workers=num_workers)
        if name == "predict_on_batch" and strategy.num_replicas_in_sync > 1:  # Else each predicts all rows.
            given |= {"x": _shared(strategy, given["x"], for_results=True)}
        if name != "fit" or num_workers == 1 or isinstance(callbacks, keras.callbacks.CallbackList):
            return given
        callbacks = [] if callbacks is None else keras.tree.flatten(callbacks)
        if not is_chief(strategy):  # Those that do not only write, and `BackupAndRestore` for reading.
            backup = keras.callbacks.BackupAndRestore
            callbacks = [each for each in callbacks if not isinstance(each, _OF_THE_CHIEF)]
            callbacks = [private.without_writing(copy.copy(e)) if isinstance(e, backup) else e for e in callbacks]
        # The last one compares the workers before the first step.
        last = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: self.check_same_start())
        return given | {"callbacks": [*callbacks, last]}


_OF_THE_CHIEF = (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.CSVLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.RemoteMonitor,
)
"""Callbacks that only write; their files would be the same on all workers."""
