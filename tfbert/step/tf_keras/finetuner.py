"""FineTuner over models of tf_keras: what of it is Keras's own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tfbert.private import layers_of, metrics_within
from tfbert.step.tf_keras.parts import PARTS
from tfbert.step.tf_keras.private import build_metrics, scratch_graph
from tfbert.step.tuner import Tuner


class FineTuner(Tuner, keras.Model):
    """Wraps a model of tf_keras; see `tfbert.FineTuner`.

    `save("directory")` makes a SavedModel, which loads for prediction only. For a Hugging Face model,
    `model.model.save_pretrained` writes what its `from_pretrained` reads.
    """

    __module__ = "tfbert.finetuner"  # What a saved model names, wherever the class stands.
    _parts = PARTS

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
        with scratch_graph().as_default(), self._layer_state.kept_once(self.gradient_accumulation_steps):
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
        build_metrics(self, labels, predictions)
        self.compiled_metrics.update_state(labels, predictions, sample_weight)

    def _metric_states(self, labels: Any, predictions: Any) -> list[tuple[str, list[tf.Variable]]]:
        build_metrics(self, labels, predictions)
        return [(metric.name, metric.variables) for metric in self.compiled_metrics.metrics]
