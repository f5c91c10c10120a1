"""What `fit`, `evaluate` and `predict` are given, where Keras 3 would not read it as it must be read.

A KerasHub task's preprocessor is mapped over it, as the task's own `fit` does. With several workers, arrays become a
data set here: Keras draws their order on each worker by itself, so that rows would be seen twice, and others never.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfbert.private import device_iterators_without_autotune, with_mask, without_autotune
from tfbert.step.keras3 import private
from tfbert.step.refusals import OWN_LOSS
from tfbert.step.terms import NO_CLASS, loss_of_probabilities, takes_probabilities


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
            return loss in OWN_LOSS
        return getattr(loss, "__self__", None) is self and loss.__name__ in ("compute_loss", "hf_compute_loss")

    def check_loss(self, loss: Any) -> None:
        """Raises ValueError for a loss of probabilities, where the outputs are our own classes' logits.

        Keras would take them for probabilities, and train something else without a word.
        """
        if not self.LABELS or not type(self).call.__module__.startswith("tfbert."):
            return
        for each in keras.tree.flatten(loss):
            if not self.is_own_loss(each) and takes_probabilities(each, keras.losses.get):
                raise loss_of_probabilities(each, f"those of {type(self).__name__}", "Leave out the loss, or pass")

    def compiled_losses(self, loss_weights: Any = None) -> tuple[Any, Any]:
        """The model's own losses and their weights, where `compile` is given none, as it takes them."""
        losses = self.own_losses()
        if not losses:
            todo = "Put layers on top and pass their loss, or take the class of a task."
            raise ValueError(f"{type(self).__name__} has no loss of its own. Received: compile without a loss. {todo}")
        if len(losses) == 1:
            return next(iter(losses.values())), loss_weights
        return losses, dict.fromkeys(losses, self.LOSS_WEIGHT) if loss_weights is None else loss_weights

    def named_weights(self, loss_weights: Any) -> Any:
        """Weights of losses as `compile` takes them: that of one output in a list, where it need not be a float."""
        weights = self.named(loss_weights)
        is_one = len(self.LABELS) == 1 and weights is not None and not isinstance(weights, (Mapping, list, tuple))
        return [weights] if is_one else weights

    def named_metrics(self, metrics: Any) -> Any:
        """Metrics as `compile` takes them: of several outputs, a list of another length is one for each of these."""
        names = list(self.LABELS.values())
        if not isinstance(metrics, (list, tuple)) or len(names) < 2 or len(metrics) == len(names):
            return metrics if len(names) < 2 else self.named(metrics)

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
        _, labels = self.separated(None, labels)
        if isinstance(logits, (list, tuple)) and not hasattr(logits, "keys"):
            logits = dict(zip(self.LABELS.values(), logits, strict=True))
        logits, found = self.for_loss(logits), []
        for output, loss in self.own_losses().items():
            y, logit = (each[output] if isinstance(each, Mapping) else each for each in (labels, logits))
            y, logit = tf.cast(tf.convert_to_tensor(y), tf.float32), tf.cast(logit, tf.float32)
            values = loss.call(tf.nn.relu(y) if self.IGNORES else y, logit)
            if self.IGNORES:
                counts = tf.cast(y >= 0, tf.float32)
                values = tf.reshape(tf.math.divide_no_nan(tf.reduce_sum(values * counts), tf.reduce_sum(counts)), [1])
            found.append(values * self.LOSS_WEIGHT)
        return tf.add_n(found)

    def separated(self, inputs: Any, labels: Any) -> tuple[Any, Any]:
        """Inputs and labels, where these may be among those: a tensor, or of several outputs one for each by name."""
        if labels is None and isinstance(inputs, Mapping):
            labels = {name: inputs[name] for name in self.LABELS if name in inputs} or None
            inputs = {name: value for name, value in inputs.items() if name not in self.LABELS}
        return inputs, self.named(labels)

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
        given = self.named(sample_weight)
        if given is None or not (self.IGNORES or len(self.LABELS) > 1):
            return given
        if not isinstance(labels, Mapping):
            return _to_rank(given, labels)
        given = given if isinstance(given, Mapping) else dict.fromkeys(labels, given)
        return {name: _to_rank(given[name], y) for name, y in labels.items() if given.get(name) is not None}

    def weighted(self, labels: Any, sample_weight: Any) -> Any:
        """The weight of each label: 0 for those that do not count."""
        given = self.row_weights(labels, sample_weight)
        if not self.IGNORES or labels is None:
            return given

        counts = keras.tree.map_structure(lambda y: tf.cast(y >= 0, tf.float32), labels)
        if given is None:
            return counts
        if not isinstance(labels, Mapping):
            return counts * tf.cast(given, tf.float32)
        return counts | {name: counts[name] * tf.cast(each, tf.float32) for name, each in given.items()}

    def named(self, given: Any) -> Any:
        """What is in the order of labels, or by their names, by those of outputs; the one of one label. transformers'
        `hf_compute_loss` has `start_position`."""
        if isinstance(given, (list, tuple)) and len(given) == len(self.LABELS) > 0:
            given = dict(zip(self.LABELS, given, strict=True))
        if not isinstance(given, Mapping):
            return given
        given = {self.LABELS.get(name, self.LABELS.get(f"{name}s", name)): value for name, value in given.items()}
        return next(iter(given.values())) if len(given) == len(self.LABELS) == 1 else given


def _to_rank(weights: Any, labels: tf.Tensor) -> tf.Tensor:
    """Weights of rows with dimensions of 1 for what is within a row."""
    weights = tf.convert_to_tensor(weights)
    is_of_rows = weights.shape.rank == 1 < len(labels.shape)
    return tf.reshape(weights, [-1, *[1] * (len(labels.shape) - 1)]) if is_of_rows else weights


def as_array(value: list | tuple | str, name: str) -> np.ndarray:
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
    """What `fit` and its like are given, as Keras 3 takes it: a tokenizer's `BatchEncoding`, and lists of numbers. A
    list is one column, as of `tf.data.Dataset.from_tensor_slices`."""
    if isinstance(data, Mapping):
        return {name: plain(each) for name, each in data.items()}
    if isinstance(data, tuple):
        return tuple(map(plain, data))
    is_of_numbers = isinstance(data, list) and all(
        _is_number(each) and not getattr(each, "ndim", 0) for each in keras.tree.flatten(data)
    )
    return as_array(data, "data") if is_of_numbers else data


def as_taken(given: dict[str, Any], model: Labelled) -> dict[str, Any]:
    """Arguments of a method such as `fit`, and those of its validation, as Keras 3 takes them.

    Keras drops the weights of labels that are among the inputs, and asks for weights in the labels' own structure.
    """
    names, found = ("x", "y", "sample_weight"), dict(given)
    for name in [each for each in names if each in given]:
        values, count = given[name], len(model.LABELS)
        if name != "x" and isinstance(values, list) and len(values) == count > 1 and isinstance(values[0], list):
            values = tuple(values)  # One for each of several outputs.
        found[name] = plain(values)
    if found.get("sample_weight") is not None:
        found["x"], found["y"] = model.separated(found.get("x"), found.get("y"))
        found["sample_weight"] = model.named(found["sample_weight"])
    if isinstance(columns := given.get("validation_data"), tuple) and len(columns) <= len(names):
        found["validation_data"] = tuple(as_taken(dict(zip(names, columns, strict=False)), model).values())
    return found


def check_rows(given: dict[str, Any], model: keras.Model | None, loss: Any) -> None:
    """Raises ValueError for rows that cannot be what they are given as.

    Args:
        given: Arguments of a method such as `fit`, by name.
        model: The model that takes them; None where that is not known.
        loss: What `compile` was given.
    """
    tokenizes = getattr(getattr(model, "preprocessor", None), "tokenizer", None) is not None
    output, num_classes = private.outputs_of(model), None
    if hasattr(output, "shape"):
        num_classes = output.shape[-1]
    elif isinstance(model, Labelled):  # A user's `num_classes` means what it may.
        num_classes = getattr(model, "num_classes", None)
    # Whether the one loss takes the numbers of classes.
    kind, function = keras.losses.SparseCategoricalCrossentropy, keras.losses.sparse_categorical_crossentropy
    is_name = isinstance(loss, str) and loss in (kind.__name__, function.__name__)
    is_sparse = is_name or isinstance(loss, kind) or loss is function
    _check_class_weight(given, num_classes, is_sparse, "binary" in str(loss).lower() or loss in ("bce", "BCE"))
    rows, validation = [("x, y", given.get("x"), given.get("y"))], given.get("validation_data")
    if isinstance(validation, (tuple, list)) and len(validation) > 1:
        rows.append(("validation_data", *validation[:2]))
    for name, inputs, labels in rows:
        if tokenizes:
            _check_texts(name, inputs)
        elif isinstance(model, Labelled):
            _check_ids(name, inputs, model)
        if _is_column(inputs) and _is_column(labels) and len(inputs) != len(labels):
            received = f"{len(inputs):,} rows and {len(labels):,} labels in {name}"
            raise ValueError(f"Each row has its label. Received: {received}. Pass as many of one as of the other.")
        if is_sparse and _is_column(labels):
            ignores = isinstance(model, Labelled) and model.IGNORES
            _check_classes(name, labels, num_classes, getattr(loss, "ignore_class", None), ignores)


def _check_class_weight(given: dict[str, Any], num_classes: int | None, is_sparse: bool, is_binary: bool) -> None:
    weight, x, y = given.get("class_weight"), given.get("x"), given.get("y")
    if weight is None:
        return
    if isinstance(x, (tf.data.Dataset, keras.utils.PyDataset)):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(x.element_spec if isinstance(x, tf.data.Dataset) else x[0])
    labels = np.asarray(y) if _is_column(y) or hasattr(y, "columns") else np.empty(0)  # Of a tf.data.Dataset unknown.
    shape = list(getattr(y, "shape", None) or labels.shape)
    is_wide = len(shape) > 1 and shape[-1] != 1
    is_other = (abs(np.sum(labels, axis=-1) - 1) > 0.01).any() if is_wide and labels.size else is_binary
    has_several = is_wide and (is_sparse or is_other)
    if has_several or (y is None and isinstance(x, dict)):
        of_several = "of several" if is_sparse or labels.size else "that may be of several"
        received = f"labels {shape} {of_several}" if has_several else "no y"
        rule = "class_weight weighs rows by their labels y, each of which is one class"
        raise ValueError(f"{rule}. Received: {received}. Pass y, or sample_weight of the rows or of the labels' shape.")
    count = (shape[-1] if is_wide else num_classes) or 0
    if count < 2 or not (is_wide or is_sparse):  # A user's loss, as of ordered classes, may have fewer outputs.
        count = math.inf
    for key in weight if isinstance(weight, dict) else [weight]:
        is_whole = isinstance(key, numbers.Real) and key % 1 == 0
        if not is_whole or not (0 <= key < count or np.isin(key, labels)):  # Those of hinge losses are -1 and 1.
            most = f" to {count - 1}" if count < math.inf else ""
            rule = f"class_weight gives numbers of classes, from 0{most}, their weights"
            received = f"class_weight={weight!r:.80}, with {key!r:.40}"
            raise ValueError(f"{rule}. Received: {received}. Pass a dictionary, {{0: 1.0, 1: 2.0}}.")
    if num_classes:  # Keras finds no weight for the others in data sets.
        given["class_weight"] = dict.fromkeys(range(max(num_classes, 2)), 1.0) | weight


def _is_column(values: Any) -> bool:
    """A list, an array, a tensor or a column of a table. A list of such is several inputs or outputs."""
    if isinstance(values, list):
        return bool(values) and (isinstance(values[0], (str, bytes)) or not hasattr(values[0], "__len__"))
    return hasattr(values, "__array__") and len(np.shape(values)) > 0 and not hasattr(values, "columns")


def _is_number(value: Any) -> bool:
    """Whether a number, or an array of numbers, or a tensor, or a tensor's specification."""
    kind = getattr(value, "dtype", None)
    if kind is None:
        return isinstance(value, numbers.Number)
    return getattr(kind, "name", str(kind)).lower().startswith(("int", "uint", "float", "bool"))


def _check_texts(name: str, inputs: Any) -> None:
    if isinstance(inputs, tf.data.Dataset):
        inputs = keras.utils.unpack_x_y_sample_weight(inputs.element_spec)[0]
    values = keras.tree.flatten(inputs)
    if values and all(map(_is_number, values)):
        todo = "Pass texts; for ids of tokens set task.preprocessor = None before."
        raise ValueError(f"A task with a preprocessor takes texts. Received: numbers alone in {name}. {todo}")
    for column in inputs if isinstance(inputs, tuple) else (inputs,):
        if hasattr(column, "columns"):
            columns = ", ".join(map(str, column.columns))
            rule = "Texts are a column, pairs a tuple of two"
            received = f"a table with the columns {columns} in {name}"
            raise ValueError(f"{rule}. Received: {received}. Pass one of its columns.")


def _check_ids(name: str, inputs: Any, model: Any) -> None:
    for column in inputs.values() if isinstance(inputs, dict) else [inputs]:
        if isinstance(column, (str, bytes)) or (_is_column(column) and np.asarray(column).dtype.kind in "USO"):
            raise ValueError(
                f"The model takes ids of tokens. Received: texts, or other things that are no numbers, in {name}. "
                'Tokenize them first: dict(tokenizer(texts, padding=True, return_tensors="np")).'
            )
    ids = inputs.get("input_ids") if isinstance(inputs, dict) else inputs
    if not isinstance(ids, np.ndarray) or not ids.size:
        return
    size, most = model.config.vocab_size, model.config.num_positions
    if not 0 <= ids.min() <= ids.max() < size:
        rule = f"Ids of tokens are 0 to {size - 1}, the vocabulary of the model"
        received = f"{ids.min()} to {ids.max()} in {name}"
        raise ValueError(f"{rule}. Received: {received}. Tokenize with the model's own tokenizer.")
    if ids.ndim > 1 and ids.shape[-1] > most and not (isinstance(inputs, dict) and "position_ids" in inputs):
        rule = f"A row has at most {most:,} tokens, the positions of the model"
        received = f"{ids.shape[-1]:,} in {name}"
        raise ValueError(f"{rule}. Received: {received}. Cut them: tokenizer(..., truncation=True, max_length={most}).")


def _check_classes(name: str, labels: Any, num_classes: int | None, ignored: int | None, ignores: bool) -> None:
    values = np.asarray(labels).ravel()
    is_bad = np.array([not isinstance(value, numbers.Real) for value in values] if values.dtype.kind in "USO" else [])
    if not is_bad.any():
        classes = values.astype(np.float64)
        is_bad = ~(classes >= 0) | (classes != np.floor(classes)) | (classes >= (num_classes or math.inf))
        is_bad &= (classes != ignored) & ~(ignores & (classes < 0))
    if is_bad.any():
        known = f"0 to {num_classes - 1}" if num_classes is not None else "0 on"
        raise ValueError(NO_CLASS.format(classes=known, wrong=repr(values[np.argmax(is_bad)]), where=f" in {name}"))


_BATCH_SIZE = 32
"""Keras's."""
_AT_A_TIME = min(16, os.cpu_count() or 1)
"""Batches that are preprocessed at once, as many as TensorFlow begins with where it may choose."""
_AHEAD = 4
"""Batches that wait for the step."""


def preprocessing_of(model: keras.Model) -> Callable[..., Any] | None:
    """What a KerasHub task does to (inputs, labels, sample_weight); None for any other model, or no preprocessor."""
    is_task = any(each.__module__.split(".")[0] == "keras_hub" for each in type(model).__mro__)
    return model.preprocess_samples if is_task and getattr(model, "preprocessor", None) is not None else None


def as_read(name: str, given: dict[str, Any], model: keras.Model, *, seed: int, num_workers: int) -> dict[str, Any]:
    """Arguments of a method of `keras.Model` that is about to read its data.

    Args:
        name: The method's.
        given: Those of the call.
        model: The wrapped model.
        seed: Decides the order of rows that `fit` is given as arrays.
        num_workers: Processes that train together.
    """
    preprocess, arrays, names = preprocessing_of(model), (np.ndarray, tf.Tensor), ("x", "y", "sample_weight")
    are_arrays = all(isinstance(each, arrays) for each in keras.tree.flatten(given.get("x")))
    if preprocess is None and (name != "fit" or num_workers == 1 or not are_arrays):
        return given
    given = dict(given)
    columns = [given.pop(each, None) for each in names]
    if name.endswith("_on_batch"):
        made = zip(names, keras.utils.unpack_x_y_sample_weight(preprocess(*columns)), strict=True)
        return given | {n: keras.tree.map_structure(tf.convert_to_tensor, each) for n, each in made if each is not None}

    def batches(data: tf.data.Dataset, are_rows: bool, size: int | None, shuffle_seed: int | None = None) -> Any:
        if shuffle_seed is not None:
            data = data.shuffle(len(data), seed=shuffle_seed, reshuffle_each_iteration=True)
        if are_rows:
            options = tf.data.Options()
            options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
            data = data.batch(size or _BATCH_SIZE).with_options(options)
        if preprocess is not None:
            data = data.map(preprocess, num_parallel_calls=_AT_A_TIME)
        return without_autotune(data.prefetch(_AHEAD))

    device_iterators_without_autotune()
    size, share = given.pop("batch_size", None), given.pop("validation_split", 0.0)
    data, are_rows = _rows_of(columns, size)
    if given.get("validation_data") is not None:
        held_out, size_of_it = given["validation_data"], given.pop("validation_batch_size", None)
        columns = [held_out, None, None]
        if not isinstance(held_out, tf.data.Dataset):
            columns, size_of_it = keras.utils.unpack_x_y_sample_weight(held_out), size_of_it or size
        given["validation_data"] = batches(*_rows_of(columns, size_of_it), size_of_it)
    elif share:  # As Keras does: the last rows are held out.
        first = math.floor(len(data) * (1 - share)) if are_rows else 0
        if not (are_rows and 0 < first < len(data)):
            received = f"{share} of {len(data)} rows" if are_rows else f"{share} of a tf.data.Dataset"
            rule = "validation_split takes rows of arrays, and must leave some on either side"
            raise ValueError(f"{rule}. Received: validation_split={received}. Change it, or pass validation_data.")
        given["validation_data"] = batches(data.skip(first), True, size)
        data = data.take(first)
    if name != "fit":
        return given | {"x": batches(data, are_rows, size)}
    shuffle_seed = seed if given.pop("shuffle", True) and are_rows else None
    return given | {"x": batches(data, are_rows, size, shuffle_seed), "shuffle": False}


def _rows_of(columns: Any, batch_size: int | None) -> tuple[tf.data.Dataset, bool]:
    """Columns as a data set of rows, and True; a data set of batches as it is, and False."""
    x, y, sample_weight = columns
    if isinstance(x, tf.data.Dataset):
        others = {"y": y, "sample_weight": sample_weight, "batch_size": batch_size}
        if given := [name for name, each in others.items() if each is not None]:
            rule = "A data set has its labels, weights and batches"
            raise ValueError(f"{rule}. Received: x=a tf.data.Dataset and {', '.join(given)}. Leave them out.")
        return x, False
    try:
        return tf.data.Dataset.from_tensor_slices(keras.utils.pack_x_y_sample_weight(x, y, sample_weight)), True
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        rule = "A KerasHub task's preprocessor takes columns, with a text in each row and as many labels, or a data set"
        todo = "Drop rows without a text; make a tf.data.Dataset of what is no column; or set task.preprocessor = None."
        raise ValueError(f"{rule}. Received: {type(x).__name__}, {reason}. {todo}") from None
