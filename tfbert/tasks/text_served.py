"""Texts, or pairs of them, with their labels or scores as a SavedModel."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfbert.batches.inputs import TokenTensors, padded_inputs_in_graph
from tfbert.tasks.base import Task
from tfbert.tasks.served_model import ServedModel


class TextClassifier(ServedModel):
    """Takes `text` and, for pairs, `text_pair`.

    Returns `logits`, float32 `[n, num_labels]`; for classification also `probabilities` of the same shape and `label`,
    string `[n]`; for several labels a text `probabilities`, `is_given`, bool, and `labels`, string, of that shape too;
    for regression `score`, float32 `[n]`; and `error`, see `ServedModel`. Rows of token ids get the same. A row with an
    error has NaN for each number, and empty labels.
    """

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        return task.notes()

    @property
    def text_inputs(self) -> tuple[str, ...]:
        return ("text", "text_pair")[: self._model.num_texts]

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        count, tokenizer = tf.shape(texts["text"])[0], self._model.tokenizer
        # BERT cannot compute a batch without rows: one row stands in, and is taken out again.
        stand_in = [[0, tf.maximum(1 - count, 0)]]
        columns = [tf.pad(texts[name], stand_in, constant_values="") for name in self.text_inputs]
        ids, second_start = tokenizer(*columns, max_seq_length=self._model.max_seq_length)
        tokens = TokenTensors.of_rows(ids, second_start, tokenizer.pad_id)
        rows = padded_inputs_in_graph(tokens, tf.range(ids.nrows()), tf.reduce_max(tokens.lengths))
        return self.answer_rows(self._model.logits(rows.inputs)[:count], tf.fill([count], ""))

    def answer_rows(self, logits: tf.Tensor, error: tf.Tensor) -> dict[str, tf.Tensor]:
        found = super().answer_rows(logits, error)
        if "label" in found:
            found["label"] = tf.where(found["error"] == "", found["label"], "")
        return found

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._model.task.answers(logits)
