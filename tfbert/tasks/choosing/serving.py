"""Multiple choice as a SavedModel: contexts, questions and choices -> the best choice, with the probability of each."""

from __future__ import annotations

from typing import ClassVar

import tensorflow as tf

from tfbert.batches.inputs import TokenTensors
from tfbert.tasks.choosing.encoded import NO_ROOM
from tfbert.tasks.served_model import BLANK, NOT_FINITE, ServedModel

_MASKED = -10000.0
_SPECIAL = 3


class Chooser(ServedModel):
    """Takes `context` and `question`, string `[n]`, and `choices`, string `[n, most]`; gives the answers of
    `--mode=predict`. The last choices of a row may be empty: it has fewer. So may context or question, but not both.

    Returns `index`, int32 `[n]`, the best choice from 0; `choice`, string `[n]`; `score`, float32 `[n]`, its
    probability; `probabilities` and `logits`, float32 `[n, most]`, with 0 and -10000 for choices that a row does not
    have; `error`, see `ServedModel`. A row with an error has the index -1, an empty choice, and the score 0.

    For rows of token ids, one for each choice, returns `logits`, float32 `[n, 1]`, and `error`.
    """

    num_texts: ClassVar[int | None] = 2
    text_inputs = ("context", "question", "choices")
    text_ranks = {"choices": 2}

    def answer(self, context: tf.Tensor, question: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            most = tf.shape(choices)[1]
            # Two columns at least, so that there is a best one.
            choices = tf.pad(choices, [[0, 0], [0, tf.maximum(2 - most, 0)]], constant_values="")
            is_there = ~tf.strings.regex_full_match(choices, BLANK)
            tokens, error = self._sequences(context, question, choices, is_there)
            is_there &= (error == "")[:, tf.newaxis]
        found = self.row_logits(tokens)[:, 0]
        with tf.device("CPU:0"):
            places = tf.where(is_there)
            is_endless = tf.scatter_nd(places, tf.cast(~tf.math.is_finite(found), tf.int32), _shape(is_there))
            error = tf.where((error == "") & (tf.reduce_max(is_endless, axis=1) > 0), NOT_FINITE, error)
            is_answered = error == ""
            logits = tf.tensor_scatter_nd_update(tf.fill(_shape(is_there), _MASKED), places, found)
            logits = tf.where(is_answered[:, tf.newaxis], logits, float("nan"))
            shares = tf.where(is_there & is_answered[:, tf.newaxis], tf.nn.softmax(logits), 0.0)
            index = tf.argmax(shares, axis=1, output_type=tf.int32)
            return {
                "index": tf.where(is_answered, index, -1),
                "choice": tf.where(is_answered, tf.gather(choices, index, batch_dims=1), ""),
                "score": tf.reduce_max(shares, axis=1),
                "probabilities": shares[:, :most],
                "logits": logits[:, :most],
                "error": error,
            }

    def _sequences(
        self, context: tf.Tensor, question: tf.Tensor, choices: tf.Tensor, is_there: tf.Tensor
    ) -> tuple[TokenTensors, tf.Tensor]:
        """A sequence for each choice of the rows without an error, as `encode_choices` makes them; and the errors."""
        tokenizer, length = self._model.tokenizer, self._model.max_seq_length
        has_context = ~tf.strings.regex_full_match(context, BLANK)
        first = tokenizer.tokenize(tf.where(has_context, context, question))
        second = tokenizer.tokenize(tf.where(has_context, question, ""))
        own = tokenizer.tokenize(tf.boolean_mask(choices, is_there))
        row = tf.where(is_there)[:, 0]  # Of each choice.
        room = length - _SPECIAL - tf.gather(second.row_lengths(), row) - own.row_lengths()
        needed = tf.where(has_context, tf.minimum(first.row_lengths(), 1), first.row_lengths())
        is_long = tf.math.unsorted_segment_max(
            tf.cast(room < tf.gather(needed, row), tf.int32), row, tf.size(context, tf.int64)
        )
        counts = tf.reduce_sum(tf.cast(is_there, tf.int32), axis=1)
        last = tf.reduce_max(tf.where(is_there, tf.range(1, tf.shape(choices)[1] + 1), 0), axis=1)
        is_blank = ~has_context & tf.strings.regex_full_match(question, BLANK)
        error = tf.where(is_long > 0, f"{NO_ROOM}: only the context is cut.", "")
        error = tf.where(counts < last, "Only the last choices may be empty.", error)
        error = tf.where(counts < 2, "A question needs at least two choices.", error)
        error = tf.where(is_blank, "A question needs a context or a question.", error)

        is_used = tf.gather(error == "", row)
        row, own = tf.boolean_mask(row, is_used), tf.ragged.boolean_mask(own, is_used)
        second = tf.gather(second, row)
        room = length - _SPECIAL - second.row_lengths() - own.row_lengths()
        kept = tf.gather(first, row)
        kept = tf.RaggedTensor.from_row_lengths(
            tf.gather(
                kept.values,
                tf.ragged.range(kept.row_starts(), kept.row_starts() + tf.minimum(kept.row_lengths(), room)).values,
            ),
            tf.minimum(kept.row_lengths(), room),
        )
        cls, sep = (tf.fill([tf.size(row), 1], token) for token in (tokenizer.cls_id, tokenizer.sep_id))
        ids = tf.concat([cls, kept, sep, second, own, sep], axis=1)
        return TokenTensors.of_rows(ids, kept.row_lengths() + 2, tokenizer.pad_id), error


def _shape(tensor: tf.Tensor) -> tf.Tensor:
    return tf.shape(tensor, tf.int64)
