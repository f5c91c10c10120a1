"""Token classification as a SavedModel: texts -> entities, or tagged words, with their characters."""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf

from tfbert.errors import UsageError
from tfbert.tasks.base import Task
from tfbert.tasks.served_model import ServedModel, substrings, without_endless
from tfbert.tasks.tagging.entities import entities_in_graph
from tfbert.tasks.tagging.words import text_rows_in_graph
from tfbert.tasks.trained import TrainedModel
from tfbert.tokens.offsets import Pieces


class Tagger(ServedModel):
    """Takes `text`; gives the predictions of `--mode=predict`.

    Returns flat arrays over all texts, in their order. For entities: `entity_row`, int32 `[m]`, the text that each is
    in; `entity_type` and `entity_text`, string `[m]`; `entity_start` and `entity_end`, int32 `[m]`, its first character
    and the one after its last, as Python counts characters; `entity_score`, float32 `[m]`, its words' mean probability.
    Where tags are no entities, the same for words: `word_row`, `word_tag`, `word_text`, `word_start`, `word_end` and
    `word_score`. And `error`, string `[n]`, see `ServedModel`: nothing is said about a text with an error.

    For rows of token ids, returns `logits`, float32 `[n, length, num_labels]`, and `error`.

    Raises:
        UsageError: if `max_seq_length` has no room for a word.
    """

    num_texts: ClassVar[int | None] = 1
    text_inputs = ("text",)

    def __init__(self, model: TrainedModel):
        if model.max_seq_length < 3:
            raise UsageError(
                "max_seq_length must hold 2 special tokens and a word. "
                f"Received: max_seq_length={model.max_seq_length}. Pass a larger one."
            )
        super().__init__(model)

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        return {"strict_entities": task.strict_entities}

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        tokenizer = self._model.tokenizer
        with tf.device("CPU:0"):
            pieces = tokenizer.tokenize_with_offsets(text)
            rows = text_rows_in_graph(tokenizer, pieces, self._model.max_seq_length)
        logits = self.token_logits(rows.tokens)
        with tf.device("CPU:0"):
            error, logits = without_endless(tf.fill(tf.shape(text), ""), logits, rows.tokens, rows.sentence)
            return self._found(text, pieces, tf.gather(logits, rows.first_piece), error) | {"error": error}

    def _found(self, text: tf.Tensor, pieces: Pieces, logits: tf.Tensor, error: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answer for words with these logits, float32 `[words, num_labels]`, in texts without an error."""
        task, texts = self._model.task, pieces.word_starts.value_rowids()
        tags = tf.argmax(logits, axis=1)
        first = last = tf.range(tf.size(tags))
        score = tf.reduce_max(tf.nn.softmax(tf.cast(logits, tf.float64)), axis=1)
        what, kind, names = "word", "tag", tf.gather(tf.constant(task.label_names), tags)
        if task.has_entities:
            found = entities_in_graph(tags, texts, task.meanings, strict=task.strict_entities)
            first, last = found.start, found.end - 1
            sums = tf.concat([tf.zeros([1], tf.float64), tf.cumsum(score)], 0)
            score = tf.gather(sums, found.end) - tf.gather(sums, found.start)
            score /= tf.cast(found.end - found.start, tf.float64)
            what, kind, names = "entity", "type", tf.gather(tf.constant(task.meanings.type_names), found.type)
        rows = tf.gather(texts, first)
        start, end = tf.gather(pieces.word_starts.values, first), tf.gather(pieces.word_ends.values, last)
        found = {
            f"{what}_row": tf.cast(rows, tf.int32),
            f"{what}_{kind}": names,
            f"{what}_text": substrings(text, rows, start, end),
            f"{what}_start": start,
            f"{what}_end": end,
            f"{what}_score": tf.cast(score, tf.float32),
        }
        is_sound = tf.gather(error == "", rows)
        return {name: tf.boolean_mask(values, is_sound) for name, values in found.items()}
