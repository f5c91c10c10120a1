"""`compile`, `fit`, `evaluate` and `predict` of plain Keras 3, of a model that knows its labels."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfbert.bert.calls import Called
from tfbert.errors import UsageError
from tfbert.step.keras3.labelled import Labelled, plain
from tfbert.step.keras3.parts import PARTS
from tfbert.step.keras3.rows import check_rows
from tfbert.step.refusals import check_keras


class Trained(Called, Labelled):
    """What `compile` and `fit` of a model do, besides Keras's."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> tf.Tensor:
        """Keras's; with two arguments transformers', `compute_loss(labels, logits)`."""
        if y_pred is None:
            return self.hf_compute_loss(x, y)
        _, y = self.separated(x, y)
        if y is None:
            raise UsageError(
                f"A loss needs labels. Received: inputs without {' and '.join(self.LABELS) or 'labels'}. "
                "Pass y, pairs of inputs and labels, or labels among the inputs."
            )
        sample_weight = self.row_weights(y, sample_weight)
        y, outputs = self.counted(y, self.for_loss(y_pred))
        return super().compute_loss(x, y, outputs, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None) -> dict[str, Any]:
        """Keras's, of the logits."""
        _, y = self.separated(x, y)
        sample_weight = self.row_weights(y, sample_weight)
        y, outputs = self.counted(y, self.for_loss(y_pred))
        return super().compute_metrics(x, y, outputs, sample_weight)

    def get_metrics_result(self) -> dict[str, Any]:
        """Keras's, without a loss that nothing measured: it would be shown as 0 in place of an own `train_step`'s."""
        results = super().get_metrics_result()
        if tf.executing_eagerly():
            for metric in self.metrics:
                if metric.name == "loss" and not keras.ops.convert_to_numpy(metric.count):  # A sum over replicas.
                    del results["loss"]
        return results

    def compile(self, optimizer="rmsprop", loss=None, loss_weights=None, metrics=None, **options: Any) -> None:
        """As `keras.Model.compile`; without a loss, the model's own. XLA only where asked for: lengths differ.

        Raises:
            ValueError: for objects of tf_keras, those of transformers among them.
        """
        for argument, value in {"optimizer": optimizer, "loss": loss, "metrics": metrics}.items():
            for each in keras.tree.flatten(value):
                check_keras(argument, each, PARTS)
        self.check_loss(loss)
        if self.is_own_loss(loss):
            loss, loss_weights = self.compiled_losses()
        metrics = self.named_metrics(metrics)
        options["jit_compile"] = options.get("jit_compile") is True
        super().compile(optimizer=optimizer, loss=loss, loss_weights=loss_weights, metrics=metrics, **options)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was, and creates the optimizer's variables; Keras then reads their values."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def fit(self, x=None, y=None, *args: Any, **options: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`, of a tokenizer's `BatchEncoding` too."""
        x, y = plain(x), plain(y)
        if "validation_data" in options:
            options["validation_data"] = plain(options["validation_data"])
        check_rows({"x": x, "y": y, "validation_data": options.get("validation_data")}, self, self.loss)
        return super().fit(x, y, *args, **options)

    def evaluate(self, x=None, y=None, *args: Any, **options: Any) -> Any:
        """As `keras.Model.evaluate`, of a tokenizer's `BatchEncoding` too."""
        x, y = plain(x), plain(y)
        check_rows({"x": x, "y": y}, self, self.loss)
        return super().evaluate(x, y, *args, **options)

    def predict(self, x, *args: Any, **options: Any) -> Any:
        """As `keras.Model.predict`, of a tokenizer's `BatchEncoding` too; outputs with names."""
        x = plain(x)
        check_rows({"x": x}, self, self.loss)
        return super().predict(x, *args, **options)
