"""Tokenizer, model and decoding in one module to save: what all tasks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from tfbert.batches.inputs import PaddedRows, TokenTensors, padded_inputs_in_graph
from tfbert.tasks.base import SAVED_MODEL_WAY_OUT, Task
from tfbert.tasks.items import TrainedModel

_ROWS_AT_ONCE = 32
"""Rows that the model computes at a time where one text may become many: memory does not grow with its length."""

BLANK = r"[\s\x0b\x1c-\x1f\x{85}\pZ]*"
"""Matches a text of which Python's `str.strip` leaves nothing."""
NOT_FINITE = f"Predictions must be finite. {SAVED_MODEL_WAY_OUT}."


class ServedModel(tf.Module):
    """A model that takes raw text.

    A batch may hold the rows of several clients, so a row that cannot be answered changes no other: `error`, string
    `[n]`, says why, and is empty for all others. Only inputs that do not fit each other, or no row, end in an error.

    Args:
        model: Text is cut or split, and given special tokens, as in this model's training.

    Attributes:
        num_texts: How many texts an input has; None if models of the task differ.
        text_ranks: The dimensions of the texts that have another number than one.
    """

    num_texts: ClassVar[int | None] = None
    text_ranks: ClassVar[Mapping[str, int]] = {}

    def __init__(self, model: TrainedModel):
        super().__init__()
        self._model = model
        # Only the variables: for a Keras model, tf.saved_model.save would also trace and store every layer.
        self._weights = [variable.value for variable in model.classifier.weights]

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        """The task's options that are part of the graph, as JSON can hold them."""
        return {}

    @property
    def text_inputs(self) -> tuple[str, ...]:
        """The names of the texts."""
        raise NotImplementedError

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answers to texts, string `[n]` each, or `[n, ...]` as `text_ranks` says, by name."""
        raise NotImplementedError

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answers to rows of token ids, by name, from the model's logits for them."""
        return {"logits": logits}

    def signature_functions(self) -> dict[str, Any]:
        """The signatures of the SavedModel.

        Returns:
            `serving_default`, also called `text`: takes the texts, string `[n]` each. `token_ids`: takes `input_ids`,
            `attention_mask` and, where the model reads it, `token_type_ids`, int32 `[n, length]`, with a length from 1
            to the model's positions. With a tokenizer that no graph holds, `serving_default` is `token_ids`, and there
            is no `text`. No rows give no rows. Inputs whose shapes do not fit end in an InvalidArgumentError that says
            the rule; a row of ids that do not exist has an `error`, and its logits are NaN.
        """
        ranks = {name: self.text_ranks.get(name, 1) for name in self.text_inputs}
        text = {name: tf.TensorSpec([None] * rank, tf.string, name=name) for name, rank in ranks.items()}
        names = self._model.classifier.config.encoder.inputs
        ids = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in names}
        # AutoGraph has nothing to convert, and takes seconds to find out.
        from_ids = tf.function(self._from_ids, autograph=False).get_concrete_function(**ids)
        if not self._model.tokenizer.in_graph:
            return {"serving_default": from_ids, "token_ids": from_ids}
        from_text = tf.function(self._from_text, autograph=False).get_concrete_function(**text)
        return {"serving_default": from_text, "text": from_text, "token_ids": from_ids}

    def _from_text(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        rule = f"Every row needs each of its texts: {' and '.join(self.text_inputs)} must be of one length. Received: "
        sizes = [tf.shape(texts[name])[:1] for name in self.text_inputs]
        fits = [_assert_all_equal(sizes, rule)] if len(texts) > 1 else []
        with tf.control_dependencies(fits):
            return self.answer(**{name: tf.identity(part) for name, part in texts.items()})

    def _from_ids(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        config, shape = self._model.classifier.config, tf.shape(inputs["input_ids"])
        count, width, positions = shape[0], shape[1], config.num_positions
        rule = f"{', '.join(inputs)} must be of one shape. Received: "
        fits = [_assert_all_equal([tf.shape(value) for value in inputs.values()], rule)]
        rule = f"Rows must have 1 to {positions} columns, as many as the model has positions. Received: "
        fits += [tf.debugging.Assert((count == 0) | ((width > 0) & (width <= positions)), [rule, shape])]
        with tf.control_dependencies(fits):
            error = tf.fill([count], "")
            sizes = {"token_type_ids": config.type_vocab_size, "input_ids": config.vocab_size}
            for name, size in ((name, size) for name, size in sizes.items() if name in inputs):
                # For an id outside the table a GPU gives zeros, without an error.
                outside = (inputs[name] < 0) | (inputs[name] >= size)
                rule = f"{name} must be from 0 to {size - 1}."
                error = tf.where(tf.reduce_any(outside, axis=1), rule, error)
                inputs[name] = tf.where(outside, 0, inputs[name])
            # BERT cannot compute a batch without rows: one row stands in, and is taken out again. A batch without rows
            # may have any number of columns, also none.
            stand_in = [[0, tf.maximum(1 - count, 0)], [0, tf.maximum(1 - width, 0)]]
            inputs = {name: tf.pad(value, stand_in)[:, :positions] for name, value in inputs.items()}
        return self.answer_rows(self._model.logits(inputs)[:count], error)

    def answer_rows(self, logits: tf.Tensor, error: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answers to rows, by name, and `error`; the logits of a row with an error are NaN.

        Args:
            logits: float32 `[n, ...]`.
            error: string `[n]`, empty but for rows that could not be computed.
        """
        of_row = list(range(1, logits.shape.rank))
        is_finite = tf.reduce_all(tf.math.is_finite(logits), axis=of_row)
        error = tf.where((error == "") & ~is_finite, NOT_FINITE, error)
        is_sound = tf.reshape(error == "", [-1, *[1] * len(of_row)])
        return self.answer_ids(tf.where(is_sound, logits, float("nan"))) | {"error": error}

    def token_logits(self, tokens: TokenTensors) -> tf.Tensor:
        """The logits of all tokens of some rows, as a `Predictor` gives them.

        Args:
            tokens: The rows, any number.

        Returns:
            float32 `[tokens, labels]`, in the order of `tokens.flat`.
        """
        return self._in_parts(tokens, lambda logits, padded: tf.boolean_mask(logits, padded.is_token))

    def row_logits(self, tokens: TokenTensors) -> tf.Tensor:
        """The logits of some rows, any number: float32 `[rows, labels]`."""
        return self._in_parts(tokens, lambda logits, padded: logits)

    def _in_parts(self, tokens: TokenTensors, keep: Callable[[tf.Tensor, PaddedRows], tf.Tensor]) -> tf.Tensor:
        """What `keep` keeps of the logits of some rows, concatenated; takes those of some rows at a time."""
        count, labels = tf.size(tokens.lengths), len(self._model.task.head().labels)

        def compute(number: tf.Tensor, found: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            first = number * _ROWS_AT_ONCE
            rows = tf.range(first, tf.minimum(first + _ROWS_AT_ONCE, count))
            padded = padded_inputs_in_graph(tokens, rows, tf.reduce_max(tf.gather(tokens.lengths, rows)))
            logits = self._model.logits(padded.inputs)
            return number + 1, found.write(number, keep(logits, padded))

        none = tf.TensorArray(tf.float32, size=0, dynamic_size=True, infer_shape=False, element_shape=[None, labels])
        _, found = tf.while_loop(
            lambda number, _: number * _ROWS_AT_ONCE < count,
            compute,
            (0, none),
            parallel_iterations=1,  # Else several are in memory at a time.
        )
        return found.concat()


def without_endless(
    error: tf.Tensor, logits: tf.Tensor, tokens: TokenTensors, text_of: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the texts with logits that are not finite, which would spoil sums over all texts.

    Args:
        error: string `[n]`, as in `ServedModel`.
        logits: float32 `[tokens, labels]`.
        tokens: The rows.
        text_of: int64 `[rows]`, the text that each row is of.

    Returns:
        `error` with those texts, and the logits with 0 for them.
    """
    text_of = tf.repeat(text_of, tokens.lengths)
    is_endless = tf.reduce_any(~tf.math.is_finite(logits), axis=1)
    is_endless = tf.math.unsorted_segment_max(tf.cast(is_endless, tf.int32), text_of, tf.size(error)) > 0
    logits = tf.where(tf.gather(is_endless, text_of)[:, tf.newaxis], 0.0, logits)
    return tf.where((error == "") & is_endless, NOT_FINITE, error), logits


def substrings(text: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Parts of texts, by characters as Python counts them.

    Args:
        text: string `[n]`; bytes that are not UTF-8 are counted and replaced as `bytes.decode(errors="replace")` does.
        rows: int64 `[m]`, the text of each part.
        starts: int32 `[m]`, its first character.
        ends: int32 `[m]`, the character after its last.

    Returns:
        string `[m]`.
    """
    codes = tf.strings.unicode_decode(text, "UTF-8")
    origin = tf.gather(codes.row_starts(), rows)
    places = tf.ragged.range(origin + tf.cast(starts, tf.int64), origin + tf.cast(ends, tf.int64))
    return tf.strings.unicode_encode(tf.gather(codes.values, places), "UTF-8")


def _assert_all_equal(shapes: Sequence[tf.Tensor], rule: str) -> tf.Operation:
    """Refuses inputs of different shapes, in the graph."""
    equal = tf.reduce_all([tf.reduce_all(shape == shapes[0]) for shape in shapes])
    return tf.debugging.Assert(equal, [rule, *shapes])
