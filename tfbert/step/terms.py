"""A loss of named terms, one for each output that has a loss, each divided by its own count over the global batch.

A term is the sum of weight x value over the global batch, divided by the number of its weights other than 0: those of
rows, or of the positions of rows where each has a weight. A negative weight counts, as in Keras. The step's loss is the
sum of the terms. Counts come from the weights alone, so they are known before the forward pass.

What is refused while a step is traced or runs, and a worker that is lost, end in one line.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

from tfbert.devices.workers import peer_failures_as_run_errors
from tfbert.errors import replaced
from tfbert.private import made_by, mask_of
from tfbert.step.refusals import KerasParts, is_own


class Terms:
    """The losses that `compile` was given, and their means that `fit` and `evaluate` report.

    Vectors below are float32 `[terms + 1]`: an entry for each term, in the order of `losses`, and one for what the
    model itself adds to its loss (regularisation), which counts as a share of each row. Create it in the strategy's
    scope.

    Args:
        parts: The Keras of losses and metrics.
        loss: A loss; or one for each output, as a list or by name. None for an output without a loss.
        loss_weights: What to multiply terms by, given as the losses are, numbers or variables; None for 1.
        output_names: Names of the model's outputs, in order; None takes the names of the losses.
        own: A model whose `compute_loss(x, y, y_pred, sample_weight)` is the loss: its mean over all rows of the global
            batch. As in plain Keras, weights and what layers add to the loss (`self.losses`) are its own business.

    Attributes:
        losses: By the names of their outputs.
        of_probabilities: Those of them that take outputs for probabilities.
        takes_all: Whether the loss is computed from all of a batch, inputs included, and needs no labels.
        described: The losses as an error names them.
        usable: Makes of labels what a loss can read.

    Raises:
        ValueError: for names that do not fit, or a wrong number of them.
    """

    def __init__(
        self,
        parts: KerasParts,
        loss: Any,
        loss_weights: Any = None,
        output_names: list[str] | None = None,
        own: Any = None,
    ):
        self._parts, self._own, self.takes_all = parts, own, own is not None
        loss = loss if own is None else own.compute_loss
        count = len(loss) if isinstance(loss, (list, tuple)) else 1
        # Keras's names for outputs without one.
        names = sorted(loss) if isinstance(loss, Mapping) else [f"output_{i + 1}" for i in range(count)]
        self._names = output_names or names
        given = self._by_name(loss, "loss")
        self.losses: dict[str, Any] = {n: parts.loss_of(each) for n, each in given.items() if each is not None}
        names = [_name_of(each) for each in self.losses.values()]
        self.described = ", ".join(names) if own is None else f"compute_loss of {type(own).__name__}"
        self.usable = lambda labels: labels
        of_keras, sparse = parts.keras.losses.get, parts.keras.losses.SparseCategoricalCrossentropy
        self.of_probabilities = {n: v for n, v in self.losses.items() if takes_probabilities(v, of_keras)}
        theirs = {
            n: v for n, v in self.losses.items() if isinstance(v, sparse) and not is_own(v, "call", parts.libraries)
        }
        ignored = {name: each.get_config().get("ignore_class") for name, each in theirs.items()}
        self._ignored = {name: each for name, each in ignored.items() if each is not None}
        weights = self._by_name(loss_weights, "loss_weights")
        factors = [1.0 if weights[n] is None else weights[n] for n in self.losses] + [1.0]
        self._coefficients = [each if hasattr(each, "assign") else float(each) for each in factors]
        self._total = parts.Total([*(f"{name}_loss" for name in self.losses), "added_loss"], self._coefficients)

    @property
    def metrics(self) -> list[Any]:
        """The loss; then, for a model with several outputs, each term."""
        return [self._total, *(self._total.means.parts[:-1] if len(self._names) > 1 else [])]

    def of_outputs(self, outputs: Any, what: str) -> dict[str, tf.Tensor]:
        """The labels or predictions of each term.

        Args:
            outputs: A tensor, a list with one for each output, or a dictionary.
            what: What they are called in an error.
        """
        flat = tf.nest.flatten(outputs)
        if len(self._names) == len(flat) == 1:
            return dict.fromkeys(self.losses, flat[0])
        found = self._by_name(outputs, what, others=True) if tf.nest.is_nested(outputs) else {}
        if any(found.get(name) is None or tf.nest.is_nested(found[name]) for name in self.losses):
            received = f"{what} for {_described(outputs)}, and losses for {', '.join(self.losses)}"
            todo = "Name both alike, or pass lists in the order of the outputs, none within another."
            raise ValueError(f"Each loss needs an output and labels of its own. Received: {received}. {todo}")
        return {name: found[name] for name in self.losses}

    def rows(self, labels: Any, sample_weight: Any) -> dict[str, Any]:
        """What `sums` needs of each row besides its inputs and weights: the labels of each term."""
        if self.takes_all:
            given = {"labels": labels, "sample_weight": sample_weight}
            return {name: value for name, value in given.items() if value is not None}
        return self.of_outputs(self.usable(labels), "labels")

    def weights(self, sample_weight: Any, num_rows: tf.Tensor, labels: Any) -> dict[str, tf.Tensor]:
        """Each term's weights, float32 `[rows]`, or `[rows, ...]` for weights within a row; 1 where none are given, and
        0 for the class that a loss ignores."""
        given = self._by_name(None if self.takes_all else sample_weight, "sample_weight")
        weights = {name: _row_weights(given[name], num_rows) for name in self.losses}
        found = self.rows(labels, sample_weight) if self._ignored else {}
        for name, ignored in self._ignored.items():
            counts = _row_weights(tf.cast(found[name], tf.float32) != ignored, num_rows)
            within = [1] * (counts.shape.rank - weights[name].shape.rank)
            weights[name] = tf.reshape(weights[name], tf.concat([tf.shape(weights[name]), within], 0)) * counts
        return weights

    def masked(self, weights: dict[str, tf.Tensor], predictions: Any) -> dict[str, tf.Tensor]:
        """The weights, 0 where Keras's mask of the predictions says that there is padding: one for each position."""
        if self.takes_all:
            return weights
        outputs = self.of_outputs(predictions, "outputs")
        return {name: _masked(w, outputs[name]) for name, w in weights.items()}

    def counts(self, weights: dict[str, tf.Tensor]) -> tf.Tensor:
        """How many weights other than 0 each term has, and how many rows have at least one."""
        counted = [tf.reduce_sum(tf.cast(w != 0, tf.float32)) for w in weights.values()]
        rows = tf.stack([tf.reduce_any(w != 0, axis=list(range(1, w.shape.rank))) for w in weights.values()])
        return tf.stack([*counted, tf.reduce_sum(tf.cast(tf.reduce_any(rows, axis=0), tf.float32))])

    def sums(
        self,
        rows: dict[str, Any],
        predictions: Any,
        weights: dict[str, tf.Tensor],
        added: list[tf.Tensor],
        inputs: Any,
        training: bool = True,
    ) -> tf.Tensor:
        """Each term's sum of weight x value.

        Args:
            rows: As `rows` gives them.
            predictions: The model's outputs.
            weights: As `weights` gives them.
            added: What the model adds to its loss: Keras's `losses`.
            inputs: The model's, which no compiled loss reads.
            training: Whether in a step; a model's own `compute_loss` may ask for it.
        """
        sums = [tf.reduce_sum(each) for each in self.values(rows, predictions, weights, inputs, training)]
        if self.takes_all or not added:
            return tf.stack([*sums, 0.0])
        # Keras adds regularisation once per batch; as a share of each row it does not depend on the split.
        return tf.stack([*sums, tf.math.multiply_no_nan(tf.add_n(as_numbers(added)), self.counts(weights)[-1])])

    def values(
        self, rows: dict[str, Any], predictions: Any, weights: dict[str, tf.Tensor], inputs: Any, training: bool = True
    ) -> list[tf.Tensor]:
        """Each term's weight x value, float32 `[rows, ...]` as its weights; arguments as those of `sums`."""
        if self.takes_all:
            given = inputs, rows.get("labels"), predictions, rows.get("sample_weight")
            asks = "training" in inspect.signature(self._own.compute_loss).parameters  # As Keras 3 tells.
            with _without(self._own, self._parts.compiled_loss):
                values = self._own.compute_loss(*given, **({"training": training} if asks else {}))
            return [_times_weights(values, *weights.values(), self.described, None)]
        outputs, found = self.of_outputs(predictions, "outputs"), []
        for name, loss in self.losses.items():
            mask = mask_of(outputs[name])
            pair = _of_one_rank(rows[name], outputs[name], self._parts.gives_axis(outputs[name]))
            values = self._parts.loss_values(loss, *pair)
            if name not in self._ignored and mask_of(values) is not None:
                raise ValueError(
                    "Which rows count is known from their weights, before the loss. "
                    f"Received: {_name_of(loss)}, which says by a mask of its values which of them count. Pass "
                    "sample_weight, 0 where there is padding; a loss that compares rows with each other, as Circle "
                    "does, trains in plain Keras."
                )
            found.append(_times_weights(values, weights[name], _name_of(loss), mask))
        return found

    def by_row(self, rows: dict[str, Any], predictions: Any, weights: dict[str, tf.Tensor], inputs: Any) -> tf.Tensor:
        """What each row adds to each term, float32 `[terms, rows]`; arguments as those of `sums`."""
        found = self.values(rows, predictions, weights, inputs)
        return tf.stack([tf.reduce_sum(each, axis=list(range(1, each.shape.rank))) for each in found])

    def total(self, terms: tf.Tensor) -> tf.Tensor:
        """The loss `[]` of its terms."""
        return tf.reduce_sum(terms * tf.stack([tf.cast(each, tf.float32) for each in self._coefficients]))

    def update_metrics(self, sums: tf.Tensor, counts: tf.Tensor) -> None:
        """Adds a replica's sums and counts to the means, which thereby cover all values seen."""
        means = tf.math.divide_no_nan(sums, counts)
        for index, metric in enumerate(self._total.means.parts):
            metric.update_state(means[index], sample_weight=counts[index])

    def _by_name(self, given: Any, what: str, *, others: bool = False) -> dict[str, Any]:
        """Each output's part of a list or dictionary, or None; a single value belongs to every output."""
        if isinstance(given, Mapping) and (others or set(given) <= set(self._names)):
            return {name: given.get(name) for name in self._names}
        if isinstance(given, (list, tuple)) and len(given) == len(self._names):
            return dict(zip(self._names, given, strict=True))
        if not isinstance(given, (Mapping, list, tuple)):
            return dict.fromkeys(self._names, given)
        rule = f"Names, or the length of a list, must be those of the outputs, {', '.join(self._names)}"
        received = f"{what} for {_described(given)}"
        raise ValueError(f"{rule}. Received: {received}. Pass one for each output, None for one that has none.")


def numbered(names: list[str]) -> list[str]:
    """Names, each another, as tf_keras has them: in Keras 3 outputs that one layer gives twice have one name."""
    found: list[str] = []
    for name in names:
        others = (f"{name}_{number}" for number in itertools.count(1))
        found.append(name if name not in found else next(each for each in others if each not in {*names, *found}))
    return found


def _described(given: Any) -> str:
    if isinstance(given, Mapping):
        return ", ".join(sorted(given))
    return f"{len(tf.nest.flatten(given))} outputs"


def as_numbers(added: list[tf.Tensor]) -> list[tf.Tensor]:
    """What layers add to a loss, float32 `[]` each: Keras takes the sum where it is several values."""
    return [tf.reduce_sum(tf.cast(each, tf.float32)) for each in added]


def _of_one_rank(labels: tf.Tensor, predictions: tf.Tensor, with_axis: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds or removes a last dimension of 1, as Keras does: a loss of `[rows]` and `[rows, 1]` would pair all with all.

    Rows of one number each end up as `[rows, 1]`, since Keras's losses take the mean over the last dimension.
    """
    one, other = labels.shape.rank, predictions.shape.rank
    if (one, other) == (1, 1) or ((one, other) == (1, 2) and with_axis):
        labels = tf.expand_dims(labels, -1)
    if (one, other) == (1, 1) or ((one, other) == (2, 1) and labels.shape[-1] == 1):
        predictions = tf.expand_dims(predictions, -1)
    if min(one, other) > 1 and one == other + 1 and labels.shape[-1] == 1:
        labels = tf.squeeze(labels, -1)
    if min(one, other) > 1 and other == one + 1 and predictions.shape[-1] == 1:
        predictions = tf.squeeze(predictions, -1)
    return labels, predictions


def _row_weights(sample_weight: tf.Tensor | None, num_rows: tf.Tensor) -> tf.Tensor:
    if sample_weight is None:
        return tf.ones([num_rows])
    weights = tf.cast(sample_weight, tf.float32)
    return tf.squeeze(weights, -1) if weights.shape.rank > 1 and weights.shape[-1] == 1 else weights


def _masked(weights: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    mask = mask_of(output)
    if mask is not None and (weights.shape.rank, mask.shape.rank, output.shape.rank) == (1, 2, 3):
        weights = weights[:, None]
    fits = mask is not None and weights.shape.rank == mask.shape.rank
    return tf.where(mask, weights, 0.0) if fits else weights


def _without(model: Any, name: str) -> contextlib.AbstractContextManager[None]:
    """While active, `super().compute_loss` and the compiled loss say what to write instead."""

    def refuse(*args: Any, **options: Any) -> None:
        raise ValueError(  # It is a mean already.
            "compute_loss must return one value per row, and the compiled loss is one number. "
            f"Received: compute_loss of {type(model).__name__}, which calls super().compute_loss or "
            "self.compiled_loss. Call a function such as keras.losses.sparse_categorical_crossentropy there: it has a "
            "value per row."
        )

    return replaced(vars(model), **{name: refuse})


class _Means:
    """Means, and what to multiply each by, that Keras does not track: they are not weights to save and load."""

    def __init__(self, parts: list[Any], factors: list[Any]):
        self.parts, self.factors = parts, factors


class Total:
    """The weighted sum of means; a metric of the Keras of which the class that derives from this one is.

    Args:
        names: Names of the means.
        coefficients: What to multiply each mean by.
        name: The metric's own name.
        dtype: As Keras passes it.
    """

    keras: ModuleType

    def __init__(self, names: list[str], coefficients: list[Any], name: str = "loss", dtype: Any = None):
        super().__init__(name=name, dtype=dtype)
        self.means = _Means([self.keras.metrics.Mean(name=each) for each in names], coefficients)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {"names": [part.name for part in self.means.parts], "coefficients": [*map(float, self.means.factors)]}
        return super().get_config() | own

    def update_state(self) -> None:
        """Nothing: the parts are updated."""

    def result(self) -> tf.Tensor:
        """float32 `[]`."""
        found = [(factor, part.result()) for factor, part in zip(self.means.factors, self.means.parts, strict=True)]
        return tf.add_n([tf.cast(factor, each.dtype) * each for factor, each in found])

    def reset_state(self) -> None:
        """Resets the parts too."""
        for part in self.means.parts:
            part.reset_state()


NO_CLASS = (
    "This loss takes the numbers of classes, from {classes}. Received: {wrong} among the labels{where}. "
    "Number them, or pass another loss."
)
_KERASES = ("keras", "tf_keras")
_LINES: set[str] = set()
_DIVIDED = ("categorical_crossentropy", "categorical_focal_crossentropy")
"""Keras's losses that divide the outputs of a row by their sum."""
_SPARSE = ("sparse_categorical_crossentropy", "categorical_generalized_cross_entropy")
"""Keras's losses that take the number of a class for each row of outputs."""


def refuse_unless_equal(value: tf.Tensor, expected: Any, line: str) -> tf.Operation:
    """Raises a ValueError of one line in `fit` where, while a step runs, a value is not as it must be."""
    _LINES.add(line)
    return tf.debugging.assert_equal(value, expected, message=line)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Raises what this package refuses as it was said; Keras and AutoGraph put the whole stack into its message.

    Raises:
        RunError: where another worker was lost.
    """
    try:
        with peer_failures_as_run_errors():
            yield
    except tf.errors.InvalidArgumentError as error:
        said = str(error).replace("\\'", "'")
        refused = next((line for line in _LINES if line in said), None)
        if wrong := re.search(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)", said):
            refused = NO_CLASS.format(classes=f"0 to {int(wrong[2]) - 1}", wrong=wrong[1], where="")
        if refused is None:
            raise
        raise ValueError(refused) from None
    except (ValueError, RuntimeError) as error:
        refused = None
        each: BaseException | None = error
        while each is not None:  # AutoGraph raises an error of its own about each one; the first is at the end.
            modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(each.__traceback__)]
            if type(each) is ValueError and modules and modules[-1].startswith("tfbert.step"):
                refused = each
            each = each.__cause__ or each.__context__
        if refused is None:
            raise
        raise ValueError(str(refused)) from None


def _of_keras(loss: Any) -> Any:
    """The function of one of Keras's own losses or metrics; None for a user's."""
    function = getattr(loss, "fn", loss)
    kinds = [each if hasattr(each, "__name__") else type(each) for each in (loss, function)]
    return function if all((each.__module__ or "").split(".")[0] in _KERASES for each in kinds) else None


def takes_probabilities(loss: Any, get: Callable[[str], Any]) -> bool:
    """Whether one of Keras's losses can take logits, and does not.

    Args:
        loss: The loss, or its name.
        get: Finds it by its name.
    """
    if isinstance(loss, str):
        try:
            loss = get(loss)
        except ValueError:  # Keras says so, or chooses by the shapes one of those that do.
            return loss in ("crossentropy", "ce")
    if hasattr(loss, "get_config"):
        is_theirs = getattr(type(loss), "call", loss).__module__.split(".")[0] in _KERASES
        return is_theirs and loss.get_config().get("from_logits") is False
    function = _of_keras(loss)
    return function is not None and "from_logits" in inspect.signature(function).parameters


def check_probabilities(terms: Terms, outputs: Any, parts: KerasParts) -> None:
    """Raises ValueError for losses of probabilities of symbolic outputs that are a layer's sums of inputs x weights."""
    found = terms.of_outputs(outputs, "outputs") if terms.of_probabilities else {}
    for name, loss in terms.of_probabilities.items():
        layer = _made_by(found[name], parts)
        is_linear = getattr(layer, "activation", None) is parts.keras.activations.linear and hasattr(layer, "kernel")
        if is_linear and not is_own(layer, "call", parts.libraries):
            received = f"those of layer {layer.name!r}, without an activation"
            raise loss_of_probabilities(loss, received, "Give it one, softmax or sigmoid, or pass")


def _made_by(output: Any, parts: KerasParts) -> Any:
    """The layer that gives a symbolic output, within models in models."""
    layer, index = made_by(output)
    is_known = isinstance(layer, parts.keras.Model) and not is_own(layer, "call", parts.libraries)
    inner = parts.outputs_of(layer) if is_known else None
    return layer if inner is None else _made_by(tf.nest.flatten(inner)[index], parts)


def most_of(loss: Any) -> float:
    """The largest output that one of Keras's losses of probabilities, or its name, takes as it is meant."""
    name = loss if isinstance(loss, str) else getattr(_of_keras(loss), "__name__", "")
    return math.inf if name in _DIVIDED else 1.0


def check_labels(loss: Any, labels: tf.Tensor, predictions: tf.Tensor) -> None:
    """Raises ValueError where one of Keras's own losses would compare each label with another's outputs, or fail; when
    the step runs, where it would cut the fraction of a class off."""
    name = getattr(_of_keras(loss), "__name__", None)
    if name is None or name in ("ctc", "circle") or None in (labels.shape.rank, predictions.shape.rank):
        return
    expected = predictions.shape[:-1] if name in _SPARSE else predictions.shape
    fits = labels.shape.is_compatible_with(expected)
    if name in _SPARSE:
        fits |= labels.shape.is_compatible_with([*expected, 1])
    if fits and not (predictions.shape[-1] == 1 and name in (*_SPARSE, "categorical_crossentropy")):
        if name in _SPARSE and labels.dtype.is_floating:
            line = NO_CLASS.format(classes="0 on", wrong="a number with a fraction, or none,", where="")
            with tf.device("CPU"):  # Where batches come from.
                refuse_unless_equal(labels, tf.floor(labels), line)
        return
    raise ValueError(
        "Labels have the shape of the outputs; as numbers of two or more classes, that without its last axis. "
        f"Received: labels {labels.shape.as_list()} and outputs {predictions.shape.as_list()} for {name}. "
        "SparseCategoricalCrossentropy takes numbers of classes, CategoricalCrossentropy one-hot labels, "
        "BinaryCrossentropy one output."
    )


def loss_of_probabilities(loss: Any, received: str, instead: str = "Pass") -> ValueError:
    """For a loss that would take outputs for probabilities, which they are not, and train something else.

    Args:
        loss: The loss.
        received: The outputs in words.
        instead: What to do, up to the loss to pass.
    """
    return ValueError(
        "The outputs of a model are logits, not probabilities, unless its last layer makes them such. "
        f"Received: {received}, and loss={getattr(loss, '__name__', getattr(loss, 'name', loss))!r}, which takes "
        f"probabilities. {instead} keras.losses.SparseCategoricalCrossentropy(from_logits=True), or another with "
        "from_logits=True."
    )


def _times_weights(values: tf.Tensor, weights: tf.Tensor, loss: str, mask: tf.Tensor | None) -> tf.Tensor:
    """Weight x value: float32, of the weights' shape. Several values for one weight count as their mean.

    Args:
        values: What the loss returned for a micro-batch; where they are `[1]` but the rows perhaps not one, that is
            checked when the step runs.
        weights: `[rows]`, or `[rows, positions]`.
        loss: Its name.
        mask: Keras's mask of the predictions; None for none.

    Raises:
        ValueError: for a loss from which no mean over the rows of the global batch can be computed.
    """
    rule = (
        f"A loss must return one value per row. Received: {loss}, which returns one number. "
        "Leave out its mean over the rows: tf.reduce_mean(..., axis=-1) keeps one value per row."
    )
    if values.shape.rank == 0 or (values.shape[0] == 1 and weights.shape[0] not in (None, 1)):
        raise ValueError(rule)  # The mean over the global batch must not depend on the split.
    fits = values.shape[0] == 1 or weights.shape.is_compatible_with(values.shape[: weights.shape.rank])
    if values.shape.rank < weights.shape.rank or not fits:
        raise ValueError(
            "Each weight must belong to a value of the loss. "
            f"Received: {'sample_weight' if mask is None else 'sample_weight, or a mask,'} {weights.shape.as_list()} "
            f"and a loss {values.shape.as_list()}, {loss}. "
            "Pass one weight per row, or a loss with a value per position."
        )
    if mask is not None and values.shape.rank > weights.shape.rank:
        # Keras takes the mean over the positions that a replica's rows leave unmasked: another mean for each split.
        rule = "A row's loss is the mean over its positions, and sample_weight must say which of them count"
        todo = "Pass sample_weight of shape [rows, positions], 0 where there is padding."
        raise ValueError(f"{rule}. Received: masked positions without a sample_weight for each. {todo}")
    values = tf.cast(values, tf.float32)
    if values.shape[0] == 1 != weights.shape[0]:
        with tf.control_dependencies([refuse_unless_equal(tf.shape(weights)[0], 1, rule)]):
            values = tf.identity(values)
    each = list(range(weights.shape.rank, values.shape.rank))
    weights = tf.reshape(weights, tf.concat([tf.shape(weights), [1] * len(each)], 0))
    # Selected, not only multiplied: an infinite loss in a row that only fills the batch must not make the sum NaN.
    return tf.reduce_mean(tf.where(weights != 0, values * weights, 0.0), axis=each)


def _name_of(loss: Any) -> str:
    """What a loss, or its name, is called in an error."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
