"""Prediction of choices: questions in Python, or of files in any form in which they are read -> a choice for each.

As a SavedModel: contexts, questions and choices -> the best choice, with the probability of each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import TokenTensors
from tfbert.config.run import Config
from tfbert.data.reading import PREDICTED_TEXTS
from tfbert.data.rows import input_source
from tfbert.errors import UsageError
from tfbert.tasks import prediction
from tfbert.tasks.base import rounded
from tfbert.tasks.multiple_choice import questions
from tfbert.tasks.multiple_choice.multiple_choice import NO_ROOM, Choices, EncodedChoices, encode_choices

_MASKED = -10000.0
_SPECIAL = 3


class Chooser(prediction.ServedModel):
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
            is_there = ~tf.strings.regex_full_match(choices, prediction.BLANK)
            tokens, error = self._sequences(context, question, choices, is_there)
            is_there &= (error == "")[:, tf.newaxis]
        found = self.row_logits(tokens)[:, 0]
        with tf.device("CPU:0"):
            places = tf.where(is_there)
            is_endless = tf.scatter_nd(places, tf.cast(~tf.math.is_finite(found), tf.int32), _shape(is_there))
            error = tf.where((error == "") & (tf.reduce_max(is_endless, axis=1) > 0), prediction.NOT_FINITE, error)
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
        has_context = ~tf.strings.regex_full_match(context, prediction.BLANK)
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
        is_blank = ~has_context & tf.strings.regex_full_match(question, prediction.BLANK)
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


class ChoiceItems(prediction.Items[questions.Asked]):
    """Questions with their choices."""

    most = 2048
    takes_top_k = True
    _num_read = _num_cut = 0

    def item(self, value: Any, where: str) -> questions.Asked:
        if isinstance(value, Mapping) and self.as_trained(value, "text_column"):
            if self.as_trained(value, "choice_columns"):
                return self.checked(self._of_table(value, where), where)
        is_right = isinstance(value, Mapping) and "choices" in value and ({"question", "context"} & value.keys())
        choices = value["choices"] if is_right else None
        if isinstance(choices, np.ndarray):
            choices = choices.tolist()
        if not isinstance(choices, list | tuple):
            received = f"the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else f"{value!r:.60}"
            raise UsageError(
                'Choices come with their question or context, as {"context": ..., "question": ..., "choices": [...]}. '
                f"Received: {received} in {where}. Pass choices as a list, and a question, a context or both."
            )
        asked = questions.Checks(strict=False).asked(value.get("context"), value.get("question"), choices, where)
        return self.checked(asked, where)

    def _of_table(self, value: Mapping[str, Any], where: str) -> questions.Asked:
        """A row of a table whose columns are those that the model was trained on."""
        *context, question = self._model.columns["text_column"]
        choices = tuple(self._model.columns["choice_columns"])
        columns = questions.Columns(context="".join(context), question=question, choices=choices, label="")
        return questions.asked_of(value, columns, questions.Checks(strict=False, labelled=False), where)

    def checked(self, asked: questions.Asked, where: str) -> questions.Asked:
        """The same question, unless it is too long.

        Only those are tokenised that may be.

        Raises:
            UsageError: for one that leaves no room for the context.
        """
        longest, tokenizer = max(map(len, asked.choices)), self._model.tokenizer
        room = self._model.max_seq_length - tokenizer.num_special(2) - 1
        if tokenizer.most_per_character * (len(asked.question) + longest) > room:
            self._encoded([asked], [where])
        return asked

    def size(self, item: questions.Asked) -> int:
        return len(item.context) * len(item.choices) + sum(map(len, item.choices))

    def encode(self, items: Sequence[questions.Asked]) -> EncodedChoices:
        encoded = self._encoded(items, items)
        self._num_read += len(items)
        self._num_cut += encoded.num_cut
        return encoded

    def _encoded(self, items: Sequence[questions.Asked], names: Sequence[Any]) -> EncodedChoices:
        labels, model = np.full(len(items), questions.NO_LABEL, np.int32), self._model
        return encode_choices(
            items, model.tokenizer, model.max_seq_length, labels=labels, where=lambda row: str(names[row])
        )

    def notes(self, name: str) -> list[str]:
        if not self._num_cut:
            return []
        cut, total = f"{self._num_cut:,}", f"{self._num_read:,}"
        return [f"{name}: contexts of {cut} of {total} questions are cut to fit {self._model.max_seq_length} tokens"]

    def answers(self, items: Sequence[questions.Asked], predictions: Choices) -> Iterator[Any]:
        for one, shares in zip(items, predictions.probabilities, strict=True):
            own = shares[: len(one.choices)]
            most = 1 if self._top_k == prediction.BEST else self._top_k
            order = np.argsort(-own, kind="stable")[:most].tolist()
            found = [{"index": i, "choice": one.choices[i], "score": rounded(own[i])} for i in order]
            yield found[0] if self._top_k == prediction.BEST else found

    def records(self, items: Sequence[questions.Asked], predictions: Choices) -> Iterator[dict[str, Any]]:
        """Also the `probabilities` of all choices."""
        answers = self.answers(items, predictions)
        for one, answer, shares in zip(items, answers, predictions.probabilities, strict=True):
            yield answer | {"probabilities": [*map(rounded, shares[: len(one.choices)])]}

    def columns(self) -> Sequence[str]:
        return ("index", "choice", "score", "probabilities")  # The last is a list in JSON.


def open_choice_files(config: Config) -> list[prediction.Job]:
    """The questions to answer, and where the answers go.

    Raises:
        UsageError: for input that cannot be opened, or output without a known ending.
    """
    asked = config.predict

    def id_column(columns: Sequence[str]) -> str:
        if asked.id_column and not columns:
            prediction.check_id_column(asked.id_column, asked.input_file, columns)
        return asked.id_column or prediction.usual_id_column(columns)

    opened = questions.open_questions(
        input_source(asked.input_file),
        config.data,
        choice_columns=config.choosing.choice_columns,
        id_column=id_column,
        checks=questions.Checks(strict=False, labelled=False),
    )

    def read(items: ChoiceItems, row: questions.Asked, number: int, where: str) -> questions.Asked:
        name = number if row.name is None else prediction.row_id(row.name, "id", where)
        return dataclasses.replace(items.checked(row, where), name=name)

    return [
        prediction.Job(
            name=opened.file.name,
            columns=opened.read,
            rows=((f"{opened.file.name}, {opened.file.unit} {line}", row) for line, row in opened.rows),
            read=read,
            path=prediction.output_path(asked),
            format=prediction.chosen_format(asked, PREDICTED_TEXTS, default="jsonl"),
        )
    ]
