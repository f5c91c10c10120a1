"""Models that know their labels, as our BERT does: wherever a batch has them, which of them count, and what loss is
compared with them. Of any other model, labels are what Keras takes for them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfbert.private import with_mask

_OWN_LOSS = (None, "auto", "auto_with_warning", "passthrough")


class Labelled:
    """What FineTuner, and plain `fit` of our models, ask of a model about its labels."""

    LABELS: ClassVar[dict[str, str]] = {}
    """The names of labels among the inputs, and the output that each is for."""
    IGNORES: ClassVar[bool] = False
    """Whether labels below 0, as transformers' -100, do not count."""
    LOSS_WEIGHT: ClassVar[float] = 1.0
    """What the loss of each output is multiplied by."""

    def own_losses(self) -> dict[str, keras.losses.Loss]:
        """The loss of each output, where `compile` is given none."""
        loss = keras.losses.SparseCategoricalCrossentropy
        return {output: loss(from_logits=True, name=f"{output}_loss") for output in self.LABELS.values()}

    def is_own_loss(self, loss: Any) -> bool:
        """Whether `compile` is given what transformers took for the model's own loss."""
        if loss is None or isinstance(loss, str):
            return loss in _OWN_LOSS
        return getattr(loss, "__self__", None) is self and loss.__name__ in ("compute_loss", "hf_compute_loss")

    def check_loss(self, loss: Any) -> None:
        """Raises ValueError for a loss of probabilities, where the outputs are our own classes' logits.

        Keras would take them for probabilities, and train something else without a word.
        """
        if not self.LABELS or not type(self).call.__module__.startswith("tfbert."):
            return
        for each in keras.tree.flatten(loss):
            if not self.is_own_loss(each) and _takes_probabilities(each):
                raise ValueError(
                    "The outputs of a model are logits, not probabilities. "
                    f"Received: loss={getattr(each, '__name__', getattr(each, 'name', each))!r}, which takes "
                    "probabilities. Leave out the loss, or pass keras.losses.SparseCategoricalCrossentropy("
                    "from_logits=True), or another with from_logits=True."
                )

    def compiled_losses(self) -> tuple[Any, Any]:
        """The model's own losses and their weights, as `compile` takes them."""
        losses = self.own_losses()
        if not losses:
            raise ValueError(
                f"{type(self).__name__} has no loss of its own. Received: compile without a loss. "
                "Put layers on top and pass their loss, or take the class of a task."
            )
        if len(losses) == 1:
            return next(iter(losses.values())), None
        return losses, dict.fromkeys(losses, self.LOSS_WEIGHT)

    def named_metrics(self, metrics: Any) -> Any:
        """Metrics as `compile` takes them: of several outputs, a list of another length is one for each of these."""
        names = list(self.LABELS.values())
        if not isinstance(metrics, (list, tuple)) or len(names) < 2 or len(metrics) == len(names):
            return metrics

        def another(metric: Any) -> Any:
            return type(metric).from_config(metric.get_config()) if isinstance(metric, keras.metrics.Metric) else metric

        return {name: [another(metric) for metric in metrics] for name in names}

    def hf_compute_loss(self, labels: Any, logits: Any) -> tf.Tensor:
        """The model's own loss, as transformers 4 shapes it: a value per row, `[rows]`; or where some labels do not
        count (those below 0), the mean of the rest, `[1]`.

        Args:
            labels: A tensor; of several outputs, one for each, by name or in order.
            logits: The model's outputs, likewise.
        """
        found = []
        for output, loss in self.own_losses().items():
            y, logit = (self._of(output, each) for each in (labels, logits))
            y, logit = tf.cast(tf.convert_to_tensor(y), tf.float32), tf.cast(logit, tf.float32)
            values = loss.call(tf.nn.relu(y) if self.IGNORES else y, logit)
            if self.IGNORES:
                counts = tf.cast(y >= 0, tf.float32)
                values = tf.reshape(tf.math.divide_no_nan(tf.reduce_sum(values * counts), tf.reduce_sum(counts)), [1])
            found.append(values * self.LOSS_WEIGHT)
        return tf.add_n(found)

    def _of(self, output: str, given: Any) -> Any:
        """An output's part of labels or logits."""
        if isinstance(given, Mapping):
            names = [output, *(name for name, other in self.LABELS.items() if other == output)]
            names += [name.replace("_positions", "_position") for name in names]  # As transformers' hf_compute_loss.
            (name, *_) = [name for name in names if name in given]
            return given[name]
        if isinstance(given, (list, tuple)):
            return given[list(self.LABELS.values()).index(output)]
        return given

    def separated(self, inputs: Any, labels: Any) -> tuple[Any, Any]:
        """Inputs and labels, where these may be among those: a tensor, or of several outputs one for each by name."""
        if labels is None and isinstance(inputs, Mapping):
            labels = {name: inputs[name] for name in self.LABELS if name in inputs} or None
            inputs = {name: value for name, value in inputs.items() if name not in self.LABELS}
        labels = self._named(labels)
        if isinstance(labels, (list, tuple)) and len(labels) == len(self.LABELS):
            labels = dict(zip(self.LABELS.values(), labels, strict=True))
        if isinstance(labels, Mapping) and len(labels) == len(self.LABELS) == 1:
            (labels,) = labels.values()
        return inputs, labels

    def for_loss(self, outputs: Any) -> Any:
        """What losses and metrics compare with labels: the one tensor, or several by name."""
        if not isinstance(outputs, Mapping) and not hasattr(outputs, "keys"):
            return outputs
        found = {name: outputs[name] for name in self.LABELS.values() if name in outputs}
        return next(iter(found.values())) if len(found) == 1 else found or outputs

    def counted(self, labels: Any, outputs: Any) -> tuple[Any, Any]:
        """Labels and outputs, where those below 0 do not count in Keras's losses and metrics."""
        if not self.IGNORES or labels is None:
            return labels, outputs

        def masked(y: Any, logits: tf.Tensor) -> tf.Tensor:
            return with_mask(tf.identity(logits), tf.convert_to_tensor(y) >= 0)

        if isinstance(outputs, Mapping) and isinstance(labels, Mapping):
            outputs = {name: masked(labels[name], each) if name in labels else each for name, each in outputs.items()}
        elif not isinstance(outputs, Mapping):
            outputs = masked(labels, outputs)
        return self.usable(labels), outputs

    def usable(self, labels: Any) -> Any:
        """Labels with 0 in the place of those that do not count."""
        return keras.tree.map_structure(tf.nn.relu, labels) if self.IGNORES else labels

    def row_weights(self, labels: Any, sample_weight: Any) -> Any:
        """Weights by the names of several outputs, and of the labels' rank where some do not count."""
        if sample_weight is None or not (self.IGNORES or len(self.LABELS) > 1):
            return sample_weight
        if not isinstance(labels, Mapping):
            return _to_rank(sample_weight, labels)
        given = self._named(sample_weight)
        given = given if isinstance(given, Mapping) else dict.fromkeys(labels, given)
        return {name: _to_rank(given[name], y) for name, y in labels.items() if given.get(name) is not None}

    def weighted(self, labels: Any, sample_weight: Any) -> Any:
        """The weight of each label: 0 for those that do not count."""
        given = self.row_weights(labels, sample_weight)
        if not self.IGNORES or labels is None:
            return given

        def weights(y: tf.Tensor, given: tf.Tensor | None) -> tf.Tensor:
            counts = tf.cast(y >= 0, tf.float32)
            return counts if given is None else counts * tf.cast(given, tf.float32)

        if not isinstance(labels, Mapping):
            return weights(labels, given)
        return {name: weights(y, (given or {}).get(name)) for name, y in labels.items()}

    def _named(self, given: Any) -> Any:
        """What is by the names of labels, by those of outputs."""
        if not isinstance(given, Mapping):
            return given
        return {self.LABELS.get(name, name): value for name, value in given.items()}


def labelled(model: keras.Model) -> Labelled:
    """What knows the labels of a model: itself, or nothing in particular."""
    return model if isinstance(model, Labelled) else Labelled()


def _takes_probabilities(loss: Any) -> bool:
    """Whether one of Keras's losses can take logits, and does not."""
    if isinstance(loss, keras.losses.Loss):
        return loss.get_config().get("from_logits") is False
    if isinstance(loss, str):
        try:
            loss = keras.losses.get(loss)
        except ValueError:  # Keras says so.
            return False
    is_kerass = getattr(loss, "__module__", "").startswith("keras.")
    return is_kerass and "from_logits" in inspect.signature(loss).parameters


def _to_rank(weights: Any, labels: tf.Tensor) -> tf.Tensor:
    """Weights of rows with dimensions of 1 for what is within a row."""
    weights = tf.convert_to_tensor(weights)
    is_of_rows = weights.shape.rank == 1 < len(labels.shape)
    return tf.reshape(weights, [-1, *[1] * (len(labels.shape) - 1)]) if is_of_rows else weights


def as_array(value: list | tuple, name: str) -> np.ndarray:
    """A list of numbers as an array.

    Raises:
        ValueError: for rows of several lengths, or anything but numbers.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty([0], object)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"The rows of a batch have one length. Received: {name} as a list with rows of several, or of no numbers. "
            'Tokenize and pad texts: tokenizer(..., padding=True, return_tensors="np").'
        )
    return array


def plain(data: Any) -> Any:
    """What `fit` and its like are given, as Keras 3 takes it: a tokenizer's `BatchEncoding`, and lists of numbers."""
    if isinstance(data, Mapping):
        return {name: plain(value) for name, value in data.items()}
    if isinstance(data, tuple):
        return tuple(plain(each) for each in data)
    if isinstance(data, list) and not any(hasattr(each, "shape") for each in keras.tree.flatten(data)):
        return as_array(data, "data")
    return data
